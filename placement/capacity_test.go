package placement

import (
	"maps"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// held is an attempt of the model, and where the pool has put it.
type held struct {
	at     Placement
	need   Need
	forced bool // it was there already: its room may be above the capacity
}

// capacityModel plays one history on two pools, and knows what runs where.
type capacityModel struct {
	pool, twin *Pool
	workers    map[WorkerID]Worker
	draining   map[WorkerID]bool
	running    []held
	shapes     []*Shape
}

// The pool never gives out more than a worker has, in any dimension and on any device, however workers come, go and change what they
// say; what it refuses fits nowhere, and what it says could never run fits on no empty worker; the same history gives the same answers.
func TestCapacity(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := &capacityModel{pool: NewPool(), twin: NewPool(), workers: map[WorkerID]Worker{}, draining: map[WorkerID]bool{}}
		for range 6 {
			m.shapes = append(m.shapes, drawShape(t))
		}
		m.shapes = append(m.shapes, nil)
		t.Repeat(map[string]func(*rapid.T){
			"join": m.join, "leave": m.leave, "drain": m.drain, "place": m.place, "again": m.place, "reserve": m.reserve, "free": m.free,
			"": m.check,
		})
	})
}

func drawShape(t *rapid.T) *Shape {
	s := &Shape{Resources: Resources{
		CPUMilli:  rapid.Int64Range(-1, 4).Draw(t, "cpu") * 500,
		MemoryMiB: rapid.Int64Range(0, 4).Draw(t, "memory") * 256,
		Slots:     rapid.Int64Range(0, 2).Draw(t, "slots"),
	}}
	switch rapid.IntRange(0, 3).Draw(t, "devices") {
	case 1:
		s.GPUs = rapid.Int64Range(1, 3).Draw(t, "gpus")
	case 2:
		s.GPUMilli = rapid.SampledFrom([]int64{1, 250, 400, 1000, 1001}).Draw(t, "share")
	}
	if rapid.Bool().Draw(t, "picky") {
		s.Selectors = []Selector{rapid.SampledFrom([]Selector{
			{"disk", In, []string{"ssd", "nvme"}},
			{"disk", NotIn, []string{"ssd"}},
			{"disk", Exists, nil},
			{"speed", Greater, []string{"10"}},
			{"speed", Less, []string{"10"}},
			{"speed", Less, []string{"ten"}},
			{"speed", 99, nil},
		}).Draw(t, "selector")}
		s.Preferences = []Preference{{Selector{"disk", Exists, nil}, 5}}
		s.Near = rapid.SampledFrom([]string{"", "a"}).Draw(t, "near")
	}
	return s
}

func (m *capacityModel) both(f func(p *Pool)) {
	f(m.pool)
	f(m.twin)
}

func (m *capacityModel) join(t *rapid.T) {
	w := Worker{
		ID:     drawWorker(t),
		Slots:  rapid.MapOf(rapid.SampledFrom([]string{"k", "l"}), rapid.IntRange(0, 4)).Draw(t, "slots"),
		Labels: rapid.MapOf(rapid.SampledFrom([]string{"disk", "speed"}), rapid.SampledFrom([]string{"ssd", "9", "11", "x"})).Draw(t, "labels"),
		Zone:   rapid.SampledFrom([]string{"a", "b"}).Draw(t, "zone"),
	}
	if rapid.IntRange(0, 3).Draw(t, "declares") > 0 {
		w.Capacity = &Resources{
			CPUMilli: rapid.Int64Range(-1, 8).Draw(t, "cpu") * 500, MemoryMiB: rapid.Int64Range(0, 8).Draw(t, "memory") * 256,
			Slots: rapid.Int64Range(0, 5).Draw(t, "all slots"), GPUs: rapid.SampledFrom([]int64{0, 1, 2, 4, 70}).Draw(t, "gpus"),
		}
	}
	m.both(func(p *Pool) { p.Join(w) })
	m.workers[w.ID] = w
}

func (m *capacityModel) leave(t *rapid.T) {
	id := drawWorker(t)
	m.both(func(p *Pool) { p.Leave(id) })
	delete(m.workers, id)
	delete(m.draining, id)
	m.running = slices.DeleteFunc(m.running, func(h held) bool { return h.at.Worker == id })
}

func (m *capacityModel) drain(t *rapid.T) {
	id, draining := drawWorker(t), rapid.Bool().Draw(t, "draining")
	m.both(func(p *Pool) { p.Drain(id, draining) })
	if _, here := m.workers[id]; here {
		m.draining[id] = draining
	}
}

func (m *capacityModel) need(t *rapid.T) Need {
	return Need{
		Kind: rapid.SampledFrom([]string{"k", "l"}).Draw(t, "kind"), Shape: rapid.SampledFrom(m.shapes).Draw(t, "shape"),
		Suspect: rapid.IntRange(0, 9).Draw(t, "suspect") == 0,
	}
}

func (m *capacityModel) place(t *rapid.T) {
	n := m.need(t)
	at, refusal := m.pool.Place(n, Fill{Part: 1})
	if twin, same := m.twin.Place(n, Fill{Part: 1}); twin != at || same != refusal {
		t.Fatalf("the same history: %v %v, then %v %v", at, refusal, twin, same)
	}
	if refusal == Placed {
		if !m.fits(at.Worker, n, m.running) || m.draining[at.Worker] {
			t.Fatalf("placed %+v on %v, where it does not fit", n, at)
		}
		m.running = append(m.running, held{at: at, need: n})
		return
	}
	for id := range m.workers {
		if m.fits(id, n, m.running) && !m.draining[id] && !(n.Suspect && refusal == SuspectWaiting) {
			t.Fatalf("%v for %+v, which fits on %v", refusal, n, id)
		}
		if never := refusal == NeverFits || refusal == Unselected || refusal == NoWorker; never && m.fits(id, n, nil) {
			t.Fatalf("%v for %+v, which fits on %v when it is empty", refusal, n, id)
		}
	}
}

func (m *capacityModel) reserve(t *rapid.T) {
	n, id := m.need(t), drawWorker(t)
	at := m.pool.Reserve(Placement{Worker: id}, n)
	if twin := m.twin.Reserve(Placement{Worker: id}, n); twin != at {
		t.Fatalf("the same history: %v, then %v", at, twin)
	}
	if _, here := m.workers[id]; here {
		m.running = append(m.running, held{at, n, true})
	}
}

func (m *capacityModel) free(t *rapid.T) {
	if len(m.running) == 0 {
		return
	}
	i := rapid.IntRange(0, len(m.running)-1).Draw(t, "which")
	h := m.running[i]
	m.running = slices.Delete(m.running, i, i+1)
	m.both(func(p *Pool) { p.Free(h.at, h.need) })
}

// fits tells whether a need finds room on a worker beside some attempts, by its own arithmetic.
func (m *capacityModel) fits(id WorkerID, n Need, running []held) bool {
	w, want := m.workers[id], (&Shape{})
	if n.Shape != nil {
		want = n.Shape
	}
	if want.GPUMilli > DeviceMilli || want.GPUs > 0 && want.GPUMilli > 0 {
		return false
	}
	used, ofKind, devices := m.load(id, n.Kind, running)
	slots := max(want.Slots, 1)
	if int64(w.Slots[n.Kind])-ofKind < slots || !selected(want.Selectors, w.Labels) {
		return false
	}
	if w.Capacity == nil {
		return want.GPUs <= 0 && want.GPUMilli <= 0
	}
	has := w.Capacity
	if max(want.CPUMilli, 0) > max(has.CPUMilli, 0)-used.CPUMilli || want.MemoryMiB > has.MemoryMiB-used.MemoryMiB ||
		has.Slots > 0 && slots > has.Slots-used.Slots {
		return false
	}
	whole, widest := int64(0), int64(0)
	for i := range min(has.GPUs, DevicesMax) {
		free := max(DeviceMilli-devices[int(i)], 0)
		widest = max(widest, free)
		if free == DeviceMilli {
			whole++
		}
	}
	return max(want.GPUs, 0) <= whole && want.GPUMilli <= widest
}

// load is what attempts take of a worker: in all, of a kind's slots, and of each device.
func (m *capacityModel) load(id WorkerID, kind string, running []held) (used Resources, ofKind int64, devices map[int]int64) {
	devices = map[int]int64{}
	for _, h := range running {
		if h.at.Worker != id {
			continue
		}
		s := h.need.Shape
		if s == nil {
			s = &Shape{}
		}
		used.CPUMilli, used.MemoryMiB, used.Slots = used.CPUMilli+max(s.CPUMilli, 0), used.MemoryMiB+s.MemoryMiB, used.Slots+max(s.Slots, 1)
		if h.need.Kind == kind {
			ofKind += max(s.Slots, 1)
		}
		each := int64(DeviceMilli)
		if s.GPUs <= 0 {
			each = s.GPUMilli
		}
		h.at.Devices.each(func(i int) { devices[i] += each })
	}
	return used, ofKind, devices
}

func selected(all []Selector, labels map[string]string) bool {
	for _, s := range all {
		value, here := labels[s.Key]
		number := map[string]float64{"9": 9, "11": 11, "10": 10}
		label, isNumber := number[value]
		bound, known := 0.0, false
		if len(s.Values) == 1 {
			bound, known = number[s.Values[0]]
		}
		ok := false
		switch s.Operator {
		case In:
			ok = here && slices.Contains(s.Values, value)
		case NotIn:
			ok = !here || !slices.Contains(s.Values, value)
		case Exists:
			ok = here
		case Greater:
			ok = isNumber && known && label > bound
		case Less:
			ok = isNumber && known && label < bound
		}
		if !ok {
			return false
		}
	}
	return true
}

// check compares what is taken, and that placed attempts have all their devices to themselves as far as they asked for them.
func (m *capacityModel) check(t *rapid.T) {
	for id := range m.workers {
		want := map[string]int{}
		for _, kind := range []string{"k", "l"} {
			if _, n, _ := m.load(id, kind, m.running); n > 0 {
				want[kind] = int(n)
			}
		}
		if got := m.pool.Used(id); !maps.Equal(got, want) {
			t.Fatalf("worker %v carries %v, want %v", id, got, want)
		}
	}
	for _, h := range m.running {
		devices := 0
		if s := h.need.Shape; s != nil && s.GPUs > 0 {
			devices = int(s.GPUs)
		} else if s != nil && s.GPUMilli > 0 {
			devices = 1
		}
		if !h.forced && h.at.Devices.Len() != devices {
			t.Fatalf("%+v has the devices %b", h.need, h.at.Devices)
		}
	}
}
