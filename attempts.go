package errand

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
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
	resultMax  = 256 << 10
	messageMax = 4 << 10
)

// start runs the handlers of new assignments and accepts them.
func (w *Worker) start(assign []*errandv1.Assignment) {
	accepted := make([]*errandv1.Token, 0, len(assign))
	for _, a := range assign {
		id := idOf(a.GetToken())
		w.mu.Lock()
		k := w.kinds[a.GetKind()]
		known := w.attempts[id] != nil
		refused := k == nil || w.draining || (a.GetExclusive() && !w.exclusive.holds())
		if known || refused {
			w.mu.Unlock()
			if !known {
				w.box.end(id, handedBack(id, "refused"))
			}
			continue
		}
		ctx, cancel := context.WithCancelCause(context.Background())
		r := &running{cancel: cancel, exclusive: a.GetExclusive()}
		w.attempts[id] = r
		attempt := w.attempt(id, a)
		w.mu.Unlock()
		accepted = append(accepted, a.GetToken())
		go w.handle(ctx, id, r, k.handler, attempt)
	}
	w.box.accept(accepted)
}

func (w *Worker) attempt(id attemptID, a *errandv1.Assignment) *Attempt {
	at := &Attempt{
		TaskID: handle(w.region, id.id), Number: id.number, Kind: a.GetKind(), Tenant: a.GetTenant(), Payload: a.GetPayload(),
		ContentType: a.GetContentType(), Labels: a.GetLabels(), EffectKey: a.GetEffectKey(), Counted: int(a.GetCounted()),
		MaxAttempts: int(a.GetMaxAttempts()), TraceParent: a.GetTraceParent(), Exclusive: a.GetExclusive(), Worker: instance(w.id),
	}
	if at.EffectKey == "" {
		at.EffectKey = at.TaskID
	}
	return at
}

// handle runs one handler to its end and reports it, unless the attempt was lost meanwhile.
func (w *Worker) handle(ctx context.Context, id attemptID, r *running, h Handler, a *Attempt) {
	ctx, span := traced(ctx, a)
	result, err := run(ctx, h, a)
	if err != nil {
		span.RecordError(err)
		span.SetStatus(codes.Error, "")
	}
	span.End()
	cause := context.Cause(ctx)
	r.cancel(nil)
	w.mu.Lock()
	delete(w.attempts, id)
	lost, left := r.lost, len(w.attempts)
	w.mu.Unlock()
	if !lost {
		if err != nil {
			w.log.Warn("attempt ended with an error", "task", a.TaskID, "attempt", a.Number, "kind", a.Kind, "error", err)
		}
		w.box.end(id, finished(id, result, err, cause))
	}
	if left == 0 {
		select {
		case w.idle <- struct{}{}:
		default:
		}
	}
}

// finished says how an attempt ended. A handler that succeeded in spite of being told to stop has succeeded; only one that
// gave up because of it was stopped.
func finished(id attemptID, result Result, err, cause error) *errandv1.Finished {
	f := &errandv1.Finished{Token: id.token()}
	var marked *failure
	switch {
	case err == nil && len(result.Data) > resultMax:
		f.Outcome = &errandv1.Finished_Failed{Failed: &errandv1.AttemptFailure{
			Reason: "bad_result", Message: fmt.Sprintf("the result has %d bytes, the most is %d", len(result.Data), resultMax), NonRetryable: true,
		}}
	case err == nil:
		f.Outcome = &errandv1.Finished_Succeeded{Succeeded: &errandv1.Result{Data: result.Data, ContentType: result.ContentType}}
	case cause != nil && (errors.Is(err, context.Canceled) || errors.Is(err, cause)):
		if errors.Is(cause, ErrDraining) {
			return handedBack(id, "drained")
		}
		f.Outcome = &errandv1.Finished_Stopped{Stopped: &errandv1.Stopped{}}
	case errors.As(err, &marked) && marked.snooze > 0:
		f.Outcome = &errandv1.Finished_Snoozed{Snoozed: &errandv1.Snoozed{Delay: durationpb.New(marked.snooze)}}
	default:
		f.Outcome = &errandv1.Finished_Failed{Failed: failureOf(err)}
	}
	return f
}

func failureOf(err error) *errandv1.AttemptFailure {
	m := &errandv1.AttemptFailure{Message: text(err.Error(), messageMax)}
	for e := err; e != nil; { // the marks may be nested: each counts
		var marked *failure
		if !errors.As(e, &marked) {
			break
		}
		m.NonRetryable = m.NonRetryable || marked.final
		if m.Reason == "" {
			m.Reason = text(marked.reason, 63)
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
	default:
		r.lost = true
		r.cancel(ErrLost)
	}
}

// grant is how long exclusive handlers may run, as the scheduler said last.
type grant struct {
	mu    sync.Mutex
	until int64 // by this process's clock
	timer *time.Timer
	ended func()
}

// extend takes a grant that counts from when the heartbeat was sent.
func (g *grant) extend(sentAt int64, d time.Duration) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.until = max(g.until, sentAt+int64(d))
	if g.timer == nil {
		return
	}
	g.timer.Reset(time.Duration(g.until - monotonic()))
}

func (g *grant) holds() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return monotonic() < g.until
}

// watch calls f when the grant runs out.
func (g *grant) watch(f func()) (stop func()) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.ended = f
	g.timer = time.AfterFunc(time.Hour, g.check)
	return func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		g.timer.Stop()
		g.timer = nil
	}
}

func (g *grant) check() {
	g.mu.Lock()
	left := time.Duration(g.until - monotonic())
	if left > 0 && g.timer != nil {
		g.timer.Reset(left)
	}
	f := g.ended
	g.mu.Unlock()
	if left <= 0 {
		f()
	}
}

// stopExclusive ends the exclusive handlers: nobody can say any more that no other attempt starts. Their ends are reported
// like any others: whoever holds the tasks should not wait for them.
func (w *Worker) stopExclusive() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, r := range w.attempts {
		if r.exclusive {
			r.cancel(ErrLost)
		}
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
