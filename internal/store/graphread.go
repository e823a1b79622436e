package store

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/errandhq/errand/scheduler"
)

// LinkCounts are how many tasks a task is linked with.
type LinkCounts struct{ Parents, OpenParents, Children int64 }

// countLinks counts the edges of a task.
const countLinks = `
SELECT (SELECT count(*) FROM task_edges e WHERE e.region = $1::crdb_internal_region AND e.child_id = $2::uuid),
    (SELECT count(*) FROM task_edges e WHERE e.region = $1::crdb_internal_region AND e.child_id = $2::uuid AND e.outcome = 0),
    (SELECT count(*) FROM task_children c WHERE c.region = $1::crdb_internal_region AND c.parent_id = $2::uuid)`

// CountLinks counts the parents and children of a task.
func (s *Store) CountLinks(ctx context.Context, ref scheduler.Ref) (LinkCounts, error) {
	got, err := rows(ctx, s.general, "count links of "+ref.String(), countLinks, pgx.RowToStructByPos[LinkCounts], ref.Region, [16]byte(ref.ID))
	return one(got, err, ErrNotFound)
}

// readParentsOf reads the parents of tasks, in the order in which each names them.
const readParentsOf = `
SELECT e.child_id, e.parent_region, e.parent_id FROM task_edges e
WHERE e.region = $1::crdb_internal_region AND e.child_id = ANY ($2::uuid[]) AND e.place < $3::bigint
ORDER BY e.child_id, e.place`

// ParentsOf returns the parents of tasks, of each at most limit, in the order in which it names them.
func (s *Store) ParentsOf(ctx context.Context, region string, ids []scheduler.ID, limit int) (map[scheduler.ID][]scheduler.Ref, error) {
	parents := map[scheduler.ID][]scheduler.Ref{}
	_, err := rows(ctx, s.general, "read parents", readParentsOf, func(row pgx.CollectableRow) (struct{}, error) {
		var child, parent [16]byte
		var ref scheduler.Ref
		err := row.Scan(&child, &ref.Region, &parent)
		ref.ID = parent
		parents[child] = append(parents[child], ref)
		return struct{}{}, err
	}, region, uuids(ids), int64(limit))
	return parents, err
}

// GraphPage is a page of a graph's tasks.
type GraphPage struct {
	Size  int64            // tasks that it was submitted with
	Tasks []scheduler.Task // without payloads and results; those that were deleted since are missing
	Place []int            // of each, among all
	Seen  int              // places that the page has passed: the next one begins after them
}

// readGraphSize counts the tasks of a graph.
const readGraphSize = `
SELECT count(*) FROM graph_tasks g WHERE g.region = $1::crdb_internal_region AND g.graph_id = $2::uuid`

// readGraph reads tasks of a graph in the order of its submission.
const readGraph = `
SELECT ` + taskColumns + `, g.place
FROM graph_tasks g
JOIN tasks t ON t.region = $1::crdb_internal_region AND t.id = g.task_id
WHERE g.region = $1::crdb_internal_region AND g.graph_id = $2::uuid AND g.place >= $3::bigint AND g.place < $3::bigint + $4::bigint
    AND (t.tenant = $5::text) IS TRUE
ORDER BY g.place`

// Graph returns a page of a tenant's graph from a place on; ErrNotFound when there is none, also when it is another tenant's.
func (s *Store) Graph(ctx context.Context, tenant string, graph scheduler.Ref, from, limit int) (GraphPage, error) {
	page := GraphPage{Seen: limit}
	if _, err := s.Task(ctx, tenant, graph); err != nil { // its first task, which is there as long as the graph
		return page, err
	}
	sizes, err := rows(ctx, s.general, "count tasks of a graph", readGraphSize, pgx.RowTo[int64], graph.Region, [16]byte(graph.ID))
	if page.Size, err = one(sizes, err, ErrNotFound); err != nil {
		return page, err
	}
	page.Tasks, err = rows(ctx, s.general, "read graph", readGraph, func(row pgx.CollectableRow) (scheduler.Task, error) {
		var r taskScan
		var place int64
		err := row.Scan(append(r.targets(), &place)...)
		page.Place = append(page.Place, int(place))
		return r.task(graph.Region), err
	}, graph.Region, [16]byte(graph.ID), int64(from), int64(limit), tenant)
	return page, err
}

// ParentRow is a parent as its child may read it.
type ParentRow struct {
	Place int64 // among the child's parents
	Task  scheduler.Task
}

// readParents reads the parents of a running attempt, with their results.
// Guard: the child runs under this very token.
const readParents = `
SELECT ` + taskColumns + `, NULL::bytea, t.result, e.place
FROM tasks c
JOIN task_edges e ON e.region = $1::crdb_internal_region AND e.child_id = c.id
JOIN tasks t ON t.region = $1::crdb_internal_region AND t.id = e.parent_id
WHERE c.region = $1::crdb_internal_region AND c.id = $2::uuid AND c.state = 3 AND c.attempt = $3::bigint AND c.worker_id = $4::uuid
    AND e.place >= $5::bigint
ORDER BY e.place LIMIT $6::bigint`

// readToken tells whether an attempt runs.
const readToken = `
SELECT t.id FROM tasks t
WHERE t.region = $1::crdb_internal_region AND t.id = $2::uuid AND t.state = 3 AND t.attempt = $3::bigint AND t.worker_id = $4::uuid`

// Parents returns the parents of a running attempt from a place on, in the order in which it names them. The error is
// scheduler.ErrLost when the token is not that of the running attempt.
func (s *Store) Parents(ctx context.Context, region string, token scheduler.Token, from, limit int) ([]ParentRow, error) {
	got, err := rows(ctx, s.general, "read parents of a running task", readParents, func(row pgx.CollectableRow) (ParentRow, error) {
		var r taskScan
		var p ParentRow
		var payload, result []byte
		if err := row.Scan(append(r.targets(), &payload, &result, &p.Place)...); err != nil {
			return p, err
		}
		p.Task = r.task(region)
		p.Task.Result = result
		return p, nil
	}, region, [16]byte(token.ID), token.Attempt, [16]byte(token.Worker), int64(from), int64(limit))
	if err != nil || len(got) > 0 {
		return got, err
	}
	runs, err := rows(ctx, s.general, "read token", readToken, pgx.RowTo[[16]byte], region, [16]byte(token.ID), token.Attempt, [16]byte(token.Worker))
	_, err = one(runs, err, scheduler.ErrLost)
	return nil, err
}
