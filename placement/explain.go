package placement

import (
	"fmt"
	"slices"
	"strings"
)

// Dimension is what a worker may lack.
type Dimension uint8

// The dimensions.
const (
	KindSlots   Dimension = iota + 1 // slots of the kind
	TotalSlots                       // over all kinds
	Processors                       // in thousandths
	Memory                           // in MiB
	WholeGPUs                        // devices that are free as a whole
	GPUShare                         // thousandths of one device
	LabelsMatch                      // a selector does not hold
	TakesWork                        // it drains
	NotHeld                          // its room is held for a larger task
	NoSuspect                        // it runs a suspect already
)

var dimensionTexts = [...]string{
	KindSlots: "slots of the kind", TotalSlots: "slots", Processors: "milli CPU", Memory: "MiB memory", WholeGPUs: "whole GPUs",
	GPUShare: "milli of one GPU", LabelsMatch: "labels", TakesWork: "takes work", NotHeld: "not held", NoSuspect: "no suspect",
}

// String is the dimension in words.
func (d Dimension) String() string { return dimensionTexts[d] }

// Lack is one thing that keeps an attempt from a worker. The numbers are 0 where the dimension has none.
type Lack struct {
	Dimension         Dimension
	Wanted, Free, Has int64
	Selector          Selector // that does not hold
}

// String is the lack in words.
func (l Lack) String() string {
	switch l.Dimension {
	case LabelsMatch:
		return fmt.Sprintf("label %s does not satisfy %s", l.Selector.Key, l.Selector)
	case TakesWork:
		return "it is draining"
	case NotHeld:
		return "its free room is held for a larger task"
	case NoSuspect:
		return "it already runs a suspect"
	default:
		return fmt.Sprintf("wants %d %s, %d of %d free", l.Wanted, l.Dimension, l.Free, l.Has)
	}
}

// String is the condition in words.
func (s Selector) String() string {
	words := [...]string{In: "in", NotIn: "not in", Exists: "exists", Greater: ">", Less: "<"}
	if int(s.Operator) >= len(words) || s.Operator == 0 {
		return s.Key + " ?"
	}
	return strings.TrimSpace(fmt.Sprintf("%s %s %s", s.Key, words[s.Operator], strings.Join(s.Values, ", ")))
}

// Near is a worker and what it lacks.
type Near struct {
	Worker  WorkerID
	Name    string
	Lacks   []Lack
	Rank    int     // by what would have to happen: less is closer
	Missing float64 // of what it wants, as the sum of the parts
}

// ChangeKind is what would have to change.
type ChangeKind uint8

// The kinds of change, the smallest first.
const (
	NoChange    ChangeKind = iota // it would start now
	WaitForRoom                   // attempts on the worker have to end
	Resume                        // the worker has to take work again
	AskLess                       // the task has to ask for no more than the worker has
	Relax                         // the selectors have to go, or a worker to get the labels
	Connect                       // a worker of this kind has to connect
)

// Change is the smallest change that would let an attempt run.
type Change struct {
	Kind   ChangeKind
	Worker WorkerID // where it would run then
	Name   string
	Lacks  []Lack // what stands against it there
}

// String is the change in words.
func (c Change) String() string {
	on := c.Name
	if on == "" {
		on = c.Worker.String()
	}
	var lacks []string
	for _, l := range c.Lacks {
		lacks = append(lacks, l.String())
	}
	why := strings.Join(lacks, "; ")
	switch c.Kind {
	case NoChange:
		return "none: it can start now"
	case WaitForRoom:
		if why == "" {
			why = "what is free is kept for more urgent work"
		}
		return fmt.Sprintf("wait until room is free on %s (%s)", on, why)
	case Resume:
		return fmt.Sprintf("let %s take work again (%s)", on, why)
	case AskLess:
		return fmt.Sprintf("ask for no more than %s has, or connect a larger worker (%s)", on, why)
	case Relax:
		return fmt.Sprintf("relax the selectors, or give %s the labels (%s)", on, why)
	default:
		return "connect a worker of this kind"
	}
}

// Explanation says why an attempt does not start.
type Explanation struct {
	Refusal Refusal
	Closest []Near // the closest first
	Change  Change
}

// Explain answers what Place would say now, and what would have to change. It takes no room and counts no arrival. It looks at every
// worker of the kind, so it is for people who ask.
func (p *Pool) Explain(n Need, fill Fill, limit int) Explanation {
	_, _, refusal := p.find(&n, fill)
	e := Explanation{Refusal: refusal}
	f := n.form()
	for _, tenant := range slices.Compact([]string{n.Tenant, ""}) {
		g := p.groups[groupKey{tenant, n.Kind}]
		if g == nil {
			continue
		}
		for _, s := range g.seats {
			e.consider(p.near(s, &n, &f), max(limit, 1))
		}
		for s := range g.drained { // in any order: they are put in order
			e.consider(p.near(s, &n, &f), max(limit, 1))
		}
	}
	switch {
	case refusal == Placed:
	case len(e.Closest) == 0:
		e.Change.Kind = Connect
	default:
		c := &e.Closest[0]
		c.Lacks = e.lacksOf(p, c, &n, &f)
		e.Change = Change{changeOf(c.Rank), c.Worker, c.Name, c.Lacks}
	}
	e.Closest = e.Closest[:min(len(e.Closest), max(limit, 0))]
	for i := range e.Closest {
		e.Closest[i].Lacks = e.lacksOf(p, &e.Closest[i], &n, &f)
	}
	return e
}

func (e *Explanation) lacksOf(p *Pool, c *Near, n *Need, f *form) []Lack {
	return p.lacks(p.members[c.Worker].seats[n.Kind], n, f)
}

func changeOf(rank int) ChangeKind { return ChangeKind(rank) + WaitForRoom }

// consider keeps a worker if it is among the closest.
func (e *Explanation) consider(c Near, limit int) {
	if len(e.Closest) == limit && byMissing(c, e.Closest[limit-1]) >= 0 {
		return
	}
	at, _ := slices.BinarySearchFunc(e.Closest, c, byMissing)
	e.Closest = slices.Insert(e.Closest, at, c)
	if len(e.Closest) > limit {
		e.Closest = e.Closest[:limit]
	}
}

// near measures how far a worker is from running it.
func (p *Pool) near(s *seat, n *Need, f *form) Near {
	m := s.member
	c := Near{Worker: m.worker.ID, Name: m.worker.Name}
	switch {
	case !m.suits(f).selected:
		c.Rank = int(Relax - WaitForRoom)
	case !s.couldFit(f):
		c.Rank = int(AskLess - WaitForRoom)
	case m.draining:
		c.Rank = int(Resume - WaitForRoom)
	}
	s.compare(f, func(l Lack) {
		if l.Wanted > 0 {
			c.Missing += float64(l.Wanted-min(max(l.Free, 0), l.Wanted)) / float64(l.Wanted)
		}
	})
	if m.held && !p.mayUse(m, n) || n.Suspect && m.suspects > 0 {
		c.Missing++
	}
	return c
}

// lacks lists everything that keeps an attempt from a worker.
func (p *Pool) lacks(s *seat, n *Need, f *form) []Lack {
	all, m := s.lacks(f), s.member
	for i := range f.selectors {
		if !f.selectors[i].holds(m.worker.Labels) {
			all = append(all, Lack{Dimension: LabelsMatch, Selector: f.shape.Selectors[i]})
		}
	}
	if m.draining {
		all = append(all, Lack{Dimension: TakesWork})
	}
	if m.held && !p.mayUse(m, n) {
		all = append(all, Lack{Dimension: NotHeld})
	}
	if n.Suspect && m.suspects > 0 {
		all = append(all, Lack{Dimension: NoSuspect})
	}
	return all
}

// lacks lists the amounts that are missing.
func (s *seat) lacks(f *form) []Lack {
	var all []Lack
	s.compare(f, func(l Lack) { all = append(all, l) })
	return all
}

// compare tells of each amount of which there is not enough.
func (s *seat) compare(f *form, lacks func(Lack)) {
	m := s.member
	short := func(d Dimension, wanted, free, has int64) {
		if free < wanted {
			lacks(Lack{Dimension: d, Wanted: wanted, Free: max(free, 0), Has: has})
		}
	}
	short(KindSlots, int64(f.slots), int64(s.free()), int64(s.slots))
	if m.counted {
		short(Processors, f.cpu, m.cpu, m.has.CPUMilli)
		short(Memory, f.mem, m.mem, m.has.MemoryMiB)
		if m.has.Slots > 0 {
			short(TotalSlots, int64(f.slots), m.slots, m.has.Slots)
		}
	}
	short(WholeGPUs, int64(f.gpus), int64(m.whole), m.has.GPUs)
	short(GPUShare, int64(f.milli), int64(m.widest), min(m.has.GPUs, 1)*DeviceMilli)
}
