package errand

import (
	"context"
	"fmt"
	"time"

	"github.com/errandhq/errand/proto/errand/v1/errandv1connect"
)

// Bounds of a call.
const (
	callTriesMax  = 8
	callPauseMin  = 50 * time.Millisecond // before the second try; it doubles
	callPauseMax  = 2 * time.Second
	callTimeLimit = 15 * time.Second // of one try
)

// effort says how hard a call may be tried.
type effort struct {
	repeatable bool          // it may be sent again when it is not known what became of it
	limit      time.Duration // of one try, unless the context is shorter
}

func reading() effort { return effort{repeatable: true, limit: callTimeLimit} }

func storing(keyed bool) effort { return effort{repeatable: keyed, limit: callTimeLimit} }

// call tries schedulers in turn. An error that says "nothing was stored, try again" is always followed by another try; one
// that leaves the outcome open only when the call is safe to repeat. Its errors are of type *Error; when the context ended, they
// are the context's error too.
func call[R any](ctx context.Context, c *Client, how effort, f func(context.Context, errandv1connect.TaskServiceClient) (R, error)) (R, error) {
	pause := callPauseMin
	for try := 1; ; try++ {
		at := c.current.Load()
		r, err := ask(ctx, how.limit, c.services[int(at)%len(c.services)], f)
		if err == nil {
			return r, nil
		}
		e := errorOf(err)
		if !e.retryable(how.repeatable) || try == callTriesMax {
			return r, e.interruptedBy(ctx)
		}
		c.current.CompareAndSwap(at, at+1)
		wait := jitter(pause)
		if try%len(c.services) == 0 { // all of them were asked
			wait = max(wait, min(e.RetryAfter, callPauseMax))
		}
		select {
		case <-ctx.Done():
			return r, e.interruptedBy(ctx)
		case <-time.After(wait):
		}
		pause = min(2*pause, callPauseMax)
	}
}

func ask[R any](ctx context.Context, limit time.Duration, s errandv1connect.TaskServiceClient, f func(context.Context, errandv1connect.TaskServiceClient) (R, error)) (R, error) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	return f(ctx, s)
}

// interruptedBy makes an error the context's too, when that is why there was no other try.
func (e *Error) interruptedBy(ctx context.Context) *Error {
	if ctx.Err() != nil {
		e.cause = fmt.Errorf("%w: %w", ctx.Err(), e.cause)
	}
	return e
}
