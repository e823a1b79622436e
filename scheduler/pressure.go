package scheduler

import "time"

// This file holds what becomes of backpressure: a worker's word that what a named limit guards asks for less. The rate of the limit, for
// the task's own key, goes down and comes back slowly (fairness.Adaptive), and the task goes back to its place, uncounted.
//
// Only a limit that an operator has put gives way, also one that caps nothing by itself: a name that anybody may write into a task would
// let tenants make rates, and what is kept of them, at will. Each instance adapts the starts of its own: what guards the limit complains
// to the workers of all of them, and together they come to what it bears. What an instance has learned ends with it, and with the limit.

// LimitNameMax is the longest name of a limit, in bytes.
const LimitNameMax = 63

// press tells the gates of an attempt's limit that there were too many starts, and whether there is such a gate to hold the task back.
func (c *Core) press(a *attempt, limit string) bool {
	gated := false
	for _, g := range a.gates {
		if g.key.of != gateLimit || g.key.name != limit {
			continue
		}
		gated = true
		if !g.adaptive.Answered(a.StartedAt) {
			g.refill(c.now, c.gates.parts) // what has been earned at the old rate stays
			g.adaptive.Backpressure(c.now)
			c.gates.touch(g)
		}
	}
	if gated {
		c.pressed.Limited++
	} else {
		c.pressed.Unlimited++
	}
	return gated
}

// pressed is the ending of an attempt that met with backpressure: its task keeps its due, and its limit's gate paces it. Without a gate
// nothing would: then it waits as after a failure, longer each time; the number of attempts tells how often, since none is counted.
func pressed(h *Held, r *Report, gated bool, draw float64) Ending {
	e := Ending{Token: r.Token, To: Scheduled, KeepDue: true, Failure: &Failure{
		Reason: ReasonBackpressure, Message: "limit " + CleanText(r.Limit, LimitNameMax),
	}}
	switch {
	case !gated:
		e.Delay = h.Spec.Retry.Delay(int(h.Attempt), r.RetryAfter, draw)
	case r.RetryAfter > 0:
		e.Delay = r.RetryAfter
	default:
		e.To, e.KeepDue = Ready, false // ready work always keeps it
		return e
	}
	e.Delay = min(max(e.Delay, time.Millisecond), SnoozeMax)
	return e
}

// Pressed counts reports of backpressure.
type Pressed struct {
	Limited   int // of a limit of the task that an operator has put: its rate gives way
	Unlimited int // of any other name: the task waits for its retry policy's backoff
}
