// Package tokenbucket admits submits: every tenant has a token bucket per region, and one more for urgent tasks, which all scheduler
// instances of the region share through Redis.
//
// An answer never fails and never waits for long. When Redis does not answer, a twin in memory does, with this instance's share of
// the limit, and a breaker keeps calls from waiting for Redis until a try succeeds. What the twin handed out is debited at the
// tenant's next call of Redis: an outage pays no second burst. Redis that lost its keys, by a flush, an eviction or a
// replica that was behind, costs at most one burst per tenant; it makes admission exact, never right (P9).
//
// The arithmetic is in package fairness, and once more in admit.lua, which Redis runs by its own clock.
package tokenbucket

import (
	"context"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	// CallMax is how long Admit waits for Redis unless Options say something else.
	CallMax = 50 * time.Millisecond
	// RoundTripMax bounds the tenants that are sent to Redis together; more are sent in turn, within the same time.
	RoundTripMax = 500
	// AheadFor is a good value of Options.Ahead: less than anybody notices, and many submits of a busy tenant.
	AheadFor = 20 * time.Millisecond
)

// Options of Buckets. The zero value has the defaults.
type Options struct {
	// CallMax is how long Admit waits for Redis in all, before the twin answers. 0 is the constant of the same name.
	CallMax time.Duration
	// Ahead is for how long after an answer of Redis a tenant is admitted without asking again, as long as that answer left plenty: more
	// than half of this instance's share of each burst. What is admitted so is debited at the tenant's next call. When other
	// instances empty the bucket meanwhile, it owes at most half a burst, and the tenant waits so much longer. 0 asks every time.
	Ahead time.Duration
}

// Buckets are the token buckets of a region's tenants. They are safe for concurrent use.
type Buckets struct {
	client    redis.UniversalClient // nil: the twin answers everything
	region    string
	callMax   time.Duration
	ahead     time.Duration
	instances atomic.Int64
	breaker   breaker
	twin      *twin
	byRedis   atomic.Uint64
	byTwin    atomic.Uint64
	byAhead   atomic.Uint64

	now    func() time.Time // for the twin and the breaker; Redis has its own
	chance func() float64   // within [0, 1)
}

// Open prepares the buckets of a region. It does not need Redis to be there; an error says that the URL is not one. A URL that names
// more servers, as in redis://host:6379?addr=host2:6379, is that of a Redis Cluster. Without a URL the twin answers everything.
func Open(url, region string, opts Options) (*Buckets, error) {
	if opts.CallMax <= 0 {
		opts.CallMax = CallMax
	}
	b := &Buckets{
		region: region, callMax: opts.CallMax, ahead: opts.Ahead, twin: newTwin(),
		now: time.Now, chance: rand.Float64,
	}
	if url != "" {
		var err error
		if b.client, err = connect(url, opts.CallMax); err != nil {
			return nil, err
		}
	}
	b.instances.Store(1)
	return b, nil
}

// Close ends the connections. Calls after it are answered by the twin.
func (b *Buckets) Close() error {
	if b.client == nil {
		return nil
	}
	return b.client.Close()
}

// SetInstances says how many scheduler instances of the region are alive, at least 1: without Redis, this one admits its share.
func (b *Buckets) SetInstances(n int) { b.instances.Store(int64(max(1, n))) }

// Status is for metrics.
type Status struct {
	// Open tells that the breaker is open: the twin answers, and Redis is only tried from time to time.
	Open bool
	// ByRedis and ByTwin count the asks that each has answered, and Ahead those that were answered by what Redis had said a moment
	// before. Asks without a limit are in none.
	ByRedis, ByTwin, Ahead uint64
	// Cause is why the last call of Redis failed; nil when it did not.
	Cause error
}

// Status tells how things stand.
func (b *Buckets) Status() Status {
	s := Status{ByRedis: b.byRedis.Load(), ByTwin: b.byTwin.Load(), Ahead: b.byAhead.Load()}
	s.Open, s.Cause = b.breaker.state()
	return s
}

// Admit answers each ask, in order; all go to Redis in one round trip. It returns within Options.CallMax, or soon after ctx has ended, and
// always with answers: from the twin when Redis has none. Asks that no policy limits are answered without Redis.
func (b *Buckets) Admit(ctx context.Context, asks []Ask) []Answer {
	answers := make([]Answer, len(asks))
	var calls []*call
	now, instances := b.now(), int(b.instances.Load())
	for i, a := range asks {
		a.Tasks = max(0, a.Tasks)
		a.Urgent = min(max(0, a.Urgent), a.Tasks)
		if a.settled() {
			answers[i] = Answer{Granted: a.Tasks, Urgent: a.Urgent}
			continue
		}
		if b.ahead > 0 && b.twin.ahead(a, instances, now, b.ahead) {
			answers[i] = Answer{Granted: a.Tasks, Urgent: a.Urgent}
			b.byAhead.Add(1)
			continue
		}
		calls = append(calls, &call{at: i, ask: a})
	}
	if len(calls) == 0 {
		return answers
	}
	asked := b.askRedis(ctx, calls)
	now = b.now()
	for _, c := range calls {
		if asked && c.err == nil {
			b.twin.follow(c.ask, instances, now, c.left)
			answers[c.at] = c.got
			b.byRedis.Add(1)
			continue
		}
		b.twin.giveBack(c.ask.Tenant, c.owed)
		answers[c.at] = b.twin.admit(c.ask, instances, now)
		b.byTwin.Add(1)
	}
	return answers
}

// askRedis sends the calls to Redis, unless there is none or the breaker is open, and tells whether it did.
func (b *Buckets) askRedis(ctx context.Context, calls []*call) bool {
	if b.client == nil {
		return false
	}
	now := b.now()
	may, try := b.breaker.call(now, b.chance())
	if !may {
		return false
	}
	instances := int(b.instances.Load())
	for _, c := range calls {
		c.owed = b.twin.collect(c.ask, instances, now)
	}
	limited, cancel := context.WithTimeout(ctx, b.callMax)
	defer cancel()
	for rest := calls; len(rest) > 0; {
		n := min(len(rest), RoundTripMax)
		b.roundTrip(limited, rest[:n])
		rest = rest[n:]
	}
	how, cause := judge(ctx, calls)
	b.breaker.done(how, try, cause, b.now(), b.chance())
	return true
}

// judge says what the calls tell about Redis.
func judge(ctx context.Context, calls []*call) (outcome, error) {
	for _, c := range calls {
		switch {
		case c.err == nil, ofKey(c.err):
		case ctx.Err() != nil:
			return undecided, nil
		default:
			return failed, c.err
		}
	}
	return answered, nil
}
