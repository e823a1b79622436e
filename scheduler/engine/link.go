package engine

import (
	"errors"
	"time"

	"github.com/errandhq/errand/scheduler"
)

// ErrNoParent means that a parent is not there: it never was, was deleted since it ended, or is another tenant's. Nothing was stored.
var ErrNoParent = errors.New("there is no such parent")

// linksInFlight bounds the inserts of linked tasks that are under way at once: each may be large.
const linksInFlight = 4

// linksPendingMax bounds those that wait; beyond it they are refused as busy.
const linksPendingMax = 64

// links holds inserts of tasks with parents.
type links struct {
	pipe
	pending []*linked
	open    map[Ticket]*linked
}

// linked is one such insert.
type linked struct {
	LinkAsked
	in   scheduler.InsertLinked
	at   time.Duration
	sent bool
}

func newLinks() links {
	return links{pipe: pipe{name: "insert_linked", limit: linksInFlight}, open: map[Ticket]*linked{}}
}

// link queues tasks that have parents, or are a graph.
func (e *Engine) link(in LinkAsked) {
	q := &e.links
	switch {
	case len(in.Tasks) == 0:
		e.emit(LinkAnswered{Ticket: in.Ticket})
	case e.stopping:
		e.emit(LinkAnswered{Ticket: in.Ticket, Err: ErrStopping})
	case !e.home.opened || len(q.pending) >= linksPendingMax:
		e.emit(LinkAnswered{Ticket: in.Ticket, Err: ErrBusy})
	default:
		one := &linked{LinkAsked: in, at: e.local}
		q.pending, q.open[in.Ticket] = append(q.pending, one), one
	}
}

// insertLinked sends what waits, as far as the pipeline has room.
func (e *Engine) insertLinked() {
	q := &e.links
	for q.free() && len(q.pending) > 0 {
		one := q.pending[0]
		q.pending = q.pending[1:]
		if q.open[one.Ticket] != one {
			continue // withdrawn
		}
		one.sent = true
		e.number(one)
		e.run(&q.pipe, one.in, func(s *statement, answer any, err error) { e.linkedDone(one, s, answer, err) })
	}
}

// number gives the tasks their IDs, all in one lane, and their first state.
func (e *Engine) number(one *linked) {
	now, shard := e.storeNow(), e.newShard(&one.Tasks[0])
	tasks := make([]scheduler.Task, len(one.Tasks))
	for i := range tasks {
		tasks[i] = one.Tasks[i]
		t := &tasks[i]
		t.Region, t.ID = e.home.name, e.newID(shard, now)
		if t.EffectKey.IsZero() {
			t.EffectKey = t.ID
		}
	}
	one.in = scheduler.InsertLinked{Region: e.home.name, Tasks: tasks}
	if one.Inside != nil {
		one.in.Graph, one.in.Key, one.in.Fingerprint = tasks[0].ID, one.Key, one.Fingerprint
	}
	for i := range tasks {
		t := &tasks[i]
		if one.Inside != nil {
			t.Spec.Graph = one.in.Graph.String()
			parents := make([]scheduler.Ref, 0, len(one.Inside[i])+len(t.Parents))
			for _, p := range one.Inside[i] {
				parents, tasks[p].Parent = append(parents, tasks[p].Ref), true
			}
			t.Parents = append(parents, t.Parents...)
		}
		prepare(t, now)
		if len(t.Parents) > 0 {
			t.State, t.ReadyAt = scheduler.Blocked, time.Time{}
		}
		if len(one.Tasks[i].Parents) > 0 { // one that exists may end before it is known to have children
			t.WakeAt = now
		}
	}
}

func (e *Engine) linkedDone(one *linked, s *statement, answer any, err error) {
	_, waits := e.links.open[one.Ticket]
	refused := errors.Is(err, scheduler.ErrRefused)
	switch {
	case err != nil && waits && !refused:
		e.tryAgain(s, err)
		return
	case err != nil:
		e.finish(s)
		if !refused { // nobody waits: what stands is found by its lane
			err = ErrOutcomeUnknown
		}
		e.answerLinked(one, LinkAnswered{Err: err})
		return
	}
	e.finish(s)
	e.answerLinked(one, e.linkedStands(one, answer.(scheduler.Linked)))
}

// linkedStands takes up what was stored, and says what became of each task.
func (e *Engine) linkedStands(one *linked, got scheduler.Linked) LinkAnswered {
	a := LinkAnswered{Graph: scheduler.Ref{Region: e.home.name, ID: one.in.Graph}}
	switch got.Verdict {
	case scheduler.InsertDuplicate:
		a.Graph, a.Existed = got.Existing, true
		return a
	case scheduler.InsertKeyReused:
		a.Graph, a.Err = got.Existing, ErrKeyReused
		return a
	case scheduler.InsertNoParent:
		a.Err, a.At, a.Parent = ErrNoParent, got.At, got.Existing
		return a
	default:
	}
	a.Outcomes = make([]SubmitOutcome, len(got.Tasks))
	var ready []scheduler.ReadyRow
	var fresh []scheduler.ID
	for i := range got.Tasks {
		t, stands := &one.in.Tasks[i], &got.Tasks[i]
		a.Outcomes[i] = linkedOutcome(t, stands)
		switch {
		case stands.Verdict != scheduler.InsertStored || stands.State != t.State:
		case t.State == scheduler.Ready:
			ready = append(ready, t.WaitingRow())
		case t.State == scheduler.Scheduled && e.lanes[t.ID.Shard()]:
			e.addTimer(timedRow(t))
		case t.State == scheduler.Blocked && !t.WakeAt.IsZero():
			fresh = append(fresh, t.ID)
		}
	}
	e.offer(ready)
	e.releaseFresh(fresh)
	return a
}

func linkedOutcome(t *scheduler.Task, stands *scheduler.Inserted) SubmitOutcome {
	outcome := SubmitOutcome{Ref: t.Ref, State: stands.State}
	switch stands.Verdict {
	case scheduler.InsertStored:
	case scheduler.InsertDuplicate:
		outcome.Ref, outcome.Existed = stands.Existing, true
	case scheduler.InsertKeyReused:
		outcome.Ref, outcome.Err = stands.Existing, ErrKeyReused
	case scheduler.InsertNoParent:
		outcome.Ref, outcome.Err = stands.Existing, ErrNoParent
	case scheduler.InsertHeld:
		outcome.Ref, outcome.Existed = stands.Existing, !t.Spec.RefuseHeld
		if t.Spec.RefuseHeld {
			outcome.Err = ErrKeyHeld
		}
	default: // a key was just freed: the same submission may be sent again
		outcome.Err = ErrBusy
	}
	return outcome
}

func (e *Engine) answerLinked(one *linked, a LinkAnswered) {
	if e.links.open[one.Ticket] != one {
		return // withdrawn
	}
	delete(e.links.open, one.Ticket)
	a.Ticket = one.Ticket
	e.observe.Submitted("answered", e.local-one.at)
	e.emit(a)
}

// withdrawLinked answers a ticket for which nobody waits with what is known now.
func (e *Engine) withdrawLinked(id Ticket) {
	one := e.links.open[id]
	if one == nil {
		return
	}
	a := LinkAnswered{Err: ErrBusy}
	if one.sent {
		a.Err, a.Graph = ErrOutcomeUnknown, scheduler.Ref{Region: e.home.name, ID: one.in.Graph}
	}
	e.answerLinked(one, a)
}
