package store

import (
	"bytes"
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/errandhq/errand/internal/txsql"
	"github.com/errandhq/errand/scheduler"
)

// edgesPage is how many edges one statement stores.
const edgesPage = 5000

// adoptChildren notes on existing tasks that they have children. Of one that has ended it sets the wake time: whoever looks next
// tells the child. An end that comes at the same time waits for this row, or this waits for the end; either way the later one sees
// the other.
// Guard: the tenant's own; compared so that the tenants' index does not fit.
// Returns the tasks that are there.
const adoptChildren = `
UPDATE tasks t SET parent = true, wake_at = CASE WHEN t.state > 4 THEN now() ELSE t.wake_at END
FROM (SELECT $1::crdb_internal_region AS region, u.* FROM unnest($3::uuid[]) AS u (id) OFFSET 0) x
WHERE t.region = x.region AND t.id = x.id AND (t.tenant = $2::text) IS TRUE
RETURNING t.id`

// insertEdges stores what children wait for.
// Guard: the primary key.
const insertEdges = `
INSERT INTO task_edges (region, child_id, parent_id, parent_region, place)
SELECT $1::crdb_internal_region, u.* FROM unnest($2::uuid[], $3::uuid[], $4::text[], $5::bigint[]) AS u (child_id, parent_id, parent_region, place)
ON CONFLICT (region, child_id, parent_id) DO NOTHING`

// insertChildren stores the same, with the parents.
// Guard: the primary key.
const insertChildren = `
INSERT INTO task_children (region, parent_id, child_id, child_region)
SELECT $1::crdb_internal_region, u.parent_id, u.child_id, $1::crdb_internal_region::text FROM unnest($2::uuid[], $3::uuid[]) AS u (child_id, parent_id)
ON CONFLICT (region, parent_id, child_id) DO NOTHING`

// insertGraph stores which tasks a graph has, in order.
// Guard: the primary key.
const insertGraph = `
INSERT INTO graph_tasks (region, graph_id, place, task_id)
SELECT $1::crdb_internal_region, $2::uuid, u.place - 1, u.task_id FROM unnest($3::uuid[]) WITH ORDINALITY AS u (task_id, place)
ON CONFLICT (region, graph_id, place) DO NOTHING`

// insertGraphKey stores that an idempotency key stands for a graph, where the tenant's keys are kept.
// Guard: the key's primary key.
// Returns a row when it was stored now.
const insertGraphKey = `
INSERT INTO idempotency_keys (task_region, region, tenant, key, fingerprint, task_id, created_at)
SELECT $1::crdb_internal_region::text, ` + txsql.KeyRegion + `, x.tenant, $3::text, $4::bytea, $5::uuid, now()
FROM (SELECT $2::text AS tenant OFFSET 0) x LEFT JOIN tenants n ON n.name = x.tenant
ON CONFLICT (region, tenant, key) DO NOTHING
RETURNING task_id`

// keepGraphKey writes a graph's key into its first task, with which it goes when its time is over.
const keepGraphKey = `
UPDATE tasks t SET idempotency_key = $3::text WHERE t.region = $1::crdb_internal_region AND t.id = $2::uuid AND t.idempotency_key IS NULL`

// errRefusedWhole ends the transaction of a graph that is not stored.
var errRefusedWhole = errors.New("the graph is not stored")

// linking is one execution of an insert of linked tasks.
type linking struct {
	s      *Store
	in     *scheduler.InsertLinked
	answer scheduler.Linked
	stored map[scheduler.ID]scheduler.Inserted
	orphan map[int]scheduler.Ref // tasks with a parent that is not there
	twins  map[int]bool
}

// InsertLinked stores tasks that have parents, or children within the same call: with their edges, in one transaction. Of a graph all
// are stored or none.
func (s *Store) InsertLinked(ctx context.Context, in scheduler.InsertLinked) (scheduler.Linked, error) {
	if len(in.Tasks) == 0 {
		return scheduler.Linked{}, nil
	}
	var l *linking
	err := s.InTx(named(ctx, "insert linked tasks"), func(tx pgx.Tx) error {
		l = &linking{s: s, in: &in, stored: map[scheduler.ID]scheduler.Inserted{}}
		return l.insert(ctx, tx)
	})
	switch {
	case errors.Is(err, errRefusedWhole):
		return l.answer, nil
	case err != nil:
		return scheduler.Linked{}, err
	}
	return l.answers(ctx)
}

func (l *linking) insert(ctx context.Context, tx pgx.Tx) error {
	if l.in.Key != "" {
		if earlier, err := l.insertKey(ctx, tx); err != nil || earlier {
			return err
		}
	}
	if err := l.adopt(ctx, tx); err != nil {
		return err
	}
	if err := l.insertTasks(ctx, tx); err != nil {
		return err
	}
	if err := l.insertEdges(ctx, tx); err != nil || l.in.Graph.IsZero() {
		return err
	}
	ids := make([][16]byte, len(l.in.Tasks))
	for i := range l.in.Tasks {
		ids[i] = l.in.Tasks[i].ID
	}
	_, err := tx.Exec(ctx, insertGraph, l.in.Region, [16]byte(l.in.Graph), ids)
	if err == nil && l.in.Key != "" {
		_, err = tx.Exec(ctx, keepGraphKey, l.in.Region, ids[0], l.in.Key)
	}
	return err
}

// insertKey stores the graph's key, or finds that it stands: for this graph, by an earlier execution, or for something else.
func (l *linking) insertKey(ctx context.Context, tx pgx.Tx) (earlier bool, err error) {
	tenant := l.in.Tasks[0].Tenant
	var id [16]byte
	err = tx.QueryRow(ctx, insertGraphKey, l.in.Region, tenant, l.in.Key, l.in.Fingerprint, [16]byte(l.in.Graph)).Scan(&id)
	if !errors.Is(err, pgx.ErrNoRows) {
		return false, err
	}
	var key standingKey
	var state int16
	var text string
	err = tx.QueryRow(ctx, readKeys, l.in.Region, []string{tenant}, []string{l.in.Key}).
		Scan(&text, &text, &key.ref.Region, &id, &state, &key.fingerprint)
	if err != nil {
		return false, fmt.Errorf("read a graph's key: %w", err)
	}
	if key.ref.ID = id; key.ref.ID == l.in.Graph {
		return true, nil
	}
	l.answer = scheduler.Linked{Verdict: scheduler.InsertDuplicate, Existing: key.ref}
	if !bytes.Equal(key.fingerprint, l.in.Fingerprint) {
		l.answer.Verdict = scheduler.InsertKeyReused
	}
	return false, errRefusedWhole
}

// adopt tells the parents outside of the call, and finds those that are not there.
func (l *linking) adopt(ctx context.Context, tx pgx.Tx) error {
	inside, asked := map[scheduler.ID]bool{}, map[scheduler.ID]bool{}
	for i := range l.in.Tasks {
		inside[l.in.Tasks[i].ID] = true
	}
	var outside [][16]byte
	for i := range l.in.Tasks {
		for _, p := range l.in.Tasks[i].Parents {
			if !inside[p.ID] && !asked[p.ID] && p.Region == l.in.Region {
				asked[p.ID] = true
				outside = append(outside, p.ID)
			}
		}
	}
	here := map[scheduler.ID]bool{}
	for len(outside) > 0 {
		page := outside[:min(len(outside), scheduler.BatchRowsMax)]
		outside = outside[len(page):]
		result, err := tx.Query(ctx, adoptChildren, l.in.Region, l.in.Tasks[0].Tenant, page)
		if err != nil {
			return fmt.Errorf("tell parents: %w", err)
		}
		var id [16]byte
		if _, err = pgx.ForEachRow(result, []any{&id}, func() error { here[id] = true; return nil }); err != nil {
			return fmt.Errorf("tell parents: %w", err)
		}
	}
	for i := range l.in.Tasks {
		for _, p := range l.in.Tasks[i].Parents {
			if inside[p.ID] || here[p.ID] {
				continue
			}
			if !l.in.Graph.IsZero() {
				l.answer = scheduler.Linked{Verdict: scheduler.InsertNoParent, Existing: p, At: i}
				return errRefusedWhole
			}
			if l.orphan == nil {
				l.orphan = map[int]scheduler.Ref{}
			}
			l.orphan[i] = p
			break
		}
	}
	return nil
}

// insertTasks stores the rows, in the statements that their keys need.
func (l *linking) insertTasks(ctx context.Context, tx pgx.Tx) error {
	var tasks []scheduler.Task
	var at []int
	for i := range l.in.Tasks {
		if _, gone := l.orphan[i]; !gone {
			tasks, at = append(tasks, l.in.Tasks[i]), append(at, i)
		}
	}
	for len(tasks) > 0 {
		n, sum := 0, 0
		for n < min(len(tasks), scheduler.BatchRowsMax) && (n == 0 || sum+len(tasks[n].Payload) <= scheduler.BatchBytesMax) {
			sum += len(tasks[n].Payload)
			n++
		}
		parts, twins, err := divide(tasks[:n])
		if err != nil {
			return err
		}
		for i := range twins {
			l.twins = marked(l.twins, at[i])
		}
		for i := range parts {
			if parts[i].Batch == nil {
				continue
			}
			if err := l.insertPart(ctx, tx, &parts[i]); err != nil {
				return err
			}
		}
		tasks, at = tasks[n:], at[n:]
	}
	if n := len(l.stored); !l.in.Graph.IsZero() && n > 0 && n < len(l.in.Tasks) {
		return fmt.Errorf("a graph was stored in part: %w", scheduler.ErrRefused) // its tasks have no keys of their own
	}
	return nil
}

func (l *linking) insertPart(ctx context.Context, tx pgx.Tx, b *inserts) error {
	result, err := tx.Query(ctx, b.Insert(), b.Args(l.in.Region, b.session, newBatchID())...)
	if err != nil {
		return fmt.Errorf("insert linked tasks: %w", err)
	}
	got, err := pgx.CollectRows(result, scanInserted)
	if err != nil {
		return fmt.Errorf("insert linked tasks: %w", err)
	}
	for _, one := range got {
		l.stored[one.ID] = one
	}
	return l.dropKeys(ctx, tx, b, len(got))
}

func (l *linking) dropKeys(ctx context.Context, tx pgx.Tx, b *inserts, stored int) error {
	if len(b.Keys) == 0 || len(b.Uniques) == 0 || stored == len(b.IDs) {
		return nil
	}
	return dropUnusedKeys(ctx, tx, l.in.Region, b)
}

// insertEdges stores the edges of the tasks that were stored.
func (l *linking) insertEdges(ctx context.Context, tx pgx.Tx) error {
	var children, parents [][16]byte
	var regions []string
	var places []int64
	flush := func() error {
		if len(children) == 0 {
			return nil
		}
		if _, err := tx.Exec(ctx, insertEdges, l.in.Region, children, parents, regions, places); err != nil {
			return fmt.Errorf("insert edges: %w", err)
		}
		if _, err := tx.Exec(ctx, insertChildren, l.in.Region, children, parents); err != nil {
			return fmt.Errorf("insert edges: %w", err)
		}
		children, parents, regions, places = children[:0], parents[:0], regions[:0], places[:0]
		return nil
	}
	for i := range l.in.Tasks {
		t := &l.in.Tasks[i]
		if _, stored := l.stored[t.ID]; !stored {
			continue // an earlier execution has, or nobody will
		}
		for place, p := range t.Parents {
			children, parents, regions, places = append(children, t.ID), append(parents, p.ID), append(regions, p.Region), append(places, int64(place))
			if len(children) == edgesPage {
				if err := flush(); err != nil {
					return err
				}
			}
		}
	}
	return flush()
}

// answers completes what was stored with what was not.
func (l *linking) answers(ctx context.Context) (scheduler.Linked, error) {
	in := scheduler.Insert{Region: l.in.Region}
	var at []int
	twins := map[int]bool{}
	for i := range l.in.Tasks {
		if _, gone := l.orphan[i]; gone {
			continue
		}
		if l.twins[i] {
			twins[len(at)] = true
		}
		in.Tasks, at = append(in.Tasks, l.in.Tasks[i]), append(at, i)
	}
	got, err := l.s.insertAnswers(ctx, in, l.stored, twins)
	if err != nil {
		return scheduler.Linked{}, err
	}
	answer := scheduler.Linked{Tasks: make([]scheduler.Inserted, len(l.in.Tasks))}
	for i, one := range got {
		answer.Tasks[at[i]] = one
	}
	for i, p := range l.orphan {
		answer.Tasks[i] = scheduler.Inserted{ID: l.in.Tasks[i].ID, Verdict: scheduler.InsertNoParent, Existing: p}
	}
	if !l.in.Graph.IsZero() {
		answer.Verdict = scheduler.InsertStored
	}
	return answer, nil
}
