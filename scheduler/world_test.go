package scheduler

import (
	"cmp"
	"slices"
	"time"

	"github.com/errandhq/errand/placement"
)

// world is a core and what surrounds it: a store whose rows are task values, changed only by the arrows of lifecycle.go; the
// writes that are under way; and a clock that moves when it is told to. The golden scripts and the properties drive it.
type world struct {
	core    *Core
	now     time.Time
	session SessionID

	rows     map[ID]*Task
	claims   map[ID]claimUnderway
	endings  map[ID][]Ending // under way; several for one task only after it was lost and claimed again
	starts   map[ID]Task     // inserts of eager starts under way
	attached map[ID]Held     // take-overs that the store has executed
}

// claimUnderway is a claim with the session that asks for it, and its answer once the store has executed it.
type claimUnderway struct {
	Claim
	session SessionID
	answer  *Claimed
}

// epoch is when every story begins. Times are printed as seconds from here.
var epoch = time.Date(2026, time.January, 1, 0, 0, 0, 0, time.UTC)

func newWorld(timing Timing, draw func() float64) *world {
	session := SessionID{1}
	return &world{
		core: NewCore(session, timing, draw), now: epoch, session: session,
		rows: map[ID]*Task{}, claims: map[ID]claimUnderway{}, endings: map[ID][]Ending{}, starts: map[ID]Task{}, attached: map[ID]Held{},
	}
}

// readyRow is what a refill of the store says of a task.
// plan is the end of every turn: what the core wants is under way from then on.
func (w *world) plan(room Room) Plan {
	p := w.core.Plan(w.now, room)
	for _, c := range slices.Concat(p.UrgentClaims, p.Claims) {
		w.claims[c.ID] = claimUnderway{Claim: c, session: w.session}
	}
	for _, e := range p.Endings {
		w.endings[e.ID] = append(w.endings[e.ID], e)
	}
	return p
}

// submit asks for an eager start, and has the task inserted as the core says.
func (w *world) submit(t Task) (eager bool) {
	if w.core.Admit(&t, w.now) {
		w.starts[t.ID] = t
		return true
	}
	w.insert(t)
	return false
}

// insert stores a waiting task and tells the core of it when it may start.
func (w *world) insert(t Task) {
	w.rows[t.ID] = &t
	if t.State == Ready {
		w.core.Step(RowsReady{Rows: []ReadyRow{t.WaitingRow()}})
	}
}

// settleStart answers the insert of an eager start.
func (w *world) settleStart(id ID, stored bool) {
	t, underway := w.starts[id]
	if !underway {
		panic("no insert of it is under way")
	}
	delete(w.starts, id)
	if !stored {
		w.core.Advance(StartRefused{ID: id})
		return
	}
	t.StartedAt = w.now
	w.rows[id] = &t
	w.core.Advance(StartStored{Task: t})
}

// execute executes a claim that is under way; the answer is still to come.
func (w *world) execute(id ID) {
	c, underway := w.claims[id]
	if !underway {
		panic("no claim of it is under way")
	}
	c.answer = &Claimed{ID: id, Verdict: Missing}
	if t, here := w.rows[id]; here {
		next, err := t.Claim(c.From, c.Seen, c.session, c.Worker, w.now)
		*t = next
		c.answer = &Claimed{ID: id, Verdict: Won, State: t.State, Start: startOf(t)}
		if err != nil {
			c.answer = &Claimed{ID: id, Verdict: Lost, State: t.State}
		}
	}
	w.claims[id] = c
}

// settleClaim answers a claim that is under way.
func (w *world) settleClaim(id ID) {
	if w.claims[id].answer == nil {
		w.execute(id)
	}
	answer := *w.claims[id].answer
	delete(w.claims, id)
	w.core.Advance(ClaimsAnswered{Answers: []Claimed{answer}})
}

// settleEnding executes the oldest ending of a task that is under way and answers it.
func (w *world) settleEnding(id ID) EndingsAnswered {
	if len(w.endings[id]) == 0 {
		panic("no ending of it is under way")
	}
	e := w.endings[id][0]
	if w.endings[id] = w.endings[id][1:]; len(w.endings[id]) == 0 {
		delete(w.endings, id)
	}
	t := w.rows[id]
	next, err := t.End(e, w.now)
	*t = next
	answer := Ended{ID: id, Verdict: Won, State: t.State, Attempt: t.Attempt}
	if err != nil {
		answer.Verdict = Lost
	}
	return EndingsAnswered{Endings: []Ending{e}, Answers: []Ended{answer}}
}

// cancel writes the wish down, and tells the core what the store's answer means for it.
func (w *world) cancel(id ID) {
	t := w.rows[id]
	was := t.State
	next, err := t.Cancel("", w.now)
	*t = next
	switch {
	case err != nil:
	case was == Running:
		w.core.Step(CancelAsked{Token: t.Token()})
	default:
		w.core.Step(RowsGone{IDs: []ID{id}})
	}
}

// wake makes a scheduled row ready, and tells the core.
func (w *world) wake(id ID) {
	t := w.rows[id]
	next, err := t.Wake(t.Attempt, w.now)
	*t = next
	if err == nil {
		w.core.Step(RowsReady{Rows: []ReadyRow{t.WaitingRow()}})
	}
}

// attach takes a running row over for this session, as when its worker has come here from another instance. The answer is under
// way.
func (w *world) attach(id ID) {
	t := w.rows[id]
	next, err := t.Attach(t.Token(), w.session)
	*t = next
	if err == nil {
		w.attached[id] = heldOf(t)
	}
}

// settleAttach answers a take-over that is under way.
func (w *world) settleAttach(id ID) {
	held, underway := w.attached[id]
	delete(w.attached, id)
	if underway {
		w.core.Step(TookOver{Held: []Held{held}})
	}
}

// refill answers from the rows: the earliest due of each group and shard.
func (w *world) refill(keys []BufferKey, perShard int) Refilled {
	type slice struct {
		key   BufferKey
		shard uint8
	}
	asked, shown := map[BufferKey]bool{}, map[slice]int{}
	for _, key := range keys {
		asked[key] = true
	}
	answer := Refilled{Keys: keys, PerShard: perShard}
	for _, r := range w.ready() {
		s := slice{groupKeyOf(&r), r.ID.Shard()}
		after := w.core.RefillAfter(s.key, s.shard)
		if asked[s.key] && shown[s] < perShard && after.Compare(Position{Due: r.Due, ID: r.ID}) < 0 {
			shown[s]++
			answer.Rows = append(answer.Rows, r)
		}
	}
	return answer
}

// discover answers which groups have ready rows.
func (w *world) discover() []BufferKey {
	var keys []BufferKey
	for _, r := range w.ready() {
		if key := groupKeyOf(&r); !slices.Contains(keys, key) {
			keys = append(keys, key)
		}
	}
	return keys
}

// ready lists the store's ready rows, the earliest due first.
func (w *world) ready() []ReadyRow {
	var rows []ReadyRow
	for _, t := range w.rows {
		if t.State == Ready {
			rows = append(rows, t.WaitingRow())
		}
	}
	slices.SortFunc(rows, func(a, b ReadyRow) int { return cmp.Or(a.Due.Compare(b.Due), a.ID.Compare(b.ID)) })
	return rows
}

// join connects a worker.
func (w *world) join(id WorkerID, tenant string, slots map[string]int) {
	w.core.Step(WorkerJoined{Worker: placement.Worker{ID: id, Tenant: tenant, Slots: slots}})
}
