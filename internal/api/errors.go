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

// The stable reasons of errors that have no row in the table. They never change meaning.
const (
	reasonInvalidField    = "INVALID_FIELD"
	reasonGraphCycle      = "GRAPH_CYCLE"
	reasonMalformed       = "MALFORMED"
	reasonNotYetAvailable = "NOT_YET_AVAILABLE"
	reasonInfeasible      = "INFEASIBLE"
	reasonUnauthenticated = "UNAUTHENTICATED"
	reasonForbidden       = "FORBIDDEN"
	reasonTooManyFailures = "TOO_MANY_FAILED_LOGINS"
	reasonInternal        = "INTERNAL"
)

// Errors of the edge itself.
var (
	errTaskNotFound   = errors.New("there is no such task")
	errTenantNotFound = errors.New("there is no such tenant")
	errRegionNotFound = errors.New("there is no such region")
	errKindNotFound   = errors.New("nothing is set for this kind")
	errLimitNotFound  = errors.New("there is no such limit")
	errKeyNotFound    = errors.New("there is no such key")
	errPeersSilent    = errors.New("an instance that may know the worker does not answer")
	errTenantExists   = errors.New("a tenant of this name exists already")
	errNotRegistered  = errors.New("the first message of a worker's stream must carry register, and come soon")
	errReplaced       = errors.New("the scheduler gave this connection up: it was silent, too slow, or replaced by a newer one")
	errTooManyOpen    = errors.New("more than 10,000 open tasks match: name tasks, or narrow the filter")
	errOverRate       = errors.New("the tenant submits faster than its rate")
	errOverUrgentRate = errors.New("the tenant submits urgent tasks faster than its urgent rate")
	errOpenTasksFull  = errors.New("the tenant has as many open tasks as it may")
	errPanicked       = errors.New("a call panicked") // has no row: it is internal
)

// row is one line of the table: how an error of the inside looks outside.
type row struct {
	cause      error
	code       connect.Code
	reason     string        // stable, never changes its meaning
	message    string        // for people; empty shows the cause's own text
	retryAfter time.Duration // zero for none
}

// table translates every sentinel of the inside; the first row that fits counts. What is not in it is internal: its text stays in
// our logs.
var table = []row{
	{cause: context.Canceled, code: connect.CodeCanceled, reason: "CALL_CANCELED", message: "the call was canceled"},
	{cause: context.DeadlineExceeded, code: connect.CodeDeadlineExceeded, reason: "DEADLINE_EXCEEDED", message: "the call's deadline has passed"},

	{cause: errTaskNotFound, code: connect.CodeNotFound, reason: "TASK_NOT_FOUND"},
	{cause: errParentNotFound, code: connect.CodeNotFound, reason: "PARENT_NOT_FOUND"},
	{cause: engine.ErrNoParent, code: connect.CodeNotFound, reason: "PARENT_NOT_FOUND"},
	{cause: errGraphNotFound, code: connect.CodeNotFound, reason: "GRAPH_NOT_FOUND"},
	{cause: errTenantNotFound, code: connect.CodeNotFound, reason: "TENANT_NOT_FOUND"},
	{cause: errRegionNotFound, code: connect.CodeNotFound, reason: "REGION_NOT_FOUND"},
	{cause: errKindNotFound, code: connect.CodeNotFound, reason: "KIND_NOT_FOUND"},
	{cause: errLimitNotFound, code: connect.CodeNotFound, reason: "LIMIT_NOT_FOUND"},
	{cause: errKeyNotFound, code: connect.CodeNotFound, reason: "KEY_NOT_FOUND"},
	{cause: engine.ErrNoWorker, code: connect.CodeNotFound, reason: "WORKER_NOT_FOUND", message: "no such worker is connected to this region"},
	{
		cause: engine.ErrWorkerGone, code: connect.CodeUnavailable, reason: "WORKER_NOT_CONNECTED", retryAfter: time.Second,
		message: "the worker is not connected now: it would not hear of it",
	},
	{cause: errPeersSilent, code: connect.CodeUnavailable, reason: "INSTANCE_SILENT", retryAfter: time.Second},
	{cause: engine.ErrMarksFull, code: connect.CodeInvalidArgument, reason: reasonInvalidField},
	{cause: errTenantExists, code: connect.CodeAlreadyExists, reason: "TENANT_EXISTS"},
	{cause: errNotRegistered, code: connect.CodeFailedPrecondition, reason: "NOT_REGISTERED"},
	{cause: errReplaced, code: connect.CodeAborted, reason: "CONNECTION_REPLACED"},
	{cause: errOverRate, code: connect.CodeResourceExhausted, reason: "OVER_RATE"},
	{cause: errOverUrgentRate, code: connect.CodeResourceExhausted, reason: "OVER_URGENT_RATE"},
	{cause: errOpenTasksFull, code: connect.CodeResourceExhausted, reason: "TOO_MANY_OPEN"},

	{cause: store.ErrNotFound, code: connect.CodeNotFound, reason: "NOT_FOUND"},
	{cause: scheduler.ErrNotFound, code: connect.CodeNotFound, reason: "NOT_FOUND"},
	{cause: store.ErrSchema, code: connect.CodeUnavailable, reason: "SCHEMA_OUTDATED", message: "the store's schema is not up to date"},
	{cause: store.ErrBusyTenant, code: connect.CodeFailedPrecondition, reason: "TENANT_HAS_TASKS"},
	{cause: store.ErrExists, code: connect.CodeAlreadyExists, reason: "EXISTS"},

	{cause: engine.ErrKeyReused, code: connect.CodeAlreadyExists, reason: "KEY_REUSED"},
	{cause: engine.ErrInfeasible, code: connect.CodeFailedPrecondition, reason: reasonInfeasible},
	{cause: engine.ErrKeyHeld, code: connect.CodeAlreadyExists, reason: "UNIQUE_KEY_HELD"},
	{cause: engine.ErrBusy, code: connect.CodeUnavailable, reason: "BUSY", retryAfter: time.Second},
	{cause: engine.ErrStopping, code: connect.CodeUnavailable, reason: "STOPPING", retryAfter: 100 * time.Millisecond},
	{cause: engine.ErrOutcomeUnknown, code: connect.CodeUnknown, reason: "OUTCOME_UNKNOWN"},

	{cause: scheduler.ErrBadID, code: connect.CodeInvalidArgument, reason: reasonInvalidField},
	{cause: scheduler.ErrNotWaiting, code: connect.CodeFailedPrecondition, reason: "TASK_NOT_WAITING"},
	{cause: scheduler.ErrNotRunning, code: connect.CodeFailedPrecondition, reason: "TASK_NOT_RUNNING"},
	{cause: scheduler.ErrNotBlocked, code: connect.CodeFailedPrecondition, reason: "TASK_NOT_BLOCKED"},
	{cause: scheduler.ErrNotDue, code: connect.CodeFailedPrecondition, reason: "TASK_NOT_DUE"},
	{cause: scheduler.ErrTooLate, code: connect.CodeFailedPrecondition, reason: "TASK_TOO_LATE"},
	{cause: scheduler.ErrSeenOther, code: connect.CodeAborted, reason: "TASK_CHANGED"},
	{cause: scheduler.ErrLost, code: connect.CodeFailedPrecondition, reason: "TOKEN_LOST"},
	{cause: scheduler.ErrNoSuchEnd, code: connect.CodeInvalidArgument, reason: "NO_SUCH_END"},
	{cause: scheduler.ErrEnded, code: connect.CodeFailedPrecondition, reason: "TASK_ENDED"},
	{
		cause: scheduler.ErrRefused, code: connect.CodeInvalidArgument, reason: "VALUE_REFUSED",
		message: "the store cannot hold a value of this request",
	},
	{
		cause: scheduler.ErrLocked, code: connect.CodeUnavailable, reason: "LOCKED", retryAfter: time.Second,
		message: "a row is locked by a transaction of somebody else",
	},
	{
		cause: scheduler.ErrUnavailable, code: connect.CodeUnavailable, reason: "STORE_UNAVAILABLE", retryAfter: time.Second,
		message: "the store cannot be reached",
	},
}

// shown is what a client may read of an error. The cause stays inside, for the log.
type shown struct {
	text  string
	cause error
}

// Error is the text for the client.
func (e *shown) Error() string { return e.text }

// Unwrap is the cause.
func (e *shown) Unwrap() error { return e.cause }

// laterError is a sentinel that knows when to try again.
type laterError struct {
	cause error
	after time.Duration
}

// Error is the sentinel's text.
func (e *laterError) Error() string { return e.cause.Error() }

// Unwrap is the sentinel.
func (e *laterError) Unwrap() error { return e.cause }

// outside turns an error of the inside into what a client may see.
func outside(err error) *connect.Error {
	var ready *connect.Error
	if errors.As(err, &ready) {
		return ready
	}
	return outsideOf(err, "")
}

// outsideOf is outside for an error that is about a task.
func outsideOf(err error, taskID string) *connect.Error {
	for _, r := range table {
		if !errors.Is(err, r.cause) {
			continue
		}
		text := r.message
		if text == "" {
			text = r.cause.Error()
		}
		detail := &errandv1.ErrorDetail{Reason: r.reason, TaskId: taskID}
		after := r.retryAfter
		if later := new(laterError); errors.As(err, &later) {
			after = later.after
			text += "; try again in " + after.String()
		}
		if after > 0 {
			detail.RetryAfter = durationpb.New(after)
		}
		return problem(r.code, &shown{text, err}, detail)
	}
	return problem(connect.CodeInternal, &shown{"internal error: see the scheduler's log", err},
		&errandv1.ErrorDetail{Reason: reasonInternal, TaskId: taskID})
}

// invalid refuses a field of the request.
func invalid(field, message string) *connect.Error {
	return problem(connect.CodeInvalidArgument, errors.New(inField(field, message)),
		&errandv1.ErrorDetail{Reason: reasonInvalidField, Field: field})
}

// malformed refuses what could not be read as a message; field is empty when it is not known where.
func malformed(field, message string) *connect.Error {
	return problem(connect.CodeInvalidArgument, errors.New(inField(field, message)),
		&errandv1.ErrorDetail{Reason: reasonMalformed, Field: field})
}

// later refuses what this release does not do yet, rather than ignoring it.
func later(field string) *connect.Error {
	return problem(connect.CodeUnimplemented, errors.New(inField(field, "not available in this release")),
		&errandv1.ErrorDetail{Reason: reasonNotYetAvailable, Field: field})
}

func inField(field, message string) string {
	if field == "" {
		return message
	}
	return field + ": " + message
}

func problem(code connect.Code, text error, d *errandv1.ErrorDetail) *connect.Error {
	err := connect.NewError(code, text)
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
