package errand

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/durationpb"

	errandv1 "github.com/errandhq/errand/proto/errand/v1"
	"github.com/errandhq/errand/proto/errand/v1/errandv1connect"
)

// mute is a scheduler that takes workers in and never says another word: a network that fails without closing anything looks so.
type mute struct {
	errandv1connect.UnimplementedWorkerServiceHandler
	registered chan struct{}
}

func (m *mute) Work(ctx context.Context, conn *connect.BidiStream[errandv1.WorkRequest, errandv1.WorkResponse]) error {
	if _, err := conn.Receive(); err != nil {
		return err
	}
	err := conn.Send(&errandv1.WorkResponse{Registered: &errandv1.Registered{
		Lease: durationpb.New(time.Second), Heartbeat: durationpb.New(time.Minute), Region: "eu",
	}})
	if err != nil {
		return err
	}
	m.registered <- struct{}{}
	<-ctx.Done()
	return ctx.Err()
}

// A worker leaves a scheduler that has fallen silent and comes back, though the connection is never closed.
func TestASilentSchedulerIsLeft(t *testing.T) {
	silent := &mute{registered: make(chan struct{}, 10)}
	mux := http.NewServeMux()
	mux.Handle(errandv1connect.NewWorkerServiceHandler(silent))
	server := httptest.NewUnstartedServer(mux)
	server.Config.Protocols = new(http.Protocols)
	server.Config.Protocols.SetUnencryptedHTTP2(true)
	server.Start()
	t.Cleanup(server.Close)

	w, err := NewWorker(WorkerConfig{Config: Config{URLs: []string{server.URL}, Key: "errand_test"}, DrainGrace: time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	w.Handle("email", 1, func(context.Context, *Attempt) (Result, error) { return Result{}, nil })
	ctx, stop := context.WithCancel(t.Context())
	ran := make(chan error, 1)
	go func() { ran <- w.Run(ctx) }()
	for i := range 2 {
		select {
		case <-silent.registered:
		case <-time.After(15 * time.Second):
			t.Errorf("the worker came %d times: it waits for a scheduler that is silent", i)
		}
	}
	stop()
	<-ran
}
