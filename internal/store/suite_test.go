package store

import (
	"context"
	"testing"

	"github.com/errandhq/errand/internal/testdb"
	"github.com/errandhq/errand/scheduler"
	"github.com/errandhq/errand/scheduler/schedulertest"
)

func fixture(t *testing.T, isolation testdb.Isolation) schedulertest.Fixture {
	s := open(t, isolation)
	ctx := context.Background()
	return schedulertest.Fixture{
		Store: s,
		Task: func(t *testing.T, ref scheduler.Ref) scheduler.Task {
			t.Helper()
			for _, tenant := range []string{"acme", "globex", "initech"} {
				if task, err := s.Task(ctx, tenant, ref); err == nil {
					return task
				}
			}
			t.Fatalf("there is no %s", ref)
			return scheduler.Task{}
		},
		Ledger: func(t *testing.T) (accepted, ended int64) {
			t.Helper()
			err := s.general.QueryRow(ctx, `SELECT COALESCE(sum(accepted), 0)::bigint, COALESCE(sum(ended), 0)::bigint FROM ledger`).
				Scan(&accepted, &ended)
			if err != nil {
				t.Fatal(err)
			}
			report, err := s.Audit(ctx, "eu")
			if err != nil {
				t.Fatal(err)
			}
			for _, f := range report.Findings {
				if f.Reason == "unbalanced" {
					t.Error(f.Message)
				}
			}
			return accepted, ended
		},
		ForgetSession: func(t *testing.T, id scheduler.SessionID) {
			t.Helper()
			if _, err := s.general.Exec(ctx, `DELETE FROM sessions WHERE id = $1`, [16]byte(id)); err != nil {
				t.Fatal(err)
			}
		},
	}
}

func TestStoreReadCommitted(t *testing.T) {
	schedulertest.RunStoreSuite(t, func(t *testing.T) schedulertest.Fixture { return fixture(t, testdb.ReadCommitted) })
}

func TestStoreSerializable(t *testing.T) {
	schedulertest.RunStoreSuite(t, func(t *testing.T) schedulertest.Fixture { return fixture(t, testdb.Serializable) })
}
