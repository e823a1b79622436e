package placement

import "math/bits"

// Devices are some of a worker's GPU devices, as a set of their numbers.
type Devices uint64

// Has tells whether device i is one of them.
func (d Devices) Has(i int) bool { return d>>uint(i)&1 == 1 }

// Len is how many they are.
func (d Devices) Len() int { return bits.OnesCount64(uint64(d)) }

func (d Devices) with(i int) Devices { return d | 1<<uint(i) }

// each calls f with the number of every device, from the smallest.
func (d Devices) each(f func(i int)) {
	for ; d != 0; d &= d - 1 {
		f(bits.TrailingZeros64(uint64(d)))
	}
}

// Placement is where an attempt has its room: what Free must be told to give exactly that back.
type Placement struct {
	Worker  WorkerID
	Devices Devices // none for an attempt that asks for none
}
