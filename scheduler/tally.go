package scheduler

// perTier is a number for each tier.
type perTier [Deferrable + 1]int

// tally counts what one tenant has waiting here.
type tally struct {
	tenant string
	groups int
	rows   perTier // that are buffered
	behind perTier // groups of which only the store has the rest
	lines  int     // buffers that nothing but room holds back
	weight float64 // in the sum over the tenants with lines
	kinds  map[string]*kindTally
}

// kindTally is the part of it that one kind has.
type kindTally struct {
	rows    perTier // that nothing but room holds back
	buffers int
}

// tally finds or makes a tenant's.
func (b *backlog) tally(tenant string) *tally {
	t := b.tallies[tenant]
	if t == nil {
		t = &tally{tenant: tenant, kinds: map[string]*kindTally{}}
		b.tallies[tenant] = t
	}
	return t
}

// crowdMin is how many tasks of a tenant wait when it is thought to have a backlog.
const crowdMin = 32

// Crowded tells whether a tenant has a backlog of a tier here, other than urgent tasks that go first.
func (c *Core) Crowded(tenant string, tier Tier) bool {
	t := c.waiting.tallies[tenant]
	if t == nil || t.rows[tier] < crowdMin {
		return false
	}
	return tier != Urgent || c.waiting.demoted[tenant]
}

func (t *tally) ofKind(kind string) *kindTally {
	k := t.kinds[kind]
	if k == nil {
		k = &kindTally{}
		t.kinds[kind] = k
	}
	return k
}

// reweigh takes note of a tenant's new weight.
func (b *backlog) reweigh(tenant string) {
	if t := b.tallies[tenant]; t != nil && t.lines > 0 {
		b.weight -= t.weight
		t.weight = b.shares.Weight(tenant)
		b.weight += t.weight
	}
}

// dropBuffer forgets a buffer that has no rows any more.
func (t *tally) dropBuffer(buf *buffer) {
	if buf.ofKind.buffers--; buf.ofKind.buffers == 0 {
		delete(t.kinds, buf.kind)
	}
}
