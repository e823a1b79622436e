package fairness

import (
	"math"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// start is when the tests' clocks begin.
var start = time.UnixMicro(1_800_000_000_000_000)

// full returns a bucket that is full at start.
func full(rate, burst float64) Bucket {
	b := Bucket{Limit: Limit{Rate: rate, Burst: burst}}
	b.Refill(start)
	return b
}

func TestBucket(t *testing.T) {
	tests := map[string]struct {
		bucket Bucket
		after  time.Duration // of the call
		ask    int
		taken  int
		wait   time.Duration
	}{
		"a full bucket gives its burst":        {full(10, 5), 0, 9, 5, 101 * time.Millisecond},
		"it gives no more than is asked":       {full(10, 5), 0, 3, 3, 0},
		"it gives nothing to who asks nothing": {full(10, 5), 0, 0, 0, 0},
		"less than nothing is nothing":         {full(10, 5), 0, -3, 0, 0},
		"idle time is not saved up":            {full(10, 5), time.Hour, 9, 5, 101 * time.Millisecond},
		"time is paid by the microsecond":      {Bucket{Limit{10, 5}, 0, start}, 250 * time.Millisecond, 9, 2, 51 * time.Millisecond},
		"what is owed is earned first":         {Bucket{Limit{10, 5}, -1, start}, 250 * time.Millisecond, 9, 1, 51 * time.Millisecond},
		"nothing is owed beyond the burst":     {Bucket{Limit{10, 5}, -99, start}, 250 * time.Millisecond, 9, 0, 601 * time.Millisecond},
		"a burst that shrank takes tokens":     {Bucket{Limit{10, 2}, 5, start}, 0, 9, 2, 101 * time.Millisecond},
		"a bucket of another time, slightly":   {Bucket{Limit{10, 5}, 0, start.Add(time.Second)}, 0, 9, 0, 1101 * time.Millisecond},
		"a bucket of quite another time":       {Bucket{Limit{10, 5}, 0, start.Add(time.Hour)}, 0, 9, 0, 101 * time.Millisecond},
		"no limit":                             {full(0, 0), 0, 1 << 40, 1 << 40, 0},
		"a rate without end is no limit":       {full(math.Inf(1), 1), 0, 1 << 40, 1 << 40, 0},
		"nor is what is no number":             {full(math.NaN(), 1), 0, 7, 7, 0},
		"nor is less than nothing":             {full(-1, 1), 0, 7, 7, 0},
		"a rate of almost nothing":             {Bucket{Limit{1e-300, 1}, 0, start}, 0, 1, 0, WaitMax},
		"a rate of almost everything":          {full(1e300, 1e300), time.Hour, 1 << 40, 1 << 40, 0},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			now := start.Add(tt.after)
			tt.bucket.Refill(now)
			if taken := tt.bucket.Take(tt.ask); taken != tt.taken {
				t.Errorf("took %d of %d, want %d", taken, tt.ask, tt.taken)
			}
			if wait := tt.bucket.Wait(now); wait != tt.wait {
				t.Errorf("wait %v, want %v", wait, tt.wait)
			}
		})
	}
}

func TestDebit(t *testing.T) {
	b := full(10, 5)
	for _, step := range []struct{ debit, left float64 }{{2, 3}, {4, -1}, {-7, -1}, {1e9, -5}, {math.Inf(1), -5}} {
		if b.Debit(step.debit); b.Tokens != step.left {
			t.Errorf("%v tokens are left after a debit of %v, want %v", b.Tokens, step.debit, step.left)
		}
	}
}

// However a limit is shared, each has at least one token, and the rates add up.
func TestShare(t *testing.T) {
	for _, tt := range []struct {
		whole Limit
		n     int
		want  Limit
	}{
		{Limit{10, 20}, 1, Limit{10, 20}},
		{Limit{10, 20}, 4, Limit{2.5, 5}},
		{Limit{10, 2}, 4, Limit{2.5, 1}},
		{Limit{10, 20}, 0, Limit{10, 20}},
		{Limit{0, 0}, 4, Limit{0, 0}},
	} {
		if got := tt.whole.Share(tt.n); got != tt.want {
			t.Errorf("%v for %d: %v, want %v", tt.whole, tt.n, got, tt.want)
		}
	}
}

// Callers a second apart do not get the same second twice (field report B25): 20 s at 10 per second, and a burst of 10.
func TestAnOlderTimePaysNothingTwice(t *testing.T) {
	b := full(10, 10)
	taken := 0
	for at := time.Duration(0); at <= 20*time.Second; at += 7 * time.Millisecond {
		b.Refill(start.Add(at))
		taken += b.Take(3)
		b.Refill(start.Add(at - time.Second))
		taken += b.Take(3)
	}
	if taken < 208 || taken > 210 {
		t.Errorf("took %d, want up to 210 and all of them but for what is begun", taken)
	}
}

// Over any stretch, no more is taken than burst + rate x time, whatever the order of calls, steps of the clock and limits that
// shrink; a clock that is set back far pays its time again, and no more than that.
func TestABucketNeverPaysTooMuch(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		limit := Limit{Rate: rapid.Float64Range(0.01, 1000).Draw(t, "rate"), Burst: rapid.Float64Range(1, 100).Draw(t, "burst")}
		b := Bucket{Limit: limit}
		now := start
		// allowed is a second opinion: what a stretch that begins at any of the calls may still take. Each call begins one.
		var allowed []float64
		latest := now
		t.Repeat(map[string]func(*rapid.T){
			"time passes": func(t *rapid.T) {
				now = now.Add(time.Duration(rapid.Int64Range(0, int64(10*time.Second)).Draw(t, "ns")))
			},
			"time is disordered": func(t *rapid.T) {
				now = now.Add(-time.Duration(rapid.Int64Range(0, int64(ClockStepMax)).Draw(t, "ns")))
			},
			"the clock is set back": func(t *rapid.T) {
				now = now.Add(-time.Duration(rapid.Int64Range(0, int64(time.Hour)).Draw(t, "ns")))
			},
			"the clock is set forward": func(t *rapid.T) {
				now = now.Add(time.Duration(rapid.Int64Range(0, int64(time.Hour)).Draw(t, "ns")))
			},
			"the limit shrinks": func(t *rapid.T) {
				b.Rate *= rapid.Float64Range(0.1, 1).Draw(t, "rate")
				b.Burst = max(1, b.Burst*rapid.Float64Range(0.1, 1).Draw(t, "burst"))
			},
			"debit": func(t *rapid.T) { b.Debit(rapid.Float64Range(0, 200).Draw(t, "tokens")) },
			"take": func(t *rapid.T) {
				earned, passed := 0.0, now.Sub(latest).Truncate(time.Microsecond) // what a bucket counts in
				if passed < -ClockStepMax || len(allowed) == 0 {
					latest, passed = now, 0
				}
				if passed > 0 {
					earned, latest = limit.Rate*passed.Seconds(), latest.Add(passed)
				}
				n := rapid.IntRange(0, 200).Draw(t, "n")
				b.Refill(now)
				taken := b.Take(n)
				if taken < 0 || taken > n {
					t.Fatalf("took %d of %d", taken, n)
				}
				allowed = append(allowed, limit.Burst)
				for i := range allowed {
					if i < len(allowed)-1 {
						allowed[i] += earned
					}
					allowed[i] -= float64(taken)
					if allowed[i] < -1e-6 {
						t.Fatalf("%v more than burst + rate x time since call %d", -allowed[i], i)
					}
				}
			},
			"": func(t *rapid.T) {
				if !b.At.IsZero() && !(b.Tokens >= -100 && b.Tokens <= limit.Burst) {
					t.Fatalf("%v tokens", b.Tokens)
				}
			},
		})
	})
}

// Who waits as long as was answered gets a token; who comes 50 ms earlier does not.
func TestWaitIsExact(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b := Bucket{Limit: Limit{Rate: rapid.Float64Range(0.001, 1e5).Draw(t, "rate"), Burst: rapid.Float64Range(1, 1000).Draw(t, "burst")}}
		b.Tokens = rapid.Float64Range(-b.Burst, 1).Draw(t, "tokens")
		b.At = start.Add(time.Duration(rapid.Int64Range(0, 1e6).Draw(t, "ahead")) * time.Microsecond)
		b.Refill(start)
		wait := b.Wait(start)
		early, later := b, b
		later.Refill(start.Add(wait))
		if later.Take(1) != 1 {
			t.Errorf("no token after the wait of %v", wait)
		}
		if wait < 50*time.Millisecond {
			return
		}
		early.Refill(start.Add(wait - 50*time.Millisecond))
		if early.Take(1) == 1 {
			t.Errorf("a token 50 ms before the wait of %v is over", wait)
		}
	})
}
