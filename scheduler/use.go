package scheduler

import "github.com/errandhq/errand/fairness"

// This file holds what the instances of a region tell each other of what tenants have used, so that fairness is the region's.

// TenantsToldMax bounds the tenants of one message; what the others have used is told later.
const TenantsToldMax = 1000

// Use is what an instance tells the others.
type Use struct {
	Used    []fairness.Spent // since it told last
	Virtual float64
	Slots   map[string]int // that its pool workers have, by kind
}

// Use returns what there is to tell since the last time.
func (c *Core) Use() Use {
	use := Use{Used: c.shares.Spent(TenantsToldMax), Virtual: c.shares.Virtual(), Slots: map[string]int{}}
	for _, kind := range c.pool.Kinds() { // into a map: in any order
		use.Slots[kind] = c.pool.Slots(kind)
	}
	return use
}

func (c *Core) usedElsewhere(ev UsedElsewhere) {
	for _, u := range ev.Used {
		c.shares.ChargeElsewhere(u.Tenant, u.Amount, c.now)
	}
	c.shares.CatchUp(ev.Virtual)
	c.elsewhere = ev.Slots
}
