package store

import (
	"testing"

	"github.com/errandhq/errand/internal/testdb"
)

// The end of a running task touches no index; only one with a unique key pays for it.
func TestAnEndTouchesNoIndex(t *testing.T) {
	s := open(t, testdb.ReadCommitted)
	for key, want := range map[string]int64{"": 1, "u": 0} {
		tx, err := s.general.Begin(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		updates := func() (hot int64) { // of this connection so far
			err := tx.QueryRow(t.Context(), `SELECT n_tup_hot_upd FROM pg_stat_xact_user_tables WHERE relname = 'tasks'`).Scan(&hot)
			if err != nil {
				t.Fatal(err)
			}
			return hot
		}
		before := updates()
		if _, err := tx.Exec(t.Context(), `
			INSERT INTO tasks (region, id, shard, tier, state, class, attempt, tolerance_us, created_at, due, ready_at, started_at, session_id,
			    worker_id, tenant, kind, unique_key)
			VALUES ('eu', gen_random_uuid(), 1, 2, 3, 7, 1, 1, now(), now(), now(), now(), gen_random_uuid(), gen_random_uuid(), 'acme', 'k',
			    NULLIF($1::text, ''))`, key); err != nil {
			t.Fatal(err)
		}
		if _, err := tx.Exec(t.Context(), `UPDATE tasks SET state = 5, ended_at = now()`); err != nil {
			t.Fatal(err)
		}
		if hot := updates() - before; hot != want {
			t.Errorf("with the unique key %q: %d updates beside the indexes, want %d", key, hot, want)
		}
		if err := tx.Rollback(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
}
