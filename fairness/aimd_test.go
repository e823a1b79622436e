package fairness

import (
	"testing"
	"time"

	"pgregory.net/rapid"
)

// Whatever is started and complained of, the rate is never below its least nor above its cap, never falls but at a backpressure (or with
// the cap), and never twice within the quiet time.
func TestAdaptiveBounds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var a Adaptive
		now, cutAt := epoch, time.Time{}
		for range rapid.IntRange(1, 300).Draw(t, "steps") {
			before, was := a.Rate(now)
			most := a.Most
			step := rapid.SampledFrom([]time.Duration{0, time.Microsecond, 10 * time.Millisecond, time.Second, time.Minute}).Draw(t, "step")
			now = now.Add(step)
			what := rapid.IntRange(0, 9).Draw(t, "what")
			switch {
			case what == 0:
				a.Most = rapid.SampledFrom([]float64{0, 0.5, 5, 1000}).Draw(t, "most")
			case what <= 3:
				a.Backpressure(now)
			default:
				for range rapid.IntRange(1, 100).Draw(t, "starts") {
					a.Passed(now)
				}
			}
			rate, limited := a.Rate(now)
			least := adaptiveLeast
			if a.Most > 0 {
				least = min(least, a.Most)
			}
			if limited && (rate < least || (a.Most > 0 && rate > a.Most)) {
				t.Fatalf("%v, the least is %v and the most %v", rate, least, a.Most)
			}
			if limited && was && rate < before && a.Most == most {
				if !cutAt.IsZero() && now.Sub(cutAt) < adaptiveQuiet {
					t.Fatalf("cut again after %v", now.Sub(cutAt))
				}
				if what == 0 || what > 3 {
					t.Fatalf("from %v to %v though nobody complains", before, rate)
				}
			}
			if limited && (!was || rate < before) && a.Most == most {
				cutAt = now
			}
		}
	})
}

// However low it was cut, a rate of which nobody complains grows beyond everything, and is free in the end.
func TestAdaptiveRecovers(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var a Adaptive
		now := epoch
		for range rapid.IntRange(1, 1000).Draw(t, "starts") {
			a.Passed(now)
		}
		for range rapid.IntRange(1, 20).Draw(t, "complaints") {
			a.Backpressure(now)
			now = now.Add(adaptiveQuiet)
		}
		last, limited := a.Rate(now)
		for limited {
			now = now.Add(time.Second)
			var rate float64
			if rate, limited = a.Rate(now); limited && rate <= last {
				t.Fatalf("from %v to %v", last, rate)
			}
			last = rate
		}
		if quiet := now.Sub(a.Forgets()); a.Forgets().After(now) || quiet < 0 {
			t.Fatalf("it knows something until %v", a.Forgets())
		}
	})
}

// A cap that is lifted leaves the rate where it was: it grows on from there.
func TestAdaptiveUnderACap(t *testing.T) {
	a, now := Adaptive{Most: 10}, epoch
	pass := func(rate int, d time.Duration) {
		for end := now.Add(d); now.Before(end); now = now.Add(time.Second / time.Duration(rate)) {
			a.Rate(now)
			a.Passed(now)
		}
	}
	pass(10, 10*time.Second)
	a.Backpressure(now)
	pass(2, 5*time.Minute)
	if rate, _ := a.Rate(now); rate != 10 {
		t.Errorf("%v a second under a cap of 10", rate)
	}
	// A rate that is not used says nothing: the cut is of what was.
	a.Backpressure(now)
	if rate, _ := a.Rate(now); rate > 2 {
		t.Errorf("cut to %v, and no more than 2 a second had passed", rate)
	}
	a.Most = 0
	if rate, _ := a.Rate(now.Add(time.Second)); rate > 10 {
		t.Errorf("%v a second as soon as there was no cap", rate)
	}
}

// Attempts that started before the cut say nothing new, and a clock that was set back does not hold the rate down for as long.
func TestAdaptiveTimes(t *testing.T) {
	var a Adaptive
	if a.Backpressure(epoch); a.Answered(epoch) {
		t.Error("cut, though nothing has passed")
	}
	for range 100 {
		a.Passed(epoch)
	}
	a.Backpressure(epoch.Add(time.Second))
	if !a.Answered(epoch) || a.Answered(epoch.Add(2*time.Second)) {
		t.Error("what the cut has answered")
	}
	back := epoch.Add(-time.Hour)
	before, _ := a.Rate(back)
	if after, limited := a.Rate(back.Add(time.Minute)); !limited || after <= before {
		t.Errorf("from %v to %v in a minute after the clock was set back", before, after)
	}
	if _, limited := a.Rate(back.Add(adaptiveForget)); limited {
		t.Error("limited for ever")
	}
}
