package scheduler

import (
	"fmt"
	"slices"
	"testing"

	"github.com/errandhq/errand/placement"
)

// lender is a core without workers, and the rows that wait there by name.
type lender struct {
	*world
	t     *testing.T
	names map[ID]string
}

func newLender(t *testing.T) *lender {
	t.Helper()
	return &lender{newWorld(DefaultTiming(), func() float64 { return 0.5 }), t, map[ID]string{}}
}

// waits lets a row wait; later ones are due later.
func (l *lender) waits(name, tenant string, shape *placement.Shape) {
	n := len(l.names) + 1
	task := Task{
		Ref: Ref{ID: ID{2: byte(n >> 8), 3: byte(n)}}, Tenant: tenant, Kind: "k", Tier: Standard, State: Ready, ReadyAt: l.now, Due: l.now.Add(DefaultTolerance(Standard)),
		Spec: Spec{Shape: shape},
	}
	l.names[task.ID] = name
	l.insert(task)
}

func (l *lender) lends(slots, limit int, offers ...placement.Offer) string {
	l.t.Helper()
	l.plan(Room{Urgent: 100, Others: 100})
	var lent []string
	for _, r := range l.core.Lend([]KindRoom{{"k", slots}}, limit, Borrower{Offers: offers}) {
		if of := l.rows[r.ID].Spec.Shape; r.Shape != of {
			l.t.Errorf("%s is lent as %+v, want %+v", l.names[r.ID], r.Shape, of)
		}
		lent = append(lent, l.names[r.ID])
	}
	return fmt.Sprint(lent)
}

func gpuShape(n int64) *placement.Shape {
	return &placement.Shape{Resources: placement.Resources{GPUs: n}}
}

func onDisk(kind string) *placement.Shape {
	return &placement.Shape{Selectors: []placement.Selector{{Key: "disk", Operator: placement.In, Values: []string{kind}}}}
}

func offerOf(slots int, devices ...int) placement.Offer {
	return placement.Offer{Slots: map[string]int{"k": slots}, Free: &placement.Resources{CPUMilli: 1000}, Devices: devices}
}

func labeled(o placement.Offer, disk string) placement.Offer {
	o.Labels = map[string]string{"disk": disk}
	return o
}

// Lent is what finds room on what is offered; what does not hides nothing.
func TestLentIsWhatFits(t *testing.T) {
	own := offerOf(1, 1000)
	own.Tenant = "x"
	suspect := offerOf(4)
	suspect.Suspect = true
	uncounted := placement.Offer{Slots: map[string]int{"k": 2}}
	for name, c := range map[string]struct {
		slots  int
		limit  int
		offers []placement.Offer
		want   string
	}{
		"an older version offers nothing":         {9, 9, nil, "[plain late]"},
		"one device":                              {9, 9, []placement.Offer{offerOf(9, 1000)}, "[gpu plain late]"},
		"a device that is in use":                 {9, 9, []placement.Offer{offerOf(9, 999)}, "[plain late]"},
		"two devices on one worker":               {9, 9, []placement.Offer{offerOf(9, 1000, 1000)}, "[gpus plain late]"},
		"two devices on two workers":              {9, 9, []placement.Offer{offerOf(9, 1000), offerOf(9, 1000)}, "[gpu plain late]"},
		"three devices":                           {9, 9, []placement.Offer{offerOf(9, 1000, 1000), offerOf(9, 1000)}, "[gpus gpu plain late]"},
		"a label":                                 {9, 9, []placement.Offer{labeled(offerOf(9), "ssd")}, "[ssd plain late]"},
		"another label":                           {9, 9, []placement.Offer{labeled(offerOf(9), "tape")}, "[plain late]"},
		"no more than the slots of the offer":     {9, 9, []placement.Offer{offerOf(1, 1000)}, "[gpu]"},
		"no more than the slots of the kind":      {1, 9, []placement.Offer{offerOf(9, 1000)}, "[gpu]"},
		"no more than the limit":                  {9, 2, []placement.Offer{offerOf(9, 1000)}, "[gpu plain]"},
		"only a tenant's own worker":              {0, 9, []placement.Offer{own}, "[late]"},
		"a suspect runs there":                    {9, 9, []placement.Offer{suspect}, "[plain late]"},
		"slots only, on more workers than offers": {9, 9, []placement.Offer{uncounted}, "[plain late]"},
		"nothing is free":                         {0, 9, nil, "[]"},
	} {
		t.Run(name, func(t *testing.T) {
			l := newLender(t)
			l.waits("huge", "acme", gpuShape(64))
			l.waits("gpus", "acme", gpuShape(2))
			l.waits("gpu", "acme", gpuShape(1))
			l.waits("ssd", "acme", onDisk("ssd"))
			l.waits("plain", "acme", nil)
			l.waits("late", "x", nil)
			if got := l.lends(c.slots, c.limit, c.offers...); got != c.want {
				t.Errorf("lends %s, want %s", got, c.want)
			}
		})
	}
}

// However many classes find no room, one that needs a slot and nothing else is lent.
func TestALookIsBounded(t *testing.T) {
	l := newLender(t)
	for n := range lendLookMax + 10 {
		l.waits("needy", "acme", &placement.Shape{Resources: placement.Resources{MemoryMiB: int64(n + 1)}})
	}
	l.waits("gpu", "acme", gpuShape(1))
	l.waits("plain", "acme", nil)
	if got := l.lends(9, 9, offerOf(9, 1000)); got != "[plain]" {
		t.Errorf("lends %s", got)
	}
}

// What waits for memory or devices, or for a worker that could run it, keeps nobody from asking for what would start.
func TestSpareIsWhatNobodyHereWaitsFor(t *testing.T) {
	spare := func(l *lender) string {
		l.plan(Room{Urgent: 100, Others: 100})
		offers, _ := l.core.Offers(WorkerID{})
		return fmt.Sprint(l.core.Spare(), len(offers), l.core.Starved())
	}
	worker := placement.Worker{ID: WorkerID{1}, Slots: map[string]int{"k": 3}, Capacity: &placement.Resources{GPUs: 2}}
	for name, c := range map[string]struct {
		waits []*placement.Shape
		want  string
	}{
		"nothing":                                      {nil, "[{k 3}] 1 []"},
		"one that could never run":                     {[]*placement.Shape{gpuShape(4)}, "[{k 3}] 1 [k]"},
		"one whose devices are in use":                 {[]*placement.Shape{gpuShape(2), gpuShape(1)}, "[{k 2}] 1 [k]"},
		"one that needs a slot, of which none is free": {[]*placement.Shape{nil, nil, nil, nil}, "[] 0 [k]"},
	} {
		t.Run(name, func(t *testing.T) {
			l := newLender(t)
			l.core.Step(WorkerJoined{Worker: worker})
			for _, shape := range c.waits {
				l.waits("", "acme", shape)
			}
			if got := spare(l); got != c.want {
				t.Errorf("%s, want %s", got, c.want)
			}
		})
	}
}

// Of lent rows those are taken in that a worker here could run, now or later.
func TestRunnable(t *testing.T) {
	l := newLender(t)
	l.core.Step(WorkerJoined{Worker: placement.Worker{
		ID: WorkerID{1}, Slots: map[string]int{"k": 1}, Capacity: &placement.Resources{GPUs: 2}, Labels: map[string]string{"disk": "ssd"},
	}})
	l.waits("running", "acme", nil)
	l.plan(Room{Urgent: 100, Others: 100})
	row := func(n byte, kind string, shape *placement.Shape) ReadyRow {
		return ReadyRow{ID: ID{n}, State: Ready, Tenant: "acme", Kind: kind, Class: ClassOf(kind, &Spec{Shape: shape}), Shape: shape}
	}
	kept := l.core.Runnable([]ReadyRow{
		row(1, "k", nil), row(2, "k", gpuShape(2)), row(3, "k", gpuShape(3)), row(4, "k", onDisk("ssd")), row(5, "k", onDisk("tape")), row(6, "other", nil),
	})
	var ids []byte
	for _, r := range kept {
		ids = append(ids, r.ID[0])
	}
	if want := []byte{1, 2, 4}; !slices.Equal(ids, want) {
		t.Errorf("keeps %v, want %v", ids, want)
	}
}
