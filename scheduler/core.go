package scheduler

import (
	"slices"
	"time"

	"github.com/errandhq/errand/fairness"
	"github.com/errandhq/errand/placement"
	"github.com/errandhq/errand/regions"
)

// Core decides, for one scheduler instance, which waiting task starts next and on which worker, and what becomes of attempts.
// It is passive and deterministic in the manner of etcd's raft: Step takes what happened, Advance takes the store's answers,
// Plan says what to do; the same history gives the same plans. It has no clock, no goroutine and no store, and is not safe
// for concurrent use.
//
// now is always the store's time as its caller estimates it. What decides in the end is the store's clock in each guarded
// write; the core only avoids asking for what cannot succeed.
type Core struct {
	sessions [regions.Max]SessionID // under which rows of each region are claimed
	timing   Timing
	draw     func() float64

	pool     *placement.Pool
	shares   *fairness.Shares
	gates    *gates
	costs    *costs
	ghosts   map[ID]*ghost
	waiting  *backlog
	attempts *attempts
	retries  budget
	pressed  Pressed
	dueNow   []ID // buffered rows that are still scheduled in the store
	now      time.Time
	// elsewhere is how many slots for each kind the region's other instances have.
	elsewhere map[string]int
	stock     map[stockKey]int64 // open tasks in the region
	demotedAt time.Time          // when it was last looked whose urgent work may go first again
	home      string             // region; empty where there is one only
	cramped   []*buffer          // large tasks that find no room
	holders   []*buffer          // those of them for which room is held
	shapes    shapes
	plan      Plan // what Step and Advance have decided since the last Plan
}

// NewCore returns the core of a fresh session. draw returns random numbers in [0, 1), for the jitter of retries.
func NewCore(session SessionID, timing Timing, draw func() float64) *Core {
	shares := fairness.NewShares()
	c := &Core{
		timing:   timing,
		draw:     draw,
		pool:     placement.NewPool(),
		shares:   shares,
		gates:    newGates(),
		costs:    newCosts(),
		ghosts:   map[ID]*ghost{},
		waiting:  newBacklog(shares),
		attempts: newAttempts(),
		shapes:   shapes{},
	}
	for i := range c.sessions {
		c.sessions[i] = session
	}
	return c
}

// Step takes note of an event. Events must come in the order in which they happened.
func (c *Core) Step(ev Event) {
	switch ev := ev.(type) {
	case RowsReady:
		for i := range ev.Rows {
			c.offer(&ev.Rows[i])
		}
	case Refilled:
		c.refilled(ev)
	case RefillFailed:
		for _, key := range ev.Keys {
			c.waiting.refillFailed(key, c.now)
		}
	case Discovered:
		c.discovered(ev.Keys)
	case RowsGone:
		for _, id := range ev.IDs {
			if w := c.waiting.rows[id]; w != nil {
				c.waiting.remove(w, c.now)
			}
		}
	case RowChanged:
		c.rowChanged(&ev.Row)
	case LanesChanged:
		c.waiting.retain(func(shard uint8) bool { return ev.Mine[shard] }, c.now)
	case Stale:
		c.waiting.look(ev.Key)
	case SessionChanged:
		c.sessions[ev.Region] = ev.Session
	case SettingsChanged:
		c.apply(ev)
	case PartChanged:
		c.gates.setParts(ev.Parts)
	case OthersRun:
		c.othersRun(ev)
	case Vanished:
		c.vanished(ev.Tokens)
	case UsedElsewhere:
		c.usedElsewhere(ev)
	case StockTaken:
		c.takeStock(ev)
	default:
		c.stepWorker(ev)
	}
}

// sessionOf is the session under which a task is claimed.
func (c *Core) sessionOf(id ID) SessionID { return c.sessions[id.Region()] }

// At says in which region this is: rows that may not run here wait.
func (c *Core) At(region string) { c.home = region }

// mayRun tells whether rows may run in this region.
func (c *Core) mayRun(allowed []string) bool {
	return c.home == "" || len(allowed) == 0 || slices.Contains(allowed, c.home)
}

// Tick tells the time: what is told from now on has happened by then.
func (c *Core) Tick(now time.Time) { c.now = now }

// Advance takes the store's answer to a plan.
func (c *Core) Advance(res Result) {
	switch res := res.(type) {
	case ClaimsAnswered:
		c.plan.Assign = slices.Grow(c.plan.Assign, len(res.Answers))
		for i := range res.Answers {
			c.claimAnswered(&res.Answers[i])
		}
	case StartStored:
		if a := c.attempts.byID[res.Task.ID]; a != nil && a.phase == claiming {
			a.StartedAt = res.Task.StartedAt
			c.assign(a, startOf(&res.Task))
		}
	case StartRefused:
		if a := c.attempts.byID[res.ID]; a != nil && a.phase == claiming {
			c.free(a)
			c.forget(a)
		}
	case EndingsAnswered:
		for i := range res.Answers {
			c.endingAnswered(&res.Endings[i], &res.Answers[i])
		}
	}
}

// Plan returns what to do now. What it returns is thought to be under way until Advance answers it.
func (c *Core) Plan(now time.Time, room Room) Plan {
	c.now = now
	if !room.HoldDeadlines {
		c.passDeadlines(now)
	}
	c.chargeAgain()
	c.start(room)
	c.wakeTheRest()
	plan := c.plan
	c.plan = Plan{}
	return plan
}

// Admit tells whether a new task would start at once, and reserves the room: then the task is made Running, and its insert is
// dequeue, assignment and slot-taking in one write. It never overtakes a waiting task of the same class, buffered here or
// known to be in the store.
func (c *Core) Admit(t *Task, now time.Time) bool {
	class := t.Class()
	if t.State != Ready || c.waiting.overtaken(class) || t.pastStartBy(now) || !c.mayRun(t.Spec.AllowedRegions) || c.attempts.byID[t.ID] != nil {
		return false
	}
	c.now = now
	for _, g := range c.gates.of(t.Tenant, t.Kind, t.Spec.Limits) {
		if len(g.waiting) > 0 || !g.admits(now, c.gates.parts) {
			return false
		}
	}
	part, use := c.eager(t)
	t.Spec.Shape = c.shapes.one(class, t.Spec.Shape)
	need := placement.Need{Tenant: t.Tenant, Kind: t.Kind, Suspect: t.Suspect, Urgent: use == fairness.Urgent, Shape: t.Spec.Shape}
	at, refusal := c.pool.Place(need, fills[part])
	if refusal != placement.Placed {
		return false
	}
	t.State, t.Attempt, t.Session, t.Worker = Running, t.Attempt+1, c.sessionOf(t.ID), at.Worker
	a := &attempt{
		Held: heldOf(t), phase: claiming, class: class, limits: t.Spec.Limits, shape: t.Spec.Shape, size: len(t.Payload), room: true,
		devices: at.Devices,
	}
	c.passOver(at.Worker, class)
	c.begin(a)
	c.pass(a, use)
	return true
}

// eager is the part of the capacity that a new task may find in use, and what its start counts as.
func (c *Core) eager(t *Task) (part fill, use fairness.Use) {
	switch {
	case t.Tier == Urgent && !c.waiting.demoted[t.Tenant] && c.shares.UrgentFirst(t.Tenant, c.now):
		return c.urgentFill(t.Tenant), fairness.Urgent
	case t.Tier == Deferrable:
		return fillDeferrable, fairness.Plain
	default:
		return fillStandard, fairness.Plain
	}
}

// NextDeadline is when Plan should be called at the latest, and false when nothing waits for a time.
func (c *Core) NextDeadline() (time.Time, bool) {
	at, some := c.gates.next()
	if deadlines := c.attempts.deadlines; len(deadlines) > 0 && (!some || deadlines[0].deadline.Before(at)) {
		return deadlines[0].deadline, true
	}
	return at, some
}

// Holds tells whether the core knows this very attempt as a running row of its own. One that is only being claimed is not:
// what a worker says of such a token is about another instance's claim, which has won the same attempt for the same worker.
func (c *Core) Holds(t Token) bool {
	a := c.find(t)
	return a != nil && a.phase != claiming
}

// Runs tells whether this very attempt is at its worker, or on its way there, and nothing else is known of it.
func (c *Core) Runs(t Token) bool {
	a := c.find(t)
	return a != nil && a.atWorker()
}

// Awaits tells whether this very attempt is assigned and its worker is to accept it still. An assignment that was withdrawn
// before it was sent is not sent any more.
func (c *Core) Awaits(t Token) bool {
	a := c.find(t)
	return a != nil && a.phase == sent
}

// Row returns what the core knows of this very attempt, in whatever phase, and false when it does not hold it.
func (c *Core) Row(t Token) (Held, bool) {
	if a := c.find(t); a != nil {
		return a.Held, true
	}
	return Held{}, false
}

// Regions tells of which regions, by number, the core has attempts in any phase.
func (c *Core) Regions() (busy [regions.Max]bool) {
	for id := range c.attempts.byID {
		busy[id.Region()] = true
	}
	return busy
}

// Held returns the attempts that workers of this instance run, by ID.
func (c *Core) Held() []Held {
	var held []Held
	for _, a := range c.attempts.byID {
		if a.atWorker() {
			held = append(held, a.Held)
		}
	}
	slices.SortFunc(held, func(a, b Held) int { return a.ID.Compare(b.ID) })
	return held
}

// Unaccepted returns the tokens of assignments that a worker has not accepted yet, by ID. Exclusive ones are not among them:
// they may have been accepted without a word yet, and must not be given back before no grant can let them run.
func (c *Core) Unaccepted(worker WorkerID) []Token {
	return slices.DeleteFunc(c.HeldBy(worker), func(t Token) bool {
		a := c.find(t)
		return a.phase != sent || a.Spec.Exclusive
	})
}

// HeldBy returns the tokens of the attempts that a worker runs, by ID.
func (c *Core) HeldBy(worker WorkerID) []Token {
	var tokens []Token
	for _, a := range c.attempts.byWorker[worker] {
		if a.atWorker() {
			tokens = append(tokens, a.Token)
		}
	}
	slices.SortFunc(tokens, func(a, b Token) int { return a.ID.Compare(b.ID) })
	return tokens
}

// Refills names the groups of ready rows to read from the store, at most limit.
func (c *Core) Refills(now time.Time, limit int) []BufferKey { return c.waiting.refills(now, limit) }

// RefillAfter is where a refill of a group reads on in a shard.
func (c *Core) RefillAfter(key BufferKey, shard uint8) Position { return c.waiting.after(key, shard) }

// RefillRows is how many rows per shard a refill of these groups should bring when it reads the given number of shards.
func (c *Core) RefillRows(keys []BufferKey, shards int) int {
	want := groupRowsMin
	for _, key := range keys {
		if g := c.waiting.groups[key]; g != nil {
			want = max(want, g.want)
		}
	}
	return max(want/max(shards, 1), 1) + 1
}

// Pressed is how many reports of backpressure the core has taken since it began.
func (c *Core) Pressed() Pressed { return c.pressed }

// Counts is how many rows a core holds, for metrics.
type Counts struct {
	Buffered, Claiming, Sent, Running, Stopping, Ending int
	Groups                                              int
	Gated                                               Gated // of the buffered ones, what gates hold back
}

// Gated is how many buffered rows gates hold back, by what the gates are for. Of much that waits for a gate few rows are buffered.
type Gated struct{ Tenant, Kind, Limit int }

// Attempts is how many attempts the core holds, from claim to recorded end.
func (c *Core) Attempts() int { return len(c.attempts.byID) }

// Counts returns how many rows the core holds.
func (c *Core) Counts() Counts {
	n := Counts{Buffered: len(c.waiting.rows), Groups: len(c.waiting.groups), Gated: c.gates.gated()}
	for _, a := range c.attempts.byID {
		switch a.phase {
		case claiming:
			n.Claiming++
		case sent:
			n.Sent++
		case running:
			n.Running++
		case stopping:
			n.Stopping++
		case ending:
			n.Ending++
		}
	}
	return n
}

func heldOf(t *Task) Held {
	return Held{
		Token: t.Token(), Session: t.Session, Tenant: t.Tenant, Kind: t.Kind, Tier: t.Tier, Spec: t.Spec,
		Counted: t.Counted, WorkerLosses: t.WorkerLosses, Suspect: t.Suspect, CancelRequested: t.CancelRequested,
		StartedAt: t.StartedAt, ReadyAt: t.ReadyAt, Due: t.Due,
	}
}

func startOf(t *Task) Start {
	return Start{
		Held: heldOf(t), Payload: t.Payload, PayloadSize: len(t.Payload), ContentType: t.ContentType,
		EffectKey: t.EffectKey, TraceParent: t.TraceParent,
	}
}
