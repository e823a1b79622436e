// Package txsql holds the SQL and the few facts that the store and the SDK's transactional calls must agree on: a task that is
// submitted inside a user's own transaction looks exactly like one that a scheduler stored.
package txsql

import (
	"encoding/binary"
	"hash/fnv"
	"time"
)

// ShardsPerRegion is the number of lanes over which a region's tasks are spread; the first byte of an id is its lane.
const ShardsPerRegion = 16

// ClassOf hashes the parts that decide where a task may start: its kind, then the regions that it is restricted to, sorted.
func ClassOf(kind string, regions ...string) uint64 {
	h := fnv.New64a()
	for i := -1; i < len(regions); i++ {
		part := kind
		if i >= 0 {
			part = regions[i]
		}
		var size [4]byte // with its length, no two lists of parts look alike
		binary.LittleEndian.PutUint32(size[:], uint32(len(part)))
		_, _ = h.Write(size[:]) // a hash never fails
		_, _ = h.Write([]byte(part))
	}
	return h.Sum64()
}

// The input of the inserts: a row per task, and what many tasks have in common once, in shapes that rows point at by number from 1.
// A task with a worker starts in this very statement. $1 is the region, $2 the session, $3 the batch.
const input = `
    SELECT u.*, CASE WHEN u.worker_id IS NULL THEN ($11::smallint[])[u.shape] ELSE 3 END AS state,
        ($10::smallint[])[u.shape] AS tier, ($12::smallint[])[u.shape] AS class, ($13::bigint[])[u.shape] AS tolerance_us,
        ($14::timestamptz[])[u.shape] AS run_at, ($15::timestamptz[])[u.shape] AS start_by, ($16::uuid[])[u.shape] AS effect_key,
        ($17::text[])[u.shape] AS tenant, ($18::text[])[u.shape] AS kind, ($19::text[])[u.shape] AS content_type,
        ($20::text[])[u.shape] AS spec, ($21::smallint[])[u.shape] AS links`

// mayStart is what an eager start needs: it is not too late, and its session not ended.
const mayStart = `
    WHERE u.worker_id IS NULL OR ((($15::timestamptz[])[u.shape] IS NULL OR ($15::timestamptz[])[u.shape] > now()) AND EXISTS (
        SELECT 1 FROM sessions s WHERE s.region = $1::crdb_internal_region AND s.id = $2::uuid AND s.ended_at IS NULL))`

const taskColumns = `region, id, shard, tier, state, class, attempt, tolerance_us, created_at, due, ready_at, run_at, start_by,
        wake_at, started_at, session_id, worker_id, effect_key, tenant, kind, content_type, trace_parent, spec, parent, payload`

const taskValues = `$1::crdb_internal_region, x.id, x.shard, x.tier, x.state, x.class, CASE WHEN x.state = 3 THEN 1 ELSE 0 END, x.tolerance_us,
        now(), COALESCE(x.run_at, now()) + x.tolerance_us * INTERVAL '1 microsecond',
        CASE WHEN x.state IN (2, 3) THEN now() END, x.run_at, x.start_by,
        CASE WHEN x.state = 1 THEN CASE WHEN x.start_by < x.run_at THEN x.start_by ELSE x.run_at END
             WHEN x.state = 4 AND x.links >= 2 THEN now() WHEN x.state IN (2, 4) THEN x.start_by END,
        CASE WHEN x.state = 3 THEN now() END, CASE WHEN x.state = 3 THEN $2::uuid END, x.worker_id, x.effect_key,
        x.tenant, x.kind, x.content_type, x.trace_parent, x.spec::jsonb, x.links IN (1, 3), x.payload`

const counted = `
    INSERT INTO ledger (region, batch, tenant, tier, accepted, ended, purged, at)
    SELECT $1::crdb_internal_region, $3::uuid, tenant, tier, count(*), 0, 0, now() FROM stored GROUP BY tenant, tier
`

const startedTasks = `
    INSERT INTO starts (region, session_id, batch, ids, at)
    SELECT $1::crdb_internal_region, $2::uuid, $3::uuid, array_agg(id), now() FROM stored WHERE state = 3 HAVING count(*) > 0
`

// The parts of the inserts that their arguments differ in.
const (
	plainInput = input + `
    FROM unnest($4::uuid[], $5::smallint[], $6::smallint[], $7::uuid[], $8::text[], $9::bytea[])
        AS u (id, shard, shape, worker_id, trace_parent, payload)` + mayStart
	uniqueInput = input + `
    FROM unnest($4::uuid[], $5::smallint[], $6::smallint[], $7::uuid[], $8::text[], $9::bytea[], $22::text[])
        AS u (id, shard, shape, worker_id, trace_parent, payload, unique_key)` + mayStart
	keyedInput = input + `
    FROM unnest($4::uuid[], $5::smallint[], $6::smallint[], $7::uuid[], $8::text[], $9::bytea[], $22::text[], $23::bytea[])
        AS u (id, shard, shape, worker_id, trace_parent, payload, key, fingerprint)` + mayStart
	keyedUniqueInput = input + `
    FROM unnest($4::uuid[], $5::smallint[], $6::smallint[], $7::uuid[], $8::text[], $9::bytea[], $22::text[], $23::bytea[], $24::text[])
        AS u (id, shard, shape, worker_id, trace_parent, payload, key, fingerprint, unique_key)` + mayStart
)

// noted counts what was stored and notes which tasks have started.
const noted = `
    RETURNING id, state, tenant, tier, created_at
), counted AS (` + counted + `), started AS (` + startedTasks + `)
SELECT id, state, created_at FROM stored`

// KeyRegion is where the idempotency keys of a tenant n are kept, whatever region $1 a task is stored in: so a key stands once for all
// regions.
const KeyRegion = `COALESCE(n.home_region::crdb_internal_region, $1::crdb_internal_region)`

const keyed = `), keyed AS (
    INSERT INTO idempotency_keys (region, tenant, key, fingerprint, task_region, task_id, created_at)
    SELECT ` + KeyRegion + `, x.tenant, x.key, x.fingerprint, $1, x.id, now() FROM input x LEFT JOIN tenants n ON n.name = x.tenant
    ON CONFLICT (region, tenant, key) DO NOTHING
    RETURNING task_id
)`

// InsertTasks stores new tasks, counts them, and notes which have started.
// Guard: the primary key; an eager start (state 3) only while its session is not ended, and before its start_by.
// Returns the rows that this execution stored.
const InsertTasks = `
WITH stored AS (
    INSERT INTO tasks (` + taskColumns + `)
    SELECT ` + taskValues + `
    FROM (` + plainInput + `
    ) x
    ON CONFLICT (region, id) DO NOTHING` + noted

// InsertKeyedTasks is InsertTasks for tasks with an idempotency key: the key and the task are stored together or not at all.
// Guard: as above, and the key's primary key.
const InsertKeyedTasks = `
WITH input AS (` + keyedInput + `
` + keyed + `, stored AS (
    INSERT INTO tasks (` + taskColumns + `, idempotency_key)
    SELECT ` + taskValues + `, x.key
    FROM input x JOIN keyed k ON k.task_id = x.id
    ON CONFLICT (region, id) DO NOTHING` + noted

// InsertUniqueTasks is InsertTasks for tasks with a unique key.
// Guard: as above, and that no open task of the tenant holds the key.
const InsertUniqueTasks = `
WITH stored AS (
    INSERT INTO tasks (` + taskColumns + `, unique_key)
    SELECT ` + taskValues + `, x.unique_key
    FROM (` + uniqueInput + `
    ) x
    ON CONFLICT DO NOTHING` + noted

// InsertKeyedUniqueTasks is InsertTasks for tasks with both keys. A statement cannot take back an idempotency key that it has stored
// for a task whose unique key turns out to be held: DropUnusedKeys must follow in the same transaction.
// Guard: as above.
const InsertKeyedUniqueTasks = `
WITH input AS (` + keyedUniqueInput + `
` + keyed + `, stored AS (
    INSERT INTO tasks (` + taskColumns + `, idempotency_key, unique_key)
    SELECT ` + taskValues + `, x.key, x.unique_key
    FROM input x JOIN keyed k ON k.task_id = x.id
    ON CONFLICT DO NOTHING` + noted

// DropUnusedKeys deletes the idempotency keys ($2 tenants, $3 keys) that name one of the tasks $4, which is not there.
const DropUnusedKeys = `
DELETE FROM idempotency_keys k
USING (
    SELECT $1::crdb_internal_region AS region, ` + KeyRegion + ` AS home, u.*
    FROM unnest($2::text[], $3::text[], $4::uuid[]) AS u (tenant, key, id) LEFT JOIN tenants n ON n.name = u.tenant OFFSET 0
) x
WHERE k.region = x.home AND k.tenant = x.tenant AND k.key = x.key AND k.task_id = x.id
    AND NOT EXISTS (SELECT 1 FROM tasks t WHERE t.region = x.region AND t.id = x.id)`

// ReadHolders tells which open tasks hold unique keys. A unique key has one scope for all regions, so all are asked; tenant and key
// are one column, so that only its own index fits.
const ReadHolders = `
SELECT x.tenant, x.unique_key, t.region::text, t.id, t.state, ''::bytea
FROM (SELECT $1::crdb_internal_region AS region, u.* FROM unnest($2::text[], $3::text[]) AS u (tenant, unique_key) OFFSET 0) x
JOIN tasks t ON t.open_key = x.tenant || '/' || x.unique_key
WHERE t.open_key IS NOT NULL`

// Batch is what the inserts are told, column by column.
type Batch struct {
	// One entry per task.
	IDs      [][16]byte
	Shards   []int16
	Shape    []int16     // the number of its shape, from 1
	Workers  []*[16]byte // nil unless it starts at once
	Traces   []*string
	Payloads [][]byte
	Keys     []string // idempotency keys and fingerprints, for the keyed inserts only
	Prints   [][]byte
	Uniques  []string // unique keys, for the unique inserts only

	shapes  []Shape
	numbers map[Shape]int16
}

// Shape is what many tasks of a batch have in common. Nullable parts are empty for NULL.
type Shape struct {
	Tier, State, Class int16 // the state of a task without a worker
	ToleranceUS        int64
	RunAt, StartBy     time.Time
	EffectKey          [16]byte
	Tenant, Kind       string
	ContentType, Spec  string
	Links              int16 // [Parent], [LookAgain], both or none
}

// What a new task is to others, as bits.
const (
	Parent    = 1 // has children
	LookAgain = 2 // blocked, and perhaps not for long: its wake time is now
)

// NewBatch returns a batch with room for n tasks.
func NewBatch(n int) *Batch {
	return &Batch{
		IDs: make([][16]byte, 0, n), Shards: make([]int16, 0, n), Shape: make([]int16, 0, n), Workers: make([]*[16]byte, 0, n),
		Traces: make([]*string, 0, n), Payloads: make([][]byte, 0, n), numbers: map[Shape]int16{},
	}
}

// ShapeOf returns the number of a shape.
func (b *Batch) ShapeOf(s Shape) int16 {
	if n := len(b.shapes); n > 0 && b.shapes[n-1] == s { // most batches have one
		return int16(n)
	}
	number, known := b.numbers[s]
	if !known {
		b.shapes = append(b.shapes, s)
		number = int16(len(b.shapes))
		b.numbers[s] = number
	}
	return number
}

// TenantOf is the tenant of the i-th task.
func (b *Batch) TenantOf(i int) string { return b.shapes[b.Shape[i]-1].Tenant }

// Insert is the statement that stores the batch.
func (b *Batch) Insert() string {
	switch {
	case len(b.Keys) > 0 && len(b.Uniques) > 0:
		return InsertKeyedUniqueTasks
	case len(b.Keys) > 0:
		return InsertKeyedTasks
	case len(b.Uniques) > 0:
		return InsertUniqueTasks
	default:
		return InsertTasks
	}
}

// Args are its arguments.
func (b *Batch) Args(region string, session, batch [16]byte) []any {
	n := len(b.shapes)
	tiers, states, classes, tolerances := make([]int16, n), make([]int16, n), make([]int16, n), make([]int64, n)
	runAts, startBys, effects := make([]*time.Time, n), make([]*time.Time, n), make([]*[16]byte, n)
	tenants, kinds, contentTypes, specs := make([]string, n), make([]string, n), make([]*string, n), make([]*string, n)
	links := make([]int16, n)
	for i := range b.shapes {
		s := &b.shapes[i]
		links[i] = s.Links
		tiers[i], states[i], classes[i], tolerances[i] = s.Tier, s.State, s.Class, s.ToleranceUS
		runAts[i], startBys[i], effects[i] = some(&s.RunAt), some(&s.StartBy), some(&s.EffectKey)
		tenants[i], kinds[i], contentTypes[i], specs[i] = s.Tenant, s.Kind, some(&s.ContentType), some(&s.Spec)
	}
	args := []any{
		region, session, batch, b.IDs, b.Shards, b.Shape, b.Workers, b.Traces, b.Payloads,
		tiers, states, classes, tolerances, runAts, startBys, effects, tenants, kinds, contentTypes, specs, links,
	}
	if len(b.Keys) > 0 {
		args = append(args, b.Keys, b.Prints)
	}
	if len(b.Uniques) > 0 {
		args = append(args, b.Uniques)
	}
	return args
}

// some is nil for a zero value.
func some[T comparable](v *T) *T {
	if *v == *new(T) {
		return nil
	}
	return v
}
