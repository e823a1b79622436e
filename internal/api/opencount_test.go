package api

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"
)

// counting is a store that counts, and a clock.
type counting struct {
	mu    sync.Mutex
	at    time.Time
	open  int64
	err   error
	reads int
	hook  func() // while a count is under way
}

func (c *counting) count(context.Context, string) (int64, error) {
	c.mu.Lock()
	c.reads++
	open, err, hook := c.open, c.err, c.hook
	c.mu.Unlock()
	if hook != nil {
		hook()
	}
	return open, err
}

func (c *counting) pass(d time.Duration) { c.at = c.at.Add(d) }

func counts() (*counting, *openCounts) {
	c := &counting{at: time.Unix(1_800_000_000, 0)}
	o := newOpenCounts(c.count)
	o.now = func() time.Time { return c.at }
	return c, o
}

func wantTaken(t *testing.T, o *openCounts, most int64, n, want int) {
	t.Helper()
	if got := o.take(t.Context(), "acme", most, n); got != want {
		t.Errorf("%d of %d were let in, want %d (%+v)", got, n, want, *o.of["acme"])
	}
}

// What is on its way and what was stored since the count are in it; what failed is not.
func TestOpenCountsAddWhatIsLetIn(t *testing.T) {
	c, o := counts()
	c.open = 90
	wantTaken(t, o, 100, 4, 4)
	wantTaken(t, o, 100, 4, 4)
	o.settle("acme", 4, 4) // stored
	o.settle("acme", 4, 0) // not
	wantTaken(t, o, 100, 10, 6)
	wantTaken(t, o, 100, 1, 0)
	if c.reads != 1 {
		t.Errorf("counted %d times in no time", c.reads)
	}
}

// With room a count is good for a second, without for a tenth; and the cap is the one of now.
func TestOpenCountsAreRefreshed(t *testing.T) {
	c, o := counts()
	c.open = 10
	wantTaken(t, o, 10, 1, 0)
	c.open = 5
	wantTaken(t, o, 10, 1, 0)
	c.pass(openCountAgain)
	wantTaken(t, o, 10, 1, 1)
	wantTaken(t, o, 100, 60, 60)
	o.settle("acme", 61, 61)
	c.open = 66
	c.pass(openCountFor)
	wantTaken(t, o, 100, 50, 34)
	if c.reads != 3 {
		t.Errorf("counted %d times, want 3", c.reads)
	}
}

// What is stored while a count is under way is in it or added to it: never is it forgotten.
func TestOpenCountsRememberWhatIsStoredMeanwhile(t *testing.T) {
	c, o := counts()
	wantTaken(t, o, 10, 4, 4)
	c.open = 0 // the count does not see the four
	c.hook = func() { o.settle("acme", 4, 4) }
	c.pass(openCountFor)
	wantTaken(t, o, 10, 10, 6)
}

// A count that takes long is not made again at once.
func TestOpenCountsSpareTheStore(t *testing.T) {
	c, o := counts()
	c.open = 10
	c.hook = func() { c.pass(50 * time.Millisecond) }
	wantTaken(t, o, 10, 1, 0)
	c.pass(400 * time.Millisecond)
	wantTaken(t, o, 10, 1, 0)
	if c.reads != 1 {
		t.Errorf("counted %d times", c.reads)
	}
	c.pass(50 * time.Millisecond)
	wantTaken(t, o, 10, 1, 0)
	if c.reads != 2 {
		t.Errorf("counted %d times", c.reads)
	}
}

// While the store is away the last count stands, and without one everything is let in; it is asked no more often than else.
func TestOpenCountsWithoutTheStore(t *testing.T) {
	c, o := counts()
	c.err = errors.New("away")
	wantTaken(t, o, 3, 5, 5)
	wantTaken(t, o, 3, 5, 5)
	if c.reads != 1 {
		t.Errorf("asked %d times", c.reads)
	}
	o.settle("acme", 10, 0)
	c.err = nil
	c.pass(openCountFor)
	wantTaken(t, o, 3, 5, 3)
	c.err = errors.New("away")
	c.pass(openCountFor)
	wantTaken(t, o, 3, 5, 0)
}

// Many callers at once let in no more than there is room for.
func TestOpenCountsAtOnce(t *testing.T) {
	_, o := counts()
	var all sync.WaitGroup
	var mu sync.Mutex
	total := 0
	for range 20 {
		all.Go(func() {
			n := o.take(context.Background(), "acme", 50, 7)
			mu.Lock()
			defer mu.Unlock()
			total += n
		})
	}
	all.Wait()
	if total != 50 {
		t.Errorf("%d were let in, want 50", total)
	}
}
