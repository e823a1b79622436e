package placement

import (
	"encoding/binary"
	"fmt"
	"maps"
	"math"
	"testing"

	"pgregory.net/rapid"
)

func anyKind(string, string) bool { return true }

// Who is told what is free finds out the same of a need as who has the workers, whatever runs there.
func TestOffersSayWhatFits(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := &capacityModel{pool: NewPool(), twin: NewPool(), workers: map[WorkerID]Worker{}, draining: map[WorkerID]bool{}}
		for range 6 {
			m.shapes = append(m.shapes, drawShape(t))
		}
		m.shapes = append(m.shapes, nil)
		t.Repeat(map[string]func(*rapid.T){
			"join": m.join, "leave": m.leave, "drain": m.drain, "place": m.place, "again": m.place, "reserve": m.reserve, "free": m.free,
			"": func(t *rapid.T) {
				need := m.need(t)
				offers, _ := m.pool.Offers(WorkerID{}, anyKind)
				_, there := PoolOf(offers).Place(need, Fill{Part: 1})
				if here := m.pool.Fits(need, Fill{Part: 1}); (here == Placed) != (there == Placed) {
					all := fmt.Sprintf("%+v of", *need.shape())
					for _, o := range offers {
						all += fmt.Sprintf(" %+v with %+v free", o, o.Free)
					}
					t.Fatalf("%s here, %s there: %s", here, there, all)
				}
			},
		})
	})
}

// Of many workers those with the most room are offered each time, and of the others each in its turn.
func TestEveryWorkerIsOfferedInItsTurn(t *testing.T) {
	p := NewPool()
	worker := func(n int) WorkerID {
		w := WorkerID{1}
		binary.BigEndian.PutUint16(w[14:], uint16(n))
		return w
	}
	for n := range 200 {
		p.Join(Worker{ID: worker(n), Slots: map[string]int{"k": 1 + n%2}, Labels: map[string]string{"n": fmt.Sprint(n)}})
	}
	p.Join(Worker{ID: worker(999), Slots: map[string]int{"k": 1}, Capacity: &Resources{GPUs: 8}, Labels: map[string]string{"n": "gpu"}})
	seen, after := map[string]bool{}, WorkerID{}
	for range 201/(OffersMax-offersBest) + 1 {
		var offers []Offer
		offers, after = p.Offers(after, anyKind)
		if len(offers) != OffersMax || offers[0].Labels["n"] != "gpu" {
			t.Fatalf("%d offers, first %v", len(offers), offers[0].Labels)
		}
		for _, o := range offers {
			seen[o.Labels["n"]] = true
		}
	}
	if len(seen) != 201 {
		t.Errorf("%d of 201 workers were offered", len(seen))
	}
}

func TestWhatIsNotOffered(t *testing.T) {
	p := NewPool()
	shape := &Shape{Resources: Resources{GPUs: 2}}
	p.Join(Worker{ID: id(1), Slots: map[string]int{"k": 4}, Capacity: &Resources{GPUs: 2, Slots: 1}})
	p.Join(Worker{ID: id(2), Slots: map[string]int{"k": 1, "other": 1}, Tenant: "x"})
	p.Join(Worker{ID: id(3), Slots: map[string]int{"k": 1}})
	names := func() map[string]int {
		offers, _ := p.Offers(WorkerID{}, func(_, kind string) bool { return kind == "k" })
		all := map[string]int{}
		for _, o := range offers {
			all[fmt.Sprintf("%q %v %v", o.Tenant, o.Slots, o.Devices)]++
		}
		return all
	}
	expect := func(when string, want ...string) {
		t.Helper()
		all := map[string]int{}
		for _, w := range want {
			all[w]++
		}
		if got := names(); !maps.Equal(got, all) {
			t.Errorf("%s: %v, want %v", when, got, all)
		}
	}
	const gpu, own, plain = `"" map[k:4] [1000 1000]`, `"x" map[k:1] []`, `"" map[k:1] []`
	expect("all are free", gpu, own, plain)
	p.Drain(id(3), true)
	expect("one drains", gpu, own)
	if _, held := p.Hold(Need{Kind: "k", Shape: shape}); !held {
		t.Fatal("nothing is held")
	}
	expect("one is held for a need", own)
	p.Release(Need{Kind: "k", Shape: shape})
	p.Place(Need{Kind: "k"}, Fill{Part: 1})
	expect("its only slot over all kinds is taken", own)
}

// What another scheduler says is taken for no more than a worker can have.
func FuzzOffers(f *testing.F) {
	f.Add(int64(-1), int64(math.MaxInt64), int64(math.MinInt64), math.MaxInt, -5, 100)
	f.Add(int64(8000), int64(1024), int64(0), 4, 500, 2)
	f.Add(int64(math.MaxInt64), int64(0), int64(1), -4, 5000, 33)
	f.Fuzz(func(t *testing.T, cpu, mem, slots int64, ofKind, device, count int) {
		devices := make([]int, min(max(count, 0), 200))
		for i := range devices {
			devices[i] = device
		}
		one := Offer{
			Slots: map[string]int{"k": ofKind}, Devices: devices, Labels: map[string]string{"": "\xff"},
			Free: &Resources{CPUMilli: cpu, MemoryMiB: mem, Slots: slots, GPUs: slots, GPUMilli: cpu},
		}
		offers := make([]Offer, min(max(count, 1), 100))
		for i := range offers {
			offers[i] = one
		}
		p := PoolOf(offers)
		if n := len(p.IDs()); n > OffersMax {
			t.Fatalf("%d workers", n)
		}
		shape := &Shape{Resources: Resources{GPUs: 1}}
		placed := 0
		for ; placed <= OffersMax*DevicesMax; placed++ {
			if _, refusal := p.Place(Need{Kind: "k", Shape: shape}, Fill{Part: 1}); refusal != Placed {
				break
			}
		}
		if most := len(p.IDs()) * min(len(devices), DevicesMax); placed > most || (device < DeviceMilli && placed > 0) || (ofKind <= 0 && placed > 0) {
			t.Fatalf("%d devices given out of %d", placed, most)
		}
	})
}
