package scheduler

import (
	"container/heap"
	"time"

	"github.com/errandhq/errand/placement"
)

// phase is how far an attempt has come, as its scheduler knows it.
type phase uint8

const (
	claiming phase = iota + 1 // room is reserved, the write that makes it an attempt is under way
	sent                      // the assignment went out, the worker has not answered
	running                   // the worker has accepted it
	stopping                  // the worker was told to stop
	ending                    // the room is free again, the write that ends it is under way
)

var phaseNames = [...]string{"", "claiming", "sent", "running", "stopping", "ending"}

func (p phase) String() string { return phaseNames[p] }

// StopCause says why a worker must stop an attempt.
type StopCause uint8

// The causes.
const (
	StopCanceled StopCause = iota + 1 // somebody asked for it
	StopTimedOut                      // it ran longer than its cap
	StopLost                          // it is not this worker's any more: stop at once, nothing it says counts
)

var stopNames = [...]string{"", "canceled", "timed_out", "lost"}

// String is the cause's word.
func (s StopCause) String() string { return stopNames[s] }

// attempt is a running row, or one that is about to be, as the core sees it.
type attempt struct {
	Held
	phase    phase
	stop     StopCause
	deadline time.Time // when something must happen without a word from the worker
	index    int       // in the core's deadlines; -1 when it has none
	class    Class
	limits   []LimitKey
	shape    *placement.Shape
	gates    []*gate // that it has passed: it holds a slot of each
	charge   charge
	size     int               // of its payload, as far as known
	devices  placement.Devices // of its worker's, that it has
	room     bool              // room is reserved for it on its worker
	urgent   bool              // it went before the rest, and its room is not counted among theirs
}

func (a *attempt) groupKey() BufferKey {
	return BufferKey{Tenant: a.Tenant, Tier: a.Tier, Class: a.class.Hash()}
}

// atWorker tells whether its worker has it, or is about to.
func (a *attempt) atWorker() bool {
	return a.phase == sent || a.phase == running || a.phase == stopping
}

func (a *attempt) need() placement.Need {
	return placement.Need{Tenant: a.Tenant, Kind: a.Kind, Suspect: a.Suspect, Urgent: a.urgent, Shape: a.shape}
}

func (a *attempt) place() placement.Placement {
	return placement.Placement{Worker: a.Worker, Devices: a.devices}
}

// deadlineHeap orders attempts by their deadline, then ID.
type deadlineHeap []*attempt

func (h deadlineHeap) Len() int { return len(h) }
func (h deadlineHeap) Less(i, j int) bool {
	if !h[i].deadline.Equal(h[j].deadline) {
		return h[i].deadline.Before(h[j].deadline)
	}
	return h[i].ID.Compare(h[j].ID) < 0
}

func (h deadlineHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].index, h[j].index = i, j
}

func (h *deadlineHeap) Push(x any) {
	a := x.(*attempt)
	a.index = len(*h)
	*h = append(*h, a)
}

func (h *deadlineHeap) Pop() any {
	old := *h
	a := old[len(old)-1]
	old[len(old)-1] = nil
	*h = old[:len(old)-1]
	a.index = -1
	return a
}

// attempts holds what a core knows of running rows.
type attempts struct {
	byID      map[ID]*attempt
	byWorker  map[WorkerID]map[ID]*attempt
	deadlines deadlineHeap
}

func newAttempts() *attempts {
	return &attempts{byID: map[ID]*attempt{}, byWorker: map[WorkerID]map[ID]*attempt{}}
}

func (s *attempts) add(a *attempt) {
	a.index = -1
	s.byID[a.ID] = a
	of := s.byWorker[a.Worker]
	if of == nil {
		of = map[ID]*attempt{}
		s.byWorker[a.Worker] = of
	}
	of[a.ID] = a
}

func (s *attempts) remove(a *attempt) {
	s.clearDeadline(a)
	delete(s.byID, a.ID)
	of := s.byWorker[a.Worker]
	delete(of, a.ID)
	if len(of) == 0 {
		delete(s.byWorker, a.Worker)
	}
}

func (s *attempts) setDeadline(a *attempt, at time.Time) {
	a.deadline = at
	if a.index >= 0 {
		heap.Fix(&s.deadlines, a.index)
		return
	}
	heap.Push(&s.deadlines, a)
}

func (s *attempts) clearDeadline(a *attempt) {
	if a.index >= 0 {
		heap.Remove(&s.deadlines, a.index)
	}
}
