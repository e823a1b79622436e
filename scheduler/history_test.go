package scheduler

import (
	"cmp"
	"fmt"
	"maps"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/errandhq/errand/placement"
)

// TestAnyHistory lets anything happen in any order and checks after every turn what must hold in a core (check), that its
// plans are sound, and that they are the same whenever the same history happens (two worlds are driven in step; no map
// iteration may decide anything). In the end all quarrels stop, and every task must come to its end (P2, P3).
func TestAnyHistory(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		h := &history{a: newHistoryWorld(), b: newHistoryWorld(), room: Room{Urgent: 100, Others: 100}}
		h.step(t, func(w *world) { w.core.Step(LanesChanged{Mine: allLanes()}) })
		t.Repeat(map[string]func(*rapid.T){
			"join": h.join, "drain": h.drain, "leave": h.leave, "lose": h.lose, "holds": h.holds,
			"submit": h.submit, "elsewhere": h.elsewhere, "due": h.due, "steal": h.steal, "cancel": h.cancel,
			"settle start": h.settleStart, "execute": h.execute, "settle claim": h.settleClaim, "settle ending": h.settleEnding,
			"accept": h.accept, "report": h.report, "undelivered": h.undelivered, "missing": h.missing,
			"attach": h.attach, "settle attach": h.settleAttach, "session": h.session, "lanes": h.lanes,
			"lend": h.lend, "discover": h.discover, "refill": h.refill, "tick": h.tick, "room": h.changeRoom,
			"limit": h.limit,
		})
		h.finish(t)
	})
}

// history drives two worlds in step.
type history struct {
	a, b     *world
	room     Room
	tasks    int
	sessions byte
}

func newHistoryWorld() *world {
	return newWorld(DefaultTiming(), rand.New(rand.NewPCG(1, 2)).Float64)
}

func allLanes() (mine [256]bool) {
	for i := range mine {
		mine[i] = true
	}
	return mine
}

// step lets something happen in both worlds, and ends the turn.
func (h *history) step(t *rapid.T, happen func(*world)) {
	happen(h.a)
	happen(h.b)
	before := h.a.snapshot()
	p, q := h.a.plan(h.room), h.b.plan(h.room)
	if !reflect.DeepEqual(p, q) {
		t.Fatalf("the same history, two plans:\n%+v\n%+v", p, q)
	}
	if !reflect.DeepEqual(h.a.core.Spare(), h.b.core.Spare()) || !slices.Equal(h.a.core.Starved(), h.b.core.Starved()) {
		t.Fatalf("the same history, two views of room and need")
	}
	h.a.check(t)
	h.a.checkPlan(t, before, &p)
}

// snapshot remembers which rows are buffered.
func (w *world) snapshot() map[ID]waiting {
	rows := map[ID]waiting{}
	for id, one := range w.core.waiting.rows {
		rows[id] = *one
	}
	return rows
}

// checkPlan verifies that claims are of rows that were buffered, as they were, and overbook nobody.
func (w *world) checkPlan(t *rapid.T, buffered map[ID]waiting, p *Plan) {
	for _, c := range slices.Concat(p.UrgentClaims, p.Claims) {
		row, here := buffered[c.ID]
		if !here || row.attempt != c.Seen || row.state != c.From {
			t.Errorf("claim %+v of a row that was not buffered like this: %+v", c, row)
		}
		a := w.core.attempts.byID[c.ID]
		used, suspects, cpu := 0, 0, int64(0)
		for _, other := range w.core.attempts.byWorker[c.Worker] {
			if other.room && other.Kind == a.Kind {
				used += slotsOf(other.shape)
			}
			if other.room && other.shape != nil {
				cpu += other.shape.CPUMilli
			}
			if other.room && other.Suspect {
				suspects++
			}
		}
		worker, _ := w.core.pool.Worker(c.Worker)
		switch {
		case used > worker.Slots[a.Kind]:
			t.Errorf("%d attempts of kind %s on a worker with %d slots", used, a.Kind, worker.Slots[a.Kind])
		case worker.Capacity != nil && a.shape != nil && a.shape.CPUMilli > 0 && cpu > worker.Capacity.CPUMilli:
			t.Errorf("%d milli CPU in use on a worker that has %d", cpu, worker.Capacity.CPUMilli)
		case w.core.pool.Draining(c.Worker):
			t.Errorf("a claim for a draining worker")
		case worker.Tenant != "" && worker.Tenant != a.Tenant:
			t.Errorf("a task of tenant %s for a worker of tenant %s", a.Tenant, worker.Tenant)
		case a.Suspect && suspects > 1:
			t.Errorf("%d suspects on one worker", suspects)
		}
	}
}

// pick draws one of the keys of a map, and false when it is empty.
func pick[K comparable, V any](t *rapid.T, from map[K]V, compare func(a, b K) int, keep func(V) bool) (key K, some bool) {
	var keys []K
	for k, v := range from {
		if keep(v) {
			keys = append(keys, k)
		}
	}
	if len(keys) == 0 {
		return key, false
	}
	slices.SortFunc(keys, compare)
	return rapid.SampledFrom(keys).Draw(t, "which"), true
}

func always[V any](V) bool { return true }

func drawWorker(t *rapid.T) WorkerID { return WorkerID{byte(rapid.IntRange(1, 3).Draw(t, "worker"))} }

func (h *history) join(t *rapid.T) {
	id := drawWorker(t)
	tenant := rapid.SampledFrom([]string{"", "", "", "x"}).Draw(t, "of tenant")
	slots := rapid.MapOf(rapid.SampledFrom([]string{"k", "l"}), rapid.IntRange(-1, 3)).Draw(t, "slots")
	capacity := drawCapacity(t)
	h.step(t, func(w *world) {
		w.core.Step(WorkerJoined{Worker: placement.Worker{ID: id, Tenant: tenant, Slots: slots, Capacity: capacity}})
	})
}

func (h *history) drain(t *rapid.T) {
	ev := WorkerDraining{ID: drawWorker(t), Draining: rapid.Bool().Draw(t, "draining")}
	h.step(t, func(w *world) { w.core.Step(ev) })
}

func (h *history) leave(t *rapid.T) {
	id := drawWorker(t)
	h.step(t, func(w *world) { w.core.Step(WorkerLeft{ID: id}) })
}

func (h *history) lose(t *rapid.T) {
	ev := WorkersLost{IDs: []WorkerID{drawWorker(t)}, Incident: rapid.Bool().Draw(t, "incident")}
	h.step(t, func(w *world) { w.core.Step(ev) })
}

func (h *history) holds(t *rapid.T) {
	id := drawWorker(t)
	var named []Token
	for _, token := range h.a.core.HeldBy(id) {
		if rapid.Bool().Draw(t, "holds") {
			named = append(named, token)
		}
	}
	h.step(t, func(w *world) { w.core.Step(WorkerHolds{ID: id, Tokens: named}) })
}

func (h *history) drawTask(t *rapid.T) Task {
	h.tasks++
	id := ID{byte(rapid.IntRange(0, 2).Draw(t, "shard")), byte(h.tasks >> 8), byte(h.tasks)}
	task := Task{
		Ref: Ref{Region: "here", ID: id}, State: Ready, ReadyAt: h.a.now,
		Tenant:    rapid.SampledFrom([]string{"x", "y", "z"}).Draw(t, "tenant"),
		Kind:      rapid.SampledFrom([]string{"k", "l"}).Draw(t, "kind"),
		Tier:      rapid.SampledFrom(Tiers[:]).Draw(t, "tier"),
		Tolerance: time.Duration(rapid.IntRange(0, 120).Draw(t, "tolerance")) * time.Second,
		Suspect:   rapid.IntRange(0, 5).Draw(t, "suspect") == 0,
		Spec:      Spec{AttemptTimeout: time.Minute, Exclusive: rapid.IntRange(0, 3).Draw(t, "exclusive") == 0, Shape: drawShape(t)},
	}
	if rapid.IntRange(0, 3).Draw(t, "only here") == 0 {
		task.Spec.AllowedRegions = []string{"here"}
	}
	if key := rapid.SampledFrom([]string{"", "", "a", "b"}).Draw(t, "limit key"); key != "" {
		task.Spec.Limits = []LimitKey{{Name: "api", Key: key}}
	}
	task.Due = h.a.now.Add(task.Tolerance)
	return task
}

func (h *history) submit(t *rapid.T) {
	task := h.drawTask(t)
	h.step(t, func(w *world) { w.submit(task) })
}

func (h *history) elsewhere(t *rapid.T) {
	task := h.drawTask(t)
	h.step(t, func(w *world) {
		row := task
		w.rows[row.ID] = &row
	})
}

// due lets the time of a scheduled task come, an old one or a new one, also before its time.
func (h *history) due(t *rapid.T) {
	id, some := pick(t, h.a.rows, ID.Compare, func(r *Task) bool { return r.State == Scheduled })
	if some && rapid.Bool().Draw(t, "known") {
		h.step(t, func(w *world) { w.core.Step(RowsReady{Rows: []ReadyRow{w.rows[id].WaitingRow()}}) })
		return
	}
	task := h.drawTask(t)
	task.State, task.ReadyAt, task.WakeAt = Scheduled, time.Time{}, h.a.now
	h.step(t, func(w *world) {
		row := task
		w.rows[row.ID] = &row
		w.core.Step(RowsReady{Rows: []ReadyRow{row.WaitingRow()}})
	})
}

// steal has another instance claim a row.
func (h *history) steal(t *rapid.T) {
	id, some := pick(t, h.a.rows, ID.Compare, func(r *Task) bool { return r.State == Ready })
	worker := drawWorker(t)
	h.step(t, func(w *world) {
		if some {
			r := w.rows[id]
			*r, _ = r.Claim(Ready, r.Attempt, SessionID{0xff}, worker, w.now)
		}
	})
}

func (h *history) cancel(t *rapid.T) {
	if id, some := pick(t, h.a.rows, ID.Compare, always[*Task]); some {
		h.step(t, func(w *world) { w.cancel(id) })
	}
}

func (h *history) settleStart(t *rapid.T) {
	if id, some := pick(t, h.a.starts, ID.Compare, always[Task]); some {
		stored := rapid.Bool().Draw(t, "stored")
		h.step(t, func(w *world) { w.settleStart(id, stored) })
	}
}

func (h *history) execute(t *rapid.T) {
	notYet := func(c claimUnderway) bool { return c.answer == nil }
	if id, some := pick(t, h.a.claims, ID.Compare, notYet); some {
		h.step(t, func(w *world) { w.execute(id) })
	}
}

func (h *history) settleClaim(t *rapid.T) {
	if id, some := pick(t, h.a.claims, ID.Compare, always[claimUnderway]); some {
		h.step(t, func(w *world) { w.settleClaim(id) })
	}
}

func (h *history) settleEnding(t *rapid.T) {
	if id, some := pick(t, h.a.endings, ID.Compare, always[[]Ending]); some {
		h.step(t, func(w *world) { w.core.Advance(w.settleEnding(id)) })
	}
}

// held draws the token of an attempt that a worker has.
func (h *history) held(t *rapid.T) (Token, bool) {
	held := h.a.core.Held()
	if len(held) == 0 {
		return Token{}, false
	}
	return rapid.SampledFrom(held).Draw(t, "attempt").Token, true
}

func (h *history) accept(t *rapid.T) {
	if token, some := h.held(t); some {
		h.step(t, func(w *world) { w.core.Step(Accepted{Tokens: []Token{token}}) })
	}
}

func (h *history) report(t *rapid.T) {
	if token, some := h.held(t); some {
		r := Report{Token: token, Outcome: Outcome(rapid.IntRange(1, 6).Draw(t, "outcome")), Delay: time.Second, Limit: "api"}
		r.RetryAfter = time.Duration(rapid.IntRange(-1, 2).Draw(t, "retry after")) * time.Second
		h.step(t, func(w *world) { w.core.Step(Reported{Reports: []Report{r}}) })
	}
}

// limit puts the limit that tasks carry, or deletes it.
func (h *history) limit(t *rapid.T) {
	l := LimitSettings{
		Tenant: rapid.SampledFrom([]string{"x", "y"}).Draw(t, "tenant"), Name: "api", Concurrency: rapid.IntRange(0, 2).Draw(t, "concurrency"),
		Rate: float64(rapid.IntRange(0, 3).Draw(t, "rate")), Deleted: rapid.Bool().Draw(t, "deleted"),
	}
	h.step(t, func(w *world) { w.core.Step(SettingsChanged{Settings{Limits: []LimitSettings{l}}}) })
}

func (h *history) undelivered(t *rapid.T) {
	if token, some := h.held(t); some {
		h.step(t, func(w *world) { w.core.Step(Undelivered{Tokens: []Token{token}}) })
	}
}

func (h *history) missing(t *rapid.T) {
	if token, some := h.held(t); some {
		h.step(t, func(w *world) { w.core.Step(RowsMissing{Tokens: []Token{token}}) })
	}
}

// attach takes over a running row whose worker may be here. Much may happen before its answer.
func (h *history) attach(t *rapid.T) {
	id, some := pick(t, h.a.rows, ID.Compare, func(r *Task) bool { return r.State == Running })
	if some {
		h.step(t, func(w *world) { w.attach(id) })
	}
}

func (h *history) settleAttach(t *rapid.T) {
	if id, some := pick(t, h.a.attached, ID.Compare, always[Held]); some {
		h.step(t, func(w *world) { w.settleAttach(id) })
	}
}

func (h *history) session(t *rapid.T) {
	h.sessions++
	session := SessionID{2, h.sessions}
	h.step(t, func(w *world) {
		w.session = session
		w.core.Step(SessionChanged{Session: session})
	})
}

func (h *history) lanes(t *rapid.T) {
	mine := [256]bool{0: rapid.Bool().Draw(t, "0"), 1: rapid.Bool().Draw(t, "1"), 2: rapid.Bool().Draw(t, "2")}
	h.step(t, func(w *world) { w.core.Step(LanesChanged{Mine: mine}) })
}

// lend hands rows out: those that a sort of everything that waits would name.
func (h *history) lend(t *rapid.T) {
	kinds := []KindRoom{{"k", rapid.IntRange(0, 2).Draw(t, "k")}, {"l", rapid.IntRange(0, 2).Draw(t, "l")}}
	limit := rapid.IntRange(0, 3).Draw(t, "limit")
	var to Borrower
	if rapid.Bool().Draw(t, "offers") { // to each row that can be lent a worker of its own, which could run anything
		to.Offers = slices.Repeat([]placement.Offer{largeOffer()}, 3)
	}
	want := h.a.lendable(kinds, limit, len(to.Offers) > 0)
	h.step(t, func(w *world) {
		var got []ID
		for _, r := range w.core.Lend(kinds, limit, to) {
			got = append(got, r.ID)
		}
		if !slices.Equal(got, want) {
			t.Fatalf("lends %v, want %v", got, want)
		}
	})
}

func (w *world) lendable(kinds []KindRoom, limit int, offers bool) []ID {
	rows := slices.SortedFunc(maps.Values(w.core.waiting.rows), func(a, b *waiting) int {
		return cmp.Or(cmp.Compare(a.buffer.key.tier, b.buffer.key.tier), a.compare(b))
	})
	room := map[string]int{kinds[0].Kind: kinds[0].Slots, kinds[1].Kind: kinds[1].Slots}
	var ids []ID
	for _, r := range rows {
		kind, shape, slots := r.buffer.kind, r.buffer.shape, 1
		if shape != nil {
			slots = int(max(shape.Slots, 1))
		}
		if len(ids) < limit && room[kind] > 0 && (shape == nil || offers) {
			room[kind] = max(room[kind]-slots, 0)
			ids = append(ids, r.id)
		}
	}
	return ids
}

func (h *history) discover(t *rapid.T) {
	h.step(t, func(w *world) { w.core.Step(Discovered{Keys: w.discover()}) })
}

// refill reads groups; a row more or less may come in between the read and its answer.
func (h *history) refill(t *rapid.T) {
	limit, perShard := rapid.IntRange(1, 3).Draw(t, "limit"), rapid.IntRange(1, 4).Draw(t, "per shard")
	fails, between := rapid.IntRange(0, 4).Draw(t, "fails") == 0, h.drawTask(t)
	h.step(t, func(w *world) {
		keys := w.core.Refills(w.now, limit)
		answer := w.refill(keys, perShard)
		w.insert(between)
		if fails {
			w.core.Step(RefillFailed{Keys: keys})
		} else {
			w.core.Step(answer)
		}
	})
}

func (h *history) tick(t *rapid.T) {
	d := rapid.SampledFrom([]time.Duration{time.Millisecond, time.Second, 11 * time.Second, time.Minute}).Draw(t, "time")
	h.step(t, func(w *world) { w.now = w.now.Add(d) })
}

func (h *history) changeRoom(t *rapid.T) {
	h.room = Room{
		Urgent: rapid.IntRange(0, 3).Draw(t, "urgent"), Others: rapid.IntRange(0, 3).Draw(t, "others"),
		HoldDeadlines: rapid.Bool().Draw(t, "hold"),
	}
	h.step(t, func(*world) {})
}

// largeWorker could run anything.
func largeWorker(id byte) placement.Worker {
	return placement.Worker{
		ID: WorkerID{id}, Slots: map[string]int{"k": 4, "l": 4}, Labels: map[string]string{"disk": "ssd"},
		Capacity: &placement.Resources{CPUMilli: 8, GPUs: 4},
	}
}

func largeOffer() placement.Offer {
	return placement.Offer{
		Slots: map[string]int{"k": 4, "l": 4}, Labels: map[string]string{"disk": "ssd"},
		Free: &placement.Resources{CPUMilli: 8}, Devices: []int{1000, 1000, 1000, 1000},
	}
}

// finish lets everything come to rest: workers for everybody, all lanes, answers to all questions, and the reviews that the
// engine makes of running and scheduled rows. Then every task must end.
func (h *history) finish(t *rapid.T) {
	const turnsMax = 300
	h.room = Room{Urgent: 100, Others: 100}
	h.step(t, func(w *world) {
		w.core.Step(LanesChanged{Mine: allLanes()})
		w.core.Step(WorkerJoined{Worker: largeWorker(9)})
		w.core.Step(WorkerJoined{Worker: largeWorker(8)})
	})
	for range turnsMax {
		if h.a.allEnded() {
			return
		}
		h.step(t, (*world).settleAll)
	}
	var open []string
	for _, id := range slices.SortedFunc(maps.Keys(h.a.rows), ID.Compare) {
		if r := h.a.rows[id]; r.State.Open() {
			open = append(open, fmt.Sprintf("%s %s %s, attempt %d, known: waiting %v, attempted %v",
				r.Tenant, r.Kind, r.State, r.Attempt, h.a.core.waiting.rows[id] != nil, h.a.core.attempts.byID[id] != nil))
		}
	}
	t.Fatalf("after %d turns at rest these tasks are open: %q", turnsMax, open)
}

func (w *world) allEnded() bool {
	for _, r := range w.rows {
		if r.State.Open() {
			return false
		}
	}
	return len(w.starts) == 0
}

// settleAll is one turn at rest.
func (w *world) settleAll() {
	w.now = w.now.Add(time.Second)
	for _, id := range slices.SortedFunc(maps.Keys(w.starts), ID.Compare) {
		w.settleStart(id, true)
	}
	for _, id := range slices.SortedFunc(maps.Keys(w.claims), ID.Compare) {
		w.settleClaim(id)
	}
	for _, id := range slices.SortedFunc(maps.Keys(w.endings), ID.Compare) {
		w.core.Advance(w.settleEnding(id))
	}
	for _, id := range slices.SortedFunc(maps.Keys(w.attached), ID.Compare) {
		w.settleAttach(id)
	}
	for _, held := range w.core.Held() {
		w.core.Step(Accepted{Tokens: []Token{held.Token}})
		w.core.Step(Reported{Reports: []Report{{Token: held.Token, Outcome: OutcomeSucceeded}}})
	}
	w.review()
	w.core.Step(Discovered{Keys: w.discover()})
	keys := w.core.Refills(w.now, 100)
	w.core.Step(w.refill(keys, w.core.RefillRows(keys, 3)))
}

// review does what the engine's loops over the store do: rows that run and that nobody here knows of go back, and scheduled
// rows whose time has come are named.
func (w *world) review() {
	w.core.Step(Vanished{Tokens: slices.DeleteFunc(w.core.Ghosts(100), func(t Token) bool {
		r := w.rows[t.ID]
		return r.State == Running && r.Token() == t
	})})
	for _, r := range slices.SortedFunc(maps.Values(w.rows), func(a, b *Task) int { return cmp.Compare(a.ID.String(), b.ID.String()) }) {
		switch {
		case r.State == Running && !w.core.Holds(r.Token()):
			h := heldOf(r)
			*r, _ = r.End(Withdrawn(&h, ReasonUnknownToCore), w.now)
		case r.State == Running && r.Session != w.session:
			w.attach(r.ID)
		case r.State == Scheduled && !r.WakeAt.After(w.now):
			w.core.Step(RowsReady{Rows: []ReadyRow{r.WaitingRow()}})
			*r, _ = r.Wake(r.Attempt, w.now)
		}
	}
}
