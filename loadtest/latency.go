package main

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
	"github.com/jackc/pgx/v5"

	"github.com/errandhq/errand"
)

// latencyCmd measures an idle system: one task at a time, and between two tasks one durable insert by plain SQL.
type latencyCmd struct {
	JSON  string `help:"Write the results to this file." placeholder:"FILE"`
	Tasks int    `help:"Tasks, and inserts." default:"3000"`
	Bytes int    `help:"Bytes of a payload." default:"100"`
	Keep  bool   `help:"Keep the servers' logs."`
}

// latencies are what was measured, in microseconds.
type latencies struct {
	insert *hdrhistogram.Histogram // one INSERT on Errand's table and indexes, a transaction of its own
	submit *hdrhistogram.Histogram // from before Submit to its answer: the task is durable
	start  *hdrhistogram.Histogram // from before Submit to the handler's first instruction
	done   *hdrhistogram.Histogram // from before Submit to the answer of Wait: the end is recorded
}

// Bounds of what can be measured: a microsecond to a minute, with three digits.
const (
	latencyMin, latencyMax = 1, 60_000_000
	latencyDigits          = 3
)

func newLatencies() latencies {
	h := func() *hdrhistogram.Histogram { return hdrhistogram.New(latencyMin, latencyMax, latencyDigits) }
	return latencies{h(), h(), h(), h()}
}

// Run measures.
func (c *latencyCmd) Run(ctx context.Context) error {
	if c.Tasks < 1 || c.Bytes < 0 {
		return fmt.Errorf("--tasks is at least 1, --bytes at least 0")
	}
	dir, err := workFolder("latency")
	if err != nil {
		return err
	}
	cl, err := startServers(ctx, dir)
	if err != nil {
		return err
	}
	defer cl.stop()
	if err := cl.fresh(ctx, "latency", 1, 0); err != nil {
		return err
	}
	if err := cl.migrated(ctx, "latency_raw"); err != nil {
		return err
	}
	got, err := c.measure(ctx, cl)
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

// measure runs the worker in this process, so that one clock sees both ends; the scheduler is a process of its own.
func (c *latencyCmd) measure(ctx context.Context, cl *cluster) (latencies, error) {
	got := newLatencies()
	conn, err := indexedConn(ctx, cl.postgres.DSN("latency_raw"))
	if err != nil {
		return got, err
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	client, err := errand.NewClient(errand.Config{URLs: cl.urls, Key: cl.tenant})
	if err != nil {
		return got, err
	}
	worker, err := errand.NewWorker(errand.WorkerConfig{Config: errand.Config{URLs: cl.urls, Key: cl.pool}})
	if err != nil {
		return got, err
	}
	started := make(chan time.Time, 1)
	worker.Handle("noop", 100, func(context.Context, *errand.Attempt) (errand.Result, error) {
		started <- time.Now()
		return errand.Result{}, nil
	})
	workerCtx, stop := context.WithCancel(ctx)
	served := make(chan error, 1)
	go func() { served <- worker.Run(workerCtx) }()
	bar := progress(warmUps+c.Tasks, "tasks and inserts")
	for n := range warmUps + c.Tasks {
		into := got
		if n < warmUps {
			into = newLatencies()
		}
		if err := c.one(ctx, conn, client, started, into); err != nil {
			stop()
			return got, err
		}
		_ = bar.Add(1)
	}
	stop()
	return got, <-served
}

func (c *latencyCmd) one(ctx context.Context, conn *pgx.Conn, client *errand.Client, started <-chan time.Time, into latencies) error {
	began := time.Now()
	if _, err := rawInsertBatch(ctx, conn, 0, 1, c.Bytes); err != nil {
		return err
	}
	record(into.insert, began, time.Now())

	began = time.Now()
	task, err := client.Submit(ctx, errand.Spec{Kind: "noop", Payload: make([]byte, c.Bytes)})
	if err != nil {
		return err
	}
	record(into.submit, began, time.Now())
	if _, err := client.Wait(ctx, task.ID); err != nil {
		return err
	}
	record(into.done, began, time.Now())
	record(into.start, began, <-started)
	return nil
}

func record(into *hdrhistogram.Histogram, from, to time.Time) {
	_ = into.RecordValue(max(to.Sub(from).Microseconds(), latencyMin)) // beyond a minute the context has ended
}

func (c *latencyCmd) report(ctx context.Context, cl *cluster, got latencies) error {
	out := map[string]any{"scenario": "latency", "machine": machineFacts(ctx, cl), "commit": commit(), "tasks": c.Tasks, "payload_bytes": c.Bytes}
	w := newTable("WHAT", "P50 MS", "P99 MS", "P50 / INSERT", "P99 / INSERT", "GOAL")
	ms := func(h *hdrhistogram.Histogram, q float64) float64 { return float64(h.ValueAtQuantile(q)) / 1000 }
	for _, one := range []struct {
		name, about, goal string
		h                 *hdrhistogram.Histogram
	}{
		{"insert", "one durable INSERT", "", got.insert},
		{"submit", "submit to its answer", "", got.submit},
		{"start", "submit to handler start", "p50 <= 2.5, p99 <= 3", got.start},
		{"done", "submit to the answer of a wait", "", got.done},
	} {
		p50, p99 := ms(one.h, 50), ms(one.h, 99)
		out[one.name+"_p50_ms"], out[one.name+"_p99_ms"] = p50, p99
		r50, r99 := round3(p50/ms(got.insert, 50)), round3(p99/ms(got.insert, 99))
		out["ratio_"+one.name+"_p50"], out["ratio_"+one.name+"_p99"] = r50, r99
		w.row(one.about, fmt.Sprintf("%.3f", p50), fmt.Sprintf("%.3f", p99), fmt.Sprintf("%.2f", r50), fmt.Sprintf("%.2f", r99), one.goal)
	}
	w.flush()
	return writeJSON(c.JSON, out)
}
