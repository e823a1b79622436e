package engine_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/errandhq/errand/placement"
	"github.com/errandhq/errand/scheduler"
	"github.com/errandhq/errand/scheduler/engine"
	"github.com/errandhq/errand/scheduler/schedulertest"
)

// bench drives one engine by hand over a memory store, whose claims fail while broken is set and whose ends are not answered while slow
// is set.
type bench struct {
	t      *testing.T
	engine *engine.Engine
	store  *schedulertest.Memory
	local  time.Duration
	start  time.Time
	broken bool
	slow   bool
	held   []engine.Run
	ended  map[scheduler.ID]bool
	stream engine.StreamID
	inbox  []engine.Input
}

func newBench(t *testing.T) *bench {
	t.Helper()
	b := &bench{t: t, start: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC), local: 1, ended: map[scheduler.ID]bool{}, stream: 1}
	b.store = schedulertest.NewMemory(func() time.Time { return b.start.Add(b.local) })
	b.engine = engine.New(engine.Config{Region: "eu", Timing: scheduler.DefaultTiming(), Rand: rand.New(rand.NewPCG(1, 2))})
	return b
}

// run turns the engine for a while; statements are answered in the next turn, and the worker accepts and succeeds at once.
func (b *bench) run(d time.Duration) {
	b.t.Helper()
	const step = 10 * time.Millisecond
	for end := b.local + d; b.local < end; b.local += step {
		inputs := b.inbox
		b.inbox = nil
		for _, eff := range b.engine.Turn(b.local, inputs) {
			b.perform(eff)
		}
	}
}

var errAlways = errors.New("the claim query fails always")

func (b *bench) perform(eff engine.Effect) {
	switch eff := eff.(type) {
	case engine.Run:
		if _, end := eff.Request.(scheduler.EndBatch); end && b.slow {
			b.held = append(b.held, eff)
			return
		}
		done := engine.StatementDone{ID: eff.ID}
		if _, claim := eff.Request.(scheduler.ClaimBatch); claim && b.broken {
			done.Err = errAlways
		} else {
			done.Answer, done.Err = engine.Execute(context.Background(), b.store, eff.Request)
		}
		b.inbox = append(b.inbox, done)
	case engine.Send:
		var words engine.FromWorker
		for _, s := range eff.Words.Assign {
			words.Accepted = append(words.Accepted, s.Token)
			words.Reports = append(words.Reports, scheduler.Report{Token: s.Token, Outcome: scheduler.OutcomeSucceeded})
		}
		words.Heartbeat = &engine.Heartbeat{}
		b.inbox = append(b.inbox, engine.WorkerSaid{Stream: b.stream, Words: words})
	case engine.TasksEnded:
		for _, id := range eff.IDs {
			b.ended[id] = true
		}
	}
}

func (b *bench) join(slots int) {
	b.inbox = append(b.inbox, engine.StreamOpened{Stream: b.stream}, engine.WorkerSaid{Stream: b.stream, Words: engine.FromWorker{
		Register: &engine.Register{Worker: placement.Worker{ID: scheduler.WorkerID{7}, Slots: map[string]int{"encode": slots}}},
	}})
}

func (b *bench) submit(n int) {
	tasks := make([]scheduler.Task, n)
	for i := range tasks {
		tasks[i] = scheduler.Task{Tenant: "acme", Kind: "encode", Tier: scheduler.Standard, Tolerance: time.Minute}
	}
	b.inbox = append(b.inbox, engine.SubmitAsked{Ticket: 1, Tasks: tasks})
}

// B08: a statement that fails always is noticed by its age, which readiness is made of; when it works again everything goes on by
// itself, and nothing was given up.
func TestAStatementThatKeepsFailingIsTold(t *testing.T) {
	b := newBench(t)
	b.run(100 * time.Millisecond)
	b.submit(5)
	b.run(100 * time.Millisecond) // nobody serves the kind: all five wait
	b.broken = true
	b.join(1)
	b.run(20 * time.Second)
	st := b.engine.Status()
	if st.Failing < 15*time.Second || st.FailingWrite != "claim" || !st.Trusted || len(b.ended) != 0 {
		t.Errorf("failing for %v (%q), trusted %v, %d ended; want about 20 s of claim, trusted, none", st.Failing, st.FailingWrite, st.Trusted, len(b.ended))
	}
	b.broken = false
	b.run(10 * time.Second)
	if st := b.engine.Status(); st.Failing != 0 || len(b.ended) != 5 {
		t.Errorf("afterwards: failing for %v, %d ended; want none and all five", st.Failing, len(b.ended))
	}
}
