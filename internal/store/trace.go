package store

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
)

// tracer tells a Config's Trace of every execution of a statement, each try of a repeated one apart. Waiting for a connection
// is not in it: the pools' own numbers show that.
type tracer func(what string, took time.Duration, err error)

type (
	nameKey    struct{}
	startedKey struct{}
)

// named gives the statements that run under the returned context their name.
func named(ctx context.Context, what string) context.Context {
	return context.WithValue(ctx, nameKey{}, what)
}

// TraceQueryStart is pgx's hook before a statement.
func (t tracer) TraceQueryStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryStartData) context.Context {
	return context.WithValue(ctx, startedKey{}, time.Now())
}

// TraceQueryEnd is pgx's hook after the last row of a statement was read.
func (t tracer) TraceQueryEnd(ctx context.Context, _ *pgx.Conn, data pgx.TraceQueryEndData) {
	started, known := ctx.Value(startedKey{}).(time.Time)
	if !known {
		return
	}
	what, _ := ctx.Value(nameKey{}).(string) // empty for a statement of a transaction
	t(what, time.Since(started), data.Err)
}
