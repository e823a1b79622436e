package main

import (
	"context"
	"crypto/rand"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"golang.org/x/sync/errgroup"
)

// What a scheduler would do if it had nothing to decide: batches of tasks are inserted, claimed and completed on the table and the
// indexes that `errand migrate` makes, one connection for each step, so that the three go on at the same time.
const (
	rawInsert = `
INSERT INTO tasks (region, id, shard, tier, state, class, tolerance_us, created_at, due, ready_at, tenant, kind, payload)
SELECT $1::crdb_internal_region, x.id, x.shard, 2, 2, 7, 60000000, now(), now() + INTERVAL '1 minute', now(), 'raw', 'noop', x.payload
FROM unnest($2::uuid[], $3::smallint[], $4::bytea[]) AS x (id, shard, payload)`
	rawClaim = `
UPDATE tasks t SET state = 3, attempt = t.attempt + 1, session_id = $3::uuid, worker_id = $3::uuid, started_at = now()
FROM (SELECT $1::crdb_internal_region AS region, u.* FROM unnest($2::uuid[]) AS u (id) OFFSET 0) x
WHERE t.region = x.region AND t.id = x.id AND t.state = $4::smallint
RETURNING t.id, t.payload`
	rawComplete = `
UPDATE tasks t SET state = 5, ended_at = now()
FROM (SELECT $1::crdb_internal_region AS region, u.* FROM unnest($2::uuid[]) AS u (id) OFFSET 0) x
WHERE t.region = x.region AND t.id = x.id AND t.state = $3::smallint AND t.session_id = $4::uuid
RETURNING t.id`
	rawRegion = "local"
)

type rawBatch [][16]byte

// runRawSQL measures the three statements alone.
func runRawSQL(ctx context.Context, b *bench) (measured, error) {
	name := fmt.Sprintf("raw_%d", b.round)
	if err := b.migrated(ctx, name); err != nil {
		return measured{}, err
	}
	var conns [3]*pgx.Conn
	for i := range conns {
		conn, err := indexedConn(ctx, b.postgres.DSN(name))
		if err != nil {
			return measured{}, err
		}
		defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
		conns[i] = conn
	}
	for range warmUps {
		if err := rawPipeline(ctx, conns, b.Bytes, []int{1}, 1); err != nil {
			return measured{}, err
		}
	}
	sizes := make([]int, b.Tasks/b.Batch)
	for i := range sizes {
		sizes[i] = b.Batch
	}
	meter, err := startMeter(ctx, b.cluster, map[string]int{"submitter": 0})
	if err != nil {
		return measured{}, err
	}
	// Three batches are in the statements; the others of those that a closed loop would have outstanding wait between them.
	waiting := max((outstandingOf(b.Slots)/b.Batch-len(conns))/2, 1)
	if err := rawPipeline(ctx, conns, b.Bytes, sizes, waiting); err != nil {
		return measured{}, err
	}
	got, err := meter.stop(ctx, len(sizes)*b.Batch, 0)
	if err != nil {
		return measured{}, err
	}
	if err := b.ended(ctx, name, len(sizes)*b.Batch+warmUps); err != nil {
		return measured{}, err
	}
	return got, b.sql(ctx, "postgres", "DROP DATABASE "+name+" WITH (FORCE)")
}

// indexedConn is a connection with the planner's settings that Errand's own hot statements run with.
func indexedConn(ctx context.Context, dsn string) (*pgx.Conn, error) {
	cfg, err := pgx.ParseConfig(dsn)
	if err != nil {
		return nil, err
	}
	cfg.RuntimeParams["plan_cache_mode"] = "force_generic_plan"
	for _, off := range []string{"enable_seqscan", "enable_hashjoin", "enable_mergejoin", "enable_memoize", "enable_bitmapscan", "jit"} {
		cfg.RuntimeParams[off] = "off"
	}
	return pgx.ConnectConfig(ctx, cfg)
}

func rawPipeline(ctx context.Context, conns [3]*pgx.Conn, bytes int, sizes []int, waiting int) error {
	group, ctx := errgroup.WithContext(ctx)
	inserted, claimed := make(chan rawBatch, waiting), make(chan rawBatch, waiting)
	session := newRawID(0)
	group.Go(func() error {
		defer close(inserted)
		for n, size := range sizes {
			batch, err := rawInsertBatch(ctx, conns[0], n, size, bytes)
			if err != nil {
				return err
			}
			if !pass(ctx, inserted, batch) {
				return ctx.Err()
			}
		}
		return nil
	})
	group.Go(func() error {
		defer close(claimed)
		for batch := range inserted {
			if err := rawStep(ctx, conns[1], len(batch), rawClaim, rawRegion, [][16]byte(batch), session, 2); err != nil {
				return err
			}
			if !pass(ctx, claimed, batch) {
				return ctx.Err()
			}
		}
		return nil
	})
	group.Go(func() error {
		for batch := range claimed {
			if err := rawStep(ctx, conns[2], len(batch), rawComplete, rawRegion, [][16]byte(batch), 3, session); err != nil {
				return err
			}
		}
		return nil
	})
	return group.Wait()
}

func pass(ctx context.Context, to chan<- rawBatch, batch rawBatch) bool {
	select {
	case to <- batch:
		return true
	case <-ctx.Done():
		return false
	}
}

func rawInsertBatch(ctx context.Context, conn *pgx.Conn, n, size, bytes int) (rawBatch, error) {
	const shards = 16
	batch, lanes, payloads := make(rawBatch, size), make([]int16, size), make([][]byte, size)
	for i := range batch {
		lanes[i] = int16(n % shards) // a scheduler puts a batch into one lane
		batch[i], payloads[i] = newRawID(byte(lanes[i])), make([]byte, bytes)
	}
	_, err := conn.Exec(ctx, rawInsert, rawRegion, [][16]byte(batch), lanes, payloads)
	return batch, err
}

// rawStep runs a statement that returns a row for each task.
func rawStep(ctx context.Context, conn *pgx.Conn, want int, sql string, args ...any) error {
	rows, err := conn.Query(ctx, sql, args...)
	if err != nil {
		return err
	}
	got := 0
	for rows.Next() {
		got++
	}
	if err := rows.Err(); err != nil {
		return err
	}
	if got != want {
		return fmt.Errorf("%d of %d rows were changed", got, want)
	}
	return nil
}

// newRawID is an id as Errand makes them: lane, milliseconds, chance.
func newRawID(lane byte) [16]byte {
	var id [16]byte
	_, _ = rand.Read(id[7:]) // never fails
	id[0] = lane
	now := time.Now().UnixMilli()
	for i := range 6 {
		id[1+i] = byte(now >> (40 - 8*i))
	}
	return id
}
