package schedulertest

import (
	"cmp"
	"context"
	"slices"

	"github.com/errandhq/errand/scheduler"
)

func keyOf(t *scheduler.Task) scheduler.BufferKey {
	return scheduler.BufferKey{Tenant: t.Tenant, Tier: t.Tier, Class: t.Class().Hash()}
}

func compareKeys(a, b scheduler.BufferKey) int {
	return cmp.Or(cmp.Compare(a.Tenant, b.Tenant), cmp.Compare(a.Tier, b.Tier), cmp.Compare(a.Class, b.Class))
}

// selected returns the rows of a region that match, ordered and cut to a limit.
func (m *Memory) selected(region string, match func(*scheduler.Task) bool, order func(a, b *scheduler.Task) int, limit int) []*scheduler.Task {
	var rows []*scheduler.Task
	for _, t := range m.rows {
		if t.Region == region && match(t) {
			rows = append(rows, t)
		}
	}
	slices.SortFunc(rows, order)
	return rows[:min(len(rows), limit)]
}

func byID(a, b *scheduler.Task) int { return a.ID.Compare(b.ID) }

// Discover lists the groups that have ready rows in a shard, in the order of their keys.
func (m *Memory) Discover(_ context.Context, q scheduler.DiscoverQuery) ([]scheduler.BufferKey, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	var keys []scheduler.BufferKey
	for _, t := range m.rows {
		if t.Region != q.Region || t.State != scheduler.Ready || t.ID.Shard() != q.Shard {
			continue
		}
		if key := keyOf(t); q.After == nil || compareKeys(key, *q.After) > 0 {
			keys = append(keys, key)
		}
	}
	slices.SortFunc(keys, compareKeys)
	keys = slices.Compact(keys)
	return keys[:min(len(keys), q.Limit)], nil
}

// Refill reads the earliest due ready rows of groups, per shard.
func (m *Memory) Refill(_ context.Context, q scheduler.RefillQuery) ([]scheduler.ReadyRow, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	byDue := func(a, b *scheduler.Task) int { return cmp.Or(a.Due.Compare(b.Due), byID(a, b)) }
	var all []scheduler.ReadyRow
	for _, slice := range q.Slices {
		rows := m.selected(q.Region, func(t *scheduler.Task) bool {
			return t.State == scheduler.Ready && t.ID.Shard() == slice.Shard && keyOf(t) == slice.Key &&
				slice.After.Compare(scheduler.Position{Due: t.Due, ID: t.ID}) < 0
		}, byDue, q.PerShard)
		for _, t := range rows {
			all = append(all, t.WaitingRow())
		}
	}
	return all, nil
}

// Timed reads rows whose wake time is past or near, per shard.
func (m *Memory) Timed(_ context.Context, q scheduler.TimedQuery) ([]scheduler.TimedRow, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	until := m.now().Add(q.Horizon)
	byWake := func(a, b *scheduler.Task) int { return cmp.Or(a.WakeAt.Compare(b.WakeAt), byID(a, b)) }
	var all []scheduler.TimedRow
	for _, shard := range q.Shards {
		rows := m.selected(q.Region, func(t *scheduler.Task) bool {
			return t.ID.Shard() == shard && !t.WakeAt.IsZero() && !t.WakeAt.After(until)
		}, byWake, q.Limit)
		for _, t := range rows {
			all = append(all, scheduler.TimedRow{ReadyRow: t.WaitingRow(), WakeAt: t.WakeAt})
		}
	}
	return all, nil
}

// Running reads the running rows of a session, by ID.
func (m *Memory) Running(_ context.Context, q scheduler.RunningQuery) ([]scheduler.Held, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return held(m.selected(q.Region, func(t *scheduler.Task) bool {
		return t.State == scheduler.Running && t.Session == q.Session && t.ID.Compare(q.After) > 0
	}, byID, q.Limit)), nil
}

// Orphans reads running rows whose session is missing, or ended for longer than the grace.
func (m *Memory) Orphans(_ context.Context, q scheduler.OrphanQuery) ([]scheduler.Held, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	before := m.now().Add(-q.Grace)
	orphan := func(t *scheduler.Task) bool {
		s := m.sessions[memorySession{t.Region, t.Session}]
		return s == nil || (!s.EndedAt.IsZero() && s.EndedAt.Before(before))
	}
	bySession := func(a, b *scheduler.Task) int { return cmp.Or(a.Session.Compare(b.Session), byID(a, b)) }
	return held(m.selected(q.Region, func(t *scheduler.Task) bool {
		return t.State == scheduler.Running && slices.Contains(q.Shards, t.ID.Shard()) && orphan(t)
	}, bySession, q.Limit)), nil
}

func held(rows []*scheduler.Task) []scheduler.Held {
	all := make([]scheduler.Held, len(rows))
	for i, t := range rows {
		all[i] = heldOf(t)
	}
	return all
}

// Payloads reads payloads, one per id in the order asked; nil where there is none.
func (m *Memory) Payloads(_ context.Context, region string, ids []scheduler.ID) ([][]byte, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	payloads := make([][]byte, len(ids))
	for i, id := range ids {
		if t := m.find(region, id); t != nil && len(t.Payload) > 0 {
			payloads[i] = slices.Clone(t.Payload)
		}
	}
	return payloads, nil
}
