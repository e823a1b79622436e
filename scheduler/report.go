package scheduler

import (
	"strings"
	"time"
)

// Outcome is what a worker says became of an attempt.
type Outcome uint8

// The outcomes a worker may report.
const (
	OutcomeSucceeded    Outcome = iota + 1
	OutcomeFailed               // the handler returned an error or panicked
	OutcomeStopped              // the handler ended because it was told to stop
	OutcomeHandedBack           // not run to an end: drained, preempted or not accepted; does not count
	OutcomeSnoozed              // the handler puts the task off by Delay; does not count
	OutcomeBackpressure         // what the limit named by Limit guards asks for less; does not count
)

// Report is a worker's word on the end of an attempt.
type Report struct {
	Token
	Outcome      Outcome
	Result       []byte
	ResultType   string
	Failure      Failure       // for OutcomeFailed and OutcomeHandedBack
	NonRetryable bool          // for OutcomeFailed
	RetryAfter   time.Duration // for OutcomeFailed and OutcomeBackpressure: not tried again before
	Delay        time.Duration // for OutcomeSnoozed
	Limit        string        // for OutcomeBackpressure: the name of one of the task's limits
}

// SnoozeMax is the longest a handler may put a task off.
const SnoozeMax = 365 * 24 * time.Hour

// decide turns a report into the ending to write, other than of backpressure: see pressed. draw is a random number in [0, 1) for the backoff's jitter.
func decide(h *Held, stop StopCause, r *Report, draw float64) Ending {
	switch r.Outcome {
	case OutcomeSucceeded:
		if len(r.Result) > ResultMax {
			return failed(h, Failure{Reason: ReasonBadResult, Message: "the result is larger than 256 KiB"}, true, 0, draw)
		}
		return Ending{Token: r.Token, To: Succeeded, Result: r.Result, ResultType: CleanText(r.ResultType, ContentTypeMax)}
	case OutcomeStopped:
		return stopped(h, stop, draw)
	case OutcomeHandedBack:
		f := clean(r.Failure, ReasonDrained)
		return Ending{Token: r.Token, To: Ready, Suspect: h.Suspect, Failure: &f}
	case OutcomeSnoozed:
		f := Failure{Reason: ReasonSnoozed}
		return Ending{Token: r.Token, To: Scheduled, Delay: min(max(r.Delay, time.Millisecond), SnoozeMax), Failure: &f}
	default:
		if stop == StopTimedOut {
			return stopped(h, stop, draw)
		}
		return failed(h, clean(r.Failure, ReasonHandlerError), r.NonRetryable, r.RetryAfter, draw)
	}
}

// stopped is the ending of an attempt that was told to stop and did, or did not within the grace.
func stopped(h *Held, stop StopCause, draw float64) Ending {
	switch stop {
	case StopCanceled:
		return Ending{Token: h.Token, To: Canceled, Counted: true, Failure: &Failure{Reason: ReasonCanceled}}
	case StopTimedOut:
		return failed(h, Failure{
			Reason:  ReasonTimeout,
			Message: "the attempt ran longer than " + h.Spec.Timeout().String(),
		}, false, 0, draw)
	default: // the handler stopped for a reason of its worker's
		return Ending{Token: h.Token, To: Ready, Suspect: h.Suspect, Failure: &Failure{Reason: ReasonDrained}}
	}
}

// failed is the ending of an attempt that counts: tried again after a backoff, or failed for good.
func failed(h *Held, f Failure, final bool, retryAfter time.Duration, draw float64) Ending {
	counted := h.Counted + 1
	e := Ending{Token: h.Token, Counted: true, Failure: &f}
	if final || counted >= h.Spec.Attempts() || !h.Spec.Retry.Retryable(f.Reason) {
		e.To = Failed
		return e
	}
	e.To, e.Delay = Scheduled, h.Spec.Retry.Delay(counted, retryAfter, draw)
	return e
}

// lostWorker is the ending of an attempt whose worker was silent for its lease. soleSuspect tells that no other suspect ran there.
// The task goes back to its place: it has waited long enough.
func lostWorker(h *Held, soleSuspect bool) Ending {
	e := Ending{
		Token: h.Token, Session: h.Session, To: Ready, Counted: true, Suspect: true, SoleSuspect: soleSuspect,
		Failure: &Failure{Reason: ReasonWorkerLost, Message: "worker " + h.Worker.String() + " was silent for its lease"},
	}
	switch {
	case soleSuspect && h.WorkerLosses+1 >= h.Spec.WorkerLosses():
		e.To = Failed
		e.Failure = &Failure{Reason: ReasonPoison, Message: "its worker was lost each time it ran apart from other suspects"}
	case h.Counted+1 >= h.Spec.Attempts():
		e.To = Failed
	}
	return e
}

// Reclaimed is the ending of a running row whose session has ended and that no other instance took over in time. It counts,
// since the attempt may have run; it makes nobody a suspect, since no worker is known to be lost.
func Reclaimed(h *Held) Ending {
	e := Ending{
		Token: h.Token, Session: h.Session, To: Ready, Counted: true, Suspect: h.Suspect,
		Failure: &Failure{Reason: ReasonSchedulerLost, Message: "session " + h.Session.String() + " ended and its worker did not come back"},
	}
	if h.Counted+1 >= h.Spec.Attempts() {
		e.To = Failed
	}
	return e
}

// Withdrawn is the ending of an attempt that is known not to run: it goes back to its place, uncounted.
func Withdrawn(h *Held, why Reason) Ending {
	return Ending{Token: h.Token, Session: h.Session, To: Ready, Suspect: h.Suspect, Failure: &Failure{Reason: why}}
}

// clean makes a worker's failure storable: never refused, since a refusal would make finished work look unfinished.
func clean(f Failure, fallback Reason) Failure {
	reason := Reason(CleanText(string(f.Reason), ReasonMax))
	if reason == "" {
		reason = fallback
	}
	return Failure{Reason: reason, Message: CleanText(f.Message, FailureMessageMax)}
}

// Bounds of the texts that come with a report; longer ones are cut, never refused.
const (
	ReasonMax      = 63  // bytes
	ContentTypeMax = 255 // bytes
)

// CleanText makes a text from a worker storable: valid UTF-8 without NUL, cut to at most limit bytes. It looks at no more
// than limit bytes, however long the text is.
func CleanText(s string, limit int) string {
	if len(s) > limit {
		s = s[:limit]
	}
	return strings.ReplaceAll(strings.ToValidUTF8(s, ""), "\x00", "")
}
