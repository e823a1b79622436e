package main

import (
	"context"
	"fmt"
	"math"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/errandhq/errand"
)

// estimateCmd measures how good the answer of a submit guesses when the task will start.
type estimateCmd struct {
	JSON   string        `help:"Write the results to this file." placeholder:"FILE"`
	Rounds int           `help:"How often each case runs." default:"3"`
	Slots  int           `help:"Slots of the worker." default:"20"`
	Work   time.Duration `help:"How long a handler takes." default:"100ms"`
	For    time.Duration `help:"How long tasks are submitted." default:"15s"`
	Keep   bool          `help:"Keep the servers' logs."`
}

// guessCase is who submits how much of what the worker can do, with which weight.
type guessCase struct {
	name, about string
	tenants     []guessTenant
}

type guessTenant struct {
	weight, load float64 // load 1 is all that the worker can do
	tier         errand.Tier
	burst        bool // all of three seconds at once
}

var guessCases = []guessCase{
	{"queue", "one tenant, 150 % of the capacity", []guessTenant{{1, 1.5, errand.Standard, false}}},
	{"bursts", "one tenant, 60 % in bursts", []guessTenant{{1, 0.6, errand.Standard, true}}},
	{"two", "two tenants, weights 3 : 1, 100 % each", []guessTenant{{3, 1, errand.Standard, false}, {1, 1, errand.Standard, false}}},
	{"tiers", "standard 90 % beside urgent 15 %", []guessTenant{{1, 0.9, errand.Standard, true}, {1, 0.15, errand.Urgent, false}}},
}

const (
	guessBatch   = 50
	guessReads   = 16 // at once
	guessSeconds = 3  // of a burst
	guessWait    = 2 * time.Minute
	// guessLong is the wait from which on the error is told as a part of it; below it in milliseconds.
	guessLong = time.Second
)

// guessRun is one run of one case.
type guessRun struct {
	Case      string  `json:"case"`
	Tasks     int     `json:"tasks"`
	Untold    int     `json:"not_told"`
	AtOnce    int     `json:"told_at_once"` // among them those that waited no more than 100 ms are AtOnceOK
	AtOnceOK  int     `json:"told_at_once_and_true"`
	Long      int     `json:"long_waits"`
	WaitP50   float64 `json:"long_wait_p50_s"`
	ErrP50    float64 `json:"long_error_p50"`
	ErrP90    float64 `json:"long_error_p90"`
	Bias      float64 `json:"long_bias"` // above zero: later than told
	ShortP90  float64 `json:"short_error_p90_ms"`
	submitted []guess
}

// guess is what a submit said of a task, and what became of it.
type guess struct {
	id                     string
	by                     int // the tenant's number
	told, created, started time.Time
}

// Run measures.
func (c *estimateCmd) Run(ctx context.Context) error {
	if c.Rounds < 1 || c.Slots < 1 || c.Work <= 0 || c.For < guessSeconds*time.Second {
		return fmt.Errorf("all numbers are positive, and tasks are submitted for at least %d s", guessSeconds)
	}
	return onServers(ctx, "estimate", c.Keep, c.measure)
}

// measure runs every round, and reports.
func (c *estimateCmd) measure(ctx context.Context, cl *cluster) error {
	runs := map[string][]guessRun{}
	bar := progress(c.Rounds*len(guessCases), "")
	for round := range c.Rounds {
		for _, one := range guessCases {
			bar.Describe(fmt.Sprintf("%-40s", one.about))
			got, err := c.one(ctx, cl, round, one)
			if err != nil {
				return fmt.Errorf("%s: %w (logs in %s)", one.name, err, cl.dir)
			}
			runs[one.name] = append(runs[one.name], got)
			_ = bar.Add(1) // it draws only
		}
	}
	_ = bar.Finish()
	return c.report(ctx, cl, runs)
}

// one runs a case on a database of its own.
func (c *estimateCmd) one(ctx context.Context, cl *cluster, round int, of guessCase) (guessRun, error) {
	ctx, cancel := context.WithTimeout(ctx, c.For+guessWait+within)
	defer cancel()
	if err := cl.fresh(ctx, fmt.Sprintf("guess_%s_%d", of.name, round), 1, 0); err != nil {
		return guessRun{}, err
	}
	kinds := kindNames(1)
	pool, err := cl.poolKey(ctx, kinds)
	if err != nil {
		return guessRun{}, err
	}
	worker, err := cl.startTimed(ctx, timedSpec{name: "worker", urls: cl.urls, key: pool, kinds: kinds, slots: c.Slots})
	if err != nil {
		return guessRun{}, err
	}
	if err := c.warmUp(ctx, cl, worker); err != nil {
		return guessRun{}, err
	}
	all, clients := make([][]guess, len(of.tenants)), []*errand.Client(nil)
	group, groupCtx := errgroup.WithContext(ctx)
	for i, t := range of.tenants {
		client, err := cl.clientOf(ctx, fmt.Sprintf("tenant-%d", i), t.weight)
		if err != nil {
			return guessRun{}, err
		}
		clients = append(clients, client)
		group.Go(func() error {
			var err error
			all[i], err = c.submit(groupCtx, client, i, t)
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return guessRun{}, err
	}
	got := guessRun{Case: of.name, submitted: slices.Concat(all...)}
	if _, err := until(ctx, guessWait, func() bool { return worker.last().Marks["guess"].Ended >= int64(len(got.submitted)) }); err != nil {
		return got, err
	}
	if _, err := worker.finish(); err != nil {
		return got, err
	}
	if err := got.look(ctx, clients); err != nil {
		return got, err
	}
	got.judge()
	return got, cl.end(context.WithoutCancel(ctx))
}

// warmUp lets the scheduler learn how long tasks of the kind take.
func (c *estimateCmd) warmUp(ctx context.Context, cl *cluster, worker *timed) error {
	client, err := cl.clientOf(ctx, "early", 1)
	if err != nil {
		return err
	}
	specs := make([]errand.Spec, c.Slots)
	for i := range specs {
		specs[i] = errand.Spec{Kind: "work-1", Payload: orderOf("early", c.Work)}
	}
	if _, err := client.SubmitMany(ctx, specs); err != nil {
		return err
	}
	_, err = until(ctx, guessWait, func() bool { return worker.last().Marks["early"].Ended >= int64(len(specs)) })
	return err
}

// submit submits a tenant's tasks, in batches at a steady rate or in bursts.
func (c *estimateCmd) submit(ctx context.Context, client *errand.Client, by int, t guessTenant) ([]guess, error) {
	perSecond := t.load * float64(c.Slots) / c.Work.Seconds()
	every, n := time.Duration(guessBatch/perSecond*float64(time.Second)), guessBatch
	if t.burst {
		every, n = guessSeconds*time.Second, int(guessSeconds*perSecond)
	}
	var all []guess
	tick := time.NewTicker(every)
	defer tick.Stop()
	for end := time.Now().Add(c.For); time.Now().Before(end); {
		specs := make([]errand.Spec, min(n, 1000))
		for i := range specs {
			specs[i] = errand.Spec{Kind: "work-1", Tier: t.tier, Payload: orderOf("guess", c.Work)}
		}
		outcomes, err := client.SubmitMany(ctx, specs)
		if err != nil {
			return nil, err
		}
		for _, o := range outcomes {
			if o.Err != nil {
				return nil, o.Err
			}
			all = append(all, guess{id: o.ID, by: by, told: o.EstimatedStart})
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-tick.C:
		}
	}
	return all, nil
}

// look asks when the tasks were made and started.
func (r *guessRun) look(ctx context.Context, clients []*errand.Client) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(guessReads)
	for i := range r.submitted {
		g := &r.submitted[i]
		group.Go(func() error {
			t, err := clients[g.by].Get(ctx, g.id)
			g.created, g.started = t.CreatedAt, t.StartedAt
			return err
		})
	}
	return group.Wait()
}

// judge compares.
func (r *guessRun) judge() {
	const atOnce = 100 * time.Millisecond
	var parts, bias, waits, short []float64
	for _, g := range r.submitted {
		r.Tasks++
		wait, told := g.started.Sub(g.created), g.told.Sub(g.created)
		switch {
		case g.told.IsZero():
			r.Untold++
			continue
		case told < atOnce:
			r.AtOnce++
			if wait < 2*atOnce {
				r.AtOnceOK++
			}
		}
		if wait < guessLong {
			short = append(short, math.Abs((wait-told).Seconds())*1000)
			continue
		}
		r.Long++
		waits = append(waits, wait.Seconds())
		parts = append(parts, math.Abs((wait-told).Seconds())/wait.Seconds())
		bias = append(bias, (wait-told).Seconds()/wait.Seconds())
	}
	r.WaitP50, r.ErrP50, r.ErrP90 = quantile(waits, 0.5), quantile(parts, 0.5), quantile(parts, 0.9)
	r.Bias, r.ShortP90 = quantile(bias, 0.5), quantile(short, 0.9)
}

func quantile(of []float64, q float64) float64 {
	if len(of) == 0 {
		return 0
	}
	slices.Sort(of)
	return round3(of[min(int(q*float64(len(of))), len(of)-1)])
}

func (c *estimateCmd) report(ctx context.Context, cl *cluster, runs map[string][]guessRun) error {
	out := map[string]any{
		"scenario": "estimate", "machine": machineFacts(ctx, cl), "commit": commit(), "rounds": c.Rounds, "work_ms": c.Work.Seconds() * 1000,
		"slots": c.Slots, "runs": runs,
	}
	w := newTable("CASE", "TASKS", "TOLD AT ONCE", "TRUE", "LONG WAITS", "P50 S", "ERROR P50", "P90", "BIAS", "SHORT: P90 MS")
	worst := 0.0
	for _, one := range guessCases {
		of := func(value func(guessRun) float64) float64 {
			var all []float64
			for _, r := range runs[one.name] {
				all = append(all, value(r))
			}
			return round3(median(all))
		}
		count := func(value func(guessRun) int) string {
			return fmt.Sprintf("%.0f", of(func(r guessRun) float64 { return float64(value(r)) }))
		}
		part := func(value func(guessRun) float64) string { return fmt.Sprintf("%.0f%%", 100*of(value)) }
		out["estimate_error_p50_"+one.name] = of(func(r guessRun) float64 { return r.ErrP50 })
		out["estimate_error_p90_"+one.name] = of(func(r guessRun) float64 { return r.ErrP90 })
		worst = max(worst, of(func(r guessRun) float64 { return r.ErrP50 }))
		w.row(one.about, count(func(r guessRun) int { return r.Tasks }), count(func(r guessRun) int { return r.AtOnce }),
			count(func(r guessRun) int { return r.AtOnceOK }), count(func(r guessRun) int { return r.Long }),
			fmt.Sprintf("%.1f", of(func(r guessRun) float64 { return r.WaitP50 })), part(func(r guessRun) float64 { return r.ErrP50 }),
			part(func(r guessRun) float64 { return r.ErrP90 }), part(func(r guessRun) float64 { return r.Bias }),
			fmt.Sprintf("%.0f", of(func(r guessRun) float64 { return r.ShortP90 })))
	}
	w.flush()
	fmt.Println("Errors are parts of the wait, for tasks that waited a second or more; a bias above zero means later than told.")
	out["estimate_error_p50_worst"] = worst
	return writeJSON(c.JSON, out)
}
