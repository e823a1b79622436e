package main

import (
	"context"
	"time"

	errandv1 "github.com/errandhq/errand/proto/errand/v1"
)

// boundsEvery is how often the exported bounds of waits are read; they are drawn anew every second.
const boundsEvery = 500 * time.Millisecond

// bounds are the largest bounds that were exported for a tenant, by tier (P6).
type bounds struct {
	stop    context.CancelFunc
	done    chan struct{}
	largest map[errandv1.Tier]time.Duration
	failed  error
}

// watchBounds reads the bounds of a tenant until it is judged, or ctx ends.
func (c *cluster) watchBounds(ctx context.Context, tenant string) *bounds {
	ctx, stop := context.WithCancel(ctx)
	b := &bounds{stop: stop, done: make(chan struct{}), largest: map[errandv1.Tier]time.Duration{}}
	admin := c.operator()
	go func() {
		defer close(b.done)
		tick := time.NewTicker(boundsEvery)
		defer tick.Stop()
		for {
			resp, err := admin.GetOverview(ctx, &errandv1.GetOverviewRequest{})
			switch {
			case err == nil:
				b.take(resp.GetOverview(), tenant)
			case ctx.Err() == nil:
				b.failed = err
				return
			}
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
		}
	}()
	return b
}

func (b *bounds) take(o *errandv1.Overview, tenant string) {
	for _, t := range o.GetTenants() {
		if t.GetTenant() != tenant {
			continue
		}
		for _, tier := range t.GetTiers() {
			b.largest[tier.GetTier()] = max(b.largest[tier.GetTier()], tier.GetBound().AsDuration())
		}
	}
}

// judge ends the watch, and compares the longest waits with the bounds. A tier of which nothing waited long enough to be seen has no bound.
func (b *bounds) judge(waits []tierWait) error {
	b.stop()
	<-b.done
	for i := range waits {
		w := &waits[i]
		w.Bound = round3(b.largest[errandv1.Tier(w.Tier)].Seconds())
		w.Within = w.Bound == 0 || w.Oldest <= w.Bound
	}
	return b.failed
}
