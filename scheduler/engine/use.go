package engine

import (
	"slices"
	"time"

	"github.com/errandhq/errand/scheduler"
)

// Bounds of telling the region's other instances what tenants have used.
const (
	useEvery = 250 * time.Millisecond
	useStale = 10 * time.Second // slots of an instance that was silent for so long are not counted
)

// exchange is what this instance knows of the others' use.
type exchange struct {
	toldAt time.Duration
	slots  map[scheduler.SessionID]peerSlots
}

type peerSlots struct {
	at    time.Duration
	slots map[string]int
}

// tellUse tells the others what tenants have used here. What gets lost on the way costs an error of one message's use, in fairness only.
func (e *Engine) tellUse() {
	x := &e.exchange
	if len(e.home.others) == 0 || e.local-x.toldAt < useEvery {
		return
	}
	x.toldAt = e.local
	e.emit(TellPeersUse{Peers: slices.Clone(e.home.others), Use: e.core.Use()})
}

// peerUsed takes what another instance tells.
func (e *Engine) peerUsed(in PeerUsed) {
	x := &e.exchange
	if x.slots == nil {
		x.slots = map[scheduler.SessionID]peerSlots{}
	}
	x.slots[in.Session] = peerSlots{at: e.local, slots: in.Use.Slots}
	sum := map[string]int{}
	for session, of := range x.slots { // a sum: in any order
		if e.local-of.at > useStale {
			delete(x.slots, session)
			continue
		}
		for kind, n := range of.slots {
			sum[kind] += n
		}
	}
	e.core.Step(scheduler.UsedElsewhere{Used: in.Use.Used, Slots: sum, Virtual: in.Use.Virtual})
}
