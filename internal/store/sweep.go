package store

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/errandhq/errand/internal/txsql"
	"github.com/errandhq/errand/scheduler"
)

// Bounds of sweeping.
const (
	// RetentionMin is the least time for which ended tasks are kept: their idempotency keys go with them, and a key stands for a
	// week past the task's end.
	RetentionMin = 7 * 24 * time.Hour

	sweepPage   = 1000
	foldPage    = 5000
	foldAfter   = time.Minute // what is open is summed up every few seconds: the sums must stay short
	sweepBudget = 20          // pages per call
	foldBudget  = 200         // pages per call: a minute's writes of a busy region
)

// readOld walks the tasks of one lane by id, that is by their creation.
const readOld = `
SELECT t.id, COALESCE(t.ended_at < now() - $4::bigint * INTERVAL '1 microsecond', false) FROM tasks t
WHERE t.region = $1::crdb_internal_region AND t.id > $2::uuid AND t.id < $3::uuid
ORDER BY t.id LIMIT $5::bigint`

// needed tells of a parent, or the first task of a graph, whether an open task may still ask for it.
const needed = `(EXISTS (
        SELECT 1 FROM task_children nc JOIN tasks nt ON nt.region = $1::crdb_internal_region AND nt.id = nc.child_id
        WHERE nc.region = $1::crdb_internal_region AND nc.parent_id = t.id AND nt.state < 5)
    OR EXISTS (
        SELECT 1 FROM graph_tasks ng JOIN tasks nt ON nt.region = $1::crdb_internal_region AND nt.id = ng.task_id
        WHERE ng.region = $1::crdb_internal_region AND ng.graph_id = t.id AND nt.state < 5))`

// purgeTasks deletes ended tasks with what belongs to them, and counts them.
// Guard: ended for longer than the retention, by the store's clock; its children told, and none of them, nor of its graph's tasks
// when it is the graph's first, still open. A child that comes meanwhile has set its wake time.
// Returns the rows deleted.
const purgeTasks = `
WITH gone AS (
    DELETE FROM tasks t
    WHERE t.region = $1::crdb_internal_region AND t.id = ANY ($3::uuid[]) AND t.ended_at < now() - $4::bigint * INTERVAL '1 microsecond'
        AND t.wake_at IS NULL AND NOT ((t.parent OR t.spec ->> 'graph' IS NOT NULL) AND ` + needed + `)
    RETURNING t.id, t.tenant, t.tier
), attempts AS (
    DELETE FROM task_attempts a WHERE a.region = $1::crdb_internal_region AND a.task_id IN (SELECT id FROM gone)
), edges AS (
    DELETE FROM task_edges e WHERE e.region = $1::crdb_internal_region AND e.child_id IN (SELECT id FROM gone)
), children AS (
    DELETE FROM task_children c WHERE c.region = $1::crdb_internal_region AND c.parent_id IN (SELECT id FROM gone)
), members AS (
    DELETE FROM graph_tasks g WHERE g.region = $1::crdb_internal_region AND g.graph_id IN (SELECT id FROM gone)
), keys AS (
    DELETE FROM idempotency_keys k
    USING (
        SELECT ` + txsql.KeyRegion + ` AS region, t.tenant, t.idempotency_key AS key FROM tasks t
        LEFT JOIN tenants n ON n.name = t.tenant
        WHERE t.region = $1::crdb_internal_region AND t.id = ANY ($3::uuid[]) AND t.idempotency_key IS NOT NULL
            AND t.ended_at < now() - $4::bigint * INTERVAL '1 microsecond' AND t.wake_at IS NULL AND NOT ((t.parent OR t.spec ->> 'graph' IS NOT NULL) AND ` + needed + `) OFFSET 0
    ) x
    WHERE k.region = x.region AND k.tenant = x.tenant AND k.key = x.key
), counted AS (
    INSERT INTO ledger (region, batch, tenant, tier, accepted, ended, purged, at)
    SELECT $1::crdb_internal_region, $2::uuid, tenant, tier, 0, 0, count(*), now() FROM gone GROUP BY tenant, tier
)
SELECT id FROM gone`

// Sweep deletes tasks of a lane that ended longer ago than keep, a bounded number at a time, and returns how many. It starts at
// the lane's oldest tasks; an open task in the way is passed over.
func (s *Store) Sweep(ctx context.Context, region string, shard uint8, keep time.Duration) (int, error) {
	keep = max(keep, RetentionMin)
	after, before := [16]byte{shard}, [16]byte(scheduler.NewID(shard, time.Now().Add(-keep), [scheduler.RandomBytes]byte{}))
	purged := 0
	for range sweepBudget {
		type old struct {
			id    [16]byte
			ended bool
		}
		page, err := rows(ctx, s.general, "read old tasks", readOld, func(row pgx.CollectableRow) (old, error) {
			var o old
			err := row.Scan(&o.id, &o.ended)
			return o, err
		}, region, after, before, keep.Microseconds(), int64(sweepPage))
		if err != nil || len(page) == 0 {
			return purged, err
		}
		var ids [][16]byte
		for _, o := range page {
			if o.ended {
				ids = append(ids, o.id)
			}
		}
		if len(ids) > 0 {
			gone, err := rows(ctx, s.general, "purge tasks", purgeTasks, pgx.RowTo[[16]byte], region, newBatchID(), ids, keep.Microseconds())
			purged += len(gone)
			if err != nil {
				return purged, err
			}
		}
		after = page[len(page)-1].id
		if len(page) < sweepPage {
			break
		}
	}
	return purged, nil
}

// takeLedger removes old rows of the ledger, to be put back as their sums in the same transaction.
const takeLedger = `
DELETE FROM ledger l WHERE l.region = $1::crdb_internal_region AND (l.batch, l.tenant, l.tier) IN (
    SELECT o.batch, o.tenant, o.tier FROM ledger o
    WHERE o.region = $1::crdb_internal_region AND o.at < now() - $2::bigint * INTERVAL '1 microsecond'
    ORDER BY o.batch LIMIT $3::bigint)
RETURNING l.tenant, l.tier, l.accepted, l.ended, l.purged`

// putLedger writes the sums.
const putLedger = `
INSERT INTO ledger (region, batch, tenant, tier, accepted, ended, purged, at)
SELECT $1::crdb_internal_region, $2::uuid, x.*, now()
FROM unnest($3::text[], $4::smallint[], $5::bigint[], $6::bigint[], $7::bigint[]) AS x (tenant, tier, accepted, ended, purged)`

// FoldLedger sums up old rows of the ledger, a bounded number at a time, and returns how many rows it took away in the end. What
// the ledger says stays the same.
func (s *Store) FoldLedger(ctx context.Context, region string) (int, error) {
	all := 0
	for range foldBudget {
		taken, fewer, err := s.foldPage(ctx, region)
		all += fewer
		if err != nil || taken < foldPage {
			return all, err
		}
	}
	return all, nil
}

// foldPage sums up a page of the ledger. It returns how many rows that took, and how many fewer there are now.
func (s *Store) foldPage(ctx context.Context, region string) (taken, fewer int, err error) {
	type key struct {
		tenant string
		tier   int16
	}
	err = s.InTx(ctx, func(tx pgx.Tx) error {
		sums := map[key][3]int64{}
		taken = 0
		result, err := tx.Query(ctx, takeLedger, region, foldAfter.Microseconds(), int64(foldPage))
		if err != nil {
			return err
		}
		var k key
		var accepted, ended, purged int64
		_, err = pgx.ForEachRow(result, []any{&k.tenant, &k.tier, &accepted, &ended, &purged}, func() error {
			sum := sums[k]
			sums[k] = [3]int64{sum[0] + accepted, sum[1] + ended, sum[2] + purged}
			taken++
			return nil
		})
		if err != nil || taken == 0 {
			return err
		}
		var tenants []string
		var tiers []int16
		var a, e, p []int64
		for k, sum := range sums {
			tenants, tiers = append(tenants, k.tenant), append(tiers, k.tier)
			a, e, p = append(a, sum[0]), append(e, sum[1]), append(p, sum[2])
		}
		fewer = taken - len(sums)
		_, err = tx.Exec(ctx, putLedger, region, newBatchID(), tenants, tiers, a, e, p)
		return err
	})
	return taken, fewer, err
}
