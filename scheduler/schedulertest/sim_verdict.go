package schedulertest

import (
	"fmt"
	"slices"
	"strings"

	"github.com/errandhq/errand/scheduler"
)

// stuck says what has not ended in time (P3).
func (o *oracle) stuck() {
	var open []string
	for _, t := range o.s.tasks() {
		if t.State.Open() {
			open = append(open, fmt.Sprintf("%s %s attempt %d session %s wake %v", short(t.ID), t.State, t.Attempt, short(t.Session), t.WakeAt))
		}
	}
	for _, w := range o.s.workers {
		if w.busy() {
			open = append(open, fmt.Sprintf("%s: alive %v, draining %v, holds %v, %d ends unacknowledged", w.name, w.alive, w.draining, len(w.attempts), len(w.ends)))
		}
	}
	for _, in := range o.s.instances {
		if in.engine == nil {
			open = append(open, in.name+" is down")
		} else if in.busy() {
			open = append(open, fmt.Sprintf("%s: %+v", in.name, in.engine.Status()))
		}
	}
	if o.s.client.waits() {
		open = append(open, fmt.Sprintf("%d submissions without an answer", o.s.client.open))
	}
	o.failf("P3: %v after the last fault: %s", o.s.now-simTrouble, strings.Join(open, "; "))
}

// end checks what stands when everything has ended.
func (o *oracle) end() {
	tasks := o.s.tasks()
	for _, name := range simRegions[:o.s.regions] {
		o.balance(name, o.s.memory.Tasks(name))
	}
	keys, payloads := map[string]scheduler.Ref{}, map[string]scheduler.Ref{}
	for i := range tasks {
		t := &tasks[i]
		if o.ends[t.Ref] != 1 {
			o.failf("P2: %s ended %d times", t.Ref, o.ends[t.Ref])
		}
		once(o, keys, t.Tenant+"/"+t.IdempotencyKey, t)
		once(o, payloads, string(t.Payload), t)
		o.harmless(t)
		if t.Attempt > simAttempts {
			o.failf("P3: %s was started %d times: it is tossed to and fro", t.Ref, t.Attempt)
		}
		if o.s.client.canceled[t.Ref] && t.State == scheduler.Expired {
			o.failf("%s was to be canceled and is %s", t.Ref, t.State)
		}
	}
}

// once checks that a key, or a submission, became one task (P5).
func once(o *oracle, seen map[string]scheduler.Ref, what string, t *scheduler.Task) {
	if strings.HasSuffix(what, "/") {
		return // no key
	}
	if first, twice := seen[what]; twice {
		o.failf("P5: %.40q became %s and %s", what, first, t.Ref)
	}
	seen[what] = t.Ref
}

// balance compares the ledger with the rows (P2).
func (o *oracle) balance(region string, tasks []scheduler.Task) {
	type line struct {
		tenant string
		tier   scheduler.Tier
	}
	rows := map[line]int64{}
	for i := range tasks {
		rows[line{tasks[i].Tenant, tasks[i].Tier}]++
	}
	for _, b := range o.s.memory.Balances(region) {
		l := line{b.Tenant, b.Tier}
		if b.Accepted != rows[l] || b.Ended != rows[l] || b.Open != 0 {
			o.failf("P2: %s %s has %d tasks, the ledger says %d accepted, %d ended", b.Tenant, b.Tier, rows[l], b.Accepted, b.Ended)
		}
		delete(rows, l)
	}
	if len(rows) > 0 {
		o.failf("P2: the ledger knows nothing of %v", rows)
	}
}

// harmless checks that faults which lose nobody's work make no attempt count, and that nothing is forgotten where nobody
// forgets.
func (o *oracle) harmless(t *scheduler.Task) {
	attempts := o.s.memory.Attempts(t.Ref)
	unsaid := slices.ContainsFunc(attempts, func(a PastAttempt) bool { return o.leftUnsaid[a.Worker] })
	// An exclusive task is not given back in a hurry: what a stop leaves unanswered counts. So does what was canceled. And where
	// every third statement fails, an instance may not get a take-over written within a lease.
	excused := unsaid || t.Spec.Exclusive || t.State == scheduler.Canceled || (o.s.faults&StatementFaults != 0 && o.s.unlucky > 0.1)
	if o.s.faults&^harmless == 0 && t.Counted > 0 && !excused {
		o.failf("%s: %d attempts counted, and nothing but %s happened: %v", t.Ref, t.Counted, o.s.faults, attempts)
	}
	if o.s.faults&^orderly != 0 {
		return
	}
	for _, a := range attempts {
		if a.Failure.Reason == scheduler.ReasonUnknownToCore {
			o.failf("%s: attempt %d ran and nobody knew of it, and nothing but %s happened", t.Ref, a.Number, o.s.faults)
		}
	}
}
