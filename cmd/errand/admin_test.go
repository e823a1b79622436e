package main

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/errandhq/errand"
	"github.com/errandhq/errand/internal/store"
	"github.com/errandhq/errand/internal/testdb"
)

// step is one command of a story, and what it must say.
type step struct {
	name string
	args []string
	code int
	want string // part of what is printed, on either stream
}

// play runs commands one after the other.
func (d *deployment) play(t *testing.T, key string, steps []step) {
	t.Helper()
	for _, s := range steps {
		out, errs, code := d.command(t, key, s.args...)
		if code != s.code || !strings.Contains(out+errs, s.want) {
			t.Errorf("%s: exit %d, want %d and %q:\n%s%s", s.name, code, s.code, s.want, out, errs)
		}
		if code == 0 && errs != "" {
			t.Errorf("%s: it worked, and complains: %s", s.name, errs)
		}
	}
}

// show reads what a command prints as JSON.
func (d *deployment) show(t *testing.T, key string, into any, args ...string) {
	t.Helper()
	out, errs, code := d.command(t, key, append(args, "-o", "json")...)
	if err := json.Unmarshal([]byte(out), into); err != nil || code != 0 {
		t.Fatalf("errand %s: exit %d, %v: %s%s", strings.Join(args, " "), code, err, out, errs)
	}
}

// A tenant's life: what is typed is changed and nothing else, 0 takes a limit away, and what cannot be set is named.
func TestTenantCommands(t *testing.T) {
	d := deploy(t)
	admin := d.key(t, store.Key{Scope: store.ScopeAdmin})
	d.play(t, admin, []step{
		{"created", []string{
			"tenant", "create", "globex", "--weight", "2.5", "--rate", "100", "--burst", "200", "--urgent-rate", "10", "--refuse-urgent",
			"--max-open", "5000", "--max-running", "20", "--start-rate", "0.5",
		}, 0, "globex  local  2.5     100   200    10 (refuse)  5000      20           0.5         false"},
		{"changed", []string{"tenant", "update", "globex", "--rate", "0", "--no-refuse-urgent", "--max-running", "0"}, 0, "2.5     -     200    10           5000      -"},
		{"paused", []string{"tenant", "pause", "globex"}, 0, "true"},
		{"resumed", []string{"tenant", "resume", "globex"}, 0, "false"},
		{"no such tenant", []string{"tenant", "get", "nobody"}, exitNotFound, "nobody: there is no such tenant"},
		{"a pause of nobody", []string{"tenant", "pause", "nobody"}, exitNotFound, "nobody: there is no such tenant"},
		{"the end of one", []string{"tenant", "resume", "nobody"}, exitNotFound, "nobody: there is no such tenant"},
		{"deletion of nobody", []string{"tenant", "delete", "nobody"}, exitNotFound, "nobody: there is no such tenant"},
		{"an empty name", []string{"tenant", "get", ""}, exitUsage, "errand: name: "},
		{"a name that is none", []string{"tenant", "create", "a\tb"}, exitUsage, "name: "},
		{"a weight of nothing", []string{"tenant", "update", "globex", "--weight", "0"}, exitUsage, "weight: "},
		{"a negative weight", []string{"tenant", "update", "globex", "--weight=-1"}, exitUsage, "weight: "},
		{"a weight that is not a number", []string{"tenant", "update", "globex", "--weight", "NaN"}, exitUsage, "weight: "},
		{"a huge weight", []string{"tenant", "create", "other", "--weight", "1e300"}, exitUsage, "weight: "},
		{"an infinite rate", []string{"tenant", "update", "globex", "--rate", "Inf"}, exitUsage, "rate: "},
		{"a negative urgent rate", []string{"tenant", "update", "globex", "--urgent-rate=-0.1"}, exitUsage, "urgent_rate: "},
		{"a huge start rate", []string{"tenant", "update", "globex", "--start-rate", "1000001"}, exitUsage, "start_rate: "},
		{"a negative burst", []string{"tenant", "update", "globex", "--burst=-1"}, exitUsage, "burst: "},
		{"fewer open than none", []string{"tenant", "update", "globex", "--max-open=-1"}, exitUsage, "max_open: "},
		{"fewer running than none", []string{"tenant", "update", "globex", "--max-running=-1"}, exitUsage, "max_running: "},
	})
	var got tenantView
	d.show(t, admin, &got, "tenant", "get", "globex")
	got.CreatedAt = nil
	if want := (tenantView{
		Name: "globex", HomeRegion: "local", Weight: 2.5, Burst: 200, UrgentRate: 10, MaxOpen: 5000, StartRate: 0.5,
	}); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
}

// A tenant with work that waits stays, and the message says how much and what to do; once it is empty it goes, and its key with it.
func TestDeletingATenant(t *testing.T) {
	d := deploy(t)
	admin := d.key(t, store.Key{Scope: store.ScopeAdmin})
	id := d.submit(t, errand.Spec{Kind: "nobody"})
	d.submit(t, errand.Spec{Kind: "nobody", Tier: errand.Deferrable, UniqueKey: "u"})
	_, errs, code := d.command(t, admin, "tenant", "delete", "acme")
	if code != exitFailed || !strings.Contains(errs, "acme: the tenant has open tasks: 1 standard, 1 deferrable") || !strings.Contains(errs, "docs/fairness.md") {
		t.Errorf("with open tasks: exit %d: %s", code, errs)
	}
	var open []taskView
	d.show(t, d.cfg.Key, &open, "list")
	for i := range open {
		d.play(t, d.cfg.Key, []step{{"cancel", []string{"cancel", open[i].TaskID}, 0, "canceled"}})
	}
	d.play(t, admin, []step{{"without", []string{"tenant", "delete", "acme", "-o", "json"}, 0, `"deleted": true`}})
	d.play(t, d.cfg.Key, []step{
		{"its key submits", []string{"submit", "nobody"}, exitDenied, "the API key is unknown or revoked"},
		{"its key reads", []string{"get", id}, exitDenied, "the API key is unknown or revoked"},
	})
	d.play(t, admin, []step{{"no key for it", []string{"key", "create", "tenant", "--tenant", "acme"}, exitNotFound, "there is no such tenant"}})
}

func TestKindCommands(t *testing.T) {
	d := deploy(t)
	admin := d.key(t, store.Key{Scope: store.ScopeAdmin})
	put := func(args ...string) []string {
		return append([]string{"kind", "put", "email", "--tenant", "acme"}, args...)
	}
	d.play(t, admin, []step{
		{"nothing set", []string{"kind", "list", "--tenant", "acme", "-o", "json"}, 0, "[]"},
		{"not stored", []string{"kind", "get", "email", "--tenant", "acme"}, exitNotFound, "email of acme: nothing is set for this kind"},
		{"resumed and not stored", []string{"kind", "resume", "email", "--tenant", "acme"}, exitNotFound, "nothing is set for this kind"},
		{"paused and not stored", []string{"kind", "pause", "sms", "--tenant", "acme"}, 0, "true"},
		{"put", put(
			"--tier", "deferrable", "--delay-tolerance", "1h", "--timeout", "90s", "--max-attempts", "3", "--max-worker-losses", "2",
			"--initial-backoff", "2s", "--max-backoff", "5m", "--multiplier", "1.5", "--non-retryable", "bad_input,gone",
		), 0, "acme    email  deferrable  1h0m0s     1m30s    3         2       from 2s x1.5 to 5m0s  bad_input,gone  false"},
		{"listed", []string{"kind", "list", "--tenant", "acme"}, 0, "sms"},
		{"another's", []string{"kind", "list", "--tenant", "nobody"}, exitNotFound, "nobody: there is no such tenant"},
		{"of nobody", []string{"kind", "put", "email", "--tenant", "nobody"}, exitNotFound, "email of nobody: there is no such tenant"},
		{"a name that is none", []string{"kind", "put", "E mail", "--tenant", "acme"}, exitUsage, "kind.name: "},
		{"a pause of it", []string{"kind", "pause", "E mail", "--tenant", "acme"}, exitUsage, "name: "},
		{"a tolerance too short for the tier", put("--tier", "standard", "--delay-tolerance", "1s"), exitUsage, "kind.defaults.delay_tolerance: "},
		{"a tolerance of nothing", put("--tier", "urgent", "--delay-tolerance", "0s"), exitUsage, "kind.defaults.delay_tolerance: "},
		{"a timeout of nothing", put("--timeout", "0s"), exitUsage, "kind.defaults.attempt_timeout: "},
		{"no attempts", put("--max-attempts", "0"), exitUsage, "kind.defaults.max_attempts: "},
		{"no losses", put("--max-worker-losses", "0"), exitUsage, "kind.defaults.max_worker_losses: "},
		{"a growth that is not a number", put("--multiplier", "NaN"), exitUsage, "kind.defaults.retry_policy.multiplier: "},
		{"backoffs the wrong way round", put("--initial-backoff", "1h", "--max-backoff", "1m"), exitUsage, "kind.defaults.retry_policy.max_backoff: "},
	})
	var got, bare kindView
	d.show(t, admin, &got, "kind", "get", "email", "--tenant", "acme")
	if *got.Tier != "deferrable" || *got.DelayTolerance != "1h0m0s" || *got.Timeout != "1m30s" || *got.MaxAttempts != 3 || *got.MaxWorkerLosses != 2 ||
		*got.InitialBackoff != "2s" || *got.MaxBackoff != "5m0s" || *got.Multiplier != 1.5 || strings.Join(got.NonRetryable, " ") != "bad_input gone" {
		t.Errorf("%+v", got)
	}
	d.show(t, admin, &bare, put("--max-attempts", "7")...)
	if bare.Tier != nil || bare.Timeout != nil || bare.Multiplier != nil || len(bare.NonRetryable) > 0 || *bare.MaxAttempts != 7 {
		t.Errorf("what is not named is not set: %+v", bare)
	}
	d.play(t, admin, []step{
		{"needs", put("--cpu", "0.5", "--memory", "1Gi", "--gpus", "1"), 0, "cpu 0.5 mem 1024Mi gpu 1"},
		{"needs as JSON", []string{"kind", "get", "email", "--tenant", "acme", "-o", "json"}, 0, `"memory_mib": 1024`},
		{"devices and a share of one", put("--gpus", "1", "--gpu-milli", "5"), exitUsage, "--gpu-milli: not together"},
	})
	d.play(t, d.cfg.Key, []step{{"with a tenant's key", put("--tier", "urgent"), exitDenied, "an admin key"}})
}

// What is set for a kind counts for the tasks that are submitted afterwards, at an instance that has just started too.
func TestDefaultsOfAKindAtSubmit(t *testing.T) {
	dsn := testdb.New(t, testdb.ReadCommitted)
	first := deployOn(t, dsn, "")
	admin := first.key(t, store.Key{Scope: store.ScopeAdmin})
	submit := func(d *deployment, args ...string) taskView {
		t.Helper()
		var made submittedView
		var task taskView
		d.show(t, d.cfg.Key, &made, append([]string{"submit", "email"}, args...)...)
		d.show(t, d.cfg.Key, &task, "get", made.TaskID)
		return task
	}
	if got := submit(first); got.Tier != "standard" {
		t.Errorf("with nothing set: %+v", got)
	}
	first.play(t, admin, []step{{"put", []string{"kind", "put", "email", "--tenant", "acme", "--tier", "deferrable", "--delay-tolerance", "1h"}, 0, "deferrable"}})

	second := deployOn(t, dsn, first.cfg.Key)
	if got := submit(second); got.Tier != "deferrable" || got.Due.Sub(*got.ReadyAt).Minutes() != 60 {
		t.Errorf("at an instance that has just started: %+v", got)
	}
	if got := submit(second, "--tier", "urgent"); got.Tier != "urgent" {
		t.Errorf("what a submitter says counts: %+v", got)
	}
	out, _, code := second.command(t, first.cfg.Key, "submit", "--many", fileWith(t, `{"kind": "email", "idempotency_key": "a"}`), "-o", "json")
	var line manyView
	if err := json.Unmarshal([]byte(out), &line); err != nil || code != 0 {
		t.Fatalf("exit %d, %v: %s", code, err, out)
	}
	second.play(t, first.cfg.Key, []step{{"in a batch", []string{"get", line.TaskID}, 0, "deferrable"}})
	for tier := ""; tier != "deferrable"; { // the instance that runs already reads it within a second or two
		tier = submit(first).Tier
	}
}

func fileWith(t *testing.T, text string) string {
	t.Helper()
	f := tempFile(t)
	if _, err := f.WriteString(text); err != nil {
		t.Fatal(err)
	}
	return f.Name()
}

func TestLimitCommands(t *testing.T) {
	d := deploy(t)
	admin := d.key(t, store.Key{Scope: store.ScopeAdmin})
	put := func(args ...string) []string {
		return append([]string{"limit", "put", "api", "--tenant", "acme"}, args...)
	}
	d.play(t, admin, []step{
		{"none", []string{"limit", "list", "--tenant", "acme", "-o", "json"}, 0, "[]"},
		{"put", put("--concurrency", "3", "--rate", "2.5"), 0, "acme    api    3            2.5"},
		{"put again, as a whole", put("--rate", "7"), 0, "acme    api    -            7"},
		{"put to no cap", put("--concurrency", "0", "-o", "json"), 0, `"concurrency": 0`},
		{"put once more", put("--concurrency", "1"), 0, "acme    api    1            -"},
		{"of nobody", []string{"limit", "put", "api", "--tenant", "nobody", "--rate", "1"}, exitNotFound, "api of nobody: there is no such tenant"},
		{"a list of nobody", []string{"limit", "list", "--tenant", "nobody"}, exitNotFound, "nobody: there is no such tenant"},
		{"a name that is none", []string{"limit", "put", "a/b", "--tenant", "acme", "--rate", "1"}, exitUsage, "limit.name: "},
		{"a negative cap", put("--concurrency=-1"), exitUsage, "limit.concurrency: "},
		{"a huge cap", put("--concurrency", "10000001"), exitUsage, "limit.concurrency: "},
		{"a negative rate", put("--rate=-1"), exitUsage, "limit.rate: "},
		{"a rate that is not a number", put("--rate", "NaN"), exitUsage, "limit.rate: "},
		{"one that is not there", []string{"limit", "delete", "mail", "--tenant", "acme"}, exitNotFound, "mail of acme: there is no such limit"},
	})
	var all []limitView
	d.show(t, admin, &all, "limit", "list", "--tenant", "acme")
	if want := (limitView{Tenant: "acme", Name: "api", Concurrency: 1}); len(all) != 1 || all[0] != want {
		t.Errorf("%+v, want %+v", all, want)
	}
	d.play(t, admin, []step{
		{"deleted", []string{"limit", "delete", "api", "--tenant", "acme", "-o", "json"}, 0, `"deleted": true`},
		{"deleted twice", []string{"limit", "delete", "api", "--tenant", "acme"}, exitNotFound, "there is no such limit"},
	})
	d.play(t, d.cfg.Key, []step{{"with a tenant's key", put("--rate", "1"), exitDenied, "an admin key"}})
}

// The limits of a task as people write them, one by one and in files, and as they are shown again.
func TestLimitsOfSubmittedTasks(t *testing.T) {
	d := deploy(t)
	var made submittedView
	var task taskView
	d.show(t, d.cfg.Key, &made, "submit", "nobody", "--limit", "mail", "--limit", "api/a/b, c")
	d.show(t, d.cfg.Key, &task, "get", made.TaskID)
	if got := strings.Join(task.Limits, " "); got != "api/a/b, c mail" {
		t.Errorf("shown as %s", got)
	}
	long := strings.Repeat("k", 256)
	d.play(t, d.cfg.Key, []step{
		{"in the table", []string{"get", made.TaskID}, 0, "api/a/b, c, mail"},
		{"a name that is none", []string{"submit", "nobody", "--limit", "A"}, exitUsage, "spec.limits[0].name: "},
		{"one of them twice", []string{"submit", "nobody", "--limit", "a", "--limit", "a"}, exitUsage, "spec.limits[1]: "},
		{"a long key", []string{"submit", "nobody", "--limit", "a/" + long}, exitUsage, "spec.limits[0].key: "},
		{"nine", append([]string{"submit", "nobody"}, strings.Fields(strings.Repeat("--limit a ", 9))...), exitUsage, "spec.limits: "},
		{"a key with NUL in a file", []string{"submit", "--many", fileWith(t, `{"kind": "nobody", "limits": ["a/\u0000"]}`)}, exitUsage, "line 1: limits[0].key: "},
		{"a name with NUL in a file", []string{"submit", "--many", fileWith(t, `{"kind": "nobody", "limits": ["a\u0000"]}`)}, exitUsage, "line 1: limits[0].name: "},
		{"limits in a file", []string{"submit", "--many", fileWith(t, `{"kind": "nobody", "limits": ["mail/x"]}`)}, 0, "1       0        0"},
		{"those", []string{"list", "--limit", "1", "-o", "json"}, 0, `"mail/x"`},
	})
}
