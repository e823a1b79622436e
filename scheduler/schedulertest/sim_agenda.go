package schedulertest

import (
	"container/heap"
	"time"
)

// event is something that will happen at a moment of virtual time.
type event struct {
	at  time.Duration
	seq uint64 // of two events at one moment the one that was planned first happens first
	do  func()
}

// agenda is the queue of events; every choice between two of them is made by their numbers.
type agenda struct {
	events eventHeap
	last   uint64
}

func (a *agenda) add(at time.Duration, do func()) {
	a.last++
	heap.Push(&a.events, event{at: at, seq: a.last, do: do})
}

// at plans an event.
func (s *sim) at(moment time.Duration, do func()) { s.agenda.add(max(moment, s.now), do) }

func (s *sim) after(d time.Duration, do func()) { s.at(s.now+d, do) }

// step lets the next event happen.
func (s *sim) step() bool {
	if len(s.agenda.events) == 0 {
		return false
	}
	next := heap.Pop(&s.agenda.events).(event)
	s.now = next.at
	next.do()
	return true
}

// chance is true with a probability.
func (s *sim) chance(p float64) bool { return s.rand.Float64() < p }

// upTo draws a time in [0, d).
func (s *sim) upTo(d time.Duration) time.Duration { return time.Duration(s.rand.Int64N(int64(d))) }

func (s *sim) between(from, to time.Duration) time.Duration { return from + s.upTo(to-from) }

// bytes16 draws an identity.
func (s *sim) bytes16() [16]byte {
	var id [16]byte
	for i := range id {
		id[i] = byte(s.rand.Uint32())
	}
	return id
}

type eventHeap []event

func (h eventHeap) Len() int { return len(h) }
func (h eventHeap) Less(i, j int) bool {
	if h[i].at != h[j].at {
		return h[i].at < h[j].at
	}
	return h[i].seq < h[j].seq
}
func (h eventHeap) Swap(i, j int) { h[i], h[j] = h[j], h[i] }
func (h *eventHeap) Push(x any)   { *h = append(*h, x.(event)) }
func (h *eventHeap) Pop() any {
	old := *h
	last := old[len(old)-1]
	old[len(old)-1] = event{}
	*h = old[:len(old)-1]
	return last
}
