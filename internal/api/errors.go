package api

import (
	"context"
	"errors"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/errandhq/errand/internal/store"
	errandv1 "github.com/errandhq/errand/proto/errand/v1"
	"github.com/errandhq/errand/scheduler"
	"github.com/errandhq/errand/scheduler/engine"
)

// The stable reasons of errors. They never change meaning.
const (
	reasonInvalidField    = "INVALID_FIELD"
	reasonNotYetAvailable = "NOT_YET_AVAILABLE"
	reasonUnauthenticated = "UNAUTHENTICATED"
	reasonForbidden       = "FORBIDDEN"
	reasonTooManyFailures = "TOO_MANY_FAILED_LOGINS"
	reasonInternal        = "INTERNAL"
	reasonCanceled        = "CALL_CANCELED"
	reasonDeadline        = "DEADLINE_EXCEEDED"
)

// Errors of the edge itself.
var (
	errTaskNotFound   = errors.New("there is no such task")
	errTenantNotFound = errors.New("there is no such tenant")
	errKeyNotFound    = errors.New("there is no such key")
	errWorkerNotFound = errors.New("no such worker is connected to this scheduler")
	errTenantExists   = errors.New("a tenant of this name exists already")
	errNotRegistered  = errors.New("the first message of a worker's stream must carry register")
	errReplaced       = errors.New("the scheduler gave this connection up: it was silent, too slow, or replaced by a newer one")
)

// row is one line of the table: how an error of the inside looks outside.
type row struct {
	cause      error
	code       connect.Code
	reason     string
	message    string        // for people; empty shows the cause's own text
	retryAfter time.Duration // zero for none
}

// table translates every sentinel of the inside. What is not in it is internal: its text stays in our logs.
var table = []row{
	{cause: errTaskNotFound, code: connect.CodeNotFound, reason: "TASK_NOT_FOUND"},
	{cause: errTenantNotFound, code: connect.CodeNotFound, reason: "TENANT_NOT_FOUND"},
	{cause: errKeyNotFound, code: connect.CodeNotFound, reason: "KEY_NOT_FOUND"},
	{cause: errWorkerNotFound, code: connect.CodeNotFound, reason: "WORKER_NOT_FOUND"},
	{cause: errTenantExists, code: connect.CodeAlreadyExists, reason: "TENANT_EXISTS"},
	{cause: errNotRegistered, code: connect.CodeFailedPrecondition, reason: "NOT_REGISTERED"},
	{cause: errReplaced, code: connect.CodeAborted, reason: "CONNECTION_REPLACED"},
	{cause: store.ErrNotFound, code: connect.CodeNotFound, reason: "NOT_FOUND"},
	{cause: store.ErrExists, code: connect.CodeAlreadyExists, reason: "EXISTS"},
	{cause: engine.ErrKeyReused, code: connect.CodeAlreadyExists, reason: "KEY_REUSED"},
	{cause: engine.ErrBusy, code: connect.CodeUnavailable, reason: "BUSY", retryAfter: time.Second},
	{cause: engine.ErrStopping, code: connect.CodeUnavailable, reason: "STOPPING", retryAfter: 100 * time.Millisecond},
	{cause: engine.ErrOutcomeUnknown, code: connect.CodeUnknown, reason: "OUTCOME_UNKNOWN"},
	{cause: scheduler.ErrBadID, code: connect.CodeInvalidArgument, reason: reasonInvalidField},
	{cause: scheduler.ErrRefused, code: connect.CodeInvalidArgument, reason: "VALUE_REFUSED", message: "the store cannot hold a value of this task"},
	{
		cause: scheduler.ErrLocked, code: connect.CodeUnavailable, reason: "LOCKED", retryAfter: time.Second,
		message: "a row is locked by a transaction of somebody else",
	},
	{
		cause: scheduler.ErrUnavailable, code: connect.CodeUnavailable, reason: "STORE_UNAVAILABLE", retryAfter: time.Second,
		message: "the store cannot be reached",
	},
	{cause: context.Canceled, code: connect.CodeCanceled, reason: reasonCanceled, message: "the call was canceled"},
	{cause: context.DeadlineExceeded, code: connect.CodeDeadlineExceeded, reason: reasonDeadline, message: "the call's deadline has passed"},
}

// outside turns an error of the inside into what a client may see.
func outside(err error) *connect.Error {
	var ready *connect.Error
	if errors.As(err, &ready) {
		return ready
	}
	for _, r := range table {
		if errors.Is(err, r.cause) {
			shown := r.cause
			if r.message != "" {
				shown = errors.New(r.message)
			}
			return withDetail(connect.NewError(r.code, shown), &errandv1.ErrorDetail{
				Reason: r.reason, RetryAfter: optionalDuration(r.retryAfter),
			})
		}
	}
	return withDetail(connect.NewError(connect.CodeInternal, errors.New("internal error: see the scheduler's log")),
		&errandv1.ErrorDetail{Reason: reasonInternal})
}

// about adds the task that an error is about.
func about(err *connect.Error, taskID string) *connect.Error {
	d := detailOf(err)
	d.TaskId = taskID
	return withDetail(connect.NewError(err.Code(), errors.New(err.Message())), d)
}

// invalid refuses a field of the request.
func invalid(field, message string) *connect.Error {
	return withDetail(connect.NewError(connect.CodeInvalidArgument, errors.New(field+": "+message)),
		&errandv1.ErrorDetail{Reason: reasonInvalidField, Field: field})
}

// later refuses what this release does not do yet, rather than ignoring it.
func later(field string) *connect.Error {
	message := "not available in this release"
	if field != "" {
		message = field + ": " + message
	}
	return withDetail(connect.NewError(connect.CodeUnimplemented, errors.New(message)),
		&errandv1.ErrorDetail{Reason: reasonNotYetAvailable, Field: field})
}

func withDetail(err *connect.Error, d *errandv1.ErrorDetail) *connect.Error {
	detail, marshalErr := connect.NewErrorDetail(d)
	if marshalErr == nil { // it always can be
		err.AddDetail(detail)
	}
	return err
}

// detailOf returns the detail that an error of this package carries.
func detailOf(err *connect.Error) *errandv1.ErrorDetail {
	for _, d := range err.Details() {
		if value, valueErr := d.Value(); valueErr == nil {
			if detail, ours := value.(*errandv1.ErrorDetail); ours {
				return detail
			}
		}
	}
	return &errandv1.ErrorDetail{Reason: reasonInternal}
}

func optionalDuration(d time.Duration) *durationpb.Duration {
	if d == 0 {
		return nil
	}
	return durationpb.New(d)
}
