package store

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/errandhq/errand/scheduler"
)

// discoverGroups walks the ready index from one group to the next: one probe per group, however many rows each has.
const discoverGroups = `
WITH RECURSIVE g AS (
    (SELECT t.tenant, t.tier, t.class FROM tasks t
     WHERE t.region = $1::crdb_internal_region AND t.lane = $2::smallint
        AND (t.tenant, t.tier, t.class) > ($3::text, $4::smallint, $5::smallint)
     ORDER BY t.tenant, t.tier, t.class LIMIT 1)
    UNION ALL
    SELECT n.tenant, n.tier, n.class FROM g CROSS JOIN LATERAL (
        SELECT t.tenant, t.tier, t.class FROM tasks t
        WHERE t.region = $1::crdb_internal_region AND t.lane = $2::smallint
            AND (t.tenant, t.tier, t.class) > (g.tenant, g.tier, g.class)
        ORDER BY t.tenant, t.tier, t.class LIMIT 1) n
)
SELECT tenant, tier, class FROM g LIMIT $6::bigint`

// Discover lists the groups that have ready rows in a shard, in the order of the index.
func (s *Store) Discover(ctx context.Context, q scheduler.DiscoverQuery) ([]scheduler.BufferKey, error) {
	after := scheduler.BufferKey{} // sorts before every tenant
	if q.After != nil {
		after = *q.After
	}
	return rows(ctx, s.hot, "discover groups", discoverGroups, func(row pgx.CollectableRow) (scheduler.BufferKey, error) {
		var k scheduler.BufferKey
		err := row.Scan(&k.Tenant, &k.Tier, &k.Class)
		return k, err
	}, q.Region, int16(q.Shard), after.Tenant, int16(after.Tier), after.Class, int64(q.Limit))
}

// readyColumns are a waiting row as the buffers hold it.
const readyColumns = `t.id, t.attempt, t.state, t.tenant, t.kind, t.tier, t.spec, t.due, t.start_by,
    COALESCE(octet_length(t.payload), 0), t.suspect`

// refillGroups reads the earliest due ready rows of slices of groups, each after a position.
const refillGroups = `
SELECT r.* FROM (
    SELECT * FROM unnest($2::smallint[], $3::text[], $4::smallint[], $5::smallint[], $6::timestamptz[], $7::uuid[])
        AS u (shard, tenant, tier, class, due, id)
    OFFSET 0
) x CROSS JOIN LATERAL (
    SELECT ` + readyColumns + ` FROM tasks t
    WHERE t.region = $1::crdb_internal_region AND t.lane = x.shard AND t.tenant = x.tenant AND t.tier = x.tier AND t.class = x.class
        AND (t.due, t.id) > (x.due, x.id)
    ORDER BY t.due, t.id LIMIT $8::bigint
) r`

// Refill reads the earliest due ready rows of groups.
func (s *Store) Refill(ctx context.Context, q scheduler.RefillQuery) ([]scheduler.ReadyRow, error) {
	n := len(q.Slices)
	shards, tenants, tiers, classes := make([]int16, n), make([]string, n), make([]int16, n), make([]int16, n)
	dues, ids := make([]time.Time, n), make([][16]byte, n)
	for i, slice := range q.Slices {
		shards[i], tenants[i], tiers[i], classes[i] = int16(slice.Shard), slice.Key.Tenant, int16(slice.Key.Tier), slice.Key.Class
		dues[i], ids[i] = slice.After.Due, slice.After.ID
	}
	return rows(ctx, s.hot, "refill groups", refillGroups, func(row pgx.CollectableRow) (scheduler.ReadyRow, error) {
		var r readyScan
		err := row.Scan(r.targets()...)
		return r.ready(), err
	}, q.Region, shards, tenants, tiers, classes, dues, ids, int64(q.PerShard))
}

func shards(list []uint8) []int16 {
	out := make([]int16, len(list))
	for i, s := range list {
		out[i] = int16(s)
	}
	return out
}

// readyScan receives readyColumns.
type readyScan struct {
	id      [16]byte
	spec    []byte
	startBy *time.Time
	r       scheduler.ReadyRow
}

func (r *readyScan) targets() []any {
	return []any{
		&r.id, &r.r.Attempt, &r.r.State, &r.r.Tenant, &r.r.Kind, &r.r.Tier, &r.spec, &r.r.Due, &r.startBy, &r.r.PayloadSize, &r.r.Suspect,
	}
}

func (r *readyScan) ready() scheduler.ReadyRow {
	spec := specOf(r.spec)
	r.r.ID, r.r.StartBy, r.r.Due = r.id, timeOf(r.startBy), r.r.Due.UTC()
	r.r.Class, r.r.Limits, r.r.Shape, r.r.Allowed = scheduler.ClassOf(r.r.Kind, &spec), spec.Limits, spec.Shape, spec.AllowedRegions
	return r.r
}

// readTimed reads waiting rows by their wake time, per shard.
const readTimed = `
SELECT r.* FROM (SELECT s.shard FROM unnest($2::smallint[]) AS s (shard) OFFSET 0) x CROSS JOIN LATERAL (
    SELECT ` + readyColumns + `, t.wake_at FROM tasks t
    WHERE t.region = $1::crdb_internal_region AND t.shard = x.shard AND t.wake_at <= now() + $3::bigint * INTERVAL '1 microsecond'
    ORDER BY t.wake_at, t.id LIMIT $4::bigint
) r`

// Timed reads rows whose wake time is past or near.
func (s *Store) Timed(ctx context.Context, q scheduler.TimedQuery) ([]scheduler.TimedRow, error) {
	return rows(ctx, s.hot, "read timed rows", readTimed, func(row pgx.CollectableRow) (scheduler.TimedRow, error) {
		var r readyScan
		var wake time.Time
		err := row.Scan(append(r.targets(), &wake)...)
		return scheduler.TimedRow{ReadyRow: r.ready(), WakeAt: wake.UTC()}, err
	}, q.Region, shards(q.Shards), q.Horizon.Microseconds(), int64(q.Limit))
}
