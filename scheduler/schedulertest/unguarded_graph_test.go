package schedulertest

import (
	"context"
	"testing"

	"github.com/errandhq/errand/scheduler"
	"github.com/errandhq/errand/scheduler/engine"
)

// hasty lets blocked tasks go whatever their edges say.
type hasty struct{ *Memory }

func (h hasty) Release(ctx context.Context, b scheduler.ReleaseBatch) ([]scheduler.Released, error) {
	h.mu.Lock()
	for _, id := range b.IDs {
		if row := h.find(b.Region, id); row != nil {
			if next, refusal := row.Release(h.now()); refusal == nil {
				h.put(row, next)
			}
		}
	}
	h.mu.Unlock()
	return h.Memory.Release(ctx, b)
}

// tired lets a parent rest once its edges are closed, before its children were looked at.
type tired struct{ *Memory }

func (h tired) CloseEdges(ctx context.Context, b scheduler.CloseEdges) ([]scheduler.Closed, error) {
	got, err := h.Memory.CloseEdges(ctx, b)
	for i := range got {
		_ = h.Rest(ctx, scheduler.RestBatch{Region: b.Region, Parents: []scheduler.SeenParent{{ID: got[i].ID, Wake: got[i].Wake}}})
	}
	return got, err
}

// silent ends parents without a wake time: only who wrote the end knows of the children.
type silent struct{ *Memory }

func (h silent) End(ctx context.Context, b scheduler.EndBatch) ([]scheduler.Ended, error) {
	got, err := h.Memory.End(ctx, b)
	for i := range got {
		if got[i].Parent && got[i].State.Terminal() {
			row, _ := h.Task(scheduler.Ref{Region: b.Region, ID: got[i].ID})
			_ = h.Rest(ctx, scheduler.RestBatch{Region: b.Region, Parents: []scheduler.SeenParent{{ID: row.ID, Wake: row.WakeAt}}})
		}
	}
	return got, err
}

// Each part of a release is needed, and the simulation would notice if it were gone.
func TestSimulationFindsAMissingPartOfARelease(t *testing.T) {
	for name, store := range map[string]func(*Memory) engine.Store{
		"release without a look at the edges":     func(m *Memory) engine.Store { return hasty{m} },
		"rest before the children are looked at":  func(m *Memory) engine.Store { return tired{m} },
		"an end that sets no wake time of parent": func(m *Memory) engine.Store { return silent{m} },
	} {
		t.Run(name, func(t *testing.T) {
			found := firstViolation(store)
			if found == nil {
				t.Fatalf("%d histories, and nobody noticed", historiesDefault)
			}
			t.Logf("seed %d: %s", found.Seed, found.Violations[0])
		})
	}
}
