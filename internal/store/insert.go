package store

import (
	"bytes"
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/errandhq/errand/internal/txsql"
	"github.com/errandhq/errand/scheduler"
)

// insertColumns holds a batch column by column.
type insertColumns struct {
	session                        scheduler.SessionID
	ids                            [][16]byte
	shards, tiers, states, classes []int16
	tolerances                     []int64
	runAts, startBys               []*time.Time
	workers, effects               []*[16]byte
	tenants, kinds                 []string
	contentTypes, traces, specs    []*string
	payloads                       [][]byte
	keys                           []string
	prints                         [][]byte
}

func (c *insertColumns) add(t *scheduler.Task) error {
	spec, err := optionalSpec(&t.Spec)
	if err != nil {
		return err
	}
	effect := optionalID(t.EffectKey)
	if t.EffectKey == t.ID {
		effect = nil
	}
	if t.State == scheduler.Running {
		c.session = t.Session
	}
	c.ids = append(c.ids, t.ID)
	c.shards = append(c.shards, int16(t.ID.Shard()))
	c.tiers = append(c.tiers, int16(t.Tier))
	c.states = append(c.states, int16(t.State))
	c.classes = append(c.classes, t.Class().Hash())
	c.tolerances = append(c.tolerances, t.Tolerance.Microseconds())
	c.runAts = append(c.runAts, optionalTime(t.RunAt))
	c.startBys = append(c.startBys, optionalTime(t.StartBy))
	c.workers = append(c.workers, optionalID(t.Worker))
	c.effects = append(c.effects, effect)
	c.tenants = append(c.tenants, t.Tenant)
	c.kinds = append(c.kinds, t.Kind)
	c.contentTypes = append(c.contentTypes, optionalText(t.ContentType))
	c.traces = append(c.traces, optionalText(t.TraceParent))
	c.specs = append(c.specs, spec)
	c.payloads = append(c.payloads, t.Payload)
	c.keys = append(c.keys, t.IdempotencyKey)
	c.prints = append(c.prints, t.Fingerprint)
	return nil
}

// grow makes room for n rows.
func (c *insertColumns) grow(n int) {
	c.ids, c.payloads, c.prints = make([][16]byte, 0, n), make([][]byte, 0, n), make([][]byte, 0, n)
	c.shards, c.tiers, c.states, c.classes = make([]int16, 0, n), make([]int16, 0, n), make([]int16, 0, n), make([]int16, 0, n)
	c.tolerances, c.runAts, c.startBys = make([]int64, 0, n), make([]*time.Time, 0, n), make([]*time.Time, 0, n)
	c.workers, c.effects = make([]*[16]byte, 0, n), make([]*[16]byte, 0, n)
	c.tenants, c.kinds, c.keys = make([]string, 0, n), make([]string, 0, n), make([]string, 0, n)
	c.contentTypes, c.traces, c.specs = make([]*string, 0, n), make([]*string, 0, n), make([]*string, 0, n)
}

func (c *insertColumns) args(region string, keyed bool) []any {
	args := []any{
		region, [16]byte(c.session), newBatchID(), c.ids, c.shards, c.tiers, c.states, c.classes, c.tolerances, c.runAts, c.startBys,
		c.workers, c.effects, c.tenants, c.kinds, c.contentTypes, c.traces, c.specs, c.payloads,
	}
	if keyed {
		args = append(args, c.keys, c.prints)
	}
	return args
}

// Insert stores new tasks and answers for each what stands.
func (s *Store) Insert(ctx context.Context, in scheduler.Insert) ([]scheduler.Inserted, error) {
	var plain, keyed insertColumns
	firsts := map[[2]string]int{} // the first task of the batch with a key
	twins := map[int]int{}        // a later one with the same key, and its first
	for i := range in.Tasks {
		t := &in.Tasks[i]
		columns := &plain
		if t.IdempotencyKey != "" {
			key := [2]string{t.Tenant, t.IdempotencyKey}
			if first, seen := firsts[key]; seen {
				twins[i] = first
				continue
			}
			firsts[key] = i
			columns = &keyed
		}
		if columns.ids == nil {
			columns.grow(len(in.Tasks) - i)
		}
		if err := columns.add(t); err != nil {
			return nil, err
		}
	}
	stored := make(map[scheduler.ID]scheduler.Inserted, len(in.Tasks))
	for _, part := range []struct {
		pool    *pgxpool.Pool
		sql     string
		columns *insertColumns
		keyed   bool
	}{
		{s.hot, txsql.InsertTasks, &plain, false},
		{s.general, txsql.InsertKeyedTasks, &keyed, true}, // joins two parts of itself: that wants the ordinary planner
	} {
		if len(part.columns.ids) == 0 {
			continue
		}
		got, err := rows(ctx, part.pool, "insert tasks", part.sql, scanInserted, part.columns.args(in.Region, part.keyed)...)
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
