package scheduler

import (
	"testing"

	"github.com/errandhq/errand/placement"
)

// An assignment names the devices that are reserved for it, whether its task waited or started at once, and no two attempts have the same one.
func TestAnAssignmentNamesItsDevices(t *testing.T) {
	w := newWorld(DefaultTiming(), func() float64 { return 0.5 })
	worker := WorkerID{7}
	w.core.Step(WorkerJoined{Worker: placement.Worker{
		ID: worker, Slots: map[string]int{"train": 8}, Capacity: &placement.Resources{CPUMilli: 8000, MemoryMiB: 8000, GPUs: 2},
	}})
	task := func(n byte, gpus int64) *Task {
		k := &Task{Ref: Ref{ID: ID{1: n}}, State: Ready, Tenant: "acme", Kind: "train", Tier: Standard, ReadyAt: w.now, Due: w.now}
		if gpus > 0 {
			k.Spec.Shape = &placement.Shape{Resources: placement.Resources{GPUs: gpus}}
		}
		return k
	}
	assigned := func(what string, wants int) placement.Devices {
		t.Helper()
		p := w.plan(Room{Urgent: 10, Others: 10})
		if len(p.Assign) != 1 || p.Assign[0].Devices.Len() != wants {
			t.Fatalf("%s: the assignments are %+v, want one with %d devices", what, p.Assign, wants)
		}
		return p.Assign[0].Devices
	}

	eager := task(1, 1)
	if !w.core.Admit(eager, w.now) {
		t.Fatal("a task that fits does not start")
	}
	w.core.Advance(StartStored{Task: *eager})
	first := assigned("at once", 1)

	waited := func(n byte, gpus int64) placement.Devices {
		t.Helper()
		k := task(n, gpus)
		row := k.WaitingRow()
		row.Shape = k.Spec.Shape
		w.core.Step(RowsReady{Rows: []ReadyRow{row}})
		if p := w.plan(Room{Urgent: 10, Others: 10}); len(p.Claims) != 1 {
			t.Fatalf("the claims are %+v, want one", p.Claims)
		}
		k.State, k.Attempt, k.Session, k.Worker = Running, 1, w.session, worker
		w.core.Advance(ClaimsAnswered{Answers: []Claimed{{ID: k.ID, Verdict: Won, State: Running, Start: startOf(k)}}})
		return assigned("from the backlog", int(gpus))
	}
	second := waited(2, 1)
	if first&second != 0 || (first|second).Len() != 2 {
		t.Errorf("two attempts have the devices %b and %b", first, second)
	}
	if none := waited(3, 0); none != 0 {
		t.Errorf("an attempt that needs none has the devices %b", none)
	}
}
