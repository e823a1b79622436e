package main

import (
	"context"
	"syscall"
	"time"

	"github.com/errandhq/errand/internal/devcluster"
)

// failoverScenario is a fault that holds for a while, under load.
type failoverScenario struct {
	name  string
	about string
	// elsewhere says that tasks of the region have to start in others while it holds.
	elsewhere bool
	begin     func(ctx context.Context, d *deployment) error
	end       func(ctx context.Context, d *deployment) error
	// meanwhile happens again and again while it holds, if there is such a thing.
	meanwhile func(ctx context.Context, d *deployment) error
}

// flapEvery is how long a flapping region is cut off, and then not: longer than it takes to be suspected, shorter than to be down.
const flapEvery = 8 * time.Second

// slowFactor is how much longer all ways of a slow region are.
const slowFactor = 10

var failoverScenarios = []failoverScenario{
	{
		name: "scheduler-killed", about: "SIGKILL one of a region's two schedulers",
		begin: func(_ context.Context, d *deployment) error {
			d.victim().schedulers[0].kill()
			return nil
		},
		end: func(_ context.Context, d *deployment) error { return d.victim().schedulers[0].start() },
	},
	{
		name: "region-killed", about: "SIGKILL all schedulers and workers of a region", elsewhere: true,
		begin: func(_ context.Context, d *deployment) error {
			d.victim().kill()
			return nil
		},
		end: func(_ context.Context, d *deployment) error { return startAll(d.victim().all()) },
	},
	{
		name: "cut-from-store", about: "a region hears nothing from the store", elsewhere: true,
		begin: func(_ context.Context, d *deployment) error {
			return d.lines.Set(failoverVictim, devcluster.TheStore, devcluster.Change{State: devcluster.LineCut})
		},
		end: func(_ context.Context, d *deployment) error {
			return d.lines.Set(failoverVictim, devcluster.TheStore, devcluster.Change{State: devcluster.LineOpen})
		},
	},
	{
		name: "cut-from-regions", about: "a region hears nothing from the others, but from the store",
		begin: func(_ context.Context, d *deployment) error {
			return d.lines.SetAll(failoverVictim, false, devcluster.Change{State: devcluster.LineCut})
		},
		end: func(_ context.Context, d *deployment) error {
			return d.lines.SetAll(failoverVictim, false, devcluster.Change{State: devcluster.LineOpen})
		},
	},
	{
		name: "slow-region", about: "all ways of a region are ten times as long",
		begin: func(_ context.Context, d *deployment) error {
			return d.lines.SetAll(failoverVictim, true, devcluster.Change{Factor: slowFactor})
		},
		end: func(_ context.Context, d *deployment) error {
			return d.lines.SetAll(failoverVictim, true, devcluster.Change{Factor: 1})
		},
	},
	{
		name: "flapping-region", about: "a region is cut off from everything for 8 s, and not for 8 s, in turns",
		begin: func(context.Context, *deployment) error { return nil },
		end: func(_ context.Context, d *deployment) error {
			return d.lines.SetAll(failoverVictim, true, devcluster.Change{State: devcluster.LineOpen})
		},
		meanwhile: func(ctx context.Context, d *deployment) error {
			for _, state := range []devcluster.LineState{devcluster.LineCut, devcluster.LineOpen} {
				if err := d.lines.SetAll(failoverVictim, true, devcluster.Change{State: state}); err != nil {
					return err
				}
				if err := pause(ctx, flapEvery); err != nil {
					return err
				}
			}
			return nil
		},
	},
	{
		name: "drain-under-load", about: "a region is drained by command, its processes end politely, and it comes back", elsewhere: true,
		begin: func(ctx context.Context, d *deployment) error {
			if err := d.drain(ctx, failoverVictim, true); err != nil {
				return err
			}
			for _, p := range d.victim().workers {
				p.signal(syscall.SIGTERM)
			}
			return nil
		},
		end: func(ctx context.Context, d *deployment) error {
			for _, p := range d.victim().workers {
				if err := p.stop(politeLimit); err != nil {
					return err
				}
			}
			if err := startAll(d.victim().workers); err != nil {
				return err
			}
			return d.drain(ctx, failoverVictim, false)
		},
	},
}

// hold keeps the fault for a while.
func (s *failoverScenario) hold(ctx context.Context, d *deployment, during time.Duration) error {
	holding, cancel := context.WithTimeout(ctx, during)
	defer cancel()
	for s.meanwhile != nil && holding.Err() == nil {
		if err := s.meanwhile(holding, d); err != nil && holding.Err() == nil {
			return err
		}
	}
	<-holding.Done()
	return ctx.Err()
}
