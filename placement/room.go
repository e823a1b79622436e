package placement

import "slices"

// room is what a worker has and what of it is in use, beside the slots of its kinds.
type room struct {
	// What is asked for every worker in a scan stands together.
	cpu, mem, slots int64  // free; amountMax and more where it is not counted
	whole, widest   int    // devices that are free as a whole; the most that is free of one
	version         uint32 // changes with every change of the worker
	counted         bool   // it has declared a capacity
	held            bool   // kept for one need: see Pool.Hold

	has, used Resources
	taken     []int32  // of each device, in thousandths; longer than what it has when it has become smaller
	free      []uint16 // of each device that it has
	left      int      // free of all devices
	matches   map[*Shape]match
	worth     worth
}

// matchesMax bounds how many shapes a worker remembers to suit or not.
const matchesMax = 256

// declare takes in what the worker says of itself now.
func (m *member) declare(w *Worker) {
	m.counted, m.has, m.matches = w.Capacity != nil, Resources{}, nil
	if c := w.Capacity; c != nil {
		m.has = Resources{
			CPUMilli: amount(c.CPUMilli), MemoryMiB: amount(c.MemoryMiB), Slots: amount(c.Slots), GPUs: min(amount(c.GPUs), DevicesMax),
		}
		own := *c
		m.worker.Capacity = &own
	}
	m.worth = worth{}
	m.measure()
}

// measure counts what is free anew after a change.
func (m *member) measure() {
	m.version++
	m.cpu, m.mem, m.slots = m.has.CPUMilli-m.used.CPUMilli, m.has.MemoryMiB-m.used.MemoryMiB, m.has.Slots-m.used.Slots
	if !m.counted {
		m.cpu, m.mem = amountMax, amountMax
	}
	if m.has.Slots == 0 {
		m.slots = amountMax
	}
	m.whole, m.widest, m.left, m.free = 0, 0, 0, m.free[:0]
	for i := range int(m.has.GPUs) {
		free := DeviceMilli
		if i < len(m.taken) {
			free = max(DeviceMilli-int(m.taken[i]), 0)
		}
		m.free = append(m.free, uint16(free))
		m.widest, m.left = max(m.widest, free), m.left+free
		if free == DeviceMilli {
			m.whole++
		}
	}
}

// occupy takes resources and devices, or (-1) gives them back.
func (m *member) occupy(f *form, on Devices, sign int) {
	m.used.CPUMilli = max(m.used.CPUMilli+int64(sign)*f.cpu, 0)
	m.used.MemoryMiB = max(m.used.MemoryMiB+int64(sign)*f.mem, 0)
	m.used.Slots = max(m.used.Slots+int64(sign*f.slots), 0)
	each := DeviceMilli
	if f.gpus == 0 {
		each = f.milli
	}
	on.each(func(i int) {
		for len(m.taken) <= i {
			m.taken = append(m.taken, 0)
		}
		m.taken[i] = int32(max(int(m.taken[i])+sign*each, 0))
	})
	m.measure()
}

// fits tells whether there is room on the worker now, whatever its labels.
func (s *seat) fits(f *form) bool {
	m := s.member
	return s.slots-s.used >= f.slots && m.cpu >= f.cpu && m.mem >= f.mem && m.whole >= f.gpus && m.widest >= f.milli &&
		m.slots >= int64(f.slots) && !f.impossible
}

// couldFit tells whether there would be room on the empty worker.
func (s *seat) couldFit(f *form) bool {
	m := s.member
	if f.impossible || s.slots < f.slots {
		return false
	}
	if !m.counted {
		return f.gpus == 0 && f.milli == 0
	}
	devices := int64(f.gpus)
	if f.milli > 0 {
		devices = 1
	}
	return m.has.CPUMilli >= f.cpu && m.has.MemoryMiB >= f.mem && m.has.GPUs >= devices && (m.has.Slots == 0 || m.has.Slots >= int64(f.slots))
}

// suits tells how the worker's labels suit the form; it remembers.
func (m *member) suits(f *form) match {
	if !f.picky {
		return match{selected: true}
	}
	known, here := m.matches[f.shape]
	if !here {
		known = f.suits(&m.worker)
		if m.matches == nil || len(m.matches) >= matchesMax {
			m.matches = map[*Shape]match{}
		}
		m.matches[f.shape] = known
	}
	return known
}

// anyDevices chooses devices for an attempt that is there already: those with the most room, though it be not enough.
func (m *member) anyDevices(f *form) Devices {
	wanted := min(f.gpus, DevicesMax)
	if f.milli > 0 {
		wanted = 1
	}
	if wanted == 0 {
		return 0
	}
	order := make([]int, max(int(m.has.GPUs), wanted))
	for i := range order {
		order[i] = i
	}
	taken := func(i int) int32 {
		if i < len(m.taken) {
			return m.taken[i]
		}
		return 0
	}
	slices.SortStableFunc(order, func(a, b int) int {
		if f.milli > 0 { // the tightest that has room, before the others
			fitsA, fitsB := int(taken(a)) <= DeviceMilli-f.milli, int(taken(b)) <= DeviceMilli-f.milli
			switch {
			case fitsA && fitsB:
				return int(taken(b) - taken(a))
			case fitsA:
				return -1
			case fitsB:
				return 1
			}
		}
		return int(taken(a) - taken(b))
	})
	var on Devices
	for _, i := range order[:wanted] {
		on = on.with(i)
	}
	return on
}
