package tokenbucket

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/errandhq/errand/internal/testdb"
)

func TestAdmit(t *testing.T) {
	b := open(t, testdb.Redis(t))
	const second = 1000 * time.Second // until one more, by the policy of slow
	urgent := Policy{UrgentRate: 0.001}
	both := Policy{Rate: 0.001, Burst: 10, UrgentRate: 0.001}
	tests := []struct {
		name          string
		ask           Ask
		want          Answer
		retry, urgent time.Duration
	}{
		{"within the burst", Ask{"a", slow, 7, 0}, Answer{Granted: 7}, 0, 0},
		{"the rest of it", Ask{"a", slow, 7, 0}, Answer{Granted: 3}, second, 0},
		{"nothing is left", Ask{"a", slow, 1, 0}, Answer{}, second, 0},
		{"of another tenant", Ask{"b", slow, 1, 1}, Answer{Granted: 1, Urgent: 1}, 0, 0},
		{"one urgent task", Ask{"c", both, 5, 3}, Answer{Granted: 5, Urgent: 1}, 0, second},
		{"no urgent task any more", Ask{"c", both, 4, 4}, Answer{Granted: 4}, 0, second},
		{"who asks for none urgent waits for none", Ask{"c", both, 1, 0}, Answer{Granted: 1}, 0, 0},
		{"nothing is left at all", Ask{"c", both, 1, 1}, Answer{}, second, 0},
		{"a limit of urgent tasks only", Ask{"d", urgent, 1000, 2}, Answer{Granted: 1000, Urgent: 1}, 0, second},
		{"nothing asked", Ask{"a", slow, 0, 0}, Answer{}, 0, 0},
		{"less than nothing asked", Ask{"a", slow, -5, 3}, Answer{}, 0, 0},
		{"more urgent tasks than tasks", Ask{"b", slow, 1, 9}, Answer{Granted: 1, Urgent: 1}, 0, 0},
	}
	for _, tt := range tests {
		got := b.Admit(t.Context(), []Ask{tt.ask})[0]
		tt.want.RetryAfter, tt.want.UrgentAfter = got.RetryAfter, got.UrgentAfter
		if got != tt.want {
			t.Errorf("%s: %+v, want %+v", tt.name, got, tt.want)
		}
		for _, wait := range [][2]time.Duration{{got.RetryAfter, tt.retry}, {got.UrgentAfter, tt.urgent}} {
			// Time passes while the test runs, so the wait is shorter than from an empty bucket.
			if wait[0] > wait[1]+2*time.Millisecond || wait[0] < wait[1]-limit {
				t.Errorf("%s: wait %v, want %v", tt.name, wait[0], wait[1])
			}
		}
	}
	wantBy(t, b, 10, 0)
}

// Who is not limited costs no round trip, whether Redis is there or not.
func TestNoPolicyIsAnsweredWithoutRedis(t *testing.T) {
	b := open(t, testdb.Redis(t))
	for _, a := range []Ask{
		{Tenant: "a", Tasks: 1 << 30, Urgent: 1 << 29},
		{Tenant: "a", Policy: Policy{UrgentRate: 1}, Tasks: 1 << 30},
	} {
		if got := b.Admit(t.Context(), []Ask{a})[0]; got != (Answer{Granted: a.Tasks, Urgent: a.Urgent}) {
			t.Errorf("%+v", got)
		}
	}
	if got := b.Admit(t.Context(), nil); len(got) != 0 {
		t.Errorf("answers to nothing: %v", got)
	}
	wantBy(t, b, 0, 0)
}

// A tenant's name is bytes: it neither breaks the key nor meets another's.
func TestTenantsAreBytes(t *testing.T) {
	b := open(t, testdb.Redis(t))
	names := []string{"", "a", "a}", "{a}", "a}:bucket", "a b", "a\r\nFLUSHALL\r\n", "\x00\xff", "ä", "%s", "a/b", "../a"}
	for range 2 {
		for _, name := range names {
			wantGranted(t, b, name, slow, 5, 5)
		}
	}
	for _, name := range names {
		wantGranted(t, b, name, slow, 5, 0)
	}
	wantBy(t, b, uint64(3*len(names)), 0)
}

// Answers come in the order of the asks, however many there are, also with a tenant twice.
func TestManyTenantsInOneCall(t *testing.T) {
	b := open(t, testdb.Redis(t))
	var asks []Ask
	var want []int
	for i := range RoundTripMax + 10 {
		asks = append(asks, Ask{Tenant: fmt.Sprint("tenant-", i), Policy: slow, Tasks: i % 20})
		want = append(want, min(i%20, 10))
	}
	asks = append(asks, Ask{Tenant: "tenant-7", Policy: slow, Tasks: 9})
	want = append(want, 3)
	var got []int
	for _, a := range b.Admit(t.Context(), asks) {
		got = append(got, a.Granted)
	}
	if !slices.Equal(got, want) {
		t.Errorf("granted %v, want %v", got, want)
	}
}

// Instances share one bucket: together they get no more than one would, to the task (P7, as far as admission goes).
func TestTwoInstancesShareOneRate(t *testing.T) {
	r := testdb.Redis(t)
	p := Policy{Rate: 200, Burst: 50}
	begin := time.Now()
	var granted atomic.Int64
	var wg sync.WaitGroup
	for range 2 {
		b := open(t, r)
		b.SetInstances(2)
		for range 4 {
			wg.Go(func() {
				for time.Since(begin) < time.Second {
					granted.Add(int64(admit(b, "a", p, 3).Granted))
				}
			})
		}
	}
	wg.Wait()
	took := time.Since(begin)
	most := float64(p.Burst) + p.Rate*took.Seconds()
	if n := float64(granted.Load()); n > most || n < float64(p.Burst) {
		t.Errorf("%v granted in %v, want %v to %v", n, took, p.Burst, most)
	}
}

// A policy that changes holds from the next call on.
func TestPolicyChanges(t *testing.T) {
	b := open(t, testdb.Redis(t))
	wantGranted(t, b, "a", Policy{Rate: 0.001, Burst: 100}, 10, 10)
	wantGranted(t, b, "a", Policy{Rate: 0.001, Burst: 5}, 10, 5)
	wantGranted(t, b, "a", Policy{Rate: 0.001, Burst: 100}, 10, 0)
	wantGranted(t, b, "a", Policy{}, 10, 10)
	wantGranted(t, b, "a", Policy{Rate: 0.001, Burst: 100}, 10, 0)
	if got := admit(b, "a", Policy{Rate: 0.1}, 1).RetryAfter; got > 11*time.Second {
		t.Errorf("wait %v for a token at 0.1 per second", got)
	}
	wantBy(t, b, 5, 0)
}

// Whoever goes away is answered, at once, and that says nothing about Redis.
func TestACallersEndIsNoFailureOfRedis(t *testing.T) {
	b := open(t, testdb.Redis(t))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for range 2 * FailuresMax {
		if got := b.Admit(ctx, []Ask{{Tenant: "a", Policy: slow, Tasks: 1}})[0]; got.Granted != 1 {
			t.Errorf("%+v", got)
		}
	}
	if s := b.Status(); s.Open || s.Cause != nil {
		t.Errorf("%+v", s)
	}
	// What the twin gave is not forgotten.
	wantGranted(t, b, "a", slow, 10, 10-2*FailuresMax)
}

func TestABadURLIsRefused(t *testing.T) {
	if _, err := Open("localhost:6379", "eu", Options{}); err == nil {
		t.Error("a URL without a scheme was taken")
	}
}

func BenchmarkAdmit(b *testing.B) {
	buckets := open(b, testdb.Redis(b))
	asks := []Ask{{Tenant: "a", Policy: Policy{Rate: 1e9}, Tasks: 10, Urgent: 1}}
	for b.Loop() {
		buckets.Admit(b.Context(), asks)
	}
}
