package placement

import (
	"container/heap"
	"maps"
	"math"
	"slices"
)

// Worker is what a worker says of itself when it connects.
type Worker struct {
	ID     WorkerID
	Name   string
	Tenant string         // serves only this tenant's tasks; empty serves everybody's (a pool worker)
	Slots  map[string]int // attempts at once, by kind; a kind with no positive number is not served
	// Capacity is what it has over all kinds together. Nil: processors and memory are not counted, and it has no devices.
	Capacity *Resources
	Zone     string
	Labels   map[string]string
}

// Need is what an attempt asks of a worker.
type Need struct {
	Tenant  string
	Kind    string
	Suspect bool   // was running when a worker was lost: only one such attempt at a time on a worker
	Urgent  bool   // goes before the rest: see Fill.BesideUrgent
	Shape   *Shape // nil needs one slot and nothing else
	// Avoid is a worker where an attempt of the same task has just failed: any other with room comes before it. Zero for none.
	Avoid WorkerID
}

// Fill bounds what may be in use of the slots for a kind after a start. Of a small capacity at least one slot may be used.
type Fill struct {
	Part float64 // of the slots, 1 for all of them
	// BesideUrgent leaves urgent attempts out of what is in use. Then a part is kept free of everything else, and urgent attempts
	// that fill it keep nobody out.
	BesideUrgent bool
}

// Pool is the view of the workers connected to one scheduler instance. It is not safe for concurrent use.
type Pool struct {
	members map[WorkerID]*member
	groups  map[groupKey]*group
	own     int // workers that serve a single tenant
	demand  demand
	index   index
	holds   []hold
}

type groupKey struct{ tenant, kind string }

// group holds the seats of all workers that serve one kind for one tenant (or, with an empty tenant, for everybody).
type group struct {
	seats       seatHeap           // of workers that take work
	slots, used int                // of those; attempts above a worker's capacity are not counted
	plain       int                // of those used, without urgent attempts
	drained     map[*seat]struct{} // of workers that take none
	counted     int                // seats of workers that have declared a capacity
	has         Resources          // what those have together
	joined      uint64             // changes with every seat that comes or goes
	candidates
}

type member struct {
	room
	worker   Worker
	seats    map[string]*seat
	draining bool
	suspects int
}

// seat is one worker's capacity for one kind.
type seat struct {
	member       *member
	group        *group
	tenant, kind string // the group's key
	slots, used  int
	urgent       int    // of those used
	index        int    // in the group's heap; -1 when it is not there
	logged       uint64 // where its last change stands in the group's log, counted from 1
}

// NewPool returns an empty pool.
func NewPool() *Pool {
	return &Pool{members: map[WorkerID]*member{}, groups: map[groupKey]*group{}, demand: newDemand()}
}

// Join adds a worker, or replaces what a known one said of itself: what it runs stays reserved, also above a smaller
// capacity, and its draining mark is kept.
func (p *Pool) Join(w Worker) {
	m := p.members[w.ID]
	if m != nil && m.worker.Tenant != w.Tenant { // another credential: not the worker it was
		p.Leave(w.ID)
		m = nil
	}
	if m == nil {
		m = &member{seats: map[string]*seat{}}
		p.members[w.ID] = m
		if w.Tenant != "" {
			p.own++
		}
	}
	p.detach(m)
	m.worker = w
	m.worker.Slots = maps.Clone(w.Slots)
	m.declare(&w)
	for _, s := range m.seats {
		s.slots = max(w.Slots[s.kind], 0)
		p.dropIfUseless(s)
	}
	for kind, slots := range w.Slots {
		if m.seats[kind] == nil && slots > 0 {
			m.seats[kind] = p.seat(m, kind, slots)
		}
	}
	p.attach(m)
}

// Leave removes a worker and everything reserved on it.
func (p *Pool) Leave(id WorkerID) {
	m := p.members[id]
	if m == nil {
		return
	}
	p.detach(m)
	p.unhold(func(h hold) bool { return h.on == m })
	delete(p.members, id)
	if m.worker.Tenant != "" {
		p.own--
	}
	for _, s := range m.seats {
		p.dropIfEmpty(s)
	}
}

// Drain stops (or resumes) giving work to a worker. What it runs stays.
func (p *Pool) Drain(id WorkerID, draining bool) {
	m := p.members[id]
	if m == nil || m.draining == draining {
		return
	}
	p.detach(m)
	p.unhold(func(h hold) bool { return h.on == m })
	m.draining = draining
	p.attach(m)
}

// Worker returns what a worker said of itself, and whether it is in the pool.
func (p *Pool) Worker(id WorkerID) (Worker, bool) {
	m := p.members[id]
	if m == nil {
		return Worker{}, false
	}
	return m.worker, true
}

// Draining tells whether the worker is in the pool and takes no more work.
func (p *Pool) Draining(id WorkerID) bool {
	m := p.members[id]
	return m != nil && m.draining
}

// Used is how many slots of each kind are taken on a worker.
func (p *Pool) Used(id WorkerID) map[string]int {
	used := map[string]int{}
	if m := p.members[id]; m != nil {
		for kind, s := range m.seats {
			if s.used > 0 {
				used[kind] = s.used
			}
		}
	}
	return used
}

// FreeSlots is the number of attempts of a kind that could be placed now for tenants in general (pool workers only).
func (p *Pool) FreeSlots(kind string) int {
	g := p.groups[groupKey{"", kind}]
	if g == nil {
		return 0
	}
	free := 0
	for _, s := range g.seats {
		free += max(s.free(), 0)
	}
	return free
}

// Slots is the number of attempts of a kind that pool workers which take work can run at once.
func (p *Pool) Slots(kind string) int {
	g := p.groups[groupKey{"", kind}]
	if g == nil {
		return 0
	}
	return g.slots
}

// Load is how many attempts of a kind workers that take work can run at once for a tenant, and how many of the slots are taken.
type Load struct {
	Own, OwnUsed       int // of workers that serve the tenant only
	Shared, SharedUsed int // of pool workers
}

// Load returns the slots that a tenant's attempts of a kind may find.
func (p *Pool) Load(tenant, kind string) Load {
	var l Load
	if g := p.groups[groupKey{"", kind}]; g != nil {
		l.Shared, l.SharedUsed = g.slots, g.used
	}
	if g := p.groups[groupKey{tenant, kind}]; g != nil && tenant != "" {
		l.Own, l.OwnUsed = g.slots, g.used
	}
	return l
}

// IsOwn tells whether a worker serves a single tenant.
func (p *Pool) IsOwn(id WorkerID) bool {
	m := p.members[id]
	return m != nil && m.worker.Tenant != ""
}

// Kinds lists the kinds that pool workers take now, in no order.
func (p *Pool) Kinds() []string {
	var kinds []string
	for key, g := range p.groups {
		if key.tenant == "" && len(g.seats) > 0 {
			kinds = append(kinds, key.kind)
		}
	}
	return kinds
}

// HasOwn tells whether the tenant has workers of its own for the kind.
func (p *Pool) HasOwn(tenant, kind string) bool { return p.groups[groupKey{tenant, kind}] != nil }

// AnyOwn tells whether any worker serves a single tenant.
func (p *Pool) AnyOwn() bool { return p.own > 0 }

// IDs returns the workers in the pool, in no order.
func (p *Pool) IDs() []WorkerID { return slices.Collect(maps.Keys(p.members)) }

func (p *Pool) group(tenant, kind string) *group {
	key := groupKey{tenant, kind}
	g := p.groups[key]
	if g == nil {
		g = &group{drained: map[*seat]struct{}{}, candidates: candidates{of: map[*Shape]*seeker{}}}
		p.groups[key] = g
	}
	return g
}

func (p *Pool) seat(m *member, kind string, slots int) *seat {
	return &seat{member: m, kind: kind, tenant: m.worker.Tenant, slots: slots, group: p.group(m.worker.Tenant, kind), index: -1}
}

func (p *Pool) attach(m *member) {
	for _, s := range m.seats {
		p.attachSeat(s)
	}
}

func (p *Pool) attachSeat(s *seat) {
	s.group.joined++
	if s.member.draining {
		s.group.drained[s] = struct{}{}
		return
	}
	heap.Push(&s.group.seats, s)
	s.group.slots += s.slots
	s.count(1)
	s.group.count(s.member, 1)
	s.group.note(s)
}

func (p *Pool) detach(m *member) {
	for _, s := range m.seats {
		p.detachSeat(s)
	}
}

func (p *Pool) detachSeat(s *seat) {
	s.group.joined++
	s.member.version++ // what was found out about it is stale
	if s.member.draining {
		delete(s.group.drained, s)
		return
	}
	heap.Remove(&s.group.seats, s.index)
	s.group.slots -= s.slots
	s.count(-1)
	s.group.count(s.member, -1)
}

// dropIfUseless forgets a detached seat that has no room and carries nothing.
func (p *Pool) dropIfUseless(s *seat) {
	if s.slots == 0 && s.used == 0 {
		delete(s.member.seats, s.kind)
		p.dropIfEmpty(s)
	}
}

// dropIfEmpty forgets the group of a detached seat when no other worker is in it: groups are bounded by what connected
// workers serve.
func (p *Pool) dropIfEmpty(s *seat) {
	if key := (groupKey{s.tenant, s.kind}); len(s.group.seats)+len(s.group.drained) == 0 && p.groups[key] == s.group {
		delete(p.groups, key)
		p.index.drop(s.group)
	}
}

func (s *seat) free() int { return s.slots - s.used }

// busy is how many of its slots are in use; what runs above a capacity that has become smaller is not counted.
func (s *seat) busy() int { return min(s.used, s.slots) }

// plain is the same without urgent attempts.
func (s *seat) plain() int { return min(s.used-s.urgent, s.slots) }

// count takes the seat into its group's numbers, or (-1) out of them.
func (s *seat) count(sign int) {
	s.group.used += sign * s.busy()
	s.group.plain += sign * s.plain()
}

// take takes slots, or (a negative number) gives them back.
func (s *seat) take(slots int, of Need) {
	attached, attempts := s.index >= 0, 1
	if slots < 0 {
		attempts = -1
	}
	if attached {
		s.count(-1)
	}
	s.used = max(s.used+slots, 0)
	if of.Urgent {
		s.urgent = max(s.urgent+slots, 0)
	}
	if of.Suspect {
		s.member.suspects = max(s.member.suspects+attempts, 0)
	}
	if attached {
		s.count(1)
		heap.Fix(&s.group.seats, s.index)
	}
}

// reached tells whether as much is in use as may be.
func (g *group) reached(fill Fill) bool {
	used := g.used
	if fill.BesideUrgent {
		used = g.plain
	}
	return fill.Part < 1 && float64(used) >= math.Ceil(fill.Part*float64(g.slots))
}

// before orders seats: most free first, then the smaller identity.
func (s *seat) before(other *seat) bool {
	if s.free() != other.free() {
		return s.free() > other.free()
	}
	return s.member.worker.ID.Compare(other.member.worker.ID) < 0
}

type seatHeap []*seat

func (h seatHeap) Len() int           { return len(h) }
func (h seatHeap) Less(i, j int) bool { return h[i].before(h[j]) }
func (h seatHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].index, h[j].index = i, j
}

func (h *seatHeap) Push(x any) {
	s := x.(*seat)
	s.index = len(*h)
	*h = append(*h, s)
}

func (h *seatHeap) Pop() any {
	old := *h
	s := old[len(old)-1]
	*h = old[:len(old)-1]
	s.index = -1
	return s
}
