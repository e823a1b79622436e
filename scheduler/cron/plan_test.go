package cron

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestPlan(t *testing.T) {
	base := State{ID: "s", Since: day(2025, 6, 1), Decided: at(t, "2025-06-10T12:00:00Z"), CatchUpWindow: 24 * time.Hour, CatchUpMax: 10}
	with := func(change func(*State)) State {
		s := base
		change(&s)
		return s
	}
	tests := map[string]struct {
		state State
		now   string
		want  string // fired, cancel, skipped, decided, buffered, wake
	}{
		"not due":                    {base, "2025-06-10T12:00:59Z", "[] false [] 12:00:00 - 12:01:00"},
		"due":                        {base, "2025-06-10T12:01:00Z", "[12:01:00] false [] 12:01:00 - 12:02:00"},
		"a clock that is behind":     {base, "2025-06-10T11:58:00Z", "[] false [] 12:00:00 - 12:01:00"},
		"paused":                     {with(func(s *State) { s.Paused = true }), "2025-06-10T13:00:00Z", "[] false [] 12:00:00 - -"},
		"seven days away, latest":    {base, "2025-06-17T12:00:20Z", "[12:00:00] false [{1 10079}] 12:00:00 - 12:01:00"},
		"seven days away, all":       {with(func(s *State) { s.CatchUp, s.Overlap, s.CatchUpMax = CatchUpAll, OverlapAllow, 2 }), "2025-06-17T12:00:20Z", "[11:58:00 11:59:00 12:00:00] false [{1 10077}] 12:00:00 - 12:01:00"},
		"none":                       {with(func(s *State) { s.CatchUp = CatchUpNone }), "2025-06-10T12:05:20Z", "[12:05:00] false [{1 4}] 12:05:00 - 12:06:00"},
		"skip":                       {with(func(s *State) { s.Open = 1 }), "2025-06-10T12:01:00Z", "[] false [{2 1}] 12:01:00 - 12:02:00"},
		"buffer":                     {with(func(s *State) { s.Open, s.Overlap = 1, OverlapBufferOne }), "2025-06-10T12:01:00Z", "[] false [] 12:01:00 12:01:00 12:02:00"},
		"buffer is full":             {with(func(s *State) { s.Open, s.Overlap, s.Buffered = 1, OverlapBufferOne, s.Decided }), "2025-06-10T12:01:00Z", "[] false [{3 1}] 12:01:00 12:00:00 12:02:00"},
		"the buffered one fires":     {with(func(s *State) { s.Overlap, s.Buffered = OverlapBufferOne, s.Decided }), "2025-06-10T12:00:30Z", "[12:00:00] false [] 12:00:00 - 12:01:00"},
		"buffered, then allowed":     {with(func(s *State) { s.Open, s.Overlap, s.Buffered = 1, OverlapAllow, s.Decided }), "2025-06-10T12:01:00Z", "[12:00:00 12:01:00] false [] 12:01:00 - 12:02:00"},
		"cancel":                     {with(func(s *State) { s.Open, s.Overlap = 2, OverlapCancelRunning }), "2025-06-10T12:01:00Z", "[12:01:00] true [] 12:01:00 - 12:02:00"},
		"the end is included":        {with(func(s *State) { s.End = at(t, "2025-06-10T12:01:00Z") }), "2025-06-10T12:01:05Z", "[12:01:00] false [] 12:01:00 - -"},
		"after the end":              {with(func(s *State) { s.End = base.Decided }), "2025-06-10T12:30:00Z", "[] false [] 12:00:00 - -"},
		"the end was long ago":       {with(func(s *State) { s.End = at(t, "2025-06-10T12:05:00Z") }), "2025-06-10T13:00:00Z", "[12:05:00] false [{1 4}] 12:05:00 - -"},
		"the start is included":      {with(func(s *State) { s.Start = at(t, "2025-06-10T12:03:00Z") }), "2025-06-10T12:01:00Z", "[] false [] 12:00:00 - 12:03:00"},
		"missed further than window": {with(func(s *State) { s.CatchUpWindow, s.End = time.Minute, at(t, "2025-06-10T12:05:00Z") }), "2025-06-10T13:00:00Z", "[] false [{1 5}] 12:05:00 - -"},
	}
	s := parse(t, "* * * * *", "UTC")
	for name, test := range tests {
		d := Plan(s, test.state, at(t, test.now))
		var fired []string
		for _, o := range d.Fire {
			fired = append(fired, clockOf(o))
		}
		got := fmt.Sprint(fired, " ", d.CancelOpen, " ", numbers(d.Skipped), " ", clockOf(d.Decided), " ", clockOf(d.Buffered), " ", clockOf(d.Wake))
		if got != test.want {
			t.Errorf("%s:\n got %s\nwant %s", name, got, test.want)
		}
	}
}

func numbers(skips []Skip) []string {
	var all []string
	for _, s := range skips {
		all = append(all, fmt.Sprintf("{%d %d}", int(s.Reason), s.Count))
	}
	return all
}

func clockOf(t time.Time) string {
	if t.IsZero() {
		return "-"
	}
	return t.UTC().Format(time.TimeOnly)
}

// However often, late, or with a clock that steps back it is decided: every occurrence is fired or skipped once, in order.
func TestPlanDecidesEachOccurrenceOnce(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		expression := rapid.SampledFrom([]string{"* * * * *", "*/10 * * * * *", "@every 90s", "30 2 * * *"}).Draw(t, "expression")
		s, err := Parse(expression, "Europe/Berlin", time.Unix(7, 0))
		if err != nil {
			t.Fatal(err)
		}
		now := day(2025, 10, 25)
		state := State{
			ID: rapid.String().Draw(t, "id"), Since: now, Jitter: time.Duration(rapid.IntRange(0, 600).Draw(t, "jitter")) * time.Second,
			Overlap:    OverlapPolicy(rapid.IntRange(0, 3).Draw(t, "overlap")),
			CatchUp:    CatchUpPolicy(rapid.IntRange(0, 2).Draw(t, "catch up")),
			CatchUpMax: 5, CatchUpWindow: time.Hour,
		}
		var fired []time.Time
		var skipped int64
		for range 30 {
			now = now.Add(time.Duration(rapid.IntRange(-30, 8000).Draw(t, "pass")) * time.Second)
			state.Open = rapid.IntRange(0, 1).Draw(t, "open")
			d := Plan(s, state, now)
			fired = append(fired, d.Fire...)
			for _, skip := range d.Skipped {
				skipped += skip.Count
			}
			if !d.Wake.After(d.Decided) {
				t.Fatalf("wakes at %v for what was decided: %v", d.Wake, d.Decided)
			}
			state.Decided, state.Buffered = d.Decided, d.Buffered
		}
		if !slices.IsSortedFunc(fired, time.Time.Compare) || len(slices.Compact(slices.Clone(fired))) != len(fired) {
			t.Fatalf("not once each, in order: %v", fired)
		}
		waiting := int64(0)
		if !state.Buffered.IsZero() {
			waiting = 1
		}
		if all := s.Count(state.Since, later(state.Since, state.Decided)); int64(len(fired))+skipped+waiting != all {
			t.Fatalf("%d fired, %d skipped, %d wait, of %d", len(fired), skipped, waiting, all)
		}
	})
}

func TestJitterIsEvenAndStable(t *testing.T) {
	var tenths [10]int
	for i := range 10_000 {
		j := Jitter(fmt.Sprint("schedule-", i), time.Minute)
		if j < 0 || j >= time.Minute || j != Jitter(fmt.Sprint("schedule-", i), time.Minute) {
			t.Fatalf("%d: %v", i, j)
		}
		tenths[j/(6*time.Second)]++
	}
	for i, n := range tenths {
		if n < 880 || n > 1120 { // four standard deviations
			t.Errorf("tenth %d has %d of 10000", i, n)
		}
	}
	if Jitter("s", 0) != 0 {
		t.Error("no maximum is no jitter")
	}
}
