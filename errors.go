package errand

import (
	"errors"
	"net"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/timestamppb"

	errandv1 "github.com/errandhq/errand/proto/errand/v1"
)

// Errors to test for with errors.Is. Others are told by [Error.Reason].
var (
	// ErrNotFound means that there is no such task, or that it is another tenant's.
	ErrNotFound = errors.New("errand: not found")
	// ErrKeyReused means that the idempotency key stands for a different request. Nothing was stored.
	ErrKeyReused = errors.New("errand: the idempotency key was used for a different request")
	// ErrKeyHeld means that an open task, Error.TaskID, holds the unique key. Nothing was stored.
	ErrKeyHeld = errors.New("errand: an open task holds the unique key")
	// ErrInfeasible means that as things are the task would not start in time, and that its spec says RejectInfeasible. Nothing was stored.
	ErrInfeasible = errors.New("errand: the task would not start in time")
	// ErrNotWaiting means that the task runs already or has ended: it was not changed.
	ErrNotWaiting = errors.New("errand: the task is not waiting")
	// ErrOutcomeUnknown means that it is not known whether the task was stored.
	ErrOutcomeUnknown = errors.New("errand: it is not known whether the task was stored")
	// ErrOverLimit means that the tenant submits faster than it may, or has as many open tasks as it may. Nothing was stored;
	// Error.RetryAfter says when there is room.
	ErrOverLimit = errors.New("errand: over a limit of the tenant")
	// ErrUnavailable means that no scheduler could take the call now. Nothing was stored.
	ErrUnavailable = errors.New("errand: no scheduler can take the call now")
	// ErrInvalid means that the request is not well-formed; Error.Field says where.
	ErrInvalid = errors.New("errand: invalid request")
	// ErrDenied means that the key is unknown or revoked, or may not do this.
	ErrDenied = errors.New("errand: denied")
)

// Error is an error of a scheduler. Programs decide by Reason, or by errors.Is with the errors above.
type Error struct {
	Reason     string        // a stable word in UPPER_SNAKE, empty when no scheduler answered
	Field      string        // the offending field of the request, if there is one
	TaskID     string        // the task that the error is about
	RetryAfter time.Duration // when to try again at the earliest; 0 when it makes no difference
	code       connect.Code
	unsent     bool // no connection to a scheduler came about
	cause      error
}

// Error is a text for people.
func (e *Error) Error() string { return "errand: " + e.cause.Error() }

// Unwrap is the transport's error.
func (e *Error) Unwrap() error { return e.cause }

// Is tells which of the package's errors this is.
func (e *Error) Is(target error) bool {
	switch target {
	case ErrNotFound:
		return e.code == connect.CodeNotFound
	case ErrKeyReused:
		return e.Reason == "KEY_REUSED"
	case ErrKeyHeld:
		return e.Reason == "UNIQUE_KEY_HELD"
	case ErrInfeasible:
		return e.Reason == "INFEASIBLE"
	case ErrNotWaiting:
		return e.Reason == "TASK_NOT_WAITING"
	case ErrOverLimit:
		return e.Reason == "OVER_RATE" || e.Reason == "OVER_URGENT_RATE" || e.Reason == "TOO_MANY_OPEN"
	case ErrOutcomeUnknown:
		return e.unknown()
	case ErrUnavailable:
		return e.unsent || (e.code == connect.CodeUnavailable && e.Reason != "")
	case ErrInvalid:
		return e.code == connect.CodeInvalidArgument
	case ErrDenied:
		return e.code == connect.CodeUnauthenticated || e.code == connect.CodePermissionDenied
	}
	return false
}

// unknown tells whether the call may have had an effect: the scheduler says so, it ran out of time, or nobody answered.
func (e *Error) unknown() bool {
	switch e.Reason {
	case "OUTCOME_UNKNOWN", "DEADLINE_EXCEEDED", "CALL_CANCELED":
		return true
	case "":
		switch e.code {
		case connect.CodeUnavailable, connect.CodeUnknown, connect.CodeDeadlineExceeded, connect.CodeInternal, connect.CodeCanceled:
			return !e.unsent
		default: // a scheduler's word, or a refusal before anything was done
		}
	}
	return false
}

func (e *Error) retryable(repeatable bool) bool {
	if e.unknown() {
		return repeatable
	}
	return e.unsent || e.code == connect.CodeUnavailable
}

func errorOf(err error) *Error {
	var op *net.OpError
	e := &Error{code: connect.CodeOf(err), unsent: errors.As(err, &op) && op.Op == "dial", cause: err}
	var ce *connect.Error
	if !errors.As(err, &ce) {
		return e
	}
	for _, d := range ce.Details() {
		if value, valueErr := d.Value(); valueErr == nil {
			if detail, ours := value.(*errandv1.ErrorDetail); ours {
				e.fill(detail)
			}
		}
	}
	return e
}

func (e *Error) fill(d *errandv1.ErrorDetail) {
	e.Reason, e.Field, e.TaskID = d.GetReason(), d.GetField(), d.GetTaskId()
	if d.GetRetryAfter() != nil {
		e.RetryAfter = d.GetRetryAfter().AsDuration()
	}
}

func errorOfItem(m *errandv1.SubmitError) *Error {
	e := &Error{cause: errors.New(m.GetMessage())}
	if err := e.code.UnmarshalText([]byte(m.GetCode())); err != nil {
		e.code = connect.CodeUnknown
	}
	e.fill(m.GetDetail())
	return e
}

// invalid is the error with which a scheduler would refuse a field.
func invalid(field, why string) *Error {
	return &Error{Reason: "INVALID_FIELD", Field: field, code: connect.CodeInvalidArgument, cause: errors.New(field + ": " + why)}
}

func stamp(t time.Time) *timestamppb.Timestamp {
	if t.IsZero() {
		return nil
	}
	return timestamppb.New(t)
}
