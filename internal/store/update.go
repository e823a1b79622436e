package store

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/errandhq/errand/scheduler"
)

// updateTriesMax bounds how often a task is read again that somebody else has changed before the write.
const updateTriesMax = 5

// readToUpdate is readTask with the store's clock.
const readToUpdate = `
SELECT ` + taskColumns + `, t.payload, now() FROM tasks t
WHERE t.region = $1::crdb_internal_region AND t.id = $2::uuid AND (t.tenant = $3::text) IS TRUE`

// updateTask changes a waiting task. What a newer version keeps in spec stays as it is.
// Guard: the tenant's own, and in everything that the change went by as it was read: state, attempt, tier, tolerance and times.
// Moves it in the ledger when its tier changes. Returns the row when it was won.
const updateTask = `
WITH changed AS (
    UPDATE tasks t SET state = $5::smallint, tier = $6::smallint, tolerance_us = $7::bigint, due = $8::timestamptz, ready_at = $9::timestamptz,
        run_at = $10::timestamptz, start_by = $11::timestamptz, wake_at = $12::timestamptz,
        spec = CASE WHEN $13::jsonb IS NULL THEN t.spec ELSE NULLIF(COALESCE(t.spec, '{}'::jsonb) - 'labels' || $13::jsonb, '{}'::jsonb) END
    FROM (SELECT $1::crdb_internal_region AS region, $3::uuid AS id OFFSET 0) x
    WHERE t.region = x.region AND t.id = x.id AND (t.tenant = $4::text) IS TRUE AND t.state = $14::smallint AND t.attempt = $15::bigint
        AND t.tier = $16::smallint AND t.tolerance_us = $17::bigint AND t.run_at IS NOT DISTINCT FROM $18::timestamptz
        AND t.start_by IS NOT DISTINCT FROM $19::timestamptz
    RETURNING t.id, t.tenant, t.tier
), moved AS (
    INSERT INTO ledger (region, batch, tenant, tier, accepted, ended, purged, at)
    SELECT $1::crdb_internal_region, $2::uuid, c.tenant, m.tier, m.n, 0, 0, now()
    FROM changed c CROSS JOIN (VALUES ($6::smallint, 1::bigint), ($16::smallint, -1::bigint)) AS m (tier, n)
    WHERE $6::smallint <> $16::smallint
)
SELECT id FROM changed`

// UpdateTask changes a waiting task of a tenant and returns it as it stands then. Its errors are ErrNotFound, a
// [scheduler.BadChange], scheduler.ErrNotWaiting, ErrTooLate, and ErrSeenOther when others change the task all the time.
func (s *Store) UpdateTask(ctx context.Context, tenant string, ref scheduler.Ref, c scheduler.Change) (scheduler.Task, error) {
	change := c.Stored()
	labels, err := labelsText(change)
	if err != nil {
		return scheduler.Task{}, err
	}
	for range updateTriesMax {
		seen, now, err := s.readToUpdate(ctx, tenant, ref)
		if err != nil {
			return scheduler.Task{}, err
		}
		next, err := seen.Update(change, now)
		if err != nil {
			return scheduler.Task{}, err
		}
		won, err := rows(ctx, s.general, "update task "+ref.String(), updateTask, pgx.RowTo[[16]byte],
			ref.Region, newBatchID(), [16]byte(ref.ID), tenant,
			int16(next.State), int16(next.Tier), next.Tolerance.Microseconds(), next.Due, optionalTime(next.ReadyAt),
			optionalTime(next.RunAt), optionalTime(next.StartBy), optionalTime(next.WakeAt), labels,
			int16(seen.State), seen.Attempt, int16(seen.Tier), seen.Tolerance.Microseconds(), optionalTime(seen.RunAt), optionalTime(seen.StartBy))
		if err != nil {
			return scheduler.Task{}, err
		}
		if len(won) == 1 {
			return next, nil
		}
	}
	return scheduler.Task{}, fmt.Errorf("update %s: %w", ref, scheduler.ErrSeenOther)
}

func (s *Store) readToUpdate(ctx context.Context, tenant string, ref scheduler.Ref) (scheduler.Task, time.Time, error) {
	var now time.Time
	got, err := rows(ctx, s.general, "read task to update "+ref.String(), readToUpdate, func(row pgx.CollectableRow) (scheduler.Task, error) {
		var r taskScan
		var payload []byte
		if err := row.Scan(append(r.targets(), &payload, &now)...); err != nil {
			return scheduler.Task{}, err
		}
		t := r.task(ref.Region)
		t.Payload = payload
		return t, nil
	}, ref.Region, [16]byte(ref.ID), tenant)
	if err != nil {
		return scheduler.Task{}, now, err
	}
	if len(got) == 0 {
		return scheduler.Task{}, now, ErrNotFound
	}
	return got[0], now.UTC(), nil
}

// labelsText is what takes the labels' place in a spec, NULL to leave them.
func labelsText(c *scheduler.Change) (*string, error) {
	if !c.SetLabels {
		return nil, nil
	}
	raw, err := json.Marshal(scheduler.Spec{Labels: c.Labels})
	if err != nil {
		return nil, fmt.Errorf("%w: labels: %w", scheduler.ErrRefused, err)
	}
	text := string(raw)
	return &text, nil
}

// optionalTime is NULL for zero.
func optionalTime(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	return &t
}
