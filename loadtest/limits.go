package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"time"

	"github.com/errandhq/errand"
	errandv1 "github.com/errandhq/errand/proto/errand/v1"
)

// limitsCmd measures what named limits cost, and how many handlers run at once under a cap on two schedulers.
type limitsCmd struct {
	JSON    string        `help:"Write the results to this file." placeholder:"FILE"`
	SVG     string        `name:"svg" help:"Draw how many handlers ran under the cap into this file." placeholder:"FILE"`
	Rounds  int           `help:"How often each case runs; of throughputs the median counts, of handlers at once the most." default:"3"`
	Tasks   int           `help:"Tasks of a run without a cap that is felt." default:"200000"`
	Batch   int           `help:"Tasks of one submission." default:"1000"`
	Slots   int           `help:"Slots of the worker there." default:"10000"`
	Bytes   int           `help:"Bytes of a payload." default:"100"`
	Keys    int           `help:"Keys of a limit, where tasks have different ones." default:"1000"`
	Cap     int           `help:"Attempts at once under the cap." default:"50"`
	Waiting int           `help:"Tasks that wait for it." default:"5000"`
	Work    time.Duration `help:"How long each of them takes." default:"100ms"`
	Pprof   string        `help:"Keep a CPU profile of the scheduler and the worker of each run without a cap that is felt in this folder." placeholder:"DIR"`
	Keep    bool          `help:"Keep the servers' logs."`
}

// hugeLimits are two limits that nothing reaches. One has a rate too.
func hugeLimits() []*errandv1.NamedLimit {
	return []*errandv1.NamedLimit{{Name: "wide", Concurrency: 10_000_000}, {Name: "fast", Concurrency: 10_000_000, Rate: 1_000_000}}
}

// limitLoads are the loads that are compared.
func (c *limitsCmd) limitLoads() []contender {
	two := func(int) []errand.Limit { return []errand.Limit{{Name: "wide"}, {Name: "fast"}} }
	keyed := func(task int) []errand.Limit {
		return []errand.Limit{{Name: "wide", Key: strconv.Itoa(task % c.Keys)}, {Name: "fast"}}
	}
	of := func(limits func(int) []errand.Limit) func(context.Context, *bench) (measured, error) {
		return func(ctx context.Context, b *bench) (measured, error) {
			return b.runErrand(ctx, load{slots: b.Slots, limits: limits})
		}
	}
	return []contender{
		{"none", "no limits", of(nil)},
		{"two", "two limits with huge caps", of(two)},
		{"keyed", fmt.Sprintf("the same, one of them with %d keys", c.Keys), of(keyed)},
	}
}

// Run measures.
func (c *limitsCmd) Run(ctx context.Context) error {
	if c.Rounds < 1 || c.Batch < 1 || c.Batch > errand.BatchMax || c.Tasks < c.Batch || c.Slots < c.Batch || c.Bytes < 0 || c.Keys < 1 {
		return errors.New("rounds and keys are at least 1, a batch 1 to 1,000 tasks, slots and tasks at least a batch")
	}
	if c.Cap < 2 || c.Waiting <= c.Cap || c.Work <= 0 {
		return errors.New("--cap is at least 2, --waiting above it, --work above 0")
	}
	if c.Pprof != "" {
		if err := os.MkdirAll(c.Pprof, 0o755); err != nil {
			return fmt.Errorf("--pprof: %w", err)
		}
	}
	dir, err := workFolder("limits")
	if err != nil {
		return err
	}
	cl, err := startServers(ctx, dir)
	if err != nil {
		return err
	}
	defer cl.stop()
	loads := c.limitLoads()
	speeds, caps := map[string][]measured{}, map[string][]capRun{}
	bar := progress(c.Rounds*(len(loads)+len(capCases)), "")
	for round := range c.Rounds {
		for _, one := range loads {
			bar.Describe(fmt.Sprintf("%-36s", one.about))
			b := &bench{throughputCmd: c.throughput(), cluster: cl, name: "limits_" + one.name, round: round}
			got, err := one.run(ctx, b)
			if err != nil {
				return fmt.Errorf("%s: %w (logs in %s)", one.about, err, dir)
			}
			speeds[one.name] = append(speeds[one.name], got)
			_ = bar.Add(1) // it draws only
		}
		for _, one := range capCases {
			bar.Describe(fmt.Sprintf("%-36s", one.about))
			got, err := c.underCap(ctx, cl, round, one)
			if err != nil {
				return fmt.Errorf("%s: %w (logs in %s)", one.about, err, dir)
			}
			caps[one.name] = append(caps[one.name], got)
			_ = bar.Add(1)
		}
	}
	_ = bar.Finish()
	if err := c.report(ctx, cl, speeds, caps); err != nil {
		return err
	}
	if c.Keep {
		fmt.Fprintln(os.Stderr, "logs in", dir)
		return nil
	}
	return os.RemoveAll(dir)
}

// throughput are the runs without a cap that is felt.
func (c *limitsCmd) throughput() throughputCmd {
	return throughputCmd{Tasks: c.Tasks, Batch: c.Batch, Slots: c.Slots, Bytes: c.Bytes, Pprof: c.Pprof}
}
