package placement

// Share is the part of what pool workers of the kind have that one attempt takes: of the resource of which it takes the largest part (its
// dominant share; Ghodsi and others, "Dominant Resource Fairness", NSDI 2011). Workers that take no work are not counted. It is 0 when
// no pool worker takes the kind, and a resource that one of them does not count has no end.
func (p *Pool) Share(n Need) float64 {
	g := p.groups[groupKey{"", n.Kind}]
	if g == nil || g.slots == 0 {
		return 0
	}
	if n.Shape == nil {
		return 1 / float64(g.slots)
	}
	f := n.form()
	share := float64(f.slots) / float64(g.slots)
	of := func(wanted, all int64) {
		if wanted > 0 && all > 0 {
			share = max(share, float64(wanted)/float64(all))
		}
	}
	if g.counted == len(g.seats) {
		of(f.cpu, g.has.CPUMilli)
		of(f.mem, g.has.MemoryMiB)
	}
	of(int64(f.devices()), g.has.GPUs*DeviceMilli)
	return share
}

// count takes what a worker has into the group's sums, or (-1) out of them.
func (g *group) count(m *member, sign int64) {
	if !m.counted {
		return
	}
	g.counted += int(sign)
	g.has.CPUMilli += sign * m.has.CPUMilli
	g.has.MemoryMiB += sign * m.has.MemoryMiB
	g.has.GPUs += sign * m.has.GPUs
}

// Fits says what Place would say. It takes no room and counts no arrival.
func (p *Pool) Fits(n Need, fill Fill) Refusal {
	_, _, refusal := p.find(&n, fill)
	return refusal
}

// CouldRun tells whether a worker could run it if it were empty and took work.
func (p *Pool) CouldRun(id WorkerID, n Need) bool {
	m := p.members[id]
	if m == nil || m.worker.Tenant != "" && m.worker.Tenant != n.Tenant {
		return false
	}
	s := m.seats[n.Kind]
	if s == nil {
		return false
	}
	f := n.form()
	return s.couldFit(&f) && m.suits(&f).selected
}

// Hopeless tells why no connected worker could run it, however long one waits: NoWorker, Unselected or NeverFits. AllDraining says that
// those which could take no work, and Placed that there is one.
func (p *Pool) Hopeless(n Need) Refusal {
	own, f := NoWorker, n.form()
	if g := p.groups[groupKey{n.Tenant, n.Kind}]; n.Tenant != "" && g != nil {
		own = g.hopeless(&f)
	}
	if g := p.groups[groupKey{"", n.Kind}]; g != nil {
		return nearer(own, g.hopeless(&f))
	}
	return own
}

func (g *group) hopeless(f *form) Refusal {
	if len(g.seats)+len(g.drained) == 0 {
		return NoWorker
	}
	if f.plain && f.cpu == 0 && f.mem == 0 {
		if len(g.seats) == 0 {
			return AllDraining
		}
		return Placed
	}
	k := g.of[f.shape]
	if k == nil {
		k = &seeker{form: *f, group: g}
	}
	return k.ever()
}
