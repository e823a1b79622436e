package tokenbucket

import (
	"errors"
	"testing"
	"time"
)

var errGone = errors.New("gone")

// fail lets a closed breaker open.
func fail(k *breaker, now time.Time) {
	for range FailuresMax {
		k.done(failed, false, errGone, now, 0)
	}
}

func TestBreakerOpensAfterFailuresInARow(t *testing.T) {
	now := time.Unix(1_800_000_000, 0)
	var k breaker
	for range 3 {
		for range FailuresMax - 1 {
			k.done(failed, false, errGone, now, 0)
			k.done(undecided, false, nil, now, 0)
		}
		if open, cause := k.state(); open || !errors.Is(cause, errGone) {
			t.Fatalf("open %v because of %v after %d failures", open, cause, FailuresMax-1)
		}
		k.done(answered, false, nil, now, 0)
	}
	fail(&k, now)
	if open, cause := k.state(); !open || !errors.Is(cause, errGone) {
		t.Errorf("open %v because of %v", open, cause)
	}
	if may, _ := k.call(now, 0); may {
		t.Error("a call goes to Redis while the breaker is open")
	}
}

// One call tries after each pause, and pauses double up to their bound.
func TestBreakerTriesWithGrowingPauses(t *testing.T) {
	for _, chance := range []float64{0, 0.5, 0.999} {
		now := time.Unix(1_800_000_000, 0)
		var k breaker
		for range FailuresMax {
			k.done(failed, false, errGone, now, chance)
		}
		pause := ProbePauseMin
		for range 10 {
			wait := pause/2 + time.Duration(chance*float64(pause/2))
			if may, _ := k.call(now.Add(wait-1), chance); may {
				t.Errorf("a try %v after the last one, before %v", wait-1, wait)
			}
			now = now.Add(wait)
			if may, try := k.call(now, chance); !may || !try {
				t.Errorf("no try after %v", wait)
			}
			if may, _ := k.call(now, chance); may {
				t.Error("two tries at once")
			}
			k.done(failed, false, errGone, now, chance) // a call from before the breaker opened makes no pause longer
			k.done(failed, true, errGone, now, chance)
			pause = min(2*pause, ProbePauseMax)
		}
	}
}

func TestBreakerClosesWhenRedisAnswers(t *testing.T) {
	now := time.Unix(1_800_000_000, 0)
	var k breaker
	fail(&k, now)
	now = now.Add(ProbePauseMax)
	_, try := k.call(now, 0)
	k.done(undecided, try, nil, now, 0)
	if open, _ := k.state(); !open {
		t.Error("a try whose caller went away closed the breaker")
	}
	now = now.Add(ProbePauseMax)
	_, try = k.call(now, 0)
	k.done(answered, try, nil, now, 0)
	if open, cause := k.state(); open || cause != nil {
		t.Errorf("open %v because of %v after an answer", open, cause)
	}
	for range FailuresMax - 1 {
		k.done(failed, false, errGone, now, 0)
	}
	if may, try := k.call(now, 0); !may || try {
		t.Error("failures from before the outage still count")
	}
}
