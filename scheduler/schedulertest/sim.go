package schedulertest

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/errandhq/errand/scheduler"
	"github.com/errandhq/errand/scheduler/engine"
)

// Bounds of a history, in virtual time.
const (
	simTrouble  = 45 * time.Second  // how long faults happen and tasks are submitted
	simSettle   = 180 * time.Second // how long everything may take to end after that (P3)
	simQuiet    = 10 * time.Second  // how long the end must last
	simTurns    = 200_000           // turns of all instances; more means that one spins
	simAttempts = 100               // starts of one task, counted or not
	simLook     = 500 * time.Millisecond
)

// simEpoch is where the store's clock begins.
var simEpoch = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// Simulation is one history of a region: scheduler instances, workers, submitters and a store that fails, driven from one
// goroutine in virtual time. Everything that happens follows from the seed: the same seed gives the same history.
type Simulation struct {
	Seed uint64
	// Faults are the faults that may happen; zero draws them from the seed.
	Faults Faults
	// Store stands between the instances and the store in memory; nil for nothing. A test that removes a guard puts itself here.
	Store func(*Memory) engine.Store
	// Traced keeps the history as text. It changes nothing else.
	Traced bool
}

// History is what became of a simulation.
type History struct {
	Seed       uint64
	Faults     Faults
	Violations []string // what must never happen and did; the history ends with the first
	Trace      string   // one line per event, when it was asked for
	Tasks      int      // stored
	Attempts   int64    // started
	PushedBack int      // attempts that met with backpressure
	Statements int
	Turns      int
	Took       time.Duration // virtual
}

// sim is a history under way.
type sim struct {
	seed    uint64
	faults  Faults
	now     time.Duration // since the history began
	agenda  agenda
	rand    *rand.Rand
	timing  scheduler.Timing
	memory  *Memory
	store   engine.Store
	skew    time.Duration // of the store's clock
	outage  time.Duration // until when the store answers nobody
	unlucky float64       // the part of the statements that meet a fault
	healed  bool          // nothing fails any more
	over    bool
	running any // the statement that is being executed

	regions   int // how many of simRegions there are
	instances []*instance
	workers   []*worker
	client    *client
	oracle    *oracle

	trace      *strings.Builder
	turns      int
	statements int
	tokens     int64
}

// Run plays the history to its end, or to the first violation.
func (c Simulation) Run() History {
	s := &sim{
		seed:   c.Seed,
		rand:   rand.New(rand.NewPCG(c.Seed, 0x657272616e64)),
		timing: scheduler.DefaultTiming(),
	}
	if c.Traced {
		s.trace = &strings.Builder{}
	}
	s.memory = NewMemory(s.clock)
	s.store = s.memory
	if c.Store != nil {
		s.store = c.Store(s.memory)
	}
	s.faults = c.Faults
	if drawn := s.drawFaults(); s.faults == 0 {
		s.faults = drawn
	}
	s.unlucky = pick(s, 0.03, 0.12, 0.3)
	s.oracle = newOracle(s)
	s.memory.Watch(s.oracle.changed)
	s.memory.Set(scheduler.Settings{Limits: []scheduler.LimitSettings{
		{Tenant: "acme", Name: simLimit, Concurrency: simLimitSlots}, {Tenant: "globex", Name: simLimit, Concurrency: simLimitSlots},
	}})
	s.populate()
	s.play()
	h := History{
		Seed: c.Seed, Faults: s.faults, Violations: s.oracle.violations, Tasks: len(s.tasks()), Attempts: s.tokens,
		PushedBack: s.oracle.pushes, Statements: s.statements, Turns: s.turns, Took: s.now,
	}
	if s.trace != nil {
		h.Trace = s.trace.String()
	}
	return h
}

// populate brings instances, workers, a client and the faults to come.
func (s *sim) populate() {
	s.tracef("seed %d: %s", s.seed, s.faults)
	instances := pick(s, 1, 2, 2, 3, 3)
	s.regions = min(pick(s, 1, 1, 2, 3), instances)
	for i := range instances {
		in := newInstance(s, i)
		s.instances = append(s.instances, in)
		s.after(s.upTo(2*time.Second), in.start)
	}
	for i := range max(2+s.rand.IntN(3), s.regions) {
		w := newWorker(s, i)
		s.workers = append(s.workers, w)
		s.after(s.upTo(3*time.Second), w.start)
	}
	s.client = newClient(s)
	s.client.plan()
	s.planFaults()
	s.at(simTrouble, s.heal)
}

// play takes one event after the other until everything has ended and stayed so, or the time is up.
func (s *sim) play() {
	var quietSince time.Duration
	s.look(func() {
		switch {
		case !s.healed:
		case !s.settled():
			quietSince = 0
			if s.now > simTrouble+simSettle {
				s.oracle.stuck()
			}
		case quietSince == 0:
			quietSince = s.now
		case s.now-quietSince > simQuiet:
			s.over = true
			s.oracle.end()
		}
	})
	for !s.over && len(s.oracle.violations) == 0 && s.step() {
		if s.turns > simTurns {
			s.oracle.failf("P3: %d turns of the instances: one of them spins", s.turns)
		}
	}
}

func (s *sim) look(f func()) {
	f()
	s.after(simLook, func() { s.look(f) })
}

// settled tells whether every task has ended and everybody knows.
func (s *sim) settled() bool {
	if s.oracle.open > 0 || s.client.waits() {
		return false
	}
	for _, w := range s.workers {
		if w.busy() {
			return false
		}
	}
	for _, in := range s.instances {
		if in.busy() {
			return false
		}
	}
	return true
}

func (s *sim) clock() time.Time { return simEpoch.Add(s.now + s.skew) }

// tracef writes a line of the history.
func (s *sim) tracef(format string, args ...any) {
	if s.trace == nil {
		return
	}
	fmt.Fprintf(s.trace, "%12.6f ", s.now.Seconds())
	fmt.Fprintf(s.trace, format, args...)
	s.trace.WriteByte('\n')
}
