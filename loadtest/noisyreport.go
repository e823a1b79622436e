package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/errandhq/errand"
)

// noisyGoal is the 99th percentile that the quiet tenant may feel beside a flood, in milliseconds, by that of the idle system.
func noisyGoal(idle float64) float64 { return max(2*idle, idle+15) }

func (c *noisyCmd) report(ctx context.Context, cl *cluster, runs map[string][]noisyRun) error {
	out := map[string]any{
		"scenario": "noisy", "machine": machineFacts(ctx, cl), "commit": commit(), "rounds": c.Rounds, "work_ms": c.Work.Seconds() * 1000,
		"slots": c.Slots, "quiet_per_s": c.Rate, "flood_ratio": c.Flood, "phase_s": c.For.Seconds(), "runs": runs,
	}
	of := func(phase string, value func(noisyRun) float64) float64 {
		var all []float64
		for _, r := range runs[phase] {
			all = append(all, value(r))
		}
		return round3(median(all))
	}
	p50 := func(r noisyRun) float64 { return r.P50 }
	p99 := func(r noisyRun) float64 { return r.P99 }
	w := newTable("BESIDE", "URGENT P50 MS", "P99 MS", "MAX MS", "TASKS", "MISSING", "FLOOD/S")
	for _, phase := range noisyPhases {
		out["urgent_p50_"+phase.name+"_ms"], out["urgent_p99_"+phase.name+"_ms"] = of(phase.name, p50), of(phase.name, p99)
		w.row(phase.about, fmt.Sprintf("%.2f", of(phase.name, p50)), fmt.Sprintf("%.2f", of(phase.name, p99)),
			fmt.Sprintf("%.1f", of(phase.name, func(r noisyRun) float64 { return r.Max })),
			fmt.Sprintf("%.0f", of(phase.name, func(r noisyRun) float64 { return float64(r.Started) })),
			fmt.Sprintf("%.0f", of(phase.name, func(r noisyRun) float64 { return float64(r.Missing) })),
			fmt.Sprintf("%.0f", of(phase.name, func(r noisyRun) float64 { return r.PerS })))
	}
	w.flush()
	idle, flood, urgent := of(phaseIdle, p99), of(phaseFlood, p99), of(phaseUrgent, p99)
	out["urgent_p99_ratio"], out["urgent_p99_allurgent_ratio"] = round3(flood/idle), round3(urgent/idle)
	out["goal_ms"], out["goal_met"], out["goal_met_allurgent"] = noisyGoal(idle), flood <= noisyGoal(idle), urgent <= noisyGoal(idle)
	w = newTable("GOAL", "MEASURED", "MET")
	goal := fmt.Sprintf("%.2f ms (twice idle, or 15 ms more)", noisyGoal(idle))
	w.row("p99 beside standard <= "+goal, fmt.Sprintf("%.2f ms", flood), fmt.Sprint(flood <= noisyGoal(idle)))
	w.row("p99 beside urgent <= "+goal, fmt.Sprintf("%.2f ms", urgent), fmt.Sprint(urgent <= noisyGoal(idle)))
	w.flush()
	out["p6_held"] = tiersTable(runs)
	if err := c.draw(runs).writeSVG(c.SVG); err != nil {
		return err
	}
	return writeJSON(c.JSON, out)
}

// tiersTable shows how the flood itself fared, and tells whether every tier of it that was overdue has been served.
func tiersTable(runs map[string][]noisyRun) bool {
	held := true
	w := newTable("FLOOD", "TIER", "TASKS", "STARTED", "OLDEST WAIT S", "LATE S", "BOUND S", "STARVED")
	for _, phase := range noisyPhases {
		for _, r := range runs[phase.name] {
			for _, t := range r.Tiers {
				held = held && !t.Starved && t.Within
				w.row(phase.name, tierName(errand.Tier(t.Tier)), fmt.Sprint(t.Tasks), fmt.Sprint(t.Started), fmt.Sprintf("%.1f", t.Oldest),
					fmt.Sprintf("%.1f", t.Late), fmt.Sprintf("%.1f", t.Bound), fmt.Sprint(t.Starved))
			}
		}
	}
	w.flush()
	return held
}

func tierName(t errand.Tier) string {
	return [...]string{"?", "urgent", "standard", "deferrable"}[max(0, min(int(t), 3))]
}

func (c *noisyCmd) draw(runs map[string][]noisyRun) chart {
	picture := chart{
		title: fmt.Sprintf("Urgent tasks of a quiet tenant, %d/s", c.Rate), x: "from submit to handler start, ms", logX: true,
		y: "% of tasks that waited no longer",
	}
	for i, phase := range noisyPhases {
		all := newWaits()
		for _, r := range runs[phase.name] {
			all.Merge(r.waits)
		}
		if points := distribution(all); len(points) > 0 {
			picture.curves = append(picture.curves, curve{name: "beside " + strings.TrimPrefix(phase.about, "a "), points: points, color: i})
		}
	}
	return picture
}
