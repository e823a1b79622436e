package main

import (
	"context"
	"fmt"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
	"golang.org/x/sync/errgroup"

	"github.com/errandhq/errand"
)

// noisyCmd measures what a quiet tenant feels of a loud one: single urgent tasks at a steady rate, from submit to handler start, on an
// idle system, beside a flood of standard tasks, and beside one that is all urgent.
type noisyCmd struct {
	JSON   string        `help:"Write the results to this file." placeholder:"FILE"`
	SVG    string        `name:"svg" help:"Draw the distributions of waits into this file." placeholder:"FILE"`
	Rounds int           `help:"How often each phase runs; the median counts." default:"3"`
	Work   time.Duration `help:"How long a handler takes." default:"200ms"`
	Slots  int           `help:"Slots of the worker." default:"200"`
	Rate   int           `help:"Urgent tasks that the quiet tenant submits per second." default:"20"`
	Flood  int           `help:"Tasks of the loud tenant for each of those." default:"100"`
	For    time.Duration `help:"How long a phase is measured." default:"30s"`
	Keep   bool          `help:"Keep the servers' logs."`
}

// The loud tenant's phases.
const (
	phaseIdle   = "idle"
	phaseFlood  = "flood"
	phaseUrgent = "allurgent"
)

var noisyPhases = []struct {
	name, about string
	tiers       []errand.Tier // of the flood: the first is nearly all of it, of the others there is one batch in a hundred
}{
	{phaseIdle, "nothing else", nil},
	{phaseFlood, "a flood of standard tasks", []errand.Tier{errand.Standard, errand.Deferrable}},
	{phaseUrgent, "a flood, all marked urgent", []errand.Tier{errand.Urgent, errand.Standard, errand.Deferrable}},
}

const (
	noisyLead  = 5 * time.Second  // of a phase, not measured
	floodBatch = 100              // tasks of one submission
	floodCalls = 8                // submissions at once; what more there should be is left out, and counted
	quietCalls = 256              // the same of the quiet tenant
	quietWait  = 60 * time.Second // for the last urgent tasks to start
	trickle    = 100              // of so many batches one is of another tier
)

// noisyRun is one phase of one round.
type noisyRun struct {
	Phase     string     `json:"phase"`
	P50       float64    `json:"urgent_p50_ms"`
	P99       float64    `json:"urgent_p99_ms"`
	Max       float64    `json:"urgent_max_ms"`
	Started   int64      `json:"urgent_started"`
	Missing   int64      `json:"urgent_missing"` // not started within a minute: longer waits than any that is counted
	PerS      float64    `json:"flood_per_s"`
	LeftOut   int64      `json:"flood_left_out"` // the scheduler did not take them in time
	Refused   int64      `json:"flood_refused"`
	Tiers     []tierWait `json:"flood_tiers,omitempty"`
	waits     *hdrhistogram.Histogram
	submitted int64
}

// Run measures.
func (c *noisyCmd) Run(ctx context.Context) error {
	if c.Rounds < 1 || c.Slots < 1 || c.Rate < 1 || c.Flood < 1 || c.Work <= 0 || c.For <= 0 {
		return fmt.Errorf("all numbers are positive")
	}
	if float64(c.Rate*c.Flood)*c.Work.Seconds() <= float64(c.Slots) {
		return fmt.Errorf("%d tasks/s of %v are no flood for %d slots: raise --work, or lower --slots", c.Rate*c.Flood, c.Work, c.Slots)
	}
	return onServers(ctx, "noisy", c.Keep, c.measure)
}

// measure runs every round, and reports.
func (c *noisyCmd) measure(ctx context.Context, cl *cluster) error {
	runs := map[string][]noisyRun{}
	bar := progress(c.Rounds*len(noisyPhases), "")
	for round := range c.Rounds {
		for _, phase := range noisyPhases {
			bar.Describe(fmt.Sprintf("%-26s", phase.about))
			got, err := c.phase(ctx, cl, round, phase.name, phase.tiers)
			if err != nil {
				return fmt.Errorf("%s: %w (logs in %s)", phase.name, err, cl.dir)
			}
			runs[phase.name] = append(runs[phase.name], got)
			_ = bar.Add(1) // it draws only
		}
	}
	_ = bar.Finish()
	return c.report(ctx, cl, runs)
}

// phase is one measurement, on a database of its own.
func (c *noisyCmd) phase(ctx context.Context, cl *cluster, round int, name string, tiers []errand.Tier) (noisyRun, error) {
	ctx, cancel := context.WithTimeout(ctx, c.For+within)
	defer cancel()
	if err := cl.fresh(ctx, fmt.Sprintf("noisy_%s_%d", name, round), 1, 0); err != nil {
		return noisyRun{}, err
	}
	kinds := kindNames(1)
	pool, err := cl.poolKey(ctx, kinds)
	if err != nil {
		return noisyRun{}, err
	}
	worker, err := cl.startTimed(ctx, timedSpec{name: "worker", urls: cl.urls, key: pool, kinds: kinds, slots: c.Slots})
	if err != nil {
		return noisyRun{}, err
	}
	quiet, err := cl.clientOf(ctx, "quiet", 1)
	if err != nil {
		return noisyRun{}, err
	}
	loud, err := cl.clientOf(ctx, "loud", 1)
	if err != nil {
		return noisyRun{}, err
	}
	got := noisyRun{Phase: name}
	bounds := cl.watchBounds(ctx, "loud")
	if err := c.both(ctx, quiet, loud, tiers, &got); err != nil {
		return got, err
	}
	if got.Tiers, err = cl.tierWaits(ctx, "loud"); err != nil {
		return got, err
	}
	if err := bounds.judge(got.Tiers); err != nil {
		return got, err
	}
	_, err = until(ctx, quietWait, func() bool { return worker.last().Marks["quiet"].Started >= got.submitted })
	if err != nil {
		return got, err
	}
	last, err := worker.finish()
	if err != nil {
		return got, err
	}
	got.count(last.waitsOf("quiet"))
	return got, cl.end(context.WithoutCancel(ctx))
}

// count takes the waits of the quiet tenant's tasks.
func (r *noisyRun) count(waits *hdrhistogram.Histogram) {
	ms := func(us int64) float64 { return float64(us) / 1000 }
	r.waits, r.Started = waits, waits.TotalCount()
	r.Missing = r.submitted - r.Started
	all := newWaits()
	all.Merge(waits)
	_ = all.RecordValues(waitMax, r.Missing) // within its bounds
	r.P50, r.P99, r.Max = ms(all.ValueAtQuantile(50)), ms(all.ValueAtQuantile(99)), ms(all.Max())
}

// both lets the two tenants submit. The loud one begins with the lead, and so does the quiet one, whose kind is known then.
func (c *noisyCmd) both(ctx context.Context, quiet, loud *errand.Client, tiers []errand.Tier, got *noisyRun) error {
	group, groupCtx := errgroup.WithContext(ctx)
	end := time.Now().Add(noisyLead + c.For)
	if len(tiers) > 0 {
		group.Go(func() error { return c.flood(groupCtx, loud, tiers, end, got) })
	}
	group.Go(func() error { return c.singles(groupCtx, quiet, end, got) })
	return group.Wait()
}

// singles submits urgent tasks one by one at the rate, whatever becomes of the earlier ones.
func (c *noisyCmd) singles(ctx context.Context, client *errand.Client, end time.Time, got *noisyRun) error {
	calls, callCtx := errgroup.WithContext(ctx)
	calls.SetLimit(quietCalls)
	err := c.steadily(ctx, time.Second/time.Duration(c.Rate), end, func() {
		mark := "quiet"
		if time.Until(end) > c.For {
			mark = "lead"
		} else {
			got.submitted++
		}
		calls.Go(func() error {
			_, err := client.Submit(callCtx, errand.Spec{Kind: "work-1", Tier: errand.Urgent, Payload: orderOf(mark, c.Work)})
			return err
		})
	})
	if failed := calls.Wait(); failed != nil {
		return failed
	}
	return err
}

// steadily does something at every tick until the end.
func (c *noisyCmd) steadily(ctx context.Context, every time.Duration, end time.Time, do func()) error {
	tick := time.NewTicker(every)
	defer tick.Stop()
	for time.Now().Before(end) {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
			do()
		}
	}
	return nil
}
