package engine_test

import (
	"testing"
	"time"

	"github.com/errandhq/errand/placement"
	"github.com/errandhq/errand/scheduler"
	"github.com/errandhq/errand/scheduler/engine"
)

// B52: ten thousand workers come back at once, to the scheduler that they have lost, or to another one in its place. All are registered in one
// turn, none loses what it runs, an operator's question is answered meanwhile, what the store is asked goes in batches, and they get work again.
func TestAStormOfReconnects(t *testing.T) {
	for name, replace := range map[string]bool{"to the same scheduler": false, "to another one": true} {
		t.Run(name, func(t *testing.T) {
			const crowd = 10_000
			f := newFleet(t)
			for i := range crowd {
				f.workers = append(f.workers, &hand{said: placement.Worker{ID: scheduler.WorkerID{1, byte(i), byte(i >> 8)}, Slots: map[string]int{"encode": 1}}})
				f.connect(f.workers[i])
			}
			f.run(100 * time.Millisecond)
			f.submit(2 * crowd)
			const most = crowd * 95 / 100 // the rest is kept for urgent work
			f.until("as many as may have work", 10*time.Second, func() bool { return f.running() == most })

			if replace {
				f.scheduler(7)
			} else {
				for _, h := range f.workers {
					f.cut(h)
				}
			}
			f.run(5 * time.Second) // within the lease
			f.asked["attach"] = 0
			for _, h := range f.workers {
				h.registered = 0
				f.connect(h)
			}
			f.inbox = append(f.inbox, engine.WorkersAsked{Ticket: 5})
			f.turn()
			connected, registered := 0, 0
			for _, w := range f.listed[0].Workers {
				if w.Connected {
					connected++
				}
			}
			for _, h := range f.workers {
				registered += h.registered
			}
			if connected != crowd || registered != crowd {
				t.Errorf("%d of %d workers are connected in the same turn, and %d have their answer", connected, crowd, registered)
			}
			f.local += 10 * time.Millisecond
			f.run(2 * time.Second)
			if n := f.running(); n < most || f.lost() != 0 {
				t.Errorf("after the storm %d of %d attempts run, %d were stopped", n, most, f.lost())
			}
			if few := 2 * crowd / scheduler.BatchRowsMax; f.asked["attach"] == 0 || f.asked["attach"] > few {
				t.Errorf("%d statements to take over %d attempts; want at most %d", f.asked["attach"], crowd, few)
			}
			for _, h := range f.workers {
				f.finish(h, 1)
			}
			f.until("as many have work again", 10*time.Second, func() bool { return f.endedOnce() >= most && f.running() >= most })
		})
	}
}

func (f *fleet) running() (n int) {
	for _, h := range f.workers {
		n += len(h.runs)
	}
	return n
}

func (f *fleet) lost() (n int) {
	for _, h := range f.workers {
		n += h.lost
	}
	return n
}

// until turns the engine until something has happened.
func (f *fleet) until(what string, limit time.Duration, happened func() bool) {
	f.t.Helper()
	for end := f.local + limit; !happened(); {
		if f.local >= end {
			f.t.Fatalf("waited %v in vain: %s; %d run, %d have ended", limit, what, f.running(), len(f.ended))
		}
		f.run(50 * time.Millisecond)
	}
}
