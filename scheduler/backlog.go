package scheduler

import (
	"container/heap"
	"maps"
	"slices"
	"time"

	"github.com/errandhq/errand/fairness"
)

// backlog holds the buffered rows in the order of service: level, then tenants by their shares, then due over the heads of a tenant's
// classes. A class that cannot start never hides another.
type backlog struct {
	shares  *fairness.Shares
	levels  [Deferrable + 1]*level // by tier; urgent work beyond its share stands at the level of standard work
	demoted map[string]bool        // tenants whose urgent work is served as standard
	tallies map[string]*tally      // by tenant, of those with groups
	weight  float64                // sum of the weights of tenants with buffers in lines
	rows    map[ID]*waiting
	buffers map[bufferKey]*buffer
	groups  map[BufferKey]*group
	dry     []*group                         // groups that may need a refill, in the order in which they ran low
	behind  map[int16]int                    // groups with rows that only the store holds, by the hash of their class
	parked  map[string]map[bufferKey]*buffer // by kind: no worker serves it
	classes map[Class]int                    // buffered rows by class that nothing but room holds back
	perKind map[string]int                   // buffered rows by kind
}

type likeKey struct {
	class   Class
	suspect bool
}

func (b *buffer) like() likeKey { return likeKey{b.key.class, b.key.suspect} }

func newBacklog(shares *fairness.Shares) *backlog {
	b := &backlog{
		shares:  shares,
		demoted: map[string]bool{},
		tallies: map[string]*tally{},
		rows:    map[ID]*waiting{},
		buffers: map[bufferKey]*buffer{},
		groups:  map[BufferKey]*group{},
		behind:  map[int16]int{},
		parked:  map[string]map[bufferKey]*buffer{},
		classes: map[Class]int{},
		perKind: map[string]int{},
	}
	for _, tier := range Tiers {
		b.levels[tier] = newLevel(shares)
	}
	return b
}

// add buffers a row unless it is here already or its group holds enough; then the group is marked to be refilled later.
// It tells whether the row is here now.
func (b *backlog) add(r *ReadyRow, now time.Time) (added, here bool) {
	if w := b.rows[r.ID]; w != nil {
		if w.attempt > r.Attempt || (w.attempt == r.Attempt && w.buffer.key.tier == r.Tier) {
			if w.attempt == r.Attempt && r.State == Ready {
				w.state = Ready // its time has come, or it was ready all along
			}
			return false, true
		}
		b.remove(w, now)
	}
	g := b.group(BufferKey{Tenant: r.Tenant, Tier: r.Tier, Class: r.Class.Hash()})
	key := bufferKey{tenant: r.Tenant, tier: r.Tier, class: r.Class, suspect: r.Suspect}
	buf := b.buffers[key]
	if !g.accepts(r.Due) || (buf != nil && buf.setAside() && len(buf.rows) >= parkedRowsMax) {
		b.turnAway(g, r.Due, r.ID.Shard())
		return false, false
	}
	if buf == nil {
		buf = &buffer{key: key, kind: r.Kind, group: g, limits: r.Limits, shape: r.Shape, allowed: r.Allowed, index: -1, ofKind: g.tally.ofKind(r.Kind)}
		buf.ofKind.buffers++
		b.buffers[key] = buf
		b.shares.Hold(r.Tenant, 1, now)
	}
	b.insert(buf, &waiting{id: r.ID, attempt: r.Attempt, due: r.Due, state: r.State, size: r.PayloadSize, avoid: r.Avoid, buffer: buf}, now)
	return true, true
}

func (b *backlog) insert(buf *buffer, w *waiting, now time.Time) {
	g := buf.group
	if (g.rows == 0 && !g.behind) || w.due.After(g.latest) {
		g.latest = w.due
	}
	g.rows++
	g.tally.rows[buf.key.tier]++
	b.rows[w.id] = w
	b.perKind[buf.kind]++
	heap.Push(&buf.rows, w)
	if buf.level != nil {
		b.count(buf, 1)
	}
	b.settle(buf, now)
}

// count keeps the numbers of rows that nothing but room holds back.
func (b *backlog) count(buf *buffer, n int) {
	class := buf.key.class
	buf.ofKind.rows[buf.key.tier] += n
	if b.classes[class] += n; b.classes[class] == 0 {
		delete(b.classes, class)
	}
}

// remove takes a row out.
func (b *backlog) remove(w *waiting, now time.Time) {
	buf := w.buffer
	if len(buf.rows) == 1 { // the last one: the buffer goes with it
		b.takeOut(buf)
		delete(b.buffers, buf.key)
		b.shares.Hold(buf.key.tenant, -1, now)
	} else if buf.level != nil {
		b.count(buf, -1)
	}
	heap.Remove(&buf.rows, w.index)
	delete(b.rows, w.id)
	if b.perKind[buf.kind]--; b.perKind[buf.kind] == 0 {
		delete(b.perKind, buf.kind)
	}
	b.settle(buf, now)
	buf.group.tally.rows[buf.key.tier]--
	buf.group.rows--
	if len(buf.rows) == 0 {
		buf.group.tally.dropBuffer(buf)
	}
	b.consider(buf.group)
}

// settle puts a buffer where it belongs after its rows changed: it stays where it is, or enters the line of its level.
func (b *backlog) settle(buf *buffer, now time.Time) {
	switch {
	case len(buf.rows) == 0:
	case buf.level != nil:
		buf.level.moved(buf)
	case buf.gate != nil:
		heap.Fix(&buf.gate.waiting, buf.spot)
	case !buf.parked:
		b.enter(buf, now)
	}
}

// enter puts a buffer into the line of its level.
func (b *backlog) enter(buf *buffer, now time.Time) {
	t := buf.group.tally
	if t.lines++; t.lines == 1 {
		t.weight = b.shares.Weight(t.tenant)
		b.weight += t.weight
		b.shares.Lift(t.tenant, now)
	}
	b.insertLevel(buf)
	b.count(buf, len(buf.rows))
}

// insertLevel puts a buffer into the line of the level at which it is served.
func (b *backlog) insertLevel(buf *buffer) {
	at := b.levels[buf.key.tier]
	buf.shift = 0
	if buf.key.tier == Urgent && b.demoted[buf.key.tenant] {
		at, buf.shift = b.levels[Standard], demotedGrace
	}
	at.insert(buf)
}

// takeOut takes a buffer out of wherever it stands.
func (b *backlog) takeOut(buf *buffer) {
	switch {
	case buf.level != nil:
		buf.level.extract(buf)
		b.count(buf, -len(buf.rows))
		t := buf.group.tally
		if t.lines--; t.lines == 0 {
			b.weight = max(b.weight-t.weight, 0)
		}
	case buf.gate != nil:
		heap.Remove(&buf.gate.waiting, buf.spot)
		buf.gate.among.touch(buf.gate) // nobody may need it any more
		buf.gate = nil
	case buf.parked:
		buf.parked = false
		delete(b.parked[buf.kind], buf.key)
		if len(b.parked[buf.kind]) == 0 {
			delete(b.parked, buf.kind)
		}
	}
}

// setAside tells whether something else than room holds the buffer back.
func (b *buffer) setAside() bool { return b.parked || b.gate != nil }

// park sets a buffer aside until a worker joins that could run it. Only its first rows are kept: the store has the others.
func (b *backlog) park(buf *buffer, now time.Time) {
	b.takeOut(buf)
	of := b.parked[buf.kind]
	if of == nil {
		of = map[bufferKey]*buffer{}
		b.parked[buf.kind] = of
	}
	of[buf.key], buf.parked = buf, true
	b.keepFirst(buf, now)
}

// hold sets a buffer aside until a gate opens for it. Only its first rows are kept.
func (b *backlog) hold(buf *buffer, at *gate, now time.Time) {
	b.takeOut(buf)
	buf.gate = at
	heap.Push(&at.waiting, buf)
	b.keepFirst(buf, now)
}

func (b *backlog) keepFirst(buf *buffer, now time.Time) {
	if len(buf.rows) <= parkedRowsMax {
		return
	}
	rows := slices.SortedFunc(slices.Values(buf.rows), (*waiting).compare)
	for _, w := range rows[parkedRowsMax:] {
		g := buf.group
		b.remove(w, now)
		b.turnAway(g, w.due, w.id.Shard())
	}
}

// unpark brings those buffers of a kind back that a worker which has joined could run.
func (b *backlog) unpark(kind string, now time.Time, could func(*buffer) bool) {
	for _, buf := range slices.SortedFunc(maps.Values(b.parked[kind]), func(x, y *buffer) int { return x.key.compare(y.key) }) {
		if could(buf) {
			b.takeOut(buf)
			b.enter(buf, now)
		}
	}
}

// demote lets a tenant's urgent work be served as standard, beyond its urgent share.
func (b *backlog) demote(tenant string) {
	b.demoted[tenant] = true
	b.reenter(tenant, b.levels[Urgent])
}

// restore lets a tenant's urgent work go first again.
func (b *backlog) restore(tenant string) {
	delete(b.demoted, tenant)
	b.reenter(tenant, b.levels[Standard])
}

// reenter puts the urgent buffers of a tenant's line where they belong now.
func (b *backlog) reenter(tenant string, from *level) {
	l := from.lines[tenant]
	if l == nil {
		return
	}
	for _, buf := range slices.Clone(l.buffers) { // in any order: the line sorts them
		if buf.key.tier == Urgent {
			from.extract(buf)
			b.insertLevel(buf)
		}
	}
}

// retain drops the rows of shards that are no longer ours; their new owner reads them from the store.
func (b *backlog) retain(mine func(shard uint8) bool, now time.Time) {
	for _, g := range b.groups { // each for itself: in any order
		maps.DeleteFunc(g.read, func(shard uint8, _ Position) bool { return !mine(shard) })
	}
	var gone []*waiting
	for _, w := range b.rows {
		if !mine(w.id.Shard()) {
			gone = append(gone, w)
		}
	}
	slices.SortFunc(gone, func(a, b *waiting) int { return a.id.Compare(b.id) })
	for _, w := range gone {
		b.remove(w, now)
	}
}

// overtaken tells whether a new row of the class would overtake one that waits, here or in the store.
func (b *backlog) overtaken(class Class) bool {
	return b.classes[class] > 0 || b.behind[class.Hash()] > 0
}

// kinds lists the kinds of the rows that wait, in order.
func (b *backlog) kinds() []string { return slices.Sorted(maps.Keys(b.perKind)) }
