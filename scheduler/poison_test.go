package scheduler

import (
	"maps"
	"slices"
	"testing"
	"time"
)

// FIELD-REPORTS B31: a task that kills its worker ran again and again, and took its neighbours down each time. Here a killer
// runs among a hundred others on three workers with ten slots; a worker that starts it is lost, and a new one comes.
func TestAKillerAmongNeighbours(t *testing.T) {
	w, workers := newWorld(DefaultTiming(), func() float64 { return 0 }), byte(3)
	killer := ID{0xff} // the last in line, so that it starts beside others
	for n := range byte(100) {
		w.insert(Task{Ref: Ref{Region: "here", ID: ID{n}}, Tenant: "x", Kind: "k", Tier: Standard, State: Ready, ReadyAt: epoch, Due: epoch})
	}
	w.insert(Task{Ref: Ref{Region: "here", ID: killer}, Tenant: "x", Kind: "k", Tier: Standard, State: Ready, ReadyAt: epoch, Due: epoch})
	for n := range workers {
		w.join(WorkerID{n + 1}, "", map[string]int{"k": 10})
	}
	for range 100 {
		if w.allEnded() {
			break
		}
		w.now = w.now.Add(time.Second)
		w.plan(Room{Urgent: 1000, Others: 1000})
		settleWrites(w)
		w.check(t)
		checkSuspects(t, w)
		if token := w.rows[killer].Token(); w.core.Holds(token) {
			w.core.Step(WorkersLost{IDs: []WorkerID{token.Worker}})
			workers++
			w.join(WorkerID{workers}, "", map[string]int{"k": 10})
		}
		for _, h := range w.core.Held() {
			w.core.Step(Reported{Reports: []Report{{Token: h.Token, Outcome: OutcomeSucceeded}}})
		}
	}
	k := w.rows[killer]
	if k.State != Failed || k.Failure.Reason != ReasonPoison || k.WorkerLosses != DefaultMaxWorkerLosses {
		t.Errorf("the killer is %v after %d losses as the only suspect: %+v", k.State, k.WorkerLosses, k.Failure)
	}
	if lost := workers - 3; lost > DefaultMaxWorkerLosses+1 {
		t.Errorf("%d workers were lost, want at most one more than it takes to blame", lost)
	}
	for id, task := range w.rows {
		if id != killer && (task.State != Succeeded || task.Counted > 1) {
			t.Errorf("neighbour %s is %v, %d attempts counted", id, task.State, task.Counted)
		}
	}
}

// settleWrites answers everything that is under way in favour of the core.
func settleWrites(w *world) {
	for _, id := range slices.SortedFunc(maps.Keys(w.endings), ID.Compare) {
		for len(w.endings[id]) > 0 {
			w.core.Advance(w.settleEnding(id))
		}
	}
	for _, id := range slices.SortedFunc(maps.Keys(w.claims), ID.Compare) {
		w.settleClaim(id)
	}
}

func checkSuspects(t *testing.T, w *world) {
	t.Helper()
	for worker, of := range w.core.attempts.byWorker {
		suspects := 0
		for _, a := range of {
			if a.Suspect && a.atWorker() {
				suspects++
			}
		}
		if suspects > 1 {
			t.Errorf("%d suspects run on worker %s", suspects, worker)
		}
	}
}

// A region incident poisons nobody, whether the workers fall silent in one sweep or one after the other.
func TestAnIncidentPoisonsNobody(t *testing.T) {
	for name, sweeps := range map[string][]WorkersLost{
		"one sweep":       {{IDs: []WorkerID{{1}, {2}, {3}}}},
		"several, marked": {{IDs: []WorkerID{{1}}, Incident: true}, {IDs: []WorkerID{{2}}, Incident: true}, {IDs: []WorkerID{{3}}, Incident: true}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(DefaultTiming(), func() float64 { return 0 })
			for n := range byte(3) {
				w.join(WorkerID{n + 1}, "", map[string]int{"k": 1})
				w.insert(Task{Ref: Ref{Region: "here", ID: ID{n}}, Tenant: "x", Kind: "k", Tier: Standard, State: Ready, ReadyAt: epoch, Due: epoch})
			}
			w.plan(Room{Urgent: 10, Others: 10})
			settleWrites(w)
			for _, sweep := range sweeps {
				w.core.Step(sweep)
			}
			w.plan(Room{})
			settleWrites(w)
			for id, task := range w.rows {
				if task.State != Ready || task.WorkerLosses != 0 || task.Counted != 1 || !task.Suspect {
					t.Errorf("task %s: %+v", id, *task)
				}
			}
		})
	}
}
