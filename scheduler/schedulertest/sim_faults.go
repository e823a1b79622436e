package schedulertest

import (
	"strings"
	"time"
)

// Faults are kinds of faults that may happen in a history, as a set. Each history draws its own set, so that some faults are
// seen alone and some together.
type Faults uint32

// The kinds of faults.
const (
	StatementFaults Faults = 1 << iota // statements fail, land late, land unnoticed, land in part, meet a lock
	StoreOutages                       // the store is away for everybody, 20 s
	ClockSteps                         // the store's clock jumps a little
	RollingRestarts                    // instances stop politely, one after the other
	Crashes                            // instances are killed and start again
	Pauses                             // instances stand still for longer than their session lives
	StoreCuts                          // one instance does not reach the store
	WorkerCrashes                      // workers are killed; others come in their place
	WorkerPauses                       // workers stand still for longer than their lease
	WorkerCuts                         // words between a worker and everybody do not arrive for a while, in one direction or both
	Resets                             // connections break
	Drains                             // workers drain, and others come in their place
	RegionLosses                       // all instances of a region are killed, and stay away for longer than it takes to be adopted
	HandlerFaults                      // handlers fail, snooze, meet with backpressure, take too long and ignore being told to stop

	allFaults = HandlerFaults<<1 - 1
	// harmless faults never make an attempt count: nobody's work is lost by them.
	harmless = StatementFaults | StoreOutages | ClockSteps | RollingRestarts | Resets | Drains
	// orderly faults leave nobody behind who forgets what it has written.
	orderly = StatementFaults | StoreOutages | ClockSteps
)

var faultNames = [...]string{
	"statements", "outages", "clock steps", "rolling restarts", "crashes", "pauses", "store cuts", "worker crashes",
	"worker pauses", "worker cuts", "resets", "drains", "region losses", "handlers",
}

// String lists the kinds.
func (f Faults) String() string {
	var names []string
	for i, name := range faultNames {
		if f&(1<<i) != 0 {
			names = append(names, name)
		}
	}
	if names == nil {
		return "no faults"
	}
	return strings.Join(names, ", ")
}

// themes are kinds of faults that are worse together: writes that land when others have gone on, under workers that wander.
var themes = [...]Faults{
	StatementFaults | Pauses | Resets | WorkerCuts,
	StatementFaults | Pauses | Resets | StoreCuts,
	Pauses | Resets | StoreCuts,
	allFaults,
}

// drawFaults chooses the kinds of a history: every fifth has only harmless ones, every twenty-fifth only orderly ones, and
// every third of the others has a theme.
func (s *sim) drawFaults() Faults {
	drawn := Faults(s.rand.Uint32()) & allFaults
	switch {
	case s.seed%25 == 0:
		return drawn&orderly | StatementFaults
	case s.seed%5 == 0:
		return drawn & harmless
	case s.seed%3 == 0:
		return pick(s, themes[:]...)
	default:
		return drawn
	}
}

// planFaults draws when what happens.
func (s *sim) planFaults() {
	instances := len(s.instances)
	pace := pick(s, 0.3, 0.6, 1) // some histories are worse than others
	plans := []struct {
		kind  Faults
		every time.Duration // on average, in a history at the slowest pace
		do    func()
	}{
		{StoreOutages, 40 * time.Second, s.loseStore},
		{ClockSteps, 10 * time.Second, s.stepClock},
		{RollingRestarts, 40 * time.Second, s.roll},
		{Crashes, 15 * time.Second, func() { pick(s, s.instances...).crash(s.between(100*time.Millisecond, 15*time.Second)) }},
		{Pauses, 20 * time.Second, func() { pick(s, s.instances...).pause(s.between(time.Second, 20*time.Second)) }},
		{StoreCuts, 20 * time.Second, func() { s.cutStore(s.rand.IntN(instances)) }},
		{RegionLosses, 30 * time.Second, s.loseRegion},
		{WorkerCrashes, 15 * time.Second, func() { pick(s, s.workers...).crash(s.between(100*time.Millisecond, 10*time.Second)) }},
		{WorkerPauses, 15 * time.Second, func() { pick(s, s.workers...).freeze(s.between(time.Second, 25*time.Second)) }},
		{WorkerCuts, 12 * time.Second, func() { s.cutWorker(pick(s, s.workers...)) }},
		{Resets, 4 * time.Second, func() { s.reset(pick(s, s.workers...)) }},
		{Drains, 20 * time.Second, func() { pick(s, s.workers...).leave(s.upTo(4 * time.Second)) }},
	}
	for _, p := range plans {
		if s.faults&p.kind == 0 {
			continue
		}
		every := time.Duration(2 * pace * float64(p.every)) // at most
		for at := s.upTo(every); at < simTrouble; at += s.upTo(every) {
			s.at(at, func() {
				if !s.healed {
					p.do()
				}
			})
		}
	}
}

func (s *sim) loseStore() {
	s.tracef("the store is away")
	s.outage = s.now + 20*time.Second
}

// loseRegion kills all instances of a region.
func (s *sim) loseRegion() {
	name, down := pick(s, simRegions[:s.regions]...), s.between(5*time.Second, 40*time.Second)
	s.tracef("%s is lost", name)
	for _, in := range s.instances {
		if in.region() == name {
			in.crash(down + s.upTo(5*time.Second))
		}
	}
}

func (s *sim) stepClock() {
	s.skew = s.between(-100*time.Millisecond, 100*time.Millisecond)
	s.tracef("the store's clock is %v off", s.skew)
}

// roll restarts all instances, each when the one before is back.
func (s *sim) roll() {
	s.rollFrom(0)
}

func (s *sim) rollFrom(i int) {
	if i == len(s.instances) || s.healed {
		return
	}
	in := s.instances[i]
	life := in.life
	in.shutdown()
	var wait func()
	wait = func() {
		if in.life == life || in.engine == nil {
			s.after(500*time.Millisecond, wait)
			return
		}
		s.after(s.between(time.Second, 3*time.Second), func() { s.rollFrom(i + 1) })
	}
	wait()
}

func (s *sim) cutStore(i int) {
	in := s.instances[i]
	in.cut = s.now + s.between(time.Second, 25*time.Second)
	s.tracef("%s does not reach the store for %v", in.name, in.cut-s.now)
}

func (s *sim) cutWorker(w *worker) {
	if max(w.cutUp, w.cutDown) > s.now {
		return // what is held back arrives in order when that ends
	}
	until := min(s.now+s.between(time.Second, 25*time.Second), simTrouble)
	direction := s.rand.IntN(3)
	if direction != 0 {
		w.cutUp = until
	}
	if direction != 1 {
		w.cutDown = until
	}
	s.tracef("%s is cut off for %v (%d)", w.name, until-s.now, direction)
}

func (s *sim) reset(w *worker) {
	if w.conn != nil {
		s.tracef("%s's connection to %s breaks", w.name, w.conn.in.name)
		w.conn.breaks()
	}
}

// heal ends all faults and brings everybody back.
func (s *sim) heal() {
	s.tracef("nothing fails from now on")
	s.healed = true
	s.outage = s.now
	for _, in := range s.instances {
		in.cut, in.paused = s.now, s.now
		if in.engine == nil {
			in.start()
			continue
		}
		in.turnBy(s.now)
	}
	for _, w := range s.workers { // what it cannot do yet it does now: its pause and its cuts end with the trouble
		w.start()
	}
}
