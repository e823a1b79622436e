package main

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
)

var errFewTallies = errors.New("the workers did not tell often enough: the machine is too busy to measure")

// count takes the handlers' time within the window from what the workers told.
func (c *fairnessCmd) count(of fairCase, workers [2]*timed, from, to time.Time) (fairRun, error) {
	one, two := inWindow(workers[0], from, to), inWindow(workers[1], from, to)
	if len(one) < 2 || len(two) < 2 {
		return fairRun{}, errFewTallies
	}
	first, last := one[0], one[len(one)-1]
	first2, last2 := two[0], two[len(two)-1]
	for _, pair := range [][2]tally{{first, last}, {first2, last2}} {
		if pair[1].At-pair[0].At < (to.Sub(from) * 9 / 10).Microseconds() {
			return fairRun{}, errFewTallies
		}
	}
	rate := func(prefix string, from, to tally) (counts, float64) {
		used := sum(prefix, to).minus(sum(prefix, from))
		return used, float64(used.Busy) / float64(to.At-from.At)
	}
	a1, usedA1 := rate("a/", first, last)
	a2, usedA2 := rate("a/", first2, last2)
	b1, usedB1 := rate("b/", first, last)
	b2, usedB2 := rate("b/", first2, last2)
	total := usedA1 + usedA2 + usedB1 + usedB2
	if total == 0 {
		return fairRun{}, errors.New("no handler ran")
	}
	run := fairRun{
		Case: of.name, Ideal: of.ideal(), Possible: of.ideal(), Feasible: true, Share: round3((usedA1 + usedA2) / total),
		Used: round3(total / float64(2*c.Kinds*c.Slots)), TasksA: a1.Ended + a2.Ended, TasksB: b1.Ended + b2.Ended,
		curve: shareCurve(one, two),
	}
	if of.pinned {
		run.Lent = round3(usedA2 / total)
		run.Possible = min(run.Ideal, 0.5+run.Lent)
		run.Feasible = run.Possible == run.Ideal
	}
	run.Error = shareError(run.Share, run.Possible)
	return run, nil
}

// inWindow are a worker's tallies in the window.
func inWindow(w *timed, from, to time.Time) []tally {
	all := w.since(from)
	end := slices.IndexFunc(all, func(t tally) bool { return t.At > to.UnixMicro() })
	if end < 0 {
		return all
	}
	return all[:end]
}

// shareCurve is a's share in each second.
func shareCurve(one, two []tally) []sharePoint {
	var points []sharePoint
	step := int(time.Second / tallyEvery)
	for i := step; i < min(len(one), len(two)); i += step {
		a := sum("a/", one[i], two[i]).minus(sum("a/", one[i-step], two[i-step]))
		b := sum("b/", one[i], two[i]).minus(sum("b/", one[i-step], two[i-step]))
		if a.Busy+b.Busy > 0 {
			points = append(points, sharePoint{float64(one[i].At-one[0].At) / 1e6, float64(a.Busy) / float64(a.Busy+b.Busy)})
		}
	}
	return points
}

// held asks the store for how long tasks held their slots, from claim to recorded end. The database's clock is this machine's.
func (c *fairnessCmd) held(ctx context.Context, cl *cluster, from, to time.Time, run *fairRun) error {
	conn, err := pgx.Connect(ctx, cl.postgres.DSN(cl.database))
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	var a, b float64
	err = conn.QueryRow(ctx, `
		SELECT coalesce(sum(held) FILTER (WHERE tenant = 'tenant-a'), 0), coalesce(sum(held) FILTER (WHERE tenant = 'tenant-b'), 0)
		FROM (SELECT tenant, extract(epoch FROM least(coalesce(ended_at, $2), $2) - greatest(started_at, $1))::float8 AS held
			FROM tasks WHERE started_at < $2 AND coalesce(ended_at, $2) > $1) AS t`, from, to).Scan(&a, &b)
	if err != nil {
		return err
	}
	if a+b == 0 {
		return errors.New("the store knows of no attempt")
	}
	run.Held = round3(a / (a + b))
	run.HeldUsed = round3((a + b) / to.Sub(from).Seconds() / float64(2*c.Kinds*c.Slots))
	run.HeldErr = shareError(run.Held, run.Possible)
	return nil
}
