package store

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/errandhq/errand/scheduler"
)

// heldColumns are what a scheduler must know of a running row.
const heldColumns = `t.id, t.attempt, t.worker_id, t.session_id, t.tenant, t.kind, t.tier, t.spec, t.counted, t.worker_losses,
    t.suspect, t.cancel_requested, t.started_at, t.ready_at, t.due`

// startColumns are what its worker needs besides. Small payloads come with them, large ones are read after winning.
const startColumns = heldColumns + `, t.state,
    CASE WHEN octet_length(t.payload) <= 4096 THEN t.payload END AS payload, COALESCE(octet_length(t.payload), 0) AS size, t.content_type,
    t.effect_key, t.trace_parent`

// dueKept tells of a scheduled row whether it has kept the due of when it was ready before: a new due is its tolerance after run_at.
const dueKept = `(t.due < t.run_at + t.tolerance_us * INTERVAL '1 microsecond')`

// claimTasks turns waiting rows into running attempts of a session.
// Guard: the state and attempt that were read, the wake time of scheduled rows, start_by, and the session not ended.
// Notes what has started. Returns the rows won.
const claimTasks = `
WITH claimed AS (
UPDATE tasks t SET state = 3, attempt = t.attempt + 1, session_id = $2::uuid, worker_id = x.worker_id, started_at = now(),
    wake_at = NULL,
    ready_at = CASE WHEN t.state = 1 AND NOT ` + dueKept + ` THEN now() ELSE t.ready_at END,
    due = CASE WHEN t.state = 1 AND NOT ` + dueKept + ` THEN now() + t.tolerance_us * INTERVAL '1 microsecond' ELSE t.due END
FROM (
    SELECT $1::crdb_internal_region AS region, u.*
    FROM unnest($3::uuid[], $4::smallint[], $5::bigint[], $6::uuid[]) AS u (id, state, attempt, worker_id) OFFSET 0
) x
WHERE t.region = x.region AND t.id = x.id AND t.state = x.state AND t.attempt = x.attempt
    AND (t.state = 2 OR (t.state = 1 AND t.wake_at <= now()))
    AND (t.start_by IS NULL OR t.start_by > now())
    AND EXISTS (SELECT 1 FROM sessions s WHERE s.region = $1::crdb_internal_region AND s.id = $2::uuid AND s.ended_at IS NULL)
RETURNING ` + startColumns + `
), started AS (
    INSERT INTO starts (region, session_id, batch, ids, at)
    SELECT $1::crdb_internal_region, $2::uuid, $7::uuid, array_agg(id), now() FROM claimed HAVING count(*) > 0
)
SELECT * FROM claimed`

// readStarts tells what stands of rows that a claim did not return.
const readStarts = `
SELECT ` + startColumns + `
FROM (SELECT $1::crdb_internal_region AS region, u.* FROM unnest($2::uuid[]) AS u (id) OFFSET 0) x
JOIN tasks t ON t.region = x.region AND t.id = x.id`

type startRow struct {
	start scheduler.Start
	state scheduler.State
}

// Claim turns waiting tasks into running attempts. A row is won only when what stands names this session, this worker and the
// next attempt.
func (s *Store) Claim(ctx context.Context, b scheduler.ClaimBatch) ([]scheduler.Claimed, error) {
	n := len(b.Claims)
	ids, states, attempts, workers := make([][16]byte, n), make([]int16, n), make([]int64, n), make([][16]byte, n)
	for i, c := range b.Claims {
		ids[i], states[i], attempts[i], workers[i] = c.ID, int16(c.From), c.Seen, c.Worker
	}
	got, err := rows(ctx, s.hot, "claim tasks", claimTasks, scanStart, b.Region, [16]byte(b.Session), ids, states, attempts, workers, newBatchID())
	if err != nil {
		return nil, err
	}
	standing := make(map[scheduler.ID]*startRow, n)
	for i := range got {
		standing[got[i].start.ID] = &got[i]
	}
	if err := s.readMissingStarts(ctx, b, standing); err != nil {
		return nil, err
	}
	answers := make([]scheduler.Claimed, n)
	for i, c := range b.Claims {
		answers[i] = claimAnswer(&c, b.Session, standing[c.ID])
	}
	return answers, nil
}

func (s *Store) readMissingStarts(ctx context.Context, b scheduler.ClaimBatch, standing map[scheduler.ID]*startRow) error {
	var missing []scheduler.ID
	for _, c := range b.Claims {
		if standing[c.ID] == nil {
			missing = append(missing, c.ID)
		}
	}
	if len(missing) == 0 {
		return nil
	}
	got, err := rows(ctx, s.hot, "read claimed tasks", readStarts, scanStart, b.Region, uuids(missing))
	for i := range got {
		standing[got[i].start.ID] = &got[i]
	}
	return err
}

func claimAnswer(c *scheduler.Claim, session scheduler.SessionID, row *startRow) scheduler.Claimed {
	a := scheduler.Claimed{ID: c.ID, Verdict: scheduler.Missing}
	if row == nil {
		return a
	}
	a.State = row.state
	h := &row.start.Held
	if row.state == scheduler.Running && h.Session == session && h.Worker == c.Worker && h.Attempt == c.Seen+1 {
		a.Verdict, a.Start = scheduler.Won, row.start
		return a
	}
	a.Verdict = scheduler.Lost
	return a
}

// heldScan receives heldColumns.
type heldScan struct {
	id                    [16]byte
	worker, session       *[16]byte
	tier, counted, losses int16
	spec                  []byte
	h                     scheduler.Held
	startedAt, readyAt    *time.Time
}

func (r *heldScan) targets() []any {
	return []any{
		&r.id, &r.h.Attempt, &r.worker, &r.session, &r.h.Tenant, &r.h.Kind, &r.tier, &r.spec, &r.counted, &r.losses,
		&r.h.Suspect, &r.h.CancelRequested, &r.startedAt, &r.readyAt, &r.h.Due,
	}
}

func (r *heldScan) held() scheduler.Held {
	r.h.ID, r.h.Worker, r.h.Session = r.id, idOf[scheduler.WorkerID](r.worker), idOf[scheduler.SessionID](r.session)
	r.h.Tier, r.h.Counted, r.h.WorkerLosses = scheduler.Tier(r.tier), int(r.counted), int(r.losses)
	r.h.Spec = specOf(r.spec)
	r.h.StartedAt, r.h.ReadyAt = timeOf(r.startedAt), timeOf(r.readyAt)
	return r.h
}

func scanHeld(row pgx.CollectableRow) (scheduler.Held, error) {
	var r heldScan
	if err := row.Scan(r.targets()...); err != nil {
		return scheduler.Held{}, err
	}
	return r.held(), nil
}

func scanStart(row pgx.CollectableRow) (startRow, error) {
	var r heldScan
	var state int16
	var s scheduler.Start
	var contentType, trace *string
	var effect *[16]byte
	err := row.Scan(append(r.targets(), &state, &s.Payload, &s.PayloadSize, &contentType, &effect, &trace)...)
	if err != nil {
		return startRow{}, err
	}
	s.Held = r.held()
	s.ContentType, s.TraceParent = textOf(contentType), textOf(trace)
	if s.EffectKey = idOf[scheduler.ID](effect); s.EffectKey.IsZero() {
		s.EffectKey = s.ID
	}
	return startRow{start: s, state: scheduler.State(state)}, nil
}

// readPayloads reads payloads by key.
const readPayloads = `
SELECT t.id, t.payload
FROM (SELECT $1::crdb_internal_region AS region, u.* FROM unnest($2::uuid[]) AS u (id) OFFSET 0) x
JOIN tasks t ON t.region = x.region AND t.id = x.id`

// Payloads reads payloads, one per id in the order asked; nil where there is none.
func (s *Store) Payloads(ctx context.Context, region string, ids []scheduler.ID) ([][]byte, error) {
	type one struct {
		id      scheduler.ID
		payload []byte
	}
	got, err := rows(ctx, s.hot, "read payloads", readPayloads, func(row pgx.CollectableRow) (one, error) {
		var o one
		var raw [16]byte
		err := row.Scan(&raw, &o.payload)
		o.id = raw
		return o, err
	}, region, uuids(ids))
	if err != nil {
		return nil, err
	}
	byID := make(map[scheduler.ID][]byte, len(got))
	for _, o := range got {
		byID[o.id] = o.payload
	}
	payloads := make([][]byte, len(ids))
	for i, id := range ids {
		payloads[i] = byID[id]
	}
	return payloads, nil
}
