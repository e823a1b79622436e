package store

import (
	"bytes"
	"errors"
	"strconv"
	"strings"
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

// P5: a key stands once for all regions: it is kept where its tenant is at home, wherever the task is stored.
func TestKeysHaveOneScopeForAllRegions(t *testing.T) {
	s := tenantsStore(t)
	if _, err := s.CreateTenant(t.Context(), Tenant{Name: "global", HomeRegion: "us", Weight: 1}); err != nil {
		t.Fatal(err)
	}
	insert := func(region string, id byte) scheduler.Inserted {
		t.Helper()
		a, err := s.Insert(t.Context(), scheduler.Insert{Region: region, Tasks: []scheduler.Task{{
			Ref: scheduler.Ref{Region: region, ID: scheduler.ID{id, 1}}, EffectKey: scheduler.ID{id, 1}, Tenant: "global", Kind: "k",
			Tier: scheduler.Standard, State: scheduler.Ready, IdempotencyKey: "order-1", Fingerprint: []byte("print"),
		}}})
		if err != nil {
			t.Fatal(err)
		}
		return a[0]
	}
	first := insert("eu", 1)
	for _, region := range []string{"us", "ap", "eu"} {
		again := insert(region, 17)
		if again.Verdict != scheduler.InsertDuplicate || again.Existing != (scheduler.Ref{Region: "eu", ID: first.ID}) || again.State != scheduler.Ready {
			t.Errorf("the same key in %s: %+v", region, again)
		}
		standing, err := s.KeyedTasks(t.Context(), region, "global", []string{"order-1"})
		if err != nil || standing["order-1"].Ref.Region != "eu" {
			t.Errorf("what it stands for, asked in %s: %+v, %v", region, standing, err)
		}
	}
}

// A region gets its number once; asking again, or in another order, changes nothing.
func TestRegionsKeepTheirNumbers(t *testing.T) {
	s := tenantsStore(t)
	for _, names := range [][]string{{"eu", "us"}, {"us", "eu"}, {"ap"}, {"us", "ap", "eu"}} {
		if _, err := s.AddRegions(t.Context(), names); err != nil {
			t.Fatal(err)
		}
	}
	all, err := s.Regions(t.Context())
	if err != nil || len(all) != 3 || all[0].Name != "eu" || all[1].Name != "us" || all[2].Name != "ap" || all[2].Number != 2 {
		t.Fatalf("%+v, %v", all, err)
	}
	drained, err := s.DrainRegion(t.Context(), "us", true)
	if err != nil || !drained.Draining || drained.Number != 1 {
		t.Errorf("drained: %+v, %v", drained, err)
	}
	if _, err := s.DrainRegion(t.Context(), "mars", true); !errors.Is(err, ErrNotFound) {
		t.Errorf("an unknown one: %v", err)
	}
	var many []string
	for i := range 14 {
		many = append(many, "r"+strconv.Itoa(i))
	}
	if _, err := s.AddRegions(t.Context(), many); err == nil || !strings.Contains(err.Error(), "16 regions already") {
		t.Errorf("more than there may be: %v", err)
	}
}
