package schedulertest

import (
	"context"
	"slices"
	"time"

	"github.com/errandhq/errand/scheduler"
)

// OpenSession stores a session, or renews it when it is there and not ended.
func (m *Memory) OpenSession(_ context.Context, s scheduler.Session, ttl time.Duration) (scheduler.Renewal, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	key := memorySession{s.Region, s.ID}
	if m.sessions[key] == nil {
		s.StartedAt = m.now()
		m.sessions[key] = &s
	}
	return m.renew(key, ttl), nil
}

// RenewSession extends a session unless somebody ended it, however long ago it expired.
func (m *Memory) RenewSession(_ context.Context, s scheduler.Session, ttl time.Duration) (scheduler.Renewal, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	key := memorySession{s.Region, s.ID}
	if m.sessionOpen(s.Region, s.ID) {
		m.sessions[key].Idle, m.sessions[key].Role = s.Idle, s.Role
	}
	return m.renew(key, ttl), nil
}

// Sessions lists the sessions of a region that nobody has ended.
func (m *Memory) Sessions(_ context.Context, region string) (scheduler.Renewal, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.list(region), nil
}

func (m *Memory) renew(key memorySession, ttl time.Duration) scheduler.Renewal {
	r := scheduler.Renewal{Now: m.now(), Alive: m.sessionOpen(key.region, key.id)}
	if r.Alive {
		m.sessions[key].ExpiresAt = r.Now.Add(ttl)
	}
	r.Sessions = m.list(key.region).Sessions
	return r
}

func (m *Memory) list(region string) scheduler.Renewal {
	r := scheduler.Renewal{Now: m.now()}
	for k, s := range m.sessions {
		if k.region == region && s.EndedAt.IsZero() {
			r.Sessions = append(r.Sessions, *s)
		}
	}
	slices.SortFunc(r.Sessions, func(a, b scheduler.Session) int { return a.ID.Compare(b.ID) })
	return r
}

// homeOf is the region of the instance that has a session.
func (m *Memory) homeOf(region string, id scheduler.SessionID) string {
	if s := m.sessions[memorySession{region, id}]; s != nil && s.Home != "" {
		return s.Home
	}
	return region
}

// EndSession ends a session.
func (m *Memory) EndSession(_ context.Context, region string, id scheduler.SessionID) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.sessionOpen(region, id) {
		m.sessions[memorySession{region, id}].EndedAt = m.now()
	}
	return nil
}

// EndExpired ends others' sessions that have expired, when the session by is itself open and not expired.
func (m *Memory) EndExpired(_ context.Context, region string, by scheduler.SessionID) ([]scheduler.SessionID, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := m.now()
	own := m.sessions[memorySession{region, by}]
	if own == nil || !own.EndedAt.IsZero() || !own.ExpiresAt.After(now) {
		return nil, nil
	}
	var ended []scheduler.SessionID
	for key, s := range m.sessions {
		if key.region == region && key.id != by && s.EndedAt.IsZero() && s.ExpiresAt.Before(now) {
			s.EndedAt = now
			ended = append(ended, key.id)
		}
	}
	slices.SortFunc(ended, scheduler.SessionID.Compare)
	return ended, nil
}
