package scheduler

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"
)

// FIELD-REPORTS B28: 2^n overflowed after some forty attempts, and the task was tried again at once, for ever.
func TestBackoffNeverShrinksAndNeverExceedsItsCap(t *testing.T) {
	for name, c := range map[string]struct {
		policy     RetryPolicy
		first, cap time.Duration
	}{
		"defaults":            {RetryPolicy{}, time.Second, time.Hour},
		"factor 1":            {RetryPolicy{Multiplier: 1}, time.Second, time.Hour},
		"factor 100, 1 ns":    {RetryPolicy{Initial: 1, Multiplier: 100}, 1, time.Hour},
		"cap below initial":   {RetryPolicy{Initial: time.Hour, Max: time.Minute}, time.Minute, time.Minute},
		"initial above 1 h":   {RetryPolicy{Initial: 3 * time.Hour}, 3 * time.Hour, 3 * time.Hour},
		"greatest cap":        {RetryPolicy{Max: math.MaxInt64, Multiplier: 10}, time.Second, math.MaxInt64},
		"greatest everything": {RetryPolicy{Initial: math.MaxInt64, Max: math.MaxInt64}, math.MaxInt64, math.MaxInt64},
		"negative":            {RetryPolicy{Initial: -1, Max: -1, Multiplier: -1}, time.Second, time.Hour},
		"factor below 1":      {RetryPolicy{Multiplier: 0.5}, time.Second, time.Hour},
		"factor NaN":          {RetryPolicy{Multiplier: math.NaN()}, time.Second, time.Hour},
		"factor +Inf":         {RetryPolicy{Multiplier: math.Inf(1)}, time.Second, time.Hour},
		"factor -Inf":         {RetryPolicy{Multiplier: math.Inf(-1)}, time.Second, time.Hour},
	} {
		t.Run(name, func(t *testing.T) {
			if got := c.policy.Backoff(1); got != c.first {
				t.Errorf("the first backoff is %v, want %v", got, c.first)
			}
			last := time.Duration(0)
			for attempt := 1; attempt <= 10_000; attempt++ {
				got := c.policy.Backoff(attempt)
				if got < last || got <= 0 || got > c.cap {
					t.Fatalf("attempt %d: %v after %v, cap %v", attempt, got, last, c.cap)
				}
				for _, draw := range []float64{0, 0.5, math.Nextafter(1, 0)} {
					if d := c.policy.Delay(attempt, 0, draw); d < time.Millisecond || d > max(c.cap, time.Millisecond) {
						t.Fatalf("attempt %d: a delay of %v, cap %v", attempt, d, c.cap)
					}
				}
				last = got
			}
			if c.policy.Multiplier != 1 && last != c.cap {
				t.Errorf("after 10,000 attempts %v, want the cap %v", last, c.cap)
			}
		})
	}
}

func TestBackoffOfOddAttempts(t *testing.T) {
	for _, attempt := range []int{math.MinInt, -1, 0, 1} {
		if got := (RetryPolicy{}).Backoff(attempt); got != time.Second {
			t.Errorf("attempt %d: %v, want the first backoff", attempt, got)
		}
	}
	if got := (RetryPolicy{}).Backoff(math.MaxInt); got != time.Hour {
		t.Errorf("the last attempt: %v, want the cap", got)
	}
}

// FIELD-REPORTS B29: what failed together was tried again together, and failed together again.
func TestRetriesOfAWaveAreSpread(t *testing.T) {
	const wave = 5_000
	for name, c := range map[string]struct {
		policy     RetryPolicy
		retryAfter time.Duration
	}{
		"backoff":                      {RetryPolicy{Initial: time.Minute}, 0},
		"backoff and retry_after":      {RetryPolicy{Initial: time.Minute}, time.Minute},
		"short backoff, retry_after":   {RetryPolicy{}, time.Minute},
		"short backoff, 1 h":           {RetryPolicy{}, time.Hour},
		"negative retry_after is none": {RetryPolicy{Initial: time.Minute}, -time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			draw := rand.New(rand.NewPCG(1, 2))
			perSecond, busiest := map[time.Duration]int{}, 0
			for range wave {
				d := c.policy.Delay(1, c.retryAfter, draw.Float64())
				if d < c.retryAfter || d <= 0 {
					t.Fatalf("tried again after %v, not before %v was asked", d, c.retryAfter)
				}
				second := d.Truncate(time.Second)
				perSecond[second]++
				busiest = max(busiest, perSecond[second])
			}
			if busiest > wave/10 {
				t.Errorf("%d of %d come back in the same second, want at most a tenth", busiest, wave)
			}
		})
	}
}

func TestFarRetryAfterSaturates(t *testing.T) {
	for _, after := range []time.Duration{math.MaxInt64, math.MaxInt64 - 1, math.MaxInt64 / 2} {
		if got := (RetryPolicy{}).Delay(1, after, 0.999); got < after {
			t.Errorf("retry after %v: %v", after, got)
		}
	}
}

func TestNonRetryableReasons(t *testing.T) {
	p := RetryPolicy{NonRetryable: []Reason{"bad_card", ReasonTimeout}}
	for reason, want := range map[Reason]bool{"bad_card": false, ReasonTimeout: false, ReasonHandlerError: true, "": true} {
		if p.Retryable(reason) != want {
			t.Errorf("%q is tried again: %v, want %v", reason, !want, want)
		}
	}
}
