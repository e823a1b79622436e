package store

import (
	"bytes"
	"testing"

	"github.com/errandhq/errand/scheduler"
)

// What a key stands for is told to its tenant, and of keys that stand for nothing nothing.
func TestKeyedTasks(t *testing.T) {
	s := tenantsStore(t)
	task := scheduler.Task{
		Ref: scheduler.Ref{Region: "eu", ID: scheduler.ID{1, 1}}, EffectKey: scheduler.ID{1, 1}, Tenant: "acme", Kind: "k",
		Tier: scheduler.Standard, State: scheduler.Ready, IdempotencyKey: "order-1", Fingerprint: []byte("print"),
	}
	if a, err := s.Insert(t.Context(), scheduler.Insert{Region: "eu", Tasks: []scheduler.Task{task}}); err != nil || a[0].Verdict != scheduler.InsertStored {
		t.Fatal(a, err)
	}
	got, err := s.KeyedTasks(t.Context(), "eu", "acme", []string{"order-2", "order-1", "order-1"})
	if one := got["order-1"]; err != nil || len(got) != 1 || one.Ref != task.Ref || one.State != scheduler.Ready || !bytes.Equal(one.Fingerprint, task.Fingerprint) {
		t.Errorf("%+v, %v", got, err)
	}
	if got, err := s.KeyedTasks(t.Context(), "eu", "globex", []string{"order-1"}); err != nil || len(got) != 0 {
		t.Errorf("another tenant's: %+v, %v", got, err)
	}
}
