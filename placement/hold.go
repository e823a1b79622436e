package placement

import (
	"cmp"
	"slices"
)

// HoldsMax is how many workers are held at once.
const HoldsMax = 8

// hold keeps a worker's free capacity for one need.
type hold struct {
	need Need // without what does not matter for whose it is
	on   *member
}

func (n *Need) held() Need { return Need{Tenant: n.Tenant, Kind: n.Kind, Shape: n.Shape} }

// Hold keeps what is free on one worker from all other needs, until an attempt of this need is placed (anywhere), or Release is called, or
// the worker drains or leaves: else a large attempt may wait for ever while small ones take each piece that becomes free. It picks the
// worker where the least is missing. It says no when no worker that takes work could ever run it, or when HoldsMax are held already.
// Who waits long enough for it, the caller decides.
func (p *Pool) Hold(n Need) (WorkerID, bool) {
	need := n.held()
	for _, h := range p.holds {
		if h.need == need {
			return h.on.worker.ID, true
		}
	}
	if len(p.holds) >= HoldsMax {
		return WorkerID{}, false
	}
	f := n.form()
	var best *seat
	least := 0.0
	for _, tenant := range slices.Compact([]string{n.Tenant, ""}) {
		g := p.groups[groupKey{tenant, n.Kind}]
		if g == nil {
			continue
		}
		for _, s := range g.seats {
			if s.member.held || !s.couldFit(&f) || !s.member.suits(&f).selected {
				continue
			}
			missing := s.missing(&f)
			if best == nil || missing < least || missing == least && s.member.worker.ID.Compare(best.member.worker.ID) < 0 {
				best, least = s, missing
			}
		}
	}
	if best == nil {
		return WorkerID{}, false
	}
	best.member.held = true
	p.holds = append(p.holds, hold{need, best.member})
	return best.member.worker.ID, true
}

// Release gives up what Hold keeps for a need.
func (p *Pool) Release(n Need) { p.unhold(func(h hold) bool { return h.need == n.held() }) }

func (p *Pool) unhold(which func(hold) bool) {
	if len(p.holds) == 0 {
		return
	}
	p.holds = slices.DeleteFunc(p.holds, func(h hold) bool {
		if !which(h) {
			return false
		}
		h.on.held = false
		return true
	})
}

// mayUse tells whether a held worker is held for this need.
func (p *Pool) mayUse(m *member, n *Need) bool {
	return slices.ContainsFunc(p.holds, func(h hold) bool { return h.on == m && h.need == n.held() })
}

// missing is how much must become free until it fits, as the sum of the parts of what it wants.
func (s *seat) missing(f *form) float64 {
	sum := 0.0
	for _, l := range s.lacks(f) {
		if l.Wanted > 0 {
			sum += float64(l.Wanted-min(l.Free, l.Wanted)) / float64(l.Wanted)
		}
	}
	return sum
}

// byMissing orders workers by how near they are.
func byMissing(a, b Near) int {
	return cmp.Or(cmp.Compare(a.Rank, b.Rank), cmp.Compare(a.Missing, b.Missing), a.Worker.Compare(b.Worker))
}
