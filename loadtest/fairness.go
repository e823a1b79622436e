package main

import (
	"context"
	"fmt"
	"math"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"
)

// fairnessCmd measures the shares of two tenants that always have something waiting, on two schedulers with a worker each.
type fairnessCmd struct {
	JSON   string        `help:"Write the results to this file." placeholder:"FILE"`
	SVG    string        `name:"svg" help:"Draw the shares over time into this file." placeholder:"FILE"`
	Rounds int           `help:"How often each case runs." default:"3"`
	Kinds  int           `help:"Kinds over which both tenants split their tasks." default:"50"`
	Slots  int           `help:"Slots of each worker for each kind." default:"1"`
	Long   time.Duration `help:"How long a task of tenant a takes." default:"4s"`
	Short  time.Duration `help:"How long a task of tenant b takes." default:"40ms"`
	WarmUp time.Duration `help:"Time before the measurement." default:"15s"`
	For    time.Duration `help:"How long it is measured." default:"30s"`
	Only   []string      `help:"Run only these cases." placeholder:"NAME"`
	Keep   bool          `help:"Keep the servers' logs."`
}

// fairCase is who weighs how much, and where tenant a may submit. Tenant b submits to both schedulers.
type fairCase struct {
	name, about string
	a, b        float64 // weights
	pinned      bool    // a submits to the first scheduler only
}

var fairCases = []fairCase{
	{"light_pinned", "a weighs 1, on one scheduler; b 3", 1, 3, true},
	{"heavy_free", "a weighs 3, on both; b 1", 3, 1, false},
	{"heavy_pinned", "a weighs 3, on one scheduler; b 1", 3, 1, true},
}

func (f fairCase) ideal() float64 { return f.a / (f.a + f.b) }

// fairRun is one run of one case. Shares are of the slot-seconds of both tenants.
type fairRun struct {
	Case     string  `json:"case"`
	Ideal    float64 `json:"ideal_share"`
	Possible float64 `json:"possible_share"` // with what one scheduler has and has lent; the ideal where all may be used
	Lent     float64 `json:"lent_share"`     // of the slot-seconds, what a has used at the scheduler to which it did not submit
	Share    float64 `json:"share"`          // of a, from what handlers measured
	Held     float64 `json:"held_share"`     // the same from the store: from claim to recorded end
	Error    float64 `json:"share_error"`    // the larger of the tenants' relative distances from what is possible
	HeldErr  float64 `json:"held_share_error"`
	Used     float64 `json:"slots_in_handlers"` // part of the slots that was in handlers
	HeldUsed float64 `json:"slots_held"`
	TasksA   int64   `json:"tasks_a"`
	TasksB   int64   `json:"tasks_b"`
	Feasible bool    `json:"feasible"`
	curve    []sharePoint
}

type sharePoint struct{ second, share float64 }

// Run measures.
func (c *fairnessCmd) Run(ctx context.Context) error {
	if c.Rounds < 1 || c.Kinds < 1 || c.Kinds > 1000 || c.Slots < 1 || c.Long <= 0 || c.Short <= 0 || c.For < time.Second {
		return fmt.Errorf("all numbers are positive, kinds at most 1,000, a measurement at least a second")
	}
	return onServers(ctx, "fairness", c.Keep, c.measure)
}

// measure runs every round, and reports.
func (c *fairnessCmd) measure(ctx context.Context, cl *cluster) error {
	cases := c.chosen()
	runs := map[string][]fairRun{}
	bar := progress(c.Rounds*len(cases), "")
	for round := range c.Rounds {
		for _, one := range cases {
			bar.Describe(fmt.Sprintf("%-34s", one.about))
			got, err := c.one(ctx, cl, round, one)
			if err != nil {
				return fmt.Errorf("%s: %w (logs in %s)", one.name, err, cl.dir)
			}
			runs[one.name] = append(runs[one.name], got)
			_ = bar.Add(1) // it draws only
		}
	}
	_ = bar.Finish()
	return c.report(ctx, cl, cases, runs)
}

func (c *fairnessCmd) chosen() []fairCase {
	var chosen []fairCase
	for _, one := range fairCases {
		if len(c.Only) == 0 || slices.Contains(c.Only, one.name) {
			chosen = append(chosen, one)
		}
	}
	return chosen
}

// one runs a case on a database of its own.
func (c *fairnessCmd) one(ctx context.Context, cl *cluster, round int, of fairCase) (fairRun, error) {
	ctx, cancel := context.WithTimeout(ctx, c.WarmUp+c.For+within)
	defer cancel()
	if err := cl.fresh(ctx, fmt.Sprintf("fair_%s_%d", of.name, round), 2, 0); err != nil {
		return fairRun{}, err
	}
	kinds := kindNames(c.Kinds)
	pool, err := cl.poolKey(ctx, kinds)
	if err != nil {
		return fairRun{}, err
	}
	var workers [2]*timed
	for i := range workers {
		spec := timedSpec{name: fmt.Sprintf("worker%d", i+1), urls: cl.urls[i : i+1], key: pool, kinds: kinds, slots: c.Slots}
		if workers[i], err = cl.startTimed(ctx, spec); err != nil {
			return fairRun{}, err
		}
	}
	feeders, err := c.feeders(ctx, cl, of, workers)
	if err != nil {
		return fairRun{}, err
	}
	from := time.Now().Add(c.WarmUp)
	to := from.Add(c.For)
	feedCtx, stop := context.WithDeadline(ctx, to.Add(3*tallyEvery)) // so that the last tally of the window is there
	defer stop()
	group, groupCtx := errgroup.WithContext(feedCtx)
	for _, f := range feeders {
		group.Go(func() error { return f.feed(groupCtx) })
	}
	if err := group.Wait(); err != nil {
		return fairRun{}, err
	}
	got, err := c.count(of, workers, from, to)
	if err != nil {
		return fairRun{}, err
	}
	if err := c.held(ctx, cl, from, to, &got); err != nil {
		return fairRun{}, err
	}
	return got, cl.end(context.WithoutCancel(ctx))
}

// shareError is the larger of the two tenants' relative distances from what is possible.
func shareError(share, possible float64) float64 {
	return round3(max(math.Abs(share-possible)/possible, math.Abs(share-possible)/(1-possible)))
}
