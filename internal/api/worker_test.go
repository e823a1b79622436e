package api

import (
	"context"
	"errors"
	"testing"
	"time"

	"connectrpc.com/connect"

	errandv1 "github.com/errandhq/errand/proto/errand/v1"
	"github.com/errandhq/errand/proto/errand/v1/errandv1connect"
)

// fakeWorker speaks the worker's protocol word by word.
type fakeWorker struct {
	t          testing.TB
	stream     *connect.BidiStreamForClientSimple[errandv1.WorkRequest, errandv1.WorkResponse]
	registered chan *errandv1.Registered
	assigned   chan *errandv1.Assignment
	acks       chan *errandv1.Ack
	stops      chan *errandv1.StopAttempt
	marks      chan *errandv1.WorkerMarks
	ended      chan error // how the connection ended
}

const inboxMax = 10_000

func instance(n byte) []byte { return append(make([]byte, 15), n) }

// dial opens a stream without a word.
func (e *edge) dial(key string, options ...connect.ClientOption) *fakeWorker {
	e.t.Helper()
	client := errandv1connect.NewWorkerServiceClient(e.http, e.url, append(options, connect.WithInterceptors(bearerOf(key)))...)
	ctx, cancel := context.WithCancel(context.Background())
	stream, err := client.Work(ctx)
	if err != nil {
		e.t.Fatal(err)
	}
	w := &fakeWorker{
		t: e.t, stream: stream, registered: make(chan *errandv1.Registered, 1), assigned: make(chan *errandv1.Assignment, inboxMax),
		acks: make(chan *errandv1.Ack, inboxMax), stops: make(chan *errandv1.StopAttempt, inboxMax), ended: make(chan error, 1),
		marks: make(chan *errandv1.WorkerMarks, inboxMax),
	}
	heard := make(chan struct{})
	go func() {
		defer close(heard)
		w.hear()
	}()
	e.t.Cleanup(func() {
		cancel()
		_ = stream.CloseRequest() // a canceled context is only noticed once the request's body has ended
		<-heard
	})
	return w
}

func (w *fakeWorker) hear() {
	for {
		m, err := w.stream.Receive()
		if err != nil {
			w.ended <- err
			return
		}
		if m.GetRegistered() != nil {
			w.registered <- m.GetRegistered()
		}
		if m.GetMarks() != nil {
			w.marks <- m.GetMarks()
		}
		for _, a := range m.GetAssign() {
			w.assigned <- a
		}
		for _, a := range m.GetAcks() {
			w.acks <- a
		}
		for _, s := range m.GetStops() {
			w.stops <- s
		}
	}
}

// worker connects and registers a worker that runs up to 100 attempts of each kind.
func (e *edge) worker(key string, id byte, kinds ...string) *fakeWorker {
	e.t.Helper()
	return e.workerWith(key, id, kinds)
}

func (e *edge) workerWith(key string, id byte, kinds []string, options ...connect.ClientOption) *fakeWorker {
	e.t.Helper()
	w := e.dial(key, options...)
	w.say(&errandv1.WorkRequest{Register: registration(id, kinds...)})
	got := receive(e.t, "the answer to register", w.registered)
	if got.GetRegion() != region || got.GetProtocol() != protocolVersion || got.GetMaxMessageBytes() != workRequestBytesMax {
		e.t.Errorf("the terms are %v", got)
	}
	w.say(&errandv1.WorkRequest{Heartbeat: &errandv1.Heartbeat{}}) // it gets no work before its first one
	return w
}

func registration(id byte, kinds ...string) *errandv1.Register {
	r := &errandv1.Register{Protocol: 1, WorkerInstance: instance(id), Name: "w"}
	for _, k := range kinds {
		r.Kinds = append(r.Kinds, &errandv1.KindSlots{Kind: k, Slots: 100})
	}
	return r
}

func (w *fakeWorker) say(m *errandv1.WorkRequest) {
	w.t.Helper()
	if err := w.stream.Send(m); err != nil {
		w.t.Fatalf("send: %v", err)
	}
}

// take waits for an assignment and accepts it.
func (w *fakeWorker) take() *errandv1.Assignment {
	w.t.Helper()
	a := receive(w.t, "an assignment", w.assigned)
	w.say(&errandv1.WorkRequest{Accepted: []*errandv1.Token{a.GetToken()}})
	return a
}

// finish reports an end and waits for its ack.
func (w *fakeWorker) finish(f *errandv1.Finished) *errandv1.Ack {
	w.t.Helper()
	w.say(&errandv1.WorkRequest{Finished: []*errandv1.Finished{f}})
	return receive(w.t, "an ack", w.acks)
}

func succeeded(a *errandv1.Assignment, result []byte) *errandv1.Finished {
	return &errandv1.Finished{Token: a.GetToken(), Outcome: &errandv1.Finished_Succeeded{Succeeded: &errandv1.Result{Data: result}}}
}

func failed(a *errandv1.Assignment, f *errandv1.AttemptFailure) *errandv1.Finished {
	return &errandv1.Finished{Token: a.GetToken(), Outcome: &errandv1.Finished_Failed{Failed: f}}
}

// end waits for the connection's end.
func (w *fakeWorker) end() error {
	w.t.Helper()
	return receive(w.t, "the connection's end", w.ended)
}

// refusal waits for the connection's end with an error of a call.
func (w *fakeWorker) refusal() (connect.Code, *errandv1.ErrorDetail) {
	w.t.Helper()
	err := w.end()
	var ce *connect.Error
	if !errors.As(err, &ce) {
		w.t.Fatalf("the connection ended with %v", err)
	}
	return ce.Code(), detailOf(ce)
}

func receive[T any](t testing.TB, what string, from <-chan T) T {
	t.Helper()
	timeout := time.NewTimer(patience)
	defer timeout.Stop()
	select {
	case got := <-from:
		return got
	case <-timeout.C:
		t.Fatalf("waited %v in vain for %s", patience, what)
		panic("unreachable")
	}
}
