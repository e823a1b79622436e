package store_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/errandhq/errand"
	"github.com/errandhq/errand/internal/store"
	"github.com/errandhq/errand/internal/testdb"
	"github.com/errandhq/errand/scheduler"
)

// A task that is submitted in the user's own transaction is a task like any other, and is there only after the commit.
func TestSubmitTx(t *testing.T) {
	ctx := context.Background()
	dsn := testdb.New(t, testdb.ReadCommitted)
	s, err := store.Open(ctx, store.Config{URL: dsn})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	conn, err := pgx.Connect(ctx, dsn)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(ctx) })

	scope := errand.TxScope{Region: "eu", Tenant: "acme"}
	spec := errand.Spec{
		Kind: "notify", Payload: []byte("hi"), Labels: map[string]string{"a": "b"}, MaxAttempts: 7, AttemptTimeout: time.Minute,
		Retry: errand.Retry{Initial: time.Second, NonRetryable: []string{"x"}}, IdempotencyKey: "k",
	}
	submit := func(spec errand.Spec, commit bool) (got errand.Submitted, err error) {
		tx, beginErr := conn.Begin(ctx)
		if beginErr != nil {
			t.Fatal(beginErr)
		}
		got, err = errand.SubmitTx(ctx, tx, scope, spec)
		if !commit {
			if rollbackErr := tx.Rollback(ctx); rollbackErr != nil {
				t.Fatal(rollbackErr)
			}
			return got, err
		}
		if commitErr := tx.Commit(ctx); commitErr != nil {
			t.Fatal(commitErr)
		}
		return got, err
	}
	read := func(handle string) (scheduler.Task, error) {
		ref, err := scheduler.ParseRef(handle)
		if err != nil {
			t.Fatal(err)
		}
		return s.Task(ctx, "acme", ref)
	}

	rolledBack, err := submit(spec, false)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := read(rolledBack.ID); !errors.Is(err, store.ErrNotFound) {
		t.Fatalf("after a rollback: %v, want ErrNotFound", err)
	}
	first, err := submit(spec, true)
	if err != nil || first.Existed || first.State != errand.Ready {
		t.Fatalf("first: %+v, %v", first, err)
	}
	task, err := read(first.ID)
	if err != nil {
		t.Fatal(err)
	}
	if task.State != scheduler.Ready || task.Spec.Attempts() != 7 || task.Spec.Timeout() != time.Minute || task.Spec.Labels["a"] != "b" ||
		task.Spec.Retry.Retryable("x") || string(task.Payload) != "hi" {
		t.Errorf("stored otherwise than asked: %+v", task)
	}
	keys, err := s.Discover(ctx, scheduler.DiscoverQuery{Region: "eu", Shard: task.ID.Shard(), Limit: 5})
	if err != nil || len(keys) != 1 || keys[0].Class != task.Class().Hash() {
		t.Errorf("the lane shows %v, %v: want the class %d", keys, err, task.Class().Hash())
	}
	again, err := submit(spec, true)
	if err != nil || !again.Existed || again.ID != first.ID {
		t.Errorf("the same again: %+v, %v", again, err)
	}
	other := spec
	other.Payload = []byte("other")
	if _, err := submit(other, true); !errors.Is(err, errand.ErrKeyReused) {
		t.Errorf("another request under the key: %v, want ErrKeyReused", err)
	}
	if _, err := submit(errand.Spec{Kind: "notify", Tier: errand.Urgent}, true); !errors.Is(err, errand.ErrInvalid) {
		t.Errorf("urgent: %v, want ErrInvalid", err)
	}
	report, err := s.Audit(ctx, "eu")
	if err != nil || len(report.Balances) != 1 || report.Balances[0].Accepted != 1 || report.Balances[0].Open != 1 {
		t.Errorf("ledger: %+v, %v", report, err)
	}
}
