package schedulertest

import (
	"context"
	"fmt"
	"time"

	"github.com/errandhq/errand/scheduler"
	"github.com/errandhq/errand/scheduler/engine"
)

// client submits tasks and cancels some. It knows of each submission what it was told.
type client struct {
	s           *sim
	submissions []*submission
	open        int                      // submissions without a final word
	keys        map[string]scheduler.Ref // what a key was said to stand for
	canceled    map[scheduler.Ref]bool   // the wish is written
	known       []scheduler.Ref          // accepted, in order
	linkedTasks int
}

// submission is one task that somebody wants done. A keyed one is sent again until there is an answer; of a plain one nobody
// can say, once its outcome is unknown.
type submission struct {
	task  scheduler.Task
	ref   scheduler.Ref
	final bool
	// doubted is set once an answer left open what stands.
	doubted bool
}

func newClient(s *sim) *client {
	return &client{s: s, keys: map[string]scheduler.Ref{}, canceled: map[scheduler.Ref]bool{}}
}

// plan draws when tasks come.
func (c *client) plan() {
	s := c.s
	at := s.between(500*time.Millisecond, 3*time.Second)
	for n := 10 + s.rand.IntN(50); n > 0; {
		batch := min(n, 1+s.rand.IntN(6))
		var subs []*submission
		for range batch {
			subs = append(subs, c.draw())
		}
		c.open += batch
		s.at(at, func() { c.submit(subs) })
		n -= batch
		at = min(at+s.upTo(5*time.Second), simTrouble-time.Second)
	}
	for range s.rand.IntN(4) {
		s.at(s.upTo(simTrouble), c.link)
	}
	for range s.rand.IntN(6) {
		s.at(s.upTo(simTrouble), c.cancel)
	}
	for range s.rand.IntN(6) {
		s.at(s.upTo(simTrouble), c.update)
	}
}

// draw makes up a task.
func (c *client) draw() *submission {
	s := c.s
	n := len(c.submissions) + 1
	t := scheduler.Task{
		Tenant: pick(s, "acme", "globex"), Kind: pick(s, "encode", "mail", "report"), Tier: pick(s, scheduler.Tiers[:]...),
		Payload: fmt.Appendf(nil, "submission %d", n),
		Spec:    scheduler.Spec{Retry: scheduler.RetryPolicy{Initial: 200 * time.Millisecond, Max: 2 * time.Second}},
	}
	t.Tolerance = scheduler.DefaultTolerance(t.Tier)
	if s.chance(0.02) {
		t.Payload = append(t.Payload, make([]byte, scheduler.InlinePayloadMax)...)
	}
	if s.chance(0.35) {
		t.IdempotencyKey = fmt.Sprintf("key-%d", s.rand.IntN(12))
		t.Fingerprint = []byte(pick(s, "same", "same", "same", "other"))
	}
	if s.chance(0.2) {
		t.UniqueKey, t.Spec.RefuseHeld = fmt.Sprintf("unique-%d", s.rand.IntN(4)), s.chance(0.3)
	}
	if s.chance(0.2) {
		t.Spec.Exclusive = true
	}
	if s.chance(0.3) {
		t.Spec.Limits = []scheduler.LimitKey{{Name: simLimit, Key: pick(s, "", "a")}}
	}
	if s.faults&HandlerFaults != 0 && s.chance(0.2) {
		t.Spec.AttemptTimeout = s.between(time.Second, 5*time.Second)
	}
	sub := &submission{task: t}
	c.submissions = append(c.submissions, sub)
	return sub
}

func pick[T any](s *sim, from ...T) T { return from[s.rand.IntN(len(from))] }

// submit sends submissions that need an answer to some instance.
func (c *client) submit(subs []*submission) {
	s := c.s
	in := pick(s, s.instances...)
	tasks := make([]scheduler.Task, len(subs))
	for i, sub := range subs {
		tasks[i] = sub.task
		c.times(&tasks[i])
	}
	if in.engine == nil { // refused before anything was sent
		s.after(s.between(100*time.Millisecond, time.Second), func() { c.submit(subs) })
		return
	}
	life := in.life
	ticket := in.ask(func(t engine.Ticket) engine.Input {
		return engine.SubmitAsked{Ticket: t, Tasks: tasks}
	}, func(eff engine.Effect) { c.answered(subs, eff) })
	s.after(s.between(2*time.Second, 20*time.Second), func() {
		if in.life == life {
			in.post(engine.SubmitWithdrawn{Ticket: ticket})
		}
	})
}

// times draws when a task may run; it counts from when it is sent.
func (c *client) times(t *scheduler.Task) {
	s := c.s
	if s.chance(0.2) {
		t.RunAt = s.clock().Add(s.upTo(15 * time.Second))
	}
	if s.chance(0.15) {
		t.StartBy = s.clock().Add(s.between(100*time.Millisecond, 20*time.Second))
	}
}

// answered takes the outcome of each submission; without an answer every outcome is unknown.
func (c *client) answered(subs []*submission, eff engine.Effect) {
	var again []*submission
	answer, told := eff.(engine.SubmitAnswered)
	for i, sub := range subs {
		outcome := engine.SubmitOutcome{Err: engine.ErrOutcomeUnknown}
		if told {
			outcome = answer.Outcomes[i]
		}
		sub.doubted = sub.doubted || isUnknown(outcome.Err)
		held := outcome.Err == engine.ErrKeyHeld || (outcome.Err == nil && outcome.Existed && sub.task.UniqueKey != "") //nolint:errorlint // the answer is the sentinel itself
		if held && !sub.doubted && !sub.final {
			c.s.oracle.notStored[string(sub.task.Payload)] = true
		}
		switch {
		case sub.final:
		case outcome.Err == nil:
			c.accepted(sub, outcome)
		case outcome.Err == engine.ErrKeyReused || outcome.Err == engine.ErrKeyHeld: //nolint:errorlint // the answer is the sentinel itself
			c.settle(sub)
		case isUnknown(outcome.Err) && sub.task.IdempotencyKey == "":
			c.settle(sub)
		default:
			again = append(again, sub)
		}
	}
	if len(again) > 0 {
		c.s.after(c.s.between(100*time.Millisecond, 2*time.Second), func() { c.submit(again) })
	}
}

func (c *client) settle(sub *submission) {
	sub.final = true
	c.open--
}

func (c *client) accepted(sub *submission, outcome engine.SubmitOutcome) {
	c.settle(sub)
	sub.ref = outcome.Ref
	c.known = append(c.known, outcome.Ref)
	c.s.oracle.accepted(sub, outcome)
	if joined := outcome.Existed && sub.task.UniqueKey != ""; joined {
		return // its idempotency key, if it has one, stands for nothing
	}
	if key := sub.task.IdempotencyKey; key != "" {
		key = sub.task.Tenant + "/" + key
		if before, said := c.keys[key]; said && before != outcome.Ref {
			c.s.oracle.failf("P5: key %s was said to stand for %s, and now for %s", key, before, outcome.Ref)
		}
		c.keys[key] = outcome.Ref
	}
}

// cancel asks for the end of some task that is known.
func (c *client) cancel() {
	s := c.s
	if len(c.known) == 0 {
		return
	}
	ref := pick(s, c.known...)
	t, _ := s.memory.Task(ref)
	s.tracef("somebody cancels %s", short(ref.ID))
	pick(s, s.instances...).ask(func(ticket engine.Ticket) engine.Input {
		return engine.CancelAsked{Ticket: ticket, Region: ref.Region, Tenant: t.Tenant, IDs: []scheduler.ID{ref.ID}}
	}, func(eff engine.Effect) {
		if answer, told := eff.(engine.CancelAnswered); told && answer.Err == nil && answer.Answers[0].Verdict == scheduler.Won {
			c.canceled[ref] = true
		}
	})
}

// update changes some task that is known, if it waits, and tells some instance, or nobody: the answer gets lost, or its process dies.
func (c *client) update() {
	s := c.s
	if len(c.known) == 0 {
		return
	}
	ref := pick(s, c.known...)
	tier, run := pick(s, scheduler.Tiers[:]...), time.Time{}
	change := scheduler.Change{Tier: &tier}
	if s.chance(0.6) {
		if s.chance(0.5) {
			run = s.clock().Add(s.upTo(10 * time.Second))
		}
		change.RunAt = &run
	}
	t, _ := s.memory.Task(ref)
	s.running = change
	got, err := s.memory.UpdateTask(context.Background(), t.Tenant, ref, change)
	s.running = nil
	if s.tracef("somebody changes %s: %v", short(ref.ID), err); err != nil || s.chance(0.3) {
		return
	}
	if in := pick(s, s.instances...); in.engine != nil {
		in.post(engine.TaskUpdated{Task: got})
	}
}

func (c *client) waits() bool { return c.open > 0 }
