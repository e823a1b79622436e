package store

import (
	"context"
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/errandhq/errand/internal/testdb"
	"github.com/errandhq/errand/scheduler"
)

// tenantsStore is a store with the tenant acme.
func tenantsStore(t *testing.T) *Store {
	t.Helper()
	s := open(t, testdb.ReadCommitted)
	if _, err := s.CreateTenant(t.Context(), Tenant{Name: "acme", HomeRegion: "eu", Weight: 1}); err != nil {
		t.Fatal(err)
	}
	return s
}

// longAgo makes every row look as if it had been changed an hour ago, so that a change is seen.
func (s *Store) longAgo(t *testing.T) {
	t.Helper()
	for _, table := range []string{"tenants", "kinds", "limits"} {
		if _, err := s.general.Exec(t.Context(), "UPDATE "+table+" SET changed_at = now() - INTERVAL '1 hour'"); err != nil {
			t.Fatal(err)
		}
	}
}

// changed reads what schedulers that know everything up to a minute ago would read.
func (s *Store) changed(t *testing.T) scheduler.Settings {
	t.Helper()
	got, err := s.Settings(t.Context(), scheduler.SettingsQuery{Since: time.Now().Add(-time.Minute)})
	if err != nil {
		t.Fatal(err)
	}
	return got
}

func ptr[T any](v T) *T { return &v }

func TestATenantIsStoredAsItWasAskedFor(t *testing.T) {
	s := tenantsStore(t)
	want := Tenant{
		Name: "globex", HomeRegion: "us", Weight: 2.5, Rate: 10, Burst: 20, UrgentRate: 0.5, RefuseUrgent: true, MaxOpen: 1 << 40, MaxRunning: 7,
		StartRate: 3,
	}
	created, err := s.CreateTenant(t.Context(), want)
	if err != nil {
		t.Fatal(err)
	}
	want.CreatedAt = created.CreatedAt
	got, err := s.Tenant(t.Context(), "globex")
	if err != nil || got.CreatedAt.IsZero() {
		t.Fatal(got, err)
	}
	got.CreatedAt = want.CreatedAt
	if created != want || got != want {
		t.Errorf("created %+v, read %+v, want %+v", created, got, want)
	}
	if _, err := s.CreateTenant(t.Context(), Tenant{Name: "globex", Weight: 1}); !errors.Is(err, ErrExists) {
		t.Errorf("the same name again: %v", err)
	}
	for name, bad := range map[string]Tenant{
		"weight": {Name: "bad", Weight: 0}, "rate": {Name: "bad", Weight: 1, Rate: -1}, "burst": {Name: "bad", Weight: 1, Burst: 10_000_001},
		"max_open": {Name: "bad", Weight: 1, MaxOpen: -1}, "start_rate": {Name: "bad", Weight: 1, StartRate: 1e7},
	} {
		if _, err := s.CreateTenant(t.Context(), bad); !errors.Is(err, scheduler.ErrRefused) {
			t.Errorf("a bad %s: %v", name, err)
		}
	}
}

// Two operators who change different things at the same time do not undo each other's change.
func TestAnUpdateChangesOnlyWhatItSays(t *testing.T) {
	s := tenantsStore(t)
	s.longAgo(t)
	want := Tenant{Name: "acme", HomeRegion: "eu", Weight: 1}
	for name, step := range map[string]struct {
		change TenantChange
		to     func(*Tenant)
	}{
		"weight":  {TenantChange{Weight: ptr(3.0)}, func(t *Tenant) { t.Weight = 3 }},
		"pause":   {TenantChange{Paused: ptr(true)}, func(t *Tenant) { t.Paused = true }},
		"rate":    {TenantChange{Rate: ptr(5.0)}, func(t *Tenant) { t.Rate = 5 }},
		"burst":   {TenantChange{Burst: ptr(int64(6))}, func(t *Tenant) { t.Burst = 6 }},
		"urgent":  {TenantChange{UrgentRate: ptr(7.0)}, func(t *Tenant) { t.UrgentRate = 7 }},
		"refuse":  {TenantChange{RefuseUrgent: ptr(true)}, func(t *Tenant) { t.RefuseUrgent = true }},
		"open":    {TenantChange{MaxOpen: ptr(int64(8))}, func(t *Tenant) { t.MaxOpen = 8 }},
		"running": {TenantChange{MaxRunning: ptr(int64(9))}, func(t *Tenant) { t.MaxRunning = 9 }},
		"starts":  {TenantChange{StartRate: ptr(10.0)}, func(t *Tenant) { t.StartRate = 10 }},
		"nothing": {TenantChange{}, func(*Tenant) {}},
	} {
		step.change.Name = "acme"
		got, err := s.UpdateTenant(t.Context(), step.change)
		step.to(&want)
		want.CreatedAt = got.CreatedAt
		if err != nil || got != want {
			t.Errorf("%s: %+v, %v, want %+v", name, got, err, want)
		}
	}
	back, err := s.UpdateTenant(t.Context(), TenantChange{Name: "acme", Paused: ptr(false), Rate: ptr(0.0)})
	if err != nil || back.Paused || back.Rate != 0 || back.Burst != 6 {
		t.Errorf("taken back: %+v, %v", back, err)
	}
	if got := s.changed(t).Tenants; len(got) == 0 || got[0].Tenant != "acme" || got[0].MaxRunning != 9 {
		t.Errorf("schedulers read %+v", got)
	}
	if _, err := s.UpdateTenant(t.Context(), TenantChange{Name: "nobody", Weight: ptr(2.0)}); !errors.Is(err, ErrNotFound) {
		t.Errorf("nobody: %v", err)
	}
}

// count adds a batch to the ledger, as if tasks had been accepted and ended.
func (s *Store) count(t *testing.T, region, tenant string, tier scheduler.Tier, accepted, ended int64) {
	t.Helper()
	_, err := s.general.Exec(t.Context(), `INSERT INTO ledger (region, batch, tenant, tier, accepted, ended, purged, at)
		VALUES ($1, gen_random_uuid(), $2, $3, $4, $5, 0, now())`, region, tenant, int16(tier), accepted, ended)
	if err != nil {
		t.Fatal(err)
	}
}

func TestOpenTasksOfATenantAreCounted(t *testing.T) {
	s := tenantsStore(t)
	s.count(t, "eu", "acme", scheduler.Standard, 5, 2)
	s.count(t, "us", "acme", scheduler.Standard, 1, 0)
	s.count(t, "us", "acme", scheduler.Deferrable, 7, 7)
	s.count(t, "us", "acme", scheduler.Urgent, 1, 0)
	s.count(t, "eu", "globex", scheduler.Urgent, 9, 0)
	for tenant, want := range map[string]int64{"acme": 5, "globex": 9, "nobody": 0} {
		if got, err := s.CountOpenOf(t.Context(), tenant); err != nil || got != want {
			t.Errorf("%d tasks of %s are open, want %d (%v)", got, tenant, want, err)
		}
	}
}

func TestATenantWithOpenTasksStays(t *testing.T) {
	s := tenantsStore(t)
	s.count(t, "eu", "acme", scheduler.Standard, 5, 2)
	s.count(t, "us", "acme", scheduler.Standard, 1, 0)
	s.count(t, "us", "acme", scheduler.Deferrable, 7, 7)
	s.count(t, "us", "acme", scheduler.Urgent, 1, 0)
	s.count(t, "eu", "globex", scheduler.Urgent, 9, 0)
	err := s.DeleteTenant(t.Context(), "acme")
	var busy *BusyTenantError
	if !errors.Is(err, ErrBusyTenant) || !errors.As(err, &busy) {
		t.Fatal(err)
	}
	if want := "1 urgent, 4 standard"; !strings.Contains(err.Error(), want) {
		t.Errorf("%q does not say %q", err, want)
	}
	if _, err := s.Tenant(t.Context(), "acme"); err != nil {
		t.Error(err)
	}
	s.count(t, "us", "acme", scheduler.Urgent, 0, 1)
	s.count(t, "us", "acme", scheduler.Standard, 0, 4)
	if err := s.DeleteTenant(t.Context(), "acme"); err != nil {
		t.Errorf("with all tasks ended: %v", err)
	}
	if err := s.DeleteTenant(t.Context(), "acme"); !errors.Is(err, ErrNotFound) || errors.Is(err, scheduler.ErrUnavailable) {
		t.Errorf("a second time: %v", err)
	}
}

// What goes with a tenant goes in one transaction, schedulers hear of it, and a new tenant of the name inherits nothing.
func TestADeletedTenantLeavesNothingBehind(t *testing.T) {
	s := tenantsStore(t)
	ctx := t.Context()
	if _, err := s.CreateTenant(ctx, Tenant{Name: "globex", HomeRegion: "eu", Weight: 1}); err != nil {
		t.Fatal(err)
	}
	for _, tenant := range []string{"acme", "globex"} {
		if _, err := s.PutKind(ctx, tenant, "email", &scheduler.KindDefaults{MaxAttempts: 3}); err != nil {
			t.Fatal(err)
		}
		if _, err := s.PauseKind(ctx, tenant, "email"); err != nil {
			t.Fatal(err)
		}
		if _, err := s.PutLimit(ctx, scheduler.LimitSettings{Tenant: tenant, Name: "api", Concurrency: 1}); err != nil {
			t.Fatal(err)
		}
		if err := s.CreateKey(ctx, Key{ID: "key-" + tenant, Hash: []byte(tenant), Scope: ScopeTenant, Tenant: tenant}); err != nil {
			t.Fatal(err)
		}
	}
	s.longAgo(t)
	if err := s.DeleteTenant(ctx, "acme"); err != nil {
		t.Fatal(err)
	}
	got := s.changed(t)
	if want := (scheduler.KindSettings{Tenant: "acme", Kind: "email"}); len(got.Kinds) != 1 || !reflect.DeepEqual(got.Kinds[0], want) {
		t.Errorf("schedulers that know the kinds read %+v", got.Kinds)
	}
	if len(got.Limits) != 1 || got.Limits[0].Tenant != "acme" || !got.Limits[0].Deleted {
		t.Errorf("schedulers that know the limits read %+v", got.Limits)
	}
	for tenant, revoked := range map[string]bool{"acme": true, "globex": false} {
		k, err := s.LookupKey(ctx, []byte(tenant))
		if err != nil || k.RevokedAt.IsZero() == revoked {
			t.Errorf("%s's key: %+v, %v", tenant, k, err)
		}
	}
	if _, err := s.CreateTenant(ctx, Tenant{Name: "acme", HomeRegion: "eu", Weight: 1}); err != nil {
		t.Fatal(err)
	}
	for tenant, want := range map[string]int{"acme": 0, "globex": 1} {
		kinds, kindsErr := s.ListKinds(ctx, tenant, "", 10)
		limits, limitsErr := s.ListLimits(ctx, tenant, "", 10)
		if len(kinds) != want || len(limits) != want || kindsErr != nil || limitsErr != nil {
			t.Errorf("%s has kinds %v, limits %v, %v, %v", tenant, kinds, limits, kindsErr, limitsErr)
		}
	}
	everything, err := s.Settings(ctx, scheduler.SettingsQuery{})
	if err != nil || len(everything.Kinds) != 1 || len(everything.Limits) != 1 {
		t.Errorf("who asks for all reads %+v, %v", everything, err)
	}
}

// A kind that is put while its tenant is deleted is gone with it, or finds no tenant: the two statements change the same row.
func TestAKindPutWhileItsTenantIsDeleted(t *testing.T) {
	for _, isolation := range []testdb.Isolation{testdb.ReadCommitted, testdb.Serializable} {
		s := open(t, isolation)
		for range 20 {
			ctx := t.Context()
			if _, err := s.CreateTenant(ctx, Tenant{Name: "acme", HomeRegion: "eu", Weight: 1}); err != nil {
				t.Fatal(err)
			}
			put := make(chan error, 2)
			go func() {
				_, err := s.PutKind(context.WithoutCancel(ctx), "acme", "email", &scheduler.KindDefaults{})
				put <- err
			}()
			go func() {
				_, err := s.PutLimit(context.WithoutCancel(ctx), scheduler.LimitSettings{Tenant: "acme", Name: "api", Rate: 1})
				put <- err
			}()
			if err := s.DeleteTenant(ctx, "acme"); err != nil {
				t.Fatal(err)
			}
			for range 2 {
				if err := <-put; err != nil && !errors.Is(err, ErrNotFound) {
					t.Error(err)
				}
			}
			kinds, kindsErr := s.ListKinds(ctx, "acme", "", 10)
			limits, limitsErr := s.ListLimits(ctx, "acme", "", 10)
			if len(kinds)+len(limits) > 0 || kindsErr != nil || limitsErr != nil {
				t.Fatalf("kinds %v, limits %v, %v, %v are left of a deleted tenant", kinds, limits, kindsErr, limitsErr)
			}
		}
	}
}
