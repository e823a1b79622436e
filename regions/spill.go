package regions

import (
	"cmp"
	"slices"
)

// Bounds of spill.
const (
	SpillBatchMax = 100 // tasks that one instance takes from other regions at a time
	// SpillIdlePercent is how much of what is idle, rounded up, may go to other regions at a time: the rest stays for what is submitted here in
	// the next moment.
	SpillIdlePercent = 50
)

// Behind is what a region tells of one class of its ready tasks that it does not start in time.
type Behind struct {
	Region  string
	Class   string
	Allowed []string // regions that may run the class; empty: all
	Overdue int      // tasks that are past their due time
	AtRisk  int      // others that will be before the region gets to them
	Room    int      // how many of the class the idle workers of the instance that looks could start; it says so itself
}

// Taking is how many tasks of a class an instance tries to claim from a region.
type Taking struct {
	Region string
	Class  string
	Count  int
}

// Spill chooses what an instance of a region takes from others. idle is how many slots of its workers are free.
//
// It takes only what is overdue or at risk, only where the tasks allow its region, and nothing while it has no idle slot: when nothing is behind the
// answer is empty. What is overdue anywhere comes before what is at risk; the nearest region first; within a region the class with the
// most. Regions that it serves anyway, its own and those that it has adopted, are left out, and a region that does not serve itself takes nothing.
// Several instances may choose the same tasks: a claim decides.
func Spill(t *Topology, v *Verdicts, region string, idle int, behind []Behind) []Taking {
	own, judged := v.Of(region)
	if !judged || !own.Health.Serves() || idle <= 0 {
		return nil
	}
	served := Served(region, v, Adopters(t, v))
	var able []Behind
	for _, b := range behind {
		may := len(b.Allowed) == 0 || slices.Contains(b.Allowed, region)
		if may && b.Room > 0 && t.Has(b.Region) && !slices.Contains(served, b.Region) {
			able = append(able, b)
		}
	}
	left := min(SpillBatchMax, idle-idle*(100-SpillIdlePercent)/100)
	s := spill{rooms: map[string]int{}}
	for _, amount := range []func(Behind) int{
		func(b Behind) int { return b.Overdue },
		func(b Behind) int { return b.AtRisk },
	} {
		sortBehind(t, region, able, amount)
		for _, b := range able {
			left -= s.take(b, min(amount(b), left))
		}
	}
	return s.takings
}

// sortBehind puts the nearest regions first, and in each the class of which there is most. Entries that nothing tells apart are alike.
func sortBehind(t *Topology, region string, all []Behind, amount func(Behind) int) {
	slices.SortFunc(all, func(a, b Behind) int {
		return cmp.Or(
			cmp.Compare(t.RoundTripMS(region, a.Region), t.RoundTripMS(region, b.Region)),
			cmp.Compare(a.Region, b.Region),
			cmp.Compare(amount(b), amount(a)),
			cmp.Compare(a.Class, b.Class),
			cmp.Compare(a.Room, b.Room),
		)
	})
}

// spill is what has been taken so far.
type spill struct {
	takings []Taking
	rooms   map[string]int // by class: what is taken of its room; the same workers start a class whatever region it comes from
}

// take takes at most so many of a class, as its room allows, and returns how many.
func (s *spill) take(b Behind, most int) int {
	n := min(most, b.Room-s.rooms[b.Class])
	if n <= 0 {
		return 0
	}
	s.rooms[b.Class] += n
	at := slices.IndexFunc(s.takings, func(t Taking) bool { return t.Region == b.Region && t.Class == b.Class })
	if at < 0 {
		s.takings = append(s.takings, Taking{Region: b.Region, Class: b.Class, Count: n})
	} else {
		s.takings[at].Count += n
	}
	return n
}
