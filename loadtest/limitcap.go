package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
	"golang.org/x/sync/errgroup"
	"gonum.org/v1/plot/plotter"

	"github.com/errandhq/errand"
	errandv1 "github.com/errandhq/errand/proto/errand/v1"
)

// capCase says what happens to the second scheduler while tasks wait for a cap that both have a part of.
type capCase struct {
	name, about string
	happens     func(p *process) error // when a third of the tasks has ended
}

var capCases = []capCase{
	{"steady", "a cap, two schedulers", func(*process) error { return nil }},
	{"restart", "a cap, one of them restarted", func(p *process) error {
		return errors.Join(p.stop(politeLimit), p.start())
	}},
	{"kill", "a cap, one of them killed", func(p *process) error {
		p.signal(syscall.SIGKILL)
		<-p.done
		return p.start()
	}},
}

// capRun is one run of one case.
type capRun struct {
	Case    string  `json:"case"`
	Peak    int     `json:"handlers_at_once"` // the most, in all workers together
	Over    int     `json:"over_cap"`         // the same less the cap
	Used    float64 `json:"cap_used"`         // part of the cap's slot-seconds that was in handlers, from the first one to the last
	PerS    float64 `json:"per_s"`
	Seconds float64 `json:"seconds"`
	Again   int64   `json:"runs_twice"`     // handlers that ran for a task that another attempt ended
	Workers [2]int  `json:"workers_at_end"` // connected to each scheduler
	Running []int   `json:"running"`        // handlers, the mean of each second
	curve   plotter.XYs
}

// underCap lets tasks wait for a cap on two schedulers, with a worker each that has slots for all of the cap.
func (c *limitsCmd) underCap(ctx context.Context, cl *cluster, round int, of capCase) (capRun, error) {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	if err := cl.fresh(ctx, fmt.Sprintf("cap_%s_%d", of.name, round), 2, 0); err != nil {
		return capRun{}, err
	}
	if err := cl.putLimits(ctx, "acme", &errandv1.NamedLimit{Name: "narrow", Concurrency: int32(c.Cap)}); err != nil {
		return capRun{}, err
	}
	if err := pause(ctx, capSettles); err != nil {
		return capRun{}, err
	}
	kinds := kindNames(1)
	pool, err := cl.poolKey(ctx, kinds)
	if err != nil {
		return capRun{}, err
	}
	if err := c.submitCapped(ctx, cl); err != nil {
		return capRun{}, err
	}
	began := time.Now()
	peak := filepath.Join(cl.dir, cl.database+".count")
	var workers [2]*timed
	for i := range workers {
		spec := timedSpec{
			name: fmt.Sprintf("worker%d", i+1), key: pool, kinds: kinds, slots: 4 * c.Cap, peak: peak,
			urls: []string{cl.urls[i], cl.urls[1-i]}, // when its scheduler is gone it goes to the other one
		}
		if workers[i], err = cl.startTimed(ctx, spec); err != nil {
			return capRun{}, err
		}
	}
	ended := func() int64 { return sum("", workers[0].last(), workers[1].last()).Ended }
	if err := reached(ctx, ended, int64(c.Waiting/3)); err != nil {
		return capRun{}, err
	}
	if err := of.happens(cl.schedulers[1]); err != nil {
		return capRun{}, err
	}
	run := capRun{Case: of.name}
	if run.Seconds, err = cl.allEnded(ctx, c.Waiting); err != nil {
		return capRun{}, err
	}
	for i, url := range cl.metrics {
		n, err := gauge(ctx, url, "errand_workers")
		if err != nil {
			return capRun{}, err
		}
		run.Workers[i] = int(n)
	}
	run.curve = runningCurve(workers[0].since(began), workers[1].since(began))
	if err := c.countCap(workers, &run); err != nil {
		return run, err
	}
	return run, cl.end(context.WithoutCancel(ctx))
}

// capSettles is how long two schedulers that have just started may take until each has its part of a cap: each waits a session's life,
// 6 s, in which the other could think that it is alone.
const capSettles = 8 * time.Second

// submitCapped submits half of the tasks to each scheduler.
func (c *limitsCmd) submitCapped(ctx context.Context, cl *cluster) error {
	group, ctx := errgroup.WithContext(ctx)
	for i, url := range cl.urls {
		n := (c.Waiting + i) / len(cl.urls)
		client, err := errand.NewClient(errand.Config{URLs: []string{url}, Key: cl.tenant})
		if err != nil {
			return err
		}
		group.Go(func() error {
			for ; n > 0; n -= feedBatch {
				specs := make([]errand.Spec, min(n, feedBatch))
				for j := range specs {
					specs[j] = errand.Spec{Kind: "work-1", Limits: []errand.Limit{{Name: "narrow"}}, Payload: orderOf("capped", c.Work)}
				}
				if err := submitBatch(ctx, client, specs); err != nil {
					return err
				}
			}
			return nil
		})
	}
	return group.Wait()
}

// reached waits until a count is so large.
func reached(ctx context.Context, count func() int64, want int64) error {
	is, err := until(ctx, within, func() bool { return count() >= want })
	if err == nil && !is {
		err = fmt.Errorf("%d of %d had ended after %v", count(), want, within)
	}
	return err
}

// allEnded waits until so many tasks have succeeded, and says how long that took from the first start, by the store's clock.
func (c *cluster) allEnded(ctx context.Context, want int) (seconds float64, err error) {
	conn, err := pgx.Connect(ctx, c.postgres.DSN(c.database))
	if err != nil {
		return 0, err
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	var failed error
	err = reached(ctx, func() int64 {
		var n int64
		if failed = conn.QueryRow(ctx, `SELECT count(*) FROM tasks WHERE state = 5`).Scan(&n); failed != nil {
			return int64(want) // to end the wait
		}
		return n
	}, int64(want))
	if err := errors.Join(failed, err); err != nil {
		return 0, err
	}
	err = conn.QueryRow(ctx, `SELECT extract(epoch FROM max(ended_at) - min(started_at))::float8 FROM tasks`).Scan(&seconds)
	return round3(seconds), err
}

// countCap drains the workers and takes what they have seen.
func (c *limitsCmd) countCap(workers [2]*timed, run *capRun) error {
	var last [2]tally
	for i, w := range workers {
		var err error
		if last[i], err = w.finish(); err != nil {
			return err
		}
		run.Peak = max(run.Peak, last[i].Peak)
	}
	run.Over = run.Peak - c.Cap
	run.Again = sum("", last[:]...).Ended - int64(c.Waiting)
	for _, p := range run.curve {
		run.Running = append(run.Running, int(math.Round(p.Y)))
	}
	run.PerS = round3(float64(c.Waiting) / run.Seconds)
	run.Used = round3(sum("", last[:]...).busySeconds() / run.Seconds / float64(c.Cap))
	return nil
}

func (c counts) busySeconds() float64 { return float64(c.Busy) / 1e6 }

// runningCurve is how many handlers of two workers ran, the mean of each second, from the first of them to the last.
func runningCurve(one, two []tally) plotter.XYs {
	var points plotter.XYs
	step := int(time.Second / tallyEvery)
	for i := step; i < min(len(one), len(two)); i += step {
		mean := func(all []tally) float64 {
			from, to := all[i-step], all[i]
			return float64(sum("", to).Busy-sum("", from).Busy) / float64(to.At-from.At)
		}
		points = append(points, plotter.XY{X: float64(one[i].At-one[0].At) / 1e6, Y: mean(one) + mean(two)})
	}
	for n := len(points); n > 2 && points[n-1].Y == 0; n-- {
		points = points[:n-1]
	}
	return points
}
