package tokenbucket

import (
	"context"
	"fmt"
	"math"
	"strconv"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"pgregory.net/rapid"

	"github.com/errandhq/errand/fairness"
	"github.com/errandhq/errand/internal/testdb"
)

// stored reads a tenant's hash.
func stored(t rapid.TB, c *redis.Client, tenant string) (at time.Time, tokens, urgent float64) {
	t.Helper()
	hash, err := c.HGetAll(context.Background(), key("eu", tenant)).Result()
	if err != nil {
		t.Fatal(err)
	}
	us, err := strconv.ParseInt(hash["at"], 10, 64)
	if err != nil {
		t.Fatalf("%v: %v", hash, err)
	}
	number := func(text string) float64 {
		if text == "" {
			return 0
		}
		f, err := strconv.ParseFloat(text, 64)
		if err != nil {
			t.Fatalf("%v: %v", hash, err)
		}
		return f
	}
	return time.UnixMicro(us), number(hash["t"]), number(hash["u"])
}

func drawPolicy(t *rapid.T) Policy {
	rate := rapid.OneOf(rapid.Just(0.0), rapid.Float64Range(0.01, 1e5))
	return Policy{
		Rate:       rate.Draw(t, "rate"),
		Burst:      rapid.IntRange(0, 100).Draw(t, "burst"),
		UrgentRate: rate.Draw(t, "urgent rate"),
	}
}

// The script and fairness.Bucket agree on every history: limits, debts, and a stored time that is moved back and forth.
// (Redis's clock cannot be set; the time that a call saw is read from what it stored, or bounded by it.)
func TestScriptAgreesWithTheArithmetic(t *testing.T) {
	r := testdb.Redis(t)
	b, c := open(t, r), raw(t, r)
	tenants := 0
	rapid.Check(t, func(t *rapid.T) {
		tenants++
		tenant := fmt.Sprint("tenant-", tenants)
		var all, urgent fairness.Bucket
		for turn := range rapid.IntRange(1, 12).Draw(t, "calls") {
			p := drawPolicy(t)
			before, err := c.Time(t.Context()).Result()
			if err != nil {
				t.Fatal(err)
			}
			if turn > 0 {
				// The bucket was last paid at some time around now, up to an hour off either way.
				at := before.Add(time.Duration(rapid.OneOf(
					rapid.Int64Range(-3600e6, -1), rapid.Just(int64(3600e6)), rapid.Int64Range(2e6, 3600e6),
				).Draw(t, "at")) * time.Microsecond)
				if err := c.HSet(t.Context(), key("eu", tenant), "at", at.UnixMicro()).Err(); err != nil {
					t.Fatal(err)
				}
				for _, bucket := range []*fairness.Bucket{&all, &urgent} {
					if !bucket.Unlimited() {
						bucket.At = at
					}
				}
			}
			tasks := rapid.IntRange(1, 150).Draw(t, "tasks")
			sent := &call{
				ask: Ask{Tenant: tenant, Policy: p, Tasks: tasks, Urgent: rapid.IntRange(0, tasks).Draw(t, "urgent")},
				owed: pair[float64]{
					all:    rapid.Float64Range(0, 50).Draw(t, "owed"),
					urgent: rapid.Float64Range(0, 50).Draw(t, "urgently owed"),
				},
			}
			b.roundTrip(t.Context(), []*call{sent})
			if sent.err != nil {
				t.Fatal(sent.err)
			}
			now, left, urgentLeft := stored(t, c, tenant)
			limits := p.limits()
			all.Limit, urgent.Limit = limits.all, limits.urgent
			taken := pair[int]{all: settle(&all, now, sent.owed.all, tasks)}
			taken.urgent = settle(&urgent, now, sent.owed.urgent, min(sent.ask.Urgent, taken.all))
			want := sent.ask.answer(taken, pair[time.Duration]{all: all.Wait(now), urgent: urgent.Wait(now)})
			if sent.got != want {
				t.Fatalf("the script says %+v, the arithmetic %+v", sent.got, want)
			}
			if left != all.Tokens || urgentLeft != urgent.Tokens {
				t.Fatalf("the script leaves %v and %v, the arithmetic %v and %v", left, urgentLeft, all.Tokens, urgent.Tokens)
			}
			if sent.left.all != left || sent.left.urgent != urgentLeft {
				t.Fatalf("the script answers %v and stores %v and %v", sent.left, left, urgentLeft)
			}
		}
	})
}

// settle does to a bucket what a call of the script does.
func settle(b *fairness.Bucket, now time.Time, owed float64, n int) int {
	b.Refill(now)
	if !b.Unlimited() {
		b.Debit(owed)
	}
	return b.Take(n)
}

// A time that is slightly ahead, as after a failover, is waited for; one that is far ahead freezes nothing and pays nothing (B25).
func TestAStoredTimeAhead(t *testing.T) {
	r := testdb.Redis(t)
	b, c := open(t, r), raw(t, r)
	p := Policy{Rate: 0.1, Burst: 10}
	for ahead, wait := range map[time.Duration]time.Duration{
		time.Hour:                  10 * time.Second,
		100 * 365 * 24 * time.Hour: 10 * time.Second,
		900 * time.Millisecond:     10*time.Second + 900*time.Millisecond,
	} {
		tenant := ahead.String()
		wantGranted(t, b, tenant, p, 10, 10)
		now, err := c.Time(t.Context()).Result()
		if err != nil {
			t.Fatal(err)
		}
		if err := c.HSet(t.Context(), key("eu", tenant), "at", now.Add(ahead).UnixMicro(), "t", 0).Err(); err != nil {
			t.Fatal(err)
		}
		got := admit(b, tenant, p, 5)
		if got.Granted != 0 {
			t.Errorf("%v ahead: %d granted", ahead, got.Granted)
		}
		if got.RetryAfter > wait+2*time.Millisecond || got.RetryAfter < wait-time.Second {
			t.Errorf("%v ahead: wait %v, want %v", ahead, got.RetryAfter, wait)
		}
	}
}

// What somebody else wrote into the hash gives at most one burst and blocks nobody.
func TestStoredNonsense(t *testing.T) {
	r := testdb.Redis(t)
	b, c := open(t, r), raw(t, r)
	for _, text := range []string{"", "nan", "-nan", "inf", "-inf", "1e400", "-1e400", "0x", "ten", "\x00", "-5"} {
		for _, field := range []string{"at", "t", "u"} {
			tenant := field + "=" + text
			p := Policy{Rate: 1000, Burst: 10, UrgentRate: 1000}
			admit(b, tenant, p, 1)
			if err := c.HSet(t.Context(), key("eu", tenant), field, text).Err(); err != nil {
				t.Fatal(err)
			}
			for range 3 {
				got := b.Admit(t.Context(), []Ask{{Tenant: tenant, Policy: p, Tasks: 50, Urgent: 5}})[0]
				if got.Granted < 0 || got.Granted > 10 || got.RetryAfter <= 0 || got.RetryAfter > time.Second || got.Urgent < 0 || got.Urgent > 5 {
					t.Errorf("%q: %+v", tenant, got)
				}
			}
			_, tokens, urgent := stored(t, c, tenant)
			if math.IsNaN(tokens) || math.Abs(tokens) > 10 || math.IsNaN(urgent) || math.Abs(urgent) > 1000 {
				t.Errorf("%q: %v and %v tokens are stored", tenant, tokens, urgent)
			}
		}
	}
	if s := b.Status(); s.ByTwin != 0 {
		t.Errorf("%+v", s)
	}
}

// Every key expires once its buckets are full again, and not before (B26).
func TestEveryKeyExpires(t *testing.T) {
	r := testdb.Redis(t)
	b, c := open(t, r), raw(t, r)
	const margin, day = time.Minute, 24 * time.Hour
	for name, tt := range map[string]struct {
		policy        Policy
		tasks, urgent int
		full          time.Duration
	}{
		"touched once":         {Policy{Rate: 1, Burst: 1000}, 1, 0, time.Second},
		"empty":                {Policy{Rate: 1, Burst: 1000}, 1000, 0, 1000 * time.Second},
		"the urgent one later": {Policy{Rate: 1, Burst: 1000, UrgentRate: 0.001}, 1, 1, 1000 * time.Second},
		"urgent only":          {Policy{UrgentRate: 0.001}, 1, 1, 1000 * time.Second},
		"in a hundred years":   {Policy{Rate: 1.0 / 3600, Burst: 100 * 365 * 24}, 100 * 365 * 24, 0, 365 * day},
		"never":                {Policy{Rate: 1e-300, Burst: 1}, 1, 0, 365 * day},
	} {
		b.Admit(t.Context(), []Ask{{Tenant: name, Policy: tt.policy, Tasks: tt.tasks, Urgent: tt.urgent}})
		ttl, err := c.PTTL(t.Context(), key("eu", name)).Result()
		if err != nil {
			t.Fatal(err)
		}
		if ttl > tt.full+margin || ttl < tt.full+margin-limit {
			t.Errorf("%s: expires in %v, want %v", name, ttl, tt.full+margin)
		}
	}
	keys, err := c.Keys(t.Context(), "*").Result()
	if err != nil {
		t.Fatal(err)
	}
	for _, k := range keys {
		if ttl := c.PTTL(t.Context(), k).Val(); ttl <= 0 {
			t.Errorf("%s stays for ever (%v)", k, ttl)
		}
	}
}

// A server that forgot the script learns it anew within the call, for all tenants of the call (B27).
func TestScriptFlush(t *testing.T) {
	r := testdb.Redis(t)
	b, c := open(t, r), raw(t, r)
	asks := []Ask{{"a", slow, 1, 0}, {"b", slow, 1, 0}, {"a", slow, 1, 0}}
	for range 3 {
		b.Admit(t.Context(), asks)
		if err := c.ScriptFlush(t.Context()).Err(); err != nil {
			t.Fatal(err)
		}
	}
	wantGranted(t, b, "a", slow, 10, 4)
	wantGranted(t, b, "b", slow, 10, 7)
	wantBy(t, b, 11, 0)
}

// A key that was evicted or flushed costs one burst.
func TestALostKeyCostsOneBurst(t *testing.T) {
	r := testdb.Redis(t)
	b, c := open(t, r), raw(t, r)
	for _, lose := range []func() error{
		func() error { return c.Del(t.Context(), key("eu", "a")).Err() },
		func() error { return c.FlushAll(t.Context()).Err() },
	} {
		wantGranted(t, b, "a", slow, 20, 10)
		if err := lose(); err != nil {
			t.Fatal(err)
		}
	}
	wantGranted(t, b, "a", slow, 20, 10)
	wantGranted(t, b, "a", slow, 20, 0)
}
