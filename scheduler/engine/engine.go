package engine

import (
	"errors"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/errandhq/errand/regions"
	"github.com/errandhq/errand/scheduler"
)

// Bounds of what an engine holds while the store is slow.
const (
	submitPendingMax = 20_000 // tasks that wait for their insert; beyond it submits are refused as busy
	pauseNoticed     = time.Second
)

// Answers of the engine to the edge.
var (
	// ErrBusy means that too much waits for the store already. Nothing was stored; try again later.
	ErrBusy = errors.New("the scheduler is busy")
	// ErrStopping means that this instance shuts down. Nothing was stored; ask another one.
	ErrStopping = errors.New("the scheduler is stopping")
	// ErrOutcomeUnknown means that the caller stopped waiting while the store had not answered, or that the unique key was held
	// when the store answered again: the task may or may not be stored under the id that is given with it.
	ErrOutcomeUnknown = errors.New("it is not known whether the task was stored")
	// ErrKeyReused means that the idempotency key stands for a different request. Nothing was stored.
	ErrKeyReused = errors.New("the idempotency key was used for a different request")
	// ErrKeyHeld means that an open task holds the unique key, and that the submission wanted no other's. Nothing was stored.
	ErrKeyHeld = errors.New("an open task holds the unique key")
	// ErrInfeasible means that the task would not start in time as things are, and that its submission wants no such promise.
	// Nothing was stored.
	ErrInfeasible = errors.New("the task would not start in time")
)

// Config is what an engine must be told.
type Config struct {
	Region string
	// Regions names all regions of the deployment by their numbers, at most regions.Max. Default the own one alone.
	Regions []string
	// Topology says how far the regions are from each other, which decides who adopts whom. Default the own region alone.
	Topology *regions.Topology
	// Profile has the times after which regions take each other for down. Default regions.WAN.
	Profile *regions.Profile
	Address string // where peers reach this instance; empty for nowhere
	Timing  scheduler.Timing
	Rand    *rand.Rand // for ids, jitter and session ids; seeded by the caller
	Observe Observer   // nil observes nothing
	// InFlight is how many inserts, claims and endings may be in flight at once, each. Default 2.
	InFlight int
}

// Engine is one scheduler instance, driven turn by turn. It is not safe for concurrent use.
type Engine struct {
	names    []string // of the regions, by number
	home     *served
	served   []*served // those that are served here, the home region first
	byNumber [regions.Max]*served
	adopts   [regions.Max]bool // whose lanes are to be served here while nobody there does
	draining [regions.Max]bool // regions that an operator drains
	topology regions.Topology
	profile  regions.Profile
	watch    watch
	inFlight int
	address  string
	timing   scheduler.Timing
	rand     *rand.Rand
	observe  Observer

	core    *scheduler.Core
	pressed scheduler.Pressed // as it was told last
	local   time.Duration     // the local monotonic clock at this turn; only limits trust
	effects []Effect
	out     map[StreamID]*ToWorker // collected for this turn
	outIDs  []StreamID             // in the order of their first word

	statements    map[uint64]*statement
	lastStatement uint64
	retries       []*statement

	lanes [256]bool // of all regions
	// strays are endings of rows that the core does not hold: reclaimed, or reported by a worker of another instance. Their
	// rows are kept to take a task back that becomes ready.
	strays     map[scheduler.Token]scheduler.Held
	refilledAt time.Duration
	submits    submits
	workers    workers
	timers     timers
	links      links
	cancels    cancels
	lending    lending
	spilling   spilling
	settings   settings
	division   division
	exchange   exchange
	ghosts     ghosts
	stock      stock
	drawn      drawn
	hints      []Hint
	ended      []scheduler.ID
	// unwritten is set when an assignment could not be sent after the plan was made: the next turn writes that down.
	unwritten bool
	stopping  bool
	stopped   bool
	stopBy    time.Duration // when a shutdown stops waiting for workers to leave
	// quietUntil is until when nothing is concluded from silence: what was said during a pause of this process is read first.
	quietUntil time.Duration
}

// New returns an engine that opens its session in its first turn.
func New(cfg Config) *Engine {
	if cfg.Observe == nil {
		cfg.Observe = silent{}
	}
	if cfg.InFlight <= 0 {
		cfg.InFlight = 2
	}
	e := &Engine{
		address:    cfg.Address,
		timing:     cfg.Timing,
		rand:       cfg.Rand,
		observe:    cfg.Observe,
		out:        map[StreamID]*ToWorker{},
		statements: map[uint64]*statement{},
		strays:     map[scheduler.Token]scheduler.Held{},
		inFlight:   cfg.InFlight,
	}
	e.names = slices.Clone(cfg.Regions)
	if len(e.names) == 0 {
		e.names = []string{cfg.Region}
	}
	number := uint8(max(slices.Index(e.names, cfg.Region), 0))
	e.home = e.newServed(number, cfg.Region)
	e.topology, e.profile = regions.Single(cfg.Region), regions.WAN()
	if cfg.Topology != nil {
		e.topology = *cfg.Topology
	}
	if cfg.Profile != nil {
		e.profile = *cfg.Profile
	}
	e.watch = newWatch()
	e.served, e.byNumber[number] = []*served{e.home}, e.home
	e.core = scheduler.NewCore(e.home.id, cfg.Timing, cfg.Rand.Float64)
	if len(e.names) > 1 || cfg.Topology != nil {
		e.core.At(cfg.Region)
	}
	e.submits = newSubmits(cfg.InFlight)
	e.workers = newWorkers()
	e.timers = newTimers()
	e.links = newLinks()
	e.cancels = newCancels()
	e.settings = newSettings()
	e.division = newDivision()
	e.ghosts = newGhosts()
	e.stock = newStock()
	e.setParts(nil)
	return e
}

// Turn takes what has happened since the last turn and returns what to do. local is the local monotonic clock, counted from
// any fixed start; it must never go back.
func (e *Engine) Turn(local time.Duration, inputs []Input) []Effect {
	e.noticePause(local)
	e.local = max(local, e.local)
	e.core.Tick(e.storeNow())
	for _, in := range inputs {
		e.take(in)
	}
	e.launchRetries()
	e.keepSessions()
	if e.home.opened {
		e.readSettings()
		e.watchRegions()
		e.takeStock()
		e.divide()
		e.watchGhosts()
		e.watchWorkers()
		e.fireTimers()
		e.readLanes()
		e.reconcile()
		e.reclaim()
		e.insertLinked()
		e.release()
		e.dispatch()
		e.borrow()
		e.spill()
		e.tellUse()
		e.leaveGuests()
	}
	e.flush()
	effects := e.effects
	e.effects = nil
	return effects
}

// noticePause gives workers the benefit of a pause of this process: their silence counts only while it was ticking.
func (e *Engine) noticePause(local time.Duration) {
	gap := local - e.local
	if e.local == 0 || gap < pauseNoticed {
		return
	}
	e.workers.forgive(gap)
	e.quietUntil = local + pauseNoticed
}

func (e *Engine) take(in Input) {
	switch in := in.(type) {
	case SubmitAsked:
		e.submit(in)
	case WorkerSaid:
		e.workerSaid(in)
	case StatementDone:
		e.statementDone(in)
	case StreamOpened:
		e.workers.streams[in.Stream] = scheduler.WorkerID{}
	case StreamClosed:
		e.streamClosed(in.Stream)
	case LinkAsked:
		e.link(in)
	case SubmitWithdrawn:
		e.withdrawSubmit(in.Ticket)
		e.withdrawLinked(in.Ticket)
	case CancelAsked:
		e.cancel(in)
	case TaskUpdated:
		e.updated(&in.Task)
	case ExplainAsked:
		e.explain(in)
	case LendAsked:
		e.lend(in)
	case LendAnswered:
		if in.Spill {
			e.spilled(in.Rows)
		} else {
			e.borrowed(in.Rows)
		}
	case PeerStarved:
		e.peerStarved(in.Kinds)
	case PeerCancel:
		e.core.Step(scheduler.CancelAsked{Token: in.Token})
	case PeerUsed:
		e.peerUsed(in)
	case Hinted:
		e.hinted(in.Hints)
	case MarkAsked:
		e.markWorker(in)
	case WorkersAsked:
		e.listWorkers(in.Ticket)
	case ShutdownAsked:
		e.shutdown()
	}
}

// dispatch asks the core what to do and turns its plan into statements and frames.
func (e *Engine) dispatch() {
	now, trusted := e.storeNow(), e.trusted()
	room := scheduler.Room{HoldDeadlines: e.local < e.quietUntil}
	if trusted && e.settings.known && !e.stopping {
		room.Urgent, room.Others = e.home.claiming.room()
		e.home.ends.crowd(&room)
	}
	if e.stopping {
		e.settleUnaccepted()
	}
	plan := e.core.Plan(now, room)
	e.unwritten = false
	e.claim(plan)
	e.assign(plan.Assign)
	for _, stop := range plan.Stops {
		if _, coming := e.workers.coming[stop.Token]; coming && stop.Cause == scheduler.StopLost {
			continue // its worker has just come back with it: the take-over will tell
		}
		e.toWorker(stop.Worker, func(w *ToWorker) { w.Stops = append(w.Stops, stop) })
	}
	e.addEndings(plan.Endings)
	e.countPressed()
	e.wake(plan.Wakes)
	e.insert(trusted && e.settings.known && !e.stopping && !e.drains() && len(e.home.ends.pending) < endingsPendingMax)
	e.end()
}

// countPressed tells of backpressure that was reported since it told last.
func (e *Engine) countPressed() {
	was := e.pressed
	e.pressed = e.core.Pressed()
	if e.pressed != was {
		e.observe.Rows("backpressure", e.pressed.Limited-was.Limited)
		e.observe.Rows("backpressure_unlimited", e.pressed.Unlimited-was.Unlimited)
	}
}

// flush hands out what the turn has collected.
func (e *Engine) flush() {
	for _, stream := range e.outIDs {
		e.emit(Send{Stream: stream, Words: *e.out[stream]})
		delete(e.out, stream)
	}
	e.outIDs = e.outIDs[:0]
	if len(e.hints) > 0 {
		e.emit(PublishHints{Hints: e.hints})
		e.hints = nil
	}
	if len(e.ended) > 0 {
		e.observe.Rows("ended", len(e.ended))
		e.emit(TasksEnded{IDs: e.ended})
		e.ended = nil
	}
	e.checkStopped()
}

func (e *Engine) emit(eff Effect) { e.effects = append(e.effects, eff) }

// NextTurn is when Turn must be called at the latest, by the local clock, also without inputs.
func (e *Engine) NextTurn() time.Duration {
	next := e.local + tick
	if at, some := e.core.NextDeadline(); some {
		next = min(next, e.localAt(at))
	}
	if at, some := e.timers.next(); some {
		next = min(next, e.localAt(at))
	}
	for _, s := range e.retries {
		next = min(next, s.again)
	}
	return max(next, e.local+time.Millisecond)
}

// tick is how often an engine turns when nothing happens: its periodic work is checked then.
const tick = 50 * time.Millisecond

// newShard draws a shard for new tasks: one of this instance's own, so that they enter the buffers without a read. Tasks of a tenant that
// has many waiting here are spread over all instances of the region, so that it can have its share of every one's workers.
func (e *Engine) newShard(of *scheduler.Task) uint8 {
	if len(e.home.shards) > 0 && !e.core.Crowded(of.Tenant, of.Tier) {
		return e.home.shards[e.rand.IntN(len(e.home.shards))]
	}
	return e.anyShard(e.home.number)
}

// anyShard draws a shard of a region.
func (e *Engine) anyShard(number uint8) uint8 {
	return number*regions.ShardsPerRegion + uint8(e.rand.IntN(regions.ShardsPerRegion))
}

// newID makes the ID of a new task.
func (e *Engine) newID(shard uint8, now time.Time) scheduler.ID {
	var random [scheduler.RandomBytes]byte
	for i := range random {
		random[i] = byte(e.rand.Uint32())
	}
	return scheduler.NewID(shard, now, random)
}

func (e *Engine) newSessionID() scheduler.SessionID {
	var id scheduler.SessionID
	for i := range id {
		id[i] = byte(e.rand.Uint32())
	}
	id[6], id[8] = id[6]&0x0f|0x40, id[8]&0x3f|0x80 // a random UUID's marks
	return id
}

// Status is a picture of an engine for health checks, metrics and the admin API.
type Status struct {
	Session   scheduler.SessionID
	Opened    bool // has a session
	Trusted   bool // may dispatch now
	Stopping  bool
	Others    []scheduler.Session // the region's other instances that are alive
	Lanes     int
	Shards    []uint8 // the lanes, in order
	Workers   int
	Pending   int // submits that wait for their insert
	Unsettled int // statements that are tried again
	// Failing is for how long the oldest of them has failed, other than for a row that somebody locks; FailingWrite is its name.
	Failing       time.Duration
	FailingWrite  string
	Turned        time.Duration
	LastStore     time.Duration // local time of the last good answer of the store
	Counts        scheduler.Counts
	DiscoverCycle time.Duration // how long the last full cycle over the groups of ready rows took
	// At local time ClockLocal the store's clock was estimated as ClockStore.
	ClockStore time.Time
	ClockLocal time.Duration
	Regions    Regions // empty where there is one only
	// Picture is who waits and who runs, a second old at most, or some seconds when very much is buffered; nil
	// before the session is open. It never changes.
	Picture *scheduler.Picture
}

// Catalog is what operators have set, as of the last turn.
func (e *Engine) Catalog() *Catalog { return e.settings.catalog }

// Status returns the picture as of the last turn.
func (e *Engine) Status() Status {
	st := Status{
		Session: e.home.id, Opened: e.home.opened, Trusted: e.trusted(), Stopping: e.stopping,
		Others: slices.Clone(e.home.others), Lanes: len(e.home.shards), Shards: slices.Clone(e.home.shards), Workers: len(e.workers.byID), Pending: e.submits.waiting(), Unsettled: len(e.retries),
		Turned: e.local, LastStore: e.home.renewedAt, Counts: e.core.Counts(), DiscoverCycle: e.home.refill.cycle,
		ClockStore: e.home.clockStore, ClockLocal: e.home.clockLocal, Picture: e.draw(),
		Regions: e.regionsNow(),
	}
	for _, one := range e.statements { // the oldest: the order does not matter
		if age := e.local - one.failing; one.failing > 0 && !one.aside && age > st.Failing {
			st.Failing, st.FailingWrite = age, one.pipe.name
		}
	}
	return st
}
