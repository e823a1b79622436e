package main

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strings"

	"gonum.org/v1/plot/plotter"
)

func (c *limitsCmd) report(ctx context.Context, cl *cluster, speeds map[string][]measured, caps map[string][]capRun) error {
	out := map[string]any{
		"scenario": "limits", "machine": machineFacts(ctx, cl), "commit": commit(), "rounds": c.Rounds, "tasks": c.Tasks, "batch": c.Batch,
		"slots": c.Slots, "outstanding": outstandingOf(c.Slots), "payload_bytes": c.Bytes, "keys": c.Keys, "cap": c.Cap, "waiting": c.Waiting,
		"work_ms": c.Work.Seconds() * 1000, "runs": speeds, "cap_runs": caps,
		"overhead_ratio": ratio(speeds, "two", "none"), "overhead_keyed_ratio": ratio(speeds, "keyed", "none"),
	}
	w := newTable("TASKS CARRY", "TASKS/S", "RUNS", "TO NO LIMITS", "CPU US/TASK", "WAL B/TASK")
	for _, one := range c.limitLoads() {
		got := speeds[one.name]
		rate := median(column(got, func(m measured) float64 { return m.PerS }))
		out[one.name+"_per_s"] = math.Round(rate)
		w.row(one.about, fmt.Sprintf("%.0f", rate), perRun(got), fmt.Sprintf("%.2f", ratio(speeds, one.name, "none")), perProcess(got),
			fmt.Sprintf("%.0f", median(column(got, func(m measured) float64 { return m.WAL }))))
	}
	w.flush()
	over := math.MinInt
	w = newTable("CASE", "CAP", "HANDLERS AT ONCE", "OVER", "CAP USED", "TASKS/S", "SECONDS", "RUNS TWICE", "WORKERS AT END")
	for _, one := range capCases {
		got := caps[one.name]
		worst := slices.MaxFunc(got, func(a, b capRun) int { return a.Peak - b.Peak })
		over = max(over, worst.Over)
		used := round3(median(column(got, func(r capRun) float64 { return r.Used })))
		out["max_over_cap_"+one.name], out["cap_used_"+one.name] = worst.Over, used
		w.row(one.about, fmt.Sprint(c.Cap), perCap(got), fmt.Sprint(worst.Over), fmt.Sprintf("%.0f%%", 100*used),
			fmt.Sprintf("%.0f", median(column(got, func(r capRun) float64 { return r.PerS }))),
			fmt.Sprintf("%.1f", median(column(got, func(r capRun) float64 { return r.Seconds }))),
			fmt.Sprint(slices.MaxFunc(got, func(a, b capRun) int { return int(a.Again - b.Again) }).Again),
			fmt.Sprintf("%d and %d", got[0].Workers[0], got[0].Workers[1]))
	}
	w.flush()
	out["max_over_cap"], out["goal_met"] = over, over <= 0
	fmt.Printf("most handlers above the cap in any case: %d (goal: never above 0)\n\n", over)
	if err := c.draw(caps).writeSVG(c.SVG); err != nil {
		return err
	}
	return writeJSON(c.JSON, out)
}

func perCap(all []capRun) string {
	var parts []string
	for _, r := range all {
		parts = append(parts, fmt.Sprint(r.Peak))
	}
	return strings.Join(parts, " ")
}

func (c *limitsCmd) draw(caps map[string][]capRun) chart {
	picture := chart{title: fmt.Sprintf("%d tasks wait for a cap of %d", c.Waiting, c.Cap), x: "seconds", y: "handlers that run, mean of a second"}
	end := 0.0
	for i, one := range capCases {
		for n, r := range caps[one.name] {
			running := curve{points: r.curve, color: i}
			if n == 0 {
				running.name = one.about
			}
			if len(r.curve) > 0 {
				end = max(end, r.curve[len(r.curve)-1].X)
				picture.curves = append(picture.curves, running)
			}
		}
	}
	picture.curves = append(picture.curves, curve{name: "the cap", color: len(capCases), dashed: true, points: plotter.XYs{
		{X: 0, Y: float64(c.Cap)}, {X: end, Y: float64(c.Cap)},
	}})
	return picture
}
