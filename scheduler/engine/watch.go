package engine

import (
	"slices"
	"time"

	"github.com/errandhq/errand/regions"
	"github.com/errandhq/errand/scheduler"
)

// judgeEvery is how often it is judged how the regions are.
const judgeEvery = 500 * time.Millisecond

// watch is the look at the other regions: how they are, and whose lanes are this instance's to serve meanwhile. Each instance judges for
// itself, from what the store says; that two of them may differ for a moment is harmless, since every claim is guarded.
type watch struct {
	reading  [regions.Max]pipe
	askedAt  [regions.Max]time.Duration
	beats    [regions.Max]beat
	peers    [regions.Max][]scheduler.Session // of each region: its own instances that are alive
	verdicts regions.Verdicts
	judgedAt time.Duration
}

// beat is the newest renewal of a region's own sessions.
type beat struct {
	heard  bool
	at     time.Time     // the store's
	asOf   time.Time     // the store's when that was read
	seenAt time.Duration // when that was read; zero for never
}

func newWatch() watch {
	var w watch
	for i := range w.reading {
		w.reading[i] = pipe{name: "watch", limit: 1}
	}
	return w
}

// watchRegions asks how the other regions are, each through a pipe of its own.
func (e *Engine) watchRegions() {
	if len(e.names) < 2 || !e.trusted() {
		return
	}
	w := &e.watch
	for number, name := range e.names {
		if number == int(e.home.number) || name == "" || !w.reading[number].free() || e.local < w.askedAt[number]+e.timing.Renewal {
			continue
		}
		w.askedAt[number] = e.local
		e.run(&w.reading[number], ReadSessions{Region: name}, func(s *statement, answer any, err error) {
			e.finish(s)
			if err != nil {
				e.observe.StatementFailed(s.pipe.name, 1, err)
				return // what was known before grows old
			}
			e.heardOf(uint8(number), answer.(scheduler.Renewal))
		})
	}
	if e.local-w.judgedAt >= judgeEvery {
		w.judgedAt = e.local
		e.judge()
	}
}

// heardOf takes note of a region's sessions.
func (e *Engine) heardOf(number uint8, r scheduler.Renewal) {
	b, alive := &e.watch.beats[number], []scheduler.Session(nil)
	for _, s := range r.Sessions {
		if s.Home != "" { // a guest or an adopter: it says nothing of the region
			continue
		}
		if at := s.ExpiresAt.Add(-e.timing.SessionTTL); !b.heard || at.After(b.at) {
			b.heard, b.at = true, at
		}
		if s.ExpiresAt.After(r.Now) {
			alive = append(alive, s)
		}
	}
	b.seenAt, b.asOf = e.local, r.Now
	e.watch.peers[number] = alive
}

// judge says how the regions are, and takes up or gives up the lanes of those that this one adopts.
func (e *Engine) judge() {
	w, now := &e.watch, e.storeNow()
	var beats []regions.Heartbeat
	for number, name := range e.names {
		one := regions.Heartbeat{Region: name, Heard: true, Drain: e.draining[number], Running: 1}
		switch b := &w.beats[number]; {
		case name == "" || !e.topology.Has(name):
			continue
		case number == int(e.home.number):
		case b.seenAt == 0 && !e.draining[number]:
			continue // nothing is known yet
		default:
			one.Heard, one.Age = b.heard, b.asOf.Sub(b.at) // what could not be read makes nobody older
		}
		beats = append(beats, one)
	}
	before := w.verdicts
	w.verdicts = regions.Judge(&e.profile, &before, beats, now)
	var adopts [regions.Max]bool
	for _, a := range regions.Adopters(&e.topology, &w.verdicts) {
		if n := slices.Index(e.names, a.Region); a.Adopter == e.home.name && n >= 0 {
			adopts[n] = true
		}
	}
	if w.verdicts.Version != before.Version {
		for _, v := range w.verdicts.Regions {
			if old, known := before.Of(v.Region); known && old.Health != v.Health {
				e.observe.Event("a region is "+v.Health.String(), "region", v.Region, "before", old.Health.String())
			}
		}
	}
	e.adopt(adopts)
}

// adopt takes up the lanes of regions, and gives up those of others.
func (e *Engine) adopt(adopts [regions.Max]bool) {
	if adopts == e.adopts {
		return
	}
	before := e.adopts
	e.adopts = adopts
	for number := range adopts {
		if adopts[number] == before[number] {
			continue
		}
		s := e.guest(uint8(number))
		if s == nil {
			continue
		}
		if !adopts[number] {
			e.setLanes(s, nil)
		}
		s.askedAt = min(s.askedAt, e.local-e.timing.Renewal) // the others shall hear of it
		e.observe.Event("adoption", "region", s.name, "adopts", adopts[number])
	}
}

// learnRegions takes note of the deployment's regions, and of those that an operator drains.
func (e *Engine) learnRegions(all []scheduler.RegionSettings) {
	if len(all) == 0 {
		return
	}
	var draining [regions.Max]bool
	for _, r := range all {
		if int(r.Number) >= regions.Max {
			continue // of a newer version
		}
		for len(e.names) <= int(r.Number) {
			e.names = append(e.names, "")
		}
		e.names[r.Number], draining[r.Number] = r.Name, r.Draining
	}
	if was := e.draining[e.home.number]; was != draining[e.home.number] {
		e.home.askedAt = min(e.home.askedAt, e.local-e.timing.Renewal)
		if !was {
			e.setLanes(e.home, nil)
		}
		e.observe.Event("drain of this region", "region", e.home.name, "draining", !was)
	}
	e.draining = draining
}

// drains tells whether this instance's own region starts nothing new.
func (e *Engine) drains() bool { return e.draining[e.home.number] }

// Regions is how the regions are, as far as this instance knows.
type Regions struct {
	Verdicts  regions.Verdicts
	Adoptions []regions.Adoption
}

func (e *Engine) regionsNow() Regions {
	return Regions{Verdicts: e.watch.verdicts, Adoptions: regions.Adopters(&e.topology, &e.watch.verdicts)}
}
