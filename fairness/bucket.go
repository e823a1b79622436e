package fairness

import (
	"math"
	"time"
)

const (
	// ClockStepMax is how far a bucket's time may stand ahead of the clock before it is taken for wrong. Up to it, the bucket
	// waits for the clock, so that no second is paid out twice, whatever the order in which callers bring their times. Beyond it,
	// the bucket's time is set to the clock's: a wrong time never freezes a bucket for longer than this.
	ClockStepMax = time.Second
	// WaitMax bounds what Wait answers.
	WaitMax = 365 * 24 * time.Hour
)

// Limit is how fast a bucket fills, and how much it holds.
type Limit struct {
	// Rate is tokens per second. What is not above zero, or infinite, is no limit at all.
	Rate float64
	// Burst is the most that the bucket holds, at least 1 where there is a rate. A bucket owes no more than this either.
	Burst float64
}

// Unlimited tells whether there is no limit.
func (l Limit) Unlimited() bool { return !(l.Rate > 0) || math.IsInf(l.Rate, 1) }

// Share is a limit for one of n who divide it among them. Each may hold at least one token, or it could never take any.
func (l Limit) Share(n int) Limit {
	if l.Unlimited() || n <= 1 {
		return l
	}
	return Limit{Rate: l.Rate / float64(n), Burst: max(1, l.Burst/float64(n))}
}

// Bucket is a token bucket. Over any stretch of time it gives at most Burst + Rate x time (to a microsecond), by the clock that it is
// given; when that is set back by more than ClockStepMax, the time that it shows again is paid again. The zero value is full from its first Refill on. Set
// Limit anew when it changes: it holds from the next Refill on. It is not safe for concurrent use.
type Bucket struct {
	Limit
	// Tokens is what may be taken; below zero it is owed.
	Tokens float64
	// At is the time up to which tokens were paid in.
	At time.Time
}

// Refill pays in what has been earned up to now. Without a limit the bucket forgets what it held.
func (b *Bucket) Refill(now time.Time) {
	if b.Unlimited() {
		*b = Bucket{Limit: b.Limit}
		return
	}
	if b.At.IsZero() {
		b.Tokens, b.At = b.Burst, now
	}
	passed := now.Sub(b.At).Truncate(time.Microsecond) // what is cut off is paid next time
	switch {
	case passed > 0:
		b.Tokens += b.Rate * float64(passed.Microseconds()) / 1e6
		b.At = b.At.Add(passed)
	case passed < -ClockStepMax:
		b.At = now
	}
	b.Tokens = min(max(b.Tokens, -b.Burst), b.Burst)
}

// Take takes up to n whole tokens and returns how many.
func (b *Bucket) Take(n int) int {
	if n <= 0 {
		return 0
	}
	if b.Unlimited() {
		return n
	}
	if b.Tokens < 1 {
		return 0
	}
	if whole := math.Floor(b.Tokens); whole < float64(n) {
		n = int(whole)
	}
	b.Tokens -= float64(n)
	return n
}

// Debit takes tokens that were used elsewhere, whether they are there or not; the bucket never owes more than its burst.
func (b *Bucket) Debit(tokens float64) {
	b.Tokens = max(b.Tokens-max(0, tokens), -b.Burst)
}

// Wait is the time from now until a whole token can be taken: in whole milliseconds, at most two too long and never too short
// (unless it is WaitMax), and zero when one can be taken already.
func (b *Bucket) Wait(now time.Time) time.Duration {
	if b.Unlimited() || b.Tokens >= 1 {
		return 0
	}
	ahead := max(0, b.At.Sub(now).Microseconds())
	ms := math.Ceil(((1-b.Tokens)/b.Rate*1e6+float64(ahead))/1e3) + 1
	return time.Duration(min(ms, float64(WaitMax.Milliseconds()))) * time.Millisecond
}

// Full is the time from the last refill until the bucket is full, bounded by WaitMax.
func (b *Bucket) Full() time.Duration {
	if b.Unlimited() || b.Tokens >= b.Burst {
		return 0
	}
	return time.Duration(min(math.Ceil((b.Burst-b.Tokens)/b.Rate*1e3)+1, float64(WaitMax.Milliseconds()))) * time.Millisecond
}
