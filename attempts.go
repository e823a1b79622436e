package errand

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
	"google.golang.org/protobuf/types/known/durationpb"

	errandv1 "github.com/errandhq/errand/proto/errand/v1"
)

// Bounds of what a worker reports; the scheduler cuts what is longer.
const (
	resultMax      = 256 << 10
	messageMax     = 4 << 10
	reasonMax      = 63
	contentTypeMax = 255
)

// Reasons of ends that the worker gives itself; schedulers know them.
const (
	reasonTimeout   = "timeout"
	reasonBadResult = "bad_result"
	reasonDrained   = "drained"
	reasonRefused   = "refused"
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
	accepted := make([]*errandv1.Token, 0, len(assign))
	for _, a := range assign {
		if w.take(a) {
			accepted = append(accepted, a.GetToken())
		}
	}
	w.box.accept(accepted)
}

// take starts an attempt, and tells whether it runs here now: one that runs already is not started again, and of one that has
// ended the end is told.
func (w *Worker) take(a *errandv1.Assignment) bool {
	id := w.idOf(a.GetToken())
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
	ctx, cancel := context.WithCancelCause(context.Background())
	r := &running{cancel: cancel, exclusive: a.GetExclusive()}
	w.attempts[id] = r
	go w.handle(ctx, id, r, k.handler, w.attempt(id, a), a.GetTimeout().AsDuration())
	return true
}

func (w *Worker) attempt(id attemptID, a *errandv1.Assignment) *Attempt {
	at := &Attempt{
		TaskID: handle(id.region, id.id), Number: id.number, Kind: a.GetKind(), Tenant: a.GetTenant(), Payload: a.GetPayload(),
		ContentType: a.GetContentType(), Labels: a.GetLabels(), EffectKey: a.GetEffectKey(), Counted: int(a.GetCounted()),
		MaxAttempts: int(a.GetMaxAttempts()), TraceParent: a.GetTraceParent(), Exclusive: a.GetExclusive(), Worker: instance(w.id),
	}
	if at.EffectKey == "" {
		at.EffectKey = at.TaskID
	}
	return at
}

// errExited is the error of a handler that ended its goroutine instead of returning.
var errExited = errors.New("the handler ended its goroutine (runtime.Goexit)")

// handle runs one handler to its end and reports it, unless the attempt was lost meanwhile. The execution cap holds even when
// no scheduler can be reached to say that it is over.
func (w *Worker) handle(ctx context.Context, id attemptID, r *running, h Handler, a *Attempt, limit time.Duration) {
	if limit > 0 {
		var release context.CancelFunc
		ctx, release = context.WithTimeoutCause(ctx, limit, ErrTimedOut)
		defer release()
	}
	ctx, span := traced(ctx, a)
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
	result, err = run(ctx, h, a)
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

// finished says how an attempt ended. A handler that succeeded in spite of being told to stop has succeeded; only one that
// gave up because of it was stopped.
func finished(id attemptID, result Result, err, cause error) *errandv1.Finished {
	f := &errandv1.Finished{Token: id.token()}
	var marked *failure
	switch {
	case err == nil && len(result.Data) > resultMax:
		f.Outcome = &errandv1.Finished_Failed{Failed: &errandv1.AttemptFailure{
			Reason: reasonBadResult, Message: fmt.Sprintf("the result has %d bytes, the most is %d", len(result.Data), resultMax), NonRetryable: true,
		}}
	case err == nil:
		f.Outcome = &errandv1.Finished_Succeeded{Succeeded: &errandv1.Result{
			Data: result.Data, ContentType: text(result.ContentType, contentTypeMax), // a word that cannot be sent would block all others
		}}
	case stoppedBy(cause, err):
		return gaveUp(id, cause)
	case errors.As(err, &marked) && marked.snooze > 0:
		f.Outcome = &errandv1.Finished_Snoozed{Snoozed: &errandv1.Snoozed{Delay: durationpb.New(marked.snooze)}}
	default:
		f.Outcome = &errandv1.Finished_Failed{Failed: failureOf(err)}
	}
	return f
}

// stoppedBy tells whether a handler gave up because its context had ended, for this cause.
func stoppedBy(cause, err error) bool {
	return cause != nil && (errors.Is(err, cause) || errors.Is(err, context.Canceled) ||
		errors.Is(cause, ErrTimedOut) && errors.Is(err, context.DeadlineExceeded))
}

// gaveUp is the end of an attempt whose handler stopped because it had to.
func gaveUp(id attemptID, cause error) *errandv1.Finished {
	f := &errandv1.Finished{Token: id.token()}
	switch {
	case errors.Is(cause, ErrDraining):
		return handedBack(id, reasonDrained)
	case errors.Is(cause, ErrTimedOut): // said as a failure: the scheduler that is told need not be the one that ended it
		f.Outcome = &errandv1.Finished_Failed{Failed: &errandv1.AttemptFailure{Reason: reasonTimeout, Message: ErrTimedOut.Error()}}
	default:
		f.Outcome = &errandv1.Finished_Stopped{Stopped: &errandv1.Stopped{}}
	}
	return f
}

// messageOf is an error's text, also of one whose Error method panics, as that of a nil pointer may.
func messageOf(err error) string { return text(fmt.Sprint(err), messageMax) }

func failureOf(err error) *errandv1.AttemptFailure {
	m := &errandv1.AttemptFailure{Message: messageOf(err)}
	for e := err; e != nil; { // the marks may be nested: each counts
		var marked *failure
		if !errors.As(e, &marked) {
			break
		}
		m.NonRetryable = m.NonRetryable || marked.final
		if m.Reason == "" {
			m.Reason = text(marked.reason, reasonMax)
		}
		if marked.retryAfter > 0 && m.RetryAfter == nil {
			m.RetryAfter = durationpb.New(marked.retryAfter)
		}
		e = marked.err
	}
	return m
}

// text is what protobuf and the store can carry of a text.
func text(s string, limit int) string {
	if len(s) > limit {
		s = s[:limit]
	}
	return strings.ReplaceAll(strings.ToValidUTF8(s, ""), "\x00", "")
}

func handedBack(id attemptID, reason string) *errandv1.Finished {
	return &errandv1.Finished{
		Token:   id.token(),
		Outcome: &errandv1.Finished_HandedBack{HandedBack: &errandv1.HandedBack{Reason: reason}},
	}
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

// traced continues the submitter's trace, so that a task can be followed from submit to handler across processes. Without a
// tracer in this process the submitter's context is still there for what the handler calls.
func traced(ctx context.Context, a *Attempt) (context.Context, trace.Span) {
	if a.TraceParent != "" {
		ctx = propagation.TraceContext{}.Extract(ctx, propagation.MapCarrier{"traceparent": a.TraceParent})
	}
	return otel.Tracer("github.com/errandhq/errand").Start(ctx, "run "+a.Kind, trace.WithSpanKind(trace.SpanKindConsumer),
		trace.WithAttributes(attribute.String("errand.task", a.TaskID), attribute.Int64("errand.attempt", a.Number),
			attribute.String("errand.tenant", a.Tenant)))
}
