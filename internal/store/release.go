package store

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/errandhq/errand/scheduler"
	"github.com/errandhq/errand/scheduler/graph"
)

// readChildren reads a page of the children of each parent that has ended and not been rested, with the parent's state and wake
// time: what a child adds later changes the wake time.
// Returns at least one row per such parent.
const readChildren = `
SELECT t.id, t.state, t.wake_at, c.child_id
FROM (SELECT $1::crdb_internal_region AS region, u.* FROM unnest($2::uuid[], $3::uuid[]) AS u (id, after) OFFSET 0) x
JOIN tasks t ON t.region = x.region AND t.id = x.id
LEFT JOIN LATERAL (
    SELECT n.child_id FROM task_children n
    WHERE n.region = $1::crdb_internal_region AND n.parent_id = x.id AND n.child_id > x.after
    ORDER BY n.child_id LIMIT $4::bigint
) c ON true
WHERE t.state > 4 AND COALESCE(t.wake_at, 'infinity'::timestamptz) < 'infinity'::timestamptz
ORDER BY t.id, c.child_id`

// closeEdges marks edges with what their parents have come to.
// Guard: open still; compared so that the index of outcomes does not fit, which lists all open edges of a child.
const closeEdges = `
UPDATE task_edges e SET outcome = x.outcome
FROM (
    SELECT $1::crdb_internal_region AS region, u.* FROM unnest($2::uuid[], $3::uuid[], $4::smallint[]) AS u (child_id, parent_id, outcome) OFFSET 0
) x
WHERE e.region = x.region AND e.child_id = x.child_id AND e.parent_id = x.parent_id AND (e.outcome = 0) IS TRUE`

// CloseEdges marks the edges to pages of children of ended parents.
func (s *Store) CloseEdges(ctx context.Context, b scheduler.CloseEdges) ([]scheduler.Closed, error) {
	answers, at := make([]scheduler.Closed, len(b.Parents)), map[scheduler.ID]int{}
	ids, afters := make([][16]byte, len(b.Parents)), make([][16]byte, len(b.Parents))
	for i, p := range b.Parents {
		ids[i], afters[i], at[p.ID], answers[i].ID = p.ID, p.After, i, p.ID
	}
	var children, parents [][16]byte
	var outcomes []int16
	_, err := rows(ctx, s.hot, "read children", readChildren, func(row pgx.CollectableRow) (struct{}, error) {
		var id [16]byte
		var child *[16]byte
		var state int16
		var wake time.Time
		err := row.Scan(&id, &state, &wake, &child)
		a := &answers[at[id]]
		a.Wake = wake.UTC()
		if child != nil {
			a.Children = append(a.Children, *child)
			children, parents, outcomes = append(children, *child), append(parents, id), append(outcomes, state)
		}
		return struct{}{}, err
	}, b.Region, ids, afters, int64(b.Limit))
	if err != nil || len(children) == 0 {
		return answers, err
	}
	_, err = rows(ctx, s.hot, "close edges", closeEdges, pgx.RowTo[[16]byte], b.Region, children, parents, outcomes)
	return answers, err
}

// settleEdges marks the open edges of children whose parents have ended.
// Guard: open still, compared as above.
const settleEdges = `
UPDATE task_edges e SET outcome = x.state
FROM (
    SELECT $1::crdb_internal_region AS region, o.child_id, o.parent_id, t.state
    FROM unnest($2::uuid[]) AS u (id)
    JOIN task_edges o ON o.region = $1::crdb_internal_region AND o.child_id = u.id AND o.outcome = 0
    JOIN tasks t ON t.region = $1::crdb_internal_region AND t.id = o.parent_id
    WHERE t.state > 4
    OFFSET 0
) x
WHERE e.region = x.region AND e.child_id = x.child_id AND e.parent_id = x.parent_id AND (e.outcome = 0) IS TRUE`

// readEdges tells of blocked tasks which outcomes there are among their edges, and the first that is no success.
const readEdges = `
SELECT t.id, t.spec,
    EXISTS (SELECT 1 FROM task_edges e WHERE e.region = $1::crdb_internal_region AND e.child_id = t.id AND e.outcome = 0),
    EXISTS (SELECT 1 FROM task_edges e WHERE e.region = $1::crdb_internal_region AND e.child_id = t.id AND e.outcome = 5),
    b.parent_region, b.parent_id, COALESCE(b.outcome, 0)
FROM (SELECT $1::crdb_internal_region AS region, u.* FROM unnest($2::uuid[]) AS u (id) OFFSET 0) x
JOIN tasks t ON t.region = x.region AND t.id = x.id
LEFT JOIN LATERAL (
    SELECT e.parent_region, e.parent_id, e.outcome FROM task_edges e
    WHERE e.region = $1::crdb_internal_region AND e.child_id = t.id AND e.outcome > 5
    ORDER BY e.outcome LIMIT 1
) b ON true
WHERE t.state = $3::smallint`

// releaseTasks lets blocked tasks go: to ready, or to scheduled while their time has not come.
// Guard: blocked still, and its start_by has not passed.
// Returns the rows won.
const releaseTasks = `
UPDATE tasks t SET
    state = CASE WHEN t.run_at > now() THEN 1 ELSE 2 END,
    wake_at = CASE WHEN t.run_at > now() AND (t.start_by IS NULL OR t.start_by > t.run_at) THEN t.run_at ELSE t.start_by END,
    ready_at = CASE WHEN t.run_at > now() THEN t.ready_at ELSE now() END,
    due = CASE WHEN t.run_at > now() THEN t.due ELSE now() + t.tolerance_us * INTERVAL '1 microsecond' END
FROM (SELECT $1::crdb_internal_region AS region, u.* FROM unnest($2::uuid[]) AS u (id) OFFSET 0) x
WHERE t.region = x.region AND t.id = x.id AND t.state = $3::smallint AND (t.start_by IS NULL OR t.start_by > now())
RETURNING ` + readyColumns + `, t.wake_at`

// forsakeTasks ends blocked tasks that their parents will never let go.
// Guard: blocked still.
// Returns the rows won.
const forsakeTasks = `
WITH done AS (
    UPDATE tasks t SET state = 7, ended_at = now(), wake_at = CASE WHEN t.parent THEN now() END, failure = x.failure::jsonb
    FROM (SELECT $1::crdb_internal_region AS region, u.* FROM unnest($3::uuid[], $4::text[]) AS u (id, failure) OFFSET 0) x
    WHERE t.region = x.region AND t.id = x.id AND t.state = $5::smallint
    RETURNING t.id, t.state, t.parent, t.tenant, t.tier
), counted AS (
    INSERT INTO ledger (region, batch, tenant, tier, accepted, ended, purged, at)
    SELECT $1::crdb_internal_region, $2::uuid, tenant, tier, 0, count(*), 0, now() FROM done GROUP BY tenant, tier
)
SELECT id, state, parent FROM done`

// sleepTasks takes away the wake time that fresh blocked tasks are stored with: their parents will wake them, or their start_by.
// Guard: blocked still.
const sleepTasks = `
UPDATE tasks t SET wake_at = t.start_by
FROM (SELECT $1::crdb_internal_region AS region, u.* FROM unnest($2::uuid[]) AS u (id) OFFSET 0) x
WHERE t.region = x.region AND t.id = x.id AND t.state = $3::smallint`

// evaluated is what is to become of blocked tasks.
type evaluated struct {
	free, waiting, forsaken [][16]byte
	failures                []*string // of the forsaken
}

// Release evaluates blocked tasks, and lets those go that need not wait.
func (s *Store) Release(ctx context.Context, b scheduler.ReleaseBatch) ([]scheduler.Released, error) {
	if b.Fresh {
		if _, err := rows(ctx, s.general, "settle edges", settleEdges, pgx.RowTo[[16]byte], b.Region, uuids(b.IDs)); err != nil {
			return nil, err
		}
	}
	e, err := s.evaluate(ctx, b.Region, b.IDs)
	if err != nil {
		return nil, err
	}
	won := make(map[scheduler.ID]scheduler.Released, len(b.IDs))
	if len(e.free) > 0 {
		got, err := rows(ctx, s.hot, "release tasks", releaseTasks, scanReleased, b.Region, e.free, int16(scheduler.Blocked))
		if err != nil {
			return nil, err
		}
		for _, one := range got {
			won[one.ID] = one
		}
	}
	if len(e.forsaken) > 0 {
		got, err := rows(ctx, s.hot, "cancel for parents", forsakeTasks, scanForsaken, b.Region, newBatchID(), e.forsaken, e.failures, int16(scheduler.Blocked))
		if err != nil {
			return nil, err
		}
		for _, one := range got {
			won[one.ID] = one
		}
	}
	if b.Fresh && len(e.waiting) > 0 {
		if _, err := rows(ctx, s.hot, "let tasks wait", sleepTasks, pgx.RowTo[[16]byte], b.Region, e.waiting, int16(scheduler.Blocked)); err != nil {
			return nil, err
		}
	}
	return s.released(ctx, b, won)
}

// evaluate reads what the edges of blocked tasks have come to, and says what each task does. Its answer stays right: edges only
// go from open to an outcome, and the conditions are such that none of that takes an answer back.
func (s *Store) evaluate(ctx context.Context, region string, ids []scheduler.ID) (evaluated, error) {
	var e evaluated
	_, err := rows(ctx, s.hot, "read edges", readEdges, func(row pgx.CollectableRow) (struct{}, error) {
		var id [16]byte
		var raw []byte
		var edges graph.Edges
		var bad scheduler.Ref
		var badRegion *string
		var badID *[16]byte
		var outcome int16
		if err := row.Scan(&id, &raw, &edges.Open, &edges.Succeeded, &badRegion, &badID, &outcome); err != nil {
			return struct{}{}, err
		}
		edges.Otherwise = outcome != 0
		spec := specOf(raw)
		bad.Region, bad.ID = textOf(badRegion), idOf[scheduler.ID](badID)
		verdict := graph.Evaluate(spec.Condition, edges)
		switch {
		case verdict == graph.Wait:
			e.waiting = append(e.waiting, id)
		case verdict == graph.Impossible && spec.Impossible.OrDefault() != graph.Run:
			e.forsaken = append(e.forsaken, id)
			e.failures = append(e.failures, optionalFailure(scheduler.ParentFailure(&spec, bad, scheduler.State(outcome))))
		default:
			e.free = append(e.free, id)
		}
		return struct{}{}, nil
	}, region, uuids(ids), int16(scheduler.Blocked))
	return e, err
}

func scanReleased(row pgx.CollectableRow) (scheduler.Released, error) {
	var r readyScan
	var wake *time.Time
	err := row.Scan(append(r.targets(), &wake)...)
	ready := r.ready()
	return scheduler.Released{
		ID: ready.ID, Verdict: scheduler.Won, State: ready.State, Row: scheduler.TimedRow{ReadyRow: ready, WakeAt: timeOf(wake)},
	}, err
}

func scanForsaken(row pgx.CollectableRow) (scheduler.Released, error) {
	one := scheduler.Released{Verdict: scheduler.Won}
	var id [16]byte
	var state int16
	err := row.Scan(&id, &state, &one.Parent)
	one.ID, one.State = id, scheduler.State(state)
	return one, err
}

// released completes the rows that were won with what stands of the others.
func (s *Store) released(ctx context.Context, b scheduler.ReleaseBatch, won map[scheduler.ID]scheduler.Released) ([]scheduler.Released, error) {
	standing := map[scheduler.ID]movedRow{}
	if len(won) < len(b.IDs) {
		others, err := rows(ctx, s.hot, "read moved tasks", readMoved, scanMoved, b.Region, uuids(b.IDs))
		if err != nil {
			return nil, err
		}
		for _, m := range others {
			standing[m.id] = m
		}
	}
	answers := make([]scheduler.Released, len(b.IDs))
	for i, id := range b.IDs {
		one, here := won[id]
		m, stands := standing[id]
		switch {
		case here:
		case stands:
			one = scheduler.Released{ID: id, Verdict: scheduler.Lost, State: m.state, Parent: m.parent}
		default:
			one = scheduler.Released{ID: id, Verdict: scheduler.Missing}
		}
		answers[i] = one
	}
	return answers, nil
}

// restParents takes the wake times of ended parents away. The wake time is wrapped so that the timed index does not fit.
// Guard: ended, and the wake time as it was read before the children were.
const restParents = `
UPDATE tasks t SET wake_at = NULL
FROM (SELECT $1::crdb_internal_region AS region, u.* FROM unnest($2::uuid[], $3::timestamptz[]) AS u (id, wake_at) OFFSET 0) x
WHERE t.region = x.region AND t.id = x.id AND t.state > 4 AND COALESCE(t.wake_at, 'infinity'::timestamptz) = x.wake_at`

// Rest takes the wake times of ended parents away whose children have all been looked at.
func (s *Store) Rest(ctx context.Context, b scheduler.RestBatch) error {
	ids, wakes := make([][16]byte, len(b.Parents)), make([]time.Time, len(b.Parents))
	for i, p := range b.Parents {
		ids[i], wakes[i] = p.ID, p.Wake
	}
	_, err := rows(ctx, s.hot, "rest parents", restParents, pgx.RowTo[[16]byte], b.Region, ids, wakes)
	return err
}
