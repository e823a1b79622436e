package placement

import "slices"

// Offers lists workers with room as if they were smaller and empty: what is free of each, at most limit of them, those with the most free
// slots first. A part of a device that is free beside what is taken of it is not offered. Another instance places its own waiting rows on
// them, see scheduler.Core.Lend.
func (p *Pool) Offers(limit int) []Worker {
	var roomy []*member
	for _, m := range p.members { // in any order: they are put in order
		if !m.draining && !m.held && m.freeSlots() > 0 {
			roomy = append(roomy, m)
		}
	}
	slices.SortFunc(roomy, func(a, b *member) int {
		if d := b.freeSlots() - a.freeSlots(); d != 0 {
			return d
		}
		return a.worker.ID.Compare(b.worker.ID)
	})
	offers := make([]Worker, 0, min(len(roomy), limit))
	for _, m := range roomy[:min(len(roomy), limit)] {
		w := Worker{ID: m.worker.ID, Tenant: m.worker.Tenant, Slots: map[string]int{}, Zone: m.worker.Zone, Labels: m.worker.Labels}
		for kind, s := range m.seats { // into a map
			if s.free() > 0 {
				w.Slots[kind] = s.free()
			}
		}
		if m.counted {
			w.Capacity = &Resources{CPUMilli: max(m.cpu, 0), MemoryMiB: max(m.mem, 0), GPUs: int64(m.whole)}
			if m.has.Slots > 0 {
				w.Capacity.Slots = max(m.slots, 0)
			}
		}
		offers = append(offers, w)
	}
	return offers
}

// freeSlots is how many attempts of all its kinds together the worker has slots for.
func (m *member) freeSlots() int {
	n := 0
	for _, s := range m.seats { // a sum
		n += max(s.free(), 0)
	}
	if m.has.Slots > 0 {
		n = min(n, int(max(m.slots, 0)))
	}
	return n
}
