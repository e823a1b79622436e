package main

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
)

// failoverCmd runs three regions and takes one of them away.
type failoverCmd struct {
	Scenario []string      `help:"Run only these."`
	Runs     int           `help:"How often each." default:"1"`
	Rate     int           `help:"Tasks submitted per second, over all regions." default:"60"`
	Before   time.Duration `help:"Load before the fault." default:"10s"`
	Fault    time.Duration `help:"How long it holds." default:"45s"`
	After    time.Duration `help:"Load after it." default:"20s"`
	Settle   time.Duration `help:"How long tasks may take to end after the load." default:"60s"`
	Profile  string        `help:"Times of regions: wan or local." enum:"wan,local" default:"wan"`
	JSON     string        `help:"Write the results to this file." placeholder:"FILE"`
	Keep     bool          `help:"Keep the logs."`
}

// Validate checks the flags.
func (c *failoverCmd) Validate() error {
	var names []string
	for _, s := range failoverScenarios {
		names = append(names, s.name)
	}
	for _, name := range c.Scenario {
		if !slices.Contains(names, name) {
			return fmt.Errorf("--scenario: %q is not one of %s", name, strings.Join(names, ", "))
		}
	}
	return nil
}

// Run runs the scenarios.
func (c *failoverCmd) Run(ctx context.Context) error {
	return onServers(ctx, "failover", c.Keep, func(ctx context.Context, cl *cluster) error {
		var results []failoverResult
		for _, s := range failoverScenarios {
			if len(c.Scenario) > 0 && !slices.Contains(c.Scenario, s.name) {
				continue
			}
			for n := range c.Runs {
				fmt.Fprintf(os.Stderr, "%-17s %s ... ", s.name, s.about)
				r, err := c.run(ctx, cl, &s, n)
				if err != nil {
					return fmt.Errorf("%s: %w; logs in %s", s.name, err, cl.dir)
				}
				fmt.Fprintln(os.Stderr, r.line())
				results = append(results, r)
			}
		}
		if err := c.report(ctx, cl, results); err != nil {
			return err
		}
		if i := slices.IndexFunc(results, func(r failoverResult) bool { return !r.OK }); i >= 0 {
			return fmt.Errorf("%s: a promise was broken: see the table; logs in %s", results[i].Name, cl.dir)
		}
		return nil
	})
}

// run is one scenario: load, fault, end of the fault, and the count afterwards.
func (c *failoverCmd) run(ctx context.Context, cl *cluster, s *failoverScenario, n int) (failoverResult, error) {
	ctx, cancel := context.WithTimeout(ctx, c.Before+c.Fault+c.After+c.Settle+failoverSpare)
	defer cancel()
	d, err := cl.freshRegions(ctx, fmt.Sprintf("failover_%s_%d", strings.ReplaceAll(s.name, "-", "_"), n+1), c.Profile)
	defer func() { _ = d.close(context.WithoutCancel(ctx)) }() // what stays is dropped with the server
	if err != nil {
		return failoverResult{}, err
	}
	l := &clients{accepted: map[string]time.Time{}}
	var at failoverTimes
	group, groupCtx := errgroup.WithContext(ctx)
	stop := make(chan struct{})
	group.Go(func() error { return l.run(groupCtx, d, c.Rate, stop) })
	group.Go(func() error {
		defer close(stop)
		return c.fault(groupCtx, d, s, &at)
	})
	if err := group.Wait(); err != nil {
		return failoverResult{}, err
	}
	done, err := d.settle(ctx, c.Settle)
	if err != nil {
		return failoverResult{}, err
	}
	at.judged = time.Now()
	return d.judge(ctx, s, l, done, at)
}

// failoverSpare is what starting and counting may take.
const failoverSpare = 2 * time.Minute

// fault lets it begin, hold and end.
func (c *failoverCmd) fault(ctx context.Context, d *deployment, s *failoverScenario, at *failoverTimes) error {
	if err := pause(ctx, c.Before); err != nil {
		return err
	}
	at.fault = time.Now()
	if err := s.begin(ctx, d); err != nil {
		return fmt.Errorf("the fault: %w", err)
	}
	if err := s.hold(ctx, d, c.Fault); err != nil {
		return err
	}
	at.mended = time.Now()
	if err := s.end(ctx, d); err != nil {
		return fmt.Errorf("the end of the fault: %w", err)
	}
	return pause(ctx, c.After)
}

// line is a result for people.
func (r *failoverResult) line() string {
	return fmt.Sprintf("lost %d of %d, twice %d, elsewhere after %s, p99 %.0f / %.0f / %.0f ms",
		r.Lost, r.Accepted, r.EffectsTwice, r.elsewhere(), r.P99Before, r.P99During, r.P99After)
}

func (r *failoverResult) elsewhere() string {
	if r.Elsewhere == nil {
		return "-"
	}
	return fmt.Sprintf("%.1fs", *r.Elsewhere)
}

func (c *failoverCmd) report(ctx context.Context, cl *cluster, results []failoverResult) error {
	w := newTable("SCENARIO", "ACCEPTED", "ENDED", "LOST", "TWICE", "NEVER", "RAN AGAIN", "ELSEWHERE", "P99 BEFORE", "DURING", "AFTER", "LONGEST", "TOTAL", "AUDIT", "OK")
	for _, r := range results {
		audit := "ok"
		if r.Audit != audit {
			audit = "see the JSON"
		}
		total := "same"
		if !r.Total {
			total = "CHANGED"
		}
		ms := func(v float64) string { return fmt.Sprintf("%.0fms", v) }
		w.row(r.Name, fmt.Sprint(r.Accepted), fmt.Sprint(r.Ended), fmt.Sprint(r.Lost), fmt.Sprint(r.EffectsTwice), fmt.Sprint(r.EffectsNever),
			fmt.Sprint(r.RunsTwice), r.elsewhere(), ms(r.P99Before), ms(r.P99During), ms(r.P99After), ms(r.Longest), total, audit, fmt.Sprint(r.OK))
	}
	w.flush()
	return writeJSON(c.JSON, map[string]any{
		"scenario": "failover", "machine": machineFacts(ctx, cl), "commit": commit(), "profile": c.Profile, "rate": c.Rate,
		"fault_s": c.Fault.Seconds(), "runs": results,
	})
}
