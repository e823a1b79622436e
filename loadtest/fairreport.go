package main

import (
	"context"
	"fmt"
	"math"
	"slices"

	"gonum.org/v1/plot/plotter"
)

func (c *fairnessCmd) report(ctx context.Context, cl *cluster, cases []fairCase, runs map[string][]fairRun) error {
	out := map[string]any{
		"scenario": "fairness", "machine": machineFacts(ctx, cl), "commit": commit(), "rounds": c.Rounds, "kinds": c.Kinds, "slots": 2 * c.Kinds * c.Slots,
		"long_ms": c.Long.Seconds() * 1000, "short_ms": c.Short.Seconds() * 1000, "window_s": c.For.Seconds(), "runs": runs,
	}
	w := newTable("CASE", "A'S IDEAL", "POSSIBLE", "SHARE", "ERROR", "HELD SHARE", "ERROR", "LENT", "SLOTS IN HANDLERS", "HELD", "TASKS A", "TASKS B")
	worst, worstHeld := 0.0, 0.0
	percent := func(x float64) string { return fmt.Sprintf("%.1f%%", 100*x) }
	for _, one := range cases {
		all := runs[one.name]
		of := func(value func(fairRun) float64) float64 { return round3(median(column(all, value))) }
		wrong, wrongHeld := of(func(r fairRun) float64 { return r.Error }), of(func(r fairRun) float64 { return r.HeldErr })
		feasible := !slices.ContainsFunc(all, func(r fairRun) bool { return !r.Feasible })
		if feasible {
			worst, worstHeld = math.Max(worst, wrong), math.Max(worstHeld, wrongHeld)
		}
		out[one.name] = map[string]any{
			"ideal_share": one.ideal(), "possible_share": of(func(r fairRun) float64 { return r.Possible }), "feasible": feasible,
			"share": of(func(r fairRun) float64 { return r.Share }), "share_error": wrong, "held_share_error": wrongHeld,
		}
		w.row(one.about, percent(one.ideal()), percent(of(func(r fairRun) float64 { return r.Possible })),
			percent(of(func(r fairRun) float64 { return r.Share })), percent(wrong), percent(of(func(r fairRun) float64 { return r.Held })),
			percent(wrongHeld), percent(of(func(r fairRun) float64 { return r.Lent })), percent(of(func(r fairRun) float64 { return r.Used })),
			percent(of(func(r fairRun) float64 { return r.HeldUsed })), fmt.Sprintf("%.0f", of(func(r fairRun) float64 { return float64(r.TasksA) })),
			fmt.Sprintf("%.0f", of(func(r fairRun) float64 { return float64(r.TasksB) })))
	}
	w.flush()
	out["max_share_error"], out["max_held_share_error"], out["goal_met"] = worst, worstHeld, worst <= shareGoal
	fmt.Printf("largest error where the ideal share is possible: %s (goal 5%%), from claim to recorded end %s\n\n", percent(worst), percent(worstHeld))
	if err := c.draw(cases, runs).writeSVG(c.SVG); err != nil {
		return err
	}
	return writeJSON(c.JSON, out)
}

// shareGoal is how far from its ideal share a tenant may be over the window.
const shareGoal = 0.05

func (c *fairnessCmd) draw(cases []fairCase, runs map[string][]fairRun) chart {
	picture := chart{title: "Share of tenant a", x: "seconds", y: "% of the slot-seconds in handlers"}
	for i, one := range cases {
		for n, r := range runs[one.name] {
			var points plotter.XYs
			for _, p := range r.curve {
				points = append(points, plotter.XY{X: p.second, Y: 100 * p.share})
			}
			if len(points) == 0 {
				continue
			}
			measured := curve{points: points, color: i}
			if n == 0 {
				measured.name = one.about
				picture.curves = append(picture.curves, curve{color: i, dashed: true, points: plotter.XYs{
					{X: 0, Y: 100 * r.Possible}, {X: c.For.Seconds(), Y: 100 * r.Possible},
				}})
			}
			picture.curves = append(picture.curves, measured)
		}
	}
	return picture
}
