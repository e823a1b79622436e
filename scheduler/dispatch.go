package scheduler

import (
	"container/heap"
	"time"

	"github.com/errandhq/errand/fairness"
	"github.com/errandhq/errand/placement"
)

// This file holds how waiting rows come in and how they start.

// offer buffers a row that is known to be waiting, unless it is being started or ended here right now. It tells whether the
// row is new.
func (c *Core) offer(r *ReadyRow) bool {
	if a := c.attempts.byID[r.ID]; a != nil {
		return false // what stands will be known when the write under way is answered
	}
	r.Shape = c.shapes.one(r.Class, r.Shape)
	added, here := c.waiting.add(r, c.now)
	switch {
	case r.State != Scheduled:
	case added:
		c.dueNow = append(c.dueNow, r.ID)
	case !here: // there is no room for it: once it is ready, refills find it like any other
		c.plan.Wakes = append(c.plan.Wakes, *r)
	}
	return added
}

// rowChanged has a row that is buffered take its new place. What is known of a later attempt is newer.
func (c *Core) rowChanged(r *ReadyRow) {
	if w := c.waiting.rows[r.ID]; w != nil {
		if w.attempt > r.Attempt {
			return
		}
		c.waiting.remove(w, c.now)
	}
	if r.State == Ready {
		c.offer(r)
	}
}

func groupKeyOf(r *ReadyRow) BufferKey {
	return BufferKey{Tenant: r.Tenant, Tier: r.Tier, Class: r.Class.Hash()}
}

func (c *Core) refilled(ev Refilled) {
	type slice struct {
		key   BufferKey
		shard uint8
	}
	answers := map[BufferKey]*refillAnswer{}
	for _, key := range ev.Keys {
		answers[key] = c.waiting.refilling(key)
	}
	read := map[slice]int{}
	for i := range ev.Rows {
		r := &ev.Rows[i]
		key := groupKeyOf(r)
		answer := answers[key]
		if answer == nil {
			continue // not asked for
		}
		s := slice{key, r.ID.Shard()}
		if read[s]++; read[s] >= ev.PerShard {
			answer.cut = true
		}
		answer.show(r)
		if c.offer(r) {
			answer.brought++
		}
	}
	for _, key := range ev.Keys {
		c.waiting.refilled(key, answers[key], c.now)
	}
}

// discovered takes note of groups that have rows in the store. One that was not read from its beginning for a cycle is read
// so, whatever is buffered: rows that others made ready are found this way.
func (c *Core) discovered(keys []BufferKey) {
	for _, key := range keys {
		period := c.timing.Discover
		if key.Tier == Urgent {
			period = c.timing.DiscoverFast
		}
		if g := c.waiting.group(key); (g.rows == 0 && !g.behind) || c.now.Sub(g.lookedAt) >= period {
			c.waiting.look(key)
		}
	}
}

// claim takes a row out of the backlog for a worker on which room is reserved.
func (c *Core) claim(w *waiting, at placement.Placement, use fairness.Use) Claim {
	k := w.buffer.key
	a := &attempt{
		Held: Held{
			Token:   Token{ID: w.id, Attempt: w.attempt + 1, Worker: at.Worker},
			Session: c.sessionOf(w.id), Tenant: k.tenant, Kind: w.buffer.kind, Tier: k.tier, Suspect: k.suspect, Due: w.due,
		},
		phase: claiming, class: k.class, limits: w.buffer.limits, shape: w.buffer.shape, size: w.size, room: true, devices: at.Devices,
	}
	c.begin(a)
	c.pass(a, use)
	c.waiting.remove(w, c.now)
	return Claim{ID: w.id, From: w.state, Seen: w.attempt, Worker: at.Worker, PayloadSize: w.size}
}

// claimAnswered goes on with a row that was won, and forgets one that was lost.
func (c *Core) claimAnswered(answer *Claimed) {
	a := c.attempts.byID[answer.ID]
	if a == nil || a.phase != claiming {
		return
	}
	if answer.Verdict != Won || answer.Start.Token != a.Token {
		c.free(a)
		c.forget(a)
		if answer.State == Ready { // it waits still, only not as it was seen: read it again
			c.waiting.look(a.groupKey())
		}
		return
	}
	// The room was reserved for what the row said when it was read.
	reserved, canceled := a.need(), a.CancelRequested
	a.Held = answer.Start.Held
	a.CancelRequested = a.CancelRequested || canceled
	if a.room && a.need() != reserved {
		at := a.place()
		c.pool.Free(at, reserved)
		if a.need().Shape != reserved.Shape { // others fit now
			at.Devices = 0
		}
		a.devices = c.pool.Reserve(at, a.need()).Devices
	}
	c.assign(a, answer.Start)
}

// assign sends a running row to its worker, or gives it back when there is nobody to send it to.
func (c *Core) assign(a *attempt, s Start) {
	switch {
	case a.CancelRequested:
		c.close(a, Ending{Token: a.Token, Session: a.Session, To: Canceled, Failure: &Failure{Reason: ReasonCanceled}})
	case !a.room || a.Session != c.sessionOf(a.ID): // its worker has left, also if it came back since
		c.close(a, Withdrawn(&a.Held, ReasonNotAccepted))
	default:
		a.phase, s.Devices = sent, a.devices
		c.attempts.setDeadline(a, c.now.Add(c.timing.Accept))
		c.plan.Assign = append(c.plan.Assign, s)
	}
}

// wakeTheRest lets go of rows that are due and found no worker: the store makes them ready, and then they come back.
func (c *Core) wakeTheRest() {
	for _, id := range c.dueNow {
		if w := c.waiting.rows[id]; w != nil && w.state == Scheduled {
			c.plan.Wakes = append(c.plan.Wakes, w.row())
			c.waiting.remove(w, c.now)
		}
	}
	c.dueNow = c.dueNow[:0]
}

// passDeadlines acts on attempts whose worker has not done in time what it had to.
func (c *Core) passDeadlines(now time.Time) {
	for len(c.attempts.deadlines) > 0 && !c.attempts.deadlines[0].deadline.After(now) {
		a := heap.Pop(&c.attempts.deadlines).(*attempt)
		switch a.phase {
		case sent: // not accepted
			c.withdraw(a)
		case running: // longer than its cap
			c.askToStop(a, StopTimedOut)
		case stopping: // and it did not stop
			c.tell(a, StopLost)
			c.close(a, c.forced(a))
		default: // claiming and ending wait for the store, which has no deadline
		}
	}
}

// withdraw gives back an attempt that its worker has not accepted in time. The assignment may be on its way still: an
// exclusive one is given back only when no grant can let it run any more.
func (c *Core) withdraw(a *attempt) {
	if a.Spec.Exclusive {
		c.askToStop(a, StopLost)
		c.attempts.setDeadline(a, c.now.Add(c.timing.WorkerLease))
		return
	}
	c.tell(a, StopLost)
	c.close(a, Withdrawn(&a.Held, ReasonNotAccepted))
}

// forced is the end of an attempt that was told to stop and of which nothing was heard since.
func (c *Core) forced(a *attempt) Ending {
	if a.stop == StopLost {
		return Withdrawn(&a.Held, ReasonNotAccepted)
	}
	e := stopped(&a.Held, a.stop, c.draw())
	e.Session = a.Session
	return e
}
