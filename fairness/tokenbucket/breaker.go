package tokenbucket

import (
	"sync"
	"time"
)

const (
	// FailuresMax is how many calls in a row may fail before the breaker opens.
	FailuresMax = 3
	// ProbePauseMin is the pause before Redis is tried again after the breaker opened. It doubles with every try that fails.
	ProbePauseMin = 100 * time.Millisecond
	// ProbePauseMax bounds the pause between tries.
	ProbePauseMax = 2 * time.Second
)

// breaker keeps calls from waiting for a Redis that does not answer. While it is open, one call after each pause tries again.
type breaker struct {
	mu       sync.Mutex
	failures int // in a row
	open     bool
	pause    time.Duration
	until    time.Time // of the next try, while open
	cause    error     // of the last failure
}

// outcome is how a call of Redis went.
type outcome int

const (
	answered  outcome = iota
	failed            // whatever the reason, Redis is of no use now
	undecided         // the caller went away
)

// call tells whether a call may go to Redis, and whether it is a try while the breaker is open. chance is within [0, 1).
func (k *breaker) call(now time.Time, chance float64) (may, try bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if !k.open {
		return true, false
	}
	if now.Before(k.until) {
		return false, false
	}
	k.wait(now, chance) // the others do not try meanwhile
	return true, true
}

// done notes how a call went.
func (k *breaker) done(how outcome, try bool, cause error, now time.Time, chance float64) {
	k.mu.Lock()
	defer k.mu.Unlock()
	switch {
	case how == answered:
		k.failures, k.open, k.pause, k.cause = 0, false, 0, nil
	case how == undecided, k.open && !try: // a call from before the breaker opened says nothing new
	case k.open:
		k.cause = cause
		k.pause = min(2*k.pause, ProbePauseMax)
		k.wait(now, chance)
	default:
		k.cause = cause
		k.failures++
		if k.failures >= FailuresMax {
			k.open, k.pause = true, ProbePauseMin
			k.wait(now, chance)
		}
	}
}

// wait sets the next try to between half a pause and a whole one from now: instances that lost Redis together do not all come
// back at once.
func (k *breaker) wait(now time.Time, chance float64) {
	k.until = now.Add(k.pause/2 + time.Duration(chance*float64(k.pause/2)))
}

// state tells whether the breaker is open, and why the last call failed, if it did.
func (k *breaker) state() (open bool, cause error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.open, k.cause
}
