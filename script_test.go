package errand

import (
	"context"
	"encoding/binary"
	"errors"
	"net/http"
	"sync"
	"testing"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/durationpb"

	errandv1 "github.com/errandhq/errand/proto/errand/v1"
	"github.com/errandhq/errand/proto/errand/v1/errandv1connect"
)

// scripted is a scheduler that does what a test says: each connection of a worker comes out of lines, and the test speaks on it.
// By itself it answers registers and heartbeats only.
type scripted struct {
	errandv1connect.UnimplementedWorkerServiceHandler
	url      string
	region   string
	lease    time.Duration
	grant    time.Duration // for exclusive handlers
	maxBytes int64
	mute     bool  // registers are not answered
	refuse   error // what a register is answered with, if anything
	lines    chan *session
}

// session is the scheduler's side of a connection.
type session struct {
	conn     *connect.BidiStream[errandv1.WorkRequest, errandv1.WorkResponse]
	register *errandv1.Register
	mu       sync.Mutex // one message at a time, and none after the end
	over     bool
	changes  chan *errandv1.Register // after the first one
	accepted chan *errandv1.Token
	finished chan *errandv1.Finished
	sizes    chan int // how many ends each message has, of those that have some
	beats    chan time.Time
	drained  chan struct{}
	bye      chan struct{}
	said     chan struct{} // closed when the worker has said everything, or is gone
	end      chan error
}

const wordsMax = 10_000 // that a session keeps for its test

func (n *network) scheduler(name string, change ...func(*scripted)) *scripted {
	s := &scripted{region: "eu", lease: 10 * time.Second, lines: make(chan *session, 1000)}
	for _, c := range change {
		c(s)
	}
	mux := http.NewServeMux()
	mux.Handle(errandv1connect.NewWorkerServiceHandler(s))
	s.url = n.serve(name, mux)
	return s
}

// Work is one connection.
func (s *scripted) Work(ctx context.Context, conn *connect.BidiStream[errandv1.WorkRequest, errandv1.WorkResponse]) error {
	first, err := conn.Receive()
	if err != nil {
		return err
	}
	l := &session{
		conn: conn, register: first.GetRegister(), accepted: make(chan *errandv1.Token, wordsMax), changes: make(chan *errandv1.Register, wordsMax), finished: make(chan *errandv1.Finished, wordsMax),
		sizes: make(chan int, wordsMax), beats: make(chan time.Time, wordsMax), drained: make(chan struct{}, wordsMax),
		bye: make(chan struct{}, wordsMax), said: make(chan struct{}), end: make(chan error, 1),
	}
	if s.refuse != nil {
		s.lines <- l
		return s.refuse
	}
	if !s.mute {
		l.say(&errandv1.WorkResponse{Registered: &errandv1.Registered{
			Session: s.url, Lease: durationpb.New(s.lease), Heartbeat: durationpb.New(s.lease / 4), Region: s.region, MaxMessageBytes: s.maxBytes,
		}})
	}
	defer l.close()
	s.lines <- l
	go s.hear(l)
	select {
	case err := <-l.end:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (s *scripted) hear(l *session) {
	defer close(l.said)
	for {
		m, err := l.conn.Receive()
		if err != nil {
			return
		}
		if m.GetRegister() != nil {
			l.changes <- m.GetRegister()
		}
		for _, token := range m.GetAccepted() {
			l.accepted <- token
		}
		for _, f := range m.GetFinished() {
			l.finished <- f
		}
		if k := len(m.GetFinished()); k > 0 {
			l.sizes <- k
		}
		if hb := m.GetHeartbeat(); hb != nil {
			l.beats <- time.Now()
			l.say(&errandv1.WorkResponse{HeartbeatAck: &errandv1.HeartbeatAck{Seq: hb.GetSeq(), SentAt: hb.GetSentAt(), ExclusiveGrant: durationpb.New(s.grant)}})
		}
		if m.GetDrain() {
			l.drained <- struct{}{}
		}
		if m.GetGoodbye() {
			l.bye <- struct{}{}
		}
	}
}

func (l *session) say(m *errandv1.WorkResponse) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.over {
		_ = l.conn.Send(m) // the connection may be gone: tests want that
	}
}

func (l *session) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.over = true
}

// ack says that ends are recorded.
func (l *session) ack(tokens ...*errandv1.Token) {
	m := &errandv1.WorkResponse{}
	for _, token := range tokens {
		m.Acks = append(m.Acks, &errandv1.Ack{Token: token, Answer: errandv1.AckAnswer_ACK_ANSWER_RECORDED})
	}
	l.say(m)
}

func (l *session) stop(cause errandv1.StopCause, token *errandv1.Token) {
	l.say(&errandv1.WorkResponse{Stops: []*errandv1.StopAttempt{{Token: token, Cause: cause}}})
}

// assign gives the worker an attempt of each kind, numbered from first.
func (l *session) assign(first int, kinds ...string) {
	m := &errandv1.WorkResponse{}
	for i, kind := range kinds {
		m.Assign = append(m.Assign, assignment(first+i, kind))
	}
	l.say(m)
}

func assignment(number int, kind string) *errandv1.Assignment {
	return &errandv1.Assignment{Token: &errandv1.Token{Id: taskID(number), Attempt: 1}, Kind: kind, Tenant: "acme", MaxAttempts: 5}
}

func taskID(number int) []byte {
	id := make([]byte, 16)
	binary.BigEndian.PutUint64(id[8:], uint64(number))
	return id
}

// numberOf is a task's number in the test.
func numberOf(token *errandv1.Token) int { return int(binary.BigEndian.Uint64(token.GetId()[8:])) }

func numbersOf(tokens []*errandv1.Token) map[int]bool {
	m := map[int]bool{}
	for _, token := range tokens {
		m[numberOf(token)] = true
	}
	return m
}

// reported waits for n ends, answers them if wanted, and returns them by task.
func (l *session) reported(t testing.TB, n int, answer bool) map[int]*errandv1.Finished {
	t.Helper()
	ends := map[int]*errandv1.Finished{}
	for range n {
		f := until(t, "the end of an attempt", l.finished)
		ends[numberOf(f.GetToken())] = f
		if answer {
			l.ack(f.GetToken())
		}
	}
	return ends
}

// farewell ends a session as a scheduler does that has been told everything.
func (l *session) farewell(t testing.TB) {
	t.Helper()
	until(t, "the worker's goodbye", l.bye)
	l.end <- nil
}

// crew is a worker that runs in a test.
type crew struct {
	*Worker
	t    testing.TB
	quit context.CancelFunc
	ran  chan error
}

// works runs a worker with handlers by kind, connected to schedulers in turn.
func (n *network) works(cfg WorkerConfig, handlers map[string]Handler, at ...*scripted) *crew {
	n.t.Helper()
	cfg.Key, cfg.HTTPClient = "errand_test", n.client()
	for _, s := range at {
		cfg.URLs = append(cfg.URLs, s.url)
	}
	w, err := NewWorker(cfg)
	if err != nil {
		n.t.Fatal(err)
	}
	for kind, h := range handlers {
		w.Handle(kind, 1000, h)
	}
	ctx, quit := context.WithCancel(context.Background())
	c := &crew{Worker: w, t: n.t, quit: quit, ran: make(chan error, 1)}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		c.ran <- w.Run(ctx)
	}()
	n.t.Cleanup(func() { // also when the test has failed
		quit()
		w.HandBack()
		<-ended
	})
	return c
}

// leaves stops the worker, ends its session in order and waits for Run.
func (c *crew) leaves(l *session) {
	c.t.Helper()
	c.quit()
	l.farewell(c.t)
	if err := until(c.t, "the end of Run", c.ran); err != nil {
		c.t.Errorf("Run: %v", err)
	}
}

// stub is a handler that tells of its start and runs until it is released or told to stop.
type stub struct {
	started chan *Attempt
	release chan error
	causes  chan error
}

func newStub() *stub {
	return &stub{started: make(chan *Attempt, 1000), release: make(chan error, 1000), causes: make(chan error, 1000)}
}

func (s *stub) handle(ctx context.Context, a *Attempt) (Result, error) {
	s.started <- a
	select {
	case err := <-s.release:
		return Result{}, err
	case <-ctx.Done():
		s.causes <- context.Cause(ctx)
		return Result{}, ctx.Err()
	}
}

// problem is an error as a scheduler sends it.
func problem(code connect.Code, d *errandv1.ErrorDetail) error {
	err := connect.NewError(code, errors.New("for people"))
	if d != nil {
		detail, marshalErr := connect.NewErrorDetail(d)
		if marshalErr != nil {
			panic(marshalErr)
		}
		err.AddDetail(detail)
	}
	return err
}
