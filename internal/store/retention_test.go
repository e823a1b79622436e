package store

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/errandhq/errand/internal/testdb"
	"github.com/errandhq/errand/scheduler"
)

// Retention during a running graph: a parent stays while a child of it is open, the first task while any of its graph is, and all goes
// in the end, with what belongs to it.
func TestNoParentIsPurgedThatAChildNeeds(t *testing.T) {
	s := open(t, testdb.ReadCommitted)
	ctx := context.Background()
	old := time.Now().Add(-RetentionMin - time.Hour)
	var tasks []scheduler.Task
	for i := range byte(4) {
		k := readyTask(i + 1)
		k.ID = scheduler.NewID(1, old, [scheduler.RandomBytes]byte{i + 1})
		k.EffectKey, k.Tenant = k.ID, "acme"
		tasks = append(tasks, k)
	}
	for i := range tasks {
		tasks[i].Spec.Graph = tasks[0].ID.String()
		if i > 1 { // a chain, beside the first
			tasks[i].Parents, tasks[i].State, tasks[i-1].Parent = []scheduler.Ref{{Region: "eu", ID: tasks[i-1].ID}}, scheduler.Blocked, true
		}
	}
	in := scheduler.InsertLinked{Region: "eu", Tasks: tasks, Graph: tasks[0].ID, Key: "k", Fingerprint: []byte("f")}
	if got, err := s.InsertLinked(ctx, in); err != nil || got.Verdict != scheduler.InsertStored {
		t.Fatal(got, err)
	}
	// Each is canceled by hand from the first on, as if it had succeeded long ago; the pass that follows is left out.
	end := func(i int) {
		t.Helper()
		if _, err := s.Cancel(ctx, scheduler.CancelBatch{Region: "eu", Tenant: "acme", IDs: []scheduler.ID{tasks[i].ID}}); err != nil {
			t.Fatal(err)
		}
	}
	rest := func(i int) {
		t.Helper()
		c, err := s.CloseEdges(ctx, scheduler.CloseEdges{Region: "eu", Parents: []scheduler.ParentPage{{ID: tasks[i].ID}}, Limit: 10})
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Rest(ctx, scheduler.RestBatch{Region: "eu", Parents: []scheduler.SeenParent{{ID: tasks[i].ID, Wake: c[0].Wake}}}); err != nil {
			t.Fatal(err)
		}
	}
	purged := func(want int, why string) {
		t.Helper()
		if n, err := s.Sweep(ctx, "eu", 1, 0); err != nil || n != want {
			t.Errorf("purged %d, %v; want %d: %s", n, err, want, why)
		}
	}
	end(0)
	end(1)
	aged(t, s, RetentionMin+time.Minute)
	purged(0, "the children have not been told")
	rest(0)
	rest(1)
	purged(0, "the first is the graph's, and the second has an open child")
	end(2)
	aged(t, s, RetentionMin+time.Minute)
	rest(2)
	purged(1, "the second has no open child any more, the third has")
	late := readyTask(9)
	late.Tenant, late.Parents, late.State = "acme", []scheduler.Ref{{Region: "eu", ID: tasks[1].ID}}, scheduler.Blocked
	if got, err := s.InsertLinked(ctx, scheduler.InsertLinked{Region: "eu", Tasks: []scheduler.Task{late}}); err != nil || got.Tasks[0].Verdict != scheduler.InsertNoParent {
		t.Errorf("a purged parent: %+v, %v", got, err)
	}
	end(3)
	aged(t, s, RetentionMin+time.Minute)
	purged(3, "all has ended long ago")
	for _, k := range tasks {
		if _, err := s.Task(ctx, "acme", k.Ref); !errors.Is(err, ErrNotFound) {
			t.Errorf("%s: %v", k.Ref, err)
		}
	}
	for _, table := range []string{"task_edges", "task_children", "graph_tasks", "idempotency_keys"} {
		var n int
		if err := s.general.QueryRow(ctx, "SELECT count(*) FROM "+table).Scan(&n); err != nil || n != 0 {
			t.Errorf("%s has %d rows left, %v", table, n, err)
		}
	}
}
