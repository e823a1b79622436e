package engine

import (
	"slices"
	"time"

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
}

// lend answers another instance that has room: rows that wait here and cannot start here now.
func (e *Engine) lend(in LendAsked) {
	var before time.Time // due when; zero for any
	if in.For != "" {
		before = e.storeNow()
	}
	rows := e.core.Lend(in.Room, min(max(in.Limit, 0), lendRowsMax), scheduler.Borrower{Region: in.For, DueBefore: before})
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
	room := e.core.Spare()
	if len(room) == 0 {
		l.askAt = e.local + borrowFirst
		return
	}
	l.asked = true
	l.peer = (l.peer + 1) % len(e.home.others)
	e.emit(AskPeerToLend{Peer: e.home.others[l.peer], Room: room, Limit: lendRowsMax})
}

// borrowed takes lent rows in. They are claimed like any others; who lent them has forgotten them.
func (e *Engine) borrowed(rows []scheduler.ReadyRow) {
	l := &e.lending
	l.asked = false
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
	for _, room := range e.core.Spare() {
		if slices.Contains(kinds, room.Kind) {
			e.lending.pause, e.lending.askAt = 0, e.local
			return
		}
	}
}
