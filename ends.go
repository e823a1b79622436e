package errand

import (
	"context"
	"errors"
	"fmt"

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

// finished says how an attempt ended. A handler that succeeded in spite of being told to stop has succeeded; only one that
// gave up because of it was stopped.
func finished(id attemptID, result Result, err, cause error) *errandv1.Finished {
	switch {
	case stoppedBy(cause, err):
		return gaveUp(id, cause)
	case err != nil:
		return failed(id, FailureOf(err))
	case len(result.Data) > resultMax:
		message := fmt.Sprintf("the result has %d bytes, the most is %d", len(result.Data), resultMax)
		return failed(id, Failure{Reason: reasonBadResult, Message: message, NonRetryable: true})
	default:
		return &errandv1.Finished{Token: id.token(), Outcome: &errandv1.Finished_Succeeded{Succeeded: &errandv1.Result{
			Data: result.Data, ContentType: text(result.ContentType, contentTypeMax), // a word that cannot be sent would block all others
		}}}
	}
}

func failed(id attemptID, f Failure) *errandv1.Finished {
	m := &errandv1.Finished{Token: id.token()}
	if f.Snooze > 0 {
		m.Outcome = &errandv1.Finished_Snoozed{Snoozed: &errandv1.Snoozed{Delay: durationpb.New(f.Snooze)}}
		return m
	}
	if f.Backpressure {
		pressure := &errandv1.Backpressure{Limit: f.Limit}
		if f.RetryAfter > 0 {
			pressure.RetryAfter = durationpb.New(f.RetryAfter)
		}
		m.Outcome = &errandv1.Finished_Backpressure{Backpressure: pressure}
		return m
	}
	failed := &errandv1.AttemptFailure{Reason: f.Reason, Message: f.Message, NonRetryable: f.NonRetryable}
	if f.RetryAfter > 0 {
		failed.RetryAfter = durationpb.New(f.RetryAfter)
	}
	m.Outcome = &errandv1.Finished_Failed{Failed: failed}
	return m
}

// stoppedBy tells whether a handler gave up because its context had ended, for this cause.
func stoppedBy(cause, err error) bool {
	return err != nil && cause != nil && (errors.Is(err, cause) || errors.Is(err, context.Canceled) ||
		errors.Is(cause, ErrTimedOut) && errors.Is(err, context.DeadlineExceeded))
}

// gaveUp is the end of an attempt whose handler stopped because it had to.
func gaveUp(id attemptID, cause error) *errandv1.Finished {
	switch {
	case errors.Is(cause, ErrDraining):
		return handedBack(id, reasonDrained)
	case errors.Is(cause, ErrTimedOut): // said as a failure: the scheduler that is told need not be the one that ended it
		return failed(id, Failure{Reason: reasonTimeout, Message: ErrTimedOut.Error()})
	default:
		return &errandv1.Finished{Token: id.token(), Outcome: &errandv1.Finished_Stopped{Stopped: &errandv1.Stopped{}}}
	}
}

func handedBack(id attemptID, reason string) *errandv1.Finished {
	return &errandv1.Finished{
		Token:   id.token(),
		Outcome: &errandv1.Finished_HandedBack{HandedBack: &errandv1.HandedBack{Reason: reason}},
	}
}
