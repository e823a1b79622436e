package store

import (
	"bytes"
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

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
		RunAt: t.RunAt, StartBy: t.StartBy, Tenant: t.Tenant, Kind: t.Kind, ContentType: t.ContentType, Spec: spec,
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
	return nil
}

// Insert stores new tasks and answers for each what stands.
func (s *Store) Insert(ctx context.Context, in scheduler.Insert) ([]scheduler.Inserted, error) {
	var plain, keyed inserts
	firsts := map[[2]string]int{} // the first task of the batch with a key
	twins := map[int]int{}        // a later one with the same key, and its first
	for i := range in.Tasks {
		t := &in.Tasks[i]
		batch := &plain
		if t.IdempotencyKey != "" {
			key := [2]string{t.Tenant, t.IdempotencyKey}
			if first, seen := firsts[key]; seen {
				twins[i] = first
				continue
			}
			firsts[key] = i
			batch = &keyed
		}
		if batch.Batch == nil {
			batch.Batch = txsql.NewBatch(len(in.Tasks) - i)
		}
		if err := batch.add(t); err != nil {
			return nil, err
		}
	}
	stored := make(map[scheduler.ID]scheduler.Inserted, len(in.Tasks))
	for _, part := range []struct {
		pool  *pgxpool.Pool
		sql   string
		batch *inserts
	}{
		{s.hot, txsql.InsertTasks, &plain},
		{s.general, txsql.InsertKeyedTasks, &keyed}, // joins two parts of itself: that wants the ordinary planner
	} {
		if part.batch.Batch == nil {
			continue
		}
		args := part.batch.Args(in.Region, part.batch.session, newBatchID())
		got, err := rows(ctx, part.pool, "insert tasks", part.sql, scanInserted, args...)
		if err != nil {
			return nil, err
		}
		for _, one := range got {
			stored[one.ID] = one
		}
	}
	return s.insertAnswers(ctx, in, stored, twins)
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
SELECT k.tenant, k.key, k.fingerprint, k.task_region, k.task_id, COALESCE(t.state, 0)
FROM (SELECT $1::crdb_internal_region AS region, u.* FROM unnest($2::text[], $3::text[]) AS u (tenant, key) OFFSET 0) x
JOIN idempotency_keys k ON k.region = x.region AND k.tenant = x.tenant AND k.key = x.key
LEFT JOIN tasks t ON t.region = x.region AND t.id = k.task_id`

type standingKey struct {
	tenant, key string
	fingerprint []byte
	ref         scheduler.Ref
	state       scheduler.State
}

// insertAnswers completes what the insert returned with what it did not.
func (s *Store) insertAnswers(ctx context.Context, in scheduler.Insert, stored map[scheduler.ID]scheduler.Inserted, twins map[int]int) (
	[]scheduler.Inserted, error,
) {
	var missing []scheduler.ID
	var tenants, keys []string
	for i := range in.Tasks {
		t := &in.Tasks[i]
		if _, here := stored[t.ID]; here {
			continue
		}
		if t.IdempotencyKey != "" {
			tenants, keys = append(tenants, t.Tenant), append(keys, t.IdempotencyKey)
		}
		missing = append(missing, t.ID)
	}
	standing := map[[2]string]standingKey{}
	if len(missing) > 0 {
		got, err := rows(ctx, s.hot, "read inserted tasks", readInserted, scanInserted, in.Region, uuids(missing))
		if err != nil {
			return nil, err
		}
		for _, one := range got {
			stored[one.ID] = one
		}
		found, err := s.standingKeys(ctx, in.Region, tenants, keys)
		if err != nil {
			return nil, err
		}
		standing = found
	}
	answers := make([]scheduler.Inserted, len(in.Tasks))
	for i := range in.Tasks {
		t := &in.Tasks[i]
		one, here := stored[t.ID]
		key, keyed := standing[[2]string{t.Tenant, t.IdempotencyKey}]
		_, twin := twins[i]
		switch {
		case here && !twin:
		case t.IdempotencyKey != "" && keyed && key.ref.ID != t.ID:
			one = keyAnswer(t, &key)
		case t.State == scheduler.Running || twin: // a twin of one that was refused can be stored in a later batch
			one = scheduler.Inserted{Verdict: scheduler.InsertNotStarted}
		default:
			return nil, fmt.Errorf("insert %s: %w: neither stored nor refused", t.Ref, scheduler.ErrUnavailable)
		}
		one.ID = t.ID
		answers[i] = one
	}
	return answers, nil
}

func keyAnswer(t *scheduler.Task, key *standingKey) scheduler.Inserted {
	one := scheduler.Inserted{Verdict: scheduler.InsertDuplicate, Existing: key.ref, State: key.state}
	if !bytes.Equal(key.fingerprint, t.Fingerprint) {
		one.Verdict = scheduler.InsertKeyReused
	}
	return one
}

func (s *Store) standingKeys(ctx context.Context, region string, tenants, keys []string) (map[[2]string]standingKey, error) {
	standing := map[[2]string]standingKey{}
	if len(keys) == 0 {
		return standing, nil
	}
	got, err := rows(ctx, s.hot, "read idempotency keys", readKeys, func(row pgx.CollectableRow) (standingKey, error) {
		var k standingKey
		var raw [16]byte
		var state int16
		err := row.Scan(&k.tenant, &k.key, &k.fingerprint, &k.ref.Region, &raw, &state)
		k.ref.ID, k.state = raw, scheduler.State(state)
		return k, err
	}, region, tenants, keys)
	for _, k := range got {
		standing[[2]string{k.tenant, k.key}] = k
	}
	return standing, err
}
