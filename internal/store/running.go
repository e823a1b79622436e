package store

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/errandhq/errand/scheduler"
)

// The running tasks of a session are found through the table of starts: each statement that makes tasks run under a session notes
// their ids there, in the same transaction. What is noted may have ended since; the task itself tells. Folding drops those.

// Bounds of folding.
const (
	foldStartsRows = 100         // of the table, per statement
	foldStartsTime = time.Second // of one pass; the next one goes on where it has stopped
)

// readRunning reads the running rows of a session.
const readRunning = `
SELECT ` + heldColumns + ` FROM (
    SELECT DISTINCT u.id FROM starts s CROSS JOIN LATERAL unnest(s.ids) AS u (id)
    WHERE s.region = $1::crdb_internal_region AND s.session_id = $2::uuid AND u.id > $3::uuid
) x
JOIN tasks t ON t.region = $1::crdb_internal_region AND t.id = x.id
WHERE t.session_id = $2::uuid AND t.state = $5::smallint
ORDER BY t.id LIMIT $4::bigint`

// Running reads the running rows of a session, by ID.
func (s *Store) Running(ctx context.Context, q scheduler.RunningQuery) ([]scheduler.Held, error) {
	if q.After.IsZero() { // a pass begins
		_ = s.foldStarts(ctx, q.Region, q.Session) // what is not folded now is later; its errors are counted like every statement's
	}
	return rows(ctx, s.control, "read running rows", readRunning, scanHeld,
		q.Region, [16]byte(q.Session), [16]byte(q.After), int64(q.Limit), int16(scheduler.Running))
}

// readOrphans reads running rows of sessions that are missing or ended.
const readOrphans = `
SELECT ` + heldColumns + ` FROM (
    SELECT DISTINCT s.session_id, u.id FROM starts s
    LEFT JOIN sessions o ON o.region = $1::crdb_internal_region AND o.id = s.session_id
    CROSS JOIN LATERAL unnest(s.ids) AS u (id)
    WHERE s.region = $1::crdb_internal_region AND (o.id IS NULL OR o.ended_at < now() - $3::bigint * INTERVAL '1 microsecond')
) x
JOIN tasks t ON t.region = $1::crdb_internal_region AND t.id = x.id
WHERE t.session_id = x.session_id AND t.state = $5::smallint AND t.shard = ANY ($2::smallint[])
ORDER BY t.id LIMIT $4::bigint`

// Orphans reads running rows whose session is missing, or ended for longer than the grace.
func (s *Store) Orphans(ctx context.Context, q scheduler.OrphanQuery) ([]scheduler.Held, error) {
	return rows(ctx, s.control, "read orphaned rows", readOrphans, scanHeld,
		q.Region, shards(q.Shards), q.Grace.Microseconds(), int64(q.Limit), int16(scheduler.Running))
}

// foldStarts replaces the rows that were not looked at for the longest time by rows of what still runs, for a session and for
// those that are over. Two folds that meet leave ids twice, which changes nothing; or they wait for each other until the database
// ends one of them, whose rows are left to the next pass. Nobody else waits for these rows.
// Returns one row: how many rows it replaced.
const foldStarts = `
WITH old AS (
    SELECT s.session_id, s.batch, s.ids FROM starts s
    LEFT JOIN sessions o ON o.region = $1::crdb_internal_region AND o.id = s.session_id
    WHERE s.region = $1::crdb_internal_region AND (s.session_id = $2::uuid OR o.id IS NULL OR o.ended_at IS NOT NULL)
    ORDER BY s.at, s.batch LIMIT $3::bigint
), kept AS (
    SELECT x.session_id, x.id, (row_number() OVER (PARTITION BY x.session_id ORDER BY x.id)) >> 10 AS page FROM (
        SELECT DISTINCT o.session_id, u.id FROM old o CROSS JOIN LATERAL unnest(o.ids) AS u (id)
    ) x
    JOIN tasks t ON t.region = $1::crdb_internal_region AND t.id = x.id
    WHERE t.session_id = x.session_id AND t.state = $4::smallint
), gone AS (
    DELETE FROM starts s
    WHERE s.region = $1::crdb_internal_region AND (s.session_id, s.batch) IN (SELECT session_id, batch FROM old)
), folded AS (
    INSERT INTO starts (region, session_id, batch, ids, at)
    SELECT $1::crdb_internal_region, session_id, gen_random_uuid(), array_agg(id), now() FROM kept GROUP BY session_id, page
)
SELECT count(*) FROM old`

func (s *Store) foldStarts(ctx context.Context, region string, session scheduler.SessionID) error {
	for began := time.Now(); time.Since(began) < foldStartsTime; {
		folded, err := rows(ctx, s.hot, "fold starts", foldStarts, pgx.RowTo[int64],
			region, [16]byte(session), int64(foldStartsRows), int16(scheduler.Running))
		if err != nil || folded[0] < foldStartsRows {
			return err
		}
	}
	return nil
}
