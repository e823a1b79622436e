package store

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/errandhq/errand/scheduler"
)

// The state in a guard is a parameter wherever it is 3: a literal would fit the running index, and a plan that walks that index
// for every row of the batch is slower by orders of magnitude than one by primary key.

// endSucceeded closes attempts that succeeded: the hot path, as lean as it can be.
// Guard: the row runs under this very token.
// Returns the rows won.
const endSucceeded = `
WITH done AS (
    UPDATE tasks t SET state = 5, ended_at = now(), wake_at = CASE WHEN t.parent THEN now() END, result = x.result, result_type = x.result_type, failure = NULL, suspect = false
    FROM (
        SELECT $1::crdb_internal_region AS region, u.*
        FROM unnest($3::uuid[], $4::bigint[], $5::uuid[], $6::bytea[], $7::text[]) AS u (id, attempt, worker_id, result, result_type)
        OFFSET 0
    ) x
    WHERE t.region = x.region AND t.id = x.id AND t.state = $8::smallint AND t.attempt = x.attempt AND t.worker_id = x.worker_id
    RETURNING t.id, t.state, t.attempt, t.worker_id, t.parent, t.tenant, t.tier
), counted AS (
    INSERT INTO ledger (region, batch, tenant, tier, accepted, ended, purged, at)
    SELECT $1::crdb_internal_region, $2::uuid, tenant, tier, 0, count(*), 0, now() FROM done GROUP BY tenant, tier
)
SELECT id, state, attempt, worker_id, parent FROM done`

// endOtherwise closes attempts that did not simply succeed, and keeps each in the task's history.
// Guard: the row runs under this very token, and under this session where one is named.
// A wish to cancel turns "waits again" into canceled.
// Returns the rows won.
const endOtherwise = `
WITH done AS (
    UPDATE tasks t SET
        state = CASE WHEN t.cancel_requested AND x.state < 3 THEN 7 ELSE x.state END,
        counted = t.counted + x.counted, worker_losses = t.worker_losses + x.losses, suspect = x.suspect,
        failure = x.failure::jsonb,
        ended_at = CASE WHEN x.state > 4 OR t.cancel_requested THEN now() END,
        run_at = CASE WHEN x.state = 1 AND NOT t.cancel_requested THEN now() + x.delay_us * INTERVAL '1 microsecond' ELSE t.run_at END,
        due = CASE WHEN x.state = 1 AND NOT x.keep_due AND NOT t.cancel_requested
            THEN now() + (x.delay_us + t.tolerance_us) * INTERVAL '1 microsecond' ELSE t.due END,
        wake_at = CASE
            WHEN x.state > 4 OR t.cancel_requested THEN CASE WHEN t.parent THEN now() END
            WHEN x.state = 2 THEN t.start_by
            WHEN t.start_by < now() + x.delay_us * INTERVAL '1 microsecond' THEN t.start_by
            ELSE now() + x.delay_us * INTERVAL '1 microsecond' END
    FROM (
        SELECT $1::crdb_internal_region AS region, u.*
        FROM unnest($3::uuid[], $4::bigint[], $5::uuid[], $6::uuid[], $7::smallint[], $8::bigint[], $9::smallint[], $10::smallint[],
            $11::boolean[], $12::text[], $14::boolean[])
            AS u (id, attempt, worker_id, session_id, state, delay_us, counted, losses, suspect, failure, keep_due)
        OFFSET 0
    ) x
    WHERE t.region = x.region AND t.id = x.id AND t.state = $13::smallint AND t.attempt = x.attempt AND t.worker_id = x.worker_id
        AND (x.session_id IS NULL OR t.session_id = x.session_id)
    RETURNING t.id, t.state, t.attempt, t.worker_id, t.parent, t.tenant, t.tier, t.started_at, t.failure, x.counted AS counts
), counted AS (
    INSERT INTO ledger (region, batch, tenant, tier, accepted, ended, purged, at)
    SELECT $1::crdb_internal_region, $2::uuid, tenant, tier, 0, count(*), 0, now() FROM done WHERE state > 4 GROUP BY tenant, tier
), kept AS (
    INSERT INTO task_attempts (region, task_id, number, worker_id, started_at, ended_at, failure, counted)
    SELECT $1::crdb_internal_region, id, attempt, worker_id, started_at, now(), COALESCE(failure, '{}'::jsonb), counts > 0 FROM done
    ON CONFLICT (region, task_id, number) DO NOTHING
)
SELECT id, state, attempt, worker_id, parent FROM done`

// readEnded tells what stands of rows that an ending did not return.
const readEnded = `
SELECT t.id, t.state, t.attempt, t.worker_id, t.parent
FROM (SELECT $1::crdb_internal_region AS region, u.* FROM unnest($2::uuid[]) AS u (id) OFFSET 0) x
JOIN tasks t ON t.region = x.region AND t.id = x.id`

// endedRow is a row after, or instead of, an ending.
type endedRow struct {
	id      scheduler.ID
	state   scheduler.State
	attempt int64
	worker  scheduler.WorkerID
	parent  bool
}

func scanEnded(row pgx.CollectableRow) (endedRow, error) {
	var r endedRow
	var id [16]byte
	var worker *[16]byte
	var state int16
	err := row.Scan(&id, &state, &r.attempt, &worker, &r.parent)
	r.id, r.state, r.worker = id, scheduler.State(state), idOf[scheduler.WorkerID](worker)
	return r, err
}

// delayMax keeps the times of a far retry inside what the schema takes.
const delayMax = 10 * 365 * 24 * time.Hour

// End closes attempts.
func (s *Store) End(ctx context.Context, b scheduler.EndBatch) ([]scheduler.Ended, error) {
	var succeeded, otherwise []*scheduler.Ending
	for i := range b.Endings {
		e := &b.Endings[i]
		if e.To == scheduler.Succeeded && e.Session.IsZero() {
			succeeded = append(succeeded, e)
		} else {
			otherwise = append(otherwise, e)
		}
	}
	won := make(map[scheduler.ID]endedRow, len(b.Endings))
	if err := s.endSucceeded(ctx, b.Region, succeeded, won); err != nil {
		return nil, err
	}
	if err := s.endOtherwise(ctx, b.Region, otherwise, won); err != nil {
		return nil, err
	}
	var missing []scheduler.ID
	for i := range b.Endings {
		if _, here := won[b.Endings[i].ID]; !here {
			missing = append(missing, b.Endings[i].ID)
		}
	}
	standing := map[scheduler.ID]endedRow{}
	if len(missing) > 0 {
		got, err := rows(ctx, s.hot, "read ended tasks", readEnded, scanEnded, b.Region, uuids(missing))
		if err != nil {
			return nil, err
		}
		for _, r := range got {
			standing[r.id] = r
		}
	}
	answers := make([]scheduler.Ended, len(b.Endings))
	for i := range b.Endings {
		answers[i] = endAnswer(&b.Endings[i], won, standing)
	}
	return answers, nil
}

func (s *Store) endSucceeded(ctx context.Context, region string, endings []*scheduler.Ending, won map[scheduler.ID]endedRow) error {
	n := len(endings)
	if n == 0 {
		return nil
	}
	ids, attempts, workers := make([][16]byte, n), make([]int64, n), make([][16]byte, n)
	results, types := make([][]byte, n), make([]*string, n)
	for i, e := range endings {
		ids[i], attempts[i], workers[i] = e.ID, e.Attempt, e.Worker
		results[i], types[i] = e.Result, optionalText(e.ResultType)
	}
	got, err := rows(ctx, s.hot, "end succeeded attempts", endSucceeded, scanEnded,
		region, newBatchID(), ids, attempts, workers, results, types, int16(scheduler.Running))
	for _, r := range got {
		won[r.id] = r
	}
	return err
}

func (s *Store) endOtherwise(ctx context.Context, region string, endings []*scheduler.Ending, won map[scheduler.ID]endedRow) error {
	n := len(endings)
	if n == 0 {
		return nil
	}
	ids, attempts, workers, sessions := make([][16]byte, n), make([]int64, n), make([][16]byte, n), make([]*[16]byte, n)
	states, delays, counted, losses := make([]int16, n), make([]int64, n), make([]int16, n), make([]int16, n)
	suspects, failures, keep := make([]bool, n), make([]*string, n), make([]bool, n)
	for i, e := range endings {
		ids[i], attempts[i], workers[i], sessions[i] = e.ID, e.Attempt, e.Worker, optionalID(e.Session)
		states[i], delays[i] = int16(e.To), min(e.Delay, delayMax).Microseconds()
		counted[i], losses[i] = flag(e.Counted), flag(e.SoleSuspect)
		suspects[i], failures[i], keep[i] = e.Suspect, optionalFailure(e.Failure), e.KeepDue
	}
	got, err := rows(ctx, s.hot, "end attempts", endOtherwise, scanEnded,
		region, newBatchID(), ids, attempts, workers, sessions, states, delays, counted, losses, suspects, failures,
		int16(scheduler.Running), keep)
	for _, r := range got {
		won[r.id] = r
	}
	return err
}

func flag(b bool) int16 {
	if b {
		return 1
	}
	return 0
}

// endAnswer says whether the ending stands, by this execution or an earlier one: then the row is no longer running, and its
// latest attempt is this one.
func endAnswer(e *scheduler.Ending, won, standing map[scheduler.ID]endedRow) scheduler.Ended {
	if r, here := won[e.ID]; here && r.attempt == e.Attempt && r.worker == e.Worker {
		return scheduler.Ended{ID: e.ID, Verdict: scheduler.Won, State: r.state, Attempt: r.attempt, Parent: r.parent}
	}
	r, here := standing[e.ID]
	if !here {
		return scheduler.Ended{ID: e.ID, Verdict: scheduler.Missing}
	}
	a := scheduler.Ended{ID: e.ID, Verdict: scheduler.Lost, State: r.state, Attempt: r.attempt, Parent: r.parent}
	same := r.attempt == e.Attempt && r.worker == e.Worker && r.state != scheduler.Running
	if same && (r.state == e.To || (e.To.Waiting() && r.state != scheduler.Succeeded)) {
		a.Verdict = scheduler.Won
	}
	return a
}
