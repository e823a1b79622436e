package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
	"golang.org/x/sync/errgroup"

	"github.com/errandhq/errand"
)

// crashCmd runs the crash scenarios.
type crashCmd struct {
	JSON  string        `help:"Write the results to this file." placeholder:"FILE"`
	Only  []string      `help:"Run only these scenarios."`
	Tasks int           `help:"Tasks per scenario." default:"5000"`
	Rate  int           `help:"Tasks submitted per second." default:"400"`
	Limit time.Duration `help:"When a scenario that has not ended is given up." default:"150s"`
	Keep  bool          `help:"Keep the logs."`
}

// scenario is a fault under load.
type scenario struct {
	name  string
	about string
	// free says that the fault must not cost any attempt. A scheduler that is killed or stopped holds assignments that were on their
	// way: nobody can tell whether they run, so they count.
	free  bool
	fault func(ctx context.Context, c *cluster) error
}

// Times of the faults: the defaults of the product are a lease of 10 s and a session of 6 s.
const (
	faultAfter   = 3 * time.Second
	storeAway    = 20 * time.Second
	workerPause  = 20 * time.Second
	sessionPause = 12 * time.Second
	politeLimit  = 40 * time.Second
)

var scenarios = []scenario{
	{"calm", "no fault: the measure of the others", true, func(context.Context, *cluster) error { return nil }},
	{"kill_worker", "SIGKILL one of three workers", false, func(_ context.Context, c *cluster) error {
		c.workers[0].kill()
		return nil
	}},
	{"kill_scheduler", "SIGKILL one of two schedulers", false, func(_ context.Context, c *cluster) error {
		c.schedulers[0].kill()
		return nil
	}},
	{"kill_schedulers", "SIGKILL both schedulers, start them 5 s later", false, func(ctx context.Context, c *cluster) error {
		for _, p := range c.schedulers {
			p.kill()
		}
		if err := pause(ctx, 5*time.Second); err != nil {
			return err
		}
		return startAll(c.schedulers)
	}},
	{"stop_store", "stop PostgreSQL for 20 s", true, func(ctx context.Context, c *cluster) error {
		c.postgres.Stop()
		if err := pause(ctx, storeAway); err != nil {
			return err
		}
		return c.postgres.Start(ctx)
	}},
	{"kill_store", "SIGKILL PostgreSQL, start it 2 s later", true, func(ctx context.Context, c *cluster) error {
		c.postgres.Kill()
		if err := pause(ctx, 2*time.Second); err != nil {
			return err
		}
		return c.postgres.Start(ctx)
	}},
	{"restart_redis", "kill Redis, start it empty", true, func(ctx context.Context, c *cluster) error {
		c.redis.Kill()
		if err := pause(ctx, 2*time.Second); err != nil {
			return err
		}
		return c.redis.Start(ctx)
	}},
	{"pause_worker", "SIGSTOP a worker for twice its lease", false, func(ctx context.Context, c *cluster) error {
		return stopFor(ctx, c.workers[0], workerPause)
	}},
	{"pause_scheduler", "SIGSTOP a scheduler for twice its session", false, func(ctx context.Context, c *cluster) error {
		return stopFor(ctx, c.schedulers[0], sessionPause)
	}},
	{"drain_worker", "SIGTERM a worker", true, func(_ context.Context, c *cluster) error {
		return c.workers[0].stop(politeLimit)
	}},
	{"roll_schedulers", "restart all schedulers politely, one after the other", true, func(ctx context.Context, c *cluster) error {
		for _, p := range c.schedulers {
			if err := p.stop(politeLimit); err != nil {
				return err
			}
			if err := p.start(); err != nil {
				return err
			}
			if err := c.ready(ctx); err != nil {
				return err
			}
		}
		return nil
	}},
}

func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}

func startAll(processes []*process) error {
	for _, p := range processes {
		if err := p.start(); err != nil {
			return err
		}
	}
	return nil
}

func stopFor(ctx context.Context, p *process, d time.Duration) error {
	p.signal(syscall.SIGSTOP)
	err := pause(ctx, d)
	p.signal(syscall.SIGCONT)
	return err
}

// result is what a scenario found.
type result struct {
	Name          string  `json:"name"`
	Accepted      int     `json:"accepted"`
	Ended         int     `json:"ended"`
	Lost          int     `json:"lost"`           // accepted, and not found succeeded
	EffectsTwice  int     `json:"effects_twice"`  // transfers beyond one per task
	AttemptsBurnt int     `json:"attempts_burnt"` // attempts that counted, though no handler failed
	RunsTwice     int     `json:"runs_twice"`     // handlers that ran again: wasted, not wrong
	RecoveredS    float64 `json:"recovered_s"`    // from the fault until all that was accepted before it had ended
	Audit         string  `json:"audit"`
	OK            bool    `json:"ok"`
}

// Run runs the scenarios.
func (c *crashCmd) Run(ctx context.Context) error {
	dir, err := workFolder("crash")
	if err != nil {
		return err
	}
	fmt.Fprintln(os.Stderr, "logs in", dir)
	cl, err := startServers(ctx, dir)
	if err != nil {
		return err
	}
	defer cl.stop()
	var results []result
	failed := false
	for _, s := range scenarios {
		if len(c.Only) > 0 && !slices.Contains(c.Only, s.name) {
			continue
		}
		fmt.Fprintf(os.Stderr, "%-16s %s ... ", s.name, s.about)
		r, err := c.run(ctx, cl, s)
		if err != nil {
			return fmt.Errorf("%s: %w", s.name, err)
		}
		fmt.Fprintf(os.Stderr, "lost %d, twice %d, burnt %d, recovered in %.1f s\n", r.Lost, r.EffectsTwice, r.AttemptsBurnt, r.RecoveredS)
		results = append(results, r)
		failed = failed || !r.OK
	}
	if err := c.write(results); err != nil {
		return err
	}
	if failed {
		return errors.New("a promise was broken: see the table")
	}
	if !c.Keep {
		return os.RemoveAll(dir)
	}
	return nil
}

// run is one scenario: load, fault, and the count afterwards.
func (c *crashCmd) run(ctx context.Context, cl *cluster, s scenario) (result, error) {
	ctx, cancel := context.WithTimeout(ctx, c.Limit)
	defer cancel()
	if err := cl.fresh(ctx, "crash_"+s.name, 2, 3); err != nil {
		return result{}, err
	}
	client, err := errand.NewClient(errand.Config{URLs: cl.urls, Key: cl.tenant})
	if err != nil {
		return result{}, err
	}
	accepted := map[string]bool{}
	var faultAt time.Time
	group, groupCtx := errgroup.WithContext(ctx)
	group.Go(func() error { return c.submit(groupCtx, client, accepted) })
	group.Go(func() error {
		if err := pause(groupCtx, faultAfter); err != nil {
			return err
		}
		faultAt = time.Now()
		return s.fault(groupCtx, cl)
	})
	if err := group.Wait(); err != nil {
		return result{}, err
	}
	tasks, err := c.settle(ctx, client, len(accepted))
	if err != nil {
		return result{}, err
	}
	r := count(s.name, accepted, tasks, faultAt)
	if err := effects(ctx, cl, &r); err != nil {
		return result{}, err
	}
	audit, err := cl.errand(ctx, []string{"ERRAND_KEY=" + cl.admin, "ERRAND_URL=" + cl.urls[len(cl.urls)-1]}, "audit")
	r.Audit = "ok"
	if err != nil {
		r.Audit = strings.TrimSpace(string(audit)) + " " + err.Error()
	}
	r.OK = r.Lost == 0 && r.EffectsTwice == 0 && r.Ended == r.Accepted && r.Audit == "ok" && (!s.free || r.AttemptsBurnt == 0)
	return r, cl.end(context.WithoutCancel(ctx))
}

// submit hands tasks over at the rate, as a careful client does: with idempotency keys, again and again until accepted.
func (c *crashCmd) submit(ctx context.Context, client *errand.Client, accepted map[string]bool) error {
	const batch = 20
	every := time.NewTicker(time.Second * batch / time.Duration(max(c.Rate, batch)))
	defer every.Stop()
	for n := 0; n < c.Tasks; n += batch {
		specs := make([]errand.Spec, min(batch, c.Tasks-n))
		for i := range specs {
			specs[i] = errand.Spec{Kind: "transfer", IdempotencyKey: fmt.Sprintf("transfer-%d", n+i)}
		}
		for len(specs) > 0 {
			var err error
			if specs, err = c.offer(ctx, client, specs, accepted); err != nil {
				return err
			}
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-every.C:
		}
	}
	return nil
}

// offer submits once and returns what was not accepted.
func (c *crashCmd) offer(ctx context.Context, client *errand.Client, specs []errand.Spec, accepted map[string]bool) ([]errand.Spec, error) {
	outcomes, err := client.SubmitMany(ctx, specs)
	if err != nil {
		return specs, pause(ctx, 200*time.Millisecond)
	}
	var rest []errand.Spec
	for i, o := range outcomes {
		if o.Err != nil {
			rest = append(rest, specs[i])
			continue
		}
		accepted[o.ID] = true
	}
	if len(rest) > 0 {
		return rest, pause(ctx, 200*time.Millisecond)
	}
	return nil, nil
}

// settle waits until nothing is open any more, or the scenario's time is up, and returns all tasks.
func (c *crashCmd) settle(ctx context.Context, client *errand.Client, want int) ([]errand.Task, error) {
	for {
		open := 0
		listCtx, cancel := context.WithTimeout(ctx, 20*time.Second)
		for _, err := range client.List(listCtx, errand.Filter{States: []errand.State{errand.Scheduled, errand.Ready, errand.Running}}) {
			if err != nil {
				open = -1
				break
			}
			open++
		}
		cancel()
		if open == 0 || ctx.Err() != nil {
			break
		}
		if pause(ctx, 300*time.Millisecond) != nil {
			break
		}
	}
	all := make([]errand.Task, 0, want)
	for t, err := range client.List(context.WithoutCancel(ctx), errand.Filter{}) {
		if err != nil {
			return nil, err
		}
		all = append(all, t)
	}
	return all, nil
}

func count(name string, accepted map[string]bool, tasks []errand.Task, faultAt time.Time) result {
	r := result{Name: name, Accepted: len(accepted)}
	found := map[string]bool{}
	for _, t := range tasks {
		if t.State.Ended() {
			r.Ended++
		}
		if t.State == errand.Succeeded {
			found[t.ID] = true
		}
		r.AttemptsBurnt += t.CountedAttempts
		if t.CreatedAt.Before(faultAt) && t.EndedAt.After(faultAt) {
			r.RecoveredS = max(r.RecoveredS, t.EndedAt.Sub(faultAt).Seconds())
		}
	}
	for id := range accepted {
		if !found[id] {
			r.Lost++
		}
	}
	return r
}

// effects counts what happened in the user's database.
func effects(ctx context.Context, cl *cluster, r *result) error {
	conn, err := pgx.Connect(ctx, cl.postgres.DSN(cl.database+"_user"))
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close(ctx) }()
	return conn.QueryRow(ctx, `
		SELECT (SELECT count(*) - count(DISTINCT task) FROM transfers), (SELECT count(*) - count(DISTINCT task) FROM runs)`,
	).Scan(&r.EffectsTwice, &r.RunsTwice)
}

func (c *crashCmd) write(results []result) error {
	w := newTable("SCENARIO", "ACCEPTED", "ENDED", "LOST", "EFFECTS TWICE", "ATTEMPTS BURNT", "RUNS TWICE", "RECOVERED", "AUDIT", "OK")
	for _, r := range results {
		w.row(strings.Fields(fmt.Sprintf("%s %d %d %d %d %d %d %.1fs %s %v",
			r.Name, r.Accepted, r.Ended, r.Lost, r.EffectsTwice, r.AttemptsBurnt, r.RunsTwice, r.RecoveredS, strings.ReplaceAll(r.Audit, " ", "_"), r.OK))...)
	}
	w.flush()
	return writeJSON(c.JSON, map[string]any{"scenario": "crash", "machine": machine(), "commit": commit(), "runs": results})
}

func machine() string {
	return fmt.Sprintf("%s/%s, %d cores, %s", runtime.GOOS, runtime.GOARCH, runtime.NumCPU(), runtime.Version())
}

func commit() string {
	out, err := exec.Command("git", "rev-parse", "--short", "HEAD").Output()
	if err != nil {
		return "unknown"
	}
	return strings.TrimSpace(string(out))
}
