package main

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/errandhq/errand"
	"github.com/errandhq/errand/internal/store"
	"github.com/errandhq/errand/internal/testdb"
)

// until submits urgent tasks until an answer is as wanted: what operators set is noticed within seconds.
func (d *deployment) until(t *testing.T, what string, wanted func(errand.Submitted, error) bool) {
	t.Helper()
	end := time.NewTimer(patience)
	defer end.Stop()
	again := time.NewTicker(20 * time.Millisecond)
	defer again.Stop()
	for {
		got, err := d.client.Submit(t.Context(), errand.Spec{Kind: "nobody", Tier: errand.Urgent})
		if wanted(got, err) {
			return
		}
		select {
		case <-end.C:
			t.Fatalf("waited %v in vain for %s; the last answer is %+v, %v", patience, what, got, err)
		case <-again.C:
		}
	}
}

// What a tenant may submit holds from the operator's word on, over every instance, with the exit codes that scripts need, and
// also when Redis dies.
func TestRatesOfSubmission(t *testing.T) {
	r := testdb.Redis(t)
	dsn := testdb.New(t, testdb.ReadCommitted)
	d := deployWith(t, dsn, "", r.URL())
	first, err := d.client.Submit(t.Context(), errand.Spec{Kind: "nobody", IdempotencyKey: "first"})
	if err != nil {
		t.Fatal(err)
	}
	change := func(rate float64) {
		t.Helper()
		burst := int64(5)
		if _, err := d.store.UpdateTenant(t.Context(), store.TenantChange{Name: "acme", Rate: &rate, Burst: &burst, UrgentRate: &rate}); err != nil {
			t.Fatal(err)
		}
	}
	const slow = 0.001 // nothing comes back while the test runs
	change(slow)
	demoted := func(got errand.Submitted, err error) bool { return err == nil && got.Demoted }
	d.until(t, "a demotion", demoted) // of five tokens two are gone: for the last urgent one, and for this one

	out, errs, code := d.command(t, d.cfg.Key, "submit", "nobody", "--tier", "urgent", "-o", "json")
	if code != 0 || !strings.Contains(out, `"demoted": true`) || !strings.Contains(errs, "is stored as standard") {
		t.Errorf("one that is demoted: exit %d: %s%s", code, out, errs)
	}
	lines := filepath.Join(t.TempDir(), "lines")
	if err := os.WriteFile(lines, []byte(strings.Repeat("{\"kind\": \"nobody\"}\n", 4)), 0o600); err != nil {
		t.Fatal(err)
	}
	out, errs, code = d.command(t, d.cfg.Key, "submit", "--many", lines)
	if code != exitOverLimit || !strings.Contains(out, "2       0        2") || !strings.Contains(errs, "line 4: ") || !strings.Contains(errs, "try again in") {
		t.Errorf("four with room for two: exit %d: %s%s", code, out, errs)
	}
	out, errs, code = d.command(t, d.cfg.Key, "submit", "nobody")
	if code != exitOverLimit || out != "" || !strings.Contains(errs, "the tenant submits faster than its rate; try again in") {
		t.Errorf("one too many: exit %d: %s%s", code, out, errs)
	}

	overLimit := func(_ errand.Submitted, err error) bool { return errors.Is(err, errand.ErrOverLimit) }
	other := deployWith(t, dsn, d.cfg.Key, r.URL())
	other.until(t, "a refusal by the other instance", overLimit)

	r.Kill()
	_, err = d.client.Submit(t.Context(), errand.Spec{Kind: "nobody"})
	var refused *errand.Error
	if !errors.Is(err, errand.ErrOverLimit) || !errors.As(err, &refused) || refused.RetryAfter < time.Minute {
		t.Errorf("after Redis died: %v", err)
	}
	if again, err := d.client.Submit(t.Context(), errand.Spec{Kind: "nobody", IdempotencyKey: "first"}); err != nil || again.ID != first.ID || !again.Existed {
		t.Errorf("a request that is sent again: %+v, %v", again, err)
	}
	change(0)
	d.until(t, "no limit any more", func(got errand.Submitted, err error) bool { return err == nil && !got.Demoted })
}

// P9: a Redis that is not there keeps no scheduler from starting, and no task from being stored.
func TestStartWithoutRedis(t *testing.T) {
	r := testdb.Redis(t)
	r.Kill()
	d := deployWith(t, testdb.New(t, testdb.ReadCommitted), "", r.URL())
	rate := 0.001
	if _, err := d.store.UpdateTenant(context.Background(), store.TenantChange{Name: "acme", UrgentRate: &rate}); err != nil {
		t.Fatal(err)
	}
	d.until(t, "a demotion by the twin", func(got errand.Submitted, err error) bool { return err == nil && got.Demoted })
}
