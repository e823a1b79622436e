package main

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/errandhq/errand"
)

// moveKind is the kind of a task that moves money between two accounts.
const moveKind = "move"

// The bank: whatever happens, its total never changes.
const (
	accounts       = 100
	accountOpening = 1_000_000
)

// move is the payload.
type move struct {
	From   int   `json:"from"`
	To     int   `json:"to"`
	Amount int64 `json:"amount"`
}

func drawMove() move {
	from := rand.IntN(accounts)
	return move{From: from, To: (from + 1 + rand.IntN(accounts-1)) % accounts, Amount: 1 + rand.Int64N(100)}
}

// moneyTables are the bank's: accounts, what was moved, and every run of a handler, with its beginning.
func moneyTables() []string {
	return []string{
		errand.OnceTable,
		"CREATE TABLE accounts (id INT PRIMARY KEY, balance BIGINT NOT NULL)",
		fmt.Sprintf("INSERT INTO accounts SELECT n, %d FROM generate_series(0, %d) AS n", accountOpening, accounts-1),
		"CREATE TABLE moves (task TEXT, account_from INT, account_to INT, amount BIGINT, at TIMESTAMPTZ DEFAULT now())",
		"CREATE TABLE runs (task TEXT, attempt BIGINT, region TEXT, at TIMESTAMPTZ DEFAULT clock_timestamp())",
	}
}

// moneyCmd is a worker whose handler moves money, once for each task.
type moneyCmd struct {
	URL    []string      `required:""`
	Key    string        `required:""`
	Name   string        `required:""`
	Region string        `required:""`
	Slots  int           `default:"20"`
	DB     string        `help:"The bank's database." required:""`
	Work   time.Duration `help:"Mean time of a handler." default:"400ms"`
}

// Run serves until the context ends, and drains.
func (c *moneyCmd) Run(ctx context.Context) error {
	pool, err := pgxpool.New(context.Background(), c.DB)
	if err != nil {
		return err
	}
	defer pool.Close()
	w, err := errand.NewWorker(errand.WorkerConfig{
		Config: errand.Config{URLs: c.URL, Key: c.Key}, Name: c.Name, Log: slog.New(slog.NewTextHandler(os.Stderr, nil)),
	})
	if err != nil {
		return err
	}
	w.Handle(moveKind, c.Slots, func(ctx context.Context, a *errand.Attempt) (errand.Result, error) {
		if _, err := pool.Exec(ctx, `INSERT INTO runs (task, attempt, region) VALUES ($1, $2, $3)`, a.TaskID, a.Number, c.Region); err != nil {
			return errand.Result{}, err
		}
		if err := pause(ctx, c.Work/2+rand.N(c.Work)); err != nil {
			return errand.Result{}, context.Cause(ctx)
		}
		var m move
		if err := json.Unmarshal(a.Payload, &m); err != nil {
			return errand.Result{}, err
		}
		return errand.Result{}, pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error { return m.do(ctx, tx, a) })
	})
	return w.Run(ctx)
}

// do moves the money, unless another attempt has done it. Accounts are locked in order, so that two moves never wait for each other.
func (m move) do(ctx context.Context, tx pgx.Tx, a *errand.Attempt) error {
	first, err := errand.Once(ctx, tx, a, "move")
	if err != nil || !first {
		return err
	}
	if _, err := tx.Exec(ctx, `SELECT FROM accounts WHERE id IN ($1, $2) ORDER BY id FOR UPDATE`, m.From, m.To); err != nil {
		return err
	}
	for _, change := range []struct {
		account int
		amount  int64
	}{{m.From, -m.Amount}, {m.To, m.Amount}} {
		if _, err := tx.Exec(ctx, `UPDATE accounts SET balance = balance + $2 WHERE id = $1`, change.account, change.amount); err != nil {
			return err
		}
	}
	_, err = tx.Exec(ctx, `INSERT INTO moves (task, account_from, account_to, amount) VALUES ($1, $2, $3, $4)`, a.TaskID, m.From, m.To, m.Amount)
	return err
}
