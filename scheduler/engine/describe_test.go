package engine_test

import (
	"testing"
	"time"

	"github.com/errandhq/errand/placement"
	"github.com/errandhq/errand/scheduler/engine"
)

// A worker that says something else of itself all the time harms nobody: what it runs stays, everything is done once, the store does not hear
// of what is known already, and another worker gets its part.
func TestAWorkerThatFlaps(t *testing.T) {
	f := newFleet(t)
	flaps, steady := f.worker(1, 4), f.worker(2, 1)
	f.connect(flaps)
	f.connect(steady)
	f.run(50 * time.Millisecond)
	const tasks = 200
	f.submit(tasks)
	f.asked["attach"] = 0
	for round := range 1000 {
		if round%2 == 0 {
			flaps.said.Slots["encode"], flaps.said.Capacity, flaps.said.Labels = 4, nil, nil
		} else {
			flaps.said.Slots["encode"], flaps.said.Capacity = 1, &placement.Resources{CPUMilli: 100, Slots: 1}
			flaps.said.Labels = map[string]string{"round": "odd"}
		}
		f.register(flaps, true)
		if round%5 == 0 {
			f.finish(flaps, 1)
			f.finish(steady, 1)
		}
		f.run(10 * time.Millisecond)
		if f.endedOnce() == tasks {
			break
		}
	}
	if n := f.endedOnce(); n != tasks || flaps.given+steady.given != tasks || flaps.lost+steady.lost != 0 || flaps.most > 4 {
		t.Errorf("%d of %d tasks ended; %d and %d attempts, %d and %d stopped, %d at once", n, tasks, flaps.given, steady.given, flaps.lost, steady.lost, flaps.most)
	}
	if steady.given < tasks/4 || flaps.given < tasks/4 {
		t.Errorf("%d and %d attempts: one of them got hardly any work", flaps.given, steady.given)
	}
	if f.asked["attach"] > tasks { // for an end whose answer was on its way, and for nothing else
		t.Errorf("the store was asked %d times to take over what is here", f.asked["attach"])
	}
}

// A worker that says that it has less than it uses keeps what it runs, and gets nothing until enough has ended.
func TestAWorkerThatSaysLessThanItUses(t *testing.T) {
	f := newFleet(t)
	h := f.worker(1, 4)
	f.connect(h)
	f.run(50 * time.Millisecond)
	f.submit(8)
	f.run(100 * time.Millisecond)
	if len(h.runs) != 4 {
		t.Fatalf("it runs %d", len(h.runs))
	}
	h.said.Slots["encode"] = 2
	f.register(h, true)
	f.run(time.Second)
	for left, want := range []int{4, 3, 2, 2, 2, 2, 2, 1, 0} { // 8 tasks, ended one by one
		if len(h.runs) != want || h.lost != 0 || f.endedOnce() != left {
			t.Errorf("after %d ends it runs %d, want %d; %d stopped", f.endedOnce(), len(h.runs), want, h.lost)
		}
		f.finish(h, 1)
		f.run(100 * time.Millisecond)
	}
	if h.given != 8 {
		t.Errorf("%d attempts of 8 tasks", h.given)
	}
}

// One that does not name what it runs has given it up: the task starts again, and only the newer attempt's end counts.
func TestAWorkerThatForgetsWhatItRuns(t *testing.T) {
	f := newFleet(t)
	h := f.worker(1, 1)
	f.connect(h)
	f.run(50 * time.Millisecond)
	f.submit(1)
	f.run(100 * time.Millisecond)
	old := h.runs[0]
	h.runs = nil
	f.register(h, true)
	f.run(100 * time.Millisecond)
	if len(h.runs) != 1 || h.runs[0].ID != old.ID || h.runs[0].Attempt <= old.Attempt {
		t.Fatalf("it runs %v after %v", h.runs, old)
	}
	now := h.runs
	h.runs = append(h.runs[:0:0], old)
	f.finish(h, 1)
	f.run(100 * time.Millisecond)
	if f.endedOnce() != 0 {
		t.Error("the end of the old attempt counts")
	}
	h.runs = now
	f.finish(h, 1)
	f.run(100 * time.Millisecond)
	if f.endedOnce() != 1 {
		t.Error("the end of the new attempt does not count")
	}
}

// Two streams of one instance, as a copied machine has: the newer one is the worker, what the older one says is not heard, its end disconnects
// nobody, and however often they take each other's place every task is done once.
func TestAWorkerThatJoinsTwice(t *testing.T) {
	f := newFleet(t)
	one, other := f.worker(1, 2), f.worker(1, 2) // the same identity
	f.connect(one)
	f.run(50 * time.Millisecond)
	const tasks = 20
	f.submit(tasks)
	f.connect(other)
	f.run(100 * time.Millisecond)
	if one.stream != 0 || other.stream == 0 || f.engine.Status().Workers != 1 {
		t.Fatalf("streams %d and %d of %d workers", one.stream, other.stream, f.engine.Status().Workers)
	}
	for round := range 200 {
		twins := []*hand{one, other}
		for _, h := range twins {
			if h.stream == 0 && round%20 == 0 {
				f.connect(h)
			}
		}
		f.run(50 * time.Millisecond)
		for _, h := range twins {
			if h.stream != 0 {
				f.finish(h, 2)
			}
		}
		f.run(50 * time.Millisecond)
	}
	if n := f.endedOnce(); n != tasks {
		t.Errorf("%d of %d tasks have ended", n, tasks)
	}
	f.inbox = append(f.inbox, engine.WorkersAsked{Ticket: 9})
	f.turn()
	if list := f.listed[len(f.listed)-1].Workers; len(list) != 1 || !list[0].Connected || list[0].Running != 0 {
		t.Errorf("in the end there are %+v", list)
	}
}
