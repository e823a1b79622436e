package engine

import (
	"slices"
	"time"

	"github.com/errandhq/errand/scheduler"
)

// Bounds of reading lanes.
const (
	discoverLimit   = 200 // groups per slice
	refillKeysMax   = 50  // groups per refill
	refillEvery     = 2 * time.Millisecond
	refillsInFlight = 2
)

// refill finds the ready rows of this instance's lanes: which groups have some, in slices of one shard, and the earliest due
// of the groups that run low.
type refill struct {
	discovering pipe
	refilling   pipe
	shard       int // index in the lanes of the slice under way
	after       *scheduler.BufferKey
	nextSlice   time.Duration
	asked       bool
	hurry       bool // the first cycle after the lanes have changed: without pauses
	cycleStart  time.Duration
	cycle       time.Duration // how long the last full cycle took
	lookedAt    time.Duration
}

func newRefill() refill {
	return refill{
		discovering: pipe{name: "discover", limit: 1},
		refilling:   pipe{name: "refill", limit: refillsInFlight},
		hurry:       true,
	}
}

// restart begins a new cycle at once: the lanes have changed.
func (r *refill) restart() { r.shard, r.after, r.nextSlice, r.hurry = 0, nil, 0, true }

func (e *Engine) readLanes() {
	if len(e.shards) == 0 || e.stopping {
		return
	}
	e.discover()
	e.refillGroups()
}

func (e *Engine) discover() {
	r := &e.refill
	if r.asked || e.local < r.nextSlice {
		return
	}
	if r.shard >= len(e.shards) {
		r.shard = 0
	}
	if r.shard == 0 && r.after == nil {
		r.cycleStart = e.local
	}
	r.asked = true
	shard := e.shards[r.shard]
	q := scheduler.DiscoverQuery{Region: e.region, Shard: shard, After: r.after, Limit: discoverLimit}
	e.run(&r.discovering, q, func(s *statement, answer any, err error) {
		e.finish(s)
		r := &e.refill
		r.asked = false
		r.nextSlice = e.local + e.sliceEvery()
		if err != nil {
			return
		}
		if r.shard >= len(e.shards) || e.shards[r.shard] != shard {
			return // the lanes have changed meanwhile
		}
		keys := answer.([]scheduler.BufferKey)
		e.core.Step(scheduler.Discovered{Keys: keys})
		if len(keys) == discoverLimit {
			last := keys[len(keys)-1]
			r.after = &last
			return
		}
		r.shard, r.after = r.shard+1, nil
		if r.shard == len(e.shards) {
			r.shard, r.hurry, r.cycle = 0, false, e.local-r.cycleStart
		}
	})
}

// sliceEvery spreads a cycle over the time in which an urgent row must be found.
func (e *Engine) sliceEvery() time.Duration {
	if e.refill.hurry {
		return 0
	}
	return e.timing.DiscoverFast / time.Duration(max(len(e.shards), 1))
}

func (e *Engine) refillGroups() {
	r := &e.refill
	if !r.refilling.free() || e.local-r.lookedAt < refillEvery {
		return
	}
	r.lookedAt = e.local
	keys := e.core.Refills(e.storeNow(), refillKeysMax)
	if len(keys) == 0 {
		return
	}
	q := scheduler.RefillQuery{Region: e.region, PerShard: e.core.RefillRows(keys, len(e.shards))}
	for _, shard := range e.shards {
		for _, key := range keys {
			q.Slices = append(q.Slices, scheduler.RefillSlice{Key: key, Shard: shard, After: e.core.RefillAfter(key, shard)})
		}
	}
	e.run(&r.refilling, q, func(s *statement, answer any, err error) {
		e.finish(s)
		if err != nil {
			e.core.Step(scheduler.RefillFailed{Keys: keys})
			return
		}
		rows := slices.DeleteFunc(answer.([]scheduler.ReadyRow), func(r scheduler.ReadyRow) bool { return !e.lanes[r.ID.Shard()] })
		e.core.Step(scheduler.Refilled{Keys: keys, Rows: rows, PerShard: q.PerShard})
	})
}

// hinted looks sooner at what somebody else has changed.
func (e *Engine) hinted(hints []Hint) {
	for _, h := range hints {
		if !h.Changed.IsZero() && h.Region == e.region { // lent here, perhaps, whoever serves its lane
			e.forget(h.Changed)
		}
		switch {
		case h.Region != e.region || !e.lanes[h.Shard]:
		case h.Timed:
			e.timers.readAt = 0
		default:
			e.core.Step(scheduler.Stale{Key: h.Key})
		}
	}
}
