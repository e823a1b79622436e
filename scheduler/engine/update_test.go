package engine_test

import (
	"context"
	"testing"
	"time"

	"github.com/errandhq/errand/scheduler"
	"github.com/errandhq/errand/scheduler/engine"
)

// update changes a task in the store, and tells the engine as the edge does.
func (b *bench) update(ref scheduler.Ref, c scheduler.Change) {
	b.t.Helper()
	got, err := b.store.UpdateTask(context.Background(), "acme", ref, c)
	if err != nil {
		b.t.Fatal(err)
	}
	b.inbox = append(b.inbox, engine.TaskUpdated{Task: got})
}

func (b *bench) task(ref scheduler.Ref) scheduler.Task {
	b.t.Helper()
	got, here := b.store.Task(ref)
	if !here {
		b.t.Fatalf("there is no %s", ref)
	}
	return got
}

// The engine that hears of a change serves the task in its new place at once: without a look at the store.
func TestAChangedTaskTakesItsNewPlaceAtOnce(t *testing.T) {
	b := newBench(t)
	b.run(100 * time.Millisecond)
	b.submit(4)
	b.run(100 * time.Millisecond)
	all := b.store.Tasks("eu")
	urgent, off := scheduler.Urgent, b.start.Add(b.local+time.Second)
	b.update(all[3].Ref, scheduler.Change{Tier: &urgent})
	b.update(all[0].Ref, scheduler.Change{RunAt: &off})
	short := 10 * time.Second
	b.update(all[2].Ref, scheduler.Change{Tolerance: &short})
	b.run(10 * time.Millisecond)
	if n := b.engine.Status().Counts.Buffered; n != 3 {
		t.Errorf("%d rows are buffered, want the three that are ready", n)
	}
	b.join(1)
	b.run(2 * time.Second)
	var last time.Time
	for _, i := range []int{3, 2, 1, 0} {
		got := b.task(all[i].Ref)
		if got.State != scheduler.Succeeded || !got.StartedAt.After(last) {
			t.Errorf("task %d is %v, started at %v, the one before at %v", i, got.State, got.StartedAt, last)
		}
		last = got.StartedAt
	}
	if late := b.task(all[0].Ref).StartedAt.Sub(off); late < 0 || late > 50*time.Millisecond {
		t.Errorf("the one that was put off came %v after its time", late)
	}
}

func TestRunNow(t *testing.T) {
	b := newBench(t)
	b.join(1)
	b.run(100 * time.Millisecond)
	for _, in := range []time.Duration{time.Hour, 3 * time.Second} { // left to the store, and in the timers
		b.inbox = append(b.inbox, engine.SubmitAsked{Ticket: 1, Tasks: []scheduler.Task{{
			Tenant: "acme", Kind: "encode", Tier: scheduler.Standard, Tolerance: time.Minute, RunAt: b.start.Add(b.local + in),
		}}})
		b.run(50 * time.Millisecond)
		all := b.store.Tasks("eu")
		ref := all[len(all)-1].Ref
		b.update(ref, scheduler.Change{RunAt: &time.Time{}})
		b.run(100 * time.Millisecond)
		if got := b.task(ref); got.State != scheduler.Succeeded {
			t.Errorf("due in %v, and now at once: %v", in, got.State)
		}
	}
}

// Word of a change that comes late, when the task has gone on, does no harm; neither does none at all.
func TestLateWordOfAChange(t *testing.T) {
	b := newBench(t)
	b.run(100 * time.Millisecond)
	b.submit(3)
	b.run(100 * time.Millisecond)
	all := b.store.Tasks("eu")
	urgent, off := scheduler.Urgent, b.start.Add(b.local+time.Second)
	b.update(all[0].Ref, scheduler.Change{Tier: &urgent})
	late := b.inbox[len(b.inbox)-1]
	b.inbox = nil
	if _, err := b.store.UpdateTask(context.Background(), "acme", all[1].Ref, scheduler.Change{RunAt: &off}); err != nil {
		t.Fatal(err)
	}
	b.join(1)
	b.run(500 * time.Millisecond)
	b.inbox = append(b.inbox, late)
	b.run(500 * time.Millisecond)
	if got := b.task(all[1].Ref); got.State != scheduler.Scheduled {
		t.Errorf("it was put off without a word, and is %v", got.State)
	}
	b.run(20 * time.Second)
	for i, one := range all {
		if got := b.task(one.Ref); got.State != scheduler.Succeeded || got.Attempt != 1 {
			t.Errorf("task %d is %v after %d attempts", i, got.State, got.Attempt)
		}
	}
	if c := b.engine.Status().Counts; c.Buffered != 0 {
		t.Errorf("%+v: rows of tasks that have ended are left", c)
	}
}

// An instance that does not serve the task's lane tells the one that does, which forgets what it knew.
func TestAHintOfAChange(t *testing.T) {
	r := newRegion(t)
	owner, other := r.instance(1), r.instance(2)
	owner.run(10*time.Second, other)
	lanes := map[uint8]bool{}
	for _, shard := range owner.engine.Status().Shards {
		lanes[shard] = true
	}
	if len(lanes) == 0 || len(other.engine.Status().Shards) == 0 {
		t.Fatal("the lanes are not divided")
	}
	owner.inbox = append(owner.inbox, engine.SubmitAsked{Ticket: 1, Tasks: []scheduler.Task{{
		Tenant: "acme", Kind: "encode", Tier: scheduler.Standard, Tolerance: time.Minute,
	}}})
	owner.run(100*time.Millisecond, other)
	ref := r.store.Tasks("eu")[0].Ref
	if !lanes[ref.ID.Shard()] {
		t.Fatal("the task is not in a lane of its own instance")
	}
	for _, c := range []struct {
		in    time.Duration
		ready int
	}{{time.Hour, 0}, {-time.Hour, 1}} {
		at := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC).Add(r.local + c.in)
		got, err := r.store.UpdateTask(context.Background(), "acme", ref, scheduler.Change{RunAt: &at})
		if err != nil {
			t.Fatal(err)
		}
		var hints []engine.Hint
		for _, eff := range other.engine.Turn(r.local, []engine.Input{engine.TaskUpdated{Task: got}}) {
			if published, is := eff.(engine.PublishHints); is {
				hints = append(hints, published.Hints...)
			}
		}
		if len(hints) != 1 || hints[0].Changed != ref.ID || hints[0].Timed != (got.State == scheduler.Scheduled) {
			t.Fatalf("hints %+v", hints)
		}
		owner.inbox = append(owner.inbox, engine.Hinted{Hints: hints})
		owner.run(100*time.Millisecond, other)
		if n := owner.engine.Status().Counts.Buffered; n != c.ready {
			t.Errorf("%v: the owner buffers %d rows, want %d", got.State, n, c.ready)
		}
	}
}
