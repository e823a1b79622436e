package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"golang.org/x/sync/semaphore"

	"github.com/errandhq/errand"
)

// load is how tasks are handed to Errand.
type load struct {
	slots   int
	backlog bool                          // everything is submitted before the worker comes
	keyed   bool                          // with idempotency keys
	limits  func(task int) []errand.Limit // that a task carries; nil for none
}

// warmUps are single tasks before a measurement: the first statements on an empty table decide how the later ones are planned.
const warmUps = 12

// runErrand measures a scheduler process and a worker process; the submitter is this one.
func (b *bench) runErrand(ctx context.Context, l load) (measured, error) {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	if err := b.fresh(ctx, fmt.Sprintf("%s_%d", b.name, b.round), 1, 0); err != nil {
		return measured{}, err
	}
	if l.limits != nil {
		if err := b.putLimits(ctx, "acme", hugeLimits()...); err != nil {
			return measured{}, err
		}
	}
	client, err := errand.NewClient(errand.Config{URLs: b.urls, Key: b.tenant})
	if err != nil {
		return measured{}, err
	}
	worker, err := b.startNoop(ctx, l.slots)
	if err != nil {
		return measured{}, err
	}
	defer worker.kill()
	for range warmUps {
		one, err := client.Submit(ctx, errand.Spec{Kind: "noop", Payload: make([]byte, b.Bytes)})
		if err != nil {
			return measured{}, err
		}
		if _, err := client.Wait(ctx, one.ID); err != nil {
			return measured{}, err
		}
	}
	var got measured
	if l.backlog {
		worker.kill()
		got, err = b.fromBacklog(ctx, client, l)
	} else {
		got, err = b.closedLoop(ctx, client, worker, l)
	}
	if err != nil {
		return measured{}, err
	}
	if err := b.ended(ctx, b.cluster.database, b.Tasks/b.Batch*b.Batch+warmUps); err != nil {
		return measured{}, err
	}
	return got, b.end(ctx)
}

func (b *bench) meterOf(ctx context.Context, worker *noop) (*meter, error) {
	processes := map[string]int{"submitter": 0, "scheduler": b.schedulers[0].cmd.Process.Pid}
	if worker != nil {
		processes["worker"] = worker.cmd.Process.Pid
	}
	return startMeter(ctx, b.cluster, processes)
}

// closedLoop keeps as many tasks between submit and recorded end as may run at once.
func (b *bench) closedLoop(ctx context.Context, client *errand.Client, worker *noop, l load) (measured, error) {
	profiled := b.profileScheduler(ctx)
	if err := worker.wait(ctx, warmUps); err != nil {
		return measured{}, err
	}
	meter, err := b.meterOf(ctx, worker)
	if err != nil {
		return measured{}, err
	}
	all := b.loop(client, l, outstandingOf(l.slots))
	all.await = func(ctx context.Context, n int64) (int64, error) {
		err := worker.wait(ctx, warmUps+int(n)+1)
		return worker.ended.Load() - warmUps, err
	}
	if err := all.run(ctx); err != nil {
		return measured{}, err
	}
	got, err := meter.stop(ctx, all.total, 0)
	return got, errors.Join(err, profiled(), worker.stop(politeLimit))
}

// fromBacklog submits everything, then brings the worker. The time between, while it starts, does not count.
func (b *bench) fromBacklog(ctx context.Context, client *errand.Client, l load) (measured, error) {
	batches := b.Tasks / b.Batch
	meter, err := b.meterOf(ctx, nil)
	if err != nil {
		return measured{}, err
	}
	began := time.Now()
	all := b.loop(client, l, batches*b.Batch)
	if err := all.submit(ctx, semaphore.NewWeighted(int64(all.outstanding))); err != nil {
		return measured{}, err
	}
	took := time.Since(began)
	worker, err := b.startNoop(ctx, l.slots)
	if err != nil {
		return measured{}, err
	}
	defer worker.kill()
	profiled := b.profileScheduler(ctx)
	began = time.Now()
	if err := worker.wait(ctx, batches*b.Batch); err != nil {
		return measured{}, err
	}
	took += time.Since(began)
	got, err := meter.stop(ctx, batches*b.Batch, took)
	got.CPU["worker"] = float64(cpuOf(worker.cmd.Process.Pid, false).Microseconds()) / float64(batches*b.Batch)
	return got, errors.Join(err, profiled(), worker.stop(politeLimit))
}

// loop is of all the tasks of a run.
func (b *bench) loop(client *errand.Client, l load, outstanding int) *loop {
	return &loop{
		client: client, total: b.Tasks / b.Batch * b.Batch, batch: min(b.Batch, max(l.slots/4, 1)), outstanding: outstanding,
		specs: func(from, n int) []errand.Spec { return b.specs(from, n, l) },
	}
}

func (b *bench) specs(from, n int, l load) []errand.Spec {
	specs := make([]errand.Spec, n)
	payload := make([]byte, b.Bytes)
	for i := range specs {
		specs[i] = errand.Spec{Kind: "noop", Payload: payload}
		if l.keyed {
			specs[i].IdempotencyKey = "key-" + strconv.Itoa(from+i)
		}
		if l.limits != nil {
			specs[i].Limits = l.limits(from + i)
		}
	}
	return specs
}

// noop is a worker process that does nothing with its tasks, and tells how many ends are recorded.
type noop struct {
	process
	ended atomic.Int64
	news  chan struct{} // capacity 1
}

func (b *bench) startNoop(ctx context.Context, slots int) (*noop, error) {
	w := &noop{news: make(chan struct{}, 1)}
	w.name = "worker"
	args := []string{"noop", "--url", b.urls[0], "--key", b.pool, "--slots", strconv.Itoa(slots)}
	if b.Pprof != "" {
		args = append(args, "--profile", b.profileFile("worker"))
	}
	if err := b.startTelling(ctx, &w.process, args, w.listen); err != nil {
		return nil, err
	}
	return w, nil
}

// wait waits until so many ends are recorded.
func (w *noop) wait(ctx context.Context, want int) error {
	for w.ended.Load() < int64(want) {
		select {
		case <-w.news:
		case <-ctx.Done():
			return fmt.Errorf("%w (%d of %d had ended)", ctx.Err(), w.ended.Load(), want)
		}
	}
	return nil
}

func (w *noop) listen(out io.Reader) {
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		var stats errand.WorkerStats
		if json.Unmarshal(lines.Bytes(), &stats) != nil {
			continue
		}
		w.ended.Store(stats.Answered)
		select {
		case w.news <- struct{}{}:
		default:
		}
	}
}

// noopCmd is the worker process of the measurements.
type noopCmd struct {
	URL     string `required:""`
	Key     string `required:""`
	Slots   int    `required:""`
	Profile string `help:"Write a CPU profile of the whole life to this file."`
}

// tellEvery is how often it tells its counts; a loop closes later by that much.
const tellEvery = 2 * time.Millisecond

// Run serves until the context ends.
func (c *noopCmd) Run(ctx context.Context) error {
	w, err := errand.NewWorker(errand.WorkerConfig{Config: errand.Config{URLs: []string{c.URL}, Key: c.Key}})
	if err != nil {
		return err
	}
	w.Handle("noop", c.Slots, func(context.Context, *errand.Attempt) (errand.Result, error) { return errand.Result{}, nil })
	if c.Profile != "" {
		stop, err := startProfile(c.Profile)
		if err != nil {
			return err
		}
		defer stop()
	}
	go func() {
		told := int64(-1)
		for range time.Tick(tellEvery) {
			if stats := w.Stats(); stats.Answered != told {
				told = stats.Answered
				_ = json.NewEncoder(os.Stdout).Encode(stats) // the parent is gone: so will be this process
			}
		}
	}()
	return w.Run(ctx)
}

// ended checks in the store that every task has succeeded.
func (c *cluster) ended(ctx context.Context, database string, want int) error {
	conn, err := pgx.Connect(ctx, c.postgres.DSN(database))
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close(ctx) }()
	var all, succeeded int
	if err := conn.QueryRow(ctx, `SELECT count(*), count(*) FILTER (WHERE state = 5) FROM tasks`).Scan(&all, &succeeded); err != nil {
		return err
	}
	if all != want || succeeded != want {
		return fmt.Errorf("of %d tasks %d are stored and %d succeeded", want, all, succeeded)
	}
	return nil
}
