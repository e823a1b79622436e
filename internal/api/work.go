package api

import (
	"context"
	"errors"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"connectrpc.com/connect"

	errandv1 "github.com/errandhq/errand/proto/errand/v1"
	"github.com/errandhq/errand/proto/errand/v1/errandv1connect"
	"github.com/errandhq/errand/scheduler"
	"github.com/errandhq/errand/scheduler/engine"
)

// Bounds of a worker's connection.
const (
	registerWait = 10 * time.Second // for the first message
	lingerMax    = 2 * time.Second  // for the last acks, once the worker has said everything
	// credentialEvery is how often a long call looks whether its credential still holds; with keyCacheFor it makes the 5 s
	// within which a revoked key stops working.
	credentialEvery = time.Second
)

// workerService serves workers.
type workerService struct {
	errandv1connect.UnimplementedWorkerServiceHandler
	deployment
	scheduler Scheduler
	tasks     Links
	valid     *validator
	polls     pollers
}

type workConn = connect.BidiStream[errandv1.WorkRequest, errandv1.WorkResponse]

// Work carries words between a worker and the engine until either side ends the connection, or the credential is revoked.
func (s *workerService) Work(ctx context.Context, conn *workConn) error {
	first, err := firstMessage(ctx, conn)
	if err != nil {
		return err
	}
	ears := &listener{workerService: s, who: principal(ctx), conn: conn}
	words, err := ears.register(first)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	var parts sync.WaitGroup
	defer parts.Wait()
	defer cancel()
	ended := make(chan error, 1)
	parts.Go(func() { watchCredential(ctx, ended) })

	stream := s.scheduler.OpenStream()
	defer stream.Close()
	stream.Say(words)
	read := make(chan error, 1)
	go func() { read <- ears.listen(stream) }() // ends when the handler returns: that ends the connection
	return s.speak(ctx, ears, stream, read, ended)
}

// firstMessage waits for the register: a connection that says nothing is not kept.
func firstMessage(ctx context.Context, conn *workConn) (*errandv1.WorkRequest, error) {
	type message struct {
		req *errandv1.WorkRequest
		err error
	}
	first := make(chan message, 1)
	go func() { // ends when the handler returns, at the latest
		req, err := conn.Receive()
		first <- message{req, err}
	}()
	timeout := time.NewTimer(registerWait)
	defer timeout.Stop()
	select {
	case m := <-first:
		if errors.Is(m.err, io.EOF) {
			return nil, errNotRegistered
		}
		return m.req, m.err
	case <-timeout.C:
		return nil, errNotRegistered
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// watchCredential tells when the credential has been revoked; ctx ends it.
func watchCredential(ctx context.Context, ended chan<- error) {
	ticker := time.NewTicker(credentialEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		if err := revoked(ctx); err != nil && ctx.Err() == nil {
			ended <- err
			return
		}
	}
}

// speak sends what the engine says until the connection ends.
func (s *workerService) speak(ctx context.Context, ears *listener, stream *engine.Stream, read, ended <-chan error) error {
	var linger <-chan time.Time // set once the worker has said everything
	for {
		select {
		case out := <-stream.Out():
			if err := s.send(ears, &out); err != nil {
				return err
			}
		case err := <-read:
			if err != nil {
				return err
			}
			timer := time.NewTimer(lingerMax)
			defer timer.Stop() // set once: read delivers once
			linger = timer.C
		case <-linger:
			return nil
		case <-stream.Closed():
			return s.lastWords(ears, stream)
		case err := <-ended:
			return err
		case <-ctx.Done():
			return ctx.Err()
		}
		if linger != nil && ears.owed.Load() <= 0 {
			return nil
		}
	}
}

// lastWords sends what was said before the engine gave the connection up.
func (s *workerService) lastWords(ears *listener, stream *engine.Stream) error {
	for {
		select {
		case out := <-stream.Out():
			if err := s.send(ears, &out); err != nil {
				return err
			}
			continue
		default:
		}
		if ears.goodbye.Load() {
			return nil
		}
		return errReplaced
	}
}

func (s *workerService) send(ears *listener, words *engine.ToWorker) error {
	for m := range s.responses(words) {
		if err := ears.conn.Send(m); err != nil {
			return err
		}
	}
	ears.owed.Add(-int64(len(words.Acks)))
	return nil
}

// listener hears what one worker says.
type listener struct {
	*workerService
	who     Principal
	conn    *workConn
	id      scheduler.WorkerID // as the scheduler knows it
	given   []byte             // as the worker names itself
	owed    atomic.Int64       // ends that were said and not acknowledged
	goodbye atomic.Bool
}

// register takes the first message.
func (l *listener) register(first *errandv1.WorkRequest) (engine.FromWorker, error) {
	if err := decoded(first); err != nil {
		return engine.FromWorker{}, err
	}
	if first.GetRegister() == nil {
		return engine.FromWorker{}, errNotRegistered
	}
	l.given = first.GetRegister().GetWorkerInstance()
	return l.words(first)
}

// listen hands on what the worker says; nil when it has said everything.
func (l *listener) listen(stream *engine.Stream) error {
	for {
		req, err := l.conn.Receive()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if err := decoded(req); err != nil {
			return err
		}
		words, err := l.words(req)
		if err != nil {
			return err
		}
		if words.Register != nil {
			words.Register.Update = true
		}
		stream.Say(words)
	}
}
