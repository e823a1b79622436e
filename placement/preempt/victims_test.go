package preempt

import (
	"fmt"
	"math"
	"math/bits"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/errandhq/errand/placement"
)

// The tiers of these tests.
const (
	high = iota + 1
	middle
	low
)

func task(n int) [16]byte { return [16]byte{byte(n >> 8), byte(n)} }

func slotted(slots int) Held {
	return Held{Worker: id(1), Slots: map[string]int{"encode": slots}}
}

func lowTask(n int, work time.Duration) Running {
	return Running{Task: task(n), Kind: "encode", Tier: low, Preemptible: true, Work: work}
}

func TestVictimsAreTheCheapestThatAreEnough(t *testing.T) {
	gpus := &placement.Resources{CPUMilli: 8000, MemoryMiB: 8000, GPUs: 2}
	share := func(n int, device int, milli int64, work time.Duration) Running {
		r := lowTask(n, work)
		r.Uses, r.Devices = placement.Resources{GPUMilli: milli}, 1<<device
		return r
	}
	changed := func(r Running, change func(*Running)) Running { change(&r); return r }
	for name, c := range map[string]struct {
		need    placement.Resources
		slots   int
		has     *placement.Resources
		running []Running
		verdict Verdict
		victims []int
		devices uint64
	}{
		"room": {slots: 2, running: []Running{lowTask(1, time.Hour)}, verdict: FitsNow},
		"the least lost": {
			slots: 2, running: []Running{lowTask(1, time.Hour), lowTask(2, time.Minute)},
			verdict: Preempt, victims: []int{2},
		},
		"a restart counts": {
			slots: 2, running: []Running{lowTask(1, time.Hour), changed(lowTask(2, time.Minute), func(r *Running) { r.Restart = 2 * time.Hour })},
			verdict: Preempt, victims: []int{1},
		},
		"two small ones cheaper than the large": {
			need: placement.Resources{CPUMilli: 4000}, slots: 9, has: &placement.Resources{CPUMilli: 8000},
			running: []Running{
				changed(lowTask(1, time.Hour), func(r *Running) { r.Uses.CPUMilli = 4000 }),
				changed(lowTask(2, time.Minute), func(r *Running) { r.Uses.CPUMilli = 2000 }),
				changed(lowTask(3, time.Minute), func(r *Running) { r.Uses.CPUMilli = 2000 }),
			},
			verdict: Preempt, victims: []int{2, 3},
		},
		"letting stay one by one would miss it": {
			need: placement.Resources{CPUMilli: 5}, slots: 9, has: &placement.Resources{CPUMilli: 14}, running: missedByReprieves(),
			verdict: Preempt, victims: []int{1},
		},
		"of one cost, the lower tier": {
			slots: 2, running: []Running{changed(lowTask(1, 0), func(r *Running) { r.Tier = middle + 1 }), changed(lowTask(2, 0), func(r *Running) { r.Tier = low + 1 })},
			verdict: Preempt, victims: []int{2},
		},
		"one that is leaving is enough": {
			slots: 2, running: []Running{changed(lowTask(1, time.Hour), func(r *Running) { r.Leaving = true }), lowTask(2, 0)},
			verdict: RoomComes,
		},
		"the same tier": {
			slots: 1, running: []Running{changed(lowTask(1, 0), func(r *Running) { r.Tier = middle })}, verdict: NothingToGo,
		},
		"a higher tier": {
			slots: 1, running: []Running{changed(lowTask(1, 0), func(r *Running) { r.Tier = high })}, verdict: NothingToGo,
		},
		"not preemptible": {
			slots: 1, running: []Running{changed(lowTask(1, 0), func(r *Running) { r.Preemptible = false })}, verdict: NothingToGo,
		},
		"preempted too often": {
			slots: 1, running: []Running{changed(lowTask(1, 0), func(r *Running) { r.Preemptions = PreemptionsMax })}, verdict: NothingToGo,
		},
		"too large": {need: placement.Resources{Slots: 3}, slots: 2, running: []Running{lowTask(1, 0), lowTask(2, 0)}, verdict: NeverFits},
		"no devices": {
			need: placement.Resources{GPUs: 1}, slots: 2, running: []Running{lowTask(1, 0), lowTask(2, 0)}, verdict: NeverFits,
		},
		"devices and a share": {need: placement.Resources{GPUs: 1, GPUMilli: 5}, slots: 2, has: gpus, verdict: NeverFits},
		"more than a device":  {need: placement.Resources{GPUMilli: 1001}, slots: 2, has: gpus, verdict: NeverFits},
		"a share fits on one device only": { // 600 are free, on two devices
			need: placement.Resources{GPUMilli: 600}, slots: 9, has: gpus,
			running: []Running{share(1, 0, 700, time.Hour), share(2, 1, 700, time.Minute)},
			verdict: Preempt, victims: []int{2}, devices: 2,
		},
		"a whole device has nobody on it": {
			need: placement.Resources{GPUs: 1}, slots: 9, has: gpus,
			running: []Running{share(1, 0, 100, time.Hour), share(2, 0, 100, time.Hour), share(3, 1, 900, time.Hour)},
			verdict: Preempt, victims: []int{1, 2}, devices: 1,
		},
		"a share goes to the fullest device": {
			need: placement.Resources{GPUMilli: 100}, slots: 9, has: gpus,
			running: []Running{share(1, 0, 100, 0), share(2, 1, 900, 0)}, verdict: FitsNow, devices: 2,
		},
		"endless work": {
			slots: 2, running: []Running{lowTask(1, math.MaxInt64), lowTask(2, math.MinInt64)},
			verdict: Preempt, victims: []int{2},
		},
	} {
		t.Run(name, func(t *testing.T) {
			h := slotted(c.slots)
			h.Capacity, h.Running = c.has, c.running
			got := Victims(Preemptor{Kind: "encode", Need: c.need, Tier: middle}, []Held{h})
			var want [][16]byte
			for _, n := range c.victims {
				want = append(want, task(n))
			}
			if got.Verdict != c.verdict || !slices.Equal(got.Victims, want) || got.Devices != c.devices {
				t.Errorf("%v, victims %v, devices %b; want %v, %v, %b", got.Verdict, got.Victims, got.Devices, c.verdict, want, c.devices)
			}
		})
	}
}

// missedByReprieves uses 14 processors of which 5 are needed. The first one alone is the cheapest, and goes in neither order of reprieves.
func missedByReprieves() []Running {
	var found []Running
	for i, c := range []struct{ cpu, cost int64 }{{5, 100}, {4, 60}, {3, 58}, {2, 50}} {
		r := lowTask(i+1, 0)
		r.Uses.CPUMilli, r.Restart = c.cpu, time.Duration(c.cost)*time.Minute
		found = append(found, r)
	}
	return found
}

// Of two workers where the loss is the same, the smaller one; whichever is told first.
func TestVictimsOfOneCost(t *testing.T) {
	a, b := slotted(9), slotted(9)
	a.Capacity, b.Capacity = &placement.Resources{CPUMilli: 14}, &placement.Resources{CPUMilli: 5}
	a.Running, b.Running = missedByReprieves(), missedByReprieves()[:1]
	b.Worker = id(2)
	for _, workers := range [][]Held{{a, b}, {b, a}} {
		got := Victims(Preemptor{Kind: "encode", Need: placement.Resources{CPUMilli: 5}, Tier: high}, workers)
		if got.Worker != a.Worker || !slices.Equal(got.Victims, [][16]byte{task(1)}) {
			t.Errorf("on %v, victims %v; want on %v the first alone", got.Worker, got.Victims, a.Worker)
		}
	}
}

// Beyond the exact search, one large victim still goes instead of many small ones that cost more together, and the other way round.
func TestLargeOrManySmallVictims(t *testing.T) {
	const small = 2 * VictimExactMax
	for cost, want := range map[time.Duration]int{10 * time.Minute: 1, 100 * time.Minute: small} {
		h := slotted(2 * small)
		h.Running = []Running{lowTask(small, 0)}
		h.Running[0].Uses.Slots, h.Running[0].Restart = small, cost
		for n := range small {
			r := lowTask(n, 0)
			r.Restart = time.Minute
			h.Running = append(h.Running, r)
		}
		got := Victims(Preemptor{Kind: "encode", Need: placement.Resources{Slots: small}, Tier: high}, []Held{h})
		if len(got.Victims) != want {
			t.Errorf("the large one costs %v: %d victims, want %d", cost, len(got.Victims), want)
		}
	}
}

func TestVictimsAreBounded(t *testing.T) {
	p := Preemptor{Kind: "encode", Tier: high}
	workers := make([]Held, VictimWorkersMax+1)
	for i := range workers {
		workers[i] = Held{Worker: placement.WorkerID{byte(i >> 8), byte(i), 1}, Slots: map[string]int{"other": 1}}
	}
	workers[VictimWorkersMax].Slots = map[string]int{"encode": 1}
	if got := Victims(p, workers); got.Verdict != NothingToGo {
		t.Errorf("%v, with a worker that nobody looked at", got.Verdict)
	}
	if got := Victims(p, workers[:VictimWorkersMax]); got.Verdict != NeverFits {
		t.Errorf("%v, on workers of another kind", got.Verdict)
	}
	h := slotted(VictimCandidatesMax + 1)
	for n := range VictimCandidatesMax + 1 {
		h.Running = append(h.Running, lowTask(n, time.Hour))
	}
	p.Need.Slots = VictimCandidatesMax
	if got := Victims(p, []Held{h}); len(got.Victims) != VictimCandidatesMax {
		t.Errorf("%v with %d victims", got.Verdict, len(got.Victims))
	}
	p.Need.Slots++
	if got := Victims(p, []Held{h}); got.Verdict != NothingToGo {
		t.Errorf("%v, with more victims than are weighed", got.Verdict)
	}
}

// naiveRoom is the second opinion on what fits: the room of all others is added up from nothing, and devices are tried one by one.
func naiveRoom(p Preemptor, h *Held, gone uint64) bool {
	kind, over, cpu, memory := p.Need.Slots, p.Need.Slots, p.Need.CPUMilli, p.Need.MemoryMiB
	var devices [placement.DevicesMax]int64
	use := func(k string, r placement.Resources, bitsOf uint64) {
		cpu, memory, over = cpu+r.CPUMilli, memory+r.MemoryMiB, over+r.Slots
		if k == p.Kind {
			kind += r.Slots
		}
		for i := range devices {
			if bitsOf>>i&1 == 1 && r.GPUs > 0 {
				devices[i] += placement.DeviceMilli
			} else if bitsOf>>i&1 == 1 {
				devices[i] += r.GPUMilli
			}
		}
	}
	for i, r := range h.Running {
		if gone>>i&1 == 0 {
			use(r.Kind, r.Uses, r.Devices)
		}
	}
	for _, k := range h.Kept {
		use(k.Kind, k.Need, k.Devices)
	}
	c := h.Capacity
	if kind > int64(h.Slots[p.Kind]) || c.Slots > 0 && over > c.Slots ||
		p.Need.CPUMilli > 0 && cpu > c.CPUMilli || p.Need.MemoryMiB > 0 && memory > c.MemoryMiB {
		return false
	}
	var free, shared int64
	for _, taken := range devices[:c.GPUs] {
		if taken == 0 {
			free++
		}
		if taken+p.Need.GPUMilli <= placement.DeviceMilli {
			shared++
		}
	}
	return free >= p.Need.GPUs && (p.Need.GPUMilli == 0 || shared > 0)
}

func mayGo(p Preemptor, r Running) bool {
	return r.Preemptible && !r.Leaving && r.Tier > p.Tier && r.Preemptions < PreemptionsMax
}

// naiveChoice tries every set on every worker: the verdict, and the least cost and number of victims.
func naiveChoice(p Preemptor, workers []Held) (verdict Verdict, cost time.Duration, size int) {
	for i := range workers {
		h := &workers[i]
		empty := *h
		empty.Running, empty.Kept = nil, nil
		v := NeverFits
		if naiveRoom(p, &empty, 0) {
			v = NothingToGo
		}
		var leaving uint64
		for n, r := range h.Running {
			if r.Leaving {
				leaving |= 1 << n
			}
		}
		if naiveRoom(p, h, leaving) {
			v = RoomComes
		}
		if naiveRoom(p, h, 0) {
			v = FitsNow
		}
		verdict = max(verdict, v)
		for gone := uint64(1); gone < 1<<len(h.Running); gone++ {
			c, ok := naiveCost(p, h, gone)
			if !ok || v > Preempt || verdict > Preempt || !naiveRoom(p, h, gone|leaving) {
				continue
			}
			n := bits.OnesCount64(gone)
			if verdict < Preempt || c < cost || c == cost && n < size {
				verdict, cost, size = Preempt, c, n
			}
		}
	}
	if verdict != Preempt {
		return verdict, 0, 0
	}
	return verdict, cost, size
}

func naiveCost(p Preemptor, h *Held, gone uint64) (cost time.Duration, ok bool) {
	for i, r := range h.Running {
		if gone>>i&1 == 0 {
			continue
		}
		if !mayGo(p, r) {
			return 0, false
		}
		cost += h.cost(&r)
	}
	return cost, true
}

func drawResources(t *rapid.T, label string, most int64) placement.Resources {
	r := placement.Resources{
		CPUMilli: rapid.Int64Range(0, most).Draw(t, label+" cpu"), MemoryMiB: rapid.Int64Range(0, most).Draw(t, label+" memory"),
		Slots: rapid.Int64Range(1, 2).Draw(t, label+" slots"),
	}
	switch rapid.IntRange(0, 4).Draw(t, label+" devices") {
	case 0:
		r.GPUs = rapid.Int64Range(1, 2).Draw(t, label+" whole")
	case 1, 2:
		r.GPUMilli = rapid.Int64Range(1, placement.DeviceMilli).Draw(t, label+" share")
	}
	return r
}

// drawHeld fills a worker as a pool would: an attempt that finds no room on it is not there. It is nearly full then, and most of what it
// runs may go, so that there is something to choose.
func drawHeld(t *rapid.T, n, attempts int) Held {
	h := Held{Worker: id(byte(n + 1)), Slots: map[string]int{"encode": rapid.IntRange(2, 12).Draw(t, "encode"), "mix": rapid.IntRange(0, 4).Draw(t, "mix")}}
	h.Capacity = &placement.Resources{
		CPUMilli: rapid.Int64Range(8, 12).Draw(t, "cpu"), MemoryMiB: rapid.Int64Range(8, 12).Draw(t, "memory"),
		Slots: rapid.SampledFrom([]int64{0, 4, 8}).Draw(t, "slots"), GPUs: rapid.Int64Range(0, 3).Draw(t, "gpus"),
	}
	for i := 0; i < 4*attempts && len(h.Running) < attempts; i++ {
		p := Preemptor{Kind: rapid.SampledFrom([]string{"encode", "encode", "mix"}).Draw(t, "kind"), Need: drawResources(t, "uses", 3)}
		found := Victims(p, []Held{h})
		if found.Verdict != FitsNow {
			continue
		}
		if rapid.IntRange(0, 19).Draw(t, "kept") == 19 {
			h.Kept = append(h.Kept, Reservation{Kind: p.Kind, Need: p.Need, Devices: found.Devices})
			continue
		}
		h.Running = append(h.Running, Running{
			Task: task(n*1000 + i), Kind: p.Kind, Uses: p.Need, Devices: found.Devices,
			Tier: rapid.SampledFrom([]uint8{low, low, low, middle, high}).Draw(t, "tier"), Preemptible: rapid.IntRange(0, 7).Draw(t, "preemptible") < 7,
			Preemptions: rapid.IntRange(0, PreemptionsMax).Draw(t, "preemptions"), Leaving: rapid.IntRange(0, 19).Draw(t, "leaving") == 19,
			Work: time.Duration(rapid.IntRange(0, 9).Draw(t, "work")) * time.Minute, Restart: time.Duration(rapid.IntRange(0, 2).Draw(t, "restart")) * time.Second,
		})
	}
	return h
}

func drawCase(t *rapid.T, workers, attempts int) (Preemptor, []Held) {
	var held []Held
	for n := range rapid.IntRange(0, workers).Draw(t, "workers") {
		held = append(held, drawHeld(t, n, attempts))
	}
	return Preemptor{Kind: "encode", Need: drawResources(t, "need", 8), Tier: uint8(rapid.IntRange(high, middle).Draw(t, "preemptor's tier"))}, held
}

// checkChoice says what is wrong with a choice, on any number of attempts.
func checkChoice(p Preemptor, workers []Held, c Choice) error {
	if (len(c.Victims) > 0) != (c.Verdict == Preempt) || c.Worker.IsZero() != (c.Verdict < Preempt) {
		return fmt.Errorf("%v on %v with victims %v", c.Verdict, c.Worker, c.Victims)
	}
	if c.Verdict != Preempt {
		return nil
	}
	h := &workers[slices.IndexFunc(workers, func(h Held) bool { return h.Worker == c.Worker })]
	var leaving, gone uint64
	for i, r := range h.Running {
		if r.Leaving {
			leaving |= 1 << i
		}
		if slices.Contains(c.Victims, r.Task) {
			gone |= 1 << i
		}
	}
	cost, ok := naiveCost(p, h, gone)
	if !ok || cost != c.Cost || bits.OnesCount64(gone) != len(c.Victims) {
		return fmt.Errorf("victims %v cost %v, may go: %v; said %v", c.Victims, cost, ok, c.Cost)
	}
	if !naiveRoom(p, h, gone|leaving) {
		return fmt.Errorf("does not fit without %v", c.Victims)
	}
	for i := range h.Running {
		if gone>>i&1 == 1 && naiveRoom(p, h, (gone|leaving)&^(1<<i)) {
			return fmt.Errorf("victim %v is superfluous", h.Running[i].Task)
		}
	}
	placed := *h // on the devices that were chosen, with the victims gone
	placed.Running = nil
	for i, r := range h.Running {
		if (gone|leaving)>>i&1 == 0 {
			placed.Running = append(placed.Running, r)
			if r.Devices&c.Devices != 0 && (p.Need.GPUs > 0 || r.Uses.GPUs > 0) {
				return fmt.Errorf("device of %v given away", r.Task)
			}
		}
	}
	if got := int64(bits.OnesCount64(c.Devices)); got != max(p.Need.GPUs, min(p.Need.GPUMilli, 1)) {
		return fmt.Errorf("%d devices", got)
	}
	return nil
}

// Small instances: no set of attempts on any worker is cheaper, and what cannot fit makes nobody stop.
func TestVictimsAgainstAllSets(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p, workers := drawCase(t, 3, 8)
		got := Victims(p, workers)
		if err := checkChoice(p, workers, got); err != nil {
			t.Fatal(err)
		}
		verdict, cost, size := naiveChoice(p, workers)
		if got.Verdict != verdict || got.Cost != cost || len(got.Victims) != size {
			t.Fatalf("%v, cost %v, %d victims; all sets: %v, %v, %d", got.Verdict, got.Cost, len(got.Victims), verdict, cost, size)
		}
	})
}

// Beyond the exact search: the victims may go, are enough, and none is superfluous.
func TestManyVictims(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		h := Held{Worker: id(1), Slots: map[string]int{"encode": 60}, Capacity: &placement.Resources{CPUMilli: 60, MemoryMiB: 60, GPUs: 4}}
		for i := range rapid.IntRange(VictimExactMax+1, 60).Draw(t, "attempts") {
			p := Preemptor{Kind: "encode", Need: drawResources(t, "uses", 3)}
			if found := Victims(p, []Held{h}); found.Verdict == FitsNow {
				r := lowTask(i, time.Duration(rapid.IntRange(0, 99).Draw(t, "work"))*time.Minute)
				r.Uses, r.Devices, r.Preemptible = p.Need, found.Devices, rapid.IntRange(0, 9).Draw(t, "preemptible") > 0
				h.Running = append(h.Running, r)
			}
		}
		p := Preemptor{Kind: "encode", Need: drawResources(t, "need", 50), Tier: high}
		if err := checkChoice(p, []Held{h}, Victims(p, []Held{h})); err != nil {
			t.Fatal(err)
		}
	})
}

// The choice does not depend on the order in which workers and attempts are told.
func TestVictimsInAnyOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p, workers := drawCase(t, 4, 8)
		want := Victims(p, workers)
		other := rapid.Permutation(workers).Draw(t, "workers' order")
		for i := range other {
			other[i].Running = rapid.Permutation(other[i].Running).Draw(t, "order")
		}
		if got := Victims(p, other); got.Worker != want.Worker || got.Verdict != want.Verdict || !slices.Equal(got.Victims, want.Victims) {
			t.Fatalf("%+v, and in another order %+v", want, got)
		}
	})
}

func BenchmarkVictims(b *testing.B) {
	for _, attempts := range []int{VictimExactMax, VictimCandidatesMax} {
		b.Run(fmt.Sprintf("workers=%d/attempts=%d", VictimWorkersMax, attempts), func(b *testing.B) {
			workers := make([]Held, VictimWorkersMax)
			for i := range workers {
				workers[i] = slotted(attempts)
				workers[i].Worker = placement.WorkerID{byte(i), 1}
				workers[i].Capacity = &placement.Resources{CPUMilli: int64(attempts) * 100}
				for n := range attempts {
					r := lowTask(n, time.Duration(1+(n*7919+i*104729)%1000)*time.Second)
					r.Uses = placement.Resources{CPUMilli: 100}
					workers[i].Running = append(workers[i].Running, r)
				}
			}
			p := Preemptor{Kind: "encode", Need: placement.Resources{CPUMilli: int64(attempts) * 50}, Tier: high}
			for b.Loop() {
				Victims(p, workers)
			}
		})
	}
}

func id(n byte) placement.WorkerID { return placement.WorkerID{n} }
