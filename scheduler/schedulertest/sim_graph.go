package schedulertest

import (
	"fmt"
	"slices"
	"time"

	"github.com/errandhq/errand/scheduler"
	"github.com/errandhq/errand/scheduler/engine"
	"github.com/errandhq/errand/scheduler/graph"
)

// link submits a graph, or tasks that wait for some that exist, once: nobody asks again when the answer gets lost, and what stands
// has to come to its end all the same.
func (c *client) link() {
	s := c.s
	in := pick(s, s.instances...)
	asked := engine.LinkAsked{}
	whole := len(c.known) == 0 || s.chance(0.6)
	for i := range 1 + s.rand.IntN(6) {
		t := c.draw().task
		c.submissions = c.submissions[:len(c.submissions)-1]
		c.linkedTasks++
		t.Payload = fmt.Appendf(nil, "linked %d", c.linkedTasks)
		t.IdempotencyKey, t.Fingerprint = "", nil
		t.Spec.Condition, t.Spec.Impossible = graph.Condition(s.rand.IntN(4)), graph.Policy(s.rand.IntN(3))
		if whole {
			t.UniqueKey, t.Spec.RefuseHeld = "", false
			t.Tenant = pick(s, "acme")
		} else {
			for range 1 + s.rand.IntN(2) {
				ref := pick(s, c.known...)
				if p, _ := s.memory.Task(ref); (len(t.Parents) == 0 || p.Tenant == t.Tenant) && !slices.Contains(t.Parents, ref) {
					t.Tenant, t.Parents = p.Tenant, append(t.Parents, ref)
				}
			}
			if i > 0 && t.Tenant != asked.Tasks[0].Tenant {
				continue // a call is one tenant's
			}
		}
		c.times(&t)
		asked.Tasks = append(asked.Tasks, t)
		if whole {
			var parents []int
			for p := range i {
				if s.chance(0.5) {
					parents = append(parents, p)
				}
			}
			asked.Inside = append(asked.Inside, parents)
		}
	}
	if in.engine == nil {
		return
	}
	life := in.life
	ticket := in.ask(func(t engine.Ticket) engine.Input {
		asked.Ticket = t
		return asked
	}, c.linked)
	s.after(s.between(2*time.Second, 20*time.Second), func() {
		if in.life == life {
			in.post(engine.SubmitWithdrawn{Ticket: ticket})
		}
	})
}

// linked takes note of what is known to stand.
func (c *client) linked(eff engine.Effect) {
	answer, told := eff.(engine.LinkAnswered)
	if !told || answer.Err != nil {
		return
	}
	for _, o := range answer.Outcomes {
		if o.Err != nil {
			continue
		}
		if _, stands := c.s.memory.Task(o.Ref); !stands {
			c.s.oracle.failf("P1: %s was accepted with its graph, and is not there", o.Ref)
		}
		c.known = append(c.known, o.Ref)
	}
}

// linkedRows names the rows of a release, for the trace.
func linkedRows(request any, add func(scheduler.ID, string, ...any)) bool {
	switch r := request.(type) {
	case scheduler.InsertLinked:
		for i := range r.Tasks {
			add(r.Tasks[i].ID, " %s of %d", r.Tasks[i].State, len(r.Tasks[i].Parents))
		}
	case scheduler.CloseEdges:
		for _, p := range r.Parents {
			add(p.ID, "")
		}
	case scheduler.ReleaseBatch:
		for _, id := range r.IDs {
			add(id, " fresh=%v", r.Fresh)
		}
	case scheduler.RestBatch:
		for _, p := range r.Parents {
			add(p.ID, "")
		}
	default:
		return false
	}
	return true
}
