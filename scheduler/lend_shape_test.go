package scheduler

import (
	"slices"
	"testing"
	"time"

	"github.com/errandhq/errand/placement"
)

// Rows that need more than a slot are lent to workers that have it, and only to those. One that fits nowhere hides nothing behind it.
func TestLendingFitsTheOffers(t *testing.T) {
	w := newWorld(DefaultTiming(), func() float64 { return 0.5 })
	w.core.Step(LanesChanged{Mine: allLanes()})
	row := func(n byte, shape *placement.Shape, allowed ...string) ReadyRow {
		spec := Spec{Shape: shape, AllowedRegions: allowed}
		return ReadyRow{
			ID: ID{0, n}, State: Ready, Tenant: "x", Kind: "encode", Tier: Standard, Class: ClassOf("encode", &spec),
			Due: epoch.Add(time.Duration(n) * time.Second), Shape: shape, Allowed: allowed,
		}
	}
	cpu := func(n int64) *placement.Shape { return &placement.Shape{Resources: placement.Resources{CPUMilli: n}} }
	gpu := &placement.Shape{Resources: placement.Resources{GPUs: 1}}
	ssd := &placement.Shape{Selectors: []placement.Selector{{Key: "disk", Operator: placement.In, Values: []string{"ssd"}}}}
	fill := func() {
		w.core.Step(RowsReady{Rows: []ReadyRow{
			row(1, cpu(9000)), row(2, gpu), row(3, ssd), row(4, cpu(2000)), row(5, cpu(2000)), row(6, nil), row(7, nil, "us"),
		}})
		w.plan(Room{Urgent: 10, Others: 10})
	}
	machine := placement.Worker{
		ID: WorkerID{1}, Slots: map[string]int{"encode": 8}, Labels: map[string]string{"disk": "ssd"},
		Capacity: &placement.Resources{CPUMilli: 3000, MemoryMiB: 100, GPUs: 1},
	}
	room := []KindRoom{{Kind: "encode", Slots: 8}}
	late := epoch.Add(time.Hour)
	for name, c := range map[string]struct {
		to   Borrower
		want []byte
	}{
		"a machine":              {Borrower{Offers: []placement.Worker{machine}}, []byte{2, 3, 4, 6, 7}},
		"nobody knows what":      {Borrower{}, []byte{6, 7}},
		"another region":         {Borrower{Region: "eu", DueBefore: late, Offers: []placement.Worker{machine}}, []byte{2, 3, 4, 6}},
		"where it may not leave": {Borrower{Region: "us", DueBefore: late}, []byte{6, 7}},
		"nothing overdue":        {Borrower{Region: "us", DueBefore: epoch}, []byte{6, 7}}, // nobody here could run them
	} {
		fill()
		var got []byte
		lent := w.core.Lend(room, 100, c.to)
		for i := range lent {
			got = append(got, lent[i].ID[1])
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: lent %v, want %v", name, got, c.want)
		}
	}
	w.core.Step(WorkerJoined{Worker: placement.Worker{ID: WorkerID{9}, Slots: map[string]int{"encode": 1}}})
	w.core.Step(WorkerDraining{ID: WorkerID{9}, Draining: true})
	fill()
	if lent := w.core.Lend(room, 100, Borrower{Region: "us", DueBefore: epoch}); len(lent) != 0 {
		t.Errorf("rows that are not overdue and find a worker here left the region: %d", len(lent))
	}
}

func TestOffersAreWhatIsFree(t *testing.T) {
	p := placement.NewPool()
	p.Join(placement.Worker{ID: WorkerID{1}, Slots: map[string]int{"a": 2, "b": 1}, Capacity: &placement.Resources{CPUMilli: 4000, MemoryMiB: 10, GPUs: 2}})
	p.Join(placement.Worker{ID: WorkerID{2}, Slots: map[string]int{"a": 1}})
	need := placement.Need{Kind: "a", Shape: &placement.Shape{Resources: placement.Resources{CPUMilli: 1500, GPUMilli: 500}}}
	if _, refusal := p.Place(need, placement.Fill{Part: 1}); refusal != placement.Placed {
		t.Fatal(refusal)
	}
	got := p.Offers(10)
	want := placement.Resources{CPUMilli: 2500, MemoryMiB: 10, GPUs: 1}
	if len(got) != 2 || got[0].ID != (WorkerID{1}) || *got[0].Capacity != want || got[0].Slots["a"] != 1 || got[1].Capacity != nil {
		t.Errorf("%+v", got)
	}
	if len(p.Offers(1)) != 1 {
		t.Error("more than asked for")
	}
}
