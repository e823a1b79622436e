package scheduler

import "time"

// This file holds when groups of ready rows are read from the store, and what their answers say.

// Bounds of the ready buffers. A tenant with ten million tasks occupies no more memory than one with a thousand.
const (
	groupRowsMin  = 32               // what a refill of a group that drains slowly asks for
	groupRowsMax  = 4096             // what one that drains fast grows to
	refillRowsMax = 2 * groupRowsMax // of all groups that are read together
	parkedRowsMax = 32               // kept of a buffer that no worker serves
	// A refill sooner than refillSoon after the last asks for twice as much, one later than refillLate for half.
	refillSoon = time.Second
	refillLate = 10 * time.Second
	// A refill that brought nothing new, since all it showed is in flight here, is asked again after a pause that doubles.
	refillPauseMin = 5 * time.Millisecond
	refillPauseMax = 250 * time.Millisecond
)

// group is what one refill brings: the rows that share a key in the store's index. Two classes may share one.
type group struct {
	key        BufferKey
	tally      *tally // its tenant's
	rows       int    // buffered now
	want       int    // how many a refill asks for
	behind     bool   // the store has ready rows that are not buffered
	look       bool   // it may have some: one read will tell
	asked      bool   // a refill is in flight
	missed     bool   // a row was turned away since it was asked
	queued     bool   // in the backlog's list of groups to read
	pause      time.Duration
	pauseUntil time.Time
	refilledAt time.Time
	lookedAt   time.Time // when it was last read from the beginning
	// read is how far each shard was read: what is ready before that is buffered, or was started here. Reading on from there saves
	// the store from passing over all that was claimed before, over and over. What changes behind it is told or, at the latest, seen
	// by the next look from the beginning.
	read   map[uint8]Position
	low    map[uint8]Position // what was turned away since the refill that is in flight was asked
	latest time.Time          // the largest due buffered: while behind, later rows are left to the store
}

// accepts tells whether a row that is known to be ready is buffered, or left to a later refill.
func (g *group) accepts(due time.Time) bool {
	if g.behind { // only what is served before the rows that are here
		return g.rows < 2*groupRowsMax && due.Before(g.latest)
	}
	return g.rows < groupRowsMax
}

// needsRefill tells whether the store should be asked for more rows.
func (g *group) needsRefill() bool {
	return !g.asked && (g.look || (g.behind && g.rows <= g.want/2))
}

// group finds or makes the refill unit of a key.
func (b *backlog) group(key BufferKey) *group {
	g := b.groups[key]
	if g == nil {
		g = &group{key: key, tally: b.tally(key.Tenant), want: groupRowsMin}
		g.tally.groups++
		b.groups[key] = g
	}
	return g
}

// look has a group read soon: somebody says that it has ready rows.
func (b *backlog) look(key BufferKey) {
	g := b.group(key)
	g.look = true
	b.consider(g)
}

// turnAway leaves a row to the store: the next refill shows it again.
func (b *backlog) turnAway(g *group, due time.Time, shard uint8) {
	before := Position{Due: due} // every id comes after none
	if at, some := g.read[shard]; some && before.Compare(at) < 0 {
		g.read[shard] = before
	}
	if at, some := g.low[shard]; g.asked && (!some || before.Compare(at) < 0) {
		g.low[shard] = before
	}
	b.setBehind(g, true)
	g.missed = true
	b.consider(g)
}

func (b *backlog) setBehind(g *group, behind bool) {
	if g.behind == behind {
		return
	}
	g.behind = behind
	if behind {
		g.tally.behind[g.key.Tier]++
		b.behind[g.key.Class]++
		return
	}
	g.tally.behind[g.key.Tier]--
	if b.behind[g.key.Class]--; b.behind[g.key.Class] == 0 {
		delete(b.behind, g.key.Class)
	}
}

// consider puts a group on the list of those to read, or forgets it when it holds nothing and misses nothing.
func (b *backlog) consider(g *group) {
	switch {
	case g.queued:
	case g.needsRefill():
		g.queued = true
		b.dry = append(b.dry, g)
	case g.rows == 0 && !g.behind && !g.asked:
		delete(b.groups, g.key)
		if g.tally.groups--; g.tally.groups == 0 {
			delete(b.tallies, g.key.Tenant)
		}
	}
}

// refills lists the groups that should be read now, those that have waited longest first: at most limit, and no more than
// refillRowsMax rows in all when each is asked for as many as the largest wants.
func (b *backlog) refills(now time.Time, limit int) []BufferKey {
	var keys []BufferKey
	most := 0
	for range len(b.dry) {
		g := b.dry[0]
		most = max(most, g.want)
		if len(keys) >= limit || (len(keys) > 0 && (len(keys)+1)*most > refillRowsMax) {
			break
		}
		b.dry = b.dry[1:]
		g.queued = false
		if !g.needsRefill() || now.Before(g.pauseUntil) {
			b.consider(g)
			continue
		}
		if g.look {
			g.lookedAt, g.read = now, map[uint8]Position{}
		}
		g.asked, g.look, g.missed, g.low = true, false, false, map[uint8]Position{}
		keys = append(keys, g.key)
	}
	return keys
}

// refillFailed tells that a refill of a group was not answered.
func (b *backlog) refillFailed(key BufferKey, now time.Time) {
	if g := b.groups[key]; g != nil {
		g.asked, g.look, g.pauseUntil = false, true, now.Add(refillPauseMax)
		b.consider(g)
	}
}

// after is where a refill of a group reads on in a shard.
func (b *backlog) after(key BufferKey, shard uint8) Position {
	if g := b.groups[key]; g != nil {
		return g.read[shard]
	}
	return Position{}
}

// refillAnswer is what a refill says of one group.
type refillAnswer struct {
	behind  bool               // as it was known before
	brought int                // rows that were not buffered before
	cut     bool               // the store may have more than it showed
	last    map[uint8]Position // of the rows shown, by shard
}

// show takes note of a row of the answer.
func (a *refillAnswer) show(r *ReadyRow) {
	at := Position{Due: r.Due, ID: r.ID}
	if last, some := a.last[r.ID.Shard()]; !some || at.Compare(last) > 0 {
		a.last[r.ID.Shard()] = at
	}
}

// refilling prepares a group for the rows of an answer: they are buffered as far as there is room, whatever their due.
func (b *backlog) refilling(key BufferKey) *refillAnswer {
	g := b.group(key)
	answer := &refillAnswer{behind: g.behind, last: map[uint8]Position{}}
	b.setBehind(g, false)
	return answer
}

// refilled takes note of an answer after its rows are in.
func (b *backlog) refilled(key BufferKey, a *refillAnswer, now time.Time) {
	g := b.group(key)
	since := now.Sub(g.refilledAt)
	g.asked, g.refilledAt = false, now
	if g.read == nil {
		g.read = map[uint8]Position{}
	}
	for shard, at := range a.last { // each shard for itself: in any order
		if low, some := g.low[shard]; some && low.Compare(at) < 0 {
			at = low
		}
		g.read[shard] = at
	}
	// An answer that is cut and shows only what is known says nothing new.
	b.setBehind(g, g.missed || (a.cut && (a.behind || a.brought > 0)))
	switch {
	case !a.cut:
	case since < refillSoon:
		g.want = min(g.want*2, groupRowsMax)
	case since > refillLate:
		g.want = max(g.want/2, groupRowsMin)
	}
	if a.brought > 0 || !g.behind {
		g.pause = 0
	} else {
		g.pause = min(max(g.pause*2, refillPauseMin), refillPauseMax)
	}
	g.pauseUntil = now.Add(g.pause)
	b.consider(g)
}
