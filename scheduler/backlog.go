package scheduler

import (
	"cmp"
	"container/heap"
	"maps"
	"slices"
	"time"

	"github.com/errandhq/errand/fairness"
)

// backlog holds the buffered rows in the order of service: tier, then tenants in turn, then due over the heads of a tenant's
// classes. A class that cannot start never hides another.
type backlog struct {
	tiers   map[Tier]*tierBacklog
	rows    map[ID]*waiting
	buffers map[bufferKey]*buffer
	groups  map[BufferKey]*group
	order   []BufferKey          // of groups, in the order of their creation
	parked  map[string][]*buffer // by kind: nobody serves it
	classes map[Class]int        // buffered rows by class
	perKind map[string]int       // buffered rows by kind
}

// tierBacklog holds the buffers of one tier that have rows and are not parked.
type tierBacklog struct {
	ring    fairness.Ring
	tenants map[string]*bufferHeap
	buffers int             // in the tenants' heaps
	alike   map[likeKey]int // the same, by what a refusal by the shared workers answers for
}

type likeKey struct {
	class   Class
	suspect bool
}

func (b *buffer) like() likeKey { return likeKey{b.key.class, b.key.suspect} }

func newBacklog() *backlog {
	b := &backlog{
		tiers:   map[Tier]*tierBacklog{},
		rows:    map[ID]*waiting{},
		buffers: map[bufferKey]*buffer{},
		groups:  map[BufferKey]*group{},
		parked:  map[string][]*buffer{},
		classes: map[Class]int{},
		perKind: map[string]int{},
	}
	for _, tier := range Tiers {
		b.tiers[tier] = &tierBacklog{tenants: map[string]*bufferHeap{}, alike: map[likeKey]int{}}
	}
	return b
}

// add buffers a row unless it is here already or its group holds enough; then the group is marked to be refilled later.
// It tells whether the row was added.
func (b *backlog) add(r *ReadyRow) bool {
	if w := b.rows[r.ID]; w != nil {
		if w.attempt >= r.Attempt {
			w.state = r.State // scheduled has become ready, or the same
			return false
		}
		b.remove(w)
	}
	g := b.group(BufferKey{Tenant: r.Tenant, Tier: r.Tier, Class: r.Class.Hash()})
	if !g.accepts(r.Due) {
		g.behind = true
		return false
	}
	key := bufferKey{tenant: r.Tenant, tier: r.Tier, class: r.Class, suspect: r.Suspect}
	buf := b.buffers[key]
	if buf == nil {
		buf = &buffer{key: key, kind: r.Kind, group: g, index: -1}
		b.buffers[key] = buf
	}
	w := &waiting{id: r.ID, attempt: r.Attempt, due: r.Due, state: r.State, size: r.PayloadSize, buffer: buf}
	b.rows[r.ID] = w
	b.classes[r.Class]++
	b.perKind[r.Kind]++
	g.rows++
	if g.rows == 1 || w.due.After(g.latest) {
		g.latest = w.due
	}
	heap.Push(&buf.rows, w)
	b.settle(buf)
	return true
}

// remove takes a row out.
func (b *backlog) remove(w *waiting) {
	buf := w.buffer
	heap.Remove(&buf.rows, w.index)
	delete(b.rows, w.id)
	buf.group.rows--
	if b.classes[buf.key.class]--; b.classes[buf.key.class] == 0 {
		delete(b.classes, buf.key.class)
	}
	if b.perKind[buf.kind]--; b.perKind[buf.kind] == 0 {
		delete(b.perKind, buf.kind)
	}
	b.settle(buf)
}

// settle puts a buffer where it belongs after its rows changed: into its tenant's heap by its head, or nowhere when empty.
func (b *backlog) settle(buf *buffer) {
	tier := b.tiers[buf.key.tier]
	tenant := tier.tenants[buf.key.tenant]
	switch {
	case len(buf.rows) > 0 && buf.index >= 0:
		heap.Fix(tenant, buf.index)
	case len(buf.rows) > 0 && !b.isParked(buf):
		tier.insert(buf)
	case len(buf.rows) == 0:
		tier.extract(buf)
		b.unparkOne(buf)
		delete(b.buffers, buf.key)
	}
}

func (t *tierBacklog) insert(buf *buffer) {
	tenant := t.tenants[buf.key.tenant]
	if tenant == nil {
		tenant = &bufferHeap{}
		t.tenants[buf.key.tenant] = tenant
		t.ring.Add(buf.key.tenant)
	}
	heap.Push(tenant, buf)
	t.buffers++
	t.alike[buf.like()]++
}

func (t *tierBacklog) extract(buf *buffer) {
	if buf.index < 0 {
		return
	}
	tenant := t.tenants[buf.key.tenant]
	heap.Remove(tenant, buf.index)
	t.buffers--
	if t.alike[buf.like()]--; t.alike[buf.like()] == 0 {
		delete(t.alike, buf.like())
	}
	if len(*tenant) == 0 {
		delete(t.tenants, buf.key.tenant)
		t.ring.Remove(buf.key.tenant)
	}
}

// park sets a buffer aside until a worker of its kind joins.
func (b *backlog) park(buf *buffer) {
	b.tiers[buf.key.tier].extract(buf)
	b.parked[buf.kind] = append(b.parked[buf.kind], buf)
}

// unpark brings the buffers of a kind back: a worker that serves it has joined.
func (b *backlog) unpark(kind string) {
	parked := b.parked[kind]
	delete(b.parked, kind)
	for _, buf := range parked {
		b.tiers[buf.key.tier].insert(buf)
	}
}

func (b *backlog) isParked(buf *buffer) bool { return slices.Contains(b.parked[buf.kind], buf) }

func (b *backlog) unparkOne(buf *buffer) {
	parked := b.parked[buf.kind]
	if i := slices.Index(parked, buf); i >= 0 {
		if b.parked[buf.kind] = slices.Delete(parked, i, i+1); len(b.parked[buf.kind]) == 0 {
			delete(b.parked, buf.kind)
		}
	}
}

// group finds or makes the refill unit of a key.
func (b *backlog) group(key BufferKey) *group {
	g := b.groups[key]
	if g == nil {
		g = &group{key: key, want: groupRowsMin}
		b.groups[key] = g
		b.order = append(b.order, key)
	}
	return g
}

// refills lists the groups that should be read now, at most limit, and forgets those that hold nothing and miss nothing.
func (b *backlog) refills(now time.Time, limit int) []BufferKey {
	var keys []BufferKey
	kept := b.order[:0]
	for _, key := range b.order {
		g := b.groups[key]
		if g.rows == 0 && !g.behind && !g.asked {
			delete(b.groups, key)
			continue
		}
		kept = append(kept, key)
		if len(keys) < limit && g.needsRefill(now) {
			g.asked = true
			keys = append(keys, key)
		}
	}
	b.order = kept
	return keys
}

// retain drops the rows of shards that are no longer ours; their new owner reads them from the store.
func (b *backlog) retain(mine func(shard uint8) bool) {
	var gone []*waiting
	for _, w := range b.rows {
		if !mine(w.id.Shard()) {
			gone = append(gone, w)
		}
	}
	for _, w := range gone { // in any order: the result is the same
		b.remove(w)
	}
}

// has tells whether rows of a kind wait.
func (b *backlog) has(kind string) bool { return b.perKind[kind] > 0 }

// kinds lists the kinds of the rows that wait, in order.
func (b *backlog) kinds() []string { return slices.Sorted(maps.Keys(b.perKind)) }

// ofKinds lists the waiting rows of the given kinds in the order of tier, due, ID; scheduled ones excepted.
func (b *backlog) ofKinds(kinds map[string]int) []*waiting {
	var rows []*waiting
	for _, buf := range b.buffers {
		if _, asked := kinds[buf.kind]; asked {
			rows = append(rows, buf.rows...)
		}
	}
	rows = slices.DeleteFunc(rows, func(w *waiting) bool { return w.state != Ready })
	slices.SortFunc(rows, func(x, y *waiting) int {
		return cmp.Or(cmp.Compare(x.buffer.key.tier, y.buffer.key.tier), x.due.Compare(y.due), x.id.Compare(y.id))
	})
	return rows
}
