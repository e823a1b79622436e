package scheduler

import (
	"maps"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/errandhq/errand/placement"
)

// TestOrderOfServiceAgreesWithASortedList plays the same story to a core and to a list that is scanned from the start for
// every single claim. Both must claim the same rows for the same workers in the same order.
func TestOrderOfServiceAgreesWithASortedList(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := &orderModel{
			core: NewCore(SessionID{1}, DefaultTiming(), func() float64 { return 0.5 }),
			list: naiveList{pool: placement.NewPool(), turns: map[Tier][]string{}, parked: map[bufferKey]bool{}},
		}
		t.Repeat(map[string]func(*rapid.T){
			"ready": m.ready, "ready again": m.ready, "gone": m.gone, "join": m.join, "leave": m.leave, "free": m.free, "plan": m.plan,
		})
	})
}

type orderModel struct {
	core    *Core
	list    naiveList
	tasks   int
	started []Claim
	kinds   map[ID]placement.Need
}

func (m *orderModel) ready(t *rapid.T) {
	m.tasks++
	r := ReadyRow{
		ID:      ID{byte(rapid.IntRange(0, 3).Draw(t, "id")), byte(m.tasks >> 8), byte(m.tasks)},
		State:   Ready,
		Tenant:  rapid.SampledFrom([]string{"x", "y", "z"}).Draw(t, "tenant"),
		Kind:    rapid.SampledFrom([]string{"k", "l", "m"}).Draw(t, "kind"),
		Tier:    rapid.SampledFrom(Tiers[:]).Draw(t, "tier"),
		Due:     epoch.Add(time.Duration(rapid.IntRange(0, 5).Draw(t, "due")) * time.Second),
		Suspect: rapid.IntRange(0, 4).Draw(t, "suspect") == 0,
	}
	r.Class = ClassOf(r.Kind, &Spec{})
	m.core.Step(RowsReady{Rows: []ReadyRow{r}})
	m.list.add(r)
}

func (m *orderModel) gone(t *rapid.T) {
	if len(m.list.rows) == 0 {
		return
	}
	r := rapid.SampledFrom(m.list.rows).Draw(t, "row")
	m.core.Step(RowsGone{IDs: []ID{r.ID}})
	m.list.remove(r)
}

func (m *orderModel) join(t *rapid.T) {
	w := placement.Worker{
		ID: drawWorker(t), Tenant: rapid.SampledFrom([]string{"", "", "", "x"}).Draw(t, "of tenant"),
		Slots: rapid.MapOf(rapid.SampledFrom([]string{"k", "l"}), rapid.IntRange(1, 3)).Draw(t, "slots"),
	}
	if known, here := m.core.pool.Worker(w.ID); here && known.Tenant != w.Tenant {
		m.forget(w.ID)
	}
	m.core.Step(WorkerJoined{Worker: w})
	m.list.join(w)
}

func (m *orderModel) leave(t *rapid.T) {
	id := drawWorker(t)
	m.core.Step(WorkerLeft{ID: id})
	m.list.pool.Leave(id)
	m.forget(id)
}

func (m *orderModel) forget(id WorkerID) {
	m.started = slices.DeleteFunc(m.started, func(c Claim) bool { return c.Worker == id })
}

// free loses one of the claims that are under way, which frees its room.
func (m *orderModel) free(t *rapid.T) {
	if len(m.started) == 0 {
		return
	}
	i := rapid.IntRange(0, len(m.started)-1).Draw(t, "which")
	c := m.started[i]
	m.started = slices.Delete(m.started, i, i+1)
	m.core.Advance(ClaimsAnswered{Answers: []Claimed{{ID: c.ID, Verdict: Lost, State: Running}}})
	m.list.pool.Free(c.Worker, m.kinds[c.ID])
}

func (m *orderModel) plan(t *rapid.T) {
	room := Room{Urgent: rapid.IntRange(0, 3).Draw(t, "urgent"), Others: rapid.IntRange(0, 5).Draw(t, "others")}
	if m.kinds == nil {
		m.kinds = map[ID]placement.Need{}
	}
	for _, r := range m.list.rows {
		m.kinds[r.ID] = needOf(&r)
	}
	p := m.core.Plan(epoch, room)
	urgent, others := m.list.plan(room)
	if !slices.Equal(p.UrgentClaims, urgent) || !slices.Equal(p.Claims, others) {
		t.Fatalf("claims\n%v\n%v\na sorted list gives\n%v\n%v", p.UrgentClaims, p.Claims, urgent, others)
	}
	m.started = slices.Concat(m.started, urgent, others)
}

func needOf(r *ReadyRow) placement.Need {
	return placement.Need{Tenant: r.Tenant, Kind: r.Kind, Suspect: r.Suspect}
}

// naiveList is the backlog as a plain list in the order of due, then ID.
type naiveList struct {
	rows   []ReadyRow
	turns  map[Tier][]string  // tenants with rows that may start, first the one whose turn it is
	parked map[bufferKey]bool // no worker serves them
	pool   *placement.Pool
}

func keyOf(r *ReadyRow) bufferKey {
	return bufferKey{tenant: r.Tenant, tier: r.Tier, class: r.Class, suspect: r.Suspect}
}

func (l *naiveList) add(r ReadyRow) {
	l.rows = append(l.rows, r)
	slices.SortFunc(l.rows, func(a, b ReadyRow) int {
		if c := a.Due.Compare(b.Due); c != 0 {
			return c
		}
		return a.ID.Compare(b.ID)
	})
	l.settleTurns(nil)
}

func (l *naiveList) remove(r ReadyRow) {
	l.rows = slices.DeleteFunc(l.rows, func(o ReadyRow) bool { return o.ID == r.ID })
	for key := range l.parked { // a buffer without rows is forgotten
		if !slices.ContainsFunc(l.rows, func(o ReadyRow) bool { return keyOf(&o) == key }) {
			delete(l.parked, key)
		}
	}
	l.settleTurns(nil)
}

// settleTurns lets tenants into the turn that have rows which may start, and out that have none.
func (l *naiveList) settleTurns(skipped []bufferKey) {
	for _, tier := range Tiers {
		mayStart := func(tenant string) bool {
			return slices.ContainsFunc(l.rows, func(r ReadyRow) bool {
				return r.Tenant == tenant && r.Tier == tier && !l.parked[keyOf(&r)] && !slices.Contains(skipped, keyOf(&r))
			})
		}
		l.turns[tier] = slices.DeleteFunc(l.turns[tier], func(tenant string) bool { return !mayStart(tenant) })
		for _, r := range l.rows {
			if r.Tier == tier && mayStart(r.Tenant) && !slices.Contains(l.turns[tier], r.Tenant) {
				l.turns[tier] = append(l.turns[tier], r.Tenant)
			}
		}
	}
}

func (l *naiveList) join(w placement.Worker) {
	l.pool.Join(w)
	for _, kind := range slices.Sorted(maps.Keys(w.Slots)) {
		class := ClassOf(kind, &Spec{})
		for _, key := range slices.SortedFunc(maps.Keys(l.parked), bufferKey.compare) {
			if key.class == class {
				delete(l.parked, key)
				l.settleTurns(nil)
			}
		}
	}
}

func (l *naiveList) plan(room Room) (urgent, others []Claim) {
	refused := map[refusedKey]bool{}
	var skipped []bufferKey
	l.planTier(Urgent, room.Urgent, &urgent, refused, &skipped)
	l.planTier(Standard, room.Others, &others, refused, &skipped)
	l.planTier(Deferrable, room.Others, &others, refused, &skipped)
	for i := range skipped {
		l.settleTurns(skipped[i+1:])
	}
	return urgent, others
}

func (l *naiveList) planTier(tier Tier, limit int, claims *[]Claim, refused map[refusedKey]bool, skipped *[]bufferKey) {
	for len(*claims) < limit {
		if len(l.turns[tier]) == 0 || (!l.pool.AnyOwn() && l.allRefused(tier, refused, *skipped)) {
			return
		}
		tenant := l.turns[tier][0]
		i := slices.IndexFunc(l.rows, func(r ReadyRow) bool {
			return r.Tenant == tenant && r.Tier == tier && !l.parked[keyOf(&r)] && !slices.Contains(*skipped, keyOf(&r))
		})
		r := l.rows[i]
		refusal := refusedKey{class: r.Class, suspect: r.Suspect}
		if l.pool.HasOwn(r.Tenant, r.Kind) {
			refusal.tenant = r.Tenant
		}
		if refused[refusal] {
			*skipped = append(*skipped, keyOf(&r))
			l.settleTurns(*skipped)
			continue
		}
		switch worker, why := l.pool.Place(needOf(&r)); why {
		case placement.Placed:
			*claims = append(*claims, Claim{ID: r.ID, From: Ready, Seen: r.Attempt, Worker: worker})
			l.turns[tier] = append(l.turns[tier][1:], tenant)
			l.rows = slices.Delete(l.rows, i, i+1)
		case placement.NoWorker:
			l.parked[keyOf(&r)] = true
		default:
			refused[refusal] = true
		}
		l.settleTurns(*skipped)
	}
}

// allRefused tells whether every row of the tier that may start is of a class that was refused.
func (l *naiveList) allRefused(tier Tier, refused map[refusedKey]bool, skipped []bufferKey) bool {
	return !slices.ContainsFunc(l.rows, func(r ReadyRow) bool {
		return r.Tier == tier && !l.parked[keyOf(&r)] && !slices.Contains(skipped, keyOf(&r)) &&
			!refused[refusedKey{class: r.Class, suspect: r.Suspect}]
	})
}
