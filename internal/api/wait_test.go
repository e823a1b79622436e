package api

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"connectrpc.com/connect"
	"go.uber.org/goleak"
	"google.golang.org/protobuf/types/known/durationpb"

	errandv1 "github.com/errandhq/errand/proto/errand/v1"
	"github.com/errandhq/errand/scheduler"
)

// watched is a scheduler whose watchers are counted.
type watched struct {
	Scheduler
	open  atomic.Int32
	began chan struct{} // gets one for each watch
}

func (w *watched) Watch(ids []scheduler.ID, ended chan<- scheduler.ID) func() {
	stop := w.Scheduler.Watch(ids, ended)
	w.open.Add(1)
	w.began <- struct{}{}
	return func() {
		w.open.Add(-1)
		stop()
	}
}

// blind sees no end when it looks: only a word of the engine can end a wait.
type blind struct{ Tasks }

func (blind) TaskStates(context.Context, string, []scheduler.ID) (map[scheduler.ID]scheduler.State, error) {
	return nil, nil
}

func watching(t *testing.T, blinded bool) (*edge, *watched) {
	var w *watched
	e := start(t, func(c *Config) {
		w = &watched{Scheduler: c.Scheduler, began: make(chan struct{}, 100)}
		c.Scheduler = w
		if blinded {
			c.Tasks = blind{c.Tasks}
		}
	})
	return e, w
}

type waited struct {
	resp *errandv1.WaitTaskResponse
	err  error
}

func (e *edge) waitFor(ctx context.Context, id string) <-chan waited {
	got := make(chan waited, 1)
	go func() {
		resp, err := e.tasks(e.acme).WaitTask(ctx, &errandv1.WaitTaskRequest{TaskId: id})
		got <- waited{resp, err}
	}()
	return got
}

func TestAWaitEndsWithItsTask(t *testing.T) {
	e, watchers := watching(t, true)
	w := e.worker(e.acme, 1, "email")
	id := e.submit(&errandv1.TaskSpec{Kind: "email"}).GetTaskId()
	a := w.take()
	got := e.waitFor(t.Context(), id)
	receive(t, "a watch", watchers.began)
	w.finish(succeeded(a, []byte("done")))
	if end := receive(t, "the wait's end", got); end.err != nil || !end.resp.GetEnded() || string(end.resp.GetTask().GetResult()) != "done" {
		t.Errorf("the wait ended with %v", end)
	}
	// One that has ended is answered at once.
	if end := receive(t, "the wait's end", e.waitFor(t.Context(), id)); end.err != nil || !end.resp.GetEnded() {
		t.Errorf("a wait for an ended task: %v", end)
	}
	eventually(t, "no watchers", func() bool { return watchers.open.Load() == 0 })
}

func TestAWaitSeesAnEndElsewhere(t *testing.T) {
	e, watchers := watching(t, false)
	other := startOver(t, e.dsn)
	id := e.submit(&errandv1.TaskSpec{Kind: "email"}).GetTaskId()
	got := e.waitFor(t.Context(), id)
	receive(t, "a watch", watchers.began)
	canceled, err := other.tasks(e.acme).CancelTask(t.Context(), &errandv1.CancelTaskRequest{TaskId: id})
	if err != nil || !canceled.GetAccepted() {
		t.Fatal(canceled, err)
	}
	if end := receive(t, "the wait's end", got); end.err != nil || end.resp.GetTask().GetState() != errandv1.TaskState_TASK_STATE_CANCELED {
		t.Errorf("the wait ended with %v", end)
	}
}

func TestAWaitEndsInTime(t *testing.T) {
	e, watchers := watching(t, false)
	id := e.submit(&errandv1.TaskSpec{Kind: "email"}).GetTaskId()
	for _, limit := range []time.Duration{0, 20 * time.Millisecond} {
		resp, err := e.tasks(e.acme).WaitTask(t.Context(), &errandv1.WaitTaskRequest{TaskId: id, Timeout: durationpb.New(limit)})
		if err != nil || resp.GetEnded() || resp.GetTask().GetTaskId() != id {
			t.Errorf("a wait of %v: %v, %v", limit, resp, err)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := e.tasks(e.acme).WaitTask(ctx, &errandv1.WaitTaskRequest{TaskId: id}); connect.CodeOf(err) != connect.CodeDeadlineExceeded {
		t.Errorf("beyond the caller's deadline: %v", err)
	}
	eventually(t, "no watchers", func() bool { return watchers.open.Load() == 0 })
}

func TestACanceledWaitLeavesNothing(t *testing.T) {
	e, watchers := watching(t, false)
	id := e.submit(&errandv1.TaskSpec{Kind: "email"}).GetTaskId()
	receive(t, "a first wait", e.waitFor(t.Context(), "nonsense")) // opens the connection
	before := goleak.IgnoreCurrent()
	ctx, cancel := context.WithCancel(t.Context())
	const waits = 50
	var ends []<-chan waited
	for range waits {
		ends = append(ends, e.waitFor(ctx, id))
	}
	for range waits {
		receive(t, "a watch", watchers.began)
	}
	if got := watchers.open.Load(); got != waits {
		t.Errorf("%d watchers, want %d", got, waits)
	}
	cancel()
	for _, end := range ends {
		if got := receive(t, "the wait's end", end); connect.CodeOf(got.err) != connect.CodeCanceled {
			t.Errorf("a canceled wait ended with %v", got)
		}
	}
	eventually(t, "no watchers", func() bool { return watchers.open.Load() == 0 })
	e.http.CloseIdleConnections()
	goleak.VerifyNone(t, before, goleak.IgnoreAnyFunction("github.com/jackc/pgx/v5/pgxpool.(*Pool).backgroundHealthCheck"))
}
