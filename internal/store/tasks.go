package store

import (
	"context"
	"encoding/json"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/errandhq/errand/scheduler"
)

// taskColumns are everything but the payload and the result.
const taskColumns = `t.id, t.tenant, t.kind, t.tier, t.state, t.spec, t.tolerance_us, t.attempt, t.counted, t.worker_losses, t.suspect,
    t.cancel_requested, t.created_at, t.due, t.ready_at, t.run_at, t.start_by, t.wake_at, t.started_at, t.ended_at, t.session_id,
    t.worker_id, t.effect_key, t.content_type, t.trace_parent, t.idempotency_key, t.unique_key, t.result_type, t.failure, t.parent`

// readTask reads one task of a tenant.
const readTask = `
SELECT ` + taskColumns + `, t.payload, t.result FROM tasks t
WHERE t.region = $1::crdb_internal_region AND t.id = $2::uuid AND (t.tenant = $3::text) IS TRUE`

// Task returns a tenant's task, or ErrNotFound, also when it is another tenant's.
func (s *Store) Task(ctx context.Context, tenant string, ref scheduler.Ref) (scheduler.Task, error) {
	got, err := rows(ctx, s.general, "read task "+ref.String(), readTask, taskScanner(ref.Region), ref.Region, [16]byte(ref.ID), tenant)
	if err != nil {
		return scheduler.Task{}, err
	}
	if len(got) == 0 {
		return scheduler.Task{}, ErrNotFound
	}
	return got[0], nil
}

// taskScan receives taskColumns.
type taskScan struct {
	t                                                   scheduler.Task
	id                                                  [16]byte
	session, worker, effect                             *[16]byte
	tier, state, counted, losses                        int16
	toleranceUS                                         int64
	spec, failure                                       []byte
	readyAt, runAt, startBy, wakeAt, startedAt, endedAt *time.Time
	contentType, trace, key, unique, resultType         *string
}

func (r *taskScan) targets() []any {
	return []any{
		&r.id, &r.t.Tenant, &r.t.Kind, &r.tier, &r.state, &r.spec, &r.toleranceUS, &r.t.Attempt, &r.counted, &r.losses, &r.t.Suspect,
		&r.t.CancelRequested, &r.t.CreatedAt, &r.t.Due, &r.readyAt, &r.runAt, &r.startBy, &r.wakeAt, &r.startedAt, &r.endedAt,
		&r.session, &r.worker, &r.effect, &r.contentType, &r.trace, &r.key, &r.unique, &r.resultType, &r.failure, &r.t.Parent,
	}
}

func (r *taskScan) task(region string) scheduler.Task {
	t := r.t
	t.Region, t.ID = region, r.id
	t.Session, t.Worker = idOf[scheduler.SessionID](r.session), idOf[scheduler.WorkerID](r.worker)
	if t.EffectKey = idOf[scheduler.ID](r.effect); t.EffectKey.IsZero() {
		t.EffectKey = t.ID
	}
	t.Tier, t.State = scheduler.Tier(r.tier), scheduler.State(r.state)
	t.Counted, t.WorkerLosses = int(r.counted), int(r.losses)
	t.Tolerance = time.Duration(r.toleranceUS) * time.Microsecond
	t.Spec, t.Failure = specOf(r.spec), failureOf(r.failure)
	t.CreatedAt, t.Due = t.CreatedAt.UTC(), t.Due.UTC()
	t.ReadyAt, t.RunAt, t.StartBy = timeOf(r.readyAt), timeOf(r.runAt), timeOf(r.startBy)
	t.WakeAt, t.StartedAt, t.EndedAt = timeOf(r.wakeAt), timeOf(r.startedAt), timeOf(r.endedAt)
	t.ContentType, t.TraceParent = textOf(r.contentType), textOf(r.trace)
	t.IdempotencyKey, t.UniqueKey, t.ResultType = textOf(r.key), textOf(r.unique), textOf(r.resultType)
	return t
}

func taskScanner(region string) func(pgx.CollectableRow) (scheduler.Task, error) {
	return func(row pgx.CollectableRow) (scheduler.Task, error) {
		var r taskScan
		var payload, result []byte
		if err := row.Scan(append(r.targets(), &payload, &result)...); err != nil {
			return scheduler.Task{}, err
		}
		t := r.task(region)
		t.Payload, t.Result = payload, result
		return t, nil
	}
}

// readStates reads the states of tasks by key.
const readStates = `
SELECT t.id, t.state
FROM (SELECT $1::crdb_internal_region AS region, u.* FROM unnest($2::uuid[]) AS u (id) OFFSET 0) x
JOIN tasks t ON t.region = x.region AND t.id = x.id`

// TaskStates returns the states of tasks by ID; those that are not there are missing.
func (s *Store) TaskStates(ctx context.Context, region string, ids []scheduler.ID) (map[scheduler.ID]scheduler.State, error) {
	states := make(map[scheduler.ID]scheduler.State, len(ids))
	_, err := rows(ctx, s.hot, "read task states", readStates, func(row pgx.CollectableRow) (struct{}, error) {
		var raw [16]byte
		var state scheduler.State
		err := row.Scan(&raw, &state)
		states[raw] = state
		return struct{}{}, err
	}, region, uuids(ids))
	return states, err
}

// readAttempts reads the latest attempts of a task that did not simply succeed.
const readAttempts = `
SELECT a.number, a.worker_id, a.started_at, a.ended_at, a.failure, a.counted FROM (
    SELECT * FROM task_attempts WHERE region = $1::crdb_internal_region AND task_id = $2::uuid ORDER BY number DESC LIMIT $3::bigint
) a ORDER BY a.number`

// TaskAttempts returns the latest attempts that did not simply succeed, oldest first.
func (s *Store) TaskAttempts(ctx context.Context, ref scheduler.Ref, limit int) ([]AttemptRecord, error) {
	return rows(ctx, s.general, "read attempts of "+ref.String(), readAttempts, func(row pgx.CollectableRow) (AttemptRecord, error) {
		var a AttemptRecord
		var worker *[16]byte
		var started *time.Time
		var failure []byte
		err := row.Scan(&a.Number, &worker, &started, &a.EndedAt, &failure, &a.Counted)
		a.Worker, a.StartedAt = idOf[scheduler.WorkerID](worker), timeOf(started)
		if f := failureOf(failure); f != nil {
			a.Failure = *f
		}
		return a, err
	}, ref.Region, [16]byte(ref.ID), int64(limit))
}

// scannedPerPage bounds the rows that one page of a list looks at, whatever its filter leaves of them.
const scannedPerPage = 2000

// listTasks walks a tenant's tasks from the newest, filters what it has seen, and tells how far it has looked. Both must come from
// one statement: between two, rows come and go, and the next page would begin where nobody had looked, or look twice.
// Returns at least one row; its task is NULL when the filter left none.
const listTasks = `
WITH seen AS (
    SELECT * FROM tasks
    WHERE region = $1::crdb_internal_region AND tenant = $2::text
        AND created_at >= $3::timestamptz AND created_at < $4::timestamptz AND (created_at, id) < ($5::timestamptz, $6::uuid)
    ORDER BY created_at DESC, id DESC LIMIT $7::bigint
), reach AS (
    SELECT count(*) AS seen, min(created_at) AS at, (array_agg(id ORDER BY created_at, id))[1] AS id FROM seen
), picked AS (
    SELECT * FROM seen
    WHERE (cardinality($8::smallint[]) = 0 OR state = ANY ($8::smallint[]))
        AND (cardinality($9::text[]) = 0 OR kind = ANY ($9::text[]))
        AND ($10::jsonb IS NULL OR spec -> 'labels' @> $10::jsonb)
    ORDER BY created_at DESC, id DESC LIMIT $11::bigint
)
SELECT r.seen, r.at, r.id, ` + taskColumns + `, CASE WHEN $12::boolean THEN t.payload END, CASE WHEN $12::boolean THEN t.result END
FROM reach r LEFT JOIN picked t ON true
ORDER BY t.created_at DESC, t.id DESC`

// listed is one row of listTasks.
type listed struct {
	seen int64
	end  ListCursor      // the last row that was looked at
	task *scheduler.Task // nil when the filter left none
}

func listScanner(region string) func(pgx.CollectableRow) (listed, error) {
	const reachColumns = 3
	return func(row pgx.CollectableRow) (listed, error) {
		var l listed
		var at *time.Time
		var id *[16]byte
		var r taskScan
		var payload, result []byte
		targets := append(append([]any{&l.seen, &at, &id}, r.targets()...), &payload, &result)
		empty := row.RawValues()[reachColumns] == nil
		if empty {
			for i := reachColumns; i < len(targets); i++ {
				targets[i] = nil // not scanned
			}
		}
		if err := row.Scan(targets...); err != nil {
			return l, err
		}
		l.end = ListCursor{CreatedAt: timeOf(at), ID: idOf[scheduler.ID](id)}
		if !empty {
			t := r.task(region)
			t.Payload, t.Result = payload, result
			l.task = &t
		}
		return l, nil
	}
}

// ListTasks returns a page, newest first.
func (s *Store) ListTasks(ctx context.Context, q ListQuery) (ListPage, error) {
	after, before := q.CreatedAfter, q.CreatedBefore
	if before.IsZero() {
		before = time.Date(9998, 1, 1, 0, 0, 0, 0, time.UTC)
	}
	cursor := ListCursor{CreatedAt: before, ID: scheduler.ID{0xff, 0xff, 0xff, 0xff}}
	if q.Before != nil {
		cursor = *q.Before
	}
	states := make([]int16, len(q.States))
	for i, state := range q.States {
		states[i] = int16(state)
	}
	kinds := q.Kinds
	if kinds == nil {
		kinds = []string{}
	}
	var labels *string
	if len(q.Labels) > 0 {
		raw, err := json.Marshal(q.Labels)
		if err != nil {
			return ListPage{}, err
		}
		text := string(raw)
		labels = &text
	}
	scan := int64(q.Limit)
	if len(states) > 0 || len(kinds) > 0 || labels != nil {
		scan = int64(max(scannedPerPage, q.Limit))
	}
	got, err := rows(ctx, s.general, "list tasks", listTasks, listScanner(q.Region), q.Region, q.Tenant, after, before, cursor.CreatedAt,
		[16]byte(cursor.ID), scan, states, kinds, labels, int64(q.Limit), q.Payloads)
	if err != nil {
		return ListPage{}, err
	}
	var page ListPage
	for i := range got {
		if got[i].task != nil {
			page.Tasks = append(page.Tasks, *got[i].task)
		}
	}
	switch {
	case len(page.Tasks) == q.Limit:
		last := &page.Tasks[q.Limit-1]
		page.Next = &ListCursor{CreatedAt: last.CreatedAt, ID: last.ID}
	case len(got) > 0 && got[0].seen == scan:
		page.Next = &got[0].end
	}
	return page, nil
}
