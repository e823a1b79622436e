package engine

import (
	"time"

	"github.com/errandhq/errand/regions"
	"github.com/errandhq/errand/scheduler"
)

// renewalPause is the time between a renewal that failed and the next try.
const renewalPause = 200 * time.Millisecond

// session is what an instance knows of its own lease.
type session struct {
	id        scheduler.SessionID
	opened    bool
	asked     bool          // an open or a renewal is under way
	askedAt   time.Duration // when the last one was sent; the next comes a Renewal later
	renewedAt time.Duration // when the last good answer came
	// trustUntil is until when the instance believes in its session: counted from before the request, less a margin.
	trustUntil time.Duration
	// steadySince is since when the session was renewed without a gap in trust.
	steadySince time.Duration
	others      []scheduler.Session // the region's other sessions that are alive
	ended       bool                // politely, at shutdown
	idle        bool                // as the last renewal says

	// The store's clock: at local time clockLocal it was clockStore.
	clockStore time.Time
	clockLocal time.Duration

	pipe    *pipe
	ending  *pipe
	reclaim bool // an EndExpired is under way
}

func newSession(id scheduler.SessionID) session {
	return session{id: id, pipe: &pipe{name: "session", limit: 1}, ending: &pipe{name: "end_expired", limit: 1}}
}

// Requests to the store that are methods with several arguments.
type (
	// OpenSession is Store.OpenSession.
	OpenSession struct {
		Session scheduler.Session
		TTL     time.Duration
	}
	// RenewSession is Store.RenewSession.
	RenewSession struct {
		Session scheduler.Session
		TTL     time.Duration
	}
	// ReadSessions is Store.Sessions.
	ReadSessions struct{ Region string }
	// EndSession is Store.EndSession.
	EndSession struct {
		Region string
		ID     scheduler.SessionID
	}
	// EndExpired is Store.EndExpired.
	EndExpired struct {
		Region string
		By     scheduler.SessionID
	}
)

// trusted tells whether the instance may start work: it believes that nobody has ended its session.
func (e *Engine) trusted() bool { return e.trusts(e.home) }

// trusts tells the same of the session in a region.
func (e *Engine) trusts(s *served) bool { return s.opened && !s.ended && e.local < s.trustUntil }

// steady tells whether the session was trusted for so long that workers and other instances had time to come back: only then
// are others' sessions ended and their rows reclaimed. After a start or an outage of the store it waits first. For a guest it is the home
// session that shows that the store was there all the time.
func (e *Engine) steady(s *served) bool {
	return e.trusts(s) && e.trusted() && e.local-e.home.steadySince >= e.timing.ReattachGrace
}

// storeNow estimates the store's clock.
func (e *Engine) storeNow() time.Time {
	return e.home.clockStore.Add(e.local - e.home.clockLocal)
}

// localAt is the local time at which the store's clock shows at.
func (e *Engine) localAt(at time.Time) time.Duration {
	return e.home.clockLocal + at.Sub(e.home.clockStore)
}

// keepSessions opens and renews the sessions.
func (e *Engine) keepSessions() {
	for _, s := range e.served {
		e.keepSession(s)
	}
}

func (e *Engine) keepSession(s *served) {
	if s != e.home && s.opened && e.local >= s.trustUntil && len(s.shards) > 0 {
		e.setLanes(s, nil) // what is buffered of them may be somebody else's by now
	}
	if s.asked || s.ended || (s.opened && e.local < s.askedAt+e.timing.Renewal) {
		return
	}
	s.asked, s.askedAt = true, e.local
	one := scheduler.Session{Region: s.name, ID: s.id, Address: e.address}
	switch {
	case s != e.home:
		one.Role, one.Idle, one.Home = scheduler.Guest, true, e.home.name
		if e.adopts[s.number] {
			one.Role = scheduler.Adopter
		}
	case e.drains():
		one.Role, one.Idle = scheduler.Guest, e.idle() // others serve the lanes
	case s.opened:
		one.Idle = e.idle()
	}
	if s.idle = one.Idle; s.idle && s == e.home {
		e.giveUpPart() // before anybody hears of it
	}
	var request any = RenewSession{Session: one, TTL: e.timing.SessionTTL}
	if !s.opened {
		request = OpenSession{Session: one, TTL: e.timing.SessionTTL}
	}
	e.run(s.pipe, request, func(st *statement, answer any, err error) { e.renewed(s, st, answer, err) })
}

func (e *Engine) renewed(s *served, st *statement, answer any, err error) {
	e.finish(st)
	s.asked = false
	if err != nil {
		// Asked again after a pause, with a new time from which trust is counted.
		s.askedAt = e.local - e.timing.Renewal + renewalPause
		e.observe.StatementFailed(s.pipe.name, 1, err)
		return
	}
	renewal := answer.(scheduler.Renewal)
	if !renewal.Alive {
		e.sessionLost(s)
		return
	}
	regained := !s.opened || e.local >= s.trustUntil
	if regained {
		s.steadySince = e.local
	}
	s.trustUntil = s.askedAt + e.timing.SessionTTL - e.timing.Margin
	s.renewedAt = e.local
	e.setClock(s, renewal.Now)
	first := !s.opened
	s.opened = true
	if first {
		e.observe.Note("session opened", "session", s.id, "region", s.name)
		e.attachHeld(s)
	}
	if regained {
		e.grantAll()
	}
	e.learnSessions(s, renewal)
	if len(s.spilled) > 0 {
		e.takeSpilled(s.spilled)
		s.spilled = nil
	}
}

// setClock takes the store's clock as of the middle of the round trip. The estimate never goes back. Only the home session tells it.
func (e *Engine) setClock(s *served, now time.Time) {
	if s != e.home {
		return
	}
	estimate := now.Add((e.local - s.askedAt) / 2)
	if known := e.storeNow(); s.opened && known.After(estimate) {
		// Behind what was said before: let the next renewals catch up, time stands still rather than going back.
		estimate = known
		if known.Sub(now) > e.timing.SessionTTL {
			estimate = now // the store's clock was set back: its word counts
		}
	}
	s.clockStore, s.clockLocal = estimate, e.local
}

// sessionLost starts over in a region: somebody has ended the session, so everything dispatched under it may be someone else's soon.
func (e *Engine) sessionLost(s *served) {
	e.observe.Event("session was ended by another instance: starting over", "session", s.id, "region", s.name)
	old := s.session
	s.session = newSession(e.newSessionID())
	s.clockStore, s.clockLocal = old.clockStore, old.clockLocal
	s.pipe, s.ending, s.reclaim = old.pipe, old.ending, old.reclaim
	s.askedAt = e.local - e.timing.Renewal
	e.setLanes(s, nil)
	if s == e.home {
		e.division = newDivision()
		e.setParts(nil)
	}
	e.core.Step(scheduler.SessionChanged{Region: s.number, Session: s.id})
}

// learnSessions computes the lanes from the sessions that are alive, and ends those that are not. The lanes are those of the region's own
// instances; only while there is none, they are those of the instances that have adopted it.
func (e *Engine) learnSessions(s *served, r scheduler.Renewal) {
	s.others = s.others[:0]
	var natives, adopters []regions.Owner
	own := func(role scheduler.Role, id scheduler.SessionID) {
		switch role {
		case scheduler.Native:
			natives = append(natives, regions.Owner(id))
		case scheduler.Adopter:
			adopters = append(adopters, regions.Owner(id))
		case scheduler.Guest: // serves no lanes
		}
	}
	var open, idle []scheduler.SessionID
	if s.idle {
		idle = append(idle, s.id)
	} else {
		open = append(open, s.id)
	}
	switch {
	case s == e.home && !e.drains():
		own(scheduler.Native, s.id)
	case s != e.home && e.adopts[s.number]:
		own(scheduler.Adopter, s.id)
	}
	expired := false
	for _, other := range r.Sessions {
		switch {
		case other.ID == s.id || !other.EndedAt.IsZero():
			continue
		case other.ExpiresAt.After(r.Now):
			if other.Home == "" {
				s.others = append(s.others, other)
			}
			own(other.Role, other.ID)
		default:
			expired = true
		}
		if other.Idle {
			idle = append(idle, other.ID)
		} else {
			open = append(open, other.ID) // also one that has expired: until it is ended it may come back with its rows
		}
	}
	if s == e.home {
		e.divideAmong(open, idle, expired)
	}
	if len(natives) == 0 {
		natives = adopters
	}
	e.setLanes(s, regions.Lanes(regions.ShardsPerRegion, natives))
	if expired && e.steady(s) && !s.reclaim {
		s.reclaim = true
		e.run(s.ending, EndExpired{Region: s.name, By: s.id}, func(st *statement, answer any, err error) {
			e.finish(st)
			s.reclaim = false
			if ids, _ := answer.([]scheduler.SessionID); err == nil && len(ids) > 0 {
				e.observe.Event("ended expired sessions", "sessions", ids, "region", s.name)
			}
		})
	}
}

// setLanes takes note of who serves which shard of a region.
func (e *Engine) setLanes(s *served, owners []regions.Owner) {
	mine := e.lanes
	var shards []uint8
	for i := range uint8(regions.ShardsPerRegion) {
		shard := s.number*regions.ShardsPerRegion + i
		mine[shard] = int(i) < len(owners) && owners[i] == regions.Owner(s.id)
		if mine[shard] {
			shards = append(shards, shard)
		}
	}
	if mine == e.lanes {
		return
	}
	e.lanes, s.shards = mine, shards
	e.core.Step(scheduler.LanesChanged{Mine: mine})
	e.timers.retain(mine)
	s.moves.readAt = 0
	s.refill.restart()
	e.observe.Note("serving lanes", "lanes", len(shards), "region", s.name)
}
