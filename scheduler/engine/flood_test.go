package engine_test

import (
	"errors"
	"testing"
	"time"

	"github.com/errandhq/errand/scheduler"
	"github.com/errandhq/errand/scheduler/engine"
)

// B53: a flood of submits does not slow what is started and ended. What is too much is refused at once, all of a call or nothing, and
// what was taken is done.
func TestAFloodOfSubmitsDoesNotSlowStarts(t *testing.T) {
	b := newBench(t)
	b.join(1)
	b.run(100 * time.Millisecond)
	b.submit(400)
	endedIn := func(d time.Duration) int {
		before := len(b.ended)
		b.run(d)
		return len(b.ended) - before
	}
	base := endedIn(2 * time.Second)
	const calls, each = 30, 1000
	for ticket := range engine.Ticket(calls) {
		tasks := make([]scheduler.Task, each)
		for i := range tasks {
			tasks[i] = scheduler.Task{Tenant: "globex", Kind: "encode", Tier: scheduler.Deferrable, Tolerance: time.Hour}
		}
		b.inbox = append(b.inbox, engine.SubmitAsked{Ticket: 100 + ticket, Tasks: tasks})
	}
	inputs := b.inbox
	b.inbox = nil
	refused := 0
	for _, eff := range b.engine.Turn(b.local, inputs) {
		if answer, is := eff.(engine.SubmitAnswered); is && errors.Is(answer.Outcomes[0].Err, engine.ErrBusy) && len(answer.Outcomes) == each {
			refused++
		}
		b.perform(eff)
	}
	if refused == 0 || refused == calls {
		t.Errorf("%d of %d calls were refused, want those that are too much", refused, calls)
	}
	if flooded := endedIn(2 * time.Second); base == 0 || flooded*10 < base*8 {
		t.Errorf("%d ended in two seconds of a flood, %d without", flooded, base)
	}
	if stored, want := len(b.store.Tasks("eu")), 400+(calls-refused)*each; stored != want {
		t.Errorf("%d tasks are stored, want %d", stored, want)
	}
}
