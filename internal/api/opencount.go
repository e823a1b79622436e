package api

import (
	"context"
	"sync"
	"time"

	"golang.org/x/sync/singleflight"
)

// Bounds of counting open tasks.
const (
	openCountFor   = time.Second            // a count is used for this long while there is room
	openCountAgain = 100 * time.Millisecond // and for this long, at least, when there is none: tasks end
	openCountCost  = 10                     // or for this many times what it took to count, up to openCountFor: counting is not all the store does
	openCountWait  = 2 * time.Second        // for the store
	openRetryAfter = time.Second            // when to try again with as many open tasks as one may have
)

// openCounts knows about how many tasks of each tenant are open: what the store counted lately, and what was stored here since or is on
// its way. It is wrong by no more than what is on its way here, what other instances have stored since the count, and what has ended
// since. It holds one entry for each tenant that has a cap.
type openCounts struct {
	count func(ctx context.Context, tenant string) (int64, error)
	now   func() time.Time
	reads singleflight.Group

	mu sync.Mutex
	of map[string]*openCount
}

type openCount struct {
	known   bool
	counted int64
	at      time.Time     // when the last count began
	took    time.Duration // by it
	since   int64         // stored here since then
	during  int64         // stored here since the count began that is under way
	flight  int64         // let in here and not answered yet
}

func newOpenCounts(count func(context.Context, string) (int64, error)) *openCounts {
	return &openCounts{count: count, now: time.Now, of: map[string]*openCount{}}
}

// take lets in up to n tasks of a tenant that may have most open ones, and returns how many. Each must be settled later. While the
// store has never answered, all are let in: it will not store them either.
func (o *openCounts) take(ctx context.Context, tenant string, most int64, n int) int {
	o.refresh(ctx, tenant, openCountFor)
	taken := o.reserve(tenant, most, n)
	if taken < n {
		o.refresh(ctx, tenant, openCountAgain)
		taken += o.reserve(tenant, most, n-taken)
	}
	return taken
}

// settle tells what became of tasks that were let in: so many are not on their way any more, of which so many were stored.
func (o *openCounts) settle(tenant string, tasks, stored int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	c := o.entry(tenant)
	c.flight -= int64(tasks)
	c.since += int64(stored)
	c.during += int64(stored)
}

func (o *openCounts) reserve(tenant string, most int64, n int) int {
	o.mu.Lock()
	defer o.mu.Unlock()
	c := o.entry(tenant)
	if c.known {
		n = int(min(int64(n), max(0, most-c.counted-c.since-c.flight)))
	}
	c.flight += int64(n)
	return n
}

// entry finds or makes a tenant's entry. The caller holds the lock.
func (o *openCounts) entry(tenant string) *openCount {
	c := o.of[tenant]
	if c == nil {
		c = &openCount{}
		o.of[tenant] = c
	}
	return c
}

// refresh counts anew when the last count is older than an age. Of many callers one counts and the others wait for it; their context
// does not end it, since it is not theirs alone.
func (o *openCounts) refresh(ctx context.Context, tenant string, age time.Duration) {
	if !o.stale(tenant, age) {
		return
	}
	_, _, _ = o.reads.Do(tenant, func() (any, error) {
		if !o.stale(tenant, age) { // somebody was faster
			return nil, nil
		}
		began := o.begin(tenant)
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), openCountWait)
		defer cancel()
		n, err := o.count(ctx, tenant)
		o.end(tenant, began, n, err)
		return nil, nil
	})
}

func (o *openCounts) stale(tenant string, age time.Duration) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	c := o.entry(tenant)
	return o.now().Sub(c.at) >= max(age, min(openCountCost*c.took, openCountFor))
}

func (o *openCounts) begin(tenant string) time.Time {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.entry(tenant).during = 0
	return o.now()
}

// end takes a count. One that failed leaves what was known, and is not tried again at once.
func (o *openCounts) end(tenant string, began time.Time, n int64, err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	c := o.entry(tenant)
	c.at, c.took = began, o.now().Sub(began)
	if err == nil {
		c.known, c.counted, c.since = true, n, c.during
	}
}
