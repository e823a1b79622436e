package tokenbucket

import (
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/errandhq/errand/fairness"
)

func TestTwinHasAShare(t *testing.T) {
	now := time.Unix(1_800_000_000, 0)
	for _, tt := range []struct {
		instances int
		ask       Ask
		want      Answer
	}{
		{1, Ask{"a", Policy{Rate: 10}, 20, 0}, Answer{Granted: 10, RetryAfter: 101 * time.Millisecond}},
		{5, Ask{"b", Policy{Rate: 10}, 20, 0}, Answer{Granted: 2, RetryAfter: 501 * time.Millisecond}},
		{20, Ask{"c", Policy{Rate: 10}, 20, 0}, Answer{Granted: 1, RetryAfter: 2001 * time.Millisecond}},
		{2, Ask{"d", Policy{Rate: 10, UrgentRate: 4}, 4, 3}, Answer{Granted: 4, Urgent: 2, UrgentAfter: 501 * time.Millisecond}},
		{2, Ask{"e", Policy{UrgentRate: 4}, 99, 3}, Answer{Granted: 99, Urgent: 2, UrgentAfter: 501 * time.Millisecond}},
		{2, Ask{"f", Policy{}, 99, 3}, Answer{Granted: 99, Urgent: 3}},
	} {
		if got := newTwin().admit(tt.ask, tt.instances, now); got != tt.want {
			t.Errorf("one of %d, %+v: %+v, want %+v", tt.instances, tt.ask, got, tt.want)
		}
	}
}

// Tenants that ask once do not fill the memory; one that asks again and again is not forgotten for them.
func TestTwinForgetsTheOldest(t *testing.T) {
	now := time.Unix(1_800_000_000, 0)
	w := newTwin()
	regular := Ask{Tenant: "regular", Policy: slow, Tasks: 1}
	for i := range 2 * TwinTenantsMax {
		w.admit(Ask{Tenant: fmt.Sprint("tenant-", i), Policy: slow, Tasks: 1}, 1, now)
		if got := w.admit(regular, 1, now).Granted; i < 10 && got != 1 || i >= 10 && got != 0 {
			t.Fatalf("%d tasks granted at turn %d", got, i)
		}
	}
	if len(w.seats) != TwinTenantsMax || w.order.Len() != TwinTenantsMax {
		t.Errorf("%d and %d tenants remembered, want %d", len(w.seats), w.order.Len(), TwinTenantsMax)
	}
}

// What was handed out beyond the share of the rate is owed once, also when it did not arrive at first.
func TestTwinOwes(t *testing.T) {
	now := time.Unix(1_800_000_000, 0)
	w := newTwin()
	a := Ask{Tenant: "a", Policy: Policy{Rate: 10, Burst: 20, UrgentRate: 4}, Tasks: 6, Urgent: 2}
	if owed := w.collect(a, 2, now); owed != (pair[float64]{}) {
		t.Errorf("%v is owed by a tenant that never asked", owed)
	}
	w.follow(a, 2, now, pair[float64]{all: 20, urgent: 4})
	if owed := w.collect(a, 2, now); owed != (pair[float64]{}) {
		t.Errorf("%v is owed while Redis answers", owed)
	}
	w.admit(a, 2, now)
	want := pair[float64]{all: 6, urgent: 2}
	if owed := w.collect(a, 2, now); owed != want {
		t.Errorf("%v is owed, want %v", owed, want)
	}
	if owed := w.collect(a, 2, now); owed != (pair[float64]{}) {
		t.Errorf("%v is owed twice", owed)
	}
	w.giveBack(a.Tenant, want)
	now = now.Add(400 * time.Millisecond) // 2 of 6 are earned, and 0.8 of 2
	want = pair[float64]{all: 4, urgent: 1.2}
	if owed := w.collect(a, 2, now); owed != want {
		t.Errorf("%v is owed later, want %v", owed, want)
	}
}

// What is handed out while a call is on its way to Redis stays owed when the answer comes.
func TestTwinOwesWhatItGaveMeanwhile(t *testing.T) {
	now := time.Unix(1_800_000_000, 0)
	w := newTwin()
	a := Ask{Tenant: "a", Policy: Policy{Rate: 10, Burst: 20}, Tasks: 6}
	w.follow(a, 2, now, pair[float64]{all: 20})
	w.collect(a, 2, now)
	w.admit(a, 2, now)
	w.follow(a, 2, now, pair[float64]{all: 14})
	if left := w.seat(a, 2, now).accounts.all.bucket.Tokens; left != 1 {
		t.Errorf("%v tokens, want 7 less 6", left)
	}
	if owed := w.collect(a, 2, now); owed != (pair[float64]{all: 6}) {
		t.Errorf("%v is owed, want 6", owed)
	}
}

// Redis comes and goes, and its own bucket is refilled meanwhile. One instance never grants more than burst + rate x time for that;
// several, which do not know of each other's last grants when it goes, not more than another burst for each time it went.
func TestOutagesPayNoSecondBurst(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 4).Draw(t, "instances")
		p := Policy{Rate: rapid.Float64Range(0.1, 100).Draw(t, "rate"), Burst: rapid.IntRange(n, 100).Draw(t, "burst")}
		begin := time.Unix(1_800_000_000, 0)
		now, up, outages, granted := begin, true, 0, 0
		shared := fairness.Bucket{Limit: p.limits().all}
		twins := make([]*twin, n)
		for i := range twins {
			twins[i] = newTwin()
		}
		t.Repeat(map[string]func(*rapid.T){
			"time passes": func(t *rapid.T) {
				now = now.Add(time.Duration(rapid.Int64Range(0, 10e6).Draw(t, "us")) * time.Microsecond)
			},
			"Redis comes or goes": func(t *rapid.T) {
				up = !up
				if !up {
					outages++
				}
			},
			"ask": func(t *rapid.T) {
				w := twins[rapid.IntRange(0, n-1).Draw(t, "instance")]
				a := Ask{Tenant: "a", Policy: p, Tasks: rapid.IntRange(1, 100).Draw(t, "tasks")}
				if !up {
					granted += w.admit(a, n, now).Granted
					return
				}
				shared.Refill(now)
				shared.Debit(w.collect(a, n, now).all)
				granted += shared.Take(a.Tasks)
				w.follow(a, n, now, pair[float64]{all: shared.Tokens})
			},
			"": func(t *rapid.T) {
				most := float64(p.Burst) + p.Rate*now.Sub(begin).Seconds()
				if n > 1 {
					most += float64(outages * p.Burst)
				}
				if float64(granted) > most+1e-6 {
					t.Fatalf("%d granted, at most %v with %d outages", granted, most, outages)
				}
			},
		})
	})
}
