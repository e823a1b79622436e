package main

import (
	"context"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// throughputCmd measures tasks per second from submit to recorded end, beside raw SQL and the peers on the same server.
type throughputCmd struct {
	JSON   string   `help:"Write the results to this file." placeholder:"FILE"`
	Rounds int      `help:"How often each contender runs; the median counts." default:"3"`
	Tasks  int      `help:"Tasks of one run." default:"200000"`
	Batch  int      `help:"Tasks of one submission." default:"1000"`
	Slots  int      `help:"Slots of the worker." default:"10000"`
	Bytes  int      `help:"Bytes of a payload." default:"100"`
	Only   []string `help:"Run only these contenders: ${contenders}." placeholder:"NAME"`
	Pprof  string   `help:"Keep a CPU profile of the scheduler and the worker of each run in this folder." placeholder:"DIR"`
	Keep   bool     `help:"Keep the servers' logs."`
}

// contender is one way to bring tasks to their end.
type contender struct {
	name  string
	about string
	run   func(ctx context.Context, b *bench) (measured, error)
}

var contenders = []contender{
	{"rawsql", "Errand's table, and SQL alone: insert, claim, complete", runRawSQL},
	{"river", "River, inserting while it works", peer("river", "mixed")},
	{"river_backlog", "River, everything inserted first", peer("river", "backlog")},
	{"asynq", "asynq on Redis (not durable)", peer("asynq", "mixed")},
	{"errand", "Errand, closed loop: as many outstanding as standard work may run at once", func(ctx context.Context, b *bench) (measured, error) {
		return b.runErrand(ctx, load{slots: b.Slots})
	}},
	{"errand_backlog", "Errand, everything submitted first", func(ctx context.Context, b *bench) (measured, error) {
		return b.runErrand(ctx, load{slots: b.Slots, backlog: true})
	}},
	{"errand_keyed", "Errand, each task with an idempotency key", func(ctx context.Context, b *bench) (measured, error) {
		return b.runErrand(ctx, load{slots: b.Slots, keyed: true})
	}},
	{"errand_500slots", "Errand, closed loop of 500 slots", func(ctx context.Context, b *bench) (measured, error) {
		return b.runErrand(ctx, load{slots: 500})
	}},
}

func contenderNames() string {
	names := make([]string, len(contenders))
	for i, c := range contenders {
		names[i] = c.name
	}
	return strings.Join(names, ", ")
}

// measured is what one run of one contender gave.
type measured struct {
	PerS    float64            `json:"per_s"`
	CPU     map[string]float64 `json:"cpu_us_per_task"` // by process
	WAL     float64            `json:"wal_bytes_per_task"`
	Seconds float64            `json:"seconds"`
}

// bench is the server on which contenders run, one after the other, each with a database of its own.
type bench struct {
	throughputCmd
	*cluster
	name  string // of the contender
	round int
}

// Run measures.
func (c *throughputCmd) Run(ctx context.Context) error {
	if c.Rounds < 1 || c.Tasks < c.Batch || c.Batch < 1 || c.Batch > 1000 || c.Slots < c.Batch || c.Bytes < 0 {
		return fmt.Errorf("rounds are at least 1, a batch 1 to 1,000 tasks, slots and tasks at least a batch")
	}
	chosen, err := c.chosen()
	if err != nil {
		return err
	}
	if c.Pprof != "" {
		if err := os.MkdirAll(c.Pprof, 0o755); err != nil {
			return fmt.Errorf("--pprof: %w", err)
		}
	}
	dir, err := workFolder("throughput")
	if err != nil {
		return err
	}
	cl, err := startServers(ctx, dir)
	if err != nil {
		return err
	}
	defer cl.stop()
	if err := buildPeers(ctx, cl); err != nil {
		return err
	}
	runs := map[string][]measured{}
	bar := progress(c.Rounds*len(chosen), "")
	for round := range c.Rounds {
		for _, one := range chosen {
			bar.Describe(fmt.Sprintf("%-16s", one.name))
			got, err := one.run(ctx, &bench{throughputCmd: *c, cluster: cl, name: one.name, round: round})
			if err != nil {
				return fmt.Errorf("%s: %w (logs in %s)", one.name, err, dir)
			}
			runs[one.name] = append(runs[one.name], got)
			_ = bar.Add(1) // it draws only
		}
	}
	_ = bar.Finish()
	if err := c.report(ctx, cl, runs); err != nil {
		return err
	}
	if c.Keep {
		fmt.Fprintln(os.Stderr, "logs in", dir)
		return nil
	}
	return os.RemoveAll(dir)
}

func (c *throughputCmd) chosen() ([]contender, error) {
	if len(c.Only) == 0 {
		return contenders, nil
	}
	var chosen []contender
	for _, name := range c.Only {
		at := slices.IndexFunc(contenders, func(one contender) bool { return one.name == name })
		if at < 0 {
			return nil, fmt.Errorf("--only: there is no contender %q: %s", name, contenderNames())
		}
		chosen = append(chosen, contenders[at])
	}
	return chosen, nil
}

// ratio compares two contenders round by round, since only what ran close together met the same machine.
func ratio(runs map[string][]measured, of, to string) float64 {
	var ratios []float64
	for i := range min(len(runs[of]), len(runs[to])) {
		ratios = append(ratios, runs[of][i].PerS/runs[to][i].PerS)
	}
	return round3(median(ratios))
}

func median(all []float64) float64 {
	if len(all) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(all))
	mid := len(sorted) / 2
	if len(sorted)%2 == 1 {
		return sorted[mid]
	}
	return (sorted[mid-1] + sorted[mid]) / 2
}

func round3(x float64) float64 { return math.Round(x*1000) / 1000 }

func (c *throughputCmd) report(ctx context.Context, cl *cluster, runs map[string][]measured) error {
	out := map[string]any{
		"scenario": "throughput", "machine": machineFacts(ctx, cl), "commit": commit(), "rounds": c.Rounds, "tasks": c.Tasks,
		"batch": c.Batch, "slots": c.Slots, "outstanding": outstandingOf(c.Slots), "payload_bytes": c.Bytes, "runs": runs,
	}
	w := newTable("CONTENDER", "TASKS/S", "RUNS", "CPU US/TASK", "WAL B/TASK")
	for _, one := range contenders {
		got := runs[one.name]
		if len(got) == 0 {
			continue
		}
		rate := median(column(got, func(m measured) float64 { return m.PerS }))
		out[one.name+"_per_s"] = math.Round(rate)
		w.row(one.name, fmt.Sprintf("%.0f", rate), perRun(got), perProcess(got),
			fmt.Sprintf("%.0f", median(column(got, func(m measured) float64 { return m.WAL }))))
	}
	w.flush()
	w = newTable("RATIO", "VALUE", "GOAL")
	for _, r := range []struct{ key, of, to, goal string }{
		{"ratio_river", "errand", "river", ">= 3"},
		{"ratio_rawsql", "errand", "rawsql", ">= 0.8"},
		{"ratio_river_backlog", "errand_backlog", "river", ">= 2"},
		{"ratio_rawsql_backlog", "errand_backlog", "rawsql", ">= 0.55"},
		{"ratio_river_500slots", "errand_500slots", "river", ">= 1.6"},
		{"ratio_river_backlog_both", "errand_backlog", "river_backlog", "told"},
		{"ratio_river_keyed", "errand_keyed", "river", "told"},
	} {
		if x := ratio(runs, r.of, r.to); x > 0 {
			out[r.key] = x
			w.row(r.key, fmt.Sprintf("%.2f", x), r.goal)
		}
	}
	w.flush()
	return writeJSON(c.JSON, out)
}

func column[T any](all []T, of func(T) float64) []float64 {
	out := make([]float64, len(all))
	for i, m := range all {
		out[i] = of(m)
	}
	return out
}

func perRun(all []measured) string {
	var parts []string
	for _, m := range all {
		parts = append(parts, fmt.Sprintf("%.0fk", m.PerS/1000))
	}
	return strings.Join(parts, " ")
}

// perProcess shows the median CPU time of each process.
func perProcess(all []measured) string {
	var parts []string
	for _, process := range []string{"postgres", "scheduler", "worker", "submitter", "peer", "redis"} {
		cpu := median(column(all, func(m measured) float64 { return m.CPU[process] }))
		if cpu > 0 {
			parts = append(parts, fmt.Sprintf("%s %.1f", process, cpu))
		}
	}
	return strings.Join(parts, ", ")
}

// workFolder makes a folder that the servers' own user may enter.
func workFolder(name string) (string, error) {
	dir, err := os.MkdirTemp("", "errand-"+name+"-")
	if err != nil {
		return "", err
	}
	return dir, os.Chmod(filepath.Clean(dir), 0o755)
}

// within is how long one run may take before it counts as hung.
const within = 5 * time.Minute
