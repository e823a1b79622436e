package regions

import (
	"cmp"
	"slices"
	"time"
)

// Health is what is thought of a region.
type Health uint8

// The healths. The last two are an operator's wish, whatever is heard of the region.
const (
	Up       Health = iota // its schedulers renew their sessions
	Suspect                // none has lately; it still serves its own lanes
	Down                   // none has for so long that it is adopted
	Draining               // starts nothing new, is adopted, and has running rows
	Drained                // is adopted, and nothing of it runs
)

// String returns the word that people read.
func (h Health) String() string {
	words := [...]string{"up", "suspect", "down", "draining", "drained"}
	if int(h) < len(words) {
		return words[h]
	}
	return "unknown"
}

// Serves tells whether the region's own schedulers serve it, and may serve others.
func (h Health) Serves() bool { return h == Up || h == Suspect }

// Heartbeat is what the store tells of one region.
type Heartbeat struct {
	Region  string
	Heard   bool          // whether it has ever had a session
	Age     time.Duration // store time since the newest renewal of any of its sessions
	Drain   bool          // an operator wishes that it is drained; false resumes it
	Running int           // its running rows; looked at only when it is drained
}

// Verdict is what is thought of one region.
type Verdict struct {
	Region string
	Health Health    // what others act on
	Since  time.Time // store time since when

	Heard  bool      // whether it has ever had a session
	Beats  Health    // Up, Suspect or Down: its health but for an operator's wish
	Turned time.Time // when Beats became up or ceased to be; at first its birth
	Steady time.Time // since when it has been heard without a gap; zero while there is one
}

// Verdicts are the verdicts on all regions, by name.
//
// Whoever keeps them in the store replaces them only where the version is the one that Judge was given: so all act on the same, and the
// hysteresis is everybody's. Instances that keep their own may differ for a moment, which is harmless: every claim is guarded.
type Verdicts struct {
	Version int64     // grows with each judgment
	At      time.Time // store time of the last judgment
	Regions []Verdict
}

// Of returns the verdict on a region, and false when there is none.
func (v *Verdicts) Of(region string) (Verdict, bool) {
	i, found := slices.BinarySearchFunc(v.Regions, region, func(r Verdict, name string) int { return cmp.Compare(r.Region, name) })
	if !found {
		return Verdict{}, false
	}
	return v.Regions[i], true
}

// Judge returns the verdicts that follow the previous ones. now is store time; with a now before the previous verdicts nothing changes. There is
// one heartbeat for each region of the topology, in any order: a region without one is forgotten, and of two the younger counts.
//
// A region is suspect and down as soon as its age says so, and up again only when it has been heard without a gap for the profile's Steady.
// Once up, it is not suspect again within Steady; that it is not down again within it follows from Steady <= Down - Suspect. So what a
// region's flapping changes is at least Steady apart: each adoption lasts that long, and so does each return.
//
// A region that has never had a session begins as suspect and is down when it has none within Down. Its first session makes it up at once.
func Judge(p *Profile, previous *Verdicts, beats []Heartbeat, now time.Time) Verdicts {
	if now.Before(previous.At) {
		return *previous
	}
	next := Verdicts{Version: previous.Version + 1, At: now}
	for _, beat := range youngest(beats) {
		old, known := previous.Of(beat.Region)
		if !known {
			old = Verdict{Region: beat.Region, Health: Suspect, Beats: Suspect, Since: now, Turned: now}
		}
		v := hear(p, old, beat, now, now.Sub(previous.At))
		if health := wished(v, beat); health != old.Health {
			v.Health, v.Since = health, now
		}
		next.Regions = append(next.Regions, v)
	}
	return next
}

// hear returns the verdict with Beats as the heartbeat and the time since the last look make it.
func hear(p *Profile, v Verdict, beat Heartbeat, now time.Time, unseen time.Duration) Verdict {
	first := beat.Heard && !v.Heard
	v.Heard = beat.Heard || v.Heard
	age := max(0, beat.Age)
	if !beat.Heard {
		age = max(p.Suspect, now.Sub(v.Turned)) // its birth is all that there is
	}
	silent := age >= p.Suspect
	switch {
	case silent:
		v.Steady = time.Time{}
	case v.Steady.IsZero() || unseen >= p.Suspect: // nobody looked: there may have been a gap
		v.Steady = now
	}
	switch {
	case age >= p.Down:
		v = v.turn(Down, now)
	case silent && v.Beats == Up && now.Sub(v.Turned) >= p.Steady:
		v = v.turn(Suspect, now)
	case !silent && v.Beats != Up && (first || now.Sub(v.Steady) >= p.Steady):
		v = v.turn(Up, now)
	}
	return v
}

// turn returns the verdict with other Beats.
func (v Verdict) turn(beats Health, now time.Time) Verdict {
	if (v.Beats == Up) != (beats == Up) {
		v.Turned = now
	}
	v.Beats = beats
	return v
}

// wished is the health that others act on: an operator's wish before what is heard.
func wished(v Verdict, beat Heartbeat) Health {
	switch {
	case beat.Drain && beat.Running > 0:
		return Draining
	case beat.Drain:
		return Drained
	}
	return v.Beats
}

// youngest returns the heartbeats by region, one of each.
func youngest(beats []Heartbeat) []Heartbeat {
	var all []Heartbeat
	sorted := slices.SortedStableFunc(slices.Values(beats), func(a, b Heartbeat) int { return cmp.Compare(a.Region, b.Region) })
	for _, b := range sorted {
		if n := len(all); n > 0 && all[n-1].Region == b.Region {
			all[n-1] = merged(all[n-1], b)
			continue
		}
		all = append(all, b)
	}
	return all
}

func merged(a, b Heartbeat) Heartbeat {
	a.Drain, a.Running = a.Drain || b.Drain, max(a.Running, b.Running)
	if b.Heard && (!a.Heard || b.Age < a.Age) {
		a.Heard, a.Age = true, b.Age
	}
	return a
}
