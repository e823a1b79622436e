package scheduler

import (
	"maps"
	"slices"
	"testing"
	"time"
)

// B51: ten thousand tasks of one tenant whose time comes at the same second hold up nobody else's of that second: the others start as if
// they shared the capacity with one other task at a time. All start in the end.
func TestTheTopOfTheHour(t *testing.T) {
	const crowd, others, slots = 10_000, 100, 100
	w := newWorld(DefaultTiming(), func() float64 { return 0.5 })
	w.core.Step(LanesChanged{Mine: allLanes()})
	w.join(WorkerID{1}, "", map[string]int{"k": slots})
	var due []ReadyRow
	for i := range crowd + others {
		task := Task{
			Ref: Ref{Region: "here", ID: ID{byte(i % 16), byte(i >> 16), byte(i >> 8), byte(i)}}, Tenant: "crowd", Kind: "k", Tier: Standard,
			State: Scheduled, Tolerance: time.Minute, RunAt: epoch, WakeAt: epoch, Due: epoch.Add(time.Minute),
		}
		if i >= crowd { // the last of every lane
			task.Tenant = "other"
		}
		w.rows[task.ID] = &task
		due = append(due, task.WaitingRow())
	}
	w.core.Step(RowsReady{Rows: due})
	started, last := map[string]int{}, map[string]int{} // how many, and in which turn the last
	for turn := range 2 * crowd / slots {
		w.now = w.now.Add(100 * time.Millisecond)
		for _, r := range w.plan(Room{Urgent: BatchRowsUrgentMax, Others: BatchRowsMax}).Wakes {
			w.wake(r.ID)
		}
		for _, id := range slices.SortedFunc(maps.Keys(w.claims), ID.Compare) {
			w.settleClaim(id)
			started[w.rows[id].Tenant]++
			last[w.rows[id].Tenant] = turn
		}
		for _, held := range w.core.Held() {
			w.core.Step(Reported{Reports: []Report{{Token: held.Token, Outcome: OutcomeSucceeded}}})
		}
		w.plan(Room{})
		for _, id := range slices.SortedFunc(maps.Keys(w.endings), ID.Compare) {
			w.core.Advance(w.settleEnding(id))
		}
		if keys := w.core.Refills(w.now, 100); len(keys) > 0 {
			w.core.Step(w.refill(keys, w.core.RefillRows(keys, 16)))
		}
	}
	if started["other"] != others || last["other"] > 2*others/slots+2 {
		t.Errorf("%d of the %d others have started, the last in turn %d", started["other"], others, last["other"])
	}
	if started["crowd"] != crowd {
		t.Errorf("%d of the crowd of %d have started", started["crowd"], crowd)
	}
}
