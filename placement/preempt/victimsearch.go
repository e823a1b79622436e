package preempt

import (
	"bytes"
	"cmp"
	"slices"
	"time"

	"github.com/errandhq/errand/placement"
)

// search looks for the cheapest set of candidates on one worker that is enough: see [Victims].
type search struct {
	space      space       // with those gone that are leaving
	candidates []candidate // the cheapest first
	found      bool
	best       set // if found
	trial      set // of the search through all sets
	bound      set // what has to be beaten; only its cost and size count
	bounded    bool
}

// set is some of the candidates, by their places.
type set struct {
	cost  time.Duration
	size  int
	which []int
}

// cheaper orders sets: by cost, then by size.
func (s *set) cheaper(other *set) bool {
	return cmp.Or(cmp.Compare(s.cost, other.cost), cmp.Compare(s.size, other.size)) < 0
}

// run finds a set, and tells whether there is one that may be better than the best choice so far.
func (s *search) run(worker placement.WorkerID, best Choice) bool {
	if !s.enough() {
		return false
	}
	byPlace := make([]int, len(s.candidates))
	for i := range byPlace {
		byPlace[i] = i
	}
	slices.Reverse(byPlace)
	s.keep(s.reprieve(byPlace))
	slices.SortStableFunc(byPlace, func(a, b int) int { return cmp.Compare(s.candidates[b].dear, s.candidates[a].dear) })
	s.keep(s.reprieve(byPlace))
	if len(s.candidates) > VictimExactMax {
		return true
	}
	if best.Verdict == Preempt { // a set as good as the best counts only on a smaller worker
		s.bounded, s.bound = true, set{cost: best.Cost, size: len(best.Victims)}
		if worker.Compare(best.Worker) < 0 {
			s.bound.size++
		}
	}
	s.extend(0)
	return true
}

// enough tells whether it would do if all went.
func (s *search) enough() bool {
	space := s.space
	for _, c := range s.candidates {
		space.add(c.Running, 1)
	}
	return space.fits()
}

// reprieve lets all go, then lets each stay without which enough goes, in the order given.
func (s *search) reprieve(order []int) set {
	space := s.space
	for _, c := range s.candidates {
		space.add(c.Running, 1)
	}
	var gone set
	for _, i := range order {
		c := &s.candidates[i]
		space.add(c.Running, -1)
		if !space.fits() {
			space.add(c.Running, 1)
			gone.push(i, c.cost)
		}
	}
	return gone
}

// extend tries all sets that contain the trial and candidates from a place on, and are cheaper than the best.
func (s *search) extend(from int) {
	if s.space.fits() {
		s.keep(set{s.trial.cost, s.trial.size, slices.Clone(s.trial.which)})
		return
	}
	for i := from; i < len(s.candidates); i++ {
		c := &s.candidates[i]
		s.trial.push(i, c.cost)
		hopeless := !s.trial.cheaper(&s.best) || s.bounded && !s.trial.cheaper(&s.bound)
		if !hopeless {
			s.space.add(c.Running, 1)
			s.extend(i + 1)
			s.space.add(c.Running, -1)
		}
		s.trial.pop(c.cost)
		if hopeless { // those behind cost no less
			return
		}
	}
}

func (s *search) keep(found set) {
	if !s.found || found.cheaper(&s.best) {
		s.found, s.best = true, found
	}
}

func (s *search) choice(worker placement.WorkerID) Choice {
	c := Choice{Verdict: Preempt, Worker: worker, Cost: s.best.cost}
	for _, i := range s.best.which {
		s.space.add(s.candidates[i].Running, 1)
		c.Victims = append(c.Victims, s.candidates[i].Task)
	}
	slices.SortFunc(c.Victims, func(a, b [16]byte) int { return bytes.Compare(a[:], b[:]) })
	c.Devices = s.space.devicesFor()
	return c
}

func (s *set) push(i int, cost time.Duration) {
	s.which = append(s.which, i)
	s.cost += cost
	s.size++
}

func (s *set) pop(cost time.Duration) {
	s.which = s.which[:len(s.which)-1]
	s.cost -= cost
	s.size--
}
