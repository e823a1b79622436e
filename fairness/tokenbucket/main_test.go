package tokenbucket

import (
	"context"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"

	"github.com/errandhq/errand/internal/devcluster"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	// limit is when a test gives up waiting.
	limit = 30 * time.Second
	// patience is how long tests wait for a Redis that is alive: the machine may be busy.
	patience = 5 * time.Second
)

// slow is a policy whose buckets do not fill while a test runs.
var slow = Policy{Rate: 0.001, Burst: 10}

// open opens the buckets of region eu.
func open(t testing.TB, r *devcluster.Redis) *Buckets {
	t.Helper()
	b, err := Open(r.URL(), "eu", Options{CallMax: patience})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = b.Close() })
	return b
}

// raw opens a client of the test's own.
func raw(t testing.TB, r *devcluster.Redis) *redis.Client {
	t.Helper()
	opts, err := redis.ParseURL(r.URL())
	if err != nil {
		t.Fatal(err)
	}
	c := redis.NewClient(opts)
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// admit asks for a tenant's tasks, none of them urgent.
func admit(b *Buckets, tenant string, p Policy, tasks int) Answer {
	return b.Admit(context.Background(), []Ask{{Tenant: tenant, Policy: p, Tasks: tasks}})[0]
}

// wantGranted asks and compares.
func wantGranted(t *testing.T, b *Buckets, tenant string, p Policy, tasks, want int) {
	t.Helper()
	if got := admit(b, tenant, p, tasks); got.Granted != want {
		t.Errorf("%d of %d tasks were granted to %s, want %d (%+v)", got.Granted, tasks, tenant, want, b.Status())
	}
}

// wantBy compares who has answered so far.
func wantBy(t *testing.T, b *Buckets, byRedis, byTwin uint64) {
	t.Helper()
	if s := b.Status(); s.ByRedis != byRedis || s.ByTwin != byTwin {
		t.Errorf("Redis has answered %d, the twin %d; want %d and %d (%v)", s.ByRedis, s.ByTwin, byRedis, byTwin, s.Cause)
	}
}

// clock is a clock that a test sets.
type clock struct{ at time.Time }

func (c *clock) now() time.Time { return c.at }

// byHand gives buckets a clock, and pauses without chance: half of each.
func byHand(b *Buckets) *clock {
	c := &clock{at: time.UnixMicro(1_800_000_000_000_000)}
	b.now, b.chance = c.now, func() float64 { return 0 }
	return c
}
