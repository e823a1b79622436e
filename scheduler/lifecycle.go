package scheduler

import (
	"errors"
	"fmt"
	"time"
)

// This file holds every arrow of a task's life, one method each. A method returns the changed task, or an error and the
// task as it was. The SQL store's guards and CHECK constraints must refuse what this file refuses; the conformance suite
// compares the two.

// Why an arrow is refused. They are answers, not faults: the caller was late, or somebody else was first.
var (
	ErrNotWaiting = errors.New("the task is not waiting")
	ErrNotRunning = errors.New("the task is not running")
	ErrNotBlocked = errors.New("the task does not wait for parents")
	ErrNotDue     = errors.New("the task's time has not come")
	ErrTooLate    = errors.New("the task's start_by has passed")
	ErrSeenOther  = errors.New("the task has changed since it was read")
	ErrLost       = errors.New("the token is not the current one")
	ErrEnded      = errors.New("the task has ended")
	ErrNoSuchEnd  = errors.New("an attempt does not end in this state")
)

// Claim turns a waiting task into a running attempt: one write is the dequeue, the assignment and the taking of the slot.
// seen and from are the attempt and the state that the claimer read.
func (t Task) Claim(from State, seen int64, session SessionID, worker WorkerID, now time.Time) (Task, error) {
	switch {
	case t.State != from || t.Attempt != seen:
		return t, fmt.Errorf("claim %s: %w", t.Ref, ErrSeenOther)
	case from != Ready && from != Scheduled:
		return t, fmt.Errorf("claim %s: %w", t.Ref, ErrNotWaiting)
	case from == Scheduled && t.WakeAt.After(now):
		return t, fmt.Errorf("claim %s: %w", t.Ref, ErrNotDue)
	case t.pastStartBy(now):
		return t, fmt.Errorf("claim %s: %w", t.Ref, ErrTooLate)
	}
	if from == Scheduled && !t.dueKept() {
		t.ReadyAt, t.Due = now, now.Add(t.Tolerance)
	}
	t.State, t.Attempt = Running, t.Attempt+1
	t.Session, t.Worker = session, worker
	t.StartedAt, t.WakeAt = now, time.Time{}
	return t, nil
}

// Wake makes a scheduled task ready when its time has come.
func (t Task) Wake(seen int64, now time.Time) (Task, error) {
	switch {
	case t.State != Scheduled || t.Attempt != seen:
		return t, fmt.Errorf("wake %s: %w", t.Ref, ErrSeenOther)
	case t.WakeAt.After(now):
		return t, fmt.Errorf("wake %s: %w", t.Ref, ErrNotDue)
	case t.pastStartBy(now):
		return t, fmt.Errorf("wake %s: %w", t.Ref, ErrTooLate)
	}
	if !t.dueKept() {
		t.ReadyAt, t.Due = now, now.Add(t.Tolerance)
	}
	t.State, t.WakeAt = Ready, t.StartBy
	return t, nil
}

// Expire ends a waiting task whose start_by has passed. It is never run again.
func (t Task) Expire(now time.Time) (Task, error) {
	switch {
	case !t.State.Waiting():
		return t, fmt.Errorf("expire %s: %w", t.Ref, ErrNotWaiting)
	case !t.pastStartBy(now):
		return t, fmt.Errorf("expire %s: %w", t.Ref, ErrNotDue)
	}
	return t.end(Expired, now, &Failure{Reason: ReasonExpired}), nil
}

// Update changes what a waiting task was submitted with. A task that would never run, or could not wait as its tier must, is
// refused with a [BadChange]. Blocked tasks have no time of their own yet and are not changed.
func (t Task) Update(c *Change, now time.Time) (Task, error) {
	switch {
	case t.State != Scheduled && t.State != Ready:
		return t, fmt.Errorf("update %s: %w", t.Ref, ErrNotWaiting)
	case t.pastStartBy(now): // it will expire, and is never run
		return t, fmt.Errorf("update %s: %w", t.Ref, ErrTooLate)
	}
	next := t
	c.tiers(&next)
	c.times(&next, t.dueKept(), now)
	if err := c.check(&next, now); err != nil {
		return t, fmt.Errorf("update %s: %w", t.Ref, err)
	}
	if c.SetLabels {
		next.Spec.Labels = c.Labels
	}
	return next, nil
}

// Cancel ends a waiting task at once; of a running one it writes down the wish, which every later arrow obeys.
func (t Task) Cancel(message string, now time.Time) (Task, error) {
	switch {
	case t.State.Terminal():
		return t, fmt.Errorf("cancel %s: %w", t.Ref, ErrEnded)
	case t.State == Running:
		t.CancelRequested = true
		return t, nil
	}
	t.CancelRequested = true
	return t.end(Canceled, now, &Failure{Reason: ReasonCanceled, Message: message}), nil
}

// Release lets a blocked task go whose parents allow it: to ready, or to scheduled when its time has not come.
func (t Task) Release(now time.Time) (Task, error) {
	switch {
	case t.State != Blocked:
		return t, fmt.Errorf("release %s: %w", t.Ref, ErrNotBlocked)
	case t.pastStartBy(now): // it expires
		return t, fmt.Errorf("release %s: %w", t.Ref, ErrTooLate)
	case t.RunAt.After(now):
		t.State, t.WakeAt = Scheduled, t.firstWake()
		return t, nil
	}
	t.State, t.WakeAt = Ready, t.StartBy
	t.ReadyAt, t.Due = now, now.Add(t.Tolerance)
	return t, nil
}

// Forsake ends a blocked task whose parents will never allow it.
func (t Task) Forsake(why *Failure, now time.Time) (Task, error) {
	if t.State != Blocked {
		return t, fmt.Errorf("cancel %s for its parents: %w", t.Ref, ErrNotBlocked)
	}
	return t.end(Canceled, now, why), nil
}

// Wait puts a blocked task to sleep that was just stored: an end of one of its parents wakes it, or its start_by.
func (t Task) Wait() (Task, error) {
	if t.State != Blocked {
		return t, fmt.Errorf("let %s wait: %w", t.Ref, ErrNotBlocked)
	}
	t.WakeAt = t.StartBy
	return t, nil
}

// Adopt notes that a task has got a child. Of one that has ended already, somebody must tell the child.
func (t Task) Adopt(now time.Time) Task {
	t.Parent = true
	if t.State.Terminal() {
		t.WakeAt = now
	}
	return t
}

// Rest notes that all children of an ended task have been looked at since its wake time was read.
func (t Task) Rest(seen time.Time) (Task, error) {
	if !t.State.Terminal() || !t.WakeAt.Equal(seen) {
		return t, fmt.Errorf("let %s rest: %w", t.Ref, ErrSeenOther)
	}
	t.WakeAt = time.Time{}
	return t, nil
}

// Attach hands a running attempt to another scheduler instance. The worker and the attempt stay as they are.
func (t Task) Attach(token Token, session SessionID) (Task, error) {
	if t.State != Running || t.Token() != token {
		return t, fmt.Errorf("attach %s: %w", t.Ref, ErrLost)
	}
	t.Session = session
	return t, nil
}

// End closes the running attempt and moves the task to where the ending says, unless a wish to cancel sends it elsewhere:
// a task that would wait again is canceled instead, and one that succeeded or failed under its token keeps that outcome.
func (t Task) End(e Ending, now time.Time) (Task, error) {
	switch {
	case t.State != Running || t.Token() != e.Token:
		return t, fmt.Errorf("end attempt %d of %s: %w", e.Token.Attempt, t.Ref, ErrLost)
	case !e.Session.IsZero() && e.Session != t.Session:
		return t, fmt.Errorf("end attempt %d of %s: session: %w", e.Token.Attempt, t.Ref, ErrLost)
	}
	next, err := t.moveTo(&e, now)
	if err != nil {
		return t, err
	}
	next.Suspect = e.Suspect
	if e.Counted {
		next.Counted++
	}
	if e.SoleSuspect {
		next.WorkerLosses++
	}
	return next, nil
}

// moveTo is the part of [Task.End] that depends on where the task goes.
func (t Task) moveTo(e *Ending, now time.Time) (Task, error) {
	to := e.To
	if t.CancelRequested && (to == Ready || to == Scheduled) {
		to = Canceled
	}
	switch to {
	case Succeeded:
		t.Result, t.ResultType = e.Result, e.ResultType
		return t.end(Succeeded, now, nil), nil
	case Failed, Canceled:
		return t.end(to, now, e.Failure), nil
	case Ready: // keeps its due: it waits no longer than promised
		t.WakeAt = t.StartBy
	case Scheduled: // a retry or a snooze gets a new due; backpressure does not
		t.RunAt = now.Add(e.Delay)
		if !e.KeepDue {
			t.Due = t.RunAt.Add(t.Tolerance)
		}
		t.WakeAt = t.firstWake()
	default:
		return t, fmt.Errorf("end %s as %v: %w", t.Ref, to, ErrNoSuchEnd)
	}
	t.State, t.Failure = to, e.Failure
	return t, nil
}

// end is the common part of every arrow into a terminal state. Session, worker and attempt stay: they tell a late reporter
// whether what stands is what it reported.
func (t Task) end(to State, now time.Time, why *Failure) Task {
	t.State, t.EndedAt, t.WakeAt, t.Failure = to, now, time.Time{}, why
	if t.Parent { // that its children are to be looked at, and nothing else: no end waits for a child
		t.WakeAt = now
	}
	return t
}

// dueKept tells of a scheduled task whether it has kept the due of when it was ready before: one with a new due is due its tolerance
// after it may run, and the kept one is earlier.
func (t *Task) dueKept() bool { return t.Due.Before(t.RunAt.Add(t.Tolerance)) }

// firstWake is when a task that waits for run_at must be looked at.
func (t *Task) firstWake() time.Time {
	if !t.StartBy.IsZero() && t.StartBy.Before(t.RunAt) {
		return t.StartBy
	}
	return t.RunAt
}

func (t *Task) pastStartBy(now time.Time) bool { return !t.StartBy.IsZero() && !t.StartBy.After(now) }
