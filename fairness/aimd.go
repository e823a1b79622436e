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
// Times are the caller's; when they are set back by more than [ClockStepMax], what it knows begins anew from there. It is not safe for
// concurrent use.
type Adaptive struct {
	// Most is the rate that it stays within, in starts per second; 0 for none. It may change at any time.
	Most float64

	rate      float64
	threshold float64 // where slow start ends
	at        time.Time
	cutAt     time.Time
	starts    pace // what passed lately, to know what was too much
}

// Passed takes note of a start.
func (a *Adaptive) Passed(now time.Time) { a.starts.add(now) }

// Backpressure cuts the rate to half of what passed lately; slow start leads there from half of that. A rate that was never used by
// as much as it allows is cut from what was used. When nothing has passed there is nothing to cut.
func (a *Adaptive) Backpressure(now time.Time) {
	if !a.cutAt.IsZero() && now.Sub(a.cutAt) < adaptiveQuiet {
		return
	}
	was, limited := a.Rate(now)
	if passed := a.starts.peak(now); !limited || passed < was {
		was = passed
	}
	if was == 0 {
		return
	}
	a.threshold = max(was*adaptiveCut, adaptiveLeast)
	a.rate = max(a.threshold*adaptiveCut, adaptiveLeast) // slow start begins below and doubles
	a.at, a.cutAt = now, now
}

// Answered tells whether the last cut has answered already what an attempt says that started at this time: the attempt was under way
// when the rate was cut. However long attempts take, those that were in flight together cut the rate once.
func (a *Adaptive) Answered(started time.Time) bool {
	return !a.cutAt.IsZero() && !started.After(a.cutAt)
}

// Rate is the rate now in starts per second, and false while it is free.
func (a *Adaptive) Rate(now time.Time) (float64, bool) {
	if a.cutAt.IsZero() {
		return 0, false
	}
	if now.Sub(a.cutAt) >= adaptiveForget {
		*a = Adaptive{Most: a.Most, starts: a.starts}
		return 0, false
	}
	if a.at.Sub(now) > ClockStepMax {
		a.at, a.cutAt = now, now
	}
	if since := now.Sub(a.at); since > 0 {
		a.at = now
		a.grow(since)
	}
	return a.within(max(a.rate, adaptiveLeast)), true
}

func (a *Adaptive) grow(since time.Duration) {
	if a.rate < a.threshold {
		need := time.Duration(math.Log2(a.threshold/a.rate) * float64(adaptiveDouble))
		used := min(need, since)
		a.rate = min(a.rate*math.Exp2(used.Seconds()/adaptiveDouble.Seconds()), a.threshold)
		since -= used
	}
	a.rate = a.within(a.rate + adaptiveStep*a.threshold*since.Seconds())
}

func (a *Adaptive) within(rate float64) float64 {
	if a.Most > 0 {
		return min(rate, a.Most)
	}
	return rate
}

// Forgets is when there is nothing left that it knows, as long as nothing happens to it.
func (a *Adaptive) Forgets() time.Time {
	quiet := a.starts.at
	if !quiet.IsZero() {
		quiet = quiet.Add(paceKept)
	}
	if cut := a.cutAt.Add(adaptiveForget); !a.cutAt.IsZero() && cut.After(quiet) {
		return cut
	}
	return quiet
}

// Bounds of a [pace].
const (
	paceSpan = time.Second      // over which starts are averaged
	paceKept = 10 * time.Second // in which a higher pace than the present one fades: attempts take a while before they complain
)

// pace is how fast starts pass: the highest pace of late.
type pace struct {
	sum  float64 // of starts, each fading over the span: of a steady pace, what passes in one span
	high float64
	at   time.Time
}

func (p *pace) add(now time.Time) {
	p.fade(now)
	p.sum++
	p.high = max(p.high, p.sum)
}

func (p *pace) peak(now time.Time) float64 {
	p.fade(now)
	return p.high / paceSpan.Seconds()
}

func (p *pace) fade(now time.Time) {
	since := now.Sub(p.at)
	switch {
	case p.at.IsZero() || since < -ClockStepMax:
		p.at = now
	case since > 0:
		p.sum *= math.Exp(-since.Seconds() / paceSpan.Seconds())
		p.high = max(p.high*math.Exp(-since.Seconds()/paceKept.Seconds()), p.sum)
		p.at = now
	}
}
