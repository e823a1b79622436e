package main

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/errandhq/errand"
)

// workerCmd is a worker whose handler moves money: each task adds one to an account, once.
type workerCmd struct {
	URL   []string      `required:""`
	Key   string        `required:""`
	Name  string        `required:""`
	Slots int           `default:"50"`
	DB    string        `help:"The user's database, where effects are." required:""`
	Work  time.Duration `help:"Mean time of a handler." default:"40ms"`
}

// Run serves until the context ends, and drains.
func (c *workerCmd) Run(ctx context.Context) error {
	pool, err := pgxpool.New(context.Background(), c.DB)
	if err != nil {
		return err
	}
	defer pool.Close()
	w, err := errand.NewWorker(errand.WorkerConfig{
		Config: errand.Config{URLs: c.URL, Key: c.Key}, Name: c.Name,
		Log: slog.New(slog.NewTextHandler(os.Stderr, nil)),
	})
	if err != nil {
		return err
	}
	w.Handle("transfer", c.Slots, func(ctx context.Context, a *errand.Attempt) (errand.Result, error) {
		select {
		case <-ctx.Done():
			return errand.Result{}, context.Cause(ctx)
		case <-time.After(c.Work/2 + rand.N(c.Work)):
		}
		return errand.Result{}, c.transfer(ctx, pool, a)
	})
	return w.Run(ctx)
}

// transfer counts every run, and moves the money once.
func (c *workerCmd) transfer(ctx context.Context, pool *pgxpool.Pool, a *errand.Attempt) error {
	const patience = 30 * time.Second // the store may be away: that is no fault of the task
	deadline := time.Now().Add(patience)
	for {
		err := pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
			if _, err := tx.Exec(ctx, `INSERT INTO runs (task, attempt, worker) VALUES ($1, $2, $3)`, a.TaskID, a.Number, c.Name); err != nil {
				return err
			}
			first, err := errand.Once(ctx, tx, a, "transfer")
			if err != nil || !first {
				return err
			}
			_, err = tx.Exec(ctx, `INSERT INTO transfers (task) VALUES ($1)`, a.TaskID)
			return err
		})
		if err == nil || ctx.Err() != nil || time.Now().After(deadline) {
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("transfer: %w", context.Cause(ctx))
		case <-time.After(200 * time.Millisecond):
		}
	}
}
