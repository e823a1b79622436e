package errand

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"

	"connectrpc.com/connect"

	errandv1 "github.com/errandhq/errand/proto/errand/v1"
	"github.com/errandhq/errand/proto/errand/v1/errandv1connect"
)

// Defaults and bounds of a worker.
const (
	// DefaultDrainGrace is how long handlers may go on after a worker was asked to stop.
	DefaultDrainGrace = 30 * time.Second
	// DefaultStopGrace is how long they may take to return once their contexts have ended.
	DefaultStopGrace = 5 * time.Second

	farewell        = 10 * time.Second // for telling the last ends, after all handlers have returned
	goodbyeLimit    = 2 * time.Second  // for leaving a scheduler in order
	reconnectMin    = 50 * time.Millisecond
	reconnectMax    = 2 * time.Second
	protocolVersion = 1
	sdkVersion      = "0.1.0"
)

// WorkerConfig configures a worker. Zero values mean the defaults.
type WorkerConfig struct {
	Config
	// Name is for people. Default the host's name.
	Name string
	// DrainGrace is how long handlers may go on after Run's context has ended; default DefaultDrainGrace.
	DrainGrace time.Duration
	// StopGrace is how long they may take to return once their contexts have ended too; default DefaultStopGrace.
	StopGrace time.Duration
	// Log tells of connections and of attempts that ended badly. Default none.
	Log *slog.Logger
}

// Worker runs handlers for one scheduler at a time, and changes to the next when it cannot be reached.
type Worker struct {
	cfg      WorkerConfig
	services []errandv1connect.WorkerServiceClient
	id       [16]byte // fresh for each run of the process: a name is never an identity
	name     string
	log      *slog.Logger

	mu         sync.Mutex
	kinds      map[string]*kind
	order      []string
	middleware []Middleware
	attempts   map[attemptID]*running
	box        outbox
	region     string
	draining   bool
	leaving    bool          // everything is told: the end of the connection is the end of the worker
	handBack   chan struct{} // closed to end the drain's grace at once
	once       sync.Once
	idle       chan struct{} // signaled when the last attempt has returned
	exclusive  grant
	speaking   sync.Mutex // one message at a time on a stream
}

type kind struct {
	handler Handler
	slots   int
}

// attemptID is the worker's part of a token.
type attemptID struct {
	id     [16]byte
	number int64
}

// running is an attempt whose handler has not returned.
type running struct {
	cancel    context.CancelCauseFunc
	exclusive bool
	lost      bool // nothing it says counts any more
}

// NewWorker returns a worker without handlers.
func NewWorker(cfg WorkerConfig) (*Worker, error) {
	if err := cfg.check(); err != nil {
		return nil, err
	}
	w := &Worker{
		cfg: cfg, name: cfg.Name, log: cfg.Log, kinds: map[string]*kind{}, attempts: map[attemptID]*running{},
		handBack: make(chan struct{}), idle: make(chan struct{}, 1),
	}
	if w.cfg.DrainGrace <= 0 {
		w.cfg.DrainGrace = DefaultDrainGrace
	}
	if w.cfg.StopGrace <= 0 {
		w.cfg.StopGrace = DefaultStopGrace
	}
	if w.name == "" {
		w.name, _ = os.Hostname() // a worker without a name works as well
	}
	if w.log == nil {
		w.log = slog.New(slog.DiscardHandler)
	}
	if _, err := rand.Read(w.id[:]); err != nil {
		return nil, fmt.Errorf("errand: the system has no randomness: %w", err)
	}
	w.box.wake = make(chan struct{}, 1)
	hc := cfg.client()
	for _, url := range cfg.URLs {
		w.services = append(w.services, errandv1connect.NewWorkerServiceClient(hc, url, clientOptions(cfg.Key)...))
	}
	return w, nil
}

// Use wraps the handlers that are added later: the first one given is the outermost.
func (w *Worker) Use(m ...Middleware) { w.middleware = append(w.middleware, m...) }

// Handle runs a handler for tasks of a kind, at most slots at once. Call it before Run.
func (w *Worker) Handle(name string, slots int, h Handler) {
	for i := len(w.middleware) - 1; i >= 0; i-- {
		h = w.middleware[i](h)
	}
	if w.kinds[name] == nil {
		w.order = append(w.order, name)
	}
	w.kinds[name] = &kind{handler: h, slots: max(slots, 1)}
}

// Handle runs a function on JSON values for tasks of a kind, at most slots at once. See [Typed].
func Handle[In, Out any](w *Worker, name string, slots int, f func(ctx context.Context, in In) (Out, error)) {
	w.Handle(name, slots, Typed(f))
}

// ErrNoHandlers means that a worker was run without handlers.
var ErrNoHandlers = errors.New("errand: the worker has no handlers")

// HandBack ends the grace of a drain at once: what still runs is stopped and goes back to its place.
func (w *Worker) HandBack() { w.once.Do(func() { close(w.handBack) }) }

// Run serves until ctx ends, and then drains: it takes no more work, lets handlers finish within DrainGrace, stops the rest,
// reports every end, and keeps its lease alive until the last of it. It returns nil after a drain, and an error when the
// scheduler refuses the worker for good.
func (w *Worker) Run(ctx context.Context) error {
	if len(w.kinds) == 0 {
		return ErrNoHandlers
	}
	life, end := context.WithCancel(context.WithoutCancel(ctx))
	defer end()
	defer w.exclusive.watch(w.stopExclusive)()
	served := make(chan struct{})
	var refused error
	go func() {
		refused = w.serve(life)
		close(served)
	}()
	select {
	case <-served:
		w.stopAll(ErrDraining)
		return refused
	case <-ctx.Done():
	}
	w.drain(life)
	select {
	case <-served:
		return nil
	case <-time.After(goodbyeLimit):
	}
	end()
	<-served
	return nil
}

// drain lets the handlers end, tells the last of their ends, and says goodbye.
func (w *Worker) drain(ctx context.Context) {
	w.mu.Lock()
	w.draining = true
	w.mu.Unlock()
	w.box.add(func(m *errandv1.WorkRequest) { m.Drain = true })
	w.log.Info("draining", "grace", w.cfg.DrainGrace)

	grace := time.NewTimer(w.cfg.DrainGrace)
	defer grace.Stop()
	if !w.waitIdle(grace.C, w.handBack) {
		w.stopAll(ErrDraining)
		stop := time.NewTimer(w.cfg.StopGrace)
		defer stop.Stop()
		if !w.waitIdle(stop.C, nil) {
			w.handBackRest()
		}
	}
	last := time.NewTimer(farewell)
	defer last.Stop()
	w.box.flushed(ctx, last.C)
	w.mu.Lock()
	w.leaving = true
	w.mu.Unlock()
	w.box.add(func(m *errandv1.WorkRequest) { m.Goodbye = true })
}

// handBackRest gives up attempts whose handlers do not return. They go back to their place; the process is about to end.
func (w *Worker) handBackRest() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for id, r := range w.attempts {
		if !r.lost {
			r.lost = true
			w.box.end(id, handedBack(id, "drained"))
		}
	}
}

// waitIdle waits until no handler runs, and returns false when one of the others came first.
func (w *Worker) waitIdle(limit <-chan time.Time, enough <-chan struct{}) bool {
	for {
		w.mu.Lock()
		n := len(w.attempts)
		w.mu.Unlock()
		if n == 0 {
			return true
		}
		select {
		case <-w.idle:
		case <-limit:
			return false
		case <-enough:
			return false
		}
	}
}

func (w *Worker) stopAll(cause error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, r := range w.attempts {
		r.cancel(cause)
	}
}

// serve connects again and again until ctx ends. An end of a connection is an accident unless it was agreed on: the attempts
// go on, and the next connection names them.
func (w *Worker) serve(ctx context.Context) error {
	pause, at := reconnectMin, 0
	for ctx.Err() == nil {
		err := w.connection(ctx, w.services[at%len(w.services)], func() { pause = reconnectMin })
		switch {
		case ctx.Err() != nil || w.left():
			return nil
		case errors.Is(err, errGoodbye):
			at++ // this scheduler stops: the next one, at once
			pause = reconnectMin
			continue
		case refusedForGood(err):
			return errorOf(err)
		}
		at++
		wait := jitter(pause)
		pause = min(pause*2, reconnectMax)
		w.log.Warn("connection to the scheduler lost", "error", err, "again_in", wait)
		select {
		case <-ctx.Done():
		case <-time.After(wait):
		}
	}
	return nil
}

func (w *Worker) left() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.leaving
}

// refusedForGood tells whether connecting again is of no use until a person has changed something.
func refusedForGood(err error) bool {
	switch connect.CodeOf(err) {
	case connect.CodeUnauthenticated, connect.CodePermissionDenied, connect.CodeInvalidArgument:
		return errorOf(err).Reason != ""
	default:
		return false
	}
}
