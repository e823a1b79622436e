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
		Region string
		ID     scheduler.SessionID
		TTL    time.Duration
		Idle   bool
	}
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
func (e *Engine) trusted() bool {
	return e.session.opened && !e.session.ended && e.local < e.session.trustUntil
}

// steady tells whether the session was trusted for so long that workers and other instances had time to come back: only then
// are others' sessions ended and their rows reclaimed. After a start or an outage of the store it waits first.
func (e *Engine) steady() bool {
	return e.trusted() && e.local-e.session.steadySince >= e.timing.ReattachGrace
}

// storeNow estimates the store's clock.
func (e *Engine) storeNow() time.Time {
	return e.session.clockStore.Add(e.local - e.session.clockLocal)
}

// localAt is the local time at which the store's clock shows at.
func (e *Engine) localAt(at time.Time) time.Duration {
	return e.session.clockLocal + at.Sub(e.session.clockStore)
}

// keepSession opens and renews the session.
func (e *Engine) keepSession() {
	s := &e.session
	if s.asked || s.ended || (s.opened && e.local < s.askedAt+e.timing.Renewal) {
		return
	}
	s.asked, s.askedAt = true, e.local
	s.idle = s.opened && e.idle()
	if s.idle {
		e.giveUpPart() // before anybody hears of it
	}
	var request any = RenewSession{Region: e.region, ID: s.id, TTL: e.timing.SessionTTL, Idle: s.idle}
	if !s.opened {
		request = OpenSession{Session: scheduler.Session{Region: e.region, ID: s.id, Address: e.address}, TTL: e.timing.SessionTTL}
	}
	e.run(s.pipe, request, e.renewed)
}

func (e *Engine) renewed(st *statement, answer any, err error) {
	e.finish(st)
	s := &e.session
	s.asked = false
	if err != nil {
		// Asked again after a pause, with a new time from which trust is counted.
		s.askedAt = e.local - e.timing.Renewal + renewalPause
		e.observe.StatementFailed(s.pipe.name, 1, err)
		return
	}
	renewal := answer.(scheduler.Renewal)
	if !renewal.Alive {
		e.sessionLost()
		return
	}
	regained := !s.opened || e.local >= s.trustUntil
	if regained {
		s.steadySince = e.local
	}
	s.trustUntil = s.askedAt + e.timing.SessionTTL - e.timing.Margin
	s.renewedAt = e.local
	e.setClock(renewal.Now)
	first := !s.opened
	s.opened = true
	if first {
		e.observe.Note("session opened", "session", s.id)
		e.attachHeld()
	}
	if regained {
		e.grantAll()
	}
	e.learnSessions(renewal)
}

// setClock takes the store's clock as of the middle of the round trip. The estimate never goes back.
func (e *Engine) setClock(now time.Time) {
	s := &e.session
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

// sessionLost starts over: somebody has ended this session, so everything dispatched under it may be someone else's soon.
func (e *Engine) sessionLost() {
	e.observe.Event("session was ended by another instance: starting over", "session", e.session.id)
	old := e.session
	e.session = newSession(e.newSessionID())
	e.session.clockStore, e.session.clockLocal = old.clockStore, old.clockLocal
	e.session.pipe, e.session.ending, e.session.reclaim = old.pipe, old.ending, old.reclaim
	e.session.askedAt = e.local - e.timing.Renewal
	e.setLanes(nil)
	e.division = newDivision()
	e.setParts(nil)
	e.core.Step(scheduler.SessionChanged{Session: e.session.id})
}

// learnSessions computes the lanes from the sessions that are alive, and ends those that are not.
func (e *Engine) learnSessions(r scheduler.Renewal) {
	s := &e.session
	s.others = s.others[:0]
	owners := []regions.Owner{regions.Owner(s.id)}
	var open, idle []scheduler.SessionID
	if s.idle {
		idle = append(idle, s.id)
	} else {
		open = append(open, s.id)
	}
	expired := false
	for _, other := range r.Sessions {
		switch {
		case other.ID == s.id || !other.EndedAt.IsZero():
			continue
		case other.ExpiresAt.After(r.Now):
			s.others = append(s.others, other)
			owners = append(owners, regions.Owner(other.ID))
		default:
			expired = true
		}
		if other.Idle {
			idle = append(idle, other.ID)
		} else {
			open = append(open, other.ID) // also one that has expired: until it is ended it may come back with its rows
		}
	}
	e.divideAmong(open, idle, expired)
	e.setLanes(regions.Lanes(regions.ShardsPerRegion, owners))
	if expired && e.steady() && !s.reclaim {
		s.reclaim = true
		e.run(s.ending, EndExpired{Region: e.region, By: s.id}, func(st *statement, answer any, err error) {
			e.finish(st)
			e.session.reclaim = false
			if ids, _ := answer.([]scheduler.SessionID); err == nil && len(ids) > 0 {
				e.observe.Event("ended expired sessions", "sessions", ids)
			}
		})
	}
}

// setLanes takes note of who serves which shard.
func (e *Engine) setLanes(owners []regions.Owner) {
	var mine [256]bool
	var shards []uint8
	for shard, owner := range owners {
		if owner == regions.Owner(e.session.id) {
			mine[shard] = true
			shards = append(shards, uint8(shard))
		}
	}
	if mine == e.lanes {
		return
	}
	e.lanes, e.shards = mine, shards
	e.core.Step(scheduler.LanesChanged{Mine: mine})
	e.timers.retain(mine)
	e.refill.restart()
	e.observe.Note("serving lanes", "lanes", len(shards))
}
