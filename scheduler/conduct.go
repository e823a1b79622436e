package scheduler

import (
	"maps"
	"slices"

	"github.com/errandhq/errand/fairness"
	"github.com/errandhq/errand/placement"
)

// This file holds what workers do and say, and how attempts end.

func (c *Core) stepWorker(ev Event) {
	switch ev := ev.(type) {
	case WorkerJoined:
		c.workerJoined(&ev.Worker)
	case WorkerDraining:
		c.pool.Drain(ev.ID, ev.Draining)
	case WorkerHolds:
		c.workerHolds(ev)
	case WorkersLost:
		for _, id := range ev.IDs {
			c.workerLost(id, ev.Incident || len(ev.IDs) > 1)
		}
	case WorkerLeft:
		c.workerLeft(ev.ID)
	case Accepted:
		for _, token := range ev.Tokens {
			c.accepted(token)
		}
	case Reported:
		c.plan.Endings = slices.Grow(c.plan.Endings, len(ev.Reports))
		for i := range ev.Reports {
			c.reported(&ev.Reports[i])
		}
	case CancelAsked:
		c.cancelAsked(ev.Token)
	case TookOver:
		for i := range ev.Held {
			c.tookOver(&ev.Held[i])
		}
	case Undelivered:
		for _, token := range ev.Tokens {
			if a := c.find(token); a != nil && (a.phase == sent || a.phase == stopping) {
				c.giveBack(a)
			}
		}
	case RowsMissing:
		for _, token := range ev.Tokens {
			c.rowMissing(token)
		}
	}
}

func (c *Core) workerJoined(w *placement.Worker) {
	if known, here := c.pool.Worker(w.ID); here && known.Tenant != w.Tenant {
		c.workerLeft(w.ID) // another credential: not the worker it was
	}
	c.pool.Join(*w)
	for _, kind := range slices.Sorted(maps.Keys(w.Slots)) { // in order, since it decides whose turn comes first
		c.waiting.unpark(kind, c.now, func(buf *buffer) bool { return c.mayRun(buf.allowed) && c.pool.CouldRun(w.ID, c.needOf(buf)) })
	}
}

// find returns the attempt with this very token.
func (c *Core) find(t Token) *attempt {
	if a := c.attempts.byID[t.ID]; a != nil && a.Token == t {
		return a
	}
	return nil
}

func (c *Core) accepted(t Token) {
	a := c.find(t)
	if a == nil || a.phase != sent {
		return
	}
	a.phase = running
	c.attempts.setDeadline(a, a.StartedAt.Add(a.Spec.Timeout()))
}

// reported frees the room at once: the worker is done, whenever the store may write it down.
func (c *Core) reported(r *Report) {
	a := c.find(r.Token)
	if a == nil || a.phase == ending || a.phase == claiming {
		return
	}
	c.ran(a)
	draw := c.draw()
	e := c.endingOf(a, r, draw)
	switch {
	case e.To == Succeeded:
		c.retries.succeeded(a.Kind)
	case e.Counted && e.To == Scheduled:
		if steps := c.retries.failed(a.Kind); steps > 0 {
			e.Delay = a.Spec.Retry.Delay(a.Counted+1+steps, r.RetryAfter, draw)
		}
	}
	c.close(a, e)
}

func (c *Core) endingOf(a *attempt, r *Report, draw float64) Ending {
	if r.Outcome == OutcomeBackpressure {
		return pressed(&a.Held, r, c.press(a, r.Limit), draw)
	}
	return decide(&a.Held, a.stop, r, draw)
}

// close frees an attempt's room and has its ending written.
func (c *Core) close(a *attempt, e Ending) {
	c.free(a)
	c.attempts.clearDeadline(a)
	a.phase = ending
	c.plan.Endings = append(c.plan.Endings, e)
}

// giveBack closes an attempt that is known not to run. One that is only in the plan yet is not sent any more.
func (c *Core) giveBack(a *attempt) {
	c.plan.Assign = slices.DeleteFunc(c.plan.Assign, func(s Start) bool { return s.Token == a.Token })
	c.close(a, Withdrawn(&a.Held, ReasonNotAccepted))
}

// free gives an attempt's room back, once.
func (c *Core) free(a *attempt) {
	if a.room {
		a.room = false
		c.settle(a)
		c.pool.Free(a.place(), a.need())
	}
}

// begin takes an attempt into the core; it holds a slot of each gate from now on.
func (c *Core) begin(a *attempt) {
	c.attempts.add(a)
	c.shares.Hold(a.Tenant, 1, c.now)
	a.gates = c.gates.of(a.Tenant, a.Kind, a.limits)
	for _, g := range a.gates {
		g.used++
	}
}

// forget drops an attempt that is no running row of this instance any more.
func (c *Core) forget(a *attempt) {
	c.settle(a)
	c.attempts.remove(a)
	c.gates.release(a.gates)
	c.shares.Hold(a.Tenant, -1, c.now)
}

// endingAnswered forgets an attempt whose end is settled, one way or the other, and takes back a task that waits again.
func (c *Core) endingAnswered(e *Ending, answer *Ended) {
	a := c.find(e.Token)
	if a == nil || a.phase != ending {
		return
	}
	c.forget(a)
	if answer.Verdict != Won || answer.State != Ready {
		return
	}
	c.offer(&ReadyRow{
		ID: a.ID, Attempt: a.Attempt, State: Ready, Tenant: a.Tenant, Kind: a.Kind, Tier: a.Tier,
		Class: a.class, Due: a.Due, PayloadSize: a.size, Suspect: e.Suspect, Limits: a.limits, Shape: a.shape, Allowed: a.Spec.AllowedRegions, Avoid: a.Worker,
	})
}

func (c *Core) cancelAsked(t Token) {
	a := c.attempts.byID[t.ID]
	if a == nil || a.Attempt != t.Attempt {
		return
	}
	a.CancelRequested = true
	if a.phase == sent || a.phase == running {
		c.askToStop(a, StopCanceled)
	}
}

func (c *Core) askToStop(a *attempt, cause StopCause) {
	a.phase, a.stop = stopping, cause
	c.tell(a, cause)
	c.attempts.setDeadline(a, c.now.Add(c.timing.StopGrace))
}

func (c *Core) tell(a *attempt, cause StopCause) {
	c.plan.Stops = append(c.plan.Stops, Stop{Token: a.Token, Cause: cause})
}

// workerHolds gives back what the worker was thought to run and does not, and says again what it may not have heard.
func (c *Core) workerHolds(ev WorkerHolds) {
	named := map[Token]bool{}
	for _, t := range ev.Tokens {
		named[t] = true
		c.accepted(t)
		if a := c.find(t); a != nil && a.phase == stopping {
			c.tell(a, a.stop)
		}
	}
	for _, t := range c.HeldBy(ev.ID) {
		if a := c.find(t); !named[t] && !(ev.Again && a.phase == sent) {
			c.giveBack(a)
		}
	}
}

// workerLost gives back what a silent worker ran. Each of those tasks is a suspect from now on; only one that ran there as
// the single suspect, or all alone, is blamed.
func (c *Core) workerLost(id WorkerID, incident bool) {
	tokens := c.HeldBy(id)
	suspects := 0
	for _, t := range tokens {
		if c.find(t).Suspect {
			suspects++
		}
	}
	for _, t := range tokens {
		a := c.find(t)
		sole := len(tokens) == 1 || (a.Suspect && suspects == 1)
		e := lostWorker(&a.Held, sole && !incident)
		switch a.stop {
		case StopCanceled:
			e = Ending{Token: a.Token, Session: a.Session, To: Canceled, Counted: true, Failure: &Failure{Reason: ReasonCanceled}}
		case StopLost: // it had not accepted this one
			e = c.forced(a)
		default: // it ran
		}
		c.close(a, e)
	}
	c.leave(id)
}

// workerLeft forgets a worker that went away in order. What it still held is another instance's now, or nobody's: the rows
// tell, at the next reconciliation.
func (c *Core) workerLeft(id WorkerID) {
	for _, t := range c.HeldBy(id) {
		a := c.find(t)
		c.haunt(a)
		c.forget(a)
	}
	c.leave(id)
}

// leave takes a worker out of the pool. What is being claimed for it has no room any more, also when the worker comes back.
func (c *Core) leave(id WorkerID) {
	of := slices.SortedFunc(maps.Values(c.attempts.byWorker[id]), func(a, b *attempt) int { return a.ID.Compare(b.ID) })
	for _, a := range of {
		c.settle(a)
		a.room = false
	}
	c.pool.Leave(id)
}

// tookOver takes a running attempt of a connected worker into the core.
func (c *Core) tookOver(h *Held) {
	if _, connected := c.pool.Worker(h.Worker); !connected {
		return // the row is nobody's: the next reconciliation gives it back
	}
	if c.Holds(h.Token) {
		c.find(h.Token).Session = h.Session
		return
	}
	if !c.outdate(h.Token) {
		c.plan.Stops = append(c.plan.Stops, Stop{Token: h.Token, Cause: StopLost})
		return
	}
	if g := c.ghosts[h.ID]; g != nil { // it has come back
		c.vanished([]Token{g.token})
	}
	class := ClassOf(h.Kind, &h.Spec)
	a := &attempt{
		Held: *h, phase: running, class: class, limits: h.Spec.Limits, shape: c.shapes.one(class, h.Spec.Shape), room: true,
	}
	c.begin(a)
	a.devices = c.pool.Reserve(a.place(), a.need()).Devices
	c.charge(a, fairness.Plain)
	c.attempts.setDeadline(a, a.StartedAt.Add(a.Spec.Timeout()))
	if a.CancelRequested {
		c.askToStop(a, StopCanceled)
	}
}

// outdate forgets what is known of a task from before an attempt, and says no when something later is known: attempt numbers
// grow at every claim, and a row that waits with the attempt's number has seen its end.
func (c *Core) outdate(t Token) bool {
	if w := c.waiting.rows[t.ID]; w != nil {
		if w.attempt >= t.Attempt {
			return false
		}
		c.waiting.remove(w, c.now)
	}
	a := c.attempts.byID[t.ID]
	if a == nil {
		return true
	}
	if a.Attempt > t.Attempt {
		return false
	}
	if a.atWorker() {
		c.tell(a, StopLost)
	}
	c.free(a)
	c.haunt(a)
	c.forget(a)
	return true
}

// rowMissing drops an attempt that is not this session's any more; its worker must stop.
func (c *Core) rowMissing(t Token) {
	a := c.find(t)
	if a == nil || !a.atWorker() {
		return
	}
	c.tell(a, StopLost)
	c.free(a)
	c.haunt(a)
	c.forget(a)
}

// Workers returns the identities of the workers in the pool, in order.
func (c *Core) Workers() []WorkerID {
	ids := c.pool.IDs()
	slices.SortFunc(ids, WorkerID.Compare)
	return ids
}

// Worker returns what a worker in the pool says of itself.
func (c *Core) Worker(id WorkerID) placement.Worker {
	w, _ := c.pool.Worker(id)
	return w
}
