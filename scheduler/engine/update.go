package engine

import "github.com/errandhq/errand/scheduler"

// updated gives a task that was changed while it waited its new place: here when its lane is served here, and by a hint to whoever
// serves it otherwise. Whoever misses the hint starts it in its old order at worst: no claim takes a row before its time.
func (e *Engine) updated(t *scheduler.Task) {
	row := t.WaitingRow()
	e.timers.forget(t.ID, t.Attempt)
	if !e.lanes[t.ID.Shard()] {
		row.State = scheduler.Scheduled // one that was borrowed: its own instance has it now
	}
	e.core.Step(scheduler.RowChanged{Row: row})
	key := scheduler.BufferKey{Tenant: t.Tenant, Tier: t.Tier, Class: t.Class().Hash()}
	switch {
	case !e.lanes[t.ID.Shard()] && len(e.hints) < hintsMax:
		e.hints = append(e.hints, Hint{Region: t.Region, Shard: t.ID.Shard(), Key: key, Timed: t.State == scheduler.Scheduled, Changed: t.ID})
	case !e.lanes[t.ID.Shard()]:
	case !t.WakeAt.IsZero():
		e.addTimer(scheduler.TimedRow{ReadyRow: t.WaitingRow(), WakeAt: t.WakeAt})
	}
}

// forget drops what is known of a waiting row: the store knows better.
func (e *Engine) forget(id scheduler.ID) {
	e.timers.forget(id, maxAttempt)
	e.core.Step(scheduler.RowsGone{IDs: []scheduler.ID{id}})
}
