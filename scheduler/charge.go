package scheduler

import (
	"math/bits"
	"time"

	"github.com/errandhq/errand/fairness"
	"github.com/errandhq/errand/placement"
)

// This file holds what attempts cost their tenants. A start is charged at once with what the kind usually takes; one that takes longer is
// charged ahead again, twice as much each time; at the end the charge is corrected to what the attempt has held of the capacity. Of urgent
// work of a kind of which nothing has ended yet it is feared that it runs for long: it goes first in small numbers only.

const (
	// costUnknown is what an attempt is expected to take while nothing has ended yet, in seconds.
	costUnknown = 1.0
	costSteps   = 40 // doublings of a millisecond: longer than anything may run
)

type costKey struct{ tenant, kind string }

// costs keeps what kinds cost, and the attempts that may have to be charged again.
type costs struct {
	usual *fairness.Averages[costKey]
	again [costSteps][]recharge // by how long they have been charged for, in powers of two milliseconds; each in the order of time
}

type recharge struct {
	attempt *attempt
	at      time.Time
}

func newCosts() *costs { return &costs{usual: fairness.NewAverages[costKey](costUnknown)} }

// charge is what an attempt has been charged.
type charge struct {
	use     fairness.Use
	share   float64 // of the dominant resource; 0 for workers of the tenant's own, which cost nobody anything
	urgent  float64 // the same of what this instance has of it, if it went first because it is urgent
	seconds float64
	caution float64   // seconds more that are held against the tenant's urgent share
	since   time.Time // since when it holds its share; zero when it is settled
}

// charge charges an attempt that begins to hold room.
func (c *Core) charge(a *attempt, use fairness.Use) {
	a.charge = charge{use: use, since: c.now}
	if !c.pool.IsOwn(a.Worker) {
		a.charge.share = c.shareOf(a.need())
	}
	if a.charge.share == 0 {
		return
	}
	a.charge.seconds = c.costs.usual.Expect(costKey{a.Tenant, a.Kind})
	c.shares.Charge(a.Tenant, use, a.charge.share*a.charge.seconds, c.now)
	c.costs.later(a, c.now, a.charge.seconds)
	if use != fairness.Urgent {
		return
	}
	a.charge.urgent = c.pool.Share(a.need())
	c.shares.HoldUrgent(a.Tenant, a.charge.urgent, c.now)
	if !c.costs.usual.Known(costKey{a.Tenant, a.Kind}) {
		a.charge.caution = fairness.Window.Seconds()
		c.shares.Suspect(a.Tenant, a.charge.share*a.charge.caution, c.now)
	}
}

// shareOf is the part of the dominant resource that an attempt takes of what the region has for its kind. Of the other instances only the
// slots are known: their workers are thought to be like those that are here.
func (c *Core) shareOf(n placement.Need) float64 {
	here, elsewhere := c.pool.Slots(n.Kind), c.elsewhere[n.Kind]
	if here == 0 {
		if elsewhere == 0 {
			return 0
		}
		return 1 / float64(elsewhere)
	}
	return c.pool.Share(n) * float64(here) / float64(here+elsewhere)
}

// settle corrects an attempt's charge to what it has held.
func (c *Core) settle(a *attempt) {
	if a.charge.since.IsZero() {
		return
	}
	held := max(c.now.Sub(a.charge.since).Seconds(), 0)
	if a.charge.share > 0 {
		c.shares.Suspect(a.Tenant, -a.charge.share*a.charge.caution, c.now)
		c.shares.Charge(a.Tenant, a.charge.use, a.charge.share*(held-a.charge.seconds), c.now)
	}
	if a.charge.urgent > 0 {
		c.shares.HoldUrgent(a.Tenant, -a.charge.urgent, c.now)
		c.waiting.levels[Urgent].mayReserve(a.Tenant)
	}
	a.charge.since = time.Time{}
}

// ran takes note of how long an attempt of a kind has held its room.
func (c *Core) ran(a *attempt) {
	if !a.charge.since.IsZero() {
		c.costs.usual.Learn(costKey{a.Tenant, a.Kind}, max(c.now.Sub(a.charge.since).Seconds(), 0))
	}
}

func (s *costs) later(a *attempt, now time.Time, seconds float64) {
	step := min(bits.Len64(uint64(max(seconds, 0)*1000)), costSteps-1)
	s.again[step] = append(s.again[step], recharge{a, now.Add(time.Millisecond << step)})
}

// chargeAgain charges attempts ahead that run longer than they have been charged for.
func (c *Core) chargeAgain() {
	for step := range c.costs.again {
		list := c.costs.again[step]
		for len(list) > 0 && !list[0].at.After(c.now) {
			a := list[0].attempt
			list = list[1:]
			c.costs.again[step] = list
			if a.charge.since.IsZero() {
				continue
			}
			if held := c.now.Sub(a.charge.since).Seconds(); held >= a.charge.seconds {
				c.shares.Charge(a.Tenant, a.charge.use, a.charge.share*held, c.now)
				a.charge.seconds += held
			}
			c.costs.later(a, c.now, a.charge.seconds)
			list = c.costs.again[step]
		}
	}
}
