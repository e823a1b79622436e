package engine_test

import (
	"testing"
	"time"

	"github.com/errandhq/errand/scheduler"
	"github.com/errandhq/errand/scheduler/engine"
)

// An instance without workers leaves its part of every cap to the others: else a cap of one that falls to it is nobody's, and its tasks
// wait for as long as it lives. With its first worker it asks for its part again, and the cap holds all the while.
func TestACapIsNotLeftToAnIdleInstance(t *testing.T) {
	r := newRegion(t)
	limits := []string{"a", "b", "c", "d", "e", "f", "g", "h"} // one of two instances has about half of them
	var set scheduler.Settings
	for _, name := range limits {
		set.Limits = append(set.Limits, scheduler.LimitSettings{Tenant: "acme", Name: name, Concurrency: 1})
	}
	r.store.Set(set)
	busy, idle := r.instance(1), r.instance(2)
	busy.connect()
	busy.run(10*time.Second, idle)
	done := 0
	work := func(in *instance, until int, within time.Duration, others ...*instance) {
		t.Helper()
		for end := r.local + within; done < until; {
			if r.local > end {
				t.Fatalf("%d of %d have run after %v", done, until, within)
			}
			in.run(50*time.Millisecond, others...)
			for _, a := range in.assigned() {
				in.say(engine.FromWorker{Accepted: []scheduler.Token{a.Token}})
				in.succeed(a.Token)
				done++
			}
			in.words = nil
		}
	}
	submit := func(in *instance) {
		for _, name := range limits {
			in.submit(func(task *scheduler.Task) { task.Spec.Limits = []scheduler.LimitKey{{Name: name}} })
		}
	}
	submit(busy)
	work(busy, len(limits), 20*time.Second, idle)

	busy.disconnect()
	idle.silent = false
	idle.connect()
	idle.run(20*time.Second, busy)
	submit(idle)
	work(idle, 2*len(limits), 30*time.Second, busy)
}
