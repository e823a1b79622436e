package fairness

import (
	"math"
	"time"
)

// Bounds of an [Adaptive] rate.
const (
	adaptiveLeast  = 1.0              // starts per second it never falls below
	adaptiveCut    = 0.5              // of the rate, at a backpressure
	adaptiveQuiet  = time.Second      // backpressure within this time of the last cut is the same congestion: it cuts no more
	adaptiveDouble = time.Second      // the time in which slow start doubles the rate
	adaptiveStep   = 0.05             // of the rate at the last cut, added per second after slow start
	adaptiveForget = 10 * time.Minute // without backpressure for so long the rate is free again
)

// Adaptive is a rate that gives way when it is told that it is too high: additive increase and multiplicative decrease with slow start,
// as TCP does it (Jacobson: "Congestion Avoidance and Control", 1988). While nobody complains it is no limit. The zero value is free.
// Times are the caller's and never go back. It is not safe for concurrent use.
type Adaptive struct {
	rate      float64
	threshold float64 // where slow start ends
	at        time.Time
	cutAt     time.Time
	starts    fading // of what passed lately, to know what was too much
}

// Passed takes note of a start.
func (a *Adaptive) Passed(now time.Time) { a.starts.add(1, now) }

// Backpressure cuts the rate, to half of what there was.
func (a *Adaptive) Backpressure(now time.Time) {
	if !a.cutAt.IsZero() && now.Sub(a.cutAt) < adaptiveQuiet {
		return
	}
	was, limited := a.Rate(now)
	if !limited {
		was = a.starts.value(now) / Window.Seconds()
	}
	a.threshold = max(was*adaptiveCut, adaptiveLeast)
	a.rate = max(a.threshold*adaptiveCut, adaptiveLeast) // slow start begins below and doubles
	a.at, a.cutAt = now, now
}

// Rate is the rate now in starts per second, and false while it is free.
func (a *Adaptive) Rate(now time.Time) (float64, bool) {
	if a.cutAt.IsZero() {
		return 0, false
	}
	if now.Sub(a.cutAt) >= adaptiveForget {
		*a = Adaptive{starts: a.starts}
		return 0, false
	}
	if since := now.Sub(a.at); since > 0 {
		a.at = now
		if a.rate < a.threshold {
			need := time.Duration(math.Log2(a.threshold/a.rate) * float64(adaptiveDouble))
			used := min(need, since)
			a.rate = min(a.rate*math.Exp2(used.Seconds()/adaptiveDouble.Seconds()), a.threshold)
			since -= used
		}
		a.rate += adaptiveStep * a.threshold * since.Seconds()
	}
	return a.rate, true
}
