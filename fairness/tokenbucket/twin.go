package tokenbucket

import (
	"container/list"
	"sync"
	"time"

	"github.com/errandhq/errand/fairness"
)

// TwinTenantsMax bounds the tenants that the twin remembers. Beyond it the one that was not asked for longest is forgotten, which
// gives it a full bucket again: at most one burst.
const TwinTenantsMax = 10_000

// twin stands in for Redis while it does not answer, with this instance's share of every limit. While Redis answers, it follows, so that
// it starts with what is left. What it hands out is owed to Redis.
type twin struct {
	mu    sync.Mutex
	seats map[string]*list.Element // of *seat
	order *list.List               // the tenant asked for last comes first
}

type seat struct {
	tenant   string
	accounts pair[account]
	heard    time.Time // when Redis answered last
}

// account is a bucket of the twin beside a copy from which nothing was taken since Redis last answered. The difference is owed to
// Redis. It is not all that was handed out, and rightly so: what this instance earned meanwhile as its share, Redis has
// refilled too, up to the same burst.
type account struct{ bucket, untouched fairness.Bucket }

func newTwin() *twin { return &twin{seats: map[string]*list.Element{}, order: list.New()} }

// seat finds or makes a tenant's accounts and brings them up to now. The caller holds the lock.
func (t *twin) seat(a Ask, instances int, now time.Time) *seat {
	element := t.seats[a.Tenant]
	if element == nil {
		element = t.order.PushFront(&seat{tenant: a.Tenant})
		t.seats[a.Tenant] = element
		if t.order.Len() > TwinTenantsMax {
			oldest := t.order.Remove(t.order.Back()).(*seat)
			delete(t.seats, oldest.tenant)
		}
	}
	t.order.MoveToFront(element)
	s := element.Value.(*seat)
	limits := a.Policy.limits()
	s.accounts.all.refill(limits.all.Share(instances), now)
	s.accounts.urgent.refill(limits.urgent.Share(instances), now)
	return s
}

// admit answers in place of Redis.
func (t *twin) admit(a Ask, instances int, now time.Time) Answer {
	t.mu.Lock()
	defer t.mu.Unlock()
	accounts := &t.seat(a, instances, now).accounts
	all, urgent := &accounts.all.bucket, &accounts.urgent.bucket
	taken := pair[int]{all: all.Take(a.Tasks)}
	taken.urgent = urgent.Take(min(a.Urgent, taken.all))
	return a.answer(taken, pair[time.Duration]{all: all.Wait(now), urgent: urgent.Wait(now)})
}

// ahead takes all that is asked for without asking Redis, or nothing: only shortly after its last answer, and of plenty. It is owed.
func (t *twin) ahead(a Ask, instances int, now time.Time, fresh time.Duration) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	element := t.seats[a.Tenant]
	if element == nil {
		return false
	}
	if age := now.Sub(element.Value.(*seat).heard); age < 0 || age > fresh {
		return false
	}
	accounts := &t.seat(a, instances, now).accounts
	all, urgent := &accounts.all.bucket, &accounts.urgent.bucket
	if !plenty(all, a.Tasks) || !plenty(urgent, a.Urgent) {
		return false
	}
	all.Take(a.Tasks)
	urgent.Take(a.Urgent)
	return true
}

// plenty tells whether more than half of what a bucket holds is left without so many tokens.
func plenty(b *fairness.Bucket, n int) bool {
	return n == 0 || b.Unlimited() || b.Tokens-float64(n) > b.Burst/2
}

// collect takes what is owed to Redis, to be brought there with the tenant's next call.
func (t *twin) collect(a Ask, instances int, now time.Time) pair[float64] {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.seats[a.Tenant] == nil {
		return pair[float64]{}
	}
	accounts := &t.seat(a, instances, now).accounts
	return pair[float64]{all: accounts.all.collect(), urgent: accounts.urgent.collect()}
}

// giveBack puts back what was collected and has not arrived. (When it did arrive and the answer got lost, it is debited twice.)
func (t *twin) giveBack(tenant string, owed pair[float64]) {
	if owed == (pair[float64]{}) {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if element := t.seats[tenant]; element != nil {
		accounts := &element.Value.(*seat).accounts
		accounts.all.untouched.Tokens += owed.all
		accounts.urgent.untouched.Tokens += owed.urgent
	}
}

// follow takes over what Redis has left for a tenant. Answers may be heard in another order than they were given: with calls at
// once, the twin may start an outage with a little too much, never with more than its share of the burst.
func (t *twin) follow(a Ask, instances int, now time.Time, left pair[float64]) {
	t.mu.Lock()
	defer t.mu.Unlock()
	s := t.seat(a, instances, now)
	s.heard = now
	accounts, limits := &s.accounts, a.Policy.limits()
	accounts.all.follow(left.all, limits.all)
	accounts.urgent.follow(left.urgent, limits.urgent)
}

func (c *account) refill(share fairness.Limit, now time.Time) {
	for _, b := range []*fairness.Bucket{&c.bucket, &c.untouched} {
		b.Limit = share
		b.Refill(now)
	}
}

// collect leaves nothing owed.
func (c *account) collect() float64 {
	if c.bucket.Unlimited() {
		return 0
	}
	owed := max(0, c.untouched.Tokens-c.bucket.Tokens)
	c.untouched.Tokens = c.bucket.Tokens
	return owed
}

// follow sets the account to this instance's share of what is left in a bucket of the whole region. What became owed while that
// answer was on its way stays owed.
func (c *account) follow(left float64, whole fairness.Limit) {
	if whole.Unlimited() {
		return
	}
	owed := max(0, c.untouched.Tokens-c.bucket.Tokens)
	c.untouched.Tokens = left * c.untouched.Burst / whole.Burst
	c.bucket.Tokens = c.untouched.Tokens
	c.bucket.Debit(owed)
}
