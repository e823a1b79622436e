package placement

import (
	"maps"
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

func id(n byte) WorkerID { return WorkerID{n} }

func TestRefusalsSayWhy(t *testing.T) {
	encode := Need{Tenant: "x", Kind: "encode"}
	suspect := Need{Tenant: "x", Kind: "encode", Suspect: true}
	one := map[string]int{"encode": 1}
	for name, c := range map[string]struct {
		prepare func(*Pool)
		need    Need
		want    Refusal
	}{
		"nobody":           {func(*Pool) {}, encode, NoWorker},
		"another kind":     {func(p *Pool) { p.Join(Worker{ID: id(1), Slots: map[string]int{"other": 1}}) }, encode, NoWorker},
		"no slots":         {func(p *Pool) { p.Join(Worker{ID: id(1), Slots: map[string]int{"encode": 0}}) }, encode, NoWorker},
		"negative slots":   {func(p *Pool) { p.Join(Worker{ID: id(1), Slots: map[string]int{"encode": -3}}) }, encode, NoWorker},
		"another tenant's": {func(p *Pool) { p.Join(Worker{ID: id(1), Tenant: "y", Slots: one}) }, encode, NoWorker},
		"a pool worker":    {func(p *Pool) { p.Join(Worker{ID: id(1), Slots: one}) }, encode, Placed},
		"the tenant's own": {func(p *Pool) { p.Join(Worker{ID: id(1), Tenant: "x", Slots: one}) }, encode, Placed},
		"busy":             {func(p *Pool) { p.Join(Worker{ID: id(1), Slots: one}); p.Place(encode, Fill{Part: 1}) }, encode, DoesNotFitNow},
		"draining":         {func(p *Pool) { p.Join(Worker{ID: id(1), Slots: one}); p.Drain(id(1), true) }, encode, AllDraining},
		"resumed":          {func(p *Pool) { p.Join(Worker{ID: id(1), Slots: one}); p.Drain(id(1), true); p.Drain(id(1), false) }, encode, Placed},
		"left":             {func(p *Pool) { p.Join(Worker{ID: id(1), Slots: one}); p.Leave(id(1)) }, encode, NoWorker},
		"a suspect's worker": {func(p *Pool) {
			p.Join(Worker{ID: id(1), Slots: map[string]int{"encode": 2}})
			p.Place(suspect, Fill{Part: 1})
		}, suspect, SuspectWaiting},
		"beside a suspect": {func(p *Pool) {
			p.Join(Worker{ID: id(1), Slots: map[string]int{"encode": 2}})
			p.Place(suspect, Fill{Part: 1})
		}, encode, Placed},
		"own busy, no pool": {func(p *Pool) { p.Join(Worker{ID: id(1), Tenant: "x", Slots: one}); p.Place(encode, Fill{Part: 1}) }, encode, DoesNotFitNow},
		"own draining, pool busy": {func(p *Pool) {
			p.Join(Worker{ID: id(1), Tenant: "x", Slots: one})
			p.Drain(id(1), true)
			p.Join(Worker{ID: id(2), Slots: one})
			p.Place(Need{Tenant: "y", Kind: "encode"}, Fill{Part: 1})
		}, encode, DoesNotFitNow},
	} {
		t.Run(name, func(t *testing.T) {
			p := NewPool()
			c.prepare(p)
			at, refusal := p.Place(c.need, Fill{Part: 1})
			if refusal != c.want {
				t.Errorf("%v, want %v", refusal, c.want)
			}
			if at.Worker.IsZero() != (c.want != Placed) {
				t.Errorf("worker %v with refusal %v", at.Worker, refusal)
			}
		})
	}
}

func TestOwnWorkersComeBeforeThePools(t *testing.T) {
	p := NewPool()
	p.Join(Worker{ID: id(1), Slots: map[string]int{"encode": 9}})
	p.Join(Worker{ID: id(2), Tenant: "x", Slots: map[string]int{"encode": 1}})
	for _, want := range []WorkerID{id(2), id(1), id(1)} {
		if got, _ := p.Place(Need{Tenant: "x", Kind: "encode"}, Fill{Part: 1}); got.Worker != want {
			t.Errorf("placed on %v, want %v", got, want)
		}
	}
	if got, _ := p.Place(Need{Tenant: "y", Kind: "encode"}, Fill{Part: 1}); got.Worker != id(1) {
		t.Errorf("another tenant's task on %v, want %v", got, id(1))
	}
}

// A pool keeps nothing of workers and kinds that are gone.
func TestPoolForgets(t *testing.T) {
	p := NewPool()
	for n := range byte(100) {
		kind := string(rune('a' + n%26))
		p.Join(Worker{ID: id(1), Slots: map[string]int{kind: 1}}) // says something new of itself each time
		p.Join(Worker{ID: id(n + 2), Tenant: kind, Slots: map[string]int{kind: 1}})
		p.Leave(id(n + 2))
	}
	p.Leave(id(1))
	if len(p.members)+len(p.groups)+p.own != 0 {
		t.Errorf("%d workers, %d groups, %d own workers are left", len(p.members), len(p.groups), p.own)
	}
}

// naivePool is the second opinion: the same rules by scanning everything.
type naivePool struct{ workers map[WorkerID]*naiveWorker }

type naiveWorker struct {
	Worker
	draining bool
	used     map[string]int
	urgent   map[string]int
	suspects int
}

func (p *naivePool) place(n Need, fill Fill) (WorkerID, Refusal) {
	own, refusal := p.placeOn(n, n.Tenant, fill)
	if refusal == Placed || n.Tenant == "" {
		return own, refusal
	}
	pool, poolRefusal := p.placeOn(n, "", fill)
	if poolRefusal == NoWorker {
		return pool, refusal
	}
	return pool, poolRefusal
}

func (p *naivePool) placeOn(n Need, tenant string, fill Fill) (WorkerID, Refusal) {
	var best *naiveWorker
	refusal := NoWorker
	for _, w := range p.workers {
		serves := w.Slots[n.Kind] > 0 || w.used[n.Kind] > 0
		free := w.Slots[n.Kind] - w.used[n.Kind]
		switch {
		case w.Tenant != tenant || !serves:
		case w.draining:
			refusal = worse(refusal, AllDraining)
		case free <= 0:
			refusal = worse(refusal, DoesNotFitNow)
		case n.Suspect && w.suspects > 0:
			refusal = worse(refusal, SuspectWaiting)
		case best == nil || free > best.Slots[n.Kind]-best.used[n.Kind] ||
			(free == best.Slots[n.Kind]-best.used[n.Kind] && w.ID.Compare(best.ID) < 0):
			best = w
		}
	}
	if (best != nil || refusal == SuspectWaiting) && p.full(n.Kind, tenant, fill) {
		return WorkerID{}, Headroom
	}
	if best == nil {
		return WorkerID{}, refusal
	}
	return best.ID, Placed
}

func (p *naivePool) full(kind, tenant string, fill Fill) bool {
	slots, used := 0, 0
	for _, w := range p.workers {
		has := max(w.Slots[kind], 0)
		switch {
		case w.Tenant != tenant || w.draining:
		case fill.BesideUrgent:
			slots, used = slots+has, used+min(w.used[kind]-w.urgent[kind], has)
		default:
			slots, used = slots+has, used+min(w.used[kind], has)
		}
	}
	return fill.Part < 1 && used >= int(math.Ceil(fill.Part*float64(slots)))
}

// worse is the refusal that tells more: the nearer to a placement.
func worse(a, b Refusal) Refusal {
	order := []Refusal{NoWorker, AllDraining, DoesNotFitNow, SuspectWaiting}
	return order[max(slices.Index(order, a), slices.Index(order, b))]
}

// The pool says what a scan of all workers says, never goes over a capacity, and counts the same.
func TestPoolAgreesWithAScan(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := &poolModel{pool: NewPool(), naive: naivePool{workers: map[WorkerID]*naiveWorker{}}}
		t.Repeat(map[string]func(*rapid.T){
			"join": m.join, "leave": m.leave, "drain": m.drain, "place": m.place, "reserve": m.reserve, "free": m.free, "": m.check,
		})
	})
}

type placed struct {
	worker WorkerID
	need   Need
}

type poolModel struct {
	pool  *Pool
	naive naivePool
	taken []placed
}

func drawWorker(t *rapid.T) WorkerID { return id(byte(rapid.IntRange(1, 4).Draw(t, "worker"))) }

func drawNeed(t *rapid.T) Need {
	return Need{
		Tenant:  rapid.SampledFrom([]string{"", "x", "y"}).Draw(t, "tenant"),
		Kind:    rapid.SampledFrom([]string{"k", "l"}).Draw(t, "kind"),
		Suspect: rapid.Bool().Draw(t, "suspect"),
		Urgent:  rapid.Bool().Draw(t, "urgent"),
	}
}

func (m *poolModel) join(t *rapid.T) {
	w := Worker{
		ID:     drawWorker(t),
		Tenant: rapid.SampledFrom([]string{"", "", "x"}).Draw(t, "of tenant"),
		Slots:  rapid.MapOf(rapid.SampledFrom([]string{"k", "l"}), rapid.IntRange(-1, 3)).Draw(t, "slots"),
	}
	m.pool.Join(w)
	known := m.naive.workers[w.ID]
	if known == nil || known.Tenant != w.Tenant {
		m.forget(w.ID)
		known = &naiveWorker{used: map[string]int{}, urgent: map[string]int{}}
		m.naive.workers[w.ID] = known
	}
	known.Worker = w
}

func (m *poolModel) forget(id WorkerID) {
	delete(m.naive.workers, id)
	m.taken = slices.DeleteFunc(m.taken, func(p placed) bool { return p.worker == id })
}

func (m *poolModel) leave(t *rapid.T) {
	id := drawWorker(t)
	m.pool.Leave(id)
	m.forget(id)
}

func (m *poolModel) drain(t *rapid.T) {
	id, draining := drawWorker(t), rapid.Bool().Draw(t, "draining")
	m.pool.Drain(id, draining)
	if w := m.naive.workers[id]; w != nil {
		w.draining = draining
	}
}

func (m *poolModel) take(id WorkerID, n Need) {
	w := m.naive.workers[id]
	w.used[n.Kind]++
	if n.Urgent {
		w.urgent[n.Kind]++
	}
	if n.Suspect {
		w.suspects++
	}
	m.taken = append(m.taken, placed{id, n})
}

func (m *poolModel) place(t *rapid.T) {
	n := drawNeed(t)
	fill := Fill{Part: rapid.SampledFrom([]float64{1, 0.6, 0.3}).Draw(t, "part"), BesideUrgent: rapid.Bool().Draw(t, "beside urgent")}
	want, wantRefusal := m.naive.place(n, fill)
	at, refusal := m.pool.Place(n, fill)
	got := at.Worker
	if got != want || refusal != wantRefusal {
		t.Fatalf("place %+v: %v on %v, a scan says %v on %v", n, refusal, got, wantRefusal, want)
	}
	if refusal == Placed {
		m.take(got, n)
	}
}

func (m *poolModel) reserve(t *rapid.T) {
	id, n := drawWorker(t), drawNeed(t)
	m.pool.Reserve(Placement{Worker: id}, n)
	if m.naive.workers[id] != nil {
		m.take(id, n)
	}
}

func (m *poolModel) free(t *rapid.T) {
	if len(m.taken) == 0 {
		return
	}
	i := rapid.IntRange(0, len(m.taken)-1).Draw(t, "which")
	p := m.taken[i]
	m.taken = slices.Delete(m.taken, i, i+1)
	m.pool.Free(Placement{Worker: p.worker}, p.need)
	w := m.naive.workers[p.worker]
	if w.used[p.need.Kind]--; w.used[p.need.Kind] == 0 {
		delete(w.used, p.need.Kind)
	}
	if p.need.Urgent {
		w.urgent[p.need.Kind]--
	}
	if p.need.Suspect {
		w.suspects--
	}
}

func (m *poolModel) check(t *rapid.T) {
	free := map[string]int{}
	for id, w := range m.naive.workers {
		if got := m.pool.Used(id); !maps.Equal(got, w.used) {
			t.Fatalf("worker %v carries %v, want %v", id, got, w.used)
		}
		if m.pool.Draining(id) != w.draining {
			t.Fatalf("worker %v draining: %v", id, !w.draining)
		}
		for kind, slots := range w.Slots {
			if w.Tenant == "" && !w.draining {
				free[kind] += max(slots-w.used[kind], 0)
			}
		}
	}
	for _, kind := range []string{"k", "l"} {
		if got := m.pool.FreeSlots(kind); got != free[kind] {
			t.Fatalf("%d free slots of kind %s, want %d", got, kind, free[kind])
		}
	}
	if len(m.pool.IDs()) != len(m.naive.workers) {
		t.Fatalf("%d workers, want %d", len(m.pool.IDs()), len(m.naive.workers))
	}
}

func TestWhatAPoolTells(t *testing.T) {
	p := NewPool()
	p.Join(Worker{ID: id(2), Slots: map[string]int{"encode": 2, "gpu": 1}})
	p.Join(Worker{ID: id(1), Tenant: "x", Name: "own", Slots: map[string]int{"own": 1}})
	kinds := p.Kinds()
	slices.Sort(kinds)
	if !slices.Equal(kinds, []string{"encode", "gpu"}) {
		t.Errorf("kinds of pool workers: %v", kinds)
	}
	if !p.HasOwn("x", "own") || p.HasOwn("x", "encode") || p.HasOwn("y", "own") || !p.AnyOwn() {
		t.Error("the tenant's own workers are not told")
	}
	if w, here := p.Worker(id(1)); !here || w.Name != "own" {
		t.Errorf("worker %+v, %v", w, here)
	}
	if _, here := p.Worker(id(3)); here || p.Draining(id(3)) {
		t.Error("a stranger is in the pool")
	}
	p.Drain(id(2), true)
	if len(p.Kinds()) != 0 || p.FreeSlots("encode") != 0 {
		t.Error("a draining worker has room")
	}
	p.Leave(id(1))
	p.Leave(id(1))
	if p.AnyOwn() {
		t.Error("a worker that left serves its tenant")
	}
	for r := Placed; r <= Reserved; r++ {
		if r.String() == "" {
			t.Errorf("refusal %d has no text", r)
		}
	}
}
