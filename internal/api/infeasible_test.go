package api

import (
	"context"
	"sync/atomic"
	"testing"

	errandv1 "github.com/errandhq/errand/proto/errand/v1"
	"github.com/errandhq/errand/scheduler"
	"github.com/errandhq/errand/scheduler/engine"
)

// fullHouse is a scheduler that finds everything feasible until it is full, and then nothing that asks.
type fullHouse struct {
	Scheduler
	full atomic.Bool
}

func (f *fullHouse) Submit(ctx context.Context, tasks []scheduler.Task) ([]engine.SubmitOutcome, error) {
	outcomes := make([]engine.SubmitOutcome, len(tasks))
	for i := range tasks {
		if f.full.Load() && tasks[i].Spec.RejectInfeasible {
			outcomes[i].Err = engine.ErrInfeasible
			continue
		}
		tasks[i].Spec.RejectInfeasible = false
		got, err := f.Scheduler.Submit(ctx, tasks[i:i+1])
		if err != nil {
			return nil, err
		}
		outcomes[i] = got[0]
	}
	return outcomes, nil
}

// A request that was let in gets its answer again, also when it would be refused by now as one that does not start in time.
func TestInfeasibleTasksThatStandAreAnswered(t *testing.T) {
	house := &fullHouse{}
	e := start(t, func(c *Config) {
		house.Scheduler = c.Scheduler
		c.Scheduler = house
	})
	spec := func(key string, payload ...byte) *errandv1.TaskSpec {
		return &errandv1.TaskSpec{Kind: "email", IdempotencyKey: key, RejectIfInfeasible: true, Payload: payload}
	}
	first := e.submit(spec("k"))
	house.full.Store(true)
	if again, err := e.try(e.acme, spec("k")); err != nil || again.GetTaskId() != first.GetTaskId() || !again.GetExisted() {
		t.Errorf("the same again: %v, %v", again, err)
	}
	before := e.rowCounts()
	for name, c := range map[string]struct {
		spec   *errandv1.TaskSpec
		reason string
	}{
		"a new one":                      {spec("new"), "INFEASIBLE"},
		"one without a key":              {spec(""), "INFEASIBLE"},
		"another request under the key":  {spec("k", 1), "KEY_REUSED"},
		"another tenant's under the key": {nil, "INFEASIBLE"},
	} {
		key := e.acme
		if c.spec == nil {
			key, c.spec = e.globex, spec("k")
		}
		if _, err := e.try(key, c.spec); err == nil || detail(t, err).GetReason() != c.reason {
			t.Errorf("%s: %v, want %s", name, err, c.reason)
		}
	}
	if after := e.rowCounts(); after != before {
		t.Errorf("stored %s, before %s", after, before)
	}
}
