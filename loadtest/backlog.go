package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sync/errgroup"
)

// backlogCmd measures what millions of waiting tasks of one tenant cost the others and the scheduler.
type backlogCmd struct {
	JSON     string `help:"Write the results to this file." placeholder:"FILE"`
	SVG      string `name:"svg" help:"Draw the distributions of the quiet tenant's waits into this file." placeholder:"FILE"`
	Rounds   int    `help:"How often each case runs; the median counts." default:"3"`
	Tasks    int    `help:"Tasks that wait, of one tenant." default:"10000000"`
	Small    int    `help:"Other tenants, each with one task that waits." default:"10000"`
	Measured int    `help:"Tasks whose ends are timed, in each case." default:"200000"`
	Slots    int    `help:"Slots of the worker." default:"10000"`
	Bytes    int    `help:"Bytes of a payload." default:"100"`
	Rate     int    `help:"Single tasks that a quiet tenant submits per second, half of them urgent." default:"100"`
	Keep     bool   `help:"Keep the servers' logs."`
}

// The cases.
const (
	caseEmpty = "empty"
	caseShort = "short"
	caseDrain = "drain"
	caseBoth  = "both"
)

var backlogCases = []struct{ name, about string }{
	{caseEmpty, "no backlog, a closed loop"},
	{caseShort, "a short backlog, drained"},
	{caseDrain, "the backlog, drained"},
	{caseBoth, "the backlog, and the closed loop"},
}

// backlogRun is one case of one round.
type backlogRun struct {
	Case string `json:"case"`
	measured
	Quiet []quietRun `json:"quiet"`
	RSS   float64    `json:"scheduler_rss_mib"` // the most it has had until the end of the case
}

// Run measures.
func (c *backlogCmd) Run(ctx context.Context) error {
	if c.Rounds < 1 || c.Small < 0 || c.Measured < 1 || c.Slots < 1 || c.Bytes < 0 || c.Rate < 2 {
		return errors.New("all numbers are positive, --rate at least 2")
	}
	if need := c.Rounds * casesOfBacklog * (c.lead() + c.Measured); c.Tasks < need {
		return fmt.Errorf("--tasks: %d rounds drain up to %d tasks: raise it, or lower --measured, --slots or --small", c.Rounds, need)
	}
	dir, err := workFolder("backlog")
	if err != nil {
		return err
	}
	cl, err := startServers(ctx, dir)
	if err != nil {
		return err
	}
	defer cl.stop()
	got, err := c.rounds(ctx, cl)
	if err != nil {
		return fmt.Errorf("%w (logs in %s)", err, dir)
	}
	if err := c.report(ctx, cl, got); err != nil {
		return err
	}
	if c.Keep {
		fmt.Fprintln(os.Stderr, "logs in", dir)
		return nil
	}
	return os.RemoveAll(dir)
}

// casesOfBacklog is how many cases drain the backlog in a round, and one to spare for what runs while nothing is timed.
const casesOfBacklog = 3

// lead is how many tasks end in each case before time is taken: what fills the slots, and the small tenants'.
func (c *backlogCmd) lead() int { return 2*c.Slots + c.Small }

// backlogResult is what all rounds gave.
type backlogResult struct {
	runs    map[string][]backlogRun
	cycles  []float64 // seconds of a search for waiting tasks, with all that wait
	written float64   // seconds for the rows
	drained int64
}

func (c *backlogCmd) rounds(ctx context.Context, cl *cluster) (backlogResult, error) {
	got := backlogResult{runs: map[string][]backlogRun{}}
	began := time.Now()
	full, err := c.backlogged(ctx, *cl, "backlog_full", c.Tasks)
	if err != nil {
		return got, err
	}
	got.written = time.Since(began).Seconds()
	bar := progress(c.Rounds*len(backlogCases), "")
	for round := range c.Rounds {
		for _, of := range []struct {
			name  string
			tasks int
			cases []string
		}{{"empty", 0, []string{caseEmpty}}, {"short", c.lead() + c.Measured + c.Slots, []string{caseShort}}, {"full", c.Tasks, []string{caseDrain, caseBoth}}} {
			db := full
			if of.name != "full" {
				if db, err = c.backlogged(ctx, *cl, fmt.Sprintf("backlog_%s_%d", of.name, round), of.tasks); err != nil {
					return got, err
				}
			}
			bar.Describe(of.name)
			if err := c.session(ctx, db, of.cases, &got); err != nil {
				return got, fmt.Errorf("%s: %w", of.name, err)
			}
			_ = bar.Add(len(of.cases)) // it draws only
			if db == full {
				continue
			}
			if err := db.end(context.WithoutCancel(ctx)); err != nil {
				return got, err
			}
		}
	}
	_ = bar.Finish()
	if got.drained >= int64(c.Tasks) {
		return got, fmt.Errorf("the backlog of %d ran dry: raise --tasks", c.Tasks)
	}
	return got, full.end(context.WithoutCancel(ctx))
}

// session runs cases one after the other under one life of the scheduler and of the worker.
func (c *backlogCmd) session(ctx context.Context, db *backlogged, cases []string, got *backlogResult) error {
	ctx, cancel := context.WithTimeout(ctx, time.Duration(len(cases))*within)
	defer cancel()
	if cases[0] != caseEmpty {
		if err := db.copies(ctx, smallTenants, c.Small); err != nil { // those of the round before are done
			return err
		}
	}
	if err := db.settle(ctx); err != nil {
		return err
	}
	scheduler := db.schedulers[0]
	if err := scheduler.start(); err != nil {
		return err
	}
	if err := db.ready(ctx); err != nil {
		return err
	}
	if cases[0] == caseDrain {
		cycle, err := db.discoverCycle(ctx)
		if err != nil {
			return err
		}
		got.cycles = append(got.cycles, cycle)
	}
	w, err := db.startTimed(ctx, timedSpec{name: "worker", urls: db.urls, key: db.pool, kinds: kindNames(1), slots: c.Slots, every: backlogTells})
	if err != nil {
		return err
	}
	var runs []backlogRun
	for _, name := range cases {
		run, err := c.one(ctx, db, w, name)
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		runs = append(runs, run)
	}
	last, err := w.finish()
	if err != nil {
		return err
	}
	if cases[0] == caseDrain {
		got.drained += last.Marks["big"].Ended
	}
	for _, run := range runs {
		for i := range run.Quiet {
			run.Quiet[i].count(last)
		}
		got.runs[run.Case] = append(got.runs[run.Case], run)
	}
	return scheduler.stop(politeLimit)
}

// backlogTells is how often the worker tells its counts; the loop closes later by that much.
const backlogTells = 5 * time.Millisecond

// one times a case between two counts of recorded ends, while the quiet tenant submits.
func (c *backlogCmd) one(ctx context.Context, db *backlogged, w *timed, name string) (backlogRun, error) {
	run := backlogRun{Case: name}
	loopCtx, stop := context.WithCancel(ctx)
	defer stop()
	var loops errgroup.Group
	if name == caseEmpty || name == caseBoth {
		loops.Go(func() error { return c.busy(db, w).run(loopCtx) })
	}
	ends := func(n int64) (tally, error) {
		return w.when(ctx, func(t tally) bool { return t.Answered >= n })
	}
	before, err := w.when(ctx, func(tally) bool { return true })
	if err != nil {
		return run, err
	}
	if _, err := ends(before.Answered + int64(c.lead())); err != nil {
		return run, err
	}
	meter, err := startMeter(ctx, db.cluster, map[string]int{
		"submitter": 0, "scheduler": db.schedulers[0].cmd.Process.Pid, "worker": w.cmd.Process.Pid,
	})
	if err != nil {
		return run, err
	}
	quietCtx, hush := context.WithCancel(ctx)
	defer hush()
	var quiet errgroup.Group
	quiet.Go(func() error {
		var err error
		run.Quiet, err = c.quiet(quietCtx, db.quiet, name)
		return err
	})
	first := w.last()
	last, endErr := ends(first.Answered + int64(c.Measured))
	run.measured, err = meter.stop(ctx, int(last.Answered-first.Answered), time.Duration(last.At-first.At)*time.Microsecond)
	hush()
	stop()
	if err := errors.Join(endErr, err, quiet.Wait()); err != nil {
		return run, err
	}
	if err := loops.Wait(); err != nil && !errors.Is(loopCtx.Err(), context.Canceled) {
		return run, err
	}
	run.RSS = peakMiB(db.schedulers[0].cmd.Process.Pid)
	return run, c.started(ctx, w, run.Quiet)
}
