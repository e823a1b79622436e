package engine_test

import (
	"testing"
	"time"

	"github.com/errandhq/errand/placement"
	"github.com/errandhq/errand/scheduler"
	"github.com/errandhq/errand/scheduler/engine"
)

// neighbors are two instances that lend to each other. Each has a worker of its own.
type neighbors struct {
	here, there *instance
	lent        [2]int // rows that were handed over, to here and to there
}

func newNeighbors(t *testing.T) *neighbors {
	t.Helper()
	r := newRegion(t)
	n := &neighbors{here: r.instance(1), there: r.instance(2)}
	n.here.lends(n.there, &n.lent[1])
	n.there.lends(n.here, &n.lent[0])
	n.run(5 * time.Second) // until they know each other
	return n
}

func (n *neighbors) run(d time.Duration) { n.here.run(d, n.there) }

// lends carries what the instance asks of another, and what it answers.
func (in *instance) lends(to *instance, lent *int) {
	in.outside = func(eff engine.Effect) {
		switch eff := eff.(type) {
		case engine.AskPeerToLend:
			to.inbox = append(to.inbox, engine.LendAsked{Room: eff.Room, Offers: eff.Offers, Limit: eff.Limit})
		case engine.LendReady:
			*lent += len(eff.Rows)
			to.inbox = append(to.inbox, engine.LendAnswered{Rows: eff.Rows})
		case engine.TellPeersStarved:
			to.inbox = append(to.inbox, engine.PeerStarved{Kinds: eff.Kinds})
		}
	}
}

// joins has the instance's worker say what it has.
func (in *instance) joins(id byte, w placement.Worker) {
	w.ID = scheduler.WorkerID{id}
	w.Slots = map[string]int{"encode": 4}
	in.stream++
	in.inbox = append(in.inbox, engine.StreamOpened{Stream: in.stream})
	in.say(engine.FromWorker{Register: &engine.Register{Worker: w}})
	in.beat()
}

func needing(s placement.Shape) func(*scheduler.Task) {
	return func(t *scheduler.Task) { t.Spec.Shape = &s }
}

var (
	small    = placement.Worker{Capacity: &placement.Resources{CPUMilli: 1000}}
	withGPU  = placement.Worker{Capacity: &placement.Resources{CPUMilli: 1000, GPUs: 1}}
	withDisk = placement.Worker{Labels: map[string]string{"disk": "ssd"}}
	oneGPU   = placement.Shape{Resources: placement.Resources{GPUs: 1}}
	onSSD    = placement.Shape{Selectors: []placement.Selector{{Key: "disk", Operator: placement.In, Values: []string{"ssd"}}}}
	huge     = placement.Shape{Resources: placement.Resources{CPUMilli: 64000}}
)

// A task that only a worker of the other instance can run gets there.
func TestATaskGetsWhereItFits(t *testing.T) {
	for name, c := range map[string]struct {
		worker placement.Worker
		needs  placement.Shape
	}{"a GPU": {withGPU, oneGPU}, "a label": {withDisk, onSSD}} {
		t.Run(name, func(t *testing.T) {
			n := newNeighbors(t)
			n.here.joins(1, small)
			n.there.joins(2, c.worker)
			n.run(100 * time.Millisecond)
			n.here.submit(needing(c.needs))
			n.run(3 * time.Second)
			given := n.there.assigned()
			if len(given) != 1 || given[0].Worker != (scheduler.WorkerID{2}) || len(n.here.assigned()) != 0 {
				t.Errorf("%d are assigned there, %d here", len(given), len(n.here.assigned()))
			}
		})
	}
}

// A task that is too large for all stays where it is. It keeps its instance from asking for nothing, and others behind it from nothing.
func TestATaskThatIsTooLargeForAllIsInNobodysWay(t *testing.T) {
	n := newNeighbors(t)
	n.there.joins(2, small)
	n.run(100 * time.Millisecond)
	n.here.submit(needing(huge))
	n.there.submit(needing(huge))
	n.run(2 * time.Second)
	if n.lent != [2]int{} {
		t.Errorf("%v rows were handed over that nobody can run", n.lent)
	}
	for range 3 {
		n.here.submit()
	}
	n.run(3 * time.Second)
	if given := n.there.assigned(); len(given) != 3 {
		t.Errorf("%d of 3 are assigned there", len(given))
	}
	if n.lent != [2]int{0, 3} {
		t.Errorf("%v rows were handed over, want 3 to there", n.lent)
	}
}

// A row that does not fit any more when it arrives is not kept: whoever has lent it finds it again.
func TestARowThatNoWorkerHereCouldRunIsNotKept(t *testing.T) {
	n := newNeighbors(t)
	n.there.joins(2, withGPU)
	n.run(100 * time.Millisecond)
	n.there.outside = nil // what it asks and answers is lost from now on
	n.here.submit(needing(oneGPU))
	n.run(100 * time.Millisecond)
	shape := huge
	row := scheduler.Task{Tenant: "acme", Kind: "encode", Tier: scheduler.Standard, State: scheduler.Ready, Spec: scheduler.Spec{Shape: &shape}}
	n.there.inbox = append(n.there.inbox, engine.LendAnswered{Rows: []scheduler.ReadyRow{row.WaitingRow()}})
	var asked int
	n.there.outside = func(eff engine.Effect) {
		switch eff := eff.(type) {
		case engine.AskPeerToLend:
			asked++
		case engine.TellPeersStarved:
			t.Errorf("it keeps rows of %v", eff.Kinds)
		}
	}
	n.run(time.Second)
	if asked == 0 {
		t.Error("it asks no more")
	}
}

// A tenant's own worker gets the tenant's tasks from the other instance, and nobody else's.
func TestATenantsOwnWorkerIsLentTo(t *testing.T) {
	n := newNeighbors(t)
	own := withGPU
	own.Tenant = "acme"
	n.there.joins(2, own)
	n.run(100 * time.Millisecond)
	n.here.submit(needing(oneGPU))
	n.here.submit(func(task *scheduler.Task) { task.Tenant = "globex" })
	n.run(3 * time.Second)
	given := n.there.assigned()
	if len(given) != 1 || given[0].Tenant != "acme" {
		t.Errorf("%d are assigned there", len(given))
	}
}
