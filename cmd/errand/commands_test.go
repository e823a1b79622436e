package main

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/errandhq/errand"
	"github.com/errandhq/errand/internal/api"
	"github.com/errandhq/errand/internal/store"
)

// command runs a client command against the deployment.
func (d *deployment) command(t *testing.T, key string, args ...string) (out, errs string, code int) {
	t.Helper()
	t.Setenv("ERRAND_URL", d.cfg.URLs[0])
	t.Setenv("ERRAND_KEY", key)
	return output(t, args...)
}

func (d *deployment) key(t *testing.T, k store.Key) string {
	t.Helper()
	secret, hash := api.NewSecret()
	k.ID, k.Hash = api.NewKeyID(), hash
	if err := d.store.CreateKey(context.Background(), k); err != nil {
		t.Fatal(err)
	}
	return secret
}

// What a script does with tasks: it reads JSON, and decides by exit codes.
func TestTaskCommands(t *testing.T) {
	d := deploy(t)
	d.work(t, errand.WorkerConfig{}, map[string]errand.Handler{
		"echo": func(_ context.Context, a *errand.Attempt) (errand.Result, error) {
			return errand.Result{Data: a.Payload}, nil
		},
		"bad": func(context.Context, *errand.Attempt) (errand.Result, error) {
			return errand.Result{}, errand.NonRetryable(errand.WithReason(errors.New("no"), "no_luck"))
		},
	})
	id := d.submit(t, errand.Spec{Kind: "echo", Payload: []byte("hi")}) // from here on the instance has its session
	d.wait(t, id)

	steps := []struct {
		name string
		args []string
		code int
		want string // part of what is printed, on either stream
	}{
		{"a table", []string{"get", id}, 0, "succeeded"},
		{"JSON", []string{"get", id, "-o", "json"}, 0, `"result": "hi"`},
		{"submit and wait", []string{"submit", "echo", "hello", "--wait", "--label", "a=b", "--tier", "urgent"}, 0, "hello"},
		{"submit what fails", []string{"submit", "bad", "--wait"}, exitEndedBadly, "no_luck"},
		{"a bad kind", []string{"submit", "Bad Kind"}, exitUsage, "kind"},
		{"two submissions of one key", []string{"submit", "echo", "x", "--idempotency-key", "k", "-o", "json"}, 0, `"existed": false`},
		{"the second", []string{"submit", "echo", "x", "--idempotency-key", "k", "-o", "json"}, 0, `"existed": true`},
		{"another one of it", []string{"submit", "echo", "y", "--idempotency-key", "k"}, exitFailed, "idempotency key"},
		{"a task that is not there", []string{"get", "local.0000000000000000000000000w"}, exitNotFound, "local.0000000000000000000000000w: there is no such task"},
		{"a handle that is none", []string{"get", "nonsense"}, exitUsage, "task_id"},
		{"wait for an ended one", []string{"wait", id}, 0, "succeeded"},
		{"wait for one that never ends", []string{"submit", "nobody", "-o", "json"}, 0, `"task_id"`},
		{"cancel an ended one", []string{"cancel", id}, exitEndedBadly, "succeeded"},
		{"one of a unique key", []string{"submit", "nobody", "--unique-key", "u", "-o", "json"}, 0, `"existed": false`},
		{"the second of it", []string{"submit", "nobody", "--unique-key", "u", "-o", "json"}, 0, `"existed": true`},
		{"the second refused", []string{"submit", "nobody", "--unique-key", "u", "--refuse-held"}, exitFailed, "an open task holds the unique key"},
		{"refused for no key", []string{"submit", "nobody", "--refuse-held"}, exitUsage, "--unique-key"},
		{"a unique key of many", []string{"submit", "nobody", "--many", "x", "--unique-key", "u"}, exitUsage, "--many"},
		{"one that nobody serves", []string{"submit", "nobody"}, 0, "AT RISK"},
		{"the same as JSON", []string{"submit", "nobody", "-o", "json"}, 0, `"at_risk": "NO_WORKER"`},
		{"one that is not at risk", []string{"submit", "echo", "-o", "json"}, 0, `"at_risk": ""`},
		{"one that would not start", []string{"submit", "nobody", "--reject-if-infeasible"}, exitFailed, "NO_WORKER"},
		{"one that would", []string{"submit", "echo", "--reject-if-infeasible"}, 0, "EXISTED\n"},
		{"update an ended one", []string{"update", id, "--tier", "urgent"}, exitFailed, "the task is not waiting"},
		{"update nothing", []string{"update", id}, exitUsage, "say what to change"},
		{"update twice the same", []string{"update", id, "--run-now", "--delay", "1h"}, exitUsage, "give one of them"},
		{"update to no time", []string{"update", id, "--run-at", "tomorrow"}, exitUsage, "--run-at"},
		{"update no task", []string{"update", "local.0000000000000000000000000w", "--run-now"}, exitNotFound, "there is no such task"},
		{"list", []string{"list", "--state", "failed"}, 0, "no_luck"},
		{"list some", []string{"list", "--label", "a=b", "-o", "json"}, 0, `"kind": "echo"`},
		{"only the result", []string{"get", id, "--result"}, 0, "hi"},
		{"the result of one that has none", []string{"submit", "bad", "--wait", "-o", "json"}, exitEndedBadly, `"result": null`},
		{"list the newest", []string{"list", "--since", "1h", "--limit", "1", "-o", "json"}, 0, `"tier": "standard"`},
		{"list none", []string{"list", "--kind", "other", "-o", "json"}, 0, "[]"},
	}
	for _, s := range steps {
		out, errs, code := d.command(t, d.cfg.Key, s.args...)
		if code != s.code || !strings.Contains(out+errs, s.want) {
			t.Errorf("%s: exit %d, want %d and %q:\n%s%s", s.name, code, s.code, s.want, out, errs)
		}
		if code == 0 && errs != "" {
			t.Errorf("%s: it worked, and complains: %s", s.name, errs)
		}
	}
	out, _, _ := d.command(t, d.cfg.Key, "submit", "nobody", "-o", "json")
	var open struct {
		TaskID string `json:"task_id"`
	}
	if err := json.Unmarshal([]byte(out), &open); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if out, errs, code := d.command(t, d.cfg.Key, "wait", open.TaskID, "--timeout", "300ms"); code != exitTimeout || !strings.Contains(errs, "still ready") {
		t.Errorf("a wait that is too long: exit %d: %s%s", code, out, errs)
	}
	if out, errs, code := d.command(t, d.cfg.Key, "update", open.TaskID, "--tier", "deferrable", "--delay", "1h", "--label", "a=b"); code != 0 ||
		!strings.Contains(out, "scheduled  deferrable  in ") {
		t.Errorf("update: exit %d: %s%s", code, out, errs)
	}
	if out, errs, code := d.command(t, d.cfg.Key, "update", open.TaskID, "--run-now", "-o", "json"); code != 0 || !strings.Contains(out, `"state": "ready"`) ||
		!strings.Contains(out, `"a": "b"`) {
		t.Errorf("update to now: exit %d: %s%s", code, out, errs)
	}
	if out, errs, code := d.command(t, d.cfg.Key, "cancel", open.TaskID, "--reason", "enough"); code != 0 || !strings.Contains(out, "canceled") {
		t.Errorf("cancel: exit %d: %s%s", code, out, errs)
	}
	for name, key := range map[string]string{"no such key": "errand_wrong", "a pool's": d.key(t, store.Key{Scope: store.ScopePool, Kinds: []string{"echo"}})} {
		if out, errs, code := d.command(t, key, "get", id); code != exitDenied {
			t.Errorf("%s: exit %d: %s%s", name, code, out, errs)
		}
	}
}

func TestPayloadFromStandardInput(t *testing.T) {
	d := deploy(t)
	stdin := os.Stdin
	defer func() { os.Stdin = stdin }()
	for size, want := range map[int]int{256 << 10: 0, 256<<10 + 1: exitUsage} {
		f := tempFile(t)
		if _, err := f.WriteString(strings.Repeat("x", size)); err != nil {
			t.Fatal(err)
		}
		if _, err := f.Seek(0, 0); err != nil {
			t.Fatal(err)
		}
		os.Stdin = f
		d.submit(t, errand.Spec{Kind: "echo"}) // the instance has its session
		if out, errs, code := d.command(t, d.cfg.Key, "submit", "echo", "-"); code != want {
			t.Errorf("%d bytes: exit %d, want %d: %s%s", size, code, want, out, errs)
		}
	}
}

// What an operator does: tenants, keys, workers, the audit.
func TestOperatorCommands(t *testing.T) {
	d := deploy(t)
	d.work(t, errand.WorkerConfig{
		Name: "an\x1b[2Jna", Zone: "eu-a", Labels: map[string]string{"disk": "ssd"}, Capacity: &errand.Capacity{CPUMilli: 1500, MemoryMiB: 512, GPUs: 1, Slots: 8},
	}, map[string]errand.Handler{
		"echo": func(context.Context, *errand.Attempt) (errand.Result, error) { return errand.Result{}, nil },
	})
	d.wait(t, d.submit(t, errand.Spec{Kind: "echo"}))
	admin := d.key(t, store.Key{Scope: store.ScopeAdmin})
	steps := []struct {
		name string
		args []string
		code int
		want string
	}{
		{"a tenant", []string{"tenant", "create", "globex", "--weight", "2"}, 0, "globex"},
		{"the same again", []string{"tenant", "create", "globex"}, exitFailed, "exists"},
		{"a bad name", []string{"tenant", "create", "Globex!"}, exitUsage, "name"},
		{"a change", []string{"tenant", "update", "globex", "--weight", "3"}, 0, "3"},
		{"a change of nobody", []string{"tenant", "update", "nobody", "--weight", "3"}, exitNotFound, "tenant"},
		{"all tenants", []string{"tenant", "list", "-o", "json"}, 0, "acme"},
		{"a key of nobody", []string{"key", "create", "tenant", "--tenant", "nobody"}, exitNotFound, "tenant"},
		{"a scope that does not exist", []string{"key", "create", "root"}, exitUsage, "scope"},
		{"all keys", []string{"key", "list"}, 0, "admin"},
		{"no such key", []string{"key", "revoke", "nonsense"}, exitNotFound, "key"},
		{"workers", []string{"workers"}, 0, "an [2Jna"},
		{"the audit", []string{"audit"}, 0, "acme"},
	}
	for _, s := range steps {
		out, errs, code := d.command(t, admin, s.args...)
		if code != s.code || !strings.Contains(out+errs, s.want) {
			t.Errorf("%s: exit %d, want %d and %q:\n%s%s", s.name, code, s.code, s.want, out, errs)
		}
	}
	d.operateWorker(t, admin)
	out, errs, code := d.command(t, admin, "key", "create", "tenant", "--tenant", "globex", "-o", "json")
	var made struct {
		KeyID  string `json:"key_id"`
		Secret string `json:"secret"`
	}
	if err := json.Unmarshal([]byte(out), &made); err != nil || code != 0 {
		t.Fatalf("exit %d: %v: %s%s", code, err, out, errs)
	}
	if out, errs, code := d.command(t, made.Secret, "list"); code != 0 {
		t.Errorf("the new key: exit %d: %s%s", code, out, errs)
	}
	if out, errs, code := d.command(t, made.Secret, "tenant", "list"); code != exitDenied {
		t.Errorf("a tenant as operator: exit %d: %s%s", code, out, errs)
	}
	if _, errs, code := d.command(t, admin, "key", "revoke", made.KeyID); code != 0 {
		t.Errorf("revoke: exit %d: %s", code, errs)
	}
	if out, _, _ := d.command(t, admin, "key", "list"); strings.Contains(out, made.Secret) {
		t.Error("a list of keys shows a secret")
	}
}

// operateWorker does with the only worker what an operator may do.
func (d *deployment) operateWorker(t *testing.T, admin string) {
	t.Helper()
	list := func() workerView {
		t.Helper()
		out, errs, code := d.command(t, admin, "workers", "-o", "json")
		var workers []workerView
		if err := json.Unmarshal([]byte(out), &workers); err != nil || code != 0 || len(workers) != 1 {
			t.Fatalf("exit %d: %v: %s%s", code, err, out, errs)
		}
		return workers[0]
	}
	w := list()
	if w.Zone != "eu-a" || w.Labels["disk"] != "ssd" || *w.Capacity != (capacityView{1500, 512, 1, 8}) || w.Version == "" || w.Cordoned {
		t.Errorf("the worker is %+v", w)
	}
	const unknown = "9b2c4f1e-8a3d-4c5b-9e7f-0a1b2c3d4e5f"
	for _, s := range []struct {
		name string
		args []string
		code int
		want string
	}{
		{"a list", []string{"workers", "list"}, 0, "cpu 1.5 mem 512Mi gpu 1 slots 8  connected"},
		{"labels", []string{"workers", "label", w.Worker, "--set", "disk=worn", "--set", "canary=yes", "--remove", "arch"}, 0, "canary=yes,disk=worn"},
		{"no labels", []string{"workers", "label", w.Worker}, exitUsage, "--set"},
		{"a cordon", []string{"workers", "cordon", w.Worker}, 0, "cordoned"},
		{"a cordon in JSON", []string{"workers", "cordon", w.Worker, "-o", "json"}, 0, `"cordoned": true`},
		{"no cordon", []string{"workers", "uncordon", w.Worker}, 0, "connected"},
		{"nobody's cordon", []string{"workers", "cordon", unknown}, exitNotFound, unknown},
		{"no worker's name", []string{"workers", "cordon", "w1"}, exitUsage, "worker"},
		{"a drain of nobody", []string{"workers", "drain", unknown}, exitNotFound, unknown},
		{"a drain", []string{"workers", "drain", w.Worker}, 0, "draining"},
	} {
		out, errs, code := d.command(t, admin, s.args...)
		if code != s.code || !strings.Contains(out+errs, s.want) {
			t.Errorf("%s: exit %d, want %d and %q:\n%s%s", s.name, code, s.code, s.want, out, errs)
		}
	}
	if w = list(); !w.Draining || w.Cordoned || w.Labels["canary"] != "yes" {
		t.Errorf("in the end the worker is %+v", w)
	}
}
