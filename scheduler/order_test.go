package scheduler

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/errandhq/errand/fairness"
	"github.com/errandhq/errand/placement"
)

// TestNothingStartableWaits lets rows, workers and settings come and go. After every plan with room for it nothing may wait that could
// start: whatever is refused or held back hides nothing. And within a class the earliest due goes first.
func TestNothingStartableWaits(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := &orderModel{world: newWorld(DefaultTiming(), func() float64 { return 0.5 })}
		t.Repeat(map[string]func(*rapid.T){
			"ready": m.ready, "ready again": m.ready, "gone": m.gone, "join": m.join, "leave": m.leave, "free": m.free,
			"set": m.set, "parts": m.parts, "elsewhere": m.elsewhere, "tick": m.tick, "plan": m.claimAll, "": m.tallies,
		})
	})
}

type orderModel struct {
	*world
	tasks   int
	started []Claim
}

var (
	orderTenants = []string{"x", "y", "z"}
	orderKinds   = []string{"k", "l", "m"}
)

func (m *orderModel) ready(t *rapid.T) {
	m.tasks++
	r := ReadyRow{
		ID:      ID{byte(rapid.IntRange(0, 3).Draw(t, "shard")), byte(m.tasks >> 8), byte(m.tasks)},
		State:   Ready,
		Tenant:  rapid.SampledFrom(orderTenants).Draw(t, "tenant"),
		Kind:    rapid.SampledFrom(orderKinds).Draw(t, "kind"),
		Tier:    rapid.SampledFrom(Tiers[:]).Draw(t, "tier"),
		Due:     m.now.Add(time.Duration(rapid.IntRange(-3, 3).Draw(t, "due")) * time.Minute),
		Suspect: rapid.IntRange(0, 4).Draw(t, "suspect") == 0,
	}
	for _, name := range []string{"a", "b"} {
		if rapid.IntRange(0, 3).Draw(t, "limit "+name) == 0 {
			r.Limits = append(r.Limits, LimitKey{Name: name, Key: rapid.SampledFrom([]string{"", "1", "2"}).Draw(t, "key")})
		}
	}
	r.Shape = drawShape(t)
	r.Class = ClassOf(r.Kind, &Spec{Limits: r.Limits, Shape: r.Shape})
	m.core.Step(RowsReady{Rows: []ReadyRow{r}})
}

// drawShape draws what a task needs: mostly a slot.
func drawShape(t *rapid.T) *placement.Shape {
	if rapid.IntRange(0, 2).Draw(t, "shaped") > 0 {
		return nil
	}
	s := &placement.Shape{Resources: placement.Resources{
		CPUMilli: int64(rapid.IntRange(0, 4).Draw(t, "cpu")), GPUs: int64(rapid.IntRange(0, 2).Draw(t, "gpus")),
		Slots: int64(rapid.IntRange(0, 3).Draw(t, "slots")),
	}}
	if rapid.IntRange(0, 3).Draw(t, "choosy") == 0 {
		s.Selectors = []placement.Selector{{Key: "disk", Operator: placement.In, Values: []string{"ssd"}}}
	}
	return s
}

// drawCapacity draws what a worker has: often nothing but slots.
func drawCapacity(t *rapid.T) *placement.Resources {
	if rapid.Bool().Draw(t, "counts") {
		return nil
	}
	return &placement.Resources{CPUMilli: int64(rapid.IntRange(0, 6).Draw(t, "cpu")), GPUs: int64(rapid.IntRange(0, 2).Draw(t, "gpus"))}
}

func (m *orderModel) gone(t *rapid.T) {
	if ids := slices.SortedFunc(maps.Keys(m.core.waiting.rows), ID.Compare); len(ids) > 0 {
		m.core.Step(RowsGone{IDs: []ID{rapid.SampledFrom(ids).Draw(t, "row")}})
	}
}

func (m *orderModel) join(t *rapid.T) {
	m.core.Step(WorkerJoined{Worker: placement.Worker{
		ID: drawWorker(t), Tenant: rapid.SampledFrom([]string{"", "", "", "x"}).Draw(t, "of tenant"),
		Slots: rapid.MapOf(rapid.SampledFrom([]string{"k", "l"}), rapid.IntRange(1, 9)).Draw(t, "slots"), Capacity: drawCapacity(t),
		Zone: rapid.SampledFrom([]string{"", "a", "b"}).Draw(t, "zone"), Labels: map[string]string{"disk": rapid.SampledFrom([]string{"ssd", "hdd"}).Draw(t, "disk")},
	}})
}

func (m *orderModel) leave(t *rapid.T) {
	id := drawWorker(t)
	m.core.Step(WorkerLeft{ID: id})
}

// free loses one of the claims that are under way, which frees its room.
func (m *orderModel) free(t *rapid.T) {
	if len(m.started) == 0 {
		return
	}
	i := rapid.IntRange(0, len(m.started)-1).Draw(t, "which")
	m.core.Advance(ClaimsAnswered{Answers: []Claimed{{ID: m.started[i].ID, Verdict: Lost, State: Running}}})
	m.started = slices.Delete(m.started, i, i+1)
}

func (m *orderModel) set(t *rapid.T) {
	tenant := rapid.SampledFrom(orderTenants).Draw(t, "tenant")
	few := rapid.SampledFrom([]int{0, 0, 1, 2, 5})
	var s Settings
	switch rapid.IntRange(0, 2).Draw(t, "what") {
	case 0:
		s.Tenants = []TenantSettings{{
			Tenant: tenant, Weight: rapid.SampledFrom([]float64{1, 3, 0.5}).Draw(t, "weight"), Paused: rapid.IntRange(0, 4).Draw(t, "paused") == 0,
			MaxRunning: few.Draw(t, "running"), StartRate: float64(few.Draw(t, "rate")),
		}}
	case 1:
		s.Kinds = []KindSettings{{Tenant: tenant, Kind: rapid.SampledFrom(orderKinds).Draw(t, "kind"), Paused: rapid.Bool().Draw(t, "paused")}}
	default:
		s.Limits = []LimitSettings{{
			Tenant: tenant, Name: rapid.SampledFrom([]string{"a", "b"}).Draw(t, "name"), Concurrency: few.Draw(t, "concurrency"),
			Rate: float64(few.Draw(t, "rate")), Deleted: rapid.IntRange(0, 4).Draw(t, "deleted") == 0,
		}}
	}
	m.core.Step(SettingsChanged{s})
}

func (m *orderModel) parts(t *rapid.T) {
	var parts []fairness.Part
	for range rapid.IntRange(0, 2).Draw(t, "parts") {
		of := rapid.IntRange(1, 4).Draw(t, "of")
		parts = append(parts, fairness.Part{Of: of, Number: rapid.IntRange(0, of-1).Draw(t, "number")})
	}
	m.core.Step(PartChanged{Parts: parts})
}

func (m *orderModel) elsewhere(t *rapid.T) {
	m.core.Step(UsedElsewhere{
		Used:    []fairness.Spent{{Tenant: rapid.SampledFrom(orderTenants).Draw(t, "tenant"), Amount: rapid.Float64Range(0, 100).Draw(t, "amount")}},
		Virtual: rapid.Float64Range(0, 100).Draw(t, "virtual"),
	})
}

func (m *orderModel) tick(t *rapid.T) {
	m.now = m.now.Add(time.Duration(rapid.IntRange(1, 90_000).Draw(t, "ms")) * time.Millisecond)
	m.core.Tick(m.now)
}

func (m *orderModel) claimAll(t *rapid.T) {
	dues := map[ID]time.Time{}
	for id, w := range m.core.waiting.rows {
		dues[id] = w.due
	}
	classes := map[ID]bufferKey{}
	for id, w := range m.core.waiting.rows {
		classes[id] = w.buffer.key
	}
	p := m.core.Plan(m.now, Room{Urgent: 1000, Others: 1000})
	claims := slices.Concat(p.UrgentClaims, p.Claims)
	last := map[bufferKey]time.Time{}
	for _, c := range claims {
		if dues[c.ID].Before(last[classes[c.ID]]) {
			t.Fatalf("task %s goes before one of its class that is due earlier", c.ID)
		}
	}
	m.started = append(m.started, claims...)
	m.check(t)
	m.checkCaps(t)
	m.checkWaiting(t)
}

// checkCaps verifies that no cap is exceeded by what has started since it was set; what ran before may be above it.
func (m *orderModel) checkCaps(t *rapid.T) {
	used := map[*gate]int{}
	for _, a := range m.core.attempts.byID {
		for _, g := range a.gates {
			used[g]++
		}
	}
	for _, g := range m.core.gates.byKey {
		if g.used != used[g] {
			t.Fatalf("gate %v counts %d attempts, %d carry it", g.key, g.used, used[g])
		}
	}
}

func (m *orderModel) checkWaiting(t *rapid.T) {
	c := m.core
	for key, buf := range c.waiting.buffers {
		need := placement.Need{Tenant: key.tenant, Kind: buf.kind, Suspect: key.suspect, Shape: buf.shape}
		var part fill
		switch overdue := buf.due().Before(m.now); {
		case key.tier == Urgent && buf.shift == 0:
			part = c.urgentFill(key.tenant)
		case overdue && c.shares.OverdueOwed(m.now):
			part = fillOwed
		case overdue:
			part = fillStandard
		case key.tier == Deferrable:
			part = fillDeferrable
		default:
			part = fillStandard
		}
		refusal := c.pool.Fits(need, fills[part])
		closed := c.closedGate(buf)
		switch {
		case buf.parked && refusal != placement.NoWorker && refusal != placement.NeverFits && refusal != placement.Unselected:
			t.Fatalf("buffer %v is parked: %v", key, refusal)
		case buf.gate != nil && closed == nil && refusal == placement.Placed:
			t.Fatalf("buffer %v waits for the gate %v, and nothing is against it", key, buf.gate.key)
		case buf.level != nil && closed == nil && refusal == placement.Placed:
			t.Fatalf("buffer %v could start: %v", key, refusal)
		}
	}
}

// shareOfTime plays tenants that always have tasks waiting, and returns each one's part of all slot-seconds in the last half.
func shareOfTime(t *testing.T, slots int, length time.Duration, tenants []flood) map[string]float64 {
	t.Helper()
	w := newWorld(DefaultTiming(), func() float64 { return 0.5 })
	kinds := map[string]int{}
	for _, f := range tenants {
		for i := range max(f.kinds, 1) {
			kinds[fmt.Sprintf("k%d", i)] = slots
		}
	}
	// One kind of slots for all: kinds beyond the first have as many, and only as many attempts run at once as there are slots.
	w.join(WorkerID{1}, "", kinds)
	n := 0
	running := map[ID]time.Time{}
	of := map[ID]string{}
	used := map[string]float64{}
	const step = 10 * time.Millisecond
	for at := time.Duration(0); at < length; at += step {
		w.now = epoch.Add(at)
		w.core.Tick(w.now)
		for _, id := range slices.SortedFunc(maps.Keys(running), ID.Compare) {
			if !running[id].After(w.now) {
				delete(running, id)
				w.core.Step(Reported{Reports: []Report{{Token: w.rows[id].Token(), Outcome: OutcomeSucceeded}}})
			}
		}
		for _, f := range tenants {
			for waits(w.core, f.tenant) < 2*slots {
				n++
				task := Task{
					Ref: Ref{Region: "here", ID: benchID(n)}, Tenant: f.tenant, Kind: fmt.Sprintf("k%d", n%max(f.kinds, 1)), Tier: f.tier, State: Ready,
					ReadyAt: w.now, Due: w.now.Add(DefaultTolerance(f.tier)),
				}
				of[task.ID] = f.tenant
				w.core.shares.SetWeight(f.tenant, f.weight)
				w.insert(task)
			}
		}
		p := w.plan(Room{Urgent: max(slots-len(running), 0), Others: max(slots-len(running), 0)})
		for _, c := range slices.Concat(p.UrgentClaims, p.Claims) {
			for _, f := range tenants {
				if f.tenant == of[c.ID] {
					running[c.ID] = w.now.Add(f.takes)
				}
			}
			w.settleClaim(c.ID)
			w.core.Step(Accepted{Tokens: []Token{w.rows[c.ID].Token()}})
		}
		for id := range w.endings {
			w.core.Advance(w.settleEnding(id))
			delete(w.rows, id)
		}
		if at >= length/2 {
			for id := range running {
				used[of[id]] += step.Seconds()
			}
		}
	}
	sum := 0.0
	for _, u := range used {
		sum += u
	}
	for tenant := range used {
		used[tenant] /= sum
	}
	return used
}

// flood is a tenant that always has more to do.
type flood struct {
	tenant string
	weight float64
	tier   Tier
	takes  time.Duration
	kinds  int
}

func waits(c *Core, tenant string) (n int) {
	for _, buf := range c.waiting.buffers {
		if buf.key.tenant == tenant {
			n += len(buf.rows)
		}
	}
	return n
}

// P7: capacity goes to backlogged tenants in proportion to their weights, whatever their tasks take, and however they split them.
func TestSharesFollowTheWeights(t *testing.T) {
	tests := map[string]struct {
		tenants []flood
		want    map[string]float64
	}{
		"weights 3 : 1, times 100 : 1": {
			[]flood{{"a", 3, Standard, 2 * time.Second, 1}, {"b", 1, Standard, 20 * time.Millisecond, 1}},
			map[string]float64{"a": 0.75, "b": 0.25},
		},
		"weights 3 : 1, times 1 : 100": {
			[]flood{{"a", 3, Standard, 20 * time.Millisecond, 1}, {"b", 1, Standard, 2 * time.Second, 1}},
			map[string]float64{"a": 0.75, "b": 0.25},
		},
		"everything urgent gains nothing": {
			[]flood{{"a", 1, Urgent, 100 * time.Millisecond, 1}, {"b", 1, Standard, 100 * time.Millisecond, 1}},
			map[string]float64{"a": 0.5, "b": 0.5},
		},
		"three tenants": {
			[]flood{{"a", 1, Standard, 50 * time.Millisecond, 1}, {"b", 2, Standard, 100 * time.Millisecond, 1}, {"c", 5, Standard, 30 * time.Millisecond, 1}},
			map[string]float64{"a": 0.125, "b": 0.25, "c": 0.625},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			for tenant, got := range shareOfTime(t, 20, time.Minute, tt.tenants) {
				if want := tt.want[tenant]; got < want-0.05*want-0.01 || got > want+0.05*want+0.01 {
					t.Errorf("%s has %.3f of the capacity, want %.3f", tenant, got, want)
				}
			}
		})
	}
}
