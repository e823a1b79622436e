package engine

import (
	"slices"
	"time"

	"github.com/errandhq/errand/scheduler"
)

// Bounds of taking other regions' work.
const (
	spillRowsMax = 50              // of one answer
	spillEvery   = 1 * time.Second // least pause between asks that bring nothing
)

// spilling is what an instance knows of asking other regions for work.
type spilling struct {
	asked bool
	askAt time.Duration
	next  int // whom to ask next
}

// spill asks an instance of another region for overdue work when workers here are idle. Everything local comes first: the own region's
// instances have been asked, and had nothing. At most half of what is idle is taken at a time.
func (e *Engine) spill() {
	l := &e.spilling
	if l.asked || e.local < l.askAt || e.stopping || e.drains() || !e.trusted() || (len(e.home.others) > 0 && e.lending.pause == 0) {
		return
	}
	l.askAt = e.local + spillEvery
	room := e.core.Spare()
	peers := e.foreignPeers()
	if len(room) == 0 || len(peers) == 0 {
		return
	}
	for i := range room {
		room[i].Slots = (room[i].Slots + 1) / 2
	}
	l.asked, l.next = true, l.next+1
	e.emit(AskPeerToLend{Peer: peers[l.next%len(peers)], Room: room, Offers: e.offerRoom(), Limit: spillRowsMax, For: e.home.name})
}

// foreignPeers lists the instances of other regions, those of the nearest first.
func (e *Engine) foreignPeers() []scheduler.Session {
	if len(e.names) < 2 {
		return nil
	}
	var peers []scheduler.Session
	for _, name := range e.topology.Nearest(e.home.name, e.names) {
		if n := slices.Index(e.names, name); n >= 0 {
			peers = append(peers, e.watch.peers[n]...)
		}
	}
	return peers
}

// spilled takes the rows in that another region has handed over. They are claimed under a session in that region, which may have to be
// opened first.
func (e *Engine) spilled(rows []scheduler.ReadyRow) {
	l := &e.spilling
	l.asked = false
	if len(rows) == 0 {
		return
	}
	l.askAt = e.local
	for _, part := range byRegion(rows, func(r *scheduler.ReadyRow) scheduler.ID { return r.ID }) {
		s := e.guest(part[0].ID.Region())
		switch {
		case s == nil || s == e.home:
			continue // its own instances find it again
		case e.trusts(s):
			e.takeSpilled(part)
		default:
			s.spilled = part
		}
	}
}

func (e *Engine) takeSpilled(rows []scheduler.ReadyRow) {
	rows = e.core.Runnable(rows)
	e.observe.Rows("spilled", len(rows))
	e.core.Step(scheduler.RowsReady{Rows: rows})
}
