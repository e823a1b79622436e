package cron

import "time"

// OnTimeMax is how late an occurrence may be decided and still counts as on time: a scheduler or a region that dies is replaced
// within it. What is decided later was missed, and its catch-up policy decides.
const OnTimeMax = time.Minute

// CatchUpMax is the most occurrences that CatchUpAll fires.
const CatchUpMax = 1000

// onTimeFirings are the most occurrences that can be on time at once: one a second.
const onTimeFirings = int(OnTimeMax/time.Second) + 1

// State is a schedule as it is stored.
type State struct {
	// ID spreads the jitter.
	ID string
	// Since is when the schedule was made, or its expression changed last: nothing up to it is an occurrence.
	Since time.Time
	// Start and End bound the occurrences, both included; zero for no bound.
	Start, End time.Time
	// Decided is the last occurrence that was decided: fired, skipped or buffered. Zero before the first.
	Decided time.Time
	// Buffered waits for open tasks under OverlapBufferOne; zero when none does.
	Buffered time.Time
	// Open is how many tasks of earlier occurrences have not ended.
	Open int
	// Paused keeps it from firing. What it misses meanwhile is missed.
	Paused bool
	// Jitter is the most by which occurrences are delayed.
	Jitter  time.Duration
	Overlap OverlapPolicy
	CatchUp CatchUpPolicy
	// CatchUpMax is for CatchUpAll; larger values count as the constant CatchUpMax.
	CatchUpMax int
	// CatchUpWindow is how far back catch-up looks.
	CatchUpWindow time.Duration
}

// Skip is a number of occurrences that did not fire.
type Skip struct {
	Reason Reason
	Count  int64
}

// Decision is what a schedule does now.
type Decision struct {
	// Fire are the occurrences to submit a task for, oldest first.
	Fire []time.Time
	// CancelOpen says that open tasks of earlier occurrences are to be canceled.
	CancelOpen bool
	// Skipped are the others, by reason.
	Skipped []Skip
	// Decided and Buffered are what to store, with the state as it was read as the guard.
	Decided, Buffered time.Time
	// Wake is when to decide again, jitter included; zero when no occurrence will come, or while it is paused. The end of an open
	// task is another moment to decide when one is buffered.
	Wake time.Time
}

// Plan decides. The same state and time give the same decision; the work does not grow with the time since the last one. A time before
// that of an earlier decision decides nothing and wakes for what follows the last occurrence decided.
func Plan(s *Schedule, state State, now time.Time) Decision {
	d := Decision{Decided: state.Decided, Buffered: state.Buffered}
	if state.Paused {
		return d
	}
	delay := Jitter(state.ID, state.Jitter)
	from, to := state.from(), now.Add(-delay)
	if !state.End.IsZero() && to.After(state.End) {
		to = state.End
	}
	onTimeFrom := later(from, now.Add(-delay-OnTimeMax))
	due := s.Latest(onTimeFrom, to, onTimeFirings)
	missedTo := onTimeFrom
	if missedTo.After(to) {
		missedTo = to // it ended long ago
	}
	missed := state.missed(s, from, missedTo, now.Add(-delay), len(due) > 0)
	d.skip(ReasonMissed, s.Count(from, missedTo)-int64(len(missed)))
	if last, ok := s.Prev(to.Add(1)); ok && last.After(from) {
		d.Decided = last
	}
	d.overlap(state, append(missed, due...))
	if next, ok := s.Next(later(from, d.Decided)); ok && (state.End.IsZero() || !next.After(state.End)) {
		d.Wake = next.Add(delay)
	}
	return d
}

// from is the instant after which occurrences are still to be decided.
func (s State) from() time.Time {
	from := later(s.Since, s.Decided)
	if !s.Start.IsZero() {
		from = later(from, s.Start.Add(-1)) // the start itself may be an occurrence
	}
	return from
}

// missed are those of the missed occurrences that fire all the same.
func (s State) missed(schedule *Schedule, from, to, now time.Time, onTime bool) []time.Time {
	n := 0
	switch s.CatchUp {
	case CatchUpNone:
	case CatchUpLatest:
		if !onTime {
			n = 1
		}
	case CatchUpAll:
		n = min(s.CatchUpMax, CatchUpMax)
	}
	return schedule.Latest(later(from, now.Add(-s.CatchUpWindow)), to, n)
}

// overlap lets occurrences fire as far as open tasks allow.
func (d *Decision) overlap(state State, due []time.Time) {
	open := state.Open > 0
	if !state.Buffered.IsZero() { // whatever the policy is now, it was not skipped
		due = append([]time.Time{state.Buffered}, due...)
		d.Buffered = time.Time{}
	}
	switch state.Overlap {
	case OverlapAllow:
		d.Fire = due
	case OverlapCancelRunning:
		if len(due) > 0 {
			last := len(due) - 1
			d.Fire, d.CancelOpen = due[last:], open
			d.skip(ReasonOvertaken, int64(last))
		}
	case OverlapBufferOne:
		if !open && len(due) > 0 {
			d.Fire, due = due[:1:1], due[1:]
		}
		if len(due) > 0 {
			d.Buffered, due = due[0], due[1:]
		}
		d.skip(ReasonBuffered, int64(len(due)))
	default:
		if !open && len(due) > 0 {
			d.Fire, due = due[:1:1], due[1:]
		}
		d.skip(ReasonOverlap, int64(len(due)))
	}
}

func (d *Decision) skip(reason Reason, count int64) {
	if count > 0 {
		d.Skipped = append(d.Skipped, Skip{reason, count})
	}
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
