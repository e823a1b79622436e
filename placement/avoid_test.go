package placement

import "testing"

// A worker where the task has just failed comes after all others that have room, and is better than none.
func TestAvoidedWorkers(t *testing.T) {
	for name, shape := range map[string]*Shape{"a slot": nil, "processors": {Resources: Resources{CPUMilli: 100}}} {
		p := NewPool()
		for id := range byte(3) {
			w := Worker{ID: WorkerID{id + 1}, Slots: map[string]int{"k": 9 - int(id)}}
			if shape != nil {
				w.Capacity = &Resources{CPUMilli: 1000}
			}
			p.Join(w)
		}
		for _, bad := range []WorkerID{{1}, {2}, {3}} {
			at, refusal := p.Place(Need{Kind: "k", Shape: shape, Avoid: bad}, Fill{Part: 1})
			if refusal != Placed || at.Worker == bad {
				t.Errorf("%s: placed on %v (%v), avoiding %v", name, at.Worker, refusal, bad)
			}
		}
		p.Leave(WorkerID{2})
		p.Drain(WorkerID{3}, true)
		if at, refusal := p.Place(Need{Kind: "k", Shape: shape, Avoid: WorkerID{1}}, Fill{Part: 1}); refusal != Placed || at.Worker != (WorkerID{1}) {
			t.Errorf("%s: the only one with room: %v, %v", name, at.Worker, refusal)
		}
	}
}
