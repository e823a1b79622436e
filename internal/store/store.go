// Package store keeps tasks in PostgreSQL or CockroachDB: one SQL text, two small dialect parts.
//
// Every write is guarded row by row and may be executed again: it answers what stands, by this execution or an earlier one.
// That is how an unknown outcome is settled; see run.go. A statement is a constant above its only caller; its header says what
// guards it and what it returns. What a write accepted or ended is counted into the ledger by the same statement (P2).
//
// Where to find what: insert.go, claim.go, end.go, attach.go, waiting.go are the writes of [scheduler] and lanes.go its reads;
// sessions.go the leases; tasks.go, tenants.go, kinds.go, limits.go and keys.go what the edge reads and writes,
// settings.go what schedulers read of it; audit.go the proof of P2 and P3.
package store

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// Config says where the store is. The zero values mean the defaults.
type Config struct {
	URL string
	// Hot is the number of connections for the statements of scheduling. Default 10.
	Hot int
	// Control is the number of connections kept for sessions and cancels, which busy batches must not starve. Default 4.
	Control int
	// General is the number of connections for lists, lookups and administration. Default 6.
	General int
	// Trace is told of every execution of a statement: its fixed name (sometimes followed by one more word: an id or a name),
	// how long it took from the connection's point of view, and its error. It must not wait. Nil is told nothing.
	Trace func(what string, took time.Duration, err error)
}

// Bounds of connections.
const (
	hotDefault, controlDefault, generalDefault = 10, 4, 6

	connectTimeout  = 3 * time.Second
	connLifetime    = 20 * time.Minute
	connLifeJitter  = 10 * time.Minute
	connIdle        = 5 * time.Minute
	lockTimeout     = "1s"
	statementLimit  = "5s"
	controlLimit    = "2s"
	generalLimit    = "30s"
	applicationName = "errand"
)

// Store is a connection to the shared store. It is safe for concurrent use.
type Store struct {
	dialect Dialect
	hot     *pgxpool.Pool // plans fixed to index scans
	control *pgxpool.Pool // the same, apart
	general *pgxpool.Pool // the ordinary planner
}

// Open connects. It fails when the store cannot be reached within a few seconds.
func Open(ctx context.Context, cfg Config) (*Store, error) {
	parsed, err := pgx.ParseConfig(cfg.URL)
	if err != nil {
		return nil, fmt.Errorf("the store's URL: %w", err)
	}
	parsed.ConnectTimeout = connectTimeout
	d, err := askDialect(ctx, parsed)
	if err != nil {
		return nil, err
	}
	s := &Store{dialect: d}
	pools := []struct {
		pool    **pgxpool.Pool
		size    int
		limit   string
		indexed bool
	}{
		{&s.hot, orDefault(cfg.Hot, hotDefault), statementLimit, true},
		{&s.control, orDefault(cfg.Control, controlDefault), controlLimit, true},
		{&s.general, orDefault(cfg.General, generalDefault), generalLimit, false},
	}
	for _, p := range pools {
		if *p.pool, err = openPool(ctx, cfg, d, p.size, p.limit, p.indexed); err != nil {
			s.Close()
			return nil, err
		}
	}
	return s, nil
}

func openPool(ctx context.Context, to Config, d Dialect, size int, limit string, indexed bool) (*pgxpool.Pool, error) {
	cfg, err := pgxpool.ParseConfig(to.URL)
	if err != nil {
		return nil, fmt.Errorf("the store's URL: %w", err)
	}
	cfg.MaxConns = int32(size)
	cfg.MaxConnLifetime, cfg.MaxConnLifetimeJitter, cfg.MaxConnIdleTime = connLifetime, connLifeJitter, connIdle
	cfg.ConnConfig.ConnectTimeout = connectTimeout
	if to.Trace != nil {
		cfg.ConnConfig.Tracer = tracer(to.Trace)
	}
	params := cfg.ConnConfig.RuntimeParams
	params["application_name"] = applicationName
	params["statement_timeout"] = limit
	params["lock_timeout"] = lockTimeout
	if d == PostgreSQL && indexed {
		// A fresh table has no statistics, and a generic plan that was made on it would scan for ever. With these settings
		// only plans by primary key or the intended index are left. They must be set at connect: a cached plan ignores a
		// later SET.
		params["plan_cache_mode"] = "force_generic_plan"
		for _, off := range []string{"enable_seqscan", "enable_hashjoin", "enable_mergejoin", "enable_memoize", "enable_bitmapscan", "jit"} {
			params[off] = "off"
		}
	}
	pool, err := pgxpool.NewWithConfig(ctx, cfg)
	if err != nil {
		return nil, fmt.Errorf("connect to the store: %w", err)
	}
	return pool, nil
}

func orDefault(n, standard int) int {
	if n <= 0 {
		return standard
	}
	return n
}

// Close ends all connections.
func (s *Store) Close() {
	for _, pool := range []*pgxpool.Pool{s.hot, s.control, s.general} {
		if pool != nil {
			pool.Close()
		}
	}
}

// Dialect tells which database is behind the store.
func (s *Store) Dialect() Dialect { return s.dialect }

// Pools returns the pools' states by name, for metrics.
func (s *Store) Pools() map[string]*pgxpool.Stat {
	return map[string]*pgxpool.Stat{"hot": s.hot.Stat(), "control": s.control.Stat(), "general": s.general.Stat()}
}

// newBatchID names one execution of a write in the ledger.
func newBatchID() [16]byte {
	var id [16]byte
	for i := 0; i < len(id); i += 8 {
		r := rand.Uint64()
		for j := range 8 {
			id[i+j] = byte(r >> (8 * j))
		}
	}
	return id
}
