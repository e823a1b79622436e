package api

import (
	"reflect"
	"testing"
	"time"

	"github.com/errandhq/errand/placement"
	"github.com/errandhq/errand/scheduler"
)

// What is lent and what is offered is the same on both sides of the wire.
func TestLentRowsAndOffersOverTheWire(t *testing.T) {
	row := scheduler.ReadyRow{
		ID: scheduler.ID{17, 1}, Attempt: 3, State: scheduler.Ready, Tenant: "acme", Kind: "encode", Tier: scheduler.Urgent, Class: 7,
		Due: time.Unix(10, 5).UTC(), StartBy: time.Unix(20, 0).UTC(), PayloadSize: 9, Suspect: true, Limits: []scheduler.LimitKey{{Name: "a", Key: "b"}},
		Allowed: []string{"eu", "us"},
		Shape: &placement.Shape{
			Resources: placement.Resources{CPUMilli: 1, MemoryMiB: 2, Slots: 3, GPUMilli: 4}, Near: "z",
			Selectors:   []placement.Selector{{Key: "k", Operator: placement.In, Values: []string{"v"}}},
			Preferences: []placement.Preference{{Selector: placement.Selector{Key: "p", Operator: placement.Exists}, Weight: 5}},
		},
	}
	if got, err := rowOf(rowMessage(&row)); err != nil || !reflect.DeepEqual(got, row) {
		t.Errorf("%v\n got %+v\nwant %+v", err, got, row)
	}
	for _, w := range []placement.Worker{
		{ID: placement.WorkerID{1}, Tenant: "acme", Slots: map[string]int{"a": 1, "b": 2}, Zone: "z", Labels: map[string]string{"k": "v"}},
		{ID: placement.WorkerID{1}, Slots: map[string]int{"a": 1}, Capacity: &placement.Resources{CPUMilli: 5, MemoryMiB: 6, Slots: 1, GPUs: 8}},
		{ID: placement.WorkerID{1}, Slots: map[string]int{"a": 1}, Capacity: &placement.Resources{}}, // counted, and nothing is left
	} {
		if got := offerOf(offerMessage(&w), 0); !reflect.DeepEqual(got, w) {
			t.Errorf("\n got %+v\nwant %+v", got, w)
		}
	}
}
