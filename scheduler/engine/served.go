package engine

import (
	"slices"
	"time"

	"github.com/errandhq/errand/scheduler"
)

// served is a region whose rows this instance reads and writes: its own for good, and others as a guest, with a session of its own in each.
// What a guest session claims is guarded by it like everything else, and its rows are taken back when it ends, whatever becomes of the
// instance's home. Statements on different regions wait in different pipes: a slow region holds up nobody else's.
type served struct {
	name   string
	number uint8
	session
	shards []uint8 // that are this instance's

	claiming  claiming
	ends      endings
	attaching pipe
	wanted    []scheduler.Token // to take over, not asked yet
	moves     moves
	releases  releases
	refill    refill
	review    review

	spilled  []scheduler.ReadyRow // that wait for the session to be opened
	neededAt time.Duration        // when a guest session was needed last
	leaving  bool                 // a guest session is being ended
}

// guestLinger is how long a guest session that nothing needs is kept.
const guestLinger = 15 * time.Second

func (e *Engine) newServed(number uint8, name string) *served {
	return &served{
		name: name, number: number, session: newSession(e.newSessionID()), ends: newEndings(e.inFlight), claiming: newClaiming(e.inFlight),
		attaching: pipe{name: "attach", limit: 2}, moves: newMoves(), releases: newReleases(), refill: newRefill(), review: newReview(),
	}
}

// serve is the region of a task's row, served from now on if it was not. A row of a region that is not known here is looked for at home,
// where it is not.
func (e *Engine) serve(id scheduler.ID) *served {
	if s := e.guest(id.Region()); s != nil {
		return s
	}
	return e.home
}

// guest is the region with a number, served from now on if it was not. It is nil when there is no such region.
func (e *Engine) guest(number uint8) *served {
	if int(number) >= len(e.names) || e.names[number] == "" {
		return nil
	}
	s := e.byNumber[number]
	if s == nil {
		s = e.newServed(number, e.names[number])
		e.byNumber[number] = s
		e.served = append(e.served, s)
		s.clockStore, s.clockLocal = e.home.clockStore, e.home.clockLocal
		e.core.Step(scheduler.SessionChanged{Region: number, Session: s.id})
		e.observe.Event("serving another region", "region", s.name, "session", s.id)
	}
	s.neededAt = e.local
	return s
}

// leaveGuests ends guest sessions that nothing needs any more.
func (e *Engine) leaveGuests() {
	if len(e.served) == 1 {
		return
	}
	busy := e.core.Regions()
	for _, s := range e.served[1:] {
		switch {
		case busy[s.number], e.adopts[s.number], len(s.wanted) > 0, len(s.ends.pending) > 0, e.underway(s.number):
			s.neededAt = e.local
		case !s.leaving && s.opened && e.local-s.neededAt > guestLinger:
			e.leave(s)
		}
	}
	e.served = slices.DeleteFunc(e.served, func(s *served) bool { return e.byNumber[s.number] != s })
}

// underway tells whether statements about a region's rows are in flight or will be tried again.
func (e *Engine) underway(number uint8) bool {
	for token := range e.workers.coming { // in any order: one is enough
		if token.ID.Region() == number {
			return true
		}
	}
	for token := range e.strays {
		if token.ID.Region() == number {
			return true
		}
	}
	return false
}

// leave ends a guest session.
func (e *Engine) leave(s *served) {
	s.leaving, s.ended = true, true
	e.setLanes(s, nil)
	e.run(s.ending, EndSession{Region: s.name, ID: s.id}, func(st *statement, _ any, err error) {
		e.finish(st)
		if err != nil {
			e.observe.StatementFailed(st.pipe.name, st.tries, err) // it expires by itself
		}
		e.byNumber[s.number] = nil
		if len(s.wanted)+len(s.ends.pending) > 0 { // it was needed again meanwhile
			g := e.guest(s.number)
			g.wanted, g.ends.pending = s.wanted, s.ends.pending
		}
		e.observe.Event("serving another region no more", "region", s.name, "session", s.id)
	})
}

// byRegion parts rows by the regions that they belong to, in the order in which each comes first.
func byRegion[T any](rows []T, id func(*T) scheduler.ID) [][]T {
	if len(rows) == 0 {
		return nil
	}
	first := id(&rows[0]).Region()
	if !slices.ContainsFunc(rows, func(r T) bool { return id(&r).Region() != first }) {
		return [][]T{rows} // as nearly always
	}
	var parts [][]T
	at := map[uint8]int{}
	for i := range rows {
		n := id(&rows[i]).Region()
		if _, known := at[n]; !known {
			at[n] = len(parts)
			parts = append(parts, nil)
		}
		parts[at[n]] = append(parts[at[n]], rows[i])
	}
	return parts
}

// nameOf names the region of a task; empty when there is no such region.
func (e *Engine) nameOf(id scheduler.ID) string {
	if n := id.Region(); int(n) < len(e.names) {
		return e.names[n]
	}
	return ""
}

// peersOf lists the other instances that may dispatch a task.
func (e *Engine) peersOf(id scheduler.ID) []scheduler.Session {
	if s := e.byNumber[id.Region()]; s != nil {
		return s.others
	}
	return nil
}
