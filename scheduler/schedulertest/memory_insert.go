package schedulertest

import (
	"bytes"
	"context"
	"slices"
	"time"

	"github.com/errandhq/errand/scheduler"
)

// Insert stores new tasks.
func (m *Memory) Insert(_ context.Context, in scheduler.Insert) ([]scheduler.Inserted, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for i := range in.Tasks {
		t := &in.Tasks[i]
		if err := storable(t.Ref, t.Tenant, t.Kind, t.ContentType, t.TraceParent, t.IdempotencyKey, t.UniqueKey); err != nil {
			return nil, err
		}
	}
	firsts, holders := map[memoryKey]bool{}, map[memoryKey]bool{}
	answers := make([]scheduler.Inserted, len(in.Tasks))
	for i := range in.Tasks {
		t := &in.Tasks[i]
		key, unique := memoryKey{t.Tenant, t.IdempotencyKey}, memoryKey{t.Tenant, t.UniqueKey}
		twin := firsts[key] || holders[unique] // of an earlier task of the batch
		if !twin {
			firsts[key], holders[unique] = t.IdempotencyKey != "", t.UniqueKey != ""
		}
		answers[i] = m.insert(in.Region, t, twin)
	}
	return answers, nil
}

func (m *Memory) insert(region string, t *scheduler.Task, twin bool) scheduler.Inserted {
	if row := m.find(region, t.ID); row != nil {
		return scheduler.Inserted{ID: t.ID, Verdict: scheduler.InsertStored, State: row.State, At: row.CreatedAt}
	}
	if t.IdempotencyKey != "" {
		if ref, stands := m.keys[memoryKey{t.Tenant, t.IdempotencyKey}]; stands {
			return m.keyStands(t, ref)
		}
	}
	if ref, held := m.held[memoryKey{t.Tenant, t.UniqueKey}]; t.UniqueKey != "" && held {
		return scheduler.Inserted{ID: t.ID, Verdict: scheduler.InsertHeld, Existing: ref, State: m.tasks[ref].State}
	}
	late := !t.StartBy.IsZero() && !t.StartBy.After(m.now())
	if twin || (t.State == scheduler.Running && (late || !m.sessionOpen(region, t.Session))) {
		return scheduler.Inserted{ID: t.ID, Verdict: scheduler.InsertNotStarted}
	}
	row := newRow(region, t, m.now())
	m.tasks[row.Ref] = row
	m.rows = append(m.rows, row)
	if t.IdempotencyKey != "" {
		m.keys[memoryKey{t.Tenant, t.IdempotencyKey}] = row.Ref
	}
	if t.UniqueKey != "" {
		m.held[memoryKey{t.Tenant, t.UniqueKey}] = row.Ref
	}
	m.line(row).Accepted++
	if m.watch != nil {
		m.watch(nil, row)
	}
	return scheduler.Inserted{ID: t.ID, Verdict: scheduler.InsertStored, State: row.State, At: row.CreatedAt}
}

func (m *Memory) keyStands(t *scheduler.Task, ref scheduler.Ref) scheduler.Inserted {
	row := m.tasks[ref]
	a := scheduler.Inserted{ID: t.ID, Verdict: scheduler.InsertDuplicate, Existing: ref, State: row.State}
	if !bytes.Equal(row.Fingerprint, t.Fingerprint) {
		a.Verdict = scheduler.InsertKeyReused
	}
	return a
}

// newRow is a task as it is stored: what was asked for, with the store's times.
func newRow(region string, t *scheduler.Task, now time.Time) *scheduler.Task {
	row := *t
	row.Region = region
	row.Payload, row.Parents = slices.Clone(t.Payload), nil
	row.RunAt, row.StartBy = stored(t.RunAt), stored(t.StartBy)
	row.Attempt, row.Counted, row.WorkerLosses, row.Suspect, row.CancelRequested = 0, 0, 0, false, false
	row.CreatedAt, row.ReadyAt, row.StartedAt, row.EndedAt, row.WakeAt = now, time.Time{}, time.Time{}, time.Time{}, time.Time{}
	row.Due = now.Add(t.Tolerance)
	if !row.RunAt.IsZero() {
		row.Due = row.RunAt.Add(t.Tolerance)
	}
	if row.EffectKey.IsZero() {
		row.EffectKey = row.ID
	}
	switch t.State {
	case scheduler.Running:
		row.Attempt, row.ReadyAt, row.StartedAt = 1, now, now
	case scheduler.Ready:
		row.Session, row.Worker = scheduler.SessionID{}, scheduler.WorkerID{}
		row.ReadyAt, row.WakeAt = now, row.StartBy
	case scheduler.Blocked:
		row.Session, row.Worker = scheduler.SessionID{}, scheduler.WorkerID{}
		if row.WakeAt = row.StartBy; !t.WakeAt.IsZero() {
			row.WakeAt = now
		}
	default:
		row.Session, row.Worker = scheduler.SessionID{}, scheduler.WorkerID{}
		row.WakeAt = row.RunAt
		if !row.StartBy.IsZero() && row.StartBy.Before(row.RunAt) {
			row.WakeAt = row.StartBy
		}
	}
	return &row
}

func stored(t time.Time) time.Time {
	if t.IsZero() {
		return t
	}
	return t.UTC().Truncate(time.Microsecond)
}
