package engine

import (
	"slices"
	"time"

	"github.com/errandhq/errand/regions"
	"github.com/errandhq/errand/scheduler"
)

// Bounds of reading lanes.
const (
	discoverLimit   = 200 // groups per slice
	refillKeysMax   = 50  // groups per refill
	refillEvery     = 2 * time.Millisecond
	refillsInFlight = 2
	refillAvoided   = 5 * time.Second // for how long a region that did not answer is left out of the others' refills
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
	avoid       time.Duration // until when it is left out of refills
	cycle       time.Duration // how long the last full cycle took
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
	if e.stopping {
		return
	}
	for _, s := range e.served {
		if len(s.shards) > 0 {
			e.discover(s)
		}
	}
	e.refillGroups()
}

func (e *Engine) discover(s *served) {
	r := &s.refill
	if r.asked || e.local < r.nextSlice {
		return
	}
	if r.shard >= len(s.shards) {
		r.shard = 0
	}
	if r.shard == 0 && r.after == nil {
		r.cycleStart = e.local
	}
	r.asked = true
	shard := s.shards[r.shard]
	q := scheduler.DiscoverQuery{Region: s.name, Shard: shard, After: r.after, Limit: discoverLimit}
	e.run(&r.discovering, q, func(st *statement, answer any, err error) {
		e.finish(st)
		r.asked = false
		r.nextSlice = e.local + e.sliceEvery(s)
		if err != nil {
			return
		}
		if r.shard >= len(s.shards) || s.shards[r.shard] != shard {
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
		if r.shard == len(s.shards) {
			r.shard, r.hurry, r.cycle = 0, false, e.local-r.cycleStart
		}
	})
}

// sliceEvery spreads a cycle over the time in which an urgent row must be found.
func (e *Engine) sliceEvery(s *served) time.Duration {
	if s.refill.hurry {
		return 0
	}
	return e.timing.DiscoverFast / time.Duration(max(len(s.shards), 1))
}

// refillGroups reads the rows of the groups that run low, in each region whose lanes are read here.
func (e *Engine) refillGroups() {
	if e.local-e.refilledAt < refillEvery {
		return
	}
	var from []*served
	shards := 0
	for _, s := range e.served {
		if s == e.home && !s.refill.refilling.free() {
			return
		}
		if len(s.shards) > 0 && s.refill.refilling.free() && e.local >= s.refill.avoid {
			from = append(from, s)
			shards += len(s.shards)
		}
	}
	if len(from) == 0 {
		return
	}
	e.refilledAt = e.local
	keys := e.core.Refills(e.storeNow(), refillKeysMax)
	if len(keys) == 0 {
		return
	}
	answer := &refillAnswer{left: len(from), ev: scheduler.Refilled{Keys: keys, PerShard: e.core.RefillRows(keys, shards)}}
	for _, s := range from {
		e.refillFrom(s, answer)
	}
}

// refillAnswer collects what several regions answer to one refill.
type refillAnswer struct {
	ev     scheduler.Refilled
	left   int
	failed bool // the home region's part
}

func (e *Engine) refillFrom(s *served, all *refillAnswer) {
	q := scheduler.RefillQuery{Region: s.name, PerShard: all.ev.PerShard}
	for _, shard := range s.shards {
		for _, key := range all.ev.Keys {
			q.Slices = append(q.Slices, scheduler.RefillSlice{Key: key, Shard: shard, After: e.core.RefillAfter(key, shard)})
		}
	}
	e.run(&s.refill.refilling, q, func(st *statement, answer any, err error) {
		e.finish(st)
		switch {
		case err != nil && s == e.home:
			all.failed = true
		case err != nil: // the others do not wait for it: discovery asks for its groups again
			s.refill.avoid = e.local + refillAvoided
		default:
			rows := answer.([]scheduler.ReadyRow)
			all.ev.Rows = append(all.ev.Rows, slices.DeleteFunc(rows, func(r scheduler.ReadyRow) bool { return !e.lanes[r.ID.Shard()] })...)
		}
		if all.left--; all.left > 0 {
			return
		}
		if all.failed {
			e.core.Step(scheduler.RefillFailed{Keys: all.ev.Keys})
			return
		}
		e.core.Step(all.ev)
	})
}

// hinted looks sooner at what somebody else has changed.
func (e *Engine) hinted(hints []Hint) {
	for _, h := range hints {
		if !h.Changed.IsZero() && e.named(h.Region) { // lent here, perhaps, whoever serves its lane
			e.forget(h.Changed)
		}
		switch {
		case !e.named(h.Region) || !e.lanes[h.Shard]:
		case h.Timed:
			e.byNumber[h.Shard/regions.ShardsPerRegion].moves.readAt = 0
		default:
			e.core.Step(scheduler.Stale{Key: h.Key})
		}
	}
}

// named tells whether a region of that name is served here.
func (e *Engine) named(region string) bool {
	return slices.ContainsFunc(e.served, func(s *served) bool { return s.name == region })
}
