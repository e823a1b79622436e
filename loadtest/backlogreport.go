package main

import (
	"context"
	"fmt"
	"math"
	"slices"
)

// The goals: throughput beside the backlog by that without, and the scheduler's memory.
const (
	backlogRatioGoal = 0.8
	backlogRSSGoal   = 300.0
)

func (c *backlogCmd) report(ctx context.Context, cl *cluster, got backlogResult) error {
	out := map[string]any{
		"scenario": "backlog", "machine": machineFacts(ctx, cl), "commit": commit(), "rounds": c.Rounds, "tasks": c.Tasks,
		"small_tenants": c.Small, "measured_tasks": c.Measured, "slots": c.Slots, "outstanding": outstandingOf(c.Slots), "payload_bytes": c.Bytes,
		"quiet_per_s": c.Rate, "written_by": "SQL", "written_s": round3(got.written), "drained": got.drained, "runs": got.runs,
	}
	fmt.Printf("The backlog: %d tasks of one tenant, written by SQL in %.0f s, and one task each of %d others. %d of it were drained.\n\n",
		c.Tasks, got.written, c.Small, got.drained)
	speeds := map[string][]measured{}
	w := newTable("CASE", "TASKS/S", "RUNS", "CPU US/TASK", "WAL B/TASK", "RSS MIB")
	for _, one := range backlogCases {
		runs := got.runs[one.name]
		for _, r := range runs {
			speeds[one.name] = append(speeds[one.name], r.measured)
		}
		speed := speeds[one.name]
		rate, rss := median(column(speed, func(m measured) float64 { return m.PerS })), peakOf(runs)
		out[one.name+"_per_s"], out["scheduler_rss_"+one.name+"_mib"] = math.Round(rate), rss
		w.row(one.about, fmt.Sprintf("%.0f", rate), perRun(speed), perProcess(speed),
			fmt.Sprintf("%.0f", median(column(speed, func(m measured) float64 { return m.WAL }))), fmt.Sprintf("%.0f", rss))
	}
	w.flush()
	c.quietTable(got, out)
	c.goals(speeds, got, out)
	if err := c.draw(got).writeSVG(c.SVG); err != nil {
		return err
	}
	return writeJSON(c.JSON, out)
}

func peakOf(runs []backlogRun) float64 {
	if len(runs) == 0 {
		return 0
	}
	return slices.Max(column(runs, func(r backlogRun) float64 { return r.RSS }))
}

// quietTable shows the medians of the quiet tenant's waits.
func (c *backlogCmd) quietTable(got backlogResult, out map[string]any) {
	w := newTable("QUIET TENANT BESIDE", "TIER", "P50 MS", "P99 MS", "MAX MS", "TASKS", "MISSING")
	for _, one := range backlogCases {
		for i, tier := range []string{"urgent", "standard"} {
			of := func(value func(quietRun) float64) float64 {
				return round3(median(column(got.runs[one.name], func(r backlogRun) float64 { return value(r.Quiet[i]) })))
			}
			p50, p99 := of(func(q quietRun) float64 { return q.P50 }), of(func(q quietRun) float64 { return q.P99 })
			out[fmt.Sprintf("quiet_%s_%s_p50_ms", tier, one.name)], out[fmt.Sprintf("quiet_%s_%s_p99_ms", tier, one.name)] = p50, p99
			w.row(one.about, tier, fmt.Sprintf("%.2f", p50), fmt.Sprintf("%.2f", p99), fmt.Sprintf("%.1f", of(func(q quietRun) float64 { return q.Max })),
				fmt.Sprintf("%.0f", of(func(q quietRun) float64 { return float64(q.Submitted) })),
				fmt.Sprintf("%.0f", of(func(q quietRun) float64 { return float64(q.Missing) })))
		}
	}
	w.flush()
	worst := 0.0
	for _, name := range []string{caseDrain, caseBoth} {
		for _, tier := range []string{"urgent", "standard"} {
			worst = max(worst, out[fmt.Sprintf("quiet_%s_%s_p99_ms", tier, name)].(float64))
		}
	}
	out["quiet_p99_ms"] = worst
}

func (c *backlogCmd) goals(speeds map[string][]measured, got backlogResult, out map[string]any) {
	w := newTable("WHAT", "MEASURED", "GOAL")
	drain, rss := ratio(speeds, caseDrain, caseEmpty), max(peakOf(got.runs[caseDrain]), peakOf(got.runs[caseBoth]))
	out["throughput_ratio"], out["same_load_ratio"], out["length_ratio"] = drain, ratio(speeds, caseBoth, caseEmpty), ratio(speeds, caseDrain, caseShort)
	out["scheduler_rss_mib"], out["discover_cycle_s"] = rss, round3(median(got.cycles))
	out["goal_met"], out["goal_met_rss"] = drain >= backlogRatioGoal, rss < backlogRSSGoal
	w.row("throughput_ratio: the backlog drained, by the closed loop without one", fmt.Sprintf("%.2f", drain), fmt.Sprintf(">= %.2f", backlogRatioGoal))
	w.row("same_load_ratio: both, by the closed loop without a backlog", fmt.Sprintf("%.2f", out["same_load_ratio"]), "told")
	w.row("length_ratio: the backlog drained, by a short one drained", fmt.Sprintf("%.2f", out["length_ratio"]), "told")
	w.row("scheduler_rss_mib: the most memory of the scheduler", fmt.Sprintf("%.0f", rss), fmt.Sprintf("< %.0f", backlogRSSGoal))
	w.row("quiet_p99_ms: the worst of the quiet tenant's beside the backlog", fmt.Sprintf("%.2f", out["quiet_p99_ms"]), "told")
	w.row("discover_cycle_s: a search for waiting tasks", fmt.Sprintf("%.2f", out["discover_cycle_s"]), "<= 10")
	w.flush()
}

func (c *backlogCmd) draw(got backlogResult) chart {
	picture := chart{
		title: fmt.Sprintf("A quiet tenant beside %d waiting tasks", c.Tasks), x: "from submit to handler start, ms", logX: true,
		y: "% of tasks that waited no longer",
	}
	for n, one := range []struct{ name, about string }{{caseEmpty, "no backlog"}, {caseDrain, "the backlog"}} {
		for i, tier := range []string{"urgent", "standard"} {
			all := newWaits()
			for _, r := range got.runs[one.name] {
				all.Merge(r.Quiet[i].waits)
			}
			if points := distribution(all); len(points) > 0 {
				picture.curves = append(picture.curves, curve{name: one.about + ", " + tier, points: points, color: 2*n + i})
			}
		}
	}
	return picture
}
