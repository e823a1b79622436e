// Package txsql holds the SQL and the few facts that the store and the SDK's transactional calls must agree on: a task that is
// submitted inside a user's own transaction looks exactly like one that a scheduler stored.
package txsql

import (
	"encoding/binary"
	"hash/fnv"
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

// InsertTasks stores new tasks and counts them.
// Guard: the primary key; an eager start (state 3) only while its session is not ended, and before its start_by.
// Returns the rows that this execution stored.
const InsertTasks = `
WITH stored AS (
    INSERT INTO tasks (region, id, shard, tier, state, class, attempt, tolerance_us, created_at, due, ready_at, run_at, start_by,
        wake_at, started_at, session_id, worker_id, effect_key, tenant, kind, content_type, trace_parent, spec, payload)
    SELECT $1::crdb_internal_region, x.id, x.shard, x.tier, x.state, x.class, CASE WHEN x.state = 3 THEN 1 ELSE 0 END, x.tolerance_us,
        now(), COALESCE(x.run_at, now()) + x.tolerance_us * INTERVAL '1 microsecond',
        CASE WHEN x.state IN (2, 3) THEN now() END, x.run_at, x.start_by,
        CASE WHEN x.state = 1 THEN CASE WHEN x.start_by < x.run_at THEN x.start_by ELSE x.run_at END
             WHEN x.state = 2 THEN x.start_by END,
        CASE WHEN x.state = 3 THEN now() END, CASE WHEN x.state = 3 THEN $2::uuid END, x.worker_id, x.effect_key,
        x.tenant, x.kind, x.content_type, x.trace_parent, x.spec::jsonb, x.payload
    FROM unnest($4::uuid[], $5::smallint[], $6::smallint[], $7::smallint[], $8::smallint[], $9::bigint[], $10::timestamptz[],
        $11::timestamptz[], $12::uuid[], $13::uuid[], $14::text[], $15::text[], $16::text[], $17::text[], $18::text[], $19::bytea[])
        AS x (id, shard, tier, state, class, tolerance_us, run_at, start_by, worker_id, effect_key, tenant, kind, content_type,
              trace_parent, spec, payload)
    WHERE x.state <> 3 OR ((x.start_by IS NULL OR x.start_by > now()) AND EXISTS (
        SELECT 1 FROM sessions s WHERE s.region = $1::crdb_internal_region AND s.id = $2::uuid AND s.ended_at IS NULL))
    ON CONFLICT (region, id) DO NOTHING
    RETURNING id, state, tenant, tier, created_at
), counted AS (
    INSERT INTO ledger (region, batch, tenant, tier, accepted, ended, purged, at)
    SELECT $1::crdb_internal_region, $3::uuid, tenant, tier, count(*), 0, 0, now() FROM stored GROUP BY tenant, tier
)
SELECT id, state, created_at FROM stored`

// InsertKeyedTasks is InsertTasks for tasks with an idempotency key: the key and the task are stored together or not at all.
// Guard: as above, and the key's primary key.
const InsertKeyedTasks = `
WITH input AS (
    SELECT * FROM unnest($4::uuid[], $5::smallint[], $6::smallint[], $7::smallint[], $8::smallint[], $9::bigint[], $10::timestamptz[],
        $11::timestamptz[], $12::uuid[], $13::uuid[], $14::text[], $15::text[], $16::text[], $17::text[], $18::text[], $19::bytea[],
        $20::text[], $21::bytea[])
        AS x (id, shard, tier, state, class, tolerance_us, run_at, start_by, worker_id, effect_key, tenant, kind, content_type,
              trace_parent, spec, payload, key, fingerprint)
    WHERE x.state <> 3 OR ((x.start_by IS NULL OR x.start_by > now()) AND EXISTS (
        SELECT 1 FROM sessions s WHERE s.region = $1::crdb_internal_region AND s.id = $2::uuid AND s.ended_at IS NULL))
), keyed AS (
    INSERT INTO idempotency_keys (region, tenant, key, fingerprint, task_region, task_id, created_at)
    SELECT $1::crdb_internal_region, x.tenant, x.key, x.fingerprint, $1, x.id, now() FROM input x
    ON CONFLICT (region, tenant, key) DO NOTHING
    RETURNING task_id
), stored AS (
    INSERT INTO tasks (region, id, shard, tier, state, class, attempt, tolerance_us, created_at, due, ready_at, run_at, start_by,
        wake_at, started_at, session_id, worker_id, effect_key, tenant, kind, content_type, trace_parent, spec, payload,
        idempotency_key)
    SELECT $1::crdb_internal_region, x.id, x.shard, x.tier, x.state, x.class, CASE WHEN x.state = 3 THEN 1 ELSE 0 END, x.tolerance_us,
        now(), COALESCE(x.run_at, now()) + x.tolerance_us * INTERVAL '1 microsecond',
        CASE WHEN x.state IN (2, 3) THEN now() END, x.run_at, x.start_by,
        CASE WHEN x.state = 1 THEN CASE WHEN x.start_by < x.run_at THEN x.start_by ELSE x.run_at END
             WHEN x.state = 2 THEN x.start_by END,
        CASE WHEN x.state = 3 THEN now() END, CASE WHEN x.state = 3 THEN $2::uuid END, x.worker_id, x.effect_key,
        x.tenant, x.kind, x.content_type, x.trace_parent, x.spec::jsonb, x.payload, x.key
    FROM input x JOIN keyed k ON k.task_id = x.id
    ON CONFLICT (region, id) DO NOTHING
    RETURNING id, state, tenant, tier, created_at
), counted AS (
    INSERT INTO ledger (region, batch, tenant, tier, accepted, ended, purged, at)
    SELECT $1::crdb_internal_region, $3::uuid, tenant, tier, count(*), 0, 0, now() FROM stored GROUP BY tenant, tier
)
SELECT id, state, created_at FROM stored`
