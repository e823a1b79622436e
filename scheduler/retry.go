package scheduler

import (
	"math"
	"slices"
	"time"
)

// RetryPolicy says when a failed attempt is tried again: exponential backoff with full jitter. Zero fields mean the default.
//
// Full jitter (a delay drawn evenly from [0, backoff]) is the variant of "Exponential Backoff And Jitter" (AWS Architecture
// Blog, 2015) that spreads a wave of failures best.
type RetryPolicy struct {
	Initial      time.Duration `json:"initial,omitempty"`    // backoff after the first counted attempt; default 1 s
	Max          time.Duration `json:"max,omitempty"`        // cap; default 1 h
	Multiplier   float64       `json:"multiplier,omitempty"` // growth per attempt, at least 1; default 2
	NonRetryable []Reason      `json:"non_retryable,omitempty"`
}

// Defaults of [RetryPolicy].
const (
	DefaultRetryInitial    = time.Second
	DefaultRetryMax        = time.Hour
	DefaultRetryMultiplier = 2.0
)

// Backoff is the longest wait after the given number of counted attempts (1 after the first). It never overflows, never
// shrinks as attempts grow, and never exceeds the cap.
func (p RetryPolicy) Backoff(counted int) time.Duration {
	initial, ceiling, factor := p.Initial, p.Max, p.Multiplier
	if initial <= 0 {
		initial = DefaultRetryInitial
	}
	if ceiling <= 0 {
		ceiling = max(DefaultRetryMax, initial)
	}
	if !(factor >= 1) { // also catches NaN
		factor = DefaultRetryMultiplier
	}
	grown := float64(initial) * math.Pow(factor, float64(max(counted, 1)-1))
	if !(grown < float64(ceiling)) { // also catches +Inf
		return ceiling
	}
	return time.Duration(grown)
}

// retryAfterSpread is the least part of a wait named by a handler over which its wave of retries is spread: a quarter.
const retryAfterSpread = 4

// Delay is the wait before the next attempt, at least a millisecond. draw is a random number in [0, 1). A wait that the
// handler named itself (retryAfter, zero for none) is kept as the least, and the jitter comes on top of it: nobody comes too
// early, and those that were told the same wait do not come back together.
func (p RetryPolicy) Delay(counted int, retryAfter time.Duration, draw float64) time.Duration {
	retryAfter = max(retryAfter, 0)
	spread := max(p.Backoff(counted), retryAfter/retryAfterSpread)
	jitter := max(time.Duration(draw*float64(spread)), time.Millisecond)
	if retryAfter > math.MaxInt64-jitter {
		return math.MaxInt64
	}
	return retryAfter + jitter
}

// Retryable tells whether a failure with this reason is tried again at all.
func (p RetryPolicy) Retryable(r Reason) bool { return !slices.Contains(p.NonRetryable, r) }
