package main

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivermigrate"
)

type riverCmd struct {
	load
	Workers int `default:"2000" help:"Goroutines that work."`
	Conns   int `default:"8" help:"Connections."`
}

type noopArgs struct {
	Payload string `json:"payload"`
}

// Kind is River's name for them.
func (noopArgs) Kind() string { return "noop" }

type noopWorker struct {
	river.WorkerDefaults[noopArgs]
	done *atomic.Int64
	news chan struct{}
}

// Work counts.
func (w *noopWorker) Work(context.Context, *river.Job[noopArgs]) error {
	w.done.Add(1)
	select {
	case w.news <- struct{}{}:
	default:
	}
	return nil
}

// Run inserts, works, and takes the time until the last end is written: Stop waits for River's completer.
func (c *riverCmd) Run(ctx context.Context) error {
	cfg, err := pgxpool.ParseConfig(c.DSN)
	if err != nil {
		return err
	}
	cfg.MaxConns = int32(c.Conns)
	pool, err := pgxpool.NewWithConfig(ctx, cfg)
	if err != nil {
		return err
	}
	defer pool.Close()
	migrator, err := rivermigrate.New(riverpgxv5.New(pool), nil)
	if err != nil {
		return err
	}
	if _, err := migrator.Migrate(ctx, rivermigrate.DirectionUp, nil); err != nil {
		return err
	}
	w := &noopWorker{done: &atomic.Int64{}, news: make(chan struct{}, 1)}
	client, err := c.client(pool, w)
	if err != nil {
		return err
	}
	if err := c.warmUp(ctx, client, w); err != nil {
		return err
	}
	if client, err = c.client(pool, w); err != nil {
		return err
	}
	w.done.Store(0)
	took, err := c.measure(ctx, client, w)
	if err != nil {
		return err
	}
	var completed int
	if err := pool.QueryRow(ctx, `SELECT count(*) FROM river_job WHERE state = 'completed'`).Scan(&completed); err != nil {
		return err
	}
	if want := c.Tasks + c.WarmUps; completed != want {
		return fmt.Errorf("%d of %d are completed", completed, want)
	}
	return tell(took)
}

// client is tuned as `river bench` does it.
func (c *riverCmd) client(pool *pgxpool.Pool, w *noopWorker) (*river.Client[pgx.Tx], error) {
	workers := river.NewWorkers()
	river.AddWorker(workers, w)
	return river.NewClient(riverpgxv5.New(pool), &river.Config{
		FetchCooldown: 2 * time.Millisecond, FetchPollInterval: 20 * time.Millisecond,
		Queues:  map[string]river.QueueConfig{river.QueueDefault: {MaxWorkers: c.Workers}},
		Workers: workers, Logger: slog.New(slog.DiscardHandler),
	})
}

func (c *riverCmd) warmUp(ctx context.Context, client *river.Client[pgx.Tx], w *noopWorker) error {
	if err := client.Start(ctx); err != nil {
		return err
	}
	for n := range c.WarmUps {
		if _, err := client.Insert(ctx, noopArgs{Payload: strings.Repeat("x", c.Bytes)}, nil); err != nil {
			return err
		}
		for w.done.Load() <= int64(n) {
			<-w.news
		}
	}
	return client.Stop(ctx)
}

func (c *riverCmd) measure(ctx context.Context, client *river.Client[pgx.Tx], w *noopWorker) (time.Duration, error) {
	began := time.Now()
	if c.Mode == "backlog" {
		if err := c.insert(ctx, client, func(int) {}); err != nil {
			return 0, err
		}
	}
	if err := client.Start(ctx); err != nil {
		return 0, err
	}
	if c.Mode == "mixed" {
		room := func(inserted int) {
			for int64(inserted)-w.done.Load() > int64(c.Outstanding) {
				<-w.news
			}
		}
		if err := c.insert(ctx, client, room); err != nil {
			return 0, err
		}
	}
	for w.done.Load() < int64(c.Tasks) {
		<-w.news
	}
	err := client.Stop(ctx)
	return time.Since(began), err
}

// insert calls room before each batch with how many will have been inserted after it.
func (c *riverCmd) insert(ctx context.Context, client *river.Client[pgx.Tx], room func(inserted int)) error {
	payload := strings.Repeat("x", c.Bytes)
	for n := 0; n < c.Tasks; n += c.Batch {
		batch := make([]river.InsertManyParams, min(c.Batch, c.Tasks-n))
		for i := range batch {
			batch[i] = river.InsertManyParams{Args: noopArgs{Payload: payload}}
		}
		room(n + len(batch))
		if _, err := client.InsertManyFast(ctx, batch); err != nil {
			return err
		}
	}
	return nil
}
