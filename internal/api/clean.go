package api

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"runtime/debug"
	"sync/atomic"
	"time"

	"connectrpc.com/connect"

	"github.com/errandhq/errand/proto/errand/v1/errandv1connect"
	"github.com/errandhq/errand/scheduler"
)

// Bounds of calls.
const (
	callMax       = 30 * time.Second        // a unary call is answered within this, whatever its caller's patience
	waitCallMax   = waitMax + 5*time.Second // WaitTask
	complainEvery = time.Second             // about a store that is away: one line of log, not one per call
)

// cleaner bounds every call and makes sure that only errors of this package's table leave: an unimplemented RPC says so in its
// detail, and the cause of an internal error goes to the log instead of the client.
type cleaner struct {
	log        *slog.Logger
	complained atomic.Int64 // when a store that is away was last complained about, in nanoseconds
}

// WrapUnary bounds and cleans a unary call.
func (c *cleaner) WrapUnary(next connect.UnaryFunc) connect.UnaryFunc {
	return func(ctx context.Context, req connect.AnyRequest) (connect.AnyResponse, error) {
		limit := callMax
		switch req.Spec().Procedure {
		case errandv1connect.TaskServiceWaitTaskProcedure:
			limit = waitCallMax
		case errandv1connect.WorkerServicePollProcedure:
			limit = pollCallMax
		}
		bounded, cancel := context.WithTimeout(ctx, limit)
		defer cancel()
		resp, err := next(bounded, req)
		if err != nil && ctx.Err() == nil && errors.Is(bounded.Err(), context.DeadlineExceeded) {
			err = fmt.Errorf("no answer within %v: %w", limit, scheduler.ErrUnavailable) // our limit, not the caller's
		}
		return resp, c.clean(err, req.Spec().Procedure)
	}
}

// WrapStreamingClient changes nothing.
func (c *cleaner) WrapStreamingClient(next connect.StreamingClientFunc) connect.StreamingClientFunc {
	return next
}

// WrapStreamingHandler cleans the end of a stream.
func (c *cleaner) WrapStreamingHandler(next connect.StreamingHandlerFunc) connect.StreamingHandlerFunc {
	return func(ctx context.Context, conn connect.StreamingHandlerConn) error {
		return c.clean(next(ctx, conn), conn.Spec().Procedure)
	}
}

func (c *cleaner) clean(err error, procedure string) error {
	if err == nil {
		return nil
	}
	out := outside(err)
	if out.Code() == connect.CodeUnimplemented && len(out.Details()) == 0 {
		return later("")
	}
	var hidden *shown
	switch {
	case !errors.As(out, &hidden) || hidden.cause == nil:
	case out.Code() == connect.CodeInternal:
		c.log.Error("an internal error reached the edge", "procedure", procedure, "error", hidden.cause)
	case out.Code() == connect.CodeUnavailable && c.mayComplain():
		c.log.Warn("a call could not be served", "procedure", procedure, "error", hidden.cause)
	}
	return out
}

func (c *cleaner) mayComplain() bool {
	now, last := time.Now().UnixNano(), c.complained.Load()
	return now-last >= int64(complainEvery) && c.complained.CompareAndSwap(last, now)
}

// recovered turns a panic of one call into its error: the others go on.
func (c *cleaner) recovered(_ context.Context, spec connect.Spec, _ http.Header, cause any) error {
	c.log.Error("a call panicked", "procedure", spec.Procedure, "panic", cause, "stack", string(debug.Stack()))
	return outside(errPanicked)
}
