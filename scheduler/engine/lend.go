package engine

import (
	"slices"
	"time"

	"github.com/errandhq/errand/placement"
	"github.com/errandhq/errand/scheduler"
)

// Bounds of lending between the instances of a region.
const (
	lendRowsMax   = 200
	borrowFirst   = 100 * time.Millisecond // pause between asks while they bring rows, and after a peer said it has some
	borrowMax     = 2 * time.Second        // pause it grows to while they bring none
	starvedNotice = 50 * time.Millisecond  // least pause between notices to the peers
)

// lending is what an instance knows of asking others for work.
type lending struct {
	asked     bool
	askAt     time.Duration
	pause     time.Duration
	peer      int // whom to ask next
	noticedAt time.Duration
	noticed   []string
	offered   scheduler.WorkerID // up to which workers have been offered in turn
}

// lend answers another instance that has room: rows that wait here and cannot start here now.
func (e *Engine) lend(in LendAsked) {
	var before time.Time // due when; zero for any
	if in.For != "" {
		before = e.storeNow()
	}
	to := scheduler.Borrower{Region: in.For, DueBefore: before, Offers: in.Offers}
	rows := e.core.Lend(in.Room, min(max(in.Limit, 0), lendRowsMax), to)
	e.observe.Rows("lent", len(rows))
	e.emit(LendReady{Ticket: in.Ticket, Rows: rows})
}

// borrow asks a peer for work when workers here are idle, and tells the peers of work that waits here.
func (e *Engine) borrow() {
	l := &e.lending
	if len(e.home.others) == 0 || e.stopping || !e.trusted() {
		return
	}
	e.noticeStarved()
	if l.asked || e.local < l.askAt {
		return
	}
	room, offers := e.core.Spare(), e.offerRoom()
	if len(room)+len(offers) == 0 {
		l.askAt = e.local + borrowFirst
		return
	}
	l.asked = true
	l.peer = (l.peer + 1) % len(e.home.others)
	e.emit(AskPeerToLend{Peer: e.home.others[l.peer], Room: room, Offers: offers, Limit: lendRowsMax})
}

// offerRoom lists workers with room for others' rows; another time others of them.
func (e *Engine) offerRoom() []placement.Offer {
	offers, last := e.core.Offers(e.lending.offered)
	e.lending.offered = last
	return offers
}

// borrowed takes lent rows in that could run here. They are claimed like any others; who lent them has forgotten them.
func (e *Engine) borrowed(rows []scheduler.ReadyRow) {
	l := &e.lending
	l.asked = false
	rows = e.core.Runnable(rows)
	if len(rows) == 0 {
		l.pause = min(max(l.pause*2, borrowFirst), borrowMax)
		l.askAt = e.local + l.pause
		return
	}
	l.pause, l.askAt = 0, e.local
	e.observe.Rows("borrowed", len(rows))
	e.core.Step(scheduler.RowsReady{Rows: rows})
}

// noticeStarved tells the peers which kinds wait here without a worker.
func (e *Engine) noticeStarved() {
	l := &e.lending
	if e.local-l.noticedAt < starvedNotice {
		return
	}
	starved := e.core.Starved()
	if len(starved) == 0 || (slices.Equal(starved, l.noticed) && e.local-l.noticedAt < time.Second) {
		if len(starved) == 0 {
			l.noticed = nil
		}
		return
	}
	l.noticedAt, l.noticed = e.local, starved
	e.emit(TellPeersStarved{Peers: slices.Clone(e.home.others), Kinds: starved})
}

// peerStarved asks sooner when a peer has rows of a kind for which there is room here.
func (e *Engine) peerStarved(kinds []string) {
	room := map[string]bool{}
	for _, spare := range e.core.Spare() {
		room[spare.Kind] = true
	}
	offers, _ := e.core.Offers(e.lending.offered)
	for _, o := range offers {
		for kind := range o.Slots {
			room[kind] = true
		}
	}
	if slices.ContainsFunc(kinds, func(kind string) bool { return room[kind] }) {
		e.lending.pause, e.lending.askAt = 0, e.local
	}
}
