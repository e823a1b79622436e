package store_test

import (
	"context"
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/errandhq/errand"
	"github.com/errandhq/errand/internal/store"
	"github.com/errandhq/errand/internal/testdb"
	"github.com/errandhq/errand/placement"
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

// What a task in a transaction needs of a worker is stored as schedulers store it: its class is theirs, and one refusal answers for both.
func TestSubmitTxNeeds(t *testing.T) {
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

	type shape = placement.Shape
	tests := map[string]struct {
		spec errand.Spec
		want *shape
	}{
		"nothing":  {errand.Spec{}, nil},
		"one-slot": {errand.Spec{Needs: errand.Requirements{Slots: 1}}, nil},
		"all": {
			errand.Spec{Needs: errand.Requirements{CPUMilli: 1, MemoryMiB: 2, GPUs: 3, Slots: 5}},
			&shape{Resources: placement.Resources{CPUMilli: 1, MemoryMiB: 2, GPUs: 3, Slots: 5}},
		},
		"a-share": {errand.Spec{Needs: errand.Requirements{GPUMilli: 4}}, &shape{Resources: placement.Resources{GPUMilli: 4}}},
		"labels": {
			errand.Spec{
				Selectors: []errand.Selector{
					{Key: "<z>", Operator: errand.NotIn, Values: []string{"b&", "a\u2028"}},
					{Key: "e", Operator: errand.Exists, Values: []string{}},
					{Key: "g", Operator: errand.Greater, Values: []string{"5"}},
					{Key: "l", Operator: errand.Less, Values: []string{"6"}},
				},
				Preferences: []errand.Preference{{Selector: errand.Selector{Key: "p", Operator: errand.In, Values: []string{"x"}}, Weight: 7}},
			},
			&shape{
				Selectors: []placement.Selector{
					{Key: "<z>", Operator: placement.NotIn, Values: []string{"b&", "a\u2028"}},
					{Key: "e", Operator: placement.Exists},
					{Key: "g", Operator: placement.Greater, Values: []string{"5"}},
					{Key: "l", Operator: placement.Less, Values: []string{"6"}},
				},
				Preferences: []placement.Preference{{Selector: placement.Selector{Key: "p", Operator: placement.In, Values: []string{"x"}}, Weight: 7}},
			},
		},
		"near": {errand.Spec{Near: "eu-a", Limits: []errand.Limit{{Name: "api"}}}, &shape{Near: "eu-a"}},
	}
	for kind, tt := range tests {
		var got errand.Submitted
		tt.spec.Kind = kind
		err := pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) (err error) {
			got, err = errand.SubmitTx(ctx, tx, errand.TxScope{Region: "eu", Tenant: kind}, tt.spec)
			return err
		})
		if err != nil {
			t.Fatalf("%s: %v", kind, err)
		}
		ref, err := scheduler.ParseRef(got.ID)
		if err != nil {
			t.Fatal(err)
		}
		task, err := s.Task(ctx, kind, ref)
		if err != nil || !reflect.DeepEqual(task.Spec.Shape, tt.want) {
			t.Errorf("%s: stored as %+v, %v; want %+v", kind, task.Spec.Shape, err, tt.want)
		}
		want := scheduler.ClassOf(kind, &scheduler.Spec{Shape: tt.want, Limits: task.Spec.Limits}).Hash()
		keys, err := s.Discover(ctx, scheduler.DiscoverQuery{Region: "eu", Shard: ref.ID.Shard(), Limit: len(tests)})
		if err != nil || !slices.ContainsFunc(keys, func(k scheduler.BufferKey) bool { return k.Tenant == kind && k.Class == want }) {
			t.Errorf("%s: the lane shows %v, %v: want the class %d", kind, keys, err, want)
		}
	}
}

// A unique key holds in transactions too: until the end of its task, or a rollback.
func TestSubmitTxUnique(t *testing.T) {
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
	submit := func(commit bool, specs ...errand.Spec) (got errand.Submitted, err error) {
		t.Helper()
		tx, beginErr := conn.Begin(ctx)
		if beginErr != nil {
			t.Fatal(beginErr)
		}
		for _, spec := range specs {
			if got, err = errand.SubmitTx(ctx, tx, errand.TxScope{Region: "eu", Tenant: "acme"}, spec); err != nil {
				break
			}
		}
		end := tx.Rollback
		if commit {
			end = tx.Commit
		}
		if endErr := end(ctx); endErr != nil {
			t.Fatal(endErr)
		}
		return got, err
	}
	plain := errand.Spec{Kind: "notify", UniqueKey: "u"}
	keyed := errand.Spec{Kind: "notify", UniqueKey: "u", IdempotencyKey: "k"}
	refusing := errand.Spec{Kind: "notify", UniqueKey: "u", IdempotencyKey: "l", RefuseHeld: true}

	if got, err := submit(false, keyed, plain); err != nil || !got.Existed {
		t.Errorf("twice in one transaction: %+v, %v", got, err)
	}
	first, err := submit(true, plain)
	if err != nil || first.Existed {
		t.Fatalf("after the rollback: %+v, %v", first, err)
	}
	for _, spec := range []errand.Spec{plain, keyed} {
		if got, err := submit(true, spec); err != nil || !got.Existed || got.ID != first.ID || got.State != errand.Ready {
			t.Errorf("while it is open: %+v, %v", got, err)
		}
	}
	if got, err := submit(true, refusing); !errors.Is(err, errand.ErrKeyHeld) || got.ID != first.ID {
		t.Errorf("refusing: %+v, %v", got, err)
	}
	ref, err := scheduler.ParseRef(first.ID)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Cancel(ctx, scheduler.CancelBatch{Region: "eu", Tenant: "acme", IDs: []scheduler.ID{ref.ID}}); err != nil {
		t.Fatal(err)
	}
	second, err := submit(true, keyed)
	if err != nil || second.Existed {
		t.Errorf("after its end: %+v, %v", second, err)
	}
	if got, err := submit(true, keyed); err != nil || got.ID != second.ID {
		t.Errorf("the same request: %+v, %v", got, err)
	}
	for name, bad := range map[string]errand.Spec{
		"NUL": {Kind: "a", UniqueKey: "\x00"}, "not UTF-8": {Kind: "a", UniqueKey: "\xff"}, "too long": {Kind: "a", UniqueKey: strings.Repeat("k", 256)},
		"a policy without a key": {Kind: "a", RefuseHeld: true},
	} {
		if _, err := submit(true, bad, errand.Spec{Kind: "a"}); !errors.Is(err, errand.ErrInvalid) {
			t.Errorf("%s: %v, want ErrInvalid", name, err)
		}
	}
}
