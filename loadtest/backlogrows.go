package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/errandhq/errand"
)

// Millions of waiting tasks are written by SQL, since one submit after the other would take longer than what is measured. Each is a copy
// of a task that was submitted over the API, with an id of its own, so that the columns are those that Errand writes. They have been
// ready for backlogAge: of standard tasks all are late, however long the writing takes.
const (
	copyTasks = `
WITH model AS (
    SELECT * FROM tasks WHERE tenant = $1::text AND state = 2 LIMIT 1
), added AS (
    INSERT INTO tasks (region, id, shard, tier, state, class, tolerance_us, created_at, ready_at, due, tenant, kind, spec, payload)
    SELECT m.region, (lpad(to_hex(n % 16), 2, '0') || lpad(to_hex($2::bigint), 12, '0') || lpad(to_hex(n), 18, '0'))::uuid, n % 16,
        m.tier, m.state, m.class, m.tolerance_us, $3::timestamptz, $3::timestamptz,
        $3::timestamptz + m.tolerance_us * INTERVAL '1 microsecond' + n * INTERVAL '1 microsecond',
        CASE WHEN $4::text = '' THEN m.tenant ELSE $4::text || n END, m.kind, m.spec, m.payload
    FROM model m CROSS JOIN generate_series($5::bigint, $6::bigint) AS n
    RETURNING region, tenant, tier
)
INSERT INTO ledger (region, batch, tenant, tier, accepted, ended, purged, at)
SELECT region, gen_random_uuid(), tenant, tier, count(*), 0, 0, now() FROM added GROUP BY region, tenant, tier`
	copyTenants = `
INSERT INTO tenants (name, home_region, weight, created_at, changed_at)
SELECT $2::text || n, home_region, weight, now(), now() FROM tenants CROSS JOIN generate_series(1, $3::bigint) AS n WHERE name = $1::text`

	backlogAge   = 10 * time.Minute
	rowsPerCopy  = 100_000
	copyWithin   = 2 * time.Hour // all rows; after it the disk is too slow
	modelTenant  = "big"
	smallTenants = "small-"
)

// copies writes waiting tasks: of the model's tenant, or where a prefix is given one for each of so many tenants.
func (c *cluster) copies(ctx context.Context, prefix string, n int) error {
	ctx, cancel := context.WithTimeout(ctx, copyWithin)
	defer cancel()
	conn, err := pgx.Connect(ctx, c.postgres.DSN(c.database))
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	stamp, since := time.Now().UnixMilli(), time.Now().Add(-backlogAge)
	bar := progress(n, "rows of the backlog")
	for from := 1; from <= n; from += rowsPerCopy {
		to := min(from+rowsPerCopy-1, n)
		if _, err := conn.Exec(ctx, copyTasks, modelTenant, stamp, since, prefix, from, to); err != nil {
			return fmt.Errorf("write the backlog: %w", err)
		}
		_ = bar.Add(to - from + 1) // it draws only
	}
	return bar.Finish()
}

// backlogged is a deployment whose scheduler each measurement starts and stops.
type backlogged struct {
	*cluster
	busy, quiet *errand.Client
	pool        string
}

// backlogged makes one on a database of its own, with the tenants and so many tasks that wait.
func (c *backlogCmd) backlogged(ctx context.Context, shared cluster, name string, tasks int) (*backlogged, error) {
	db := &backlogged{cluster: &shared}
	if err := db.fresh(ctx, name, 1, 0); err != nil {
		return nil, err
	}
	big, err := db.clientOf(ctx, modelTenant, 1)
	if err != nil {
		return nil, err
	}
	if db.busy, err = db.clientOf(ctx, "busy", 1); err != nil {
		return nil, err
	}
	if db.quiet, err = db.clientOf(ctx, "quiet", 1); err != nil {
		return nil, err
	}
	if db.pool, err = db.poolKey(ctx, kindNames(1)); err != nil {
		return nil, err
	}
	if _, err := big.Submit(ctx, errand.Spec{Kind: "work-1", Payload: c.payload("big")}); err != nil {
		return nil, err
	}
	if err := db.schedulers[0].stop(politeLimit); err != nil {
		return nil, err
	}
	conn, err := pgx.Connect(ctx, db.postgres.DSN(db.database))
	if err != nil {
		return nil, err
	}
	_, err = conn.Exec(ctx, copyTenants, modelTenant, smallTenants, c.Small)
	if err := errors.Join(err, conn.Close(ctx)); err != nil {
		return nil, err
	}
	return db, db.copies(ctx, "", tasks)
}

// settle brings the database to where it would be after a while, so that what follows does not pay for the rows that were written.
func (c *cluster) settle(ctx context.Context) error {
	return c.sql(ctx, c.database, "VACUUM (ANALYZE) tasks", "CHECKPOINT")
}

// payload is an order without a time, as large as the payloads of the other measurements.
func (c *backlogCmd) payload(mark string) []byte {
	raw := order{Mark: mark}.encode()
	for len(raw) < c.Bytes {
		raw = append(raw, ' ')
	}
	return raw
}
