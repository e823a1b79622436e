package placement

// Place reserves room for one attempt and says where, or why not. A tenant's own workers come before the pool's.
func (p *Pool) Place(n Need, fill Fill) (Placement, Refusal) {
	at, f, refusal := p.find(&n, fill)
	if f == nil { // a slot like any other
		if at.seat == nil {
			return Placement{}, refusal
		}
		p.occupy(at.seat, &slotForm, n, 0)
		p.unhold(func(h hold) bool { return h.need == n.held() })
		return Placement{Worker: at.seat.member.worker.ID}, Placed
	}
	p.demand.arrive(f, refusal == Placed)
	if refusal != Placed {
		return Placement{}, refusal
	}
	p.occupy(at.seat, f, n, at.devices)
	p.unhold(func(h hold) bool { return h.need == n.held() })
	return Placement{at.seat.member.worker.ID, at.devices}, Placed
}

var slotForm = (&Need{}).form()

// spot is a place that was found.
type spot struct {
	seat    *seat
	devices Devices
}

// find chooses a worker and takes nothing. The form is nil for a need without a shape that was served from the free slots alone.
func (p *Pool) find(n *Need, fill Fill) (spot, *form, Refusal) {
	own, f := NoWorker, (*form)(nil)
	if n.Tenant != "" {
		if g := p.groups[groupKey{n.Tenant, n.Kind}]; g != nil {
			at, used, refusal := p.findIn(g, n, fill)
			if refusal == Placed {
				return at, used, Placed
			}
			own, f = refusal, used
		}
	}
	g := p.groups[groupKey{"", n.Kind}]
	if g == nil {
		return spot{}, f, own
	}
	at, used, refusal := p.findIn(g, n, fill)
	if used == nil {
		used = f
	}
	if refusal == Placed {
		return at, used, Placed
	}
	return spot{}, used, nearer(own, refusal)
}

func (p *Pool) findIn(g *group, n *Need, fill Fill) (spot, *form, Refusal) {
	if len(g.seats)+len(g.drained) == 0 {
		return spot{}, nil, NoWorker
	}
	if n.Shape == nil && g.counted == 0 {
		at, refusal := p.findSlot(g, n, fill)
		return at, nil, refusal
	}
	k := p.index.seeker(g, n)
	if k.plain && g.counted == 0 {
		at, refusal := p.findSlot(g, n, fill)
		return at, &k.form, refusal
	}
	refusal := g.shut(fill)
	if refusal == Placed {
		var suspects, held bool
		barred := func(m *member) bool {
			switch {
			case m.held && !p.mayUse(m, n):
				held = true
			case n.Suspect && m.suspects > 0:
				suspects = true
			default:
				return false
			}
			return true
		}
		if !n.Avoid.IsZero() {
			others := func(m *member) bool { return m.worker.ID == n.Avoid || barred(m) }
			if c, found := k.best(&p.demand, others); found {
				return spot{c.seat, c.devices}, &k.form, Placed
			}
		}
		if c, found := k.best(&p.demand, barred); found {
			return spot{c.seat, c.devices}, &k.form, Placed
		}
		refusal = DoesNotFitNow
		switch {
		case suspects:
			return spot{}, &k.form, SuspectWaiting
		case held:
			return spot{}, &k.form, Reserved
		}
	}
	if ever := k.ever(); ever != Placed {
		refusal = ever
	}
	return spot{}, &k.form, refusal
}

// shut tells why nothing can start in the group, whatever it needs.
func (g *group) shut(fill Fill) Refusal {
	switch {
	case len(g.seats) == 0:
		return AllDraining
	case g.seats[0].free() <= 0:
		return DoesNotFitNow
	case g.reached(fill):
		return Headroom
	default:
		return Placed
	}
}

// findSlot takes the worker with the most free slots.
func (p *Pool) findSlot(g *group, n *Need, fill Fill) (spot, Refusal) {
	if refusal := g.shut(fill); refusal != Placed {
		return spot{}, refusal
	}
	if top := g.seats[0]; !n.Suspect && (n.Avoid.IsZero() || top.member.worker.ID != n.Avoid) && (!top.member.held || p.mayUse(top.member, n)) {
		return spot{seat: top}, Placed
	}
	var best, avoided *seat
	refusal := Reserved
	for _, s := range g.seats { // suspects, held and avoided workers are rare: a scan is fine
		switch {
		case s.free() <= 0, s.member.held && !p.mayUse(s.member, n):
		case n.Suspect && s.member.suspects > 0:
			refusal = SuspectWaiting
		case !n.Avoid.IsZero() && s.member.worker.ID == n.Avoid:
			avoided = s
		case best == nil || s.before(best):
			best = s
		}
	}
	if best == nil {
		best = avoided
	}
	if best == nil {
		return spot{}, refusal
	}
	return spot{seat: best}, Placed
}

// ever tells why no connected worker of the group could run it, however long one waits.
func (k *seeker) ever() Refusal {
	if w := k.witness; w != nil && w.index >= 0 && w.couldFit(&k.form) && w.member.suits(&k.form).selected {
		return Placed
	}
	if k.judged == k.group.joined {
		return k.verdict
	}
	k.judged, k.verdict, k.witness = k.group.joined, Unselected, nil
	judge := func(s *seat) bool {
		if !s.member.suits(&k.form).selected {
			return false
		}
		if !s.couldFit(&k.form) {
			k.verdict = NeverFits
			return false
		}
		return true
	}
	for _, s := range k.group.seats {
		if judge(s) {
			k.verdict, k.witness = Placed, s
			return Placed
		}
	}
	for s := range k.group.drained { // in any order: it only matters whether there is one
		if judge(s) {
			k.verdict = AllDraining
			return AllDraining
		}
	}
	return k.verdict
}

// Reserve takes room on a named worker, also above its capacity: the attempt runs there already (it was re-attached). Where no devices
// are named, it takes those that fit best. What it returns is what Free must be told.
func (p *Pool) Reserve(at Placement, n Need) Placement {
	m := p.members[at.Worker]
	if m == nil {
		return at
	}
	s := m.seats[n.Kind]
	if s == nil { // the worker no longer offers the kind, and still runs one
		s = p.seat(m, n.Kind, 0)
		m.seats[n.Kind] = s
		p.attachSeat(s)
	}
	f := n.form()
	if at.Devices == 0 {
		at.Devices = m.anyDevices(&f)
	}
	p.occupy(s, &f, n, at.Devices)
	return at
}

// occupy takes room.
func (p *Pool) occupy(s *seat, f *form, n Need, on Devices) {
	s.take(f.slots, n)
	p.changed(s.member, f, on, 1)
}

// changed takes (or gives back) what all kinds of a worker share, and tells those who look for workers.
func (p *Pool) changed(m *member, f *form, on Devices, sign int) {
	m.occupy(f, on, sign)
	for _, s := range m.seats { // in any order: each into the log of a group of its own
		if s.index >= 0 {
			s.group.note(s)
		}
	}
}

// Free gives room back that Place or Reserve took. It is told the same need, and what they returned.
func (p *Pool) Free(at Placement, n Need) {
	m := p.members[at.Worker]
	if m == nil {
		return
	}
	s := m.seats[n.Kind]
	if s == nil || s.used == 0 {
		return
	}
	f := &slotForm
	if n.Shape != nil {
		if k := s.group.of[n.Shape]; k != nil {
			f = &k.form
		} else {
			made := n.form()
			f = &made
		}
	}
	s.take(-f.slots, n)
	p.changed(m, f, at.Devices, -1)
	if s.slots == 0 && s.used == 0 { // the last one of a kind that the worker no longer offers
		p.detachSeat(s)
		p.dropIfUseless(s)
	}
}
