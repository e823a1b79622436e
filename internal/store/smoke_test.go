package store

import (
	"context"
	"testing"
	"time"

	"github.com/errandhq/errand/internal/testdb"
	"github.com/errandhq/errand/scheduler"
)

func TestSmoke(t *testing.T) {
	ctx := context.Background()
	s := open(t, testdb.ReadCommitted)
	ses := scheduler.SessionID{1}
	r, err := s.OpenSession(ctx, scheduler.Session{Region: "eu", ID: ses, Address: "x"}, 6*time.Second)
	if err != nil || !r.Alive || len(r.Sessions) != 1 {
		t.Fatal(r, err)
	}
	mk := func(b byte) scheduler.Task {
		id := scheduler.NewID(b, time.Now(), [9]byte{b})
		return scheduler.Task{Ref: scheduler.Ref{Region: "eu", ID: id}, Tenant: "acme", Kind: "k", Tier: 2, State: 2, Tolerance: time.Minute, Payload: []byte("hi"), EffectKey: id}
	}
	a, b, c := mk(1), mk(2), mk(3)
	b.State, b.Session, b.Worker = 3, ses, scheduler.WorkerID{9}
	c.IdempotencyKey, c.Fingerprint = "k1", []byte("f")
	d := mk(4)
	d.IdempotencyKey, d.Fingerprint = "k1", []byte("f")
	for range 2 {
		ans, err := s.Insert(ctx, scheduler.Insert{Region: "eu", Tasks: []scheduler.Task{a, b, c, d}})
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("%+v", ans)
	}
	for range 2 {
		cl, err := s.Claim(ctx, scheduler.ClaimBatch{Region: "eu", Session: ses, Claims: []scheduler.Claim{{ID: a.ID, From: 2, Seen: 0, Worker: scheduler.WorkerID{9}}}})
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("%+v", cl)
	}
	w := scheduler.WorkerID{9}
	for range 2 {
		en, err := s.End(ctx, scheduler.EndBatch{Region: "eu", Endings: []scheduler.Ending{
			{Token: scheduler.Token{ID: a.ID, Attempt: 1, Worker: w}, To: 5, Result: []byte("ok")},
			{Token: scheduler.Token{ID: b.ID, Attempt: 1, Worker: w}, To: 1, Delay: time.Second, Counted: true, Failure: &scheduler.Failure{Reason: "x"}},
		}})
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("%+v", en)
	}
	if got, err := s.Discover(ctx, scheduler.DiscoverQuery{Region: "eu", Shard: 3, Limit: 10}); err != nil || len(got) != 1 {
		t.Fatal(got, err)
	} else if rf, err := s.Refill(ctx, scheduler.RefillQuery{Region: "eu", Shards: []uint8{1, 2, 3}, Keys: got, PerShard: 5}); err != nil || len(rf) != 1 {
		t.Fatal(rf, err)
	}
	if tm, err := s.Timed(ctx, scheduler.TimedQuery{Region: "eu", Shards: []uint8{1, 2, 3}, Horizon: 5 * time.Second, Limit: 5}); err != nil || len(tm) != 1 {
		t.Fatal(tm, err)
	}
	if _, err := s.Running(ctx, scheduler.RunningQuery{Region: "eu", Session: ses, Limit: 5}); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Orphans(ctx, scheduler.OrphanQuery{Region: "eu", Shards: []uint8{1}, Grace: time.Second, Limit: 5}); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Attach(ctx, scheduler.AttachBatch{Region: "eu", Session: ses, Tokens: []scheduler.Token{{ID: a.ID, Attempt: 1, Worker: w}}}); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Wake(ctx, scheduler.WakeBatch{Region: "eu", Rows: []scheduler.Seen{{ID: b.ID, Attempt: 1}}}); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Expire(ctx, scheduler.ExpireBatch{Region: "eu", IDs: []scheduler.ID{b.ID}}); err != nil {
		t.Fatal(err)
	}
	if ca, err := s.Cancel(ctx, scheduler.CancelBatch{Region: "eu", Tenant: "acme", IDs: []scheduler.ID{b.ID, a.ID}}); err != nil {
		t.Fatal(err)
	} else {
		t.Logf("%+v", ca)
	}
	if _, err := s.EndExpired(ctx, "eu", ses); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Payloads(ctx, "eu", []scheduler.ID{a.ID}); err != nil {
		t.Fatal(err)
	}
	if tk, err := s.Task(ctx, "acme", b.Ref); err != nil {
		t.Fatal(err)
	} else {
		t.Logf("%+v", tk)
	}
	if p, err := s.ListTasks(ctx, ListQuery{Region: "eu", Tenant: "acme", Limit: 2}); err != nil || len(p.Tasks) != 2 || p.Next == nil {
		t.Fatal(p, err)
	}
	if _, err := s.TaskAttempts(ctx, b.Ref, 5); err != nil {
		t.Fatal(err)
	}
	rep, err := s.Audit(ctx, "eu")
	if err != nil || len(rep.Findings) > 0 {
		t.Fatal(rep, err)
	}
	t.Logf("%+v", rep)
	if _, err := s.CreateTenant(ctx, Tenant{Name: "acme", HomeRegion: "eu", Weight: 1}); err != nil {
		t.Fatal(err)
	}
	if err := s.CreateKey(ctx, Key{ID: "k", Hash: []byte("x"), Scope: ScopeTenant, Tenant: "acme"}); err != nil {
		t.Fatal(err)
	}
	if _, err := s.LookupKey(ctx, []byte("x")); err != nil {
		t.Fatal(err)
	}
	if _, err := s.ListKeys(ctx, "", "", 5); err != nil {
		t.Fatal(err)
	}
	if _, err := s.RevokeKey(ctx, "k"); err != nil {
		t.Fatal(err)
	}
	if _, err := s.ListTenants(ctx, "", 5); err != nil {
		t.Fatal(err)
	}
}
