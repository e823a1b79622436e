package scheduler

import (
	"container/heap"
	"maps"
	"slices"

	"github.com/errandhq/errand/fairness"
)

// backlog holds the buffered rows in the order of service: tier, then tenants in turn, then due over the heads of a tenant's
// classes. A class that cannot start never hides another.
type backlog struct {
	tiers   map[Tier]*tierBacklog
	rows    map[ID]*waiting
	buffers map[bufferKey]*buffer
	groups  map[BufferKey]*group
	dry     []*group                         // groups that may need a refill, in the order in which they ran low
	behind  map[int16]int                    // groups with rows that only the store holds, by the hash of their class
	parked  map[string]map[bufferKey]*buffer // by kind: no worker serves it
	classes map[Class]int                    // buffered rows by class
	perKind map[string]int                   // buffered rows by kind
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
		behind:  map[int16]int{},
		parked:  map[string]map[bufferKey]*buffer{},
		classes: map[Class]int{},
		perKind: map[string]int{},
	}
	for _, tier := range Tiers {
		b.tiers[tier] = &tierBacklog{tenants: map[string]*bufferHeap{}, alike: map[likeKey]int{}}
	}
	return b
}

// add buffers a row unless it is here already or its group holds enough; then the group is marked to be refilled later.
// It tells whether the row is here now.
func (b *backlog) add(r *ReadyRow) (added, here bool) {
	if w := b.rows[r.ID]; w != nil {
		if w.attempt > r.Attempt || (w.attempt == r.Attempt && w.buffer.key.tier == r.Tier) {
			if w.attempt == r.Attempt && r.State == Ready {
				w.state = Ready // its time has come, or it was ready all along
			}
			return false, true
		}
		b.remove(w)
	}
	g := b.group(BufferKey{Tenant: r.Tenant, Tier: r.Tier, Class: r.Class.Hash()})
	key := bufferKey{tenant: r.Tenant, tier: r.Tier, class: r.Class, suspect: r.Suspect}
	buf := b.buffers[key]
	if !g.accepts(r.Due) || (buf != nil && buf.parked && len(buf.rows) >= parkedRowsMax) {
		b.turnAway(g, r.Due, r.ID.Shard())
		return false, false
	}
	if buf == nil {
		buf = &buffer{key: key, kind: r.Kind, group: g, index: -1}
		b.buffers[key] = buf
	}
	b.insert(buf, &waiting{id: r.ID, attempt: r.Attempt, due: r.Due, state: r.State, size: r.PayloadSize, buffer: buf})
	return true, true
}

func (b *backlog) insert(buf *buffer, w *waiting) {
	g := buf.group
	if (g.rows == 0 && !g.behind) || w.due.After(g.latest) {
		g.latest = w.due
	}
	g.rows++
	b.rows[w.id] = w
	b.classes[buf.key.class]++
	b.perKind[buf.kind]++
	heap.Push(&buf.rows, w)
	b.settle(buf)
}

// remove takes a row out.
func (b *backlog) remove(w *waiting) {
	buf := w.buffer
	heap.Remove(&buf.rows, w.index)
	delete(b.rows, w.id)
	if b.classes[buf.key.class]--; b.classes[buf.key.class] == 0 {
		delete(b.classes, buf.key.class)
	}
	if b.perKind[buf.kind]--; b.perKind[buf.kind] == 0 {
		delete(b.perKind, buf.kind)
	}
	b.settle(buf)
	buf.group.rows--
	b.consider(buf.group)
}

// settle puts a buffer where it belongs after its rows changed: into its tenant's heap by its head, or nowhere when empty.
func (b *backlog) settle(buf *buffer) {
	tier := b.tiers[buf.key.tier]
	switch {
	case len(buf.rows) == 0:
		tier.extract(buf)
		b.release(buf)
		delete(b.buffers, buf.key)
	case buf.index >= 0:
		heap.Fix(tier.tenants[buf.key.tenant], buf.index)
	case !buf.parked:
		tier.insert(buf)
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

// park sets a buffer aside until a worker of its kind joins. Only its first rows are kept: the store has the others.
func (b *backlog) park(buf *buffer) {
	b.tiers[buf.key.tier].extract(buf)
	of := b.parked[buf.kind]
	if of == nil {
		of = map[bufferKey]*buffer{}
		b.parked[buf.kind] = of
	}
	of[buf.key], buf.parked = buf, true
	if len(buf.rows) <= parkedRowsMax {
		return
	}
	rows := slices.SortedFunc(slices.Values(buf.rows), (*waiting).compare)
	for _, w := range rows[parkedRowsMax:] {
		g := buf.group
		b.remove(w)
		b.turnAway(g, w.due, w.id.Shard())
	}
}

// unpark brings the buffers of a kind back: a worker that serves it has joined.
func (b *backlog) unpark(kind string) {
	for _, buf := range slices.SortedFunc(maps.Values(b.parked[kind]), func(x, y *buffer) int { return x.key.compare(y.key) }) {
		b.release(buf)
		b.tiers[buf.key.tier].insert(buf)
	}
}

// release takes a buffer out of those that are parked.
func (b *backlog) release(buf *buffer) {
	if !buf.parked {
		return
	}
	buf.parked = false
	delete(b.parked[buf.kind], buf.key)
	if len(b.parked[buf.kind]) == 0 {
		delete(b.parked, buf.kind)
	}
}

// retain drops the rows of shards that are no longer ours; their new owner reads them from the store.
func (b *backlog) retain(mine func(shard uint8) bool) {
	for _, g := range b.groups { // each for itself: in any order
		maps.DeleteFunc(g.read, func(shard uint8, _ Position) bool { return !mine(shard) })
	}
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

// overtaken tells whether a new row of the class would overtake one that waits, here or in the store.
func (b *backlog) overtaken(class Class) bool {
	return b.classes[class] > 0 || b.behind[class.Hash()] > 0
}

// has tells whether rows of a kind wait.
func (b *backlog) has(kind string) bool { return b.perKind[kind] > 0 }

// kinds lists the kinds of the rows that wait, in order.
func (b *backlog) kinds() []string { return slices.Sorted(maps.Keys(b.perKind)) }
