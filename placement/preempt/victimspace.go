package preempt

import (
	"math/bits"

	"github.com/errandhq/errand/placement"
)

// space is what is free on a worker, as far as a preemptor asks for it. What runs above a capacity that has become smaller makes it negative.
type space struct {
	p                    *Preemptor
	cpu                  int64
	memory               int64
	slots                int64 // over all kinds
	kind                 int64 // of the preemptor's kind
	uncounted, unbounded bool  // no processors and memory are counted; no slots over all kinds
	devices              int   // of the worker
	taken                [placement.DevicesMax]int64
}

// emptySpace is all that a worker has.
func emptySpace(p *Preemptor, h *Held) space {
	s := space{p: p, kind: int64(h.Slots[p.Kind]), uncounted: h.Capacity == nil, unbounded: true}
	if c := h.Capacity; c != nil {
		s.cpu, s.memory, s.slots = amount(c.CPUMilli), amount(c.MemoryMiB), amount(c.Slots)
		s.unbounded = c.Slots <= 0
		s.devices = int(min(amount(c.GPUs), placement.DevicesMax))
	}
	return s
}

// spaceOf is what is free now and kept for nobody.
func spaceOf(p Preemptor, h *Held) space {
	s := emptySpace(&p, h)
	for i := range h.Running {
		s.add(&h.Running[i], -1)
	}
	for i := range h.Kept {
		k := &h.Kept[i]
		s.addAmounts(k.Kind, k.Need, k.Devices, -1)
	}
	return s
}

// emptied is the space if nothing ran there.
func (s *space) emptied(h *Held) space { return emptySpace(s.p, h) }

// add gives back what an attempt has (1), or takes it (-1).
func (s *space) add(r *Running, sign int64) { s.addAmounts(r.Kind, r.Uses, r.Devices, sign) }

func (s *space) addAmounts(kind string, r placement.Resources, devices uint64, sign int64) {
	s.cpu += sign * amount(r.CPUMilli)
	s.memory += sign * amount(r.MemoryMiB)
	s.slots += sign * slots(r)
	if kind == s.p.Kind {
		s.kind += sign * slots(r)
	}
	for left := devices; left != 0; left &= left - 1 {
		s.taken[bits.TrailingZeros64(left)] -= sign * ofDevice(r)
	}
}

// ofDevice is how much of each of its devices an attempt has.
func ofDevice(r placement.Resources) int64 {
	if r.GPUs > 0 {
		return placement.DeviceMilli
	}
	return min(amount(r.GPUMilli), placement.DeviceMilli)
}

// fits tells whether there is room for the preemptor. Of what it does not need there may be less than nothing.
func (s *space) fits() bool {
	n := &s.p.Need
	return s.missingCPU() <= 0 && s.missingMemory() <= 0 && s.missingSlots() <= 0 && s.missingKind() <= 0 &&
		(n.GPUs <= 0 && n.GPUMilli <= 0 || s.devicesFor() != 0)
}

func (s *space) missingCPU() int64 {
	if s.uncounted || s.p.Need.CPUMilli <= 0 {
		return 0
	}
	return amount(s.p.Need.CPUMilli) - s.cpu
}

func (s *space) missingMemory() int64 {
	if s.uncounted || s.p.Need.MemoryMiB <= 0 {
		return 0
	}
	return amount(s.p.Need.MemoryMiB) - s.memory
}

func (s *space) missingSlots() int64 {
	if s.unbounded {
		return 0
	}
	return slots(s.p.Need) - s.slots
}

func (s *space) missingKind() int64 { return slots(s.p.Need) - s.kind }

// devicesFor picks devices for the preemptor: the first that are wholly free, or the fullest that has room for its share. None means that
// there is no room for what it needs, or that it needs none.
func (s *space) devicesFor() uint64 {
	n := &s.p.Need
	switch {
	case n.GPUs > 0 && n.GPUMilli > 0: // nobody may ask for both
		return 0
	case n.GPUs > 0:
		return s.wholeDevices(amount(n.GPUs))
	case n.GPUMilli > 0:
		return s.fullestDevice(amount(n.GPUMilli))
	default:
		return 0
	}
}

func (s *space) wholeDevices(want int64) uint64 {
	var picked uint64
	for i := range s.devices {
		if want > 0 && s.taken[i] <= 0 {
			picked |= 1 << i
			want--
		}
	}
	if want > 0 {
		return 0
	}
	return picked
}

func (s *space) fullestDevice(want int64) uint64 {
	best := -1
	for i := range s.devices {
		if s.taken[i]+want <= placement.DeviceMilli && (best < 0 || s.taken[i] > s.taken[best]) {
			best = i
		}
	}
	if best < 0 {
		return 0
	}
	return 1 << best
}

// gain is how much an attempt would free of what is missing: the sum of its parts of it, 0 if it would help in nothing.
func (s *space) gain(r *Running) float64 {
	gain := relief(r.Uses.CPUMilli, s.missingCPU()) + relief(r.Uses.MemoryMiB, s.missingMemory()) + relief(slots(r.Uses), s.missingSlots())
	if r.Kind == s.p.Kind {
		gain += relief(slots(r.Uses), s.missingKind())
	}
	if n := &s.p.Need; (n.GPUs > 0 || n.GPUMilli > 0) && s.devicesFor() == 0 {
		freed := int64(bits.OnesCount64(r.Devices&(1<<s.devices-1))) * ofDevice(r.Uses)
		gain += relief(freed, max(amount(n.GPUs)*placement.DeviceMilli, amount(n.GPUMilli)))
	}
	return gain
}

func relief(freed, missing int64) float64 {
	if freed <= 0 || missing <= 0 {
		return 0
	}
	return float64(min(freed, missing)) / float64(missing)
}
