package errand

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
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
	slotsMax        = 100_000 // of one kind
	workerNameMax   = 255     // bytes
)

// WorkerConfig configures a worker. Zero values mean the defaults.
type WorkerConfig struct {
	Config
	// Name is for people. Default the host's name.
	Name string
	// Labels are what tasks may ask of a worker, at most 64. Operators can lay others over them. A machine with NVIDIA devices of one model
	// adds gpu_model.
	Labels map[string]string
	// Zone is where it runs, for tasks that wish to be near something.
	Zone string
	// Capacity is what it has for tasks that say what they need; default [DetectCapacity].
	Capacity *Capacity
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
	http     *http.Client
	id       [16]byte // fresh for each run of the process: a name is never an identity
	name     string
	log      *slog.Logger

	mu         sync.Mutex
	kinds      map[string]*kind
	order      []string
	middleware []Middleware
	attempts   map[attemptID]*running
	box        outbox
	ran        bool
	draining   bool
	leaving    bool          // everything is told: the end of the connection is the end of the worker
	handBack   chan struct{} // closed to end the drain's grace at once
	once       sync.Once
	idle       chan struct{} // signaled when the last attempt has returned
	exclusive  grant
	hands      hands
	labels     map[string]string
	capacity   Capacity
	marks      *errandv1.WorkerMarks // what operators have laid over it, for the next scheduler
	region     string                // the scheduler's; belongs to who listens to it
}

type kind struct {
	handler Handler
	slots   int
	span    string // the name of its spans
}

// NewWorker returns a worker without handlers. A configuration that cannot work is an ErrConfig that names the field.
func NewWorker(cfg WorkerConfig) (*Worker, error) {
	if err := cfg.check(); err != nil {
		return nil, err
	}
	w := &Worker{
		cfg: cfg, name: cfg.Name, log: cfg.Log, kinds: map[string]*kind{}, attempts: map[attemptID]*running{},
		box: newOutbox(), exclusive: grant{began: time.Now()}, handBack: make(chan struct{}), hands: newHands(), idle: make(chan struct{}, 1),
	}
	w.cfg.DrainGrace = cmp.Or(cfg.DrainGrace, DefaultDrainGrace)
	w.cfg.StopGrace = cmp.Or(cfg.StopGrace, DefaultStopGrace)
	if w.name == "" {
		host, _ := os.Hostname() // a worker without a name works as well
		w.name = text(host, workerNameMax)
	}
	w.describe()
	if w.log == nil {
		w.log = slog.New(slog.DiscardHandler)
	}
	if _, err := rand.Read(w.id[:]); err != nil {
		return nil, fmt.Errorf("errand: the system has no randomness: %w", err)
	}
	w.http = cfg.client()
	for _, url := range cfg.URLs {
		w.services = append(w.services, errandv1connect.NewWorkerServiceClient(w.http, url, clientOptions(cfg.Key)...))
	}
	return w, nil
}

func (c *WorkerConfig) check() error {
	if err := c.Config.check(); err != nil {
		return err
	}
	switch {
	case c.Name != text(c.Name, workerNameMax):
		return fmt.Errorf("%w: Name: at most %d bytes of UTF-8 without NUL", ErrConfig, workerNameMax)
	case c.Zone != text(c.Zone, zoneMax):
		return fmt.Errorf("%w: Zone: at most %d bytes of UTF-8 without NUL", ErrConfig, zoneMax)
	case c.DrainGrace < 0:
		return fmt.Errorf("%w: DrainGrace: %v is negative", ErrConfig, c.DrainGrace)
	case c.StopGrace < 0:
		return fmt.Errorf("%w: StopGrace: %v is negative", ErrConfig, c.StopGrace)
	}
	if c.Capacity != nil {
		if err := c.Capacity.check(); err != nil {
			return err
		}
	}
	return checkLabels(c.Labels)
}

// Use wraps the handlers that are added later: the first one given is the outermost.
func (w *Worker) Use(m ...Middleware) { w.middleware = append(w.middleware, m...) }

// Handle runs a handler for tasks of a kind, at most slots at once. Call it before Run, which refuses what cannot work: a kind
// is a letter, then up to 62 of a-z 0-9 . _ -, and slots are 1 to 100,000. A second handler of a kind takes the first one's place.
func (w *Worker) Handle(name string, slots int, h Handler) {
	bad := h == nil
	for i := len(w.middleware) - 1; i >= 0 && !bad; i-- {
		h = w.middleware[i](h)
	}
	if w.kinds[name] == nil {
		w.order = append(w.order, name)
	}
	w.kinds[name] = &kind{handler: h, slots: slots, span: "run " + name}
}

// Handle runs a function on JSON values for tasks of a kind, at most slots at once. See [Typed].
func Handle[In, Out any](w *Worker, name string, slots int, f func(ctx context.Context, in In) (Out, error)) {
	w.Handle(name, slots, Typed(f))
}

// ErrNoHandlers means that a worker was run without handlers.
var ErrNoHandlers = errors.New("errand: the worker has no handlers")

// begin refuses to run what cannot work.
func (w *Worker) begin() error {
	if len(w.kinds) == 0 {
		return ErrNoHandlers
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, name := range w.order {
		switch k := w.kinds[name]; {
		case !kindPattern.MatchString(name):
			return fmt.Errorf("%w: Handle: kind %q: a letter, then up to 62 of a-z 0-9 . _ -", ErrConfig, name)
		case k.slots < 1 || k.slots > slotsMax:
			return fmt.Errorf("%w: Handle: kind %s: %d slots; 1 to %d are possible", ErrConfig, name, k.slots, slotsMax)
		case k.handler == nil:
			return fmt.Errorf("%w: Handle: kind %s: the handler is nil", ErrConfig, name)
		}
	}
	if w.ran {
		return fmt.Errorf("%w: Run: a worker runs once; make a new one", ErrConfig)
	}
	w.ran = true
	return nil
}

// HandBack ends the grace of a drain at once: what still runs is stopped and goes back to its place.
func (w *Worker) HandBack() { w.once.Do(func() { close(w.handBack) }) }

// Run serves until ctx ends, and then drains: it takes no more work, lets handlers finish within DrainGrace, stops the rest,
// reports every end, and keeps its lease alive until the last of it. It returns nil after a drain, and an error when the
// scheduler refuses the worker for good: then its handlers are stopped, since nothing that they say can be told.
func (w *Worker) Run(ctx context.Context) error {
	if err := w.begin(); err != nil {
		return err
	}
	life, end := context.WithCancel(context.WithoutCancel(ctx))
	defer end()
	defer w.hands.rest()
	defer w.exclusive.watch(w.stopExclusive)()
	served := make(chan struct{})
	var refused error
	go func() {
		defer close(served)
		refused = w.serve(life)
		end()
	}()
	select {
	case <-served:
		w.stopAll(ErrLost)
		w.waitIdle(time.After(w.cfg.StopGrace), nil)
		return refused
	case <-ctx.Done():
	}
	if !w.drain(life) {
		end() // without a goodbye
	}
	select {
	case <-served:
	case <-time.After(goodbyeLimit):
		end()
		<-served
	}
	return refused
}

// drain lets the handlers end, tells the last of their ends, and says goodbye. It returns false when there can be no goodbye.
func (w *Worker) drain(ctx context.Context) bool {
	w.mu.Lock()
	w.draining = true
	w.mu.Unlock()
	w.box.add(func(m *errandv1.WorkRequest) { m.Drain = true })
	w.log.Info("draining", "grace", w.cfg.DrainGrace)

	free := true
	grace := time.NewTimer(w.cfg.DrainGrace)
	defer grace.Stop()
	if !w.waitIdle(grace.C, w.handBack) {
		w.stopAll(ErrDraining)
		stop := time.NewTimer(w.cfg.StopGrace)
		defer stop.Stop()
		if !w.waitIdle(stop.C, nil) {
			free = w.handBackRest()
		}
	}
	last := time.NewTimer(farewell)
	defer last.Stop()
	w.box.flushed(ctx, last.C)
	w.mu.Lock()
	w.leaving = true
	w.mu.Unlock()
	if free {
		w.box.add(func(m *errandv1.WorkRequest) { m.Goodbye = true })
	}
	return free
}

// handBackRest gives up attempts whose handlers do not return. They go back to their place; the process is about to end. Exclusive
// ones do not: until their lease is over nobody may start them again. It returns false when there are such.
func (w *Worker) handBackRest() (free bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	free = true
	for id, r := range w.attempts {
		switch {
		case r.exclusive:
			free = false
		case !r.lost:
			r.lost = true
			w.box.end(id, handedBack(id, reasonDrained))
		}
	}
	return free
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

// WorkerStats are a worker's attempts at one moment.
type WorkerStats struct {
	Running  int   // whose handlers have not returned
	Owed     int   // that have ended, and no scheduler has answered yet
	Answered int64 // whose ends a scheduler has answered: they are recorded, or were lost before
}

// Stats counts the worker's attempts. It may be called at any time, from any goroutine.
func (w *Worker) Stats() WorkerStats {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.box.mu.Lock()
	defer w.box.mu.Unlock()
	return WorkerStats{Running: len(w.attempts), Owed: len(w.box.ends), Answered: w.box.answered}
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
	pause, goodbyes := reconnectMin, 0
	for at := 0; ctx.Err() == nil; at++ {
		began := time.Now()
		err := w.connection(ctx, w.services[at%len(w.services)])
		if ctx.Err() != nil || w.left() {
			return nil
		}
		if refusedForGood(err) {
			return errorOf(err)
		}
		if errors.Is(err, errSilent) {
			w.http.CloseIdleConnections() // else the next stream would go over the same dead connection
		}
		if time.Since(began) > reconnectMax { // a scheduler that takes workers in and drops them must not be stormed
			pause, goodbyes = reconnectMin, 0
		}
		wait := jitter(pause)
		var bye goodbye
		if errors.As(err, &bye) {
			if goodbyes++; goodbyes < len(w.services) { // another one, at once; but not round and round
				wait = jitter(min(bye.after, reconnectMax))
			}
			w.log.Info("the scheduler stops", "again_in", wait)
		} else {
			w.log.Warn("connection to the scheduler lost", "error", err, "again_in", wait)
		}
		if wait > 0 {
			pause = min(pause*2, reconnectMax)
		}
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
