package engine_test

import (
	"testing"
	"time"
)

// A report frees its room before its end is written. When the store is slower with ends than with claims, no more is started than so many
// ends wait for: without a bound they grew to hundreds of thousands. When it takes them again everything goes on.
func TestStartsWaitForEnds(t *testing.T) {
	const tasks, slots, endsMax, claimsMax = 15_000, 500, 4000, 4000
	b := newBench(t)
	b.join(slots)
	b.run(100 * time.Millisecond)
	b.slow = true
	b.submit(tasks)
	b.run(2 * time.Second)
	started := 0
	for _, task := range b.store.Tasks("eu") {
		if task.Attempt > 0 {
			started++
		}
	}
	if started < endsMax || started > endsMax+slots+claimsMax {
		t.Errorf("%d have started while no end was written, want %d and what was under way", started, endsMax)
	}
	b.slow = false
	for _, statement := range b.held {
		b.perform(statement)
	}
	b.run(10 * time.Second)
	if len(b.ended) != tasks {
		t.Errorf("%d of %d have ended", len(b.ended), tasks)
	}
}
