package store

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/errandhq/errand/internal/testdb"
	"github.com/errandhq/errand/scheduler"
)

// aged moves everything that is stored into the past.
func aged(t *testing.T, s *Store, by time.Duration) {
	t.Helper()
	for _, sql := range []string{
		`UPDATE tasks SET ended_at = ended_at - $1::bigint * INTERVAL '1 microsecond'`,
		`UPDATE ledger SET at = at - $1::bigint * INTERVAL '1 microsecond'`,
	} {
		if _, err := s.general.Exec(context.Background(), sql, by.Microseconds()); err != nil {
			t.Fatal(err)
		}
	}
}

// P2: what is purged is counted, what is open is never purged, and folding the ledger changes nothing that it says.
func TestSweepKeepsTheBalance(t *testing.T) {
	s := open(t, testdb.ReadCommitted)
	ctx := context.Background()
	session, worker := scheduler.SessionID{1}, scheduler.WorkerID{2}
	if _, err := s.OpenSession(ctx, scheduler.Session{Region: "eu", ID: session}, time.Minute); err != nil {
		t.Fatal(err)
	}
	old := time.Now().Add(-RetentionMin - time.Hour)
	one := func(n byte, at time.Time, state scheduler.State) scheduler.Task {
		k := readyTask(n)
		k.ID = scheduler.NewID(1, at, [scheduler.RandomBytes]byte{n})
		k.EffectKey = k.ID
		if k.State = state; state == scheduler.Running {
			k.Attempt, k.Session, k.Worker = 1, session, worker
		}
		return k
	}
	keyed := one(1, old, scheduler.Running)
	keyed.IdempotencyKey, keyed.Fingerprint = "k", []byte("f")
	failed, open, young := one(2, old, scheduler.Running), one(3, old, scheduler.Ready), one(4, time.Now(), scheduler.Running)
	if _, err := s.Insert(ctx, scheduler.Insert{Region: "eu", Tasks: []scheduler.Task{keyed, failed, open, young}}); err != nil {
		t.Fatal(err)
	}
	end := func(k scheduler.Task, to scheduler.State) {
		t.Helper()
		_, err := s.End(ctx, scheduler.EndBatch{Region: "eu", Endings: []scheduler.Ending{
			{Token: k.Token(), To: to, Counted: to == scheduler.Failed, Failure: &scheduler.Failure{Reason: "r"}},
		}})
		if err != nil {
			t.Fatal(err)
		}
	}
	end(keyed, scheduler.Succeeded)
	end(failed, scheduler.Failed)
	aged(t, s, RetentionMin+time.Minute)
	end(young, scheduler.Succeeded)

	if n, err := s.Sweep(ctx, "eu", 1, 0); n != 2 || err != nil {
		t.Fatalf("purged %d, %v: want the two that ended long ago", n, err)
	}
	for _, k := range []scheduler.Task{keyed, failed} {
		if _, err := s.Task(ctx, "acme", k.Ref); !errors.Is(err, ErrNotFound) {
			t.Errorf("%s: %v, want ErrNotFound", k.Ref, err)
		}
	}
	for _, k := range []scheduler.Task{open, young} {
		if _, err := s.Task(ctx, "acme", k.Ref); err != nil {
			t.Errorf("%s: %v, want it kept", k.Ref, err)
		}
	}
	if history, err := s.TaskAttempts(ctx, failed.Ref, 10); len(history) != 0 || err != nil {
		t.Errorf("history of a purged task: %+v, %v", history, err)
	}
	again := keyed
	again.ID = scheduler.NewID(1, time.Now(), [scheduler.RandomBytes]byte{9})
	if a, err := s.Insert(ctx, scheduler.Insert{Region: "eu", Tasks: []scheduler.Task{again}}); err != nil || a[0].Verdict != scheduler.InsertStored {
		t.Errorf("the key of a purged task: %+v, %v: want it free again", a, err)
	}

	balance := func() Balance {
		t.Helper()
		report, err := s.Audit(ctx, "eu")
		if err != nil || len(report.Balances) != 1 {
			t.Fatalf("%+v, %v", report, err)
		}
		return report.Balances[0]
	}
	before := balance()
	if before != (Balance{Tenant: "acme", Tier: scheduler.Standard, Accepted: 5, Ended: 3, Open: 2}) {
		t.Errorf("balance %+v", before)
	}
	aged(t, s, 2*foldAfter)
	if _, err := s.general.Exec(ctx, `INSERT INTO ledger (region, batch, tenant, tier, accepted, ended, purged, at)
		SELECT 'eu', gen_random_uuid(), 'acme', 2, 1, 1, 0, now() - interval '1 hour' FROM generate_series(1, $1::bigint)`, 2*foldPage); err != nil {
		t.Fatal(err)
	}
	before.Accepted, before.Ended = before.Accepted+2*foldPage, before.Ended+2*foldPage
	if n, err := s.FoldLedger(ctx, "eu"); n < 2*foldPage+3 || err != nil {
		t.Errorf("folded %d rows away, %v", n, err)
	}
	if after := balance(); after != before {
		t.Errorf("folding changed the balance from %+v to %+v", before, after)
	}
	var rows, purged int64
	if err := s.general.QueryRow(ctx, `SELECT count(*), sum(purged)::bigint FROM ledger`).Scan(&rows, &purged); err != nil || rows > 3 || purged != 2 {
		t.Errorf("%d rows, %d purged, %v: want a row per page and 2", rows, purged, err)
	}
}

// What is open is told by tenant and tier, the most first, and no more than is asked for.
func TestCountOpen(t *testing.T) {
	s := tenantsStore(t)
	for _, row := range []struct {
		region, tenant  string
		tier            scheduler.Tier
		accepted, ended int64
	}{
		{"eu", "acme", scheduler.Standard, 5, 2},
		{"eu", "acme", scheduler.Standard, 0, 1},
		{"eu", "acme", scheduler.Urgent, 4, 4},
		{"eu", "globex", scheduler.Deferrable, 9, 2},
		{"eu", "initech", scheduler.Standard, 1, 0},
		{"us", "acme", scheduler.Standard, 100, 0},
	} {
		s.count(t, row.region, row.tenant, row.tier, row.accepted, row.ended)
	}
	got, err := s.CountOpen(t.Context(), scheduler.OpenQuery{Region: "eu", Limit: 2})
	want := []scheduler.Open{{Tenant: "globex", Tier: scheduler.Deferrable, Tasks: 7}, {Tenant: "acme", Tier: scheduler.Standard, Tasks: 2}}
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("%v, %v; want %v", got, err, want)
	}
}
