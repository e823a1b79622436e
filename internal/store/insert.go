package store

import (
	"bytes"
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/errandhq/errand/internal/txsql"
	"github.com/errandhq/errand/scheduler"
)

// inserts is a batch in the making.
type inserts struct {
	*txsql.Batch
	session scheduler.SessionID // of those that start at once
}

func (b *inserts) add(t *scheduler.Task) error {
	spec, err := optionalSpec(&t.Spec)
	if err != nil {
		return err
	}
	shape := txsql.Shape{
		Tier: int16(t.Tier), State: int16(t.State), Class: t.Class().Hash(), ToleranceUS: t.Tolerance.Microseconds(),
		RunAt: t.RunAt, StartBy: t.StartBy, Tenant: t.Tenant, Kind: t.Kind, ContentType: t.ContentType, Spec: spec, Links: linksOf(t),
	}
	if t.EffectKey != t.ID {
		shape.EffectKey = t.EffectKey
	}
	var worker *[16]byte
	if t.State == scheduler.Running {
		b.session, shape.State = t.Session, int16(scheduler.Ready)
		worker = optionalID(t.Worker)
	}
	b.IDs = append(b.IDs, t.ID)
	b.Shards = append(b.Shards, int16(t.ID.Shard()))
	b.Shape = append(b.Shape, b.ShapeOf(shape))
	b.Workers = append(b.Workers, worker)
	b.Traces = append(b.Traces, optionalText(t.TraceParent))
	b.Payloads = append(b.Payloads, t.Payload)
	if t.IdempotencyKey != "" {
		b.Keys = append(b.Keys, t.IdempotencyKey)
		b.Prints = append(b.Prints, t.Fingerprint)
	}
	if t.UniqueKey != "" {
		b.Uniques = append(b.Uniques, t.UniqueKey)
	}
	return nil
}

func linksOf(t *scheduler.Task) int16 {
	links := int16(0)
	if t.Parent {
		links |= txsql.Parent
	}
	if t.State == scheduler.Blocked && !t.WakeAt.IsZero() {
		links |= txsql.LookAgain
	}
	return links
}

// insertTriesMax bounds the executions of one insert whose unique keys were held by tasks that ended meanwhile. Beyond it the
// engine asks again by itself, for as long as somebody waits.
const insertTriesMax = 3

// Insert stores new tasks and answers for each what stands.
func (s *Store) Insert(ctx context.Context, in scheduler.Insert) ([]scheduler.Inserted, error) {
	answers, err := s.insertOnce(ctx, in)
	for try := 1; err == nil && try < insertTriesMax; try++ {
		var freed []int
		again := scheduler.Insert{Region: in.Region}
		for i := range answers {
			if t := &in.Tasks[i]; answers[i].Verdict == scheduler.InsertNotStarted && t.UniqueKey != "" && t.State != scheduler.Running {
				freed, again.Tasks = append(freed, i), append(again.Tasks, *t)
			}
		}
		if len(freed) == 0 {
			break
		}
		var got []scheduler.Inserted
		got, err = s.insertOnce(ctx, again)
		for i := range got {
			answers[freed[i]] = got[i]
		}
	}
	return answers, err
}

// insertOnce executes each of the inserts that a batch needs once, and reads what stands of the rest.
func (s *Store) insertOnce(ctx context.Context, in scheduler.Insert) ([]scheduler.Inserted, error) {
	parts, twins, err := divide(in.Tasks)
	if err != nil {
		return nil, err
	}
	stored := make(map[scheduler.ID]scheduler.Inserted, len(in.Tasks))
	for i := range parts {
		if parts[i].Batch == nil {
			continue
		}
		got, err := s.insertPart(ctx, in.Region, &parts[i])
		if err != nil {
			return nil, err
		}
		for _, one := range got {
			stored[one.ID] = one
		}
	}
	return s.insertAnswers(ctx, in, stored, twins)
}

// The parts of an insert: each needs a statement of its own.
const (
	partKeyed  = 1
	partUnique = 2
	partsAll   = 4
)

// divide sorts the tasks by the statement that they need. Of tasks with the same key only the first goes into one: the others are
// its twins.
func divide(tasks []scheduler.Task) (parts [partsAll]inserts, twins map[int]bool, err error) {
	var keys, uniques map[[2]string]bool
	for i := range tasks {
		t := &tasks[i]
		key, unique, part := [2]string{t.Tenant, t.IdempotencyKey}, [2]string{t.Tenant, t.UniqueKey}, 0
		if keys[key] || uniques[unique] {
			twins = marked(twins, i)
			continue
		}
		if t.IdempotencyKey != "" {
			keys, part = marked(keys, key), partKeyed
		}
		if t.UniqueKey != "" {
			uniques, part = marked(uniques, unique), part+partUnique
		}
		if parts[part].Batch == nil {
			parts[part].Batch = txsql.NewBatch(len(tasks) - i)
		}
		if err := parts[part].add(t); err != nil {
			return parts, nil, err
		}
	}
	return parts, twins, nil
}

// marked makes the set when it is needed: most batches have no key.
func marked[K comparable](set map[K]bool, k K) map[K]bool {
	if set == nil {
		set = map[K]bool{}
	}
	set[k] = true
	return set
}

func (s *Store) insertPart(ctx context.Context, region string, b *inserts) ([]scheduler.Inserted, error) {
	const what = "insert tasks"
	args := b.Args(region, b.session, newBatchID())
	if len(b.Keys) == 0 {
		return rows(ctx, s.hot, what, b.Insert(), scanInserted, args...)
	}
	if len(b.Uniques) == 0 { // joins two parts of itself: that wants the ordinary planner
		return rows(ctx, s.general, what, b.Insert(), scanInserted, args...)
	}
	var got []scheduler.Inserted
	ctx = named(ctx, what)
	err := s.InTx(ctx, func(tx pgx.Tx) error {
		result, err := tx.Query(ctx, b.Insert(), args...)
		if err != nil {
			return err
		}
		if got, err = pgx.CollectRows(result, scanInserted); err != nil || len(got) == len(b.IDs) {
			return err
		}
		return dropUnusedKeys(ctx, tx, region, b)
	})
	return got, err
}

// dropUnusedKeys takes the idempotency keys of a batch back whose tasks were not stored.
func dropUnusedKeys(ctx context.Context, tx pgx.Tx, region string, b *inserts) error {
	tenants := make([]string, len(b.IDs))
	for i := range tenants {
		tenants[i] = b.TenantOf(i)
	}
	_, err := tx.Exec(ctx, txsql.DropUnusedKeys, region, tenants, b.Keys, b.IDs)
	return err
}

func scanInserted(row pgx.CollectableRow) (scheduler.Inserted, error) {
	var raw [16]byte
	var state int16
	one := scheduler.Inserted{Verdict: scheduler.InsertStored}
	err := row.Scan(&raw, &state, &one.At)
	one.ID, one.State = raw, scheduler.State(state)
	return one, err
}

// readInserted tells what stands of tasks that an insert did not return: stored by an earlier execution, or not.
const readInserted = `
SELECT t.id, t.state, t.created_at FROM tasks t
WHERE t.region = $1::crdb_internal_region AND t.id = ANY ($2::uuid[])`

// readKeys tells which tasks idempotency keys stand for.
const readKeys = `
SELECT k.tenant, k.key, k.task_region, k.task_id, COALESCE(t.state, 0), k.fingerprint
FROM (
    SELECT ` + txsql.KeyRegion + ` AS region, u.* FROM unnest($2::text[], $3::text[]) AS u (tenant, key)
    LEFT JOIN tenants n ON n.name = u.tenant OFFSET 0
) x
JOIN idempotency_keys k ON k.region = x.region AND k.tenant = x.tenant AND k.key = x.key
LEFT JOIN tasks t ON t.region = k.task_region::crdb_internal_region AND t.id = k.task_id`

type standingKey struct {
	fingerprint []byte
	ref         scheduler.Ref
	state       scheduler.State
}

// standing is what keeps tasks from being stored, by tenant and key.
type standing struct{ keys, holders map[[2]string]standingKey }

// insertAnswers completes what the insert returned with what it did not.
func (s *Store) insertAnswers(ctx context.Context, in scheduler.Insert, stored map[scheduler.ID]scheduler.Inserted, twins map[int]bool) (
	[]scheduler.Inserted, error,
) {
	var missing []*scheduler.Task
	for i := range in.Tasks {
		if _, here := stored[in.Tasks[i].ID]; !here {
			missing = append(missing, &in.Tasks[i])
		}
	}
	var why standing
	if len(missing) > 0 {
		var err error
		if why, err = s.readMissing(ctx, in.Region, missing, stored); err != nil {
			return nil, err
		}
	}
	answers := make([]scheduler.Inserted, len(in.Tasks))
	for i := range in.Tasks {
		t := &in.Tasks[i]
		one, here := stored[t.ID]
		if !here || twins[i] {
			var known bool
			if one, known = why.answer(t, twins[i]); !known {
				return nil, fmt.Errorf("insert %s: %w: neither stored nor refused", t.Ref, scheduler.ErrUnavailable)
			}
		}
		one.ID = t.ID
		answers[i] = one
	}
	return answers, nil
}

// answer tells why a task was not stored: somebody has one of its keys, or had when it was tried.
func (why *standing) answer(t *scheduler.Task, twin bool) (scheduler.Inserted, bool) {
	key, keyed := why.keys[[2]string{t.Tenant, t.IdempotencyKey}]
	holder, held := why.holders[[2]string{t.Tenant, t.UniqueKey}]
	switch {
	case t.IdempotencyKey != "" && keyed && key.ref.ID != t.ID:
		return keyAnswer(t, &key), true
	case t.UniqueKey != "" && held && holder.ref.ID != t.ID:
		return scheduler.Inserted{Verdict: scheduler.InsertHeld, Existing: holder.ref, State: holder.state}, true
	default: // a twin of one that was refused, or after a holder that has ended meanwhile, can be stored in a later batch
		return scheduler.Inserted{Verdict: scheduler.InsertNotStarted}, twin || t.UniqueKey != "" || t.State == scheduler.Running
	}
}

func keyAnswer(t *scheduler.Task, key *standingKey) scheduler.Inserted {
	one := scheduler.Inserted{Verdict: scheduler.InsertDuplicate, Existing: key.ref, State: key.state}
	if !bytes.Equal(key.fingerprint, t.Fingerprint) {
		one.Verdict = scheduler.InsertKeyReused
	}
	return one
}

// readMissing reads what stands of tasks that an insert did not return: themselves, into stored, and who has their keys.
func (s *Store) readMissing(ctx context.Context, region string, missing []*scheduler.Task, stored map[scheduler.ID]scheduler.Inserted) (
	why standing, err error,
) {
	ids := make([][16]byte, len(missing))
	var keyTenants, keys, uniqueTenants, uniques []string
	for i, t := range missing {
		ids[i] = t.ID
		if t.IdempotencyKey != "" {
			keyTenants, keys = append(keyTenants, t.Tenant), append(keys, t.IdempotencyKey)
		}
		if t.UniqueKey != "" {
			uniqueTenants, uniques = append(uniqueTenants, t.Tenant), append(uniques, t.UniqueKey)
		}
	}
	got, err := rows(ctx, s.hot, "read inserted tasks", readInserted, scanInserted, region, ids)
	if err != nil {
		return why, err
	}
	for _, one := range got {
		stored[one.ID] = one
	}
	if why.keys, err = s.standingKeys(ctx, "read idempotency keys", readKeys, region, keyTenants, keys); err != nil {
		return why, err
	}
	why.holders, err = s.standingKeys(ctx, "read unique keys", txsql.ReadHolders, region, uniqueTenants, uniques)
	return why, err
}

func (s *Store) standingKeys(ctx context.Context, what, sql, region string, tenants, keys []string) (map[[2]string]standingKey, error) {
	standing := map[[2]string]standingKey{}
	if len(keys) == 0 {
		return standing, nil
	}
	_, err := rows(ctx, s.hot, what, sql, func(row pgx.CollectableRow) (struct{}, error) {
		var tenant, key string
		var k standingKey
		var raw [16]byte
		var state int16
		err := row.Scan(&tenant, &key, &k.ref.Region, &raw, &state, &k.fingerprint)
		k.ref.ID, k.state = raw, scheduler.State(state)
		standing[[2]string{tenant, key}] = k
		return struct{}{}, err
	}, region, tenants, keys)
	return standing, err
}

// KeyedTask is what an idempotency key stands for.
type KeyedTask struct {
	Ref         scheduler.Ref
	State       scheduler.State // 0 when the task is not here any more
	Fingerprint []byte          // of the request that was stored
}

// KeyedTasks returns what idempotency keys of a tenant stand for, by key; those that stand for nothing are missing.
func (s *Store) KeyedTasks(ctx context.Context, region, tenant string, keys []string) (map[string]KeyedTask, error) {
	tenants := make([]string, len(keys))
	for i := range tenants {
		tenants[i] = tenant
	}
	standing, err := s.standingKeys(ctx, "read idempotency keys", readKeys, region, tenants, keys)
	if err != nil {
		return nil, err
	}
	tasks := make(map[string]KeyedTask, len(standing))
	for at, k := range standing {
		tasks[at[1]] = KeyedTask{Ref: k.ref, State: k.state, Fingerprint: k.fingerprint}
	}
	return tasks, nil
}
