package store

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/cenkalti/backoff/v5"
	"github.com/cockroachdb/cockroach-go/v2/crdb/crdbpgxv5"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/errandhq/errand/scheduler"
)

// Bounds of retrying what the database itself asks to retry. Each try ends in an answer within the statement timeout, and the
// caller's context ends them all.
const (
	conflictTriesMax  = 20
	conflictPauseMin  = 2 * time.Millisecond
	conflictPauseMax  = 200 * time.Millisecond
	codeSerialization = "40001"
	codeDeadlock      = "40P01"
	codeStalePlan     = "0A000" // a cached plan after a schema change
	codeLockTimeout   = "55P03"
	codeUnknown       = "40003"
)

// retryable tells whether the database says: nothing was written, try again.
func retryable(err error) bool {
	var pg *pgconn.PgError
	if !errors.As(err, &pg) {
		return false
	}
	return pg.Code == codeSerialization || pg.Code == codeDeadlock || pg.Code == codeStalePlan
}

// translate gives an error one of the meanings that a scheduler tells apart, and keeps the cause.
func translate(what string, err error) error {
	var pg *pgconn.PgError
	switch {
	case err == nil:
		return nil
	case errors.Is(err, pgx.ErrNoRows):
		return fmt.Errorf("%s: %w", what, ErrNotFound)
	case errors.As(err, &pg) && pg.Code == codeLockTimeout:
		return fmt.Errorf("%s: %w: %w", what, scheduler.ErrLocked, err)
	case errors.As(err, &pg) && pg.Code == "23505":
		return fmt.Errorf("%s: %w: %w", what, ErrExists, err)
	case errors.As(err, &pg) && (pg.Code[:2] == "22" || pg.Code[:2] == "23"):
		return fmt.Errorf("%s: %w: %w", what, scheduler.ErrRefused, err)
	default:
		return fmt.Errorf("%s: %w: %w", what, scheduler.ErrUnavailable, err)
	}
}

// again runs f until it succeeds or fails for another reason than a conflict, with capped and jittered pauses.
func again(ctx context.Context, f func() error) error {
	pause := backoff.NewExponentialBackOff()
	pause.InitialInterval, pause.MaxInterval, pause.RandomizationFactor = conflictPauseMin, conflictPauseMax, 0.9
	_, err := backoff.Retry(ctx, func() (struct{}, error) {
		err := f()
		if err != nil && !retryable(err) {
			return struct{}{}, backoff.Permanent(err)
		}
		return struct{}{}, err
	}, backoff.WithBackOff(pause), backoff.WithMaxTries(conflictTriesMax))
	return err
}

// rows runs one statement that is its own transaction and scans every row it returns.
func rows[T any](ctx context.Context, pool *pgxpool.Pool, what, sql string, scan func(pgx.CollectableRow) (T, error), args ...any) ([]T, error) {
	var got []T
	ctx = named(ctx, what)
	err := again(ctx, func() error {
		result, err := pool.Query(ctx, sql, args...)
		if err != nil {
			return err
		}
		got, err = pgx.CollectRows(result, scan)
		return err
	})
	return got, translate(what, err)
}

// one takes the only row, or says that there is none.
func one[T any](got []T, err, none error) (T, error) {
	var zero T
	switch {
	case err != nil:
		return zero, err
	case len(got) == 0:
		return zero, none
	}
	return got[0], nil
}

// InTx is the one door for transactions of several statements. f may run many times and must wrap errors with %w.
//
// On CockroachDB it is cockroach-go's ExecuteTx. On PostgreSQL that would lose writes: it takes RELEASE SAVEPOINT for the commit
// and drops the error of COMMIT; so there it begins, runs and commits, returns the error of COMMIT, and starts the whole
// transaction again on 40001 and 40P01.
func (s *Store) InTx(ctx context.Context, f func(tx pgx.Tx) error) error {
	return inTx(ctx, s.general, s.dialect, f)
}

func inTx(ctx context.Context, pool *pgxpool.Pool, d Dialect, f func(tx pgx.Tx) error) error {
	if d == CockroachDB {
		return translate("transaction", crdbpgx.ExecuteTx(ctx, pool, pgx.TxOptions{}, f))
	}
	err := again(ctx, func() error { return pgx.BeginFunc(ctx, pool, f) })
	var known interface{ Is(error) bool }
	if err != nil && errors.As(err, &known) && !isDatabase(err) {
		return err // the closure's own
	}
	return translate("transaction", err)
}

func isDatabase(err error) bool {
	var pg *pgconn.PgError
	return errors.As(err, &pg)
}
