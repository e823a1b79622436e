package errand

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"runtime/debug"
)

// Attempt is one try of a task, as its handler sees it.
type Attempt struct {
	TaskID      string // the task's handle
	Number      int64  // counts up with every try; part of the fencing token
	Kind        string
	Tenant      string
	Payload     []byte
	ContentType string
	Labels      map[string]string
	Limits      []Limit // by name, then key: what [Backpressure] may name
	// EffectKey is the same for every attempt and every redrive of the task: use it as the idempotency key of effects.
	EffectKey   string
	Counted     int // attempts that have counted so far
	MaxAttempts int
	TraceParent string // W3C trace context of the submitter
	Exclusive   bool
	Worker      string // this worker instance
	// GPUs are the numbers of the worker's devices that the attempt may use, from 0; nothing keeps it from the others. Empty for a task
	// that needs none.
	GPUs []int

	parents func(ctx context.Context) ([]ParentResult, error)
}

// Result is what a handler returns: opaque, at most 256 KiB.
type Result struct {
	Data        []byte
	ContentType string
}

// Handler does the work of a task. Its context has the attempt's deadline, and ends when it must stop; context.Cause says why:
// ErrCanceled, ErrTimedOut, ErrLost or ErrDraining. An error that is returned, or a panic, is tried again later unless it is marked by [NonRetryable].
type Handler func(ctx context.Context, a *Attempt) (Result, error)

// Causes of a handler's context, and outcomes that it may return when it stops because of them.
var (
	// ErrCanceled means that somebody asked to cancel the task.
	ErrCanceled = errors.New("errand: the task was canceled")
	// ErrTimedOut means that the attempt ran longer than its cap.
	ErrTimedOut = errors.New("errand: the attempt ran longer than its cap")
	// ErrLost means that the attempt is not this worker's any more: nothing that the handler says counts.
	ErrLost = errors.New("errand: the attempt was lost to another worker")
	// ErrDraining means that the worker stops. The attempt goes back to its place and does not count.
	ErrDraining = errors.New("errand: the worker is draining")
)

// Middleware wraps a handler.
type Middleware func(Handler) Handler

// Typed makes a handler of a function on JSON values: the payload is decoded into In, Out encoded as the result. A payload that
// cannot be decoded fails the task for good: trying again would not help.
func Typed[In, Out any](f func(ctx context.Context, in In) (Out, error)) Handler {
	return func(ctx context.Context, a *Attempt) (Result, error) {
		var in In
		if err := json.Unmarshal(a.Payload, &in); err != nil {
			return Result{}, NonRetryable(WithReason(fmt.Errorf("decode the payload: %w", err), "bad_payload"))
		}
		out, err := f(ctx, in)
		if err != nil {
			return Result{}, err
		}
		data, err := json.Marshal(out)
		if err != nil {
			return Result{}, NonRetryable(WithReason(fmt.Errorf("encode the result: %w", err), "bad_result"))
		}
		return Result{Data: data, ContentType: "application/json"}, nil
	}
}

type attemptKey struct{}

// AttemptOf returns the attempt that a handler's context belongs to, nil outside of one.
func AttemptOf(ctx context.Context) *Attempt {
	a, _ := ctx.Value(attemptKey{}).(*Attempt)
	return a
}

// panicked is the error of a handler that panicked. The stack is for the worker's own log.
type panicked struct {
	value any
	stack []byte
}

func (p *panicked) Error() string { return fmt.Sprintf("panic: %v", p.value) }

// run calls a handler and turns a panic into an error.
func run(ctx context.Context, h Handler, a *Attempt) (r Result, err error) {
	defer func() {
		if p := recover(); p != nil {
			r, err = Result{}, WithReason(&panicked{p, debug.Stack()}, "panic")
		}
	}()
	return h(context.WithValue(ctx, attemptKey{}, a), a)
}

// Try runs a handler without any server, as a worker would: for tests of handlers. A nil attempt is a first one.
func Try(ctx context.Context, h Handler, a *Attempt) (Result, error) {
	if a == nil {
		a = &Attempt{TaskID: "test.00000000000000000000000000", Number: 1, MaxAttempts: 5}
	}
	return run(ctx, h, a)
}
