package store

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/errandhq/errand/scheduler"
)

// attachTasks hands running rows to another session.
// Guard: the row runs under this very token, and the new session is not ended.
// Notes what the session has now. Returns the rows won.
const attachTasks = `
WITH attached AS (
UPDATE tasks t SET session_id = $2::uuid
FROM (
    SELECT $1::crdb_internal_region AS region, u.* FROM unnest($3::uuid[], $4::bigint[], $5::uuid[]) AS u (id, attempt, worker_id) OFFSET 0
) x
WHERE t.region = x.region AND t.id = x.id AND t.state = $6::smallint AND t.attempt = x.attempt AND t.worker_id = x.worker_id
    AND EXISTS (SELECT 1 FROM sessions s WHERE s.region = $1::crdb_internal_region AND s.id = $2::uuid AND s.ended_at IS NULL)
RETURNING ` + heldColumns + `
), started AS (
    INSERT INTO starts (region, session_id, batch, ids, at)
    SELECT $1::crdb_internal_region, $2::uuid, $7::uuid, array_agg(id), now() FROM attached HAVING count(*) > 0
)
SELECT * FROM attached`

// Attach takes running attempts over for a session. It fails when nothing but the end of that session is against it.
func (s *Store) Attach(ctx context.Context, b scheduler.AttachBatch) ([]scheduler.Attached, error) {
	n := len(b.Tokens)
	ids, attempts, workers := make([][16]byte, n), make([]int64, n), make([][16]byte, n)
	for i, t := range b.Tokens {
		ids[i], attempts[i], workers[i] = t.ID, t.Attempt, t.Worker
	}
	got, err := rows(ctx, s.hot, "attach attempts", attachTasks, scanHeld, b.Region, [16]byte(b.Session), ids, attempts, workers,
		int16(scheduler.Running), newBatchID())
	if err != nil {
		return nil, err
	}
	won := map[scheduler.ID]scheduler.Held{}
	for _, h := range got {
		won[h.ID] = h
	}
	standing := map[scheduler.ID]endedRow{}
	if len(won) < n {
		others, err := rows(ctx, s.hot, "read attached tasks", readEnded, scanEnded, b.Region, uuids(tokenIDs(b.Tokens)))
		if err != nil {
			return nil, err
		}
		for _, r := range others {
			standing[r.id] = r
		}
	}
	answers := make([]scheduler.Attached, n)
	for i, t := range b.Tokens {
		h, here := won[t.ID]
		r, stands := standing[t.ID]
		switch {
		case here && h.Token == t && h.Session == b.Session:
			answers[i] = scheduler.Attached{ID: t.ID, Verdict: scheduler.Won, State: scheduler.Running, Held: h}
		case !stands:
			answers[i] = scheduler.Attached{ID: t.ID, Verdict: scheduler.Missing}
		case r.state == scheduler.Running && r.attempt == t.Attempt && r.worker == t.Worker:
			// The token is good: it is the session that is over, and who asks will know soon.
			return nil, fmt.Errorf("attach attempts: session %s has ended: %w", b.Session, scheduler.ErrUnavailable)
		default:
			answers[i] = scheduler.Attached{
				ID: t.ID, Verdict: scheduler.Lost, State: r.state, Latest: r.attempt == t.Attempt && r.worker == t.Worker,
			}
		}
	}
	return answers, nil
}

func tokenIDs(tokens []scheduler.Token) []scheduler.ID {
	ids := make([]scheduler.ID, len(tokens))
	for i, t := range tokens {
		ids[i] = t.ID
	}
	return ids
}

// movedRow is a waiting row after a move.
type movedRow struct {
	id      scheduler.ID
	state   scheduler.State
	attempt int64
	due     time.Time
	parent  bool
}

func scanMoved(row pgx.CollectableRow) (movedRow, error) {
	var m movedRow
	var raw [16]byte
	var state int16
	err := row.Scan(&raw, &state, &m.attempt, &m.due, &m.parent)
	m.id, m.state = raw, scheduler.State(state)
	return m, err
}

// readMoved tells what stands of rows that a move did not return.
const readMoved = `
SELECT t.id, t.state, t.attempt, t.due, t.parent
FROM (SELECT $1::crdb_internal_region AS region, u.* FROM unnest($2::uuid[]) AS u (id) OFFSET 0) x
JOIN tasks t ON t.region = x.region AND t.id = x.id`

// Stand tells how tasks stand.
func (s *Store) Stand(ctx context.Context, q scheduler.StandQuery) ([]scheduler.Stand, error) {
	got, err := rows(ctx, s.hot, "read moved tasks", readMoved, scanMoved, q.Region, uuids(q.IDs))
	stands := make([]scheduler.Stand, len(got))
	for i, m := range got {
		stands[i] = scheduler.Stand{ID: m.id, State: m.state, Attempt: m.attempt}
	}
	return stands, err
}

// wakeTasks makes scheduled rows ready.
// Guard: scheduled still, the attempt that was read, its time has come, its start_by has not. The wake time is wrapped so that the
// timed index does not fit: rows are found by primary key.
const wakeTasks = `
UPDATE tasks t SET state = 2, wake_at = t.start_by,
    ready_at = CASE WHEN ` + dueKept + ` THEN t.ready_at ELSE now() END,
    due = CASE WHEN ` + dueKept + ` THEN t.due ELSE now() + t.tolerance_us * INTERVAL '1 microsecond' END
FROM (SELECT $1::crdb_internal_region AS region, u.* FROM unnest($2::uuid[], $3::bigint[]) AS u (id, attempt) OFFSET 0) x
WHERE t.region = x.region AND t.id = x.id AND t.state = 1 AND t.attempt = x.attempt
    AND COALESCE(t.wake_at, 'infinity'::timestamptz) <= now()
    AND (t.start_by IS NULL OR t.start_by > now())
RETURNING t.id, t.state, t.attempt, t.due, t.parent`

// Wake makes scheduled tasks ready whose time has come.
func (s *Store) Wake(ctx context.Context, b scheduler.WakeBatch) ([]scheduler.Moved, error) {
	n := len(b.Rows)
	ids, attempts := make([]scheduler.ID, n), make([]int64, n)
	for i, r := range b.Rows {
		ids[i], attempts[i] = r.ID, r.Attempt
	}
	got, err := rows(ctx, s.hot, "wake tasks", wakeTasks, scanMoved, b.Region, uuids(ids), attempts)
	if err != nil {
		return nil, err
	}
	return s.moved(ctx, b.Region, ids, got, func(i int, m *movedRow) bool {
		return m.state == scheduler.Ready && m.attempt == b.Rows[i].Attempt
	})
}

// expireTasks ends waiting rows whose start_by has passed.
// Guard: waiting still; the store's clock.
const expireTasks = `
WITH done AS (
    UPDATE tasks t SET state = 8, ended_at = now(), wake_at = CASE WHEN t.parent THEN now() END, failure = '{"reason": "expired"}'::jsonb
    FROM (SELECT $1::crdb_internal_region AS region, u.* FROM unnest($3::uuid[]) AS u (id) OFFSET 0) x
    WHERE t.region = x.region AND t.id = x.id AND t.state IN (1, 2, 4) AND t.start_by <= now()
    RETURNING t.id, t.state, t.attempt, t.due, t.parent, t.tenant, t.tier
), counted AS (
    INSERT INTO ledger (region, batch, tenant, tier, accepted, ended, purged, at)
    SELECT $1::crdb_internal_region, $2::uuid, tenant, tier, 0, count(*), 0, now() FROM done GROUP BY tenant, tier
)
SELECT id, state, attempt, due, parent FROM done`

// Expire ends waiting tasks whose start_by has passed.
func (s *Store) Expire(ctx context.Context, b scheduler.ExpireBatch) ([]scheduler.Moved, error) {
	got, err := rows(ctx, s.hot, "expire tasks", expireTasks, scanMoved, b.Region, newBatchID(), uuids(b.IDs))
	if err != nil {
		return nil, err
	}
	return s.moved(ctx, b.Region, b.IDs, got, func(_ int, m *movedRow) bool { return m.state == scheduler.Expired })
}

// moved completes the rows that a move returned with what stands of the others; stands tells whether an earlier execution has
// moved one.
func (s *Store) moved(ctx context.Context, region string, ids []scheduler.ID, got []movedRow, stands func(int, *movedRow) bool) (
	[]scheduler.Moved, error,
) {
	byID := map[scheduler.ID]*movedRow{}
	for i := range got {
		byID[got[i].id] = &got[i]
	}
	won := len(byID) == len(ids)
	if !won {
		others, err := rows(ctx, s.hot, "read moved tasks", readMoved, scanMoved, region, uuids(ids))
		if err != nil {
			return nil, err
		}
		for i := range others {
			byID[others[i].id] = &others[i]
		}
	}
	answers := make([]scheduler.Moved, len(ids))
	for i, id := range ids {
		answers[i] = scheduler.Moved{ID: id, Verdict: scheduler.Missing}
		if m := byID[id]; m != nil {
			answers[i] = scheduler.Moved{ID: id, Verdict: scheduler.Lost, State: m.state, Due: m.due.UTC(), Parent: m.parent}
			if stands(i, m) {
				answers[i].Verdict = scheduler.Won
			}
		}
	}
	return answers, nil
}

// cancelTasks writes the wish to cancel: waiting rows end at once, running ones are marked.
// Guard: open still, and the tenant's own; compared so that the tenants' index does not fit.
const cancelTasks = `
WITH done AS (
    UPDATE tasks t SET cancel_requested = true,
        state = CASE WHEN t.state = 3 THEN t.state ELSE 7 END,
        ended_at = CASE WHEN t.state = 3 THEN NULL ELSE now() END,
        wake_at = CASE WHEN t.parent AND t.state <> 3 THEN now() END,
        failure = CASE WHEN t.state = 3 THEN t.failure ELSE $5::jsonb END
    FROM (SELECT $1::crdb_internal_region AS region, u.* FROM unnest($4::uuid[]) AS u (id) OFFSET 0) x
    WHERE t.region = x.region AND t.id = x.id AND (t.tenant = $3::text) IS TRUE AND t.state IN (1, 2, 3, 4)
    RETURNING t.id, t.state, t.attempt, t.worker_id, t.session_id, t.parent, t.tenant, t.tier
), counted AS (
    INSERT INTO ledger (region, batch, tenant, tier, accepted, ended, purged, at)
    SELECT $1::crdb_internal_region, $2::uuid, tenant, tier, 0, count(*), 0, now() FROM done WHERE state = 7 GROUP BY tenant, tier
)
SELECT id, state, attempt, worker_id, session_id, parent FROM done`

// readCanceled tells what stands of rows that a cancel did not return.
const readCanceled = `
SELECT t.id, t.state, t.attempt, t.worker_id, t.session_id, t.parent
FROM (SELECT $1::crdb_internal_region AS region, u.* FROM unnest($3::uuid[]) AS u (id) OFFSET 0) x
JOIN tasks t ON t.region = x.region AND t.id = x.id
WHERE (t.tenant = $2::text) IS TRUE`

func scanCanceled(row pgx.CollectableRow) (scheduler.CancelAnswer, error) {
	var a scheduler.CancelAnswer
	var id [16]byte
	var worker, session *[16]byte
	var state int16
	err := row.Scan(&id, &state, &a.Token.Attempt, &worker, &session, &a.Parent)
	a.ID, a.State, a.Token.ID = id, scheduler.State(state), id
	a.Token.Worker, a.Session = idOf[scheduler.WorkerID](worker), idOf[scheduler.SessionID](session)
	return a, err
}

// Cancel writes the wish to cancel tasks of a tenant.
func (s *Store) Cancel(ctx context.Context, b scheduler.CancelBatch) ([]scheduler.CancelAnswer, error) {
	why := optionalFailure(&scheduler.Failure{Reason: scheduler.ReasonCanceled, Message: b.Message})
	got, err := rows(ctx, s.control, "cancel tasks", cancelTasks, scanCanceled,
		b.Region, newBatchID(), b.Tenant, uuids(b.IDs), why)
	if err != nil {
		return nil, err
	}
	byID := map[scheduler.ID]scheduler.CancelAnswer{}
	for _, a := range got {
		byID[a.ID] = a
	}
	if len(byID) < len(b.IDs) {
		others, err := rows(ctx, s.control, "read canceled tasks", readCanceled, scanCanceled, b.Region, b.Tenant, uuids(b.IDs))
		if err != nil {
			return nil, err
		}
		for _, a := range others {
			if _, here := byID[a.ID]; !here {
				byID[a.ID] = a
			}
		}
	}
	answers := make([]scheduler.CancelAnswer, len(b.IDs))
	for i, id := range b.IDs {
		a, here := byID[id]
		switch {
		case !here:
			a = scheduler.CancelAnswer{ID: id, Verdict: scheduler.Missing}
		case a.State.Terminal() && a.State != scheduler.Canceled:
			a.Verdict = scheduler.Lost
		default:
			a.Verdict = scheduler.Won
		}
		answers[i] = a
	}
	return answers, nil
}
