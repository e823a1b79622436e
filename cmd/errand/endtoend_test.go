package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"testing"
	"time"

	"github.com/errandhq/errand"
	"github.com/errandhq/errand/internal/api"
	"github.com/errandhq/errand/internal/store"
	"github.com/errandhq/errand/internal/telemetry"
	"github.com/errandhq/errand/internal/testdb"
)

// mainVariable makes this test binary errand itself, for tests of whole processes.
const mainVariable = "TEST_BINARY_IS_ERRAND"

func TestMain(m *testing.M) {
	if os.Getenv(mainVariable) != "" {
		main()
	}
	if err := os.Setenv(devEnvVariable, ""); err != nil { // whatever runs in the folders above
		panic(err)
	}
	testdb.Main(m, func(ctx context.Context, dsn string) error {
		_, err := store.Migrate(ctx, dsn, slog.New(slog.DiscardHandler))
		return err
	})
}

const patience = 30 * time.Second

// deployment is a whole scheduler instance on a database of its own, and a client of one tenant.
type deployment struct {
	cfg    errand.Config
	client *errand.Client
	store  *store.Store
	stop   func() // politely
}

func deploy(t *testing.T) *deployment {
	t.Helper()
	return deployOn(t, testdb.New(t, testdb.ReadCommitted), "")
}

// deployOn starts an instance on a database; key is the tenant's, empty for a new one.
func deployOn(t *testing.T, dsn, key string) *deployment {
	t.Helper()
	return deployWith(t, dsn, key, "")
}

// deployWith starts an instance that has a Redis, when its URL is not empty.
func deployWith(t *testing.T, dsn, key, redis string) *deployment {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	st, err := store.Open(ctx, store.Config{URL: dsn, Trace: func(string, time.Duration, error) {}})
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	log := slog.New(slog.DiscardHandler)
	tel, err := telemetry.Start(ctx, telemetry.Config{ServiceName: "errand", Region: "local", Log: log})
	if err != nil {
		t.Fatal(err)
	}
	c := &serveCmd{Region: "local", Redis: redis, ShutdownGrace: 10 * time.Second, Retention: store.RetentionMin, PeerSecret: "secret", Timing: timingSettings{
		SessionTTL: 6 * time.Second, SessionRenew: 2 * time.Second, SessionMargin: 1500 * time.Millisecond,
		ReattachGrace: 6 * time.Second, WorkerLease: 10 * time.Second, Heartbeat: 3 * time.Second,
	}}
	served := make(chan error, 1)
	go func() { served <- c.serve(ctx, log, tel, st, l) }()
	stopped := false
	d := &deployment{store: st, cfg: errand.Config{URLs: []string{"http://" + l.Addr().String()}, Key: key}}
	d.stop = func() {
		if stopped {
			return
		}
		stopped = true
		cancel()
		if err := <-served; err != nil {
			t.Errorf("serve: %v", err)
		}
		if err := tel.Shutdown(context.Background()); err != nil {
			t.Errorf("telemetry: %v", err)
		}
		st.Close()
	}
	t.Cleanup(d.stop)
	if key == "" {
		d.cfg.Key = tenantKey(t, st)
	}
	if d.client, err = errand.NewClient(d.cfg); err != nil {
		t.Fatal(err)
	}
	return d
}

func tenantKey(t *testing.T, st *store.Store) string {
	t.Helper()
	ctx := context.Background()
	if _, err := st.CreateTenant(ctx, store.Tenant{Name: "acme", HomeRegion: "local", Weight: 1}); err != nil {
		t.Fatal(err)
	}
	secret, hash := api.NewSecret()
	if err := st.CreateKey(ctx, store.Key{ID: api.NewKeyID(), Hash: hash, Scope: store.ScopeTenant, Tenant: "acme"}); err != nil {
		t.Fatal(err)
	}
	return secret
}

// submit stores a task; the first tries may come before the instance has its session.
func (d *deployment) submit(t *testing.T, spec errand.Spec) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	got, err := d.client.Submit(ctx, spec)
	if err != nil {
		t.Fatal(err)
	}
	return got.ID
}

func (d *deployment) wait(t *testing.T, id string) errand.Task {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	task, err := d.client.Wait(ctx, id)
	if err != nil {
		t.Fatalf("wait for %s: %v; it is %+v", id, err, task)
	}
	return task
}

// work runs a worker until the test ends, or stop is called.
func (d *deployment) work(t *testing.T, cfg errand.WorkerConfig, handlers map[string]errand.Handler) (w *errand.Worker, stop func()) {
	t.Helper()
	cfg.Config = d.cfg
	w, err := errand.NewWorker(cfg)
	if err != nil {
		t.Fatal(err)
	}
	for kind, h := range handlers {
		w.Handle(kind, 10, h)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- w.Run(ctx) }()
	stopped := false
	stop = func() {
		if stopped {
			return
		}
		stopped = true
		cancel()
		select {
		case err := <-done:
			if err != nil {
				t.Errorf("worker: %v", err)
			}
		case <-time.After(patience):
			t.Error("the worker did not end")
		}
	}
	t.Cleanup(stop)
	return w, stop
}

// Every way in which a handler can end, from the SDK to the row and back.
func TestHowHandlersEnd(t *testing.T) {
	d := deploy(t)
	soon := errand.Retry{Initial: time.Millisecond, Max: 10 * time.Millisecond}
	d.work(t, errand.WorkerConfig{}, map[string]errand.Handler{
		"ok": func(_ context.Context, a *errand.Attempt) (errand.Result, error) {
			return errand.Result{Data: a.Payload}, nil
		},
		"fails": func(context.Context, *errand.Attempt) (errand.Result, error) {
			return errand.Result{}, errors.New("a\x00b\xff")
		},
		"final": func(context.Context, *errand.Attempt) (errand.Result, error) {
			return errand.Result{}, errand.NonRetryable(errand.WithReason(errors.New("no"), "no_such_user"))
		},
		"panics": func(context.Context, *errand.Attempt) (errand.Result, error) { panic("oh") },
		"second": func(_ context.Context, a *errand.Attempt) (errand.Result, error) {
			if a.Number == 1 {
				return errand.Result{}, errors.New("not yet")
			}
			return errand.Result{Data: fmt.Appendf(nil, "counted %d", a.Counted)}, nil
		},
		"snoozes": func(_ context.Context, a *errand.Attempt) (errand.Result, error) {
			if a.Number < 4 {
				return errand.Result{}, errand.Snooze(time.Millisecond)
			}
			return errand.Result{Data: fmt.Appendf(nil, "counted %d", a.Counted)}, nil
		},
		"slow": func(ctx context.Context, _ *errand.Attempt) (errand.Result, error) {
			<-ctx.Done()
			return errand.Result{}, context.Cause(ctx)
		},
		"large": func(context.Context, *errand.Attempt) (errand.Result, error) {
			return errand.Result{Data: make([]byte, 256<<10+1)}, nil
		},
	})
	tests := map[string]struct {
		spec    errand.Spec
		state   errand.State
		reason  string
		attempt int64
		result  string
	}{
		"succeeds":               {errand.Spec{Kind: "ok", Payload: []byte("\x00{\"id\":9007199254740993}\xff")}, errand.Succeeded, "", 1, "\x00{\"id\":9007199254740993}\xff"},
		"fails to the end":       {errand.Spec{Kind: "fails", MaxAttempts: 3, Retry: soon}, errand.Failed, "handler_error", 3, ""},
		"fails for good":         {errand.Spec{Kind: "final", MaxAttempts: 3}, errand.Failed, "no_such_user", 1, ""},
		"panics":                 {errand.Spec{Kind: "panics", MaxAttempts: 2, Retry: soon}, errand.Failed, "panic", 2, ""},
		"succeeds at the second": {errand.Spec{Kind: "second", Retry: soon}, errand.Succeeded, "", 2, "counted 1"},
		"snoozes three times":    {errand.Spec{Kind: "snoozes", MaxAttempts: 1}, errand.Succeeded, "", 4, "counted 0"},
		"runs into its timeout":  {errand.Spec{Kind: "slow", AttemptTimeout: 100 * time.Millisecond, MaxAttempts: 1}, errand.Failed, "timeout", 1, ""},
		"returns too much":       {errand.Spec{Kind: "large", MaxAttempts: 3}, errand.Failed, "bad_result", 1, ""},
		"is put off, and runs":   {errand.Spec{Kind: "ok", Delay: 50 * time.Millisecond}, errand.Succeeded, "", 1, ""},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			got := d.wait(t, d.submit(t, tt.spec))
			if got.State != tt.state || got.Reason != tt.reason || got.Attempt != tt.attempt || string(got.Result) != tt.result {
				t.Errorf("%v, reason %q, attempt %d, result %q (%s); want %v, %q, %d, %q",
					got.State, got.Reason, got.Attempt, got.Result, got.Message, tt.state, tt.reason, tt.attempt, tt.result)
			}
		})
	}
}

// B50: a task that nobody serves expires at its start_by, and is never run.
func TestUselessWhenLate(t *testing.T) {
	d := deploy(t)
	id := d.submit(t, errand.Spec{Kind: "nobody", StartWithin: 300 * time.Millisecond})
	if got := d.wait(t, id); got.State != errand.Expired || got.Attempt != 0 {
		t.Errorf("%v after %d attempts, want expired after none", got.State, got.Attempt)
	}
}

// B32: a running task is told to stop; one that succeeds all the same has succeeded.
func TestCancelOfARunningTask(t *testing.T) {
	d := deploy(t)
	started := make(chan string, 2)
	d.work(t, errand.WorkerConfig{}, map[string]errand.Handler{
		"obeys": func(ctx context.Context, a *errand.Attempt) (errand.Result, error) {
			started <- a.TaskID
			<-ctx.Done()
			if !errors.Is(context.Cause(ctx), errand.ErrCanceled) {
				t.Errorf("cause %v, want ErrCanceled", context.Cause(ctx))
			}
			return errand.Result{}, context.Cause(ctx)
		},
		"stubborn": func(ctx context.Context, a *errand.Attempt) (errand.Result, error) {
			started <- a.TaskID
			<-ctx.Done()
			return errand.Result{Data: []byte("done anyway")}, nil
		},
	})
	for kind, want := range map[string]errand.State{"obeys": errand.Canceled, "stubborn": errand.Succeeded} {
		id := d.submit(t, errand.Spec{Kind: kind})
		<-started
		a, err := d.client.Cancel(context.Background(), id, "enough")
		if err != nil || !a.Accepted || a.State != errand.Running {
			t.Errorf("%s: cancel %+v, %v", kind, a, err)
		}
		if got := d.wait(t, id); got.State != want {
			t.Errorf("%s: %v, want %v", kind, got.State, want)
		}
		if a, err := d.client.Cancel(context.Background(), id, "again"); err != nil || a.State != want || a.Accepted != (want == errand.Canceled) {
			t.Errorf("%s: cancel after its end: %+v, %v", kind, a, err)
		}
	}
}

// B45, B46: in a drain what ends by itself is reported as it ended, what is interrupted goes back uncounted, and nothing stays running.
func TestDrain(t *testing.T) {
	d := deploy(t)
	started := make(chan string, 4)
	release := make(chan struct{})
	end := func(r errand.Result, err error) errand.Handler {
		return func(_ context.Context, a *errand.Attempt) (errand.Result, error) {
			started <- a.TaskID
			<-release
			return r, err
		}
	}
	w, stop := d.work(t, errand.WorkerConfig{DrainGrace: patience, StopGrace: patience}, map[string]errand.Handler{
		"succeeds": end(errand.Result{Data: []byte("ok")}, nil),
		"fails":    end(errand.Result{}, errand.NonRetryable(errors.New("by itself"))),
		"panics": func(_ context.Context, a *errand.Attempt) (errand.Result, error) {
			started <- a.TaskID
			<-release
			panic("by itself")
		},
		"runs-on": func(ctx context.Context, a *errand.Attempt) (errand.Result, error) {
			started <- a.TaskID
			<-ctx.Done()
			return errand.Result{}, context.Cause(ctx)
		},
	})
	ids := map[string]string{}
	for _, kind := range []string{"succeeds", "fails", "panics", "runs-on"} {
		ids[kind] = d.submit(t, errand.Spec{Kind: kind, MaxAttempts: 1})
		<-started
	}
	done := make(chan struct{})
	go func() {
		stop()
		close(done)
	}()
	close(release)
	for kind, want := range map[string]errand.State{"succeeds": errand.Succeeded, "fails": errand.Failed, "panics": errand.Failed} {
		if got := d.wait(t, ids[kind]); got.State != want || got.Attempt != 1 {
			t.Errorf("%s: %v at attempt %d, want %v at 1", kind, got.State, got.Attempt, want)
		}
	}
	w.HandBack() // as a second signal does
	<-done
	got, err := d.client.Get(context.Background(), ids["runs-on"])
	if err != nil || got.State != errand.Ready || got.CountedAttempts != 0 || got.Reason != "drained" {
		t.Errorf("the interrupted one: %v, counted %d, reason %q, %v; want ready, 0, drained", got.State, got.CountedAttempts, got.Reason, err)
	}
}

// A polite restart of the only scheduler costs no attempt: its worker takes what it runs to the next one.
func TestARollingRestartBurnsNothing(t *testing.T) {
	dsn := testdb.New(t, testdb.ReadCommitted)
	first := deployOn(t, dsn, "")
	second := deployOn(t, dsn, first.cfg.Key)
	first.cfg.URLs = append(first.cfg.URLs, second.cfg.URLs...)
	started, release := make(chan struct{}, 1), make(chan struct{})
	first.work(t, errand.WorkerConfig{}, map[string]errand.Handler{
		"long": func(context.Context, *errand.Attempt) (errand.Result, error) {
			started <- struct{}{}
			<-release
			return errand.Result{Data: []byte("kept")}, nil
		},
	})
	id := first.submit(t, errand.Spec{Kind: "long", MaxAttempts: 1})
	<-started
	first.stop()
	close(release)
	got := second.wait(t, id)
	if got.State != errand.Succeeded || got.Attempt != 1 || got.CountedAttempts != 0 || string(got.Result) != "kept" {
		t.Errorf("%v at attempt %d, counted %d, result %q; want succeeded at 1, 0, kept", got.State, got.Attempt, got.CountedAttempts, got.Result)
	}
}

// A cordon and an operator's labels, laid over a worker by way of an instance that does not have it, are still there when its scheduler is
// gone, since the worker carries them to the next one.
func TestACordonOutlivesAScheduler(t *testing.T) {
	dsn := testdb.New(t, testdb.ReadCommitted)
	first := deployOn(t, dsn, "")
	second := deployOn(t, dsn, first.cfg.Key)
	first.cfg.URLs = append(first.cfg.URLs, second.cfg.URLs...)
	w, _ := first.work(t, errand.WorkerConfig{Labels: map[string]string{"disk": "ssd"}}, map[string]errand.Handler{
		"echo": func(context.Context, *errand.Attempt) (errand.Result, error) { return errand.Result{}, nil },
	})
	first.wait(t, first.submit(t, errand.Spec{Kind: "echo"}))
	admin := second.key(t, store.Key{Scope: store.ScopeAdmin})
	shown := func() workerView {
		t.Helper()
		for deadline := time.Now().Add(patience); time.Now().Before(deadline); <-time.After(20 * time.Millisecond) {
			out, errs, code := second.command(t, admin, "workers", "-o", "json")
			var workers []workerView
			if err := json.Unmarshal([]byte(out), &workers); err != nil || code != 0 {
				t.Fatalf("exit %d: %v: %s%s", code, err, out, errs)
			}
			if len(workers) == 1 && workers[0].Connected {
				return workers[0]
			}
		}
		t.Fatal("the worker is not in the list")
		return workerView{}
	}
	worker := shown().Worker
	for _, args := range [][]string{{"cordon", worker}, {"label", worker, "--set", "disk=worn"}} {
		if out, errs, code := second.command(t, admin, append([]string{"workers"}, args...)...); code != 0 {
			t.Fatalf("%v: exit %d: %s%s", args, code, out, errs)
		}
	}
	if err := w.SetCapacity(errand.Capacity{CPUMilli: 250}); err != nil {
		t.Fatal(err)
	}

	first.stop()
	got := shown()
	if !got.Cordoned || got.Labels["disk"] != "worn" || got.Capacity == nil || got.Capacity.CPUMilli != 250 {
		t.Errorf("at the next scheduler the worker is %+v", got)
	}
	id := second.submit(t, errand.Spec{Kind: "echo"})
	if task, err := second.client.Get(context.Background(), id); err != nil || task.State != errand.Ready {
		t.Errorf("a task is %v, %v, and the only worker is cordoned", task.State, err)
	}
	if out, errs, code := second.command(t, admin, "workers", "uncordon", worker); code != 0 {
		t.Fatalf("exit %d: %s%s", code, out, errs)
	}
	second.wait(t, id)
}
