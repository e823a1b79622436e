package cron

// OverlapPolicy says what a firing does while the last one's task is open.
type OverlapPolicy int

// The policies. The zero value skips.
const (
	OverlapSkip          OverlapPolicy = iota // the occurrence is skipped
	OverlapAllow                              // both run
	OverlapBufferOne                          // one occurrence waits for the end; later ones are skipped
	OverlapCancelRunning                      // the running task is canceled
)

// CatchUpPolicy says what becomes of occurrences that were missed.
type CatchUpPolicy int

// The policies. The zero value fires the latest one.
const (
	CatchUpLatest CatchUpPolicy = iota // the latest one fires, unless a later one is on time
	CatchUpNone                        // they are dropped
	CatchUpAll                         // up to State.CatchUpMax fire, oldest dropped
)

// Reason says why occurrences did not fire.
type Reason int

// The reasons.
const (
	ReasonMissed    Reason = iota + 1 // too late, and not caught up
	ReasonOverlap                     // the task of an earlier one is open
	ReasonBuffered                    // as before, and another occurrence waits already
	ReasonOvertaken                   // a later one is due as well, and would have canceled its task
)

// String is the reason as a sentence's part, for explain and logs.
func (r Reason) String() string {
	switch r {
	case ReasonMissed:
		return "it was missed and is not caught up"
	case ReasonOverlap:
		return "the task of an earlier occurrence is open"
	case ReasonBuffered:
		return "another occurrence waits for the open task already"
	case ReasonOvertaken:
		return "a later occurrence is due as well"
	default:
		return "unknown reason"
	}
}
