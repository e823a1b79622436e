package store

import (
	"errors"
	"reflect"
	"testing"
	"time"

	"github.com/errandhq/errand/scheduler"
)

func TestKindDefaultsAreReplacedAsAWhole(t *testing.T) {
	s := tenantsStore(t)
	ctx := t.Context()
	first := scheduler.KindDefaults{
		Tier: scheduler.Deferrable, Tolerance: time.Hour, AttemptTimeout: time.Minute, MaxAttempts: 3, MaxWorkerLosses: 2,
		Retry: scheduler.RetryPolicy{Initial: time.Second, Max: time.Minute, Multiplier: 1.5, NonRetryable: []scheduler.Reason{"bad"}},
	}
	want := scheduler.KindSettings{Tenant: "acme", Kind: "email", Defaults: first}
	if got, err := s.PutKind(ctx, "acme", "email", &first); err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("put %+v, %v, want %+v", got, err, want)
	}
	if got, err := s.Kind(ctx, "acme", "email"); err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("read %+v, %v, want %+v", got, err, want)
	}
	if _, err := s.PauseKind(ctx, "acme", "email"); err != nil {
		t.Fatal(err)
	}
	s.longAgo(t)
	second := scheduler.KindDefaults{MaxAttempts: 9}
	want = scheduler.KindSettings{Tenant: "acme", Kind: "email", Paused: true, Defaults: second}
	if got, err := s.PutKind(ctx, "acme", "email", &second); err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("put again %+v, %v, want %+v", got, err, want)
	}
	if got := s.changed(t).Kinds; len(got) != 1 || !reflect.DeepEqual(got[0], want) {
		t.Errorf("schedulers read %+v", got)
	}
	if _, err := s.PutKind(ctx, "nobody", "email", &second); !errors.Is(err, ErrNotFound) {
		t.Errorf("a kind of nobody: %v", err)
	}
	if got, err := s.ListKinds(ctx, "nobody", "", 10); err != nil || len(got) > 0 {
		t.Errorf("and it is stored: %v, %v", got, err)
	}
}

func TestAKindIsPausedStoredOrNot(t *testing.T) {
	s := tenantsStore(t)
	ctx := t.Context()
	if _, err := s.ResumeKind(ctx, "acme", "email"); !errors.Is(err, ErrNotFound) {
		t.Errorf("resumed a kind that is not stored: %v", err)
	}
	if got, err := s.PauseKind(ctx, "acme", "email"); err != nil || !got.Paused {
		t.Errorf("paused: %+v, %v", got, err)
	}
	s.longAgo(t)
	if got, err := s.PauseKind(ctx, "acme", "email"); err != nil || !got.Paused {
		t.Errorf("paused again: %+v, %v", got, err)
	}
	if got := s.changed(t).Kinds; len(got) != 1 || !got[0].Paused {
		t.Errorf("schedulers read %+v", got)
	}
	s.longAgo(t)
	if got, err := s.ResumeKind(ctx, "acme", "email"); err != nil || got.Paused {
		t.Errorf("resumed: %+v, %v", got, err)
	}
	if got := s.changed(t).Kinds; len(got) != 1 || got[0].Paused {
		t.Errorf("schedulers read %+v", got)
	}
	if _, err := s.PauseKind(ctx, "nobody", "email"); !errors.Is(err, ErrNotFound) {
		t.Errorf("a kind of nobody: %v", err)
	}
	if _, err := s.Kind(ctx, "acme", "sms"); !errors.Is(err, ErrNotFound) {
		t.Errorf("a kind that is not stored: %v", err)
	}
	for _, kind := range []string{"a", "b"} {
		if _, err := s.PauseKind(ctx, "acme", kind); err != nil {
			t.Fatal(err)
		}
	}
	got, err := s.ListKinds(ctx, "acme", "a", 1)
	if err != nil || len(got) != 1 || got[0].Kind != "b" {
		t.Errorf("a page: %+v, %v", got, err)
	}
}

func TestLimitsAreSetReplacedAndDeleted(t *testing.T) {
	s := tenantsStore(t)
	ctx := t.Context()
	l := scheduler.LimitSettings{Tenant: "acme", Name: "api", Concurrency: 3, Rate: 0.5}
	if got, err := s.PutLimit(ctx, l); err != nil || got != l {
		t.Errorf("put %+v, %v", got, err)
	}
	l.Concurrency, l.Rate = 0, 7
	s.longAgo(t)
	if got, err := s.PutLimit(ctx, l); err != nil || got != l {
		t.Errorf("put again %+v, %v", got, err)
	}
	if got := s.changed(t).Limits; len(got) != 1 || got[0] != l {
		t.Errorf("schedulers read %+v", got)
	}
	s.longAgo(t)
	if err := s.DeleteLimit(ctx, "acme", "api"); err != nil {
		t.Error(err)
	}
	if got := s.changed(t).Limits; len(got) != 1 || !got[0].Deleted {
		t.Errorf("schedulers read %+v", got)
	}
	if got, err := s.ListLimits(ctx, "acme", "", 10); err != nil || len(got) > 0 {
		t.Errorf("deleted and listed: %+v, %v", got, err)
	}
	if err := s.DeleteLimit(ctx, "acme", "api"); !errors.Is(err, ErrNotFound) {
		t.Errorf("deleted a second time: %v", err)
	}
	if got, err := s.PutLimit(ctx, l); err != nil || got != l {
		t.Errorf("put after that %+v, %v", got, err)
	}
	l.Tenant = "nobody"
	if _, err := s.PutLimit(ctx, l); !errors.Is(err, ErrNotFound) {
		t.Errorf("a limit of nobody: %v", err)
	}
	l.Tenant, l.Rate = "acme", -1
	if _, err := s.PutLimit(ctx, l); !errors.Is(err, scheduler.ErrRefused) {
		t.Errorf("a rate below zero: %v", err)
	}
}
