package errand

import (
	"sync"
	"time"
)

// grant is how long exclusive handlers may run, as the scheduler said last.
type grant struct {
	mu    sync.Mutex
	began time.Time // when the worker's clock began
	until int64     // by the worker's clock
	timer *time.Timer
	ended func()
}

// extend takes a grant that counts from when the heartbeat was sent.
func (g *grant) extend(sentAt int64, d time.Duration) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.until = max(g.until, sentAt+int64(d))
	if g.timer == nil {
		return
	}
	g.timer.Reset(time.Duration(g.until - g.now()))
}

func (g *grant) holds() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.now() < g.until
}

// watch calls f when the grant runs out.
func (g *grant) watch(f func()) (stop func()) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.ended = f
	g.timer = time.AfterFunc(time.Hour, g.check)
	return func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		g.timer.Stop()
		g.timer = nil
	}
}

func (g *grant) check() {
	g.mu.Lock()
	left := time.Duration(g.until - g.now())
	if left > 0 && g.timer != nil {
		g.timer.Reset(left)
	}
	f := g.ended
	g.mu.Unlock()
	if left <= 0 {
		f()
	}
}

// stopExclusive ends the exclusive handlers: nobody can say any more that no other attempt starts. Their ends are reported
// like any others: whoever holds the tasks should not wait for them.
func (w *Worker) stopExclusive() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, r := range w.attempts {
		if r.exclusive {
			r.cancel(ErrLost)
		}
	}
}

// now is the worker's own clock: it only goes forward, and is only compared with itself.
func (g *grant) now() int64 { return int64(time.Since(g.began)) }
