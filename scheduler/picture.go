package scheduler

import (
	"cmp"
	"slices"
	"time"

	"github.com/errandhq/errand/fairness"
)

// This file holds what an instance can tell of who waits and who runs, and P6's bound: how long a task may wait at most.

// Picture is what one instance knows of who waits and who runs.
type Picture struct {
	At      time.Time
	Tenants []TenantPicture // those with most open tasks first
	LeftOut int             // tenants that are not listed
	Kinds   []KindPicture   // by name
	Tiers   [Deferrable + 1]TierPicture
}

// TierPicture is a tier, of one tenant or of all.
type TierPicture struct {
	Here      int       // waiting tasks that are buffered
	Running   int       // at this instance's workers
	Open      int64     // in the region, as the store had it some seconds ago
	OldestDue time.Time // of those buffered that nothing but room holds back; zero for none
	Held      int       // of those buffered: held back by a pause, a cap or a named limit
	Unserved  int       // of those buffered: no worker serves their kind
	// Bound is the longest that a task waits once it is ready while nothing but room holds it back; zero when none waits. Over all
	// tenants it is the largest.
	Bound time.Duration
}

// TenantPicture is one tenant.
type TenantPicture struct {
	Tenant  string
	Weight  float64
	Fair    float64 // the part of the capacity that is its own while all that are present want as much as they can get
	Used    float64 // its part of what was used in the region over the last minute
	Demoted bool    // its urgent work is served as standard: it has used up its urgent share
	Tiers   [Deferrable + 1]TierPicture
}

// open is how many tasks the tenant has, as far as is known.
func (t *TenantPicture) open() int64 {
	n := int64(0)
	for _, one := range t.Tiers {
		n += max(one.Open, int64(one.Here+one.Running))
	}
	return n
}

// KindPicture is the capacity for a kind at this instance's pool workers.
type KindPicture struct {
	Kind        string
	Slots, Used int
	Here        int // waiting tasks that are buffered
}

// Picture returns what is known now, with at most limit tenants. It walks over all that is buffered.
func (c *Core) Picture(now time.Time, limit int) *Picture {
	p := &Picture{At: now}
	d := &drawing{core: c, now: now, tenants: map[string]*portrait{}}
	for _, buf := range c.waiting.buffers { // sums, by tenant: in any order
		d.waiting(buf)
	}
	for _, a := range c.attempts.byID {
		d.running(a)
	}
	for key, n := range c.stock {
		d.of(key.tenant).Tiers[key.tier].Open = n
	}
	for _, one := range d.tenants {
		d.finish(one)
		p.Tenants = append(p.Tenants, one.TenantPicture)
		for tier := range p.Tiers {
			p.Tiers[tier].add(&one.Tiers[tier])
		}
	}
	slices.SortFunc(p.Tenants, func(a, b TenantPicture) int {
		return cmp.Or(cmp.Compare(b.open(), a.open()), cmp.Compare(a.Tenant, b.Tenant))
	})
	p.LeftOut = max(len(p.Tenants)-limit, 0)
	p.Tenants = p.Tenants[:len(p.Tenants)-p.LeftOut]
	for _, kind := range slices.Sorted(slices.Values(c.pool.Kinds())) {
		load := c.pool.Load("", kind)
		p.Kinds = append(p.Kinds, KindPicture{Kind: kind, Slots: load.Shared, Used: load.SharedUsed, Here: c.waiting.perKind[kind]})
	}
	return p
}

// add counts another part of the tier in.
func (t *TierPicture) add(other *TierPicture) {
	t.Here += other.Here
	t.Running += other.Running
	t.Open += other.Open
	t.Held += other.Held
	t.Unserved += other.Unserved
	t.Bound = max(t.Bound, other.Bound)
	if t.OldestDue.IsZero() || (!other.OldestDue.IsZero() && other.OldestDue.Before(t.OldestDue)) {
		t.OldestDue = other.OldestDue
	}
}

// drawing is a picture in the making.
type drawing struct {
	core    *Core
	now     time.Time
	tenants map[string]*portrait
	longest float64 // seconds that an attempt which runs now may hold its room still, as far as is known
}

// portrait is a tenant's part of it.
type portrait struct {
	TenantPicture
	work, rows float64 // resource-seconds of the tasks buffered that find workers, and how many these are
}

func (d *drawing) of(tenant string) *portrait {
	one := d.tenants[tenant]
	if one == nil {
		one = &portrait{TenantPicture: TenantPicture{Tenant: tenant}}
		d.tenants[tenant] = one
	}
	return one
}

func (d *drawing) waiting(buf *buffer) {
	one := d.of(buf.key.tenant)
	t, n := &one.Tiers[buf.key.tier], len(buf.rows)
	t.Here += n
	switch {
	case buf.parked:
		t.Unserved += n
		return
	case buf.gate != nil:
		t.Held += n
	default:
		if due := buf.head().due; t.OldestDue.IsZero() || due.Before(t.OldestDue) {
			t.OldestDue = due
		}
	}
	if share := d.core.shareOf(d.core.needOf(buf)); share > 0 {
		one.work += float64(n) * share * d.core.costs.usual.Expect(costKey{buf.key.tenant, buf.kind})
		one.rows += float64(n)
	}
}

func (d *drawing) running(a *attempt) {
	if a.atWorker() {
		d.of(a.Tenant).Tiers[a.Tier].Running++
	}
	d.longest = max(d.longest, a.charge.seconds)
}

// finish adds what is known of a tenant besides its tasks, and the bounds.
func (d *drawing) finish(one *portrait) {
	c := d.core
	one.Weight, one.Fair = c.shares.Weight(one.Tenant), c.shares.Fair(one.Tenant)
	one.Used, one.Demoted = c.shares.Used(one.Tenant, d.now), c.waiting.demoted[one.Tenant]
	work := one.work
	if one.rows > 0 { // of what only the store has each task is thought to be like those that are here
		for tier, t := range one.Tiers {
			if of := c.waiting.tallies[one.Tenant]; of != nil && of.behind[tier] > 0 {
				work += float64(max(t.Open-int64(t.Here+t.Running), 0)) * one.work / one.rows
			}
		}
	}
	for _, tier := range Tiers {
		if t := &one.Tiers[tier]; t.Here > t.Unserved+t.Held {
			t.Bound = c.bound(tier, work, one.Fair, d.longest)
		}
	}
}

// bound is the longest that a task of a tier waits once it is ready, while nothing but room holds it back: until it is overdue, and then
// until overdue work's guaranteed part of the capacity, shared by weight, has done the tenant's own work. Urgent work beyond its share is
// served as standard, so its bound is that of standard work. What a slot still does that frees for it is added, and the longest that
// it takes to find a row or to take one back from a dead worker.
func (c *Core) bound(tier Tier, work, fair, longest float64) time.Duration {
	seconds := work/(fairness.OverdueShare*fair) + longest
	recovery := c.timing.Discover + c.timing.WorkerLease + c.timing.SessionTTL + c.timing.ReattachGrace
	if seconds >= estimateMax.Seconds() {
		return estimateMax
	}
	return DefaultTolerance(max(tier, Standard)) + time.Duration(seconds*float64(time.Second)) + recovery
}
