package placement

import (
	"cmp"
	"maps"
	"slices"
)

// This file holds what a scheduler tells another of the room that its workers have, and how the other finds out what would fit there.

// Bounds of offers.
const (
	OffersMax     = 32 // workers that are offered at once
	OfferKindsMax = 64 // of one worker
	offersBest    = 16 // of those offered, those with the most room; the others are offered in turn
)

// Offer is what is free on a worker.
type Offer struct {
	Tenant string         // it serves only this tenant's tasks; empty for everybody's
	Slots  map[string]int // free, by kind
	// Free is what is free over all kinds; Slots of 0 are as many as its kinds have. Nil: it counts the slots of its kinds only, and has
	// no devices.
	Free    *Resources
	Devices []int // of each device that it has what is free, in thousandths
	Suspect bool  // it runs a suspect, and takes no other
	Zone    string
	Labels  map[string]string
}

// Offers lists what is free on workers that take work, of the kinds that are wanted: of those with the most free, and of others in the
// order of their identities from one on, so that each is offered in its time. It returns from where to go on. What is held for a need
// is not offered.
func (p *Pool) Offers(after WorkerID, wanted func(tenant, kind string) bool) ([]Offer, WorkerID) {
	best := leading[offered]{most: offersBest, compare: offered.compareRoom}
	for _, m := range p.members { // in any order: they are put in order
		if o := m.offered(wanted); len(o.kinds) > 0 {
			best.add(o)
		}
	}
	taken := map[WorkerID]bool{}
	for _, o := range best.all {
		taken[o.member.worker.ID] = true
	}
	turn := leading[offered]{most: OffersMax - offersBest, compare: func(a, b offered) int { return a.compareTurn(b, after) }}
	for _, m := range p.members {
		if o := m.offered(wanted); len(o.kinds) > 0 && !taken[m.worker.ID] {
			turn.add(o)
		}
	}
	var offers []Offer
	for _, o := range slices.Concat(best.all, turn.all) {
		offers = append(offers, o.offer())
	}
	if n := len(turn.all); n > 0 {
		after = turn.all[n-1].member.worker.ID
	}
	return offers, after
}

// offered is a worker and the kinds for which it has wanted room.
type offered struct {
	member *member
	kinds  []string
	slots  int // free for them
}

func (m *member) offered(wanted func(tenant, kind string) bool) offered {
	o := offered{member: m}
	if m.draining || m.held || m.slots <= 0 || m.cpu < 0 || m.mem < 0 { // what runs more than it has takes nothing
		return o
	}
	for kind, s := range m.seats { // in any order: they are put in order when it is offered
		if s.free() > 0 && wanted(m.worker.Tenant, kind) {
			o.kinds = append(o.kinds, kind)
			o.slots += s.free()
		}
	}
	return o
}

// compareRoom puts the one with more free room first: devices are rarer than slots, and slots than memory.
func (o offered) compareRoom(other offered) int {
	a, b := o.member, other.member
	return cmp.Or(
		cmp.Compare(b.left, a.left), cmp.Compare(other.slots, o.slots), cmp.Compare(b.cpu, a.cpu), cmp.Compare(b.mem, a.mem),
		a.worker.ID.Compare(b.worker.ID),
	)
}

// compareTurn orders by identity, beginning after one.
func (o offered) compareTurn(other offered, after WorkerID) int {
	a, b := o.member.worker.ID, other.member.worker.ID
	if early := a.Compare(after) <= 0; early != (b.Compare(after) <= 0) {
		if early {
			return 1
		}
		return -1
	}
	return a.Compare(b)
}

func (o offered) offer() Offer {
	m := o.member
	told := Offer{Tenant: m.worker.Tenant, Slots: map[string]int{}, Suspect: m.suspects > 0, Zone: m.worker.Zone, Labels: maps.Clone(m.worker.Labels)}
	slices.Sort(o.kinds)
	for _, kind := range o.kinds[:min(len(o.kinds), OfferKindsMax)] {
		told.Slots[kind] = m.seats[kind].free()
	}
	if !m.counted {
		return told
	}
	told.Free = &Resources{CPUMilli: m.cpu, MemoryMiB: m.mem}
	if m.has.Slots > 0 {
		told.Free.Slots = m.slots
	}
	for _, free := range m.free {
		told.Devices = append(told.Devices, int(free))
	}
	return told
}

// PoolOf is a pool of workers that have what is offered and run nothing: what Place finds room for in it would find room there. At most
// OffersMax are taken, and what no worker can have is cut.
func PoolOf(offers []Offer) *Pool {
	p := NewPool()
	for i := range offers[:min(len(offers), OffersMax)] {
		o := &offers[i]
		w := Worker{ID: WorkerID{15: byte(i + 1)}, Tenant: o.Tenant, Slots: o.Slots, Zone: o.Zone, Labels: o.Labels}
		if o.Free != nil {
			has := *o.Free
			has.GPUs, has.GPUMilli = int64(len(o.Devices)), 0
			w.Capacity = &has
		}
		p.Join(w)
		p.members[w.ID].open(o)
	}
	return p
}

// open has a worker that has just joined have only what is offered of its devices.
func (m *member) open(o *Offer) {
	if o.Suspect {
		m.suspects = 1
	}
	for i := range int(m.has.GPUs) {
		m.taken = append(m.taken, int32(DeviceMilli-min(max(o.Devices[i], 0), DeviceMilli)))
	}
	m.measure()
}

// leading keeps the first of many in an order.
type leading[T any] struct {
	all     []T
	most    int
	compare func(a, b T) int
}

func (l *leading[T]) add(one T) {
	if len(l.all) == l.most && l.compare(one, l.all[l.most-1]) >= 0 {
		return
	}
	at, _ := slices.BinarySearchFunc(l.all, one, l.compare)
	l.all = slices.Insert(l.all, at, one)
	l.all = l.all[:min(len(l.all), l.most)]
}
