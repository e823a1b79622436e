package errand

import (
	"cmp"
	"context"
	"errors"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	errandv1 "github.com/errandhq/errand/proto/errand/v1"
)

// attemptID is the worker's part of a token. The region is always named: after a change to another region's scheduler an id
// without one would mean another task.
type attemptID struct {
	region string
	id     [16]byte
	number int64
}

func (id attemptID) token() *errandv1.Token {
	return &errandv1.Token{Id: id.id[:], Attempt: id.number, Region: id.region}
}

// idOf reads a token of this connection's scheduler; only who listens to it may call it.
func (w *Worker) idOf(t *errandv1.Token) attemptID {
	id := attemptID{region: cmp.Or(t.GetRegion(), w.region), number: t.GetAttempt()}
	copy(id.id[:], t.GetId())
	return id
}

// running is an attempt whose handler has not returned.
type running struct {
	cancel    context.CancelCauseFunc
	exclusive bool
	lost      bool // nothing it says counts any more
}

// start runs the handlers of new assignments and accepts them.
func (w *Worker) start(assign []*errandv1.Assignment) {
	accepted := make([]started, 0, len(assign))
	for _, a := range assign {
		if id := w.idOf(a.GetToken()); w.take(id, a) {
			accepted = append(accepted, started{id, a.GetToken()})
		}
	}
	w.box.accept(accepted)
}

// take starts an attempt, and tells whether it runs here now: one that runs already is not started again, and of one that has
// ended the end is told.
func (w *Worker) take(id attemptID, a *errandv1.Assignment) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if r := w.attempts[id]; r != nil {
		return !r.lost
	}
	if w.box.owes(id) {
		return false
	}
	k := w.kinds[a.GetKind()]
	if k == nil || w.draining || (a.GetExclusive() && !w.exclusive.holds()) {
		w.box.end(id, handedBack(id, reasonRefused))
		return false
	}
	ctx, cancel := attemptContext(a.GetTimeout().AsDuration())
	r := &running{cancel: cancel, exclusive: a.GetExclusive()}
	w.attempts[id] = r
	w.hands.run(func() { w.handle(ctx, id, r, k, w.attempt(id, a)) })
	return true
}

func (w *Worker) attempt(id attemptID, a *errandv1.Assignment) *Attempt {
	at := &Attempt{
		TaskID: handle(id.region, id.id), Number: id.number, Kind: a.GetKind(), Tenant: a.GetTenant(), Payload: a.GetPayload(),
		ContentType: a.GetContentType(), Labels: a.GetLabels(), Limits: limitsOf(a.GetLimits()), EffectKey: a.GetEffectKey(), Counted: int(a.GetCounted()),
		MaxAttempts: int(a.GetMaxAttempts()), TraceParent: a.GetTraceParent(), Exclusive: a.GetExclusive(), Worker: instance(w.id),
	}
	at.parents = func(ctx context.Context) ([]ParentResult, error) { return w.readParents(ctx, id) }
	for _, d := range a.GetGpuDevices() {
		at.GPUs = append(at.GPUs, int(d))
	}
	if at.EffectKey == "" {
		at.EffectKey = at.TaskID
	}
	return at
}

// limited is a context that tells the deadline at which it is canceled. One context with a timer costs a third of one inside the
// other, and every attempt has one.
type limited struct {
	context.Context
	deadline time.Time
}

// Deadline is when the attempt's cap is reached.
func (c limited) Deadline() (time.Time, bool) { return c.deadline, true }

// Err tells an end by the deadline from another one, as the standard library's own contexts do.
func (c limited) Err() error {
	err := c.Context.Err()
	if err != nil && errors.Is(context.Cause(c.Context), ErrTimedOut) {
		return context.DeadlineExceeded
	}
	return err
}

// attemptContext is the context of an attempt with an execution cap; 0 is none.
func attemptContext(limit time.Duration) (context.Context, context.CancelCauseFunc) {
	ctx, cancel := context.WithCancelCause(context.Background())
	if limit <= 0 {
		return ctx, cancel
	}
	timer := time.AfterFunc(limit, func() { cancel(ErrTimedOut) })
	return limited{ctx, time.Now().Add(limit)}, func(cause error) {
		timer.Stop()
		cancel(cause)
	}
}

// errExited is the error of a handler that ended its goroutine instead of returning.
var errExited = errors.New("the handler ended its goroutine (runtime.Goexit)")

// handle runs one handler to its end and reports it, unless the attempt was lost meanwhile. The execution cap holds even when
// no scheduler can be reached to say that it is over.
func (w *Worker) handle(ctx context.Context, id attemptID, r *running, k *kind, a *Attempt) {
	ctx, span := traced(ctx, k.span, a)
	var result Result
	err := errExited
	defer func() { // also when the handler does not return
		if err != nil {
			w.complain(a, err)
			span.SetStatus(codes.Error, messageOf(err))
		}
		span.End()
		w.ended(id, r, finished(id, result, err, context.Cause(ctx)))
		r.cancel(nil)
	}()
	result, err = run(ctx, k.handler, a)
}

// ended reports an end. An attempt is always either running or owed, never neither: a register at this moment names it.
func (w *Worker) ended(id attemptID, r *running, f *errandv1.Finished) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.attempts, id)
	if !r.lost {
		w.box.end(id, f)
	}
	if len(w.attempts) == 0 {
		signal(w.idle)
	}
}

func (w *Worker) complain(a *Attempt, err error) {
	log := w.log.With("task", a.TaskID, "attempt", a.Number, "kind", a.Kind, "error", messageOf(err))
	var p *panicked
	if errors.As(err, &p) {
		log.Error("handler panicked", "stack", string(p.stack))
		return
	}
	log.Warn("attempt ended with an error")
}

// stop ends the context of an attempt's handler.
func (w *Worker) stop(id attemptID, cause errandv1.StopCause) {
	w.mu.Lock()
	defer w.mu.Unlock()
	r := w.attempts[id]
	if r == nil {
		return
	}
	switch cause {
	case errandv1.StopCause_STOP_CAUSE_CANCELED:
		r.cancel(ErrCanceled)
	case errandv1.StopCause_STOP_CAUSE_TIMED_OUT:
		r.cancel(ErrTimedOut)
	case errandv1.StopCause_STOP_CAUSE_DRAINED, errandv1.StopCause_STOP_CAUSE_PREEMPTED:
		r.cancel(ErrDraining)
	default:
		r.lost = true
		r.cancel(ErrLost)
	}
}

// tracer is whatever the process sets up, also later.
var (
	tracer     = otel.Tracer("github.com/errandhq/errand")
	asConsumer = trace.WithSpanKind(trace.SpanKindConsumer)
)

// traced continues the submitter's trace, so that a task can be followed from submit to handler across processes. Without a
// tracer in this process the submitter's context is still there for what the handler calls.
func traced(ctx context.Context, name string, a *Attempt) (context.Context, trace.Span) {
	if a.TraceParent != "" {
		ctx = propagation.TraceContext{}.Extract(ctx, propagation.MapCarrier{"traceparent": a.TraceParent})
	}
	ctx, span := tracer.Start(ctx, name, asConsumer)
	if span.IsRecording() {
		span.SetAttributes(attribute.String("errand.task", a.TaskID), attribute.Int64("errand.attempt", a.Number),
			attribute.String("errand.tenant", a.Tenant))
	}
	return ctx, span
}
