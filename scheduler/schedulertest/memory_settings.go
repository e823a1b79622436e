package schedulertest

import (
	"cmp"
	"context"
	"slices"

	"github.com/errandhq/errand/scheduler"
)

// Set is what an operator does: what is set for a tenant, a kind or a limit takes the place of what was.
func (m *Memory) Set(s scheduler.Settings) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.settings.Tenants = append(m.settings.Tenants, s.Tenants...)
	m.settings.Kinds = append(m.settings.Kinds, s.Kinds...)
	m.settings.Limits = append(m.settings.Limits, s.Limits...)
}

// Settings implements [engine.Reader]: all that was ever set, in its order.
func (m *Memory) Settings(context.Context, scheduler.SettingsQuery) (scheduler.Settings, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	s := m.settings
	s.At = m.clock()
	return s, nil
}

// CountOpen implements [engine.Reader].
func (m *Memory) CountOpen(_ context.Context, q scheduler.OpenQuery) ([]scheduler.Open, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	type key struct {
		tenant string
		tier   scheduler.Tier
	}
	count := map[key]int64{}
	for ref, t := range m.tasks { // counts: in any order
		if ref.Region == q.Region && !t.State.Terminal() {
			count[key{t.Tenant, t.Tier}]++
		}
	}
	var open []scheduler.Open
	for k, n := range count {
		open = append(open, scheduler.Open{Tenant: k.tenant, Tier: k.tier, Tasks: n})
	}
	slices.SortFunc(open, func(a, b scheduler.Open) int {
		return cmp.Or(cmp.Compare(b.Tasks, a.Tasks), cmp.Compare(a.Tenant, b.Tenant), cmp.Compare(a.Tier, b.Tier))
	})
	return open[:min(q.Limit, len(open))], nil
}

// Stand implements [engine.Reader].
func (m *Memory) Stand(_ context.Context, q scheduler.StandQuery) ([]scheduler.Stand, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	var stands []scheduler.Stand
	for _, id := range q.IDs {
		if t := m.tasks[scheduler.Ref{Region: q.Region, ID: id}]; t != nil {
			stands = append(stands, scheduler.Stand{ID: id, State: t.State, Attempt: t.Attempt})
		}
	}
	return stands, nil
}
