package scheduler

// OpenQuery asks how many tasks are open in a region, by tenant and tier: those tenants that have most.
type OpenQuery struct {
	Region string
	Limit  int // of rows in the answer
}

// Open is how many tasks of a tenant and tier are open, whatever they wait for.
type Open struct {
	Tenant string
	Tier   Tier
	Tasks  int64
}

// StockTaken tells what is open in the region. Of what is not among it, few are.
type StockTaken struct{ Open []Open }

type stockKey struct {
	tenant string
	tier   Tier
}

func (c *Core) takeStock(ev StockTaken) {
	c.stock = make(map[stockKey]int64, len(ev.Open))
	for _, o := range ev.Open {
		c.stock[stockKey{o.Tenant, o.Tier}] = o.Tasks
	}
}
