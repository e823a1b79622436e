package preempt

import (
	"bytes"
	"cmp"
	"math"
	"slices"
	"time"

	"github.com/errandhq/errand/placement"
)

// Bounds of a choice of victims.
const (
	PreemptionsMax            = 3                   // of one task: after these it is left alone until it ends
	VictimWorkersMax          = 128                 // workers looked at for one preemptor; those behind are not
	VictimCandidatesMax       = 256                 // attempts weighed on one worker; the dearest above them are left alone
	VictimExactMax            = 12                  // candidates up to which the choice on a worker is the best there is
	VictimLossMax             = 30 * 24 * time.Hour // of work, and of a restart, that an attempt's cost counts
	amountMax           int64 = 1 << 48             // of a resource: sums of thousands of them stay far from the end of an int64
)

// Preemptor is a task that found no room and might get it if others gave way.
type Preemptor struct {
	Kind string
	Need placement.Resources
	Tier uint8 // as it is served now; the smaller number goes first
}

// Running is an attempt on a worker.
type Running struct {
	Task    [16]byte
	Kind    string
	Uses    placement.Resources
	Devices uint64 // those it has, as bits: wholly if it uses GPUs, its share of the only one if it uses GPUMilli
	Tier    uint8  // the smaller number goes first

	Preemptible bool
	Preemptions int           // of its task, so far
	Leaving     bool          // it was told to stop: its room comes free, and it is nobody's victim again
	Work        time.Duration // done since its last checkpoint, or since its start when there is none: what stopping it loses
	Restart     time.Duration // what it costs to start it again, as time of the whole worker
}

// Held is one worker and all that has room on it. The caller offers only workers that take work and that the preemptor could use if
// they were empty, room aside: kind, tenant, selectors, suspects.
type Held struct {
	Worker   placement.WorkerID
	Slots    map[string]int       // as of Worker: attempts at once, by kind
	Capacity *placement.Resources // as of Worker: nil counts no processors and memory, and has no devices
	Running  []Running
	Kept     []Reservation // for earlier preemptors that have not started
}

// Verdict says what can be done for a preemptor.
type Verdict uint8

// The verdicts, from the one that helps least.
const (
	NeverFits   Verdict = iota // it is larger than each of the workers: nothing that could stop would help
	NothingToGo                // it would fit on an empty worker, but what has to go may not be stopped
	Preempt                    // it fits once the victims are gone, and not before
	RoomComes                  // it fits once those are gone that are leaving anyway; there are no victims
	FitsNow                    // it fits; there are no victims
)

var verdictTexts = [...]string{
	NeverFits:   "never fits",
	NothingToGo: "nothing that may be stopped makes room",
	Preempt:     "fits when the victims are gone",
	RoomComes:   "fits when those are gone that leave",
	FitsNow:     "fits now",
}

// String is the verdict in words.
func (v Verdict) String() string { return verdictTexts[v] }

// Choice is where a preemptor may start, and who has to go.
type Choice struct {
	Verdict Verdict
	Worker  placement.WorkerID // none if it never fits, or nothing may go
	Victims [][16]byte         // tasks, in the order of their ids; only to preempt
	Cost    time.Duration      // of all victims: time of the whole worker that stopping them loses
	Devices uint64             // those that the preemptor is to have, as bits
}

// Victims chooses who gives way to a preemptor: the cheapest set of attempts on one worker that is enough. It chooses only what makes the
// preemptor fit, no victim of a set is superfluous, and the same workers give the same choice in any order (of the first VictimWorkersMax).
//
// A victim is preemptible, of a lower tier, not leaving, and was preempted less than [PreemptionsMax] times. What it costs is the work
// since its last checkpoint times its dominant share of the worker, and its restart. Among sets of one cost the smaller goes, then the one
// on the smaller worker.
//
// How: room only grows as attempts go, so a worker on which all candidates together are too few is passed over, and a candidate that frees
// nothing of what is missing is none. Of the rest, all go at first, and each is let stay, the worst first, if enough goes without it. That
// leaves no superfluous victim whatever the order; it is done once with the dearest as the worst and once with those that free least for
// their cost, and the cheaper set counts. With up to [VictimExactMax] candidates a search through all sets that could be cheaper (branch
// and bound) then makes the choice exact. A need of devices is met by the devices as they are: a share by one device alone, whole devices
// by such as nobody else has a part of.
//
// The ideas are old: to let all go and reprieve one by one is how the scheduler of Kubernetes does it (it counts priorities and disruptions,
// not lost work); to preempt only after it is proved that the preemptor fits then is the lesson of kueue's issue 6947 (B33); the reverse
// deletion is that of the greedy algorithms for covering problems.
//
// There is no loop. A tier only gives way to one above it, so a victim can never take its place back from who took it, and nobody gives
// way more than PreemptionsMax times: preemptions end, whatever comes back. That each of them is of use is the part of [Reservations].
func Victims(p Preemptor, workers []Held) Choice {
	looked := workers[:min(len(workers), VictimWorkersMax)]
	best := Choice{Verdict: NeverFits}
	if len(looked) < len(workers) {
		best.Verdict = NothingToGo // nobody looked at the rest
	}
	for i := range looked {
		if c := victimsOn(p, &looked[i], best); c.better(best) {
			best = c
		}
	}
	return best
}

// better orders choices: what helps more, then the cheaper, then the fewer victims, then the smaller worker.
func (c Choice) better(other Choice) bool {
	if c.Verdict != other.Verdict {
		return c.Verdict > other.Verdict
	}
	return cmp.Or(cmp.Compare(c.Cost, other.Cost), cmp.Compare(len(c.Victims), len(other.Victims)), c.Worker.Compare(other.Worker)) < 0
}

// victimsOn is the choice on one worker. What is certainly not better than the best so far need not be the best of this worker.
func victimsOn(p Preemptor, h *Held, best Choice) Choice {
	now := spaceOf(p, h)
	if empty := now.emptied(h); !empty.fits() {
		return Choice{Verdict: NeverFits}
	}
	if now.fits() {
		return Choice{Verdict: FitsNow, Worker: h.Worker, Devices: now.devicesFor()}
	}
	soon := now
	for i := range h.Running {
		if h.Running[i].Leaving {
			soon.add(&h.Running[i], 1)
		}
	}
	if soon.fits() {
		return Choice{Verdict: RoomComes, Worker: h.Worker, Devices: soon.devicesFor()}
	}
	if best.Verdict > Preempt {
		return Choice{Verdict: NothingToGo}
	}
	s := search{space: soon, candidates: candidatesOn(p, h, &soon)}
	if !s.run(h.Worker, best) {
		return Choice{Verdict: NothingToGo}
	}
	return s.choice(h.Worker)
}

// candidate is an attempt that may go, and would free something that is missing.
type candidate struct {
	*Running
	cost time.Duration
	dear float64 // cost for what it frees of what is missing
}

// candidatesOn lists them, the cheapest first; of two, the one of the lower tier.
func candidatesOn(p Preemptor, h *Held, missing *space) []candidate {
	var found []candidate
	for i := range h.Running {
		r := &h.Running[i]
		if !r.Preemptible || r.Leaving || r.Tier <= p.Tier || r.Preemptions >= PreemptionsMax {
			continue
		}
		if gain := missing.gain(r); gain > 0 {
			cost := h.cost(r)
			found = append(found, candidate{Running: r, cost: cost, dear: float64(cost) / gain})
		}
	}
	slices.SortFunc(found, func(a, b candidate) int {
		return cmp.Or(cmp.Compare(a.cost, b.cost), cmp.Compare(b.Tier, a.Tier), bytes.Compare(a.Task[:], b.Task[:]))
	})
	return found[:min(len(found), VictimCandidatesMax)]
}

// cost is what is lost when an attempt is stopped, as time of the whole worker.
func (h *Held) cost(r *Running) time.Duration {
	return bounded(r.Work)/1000*time.Duration(h.share(r)) + bounded(r.Restart)
}

func bounded(loss time.Duration) time.Duration { return min(max(loss, 0), VictimLossMax) }

// share is the largest part of one resource of the worker that an attempt uses, in thousandths, at least one.
func (h *Held) share(r *Running) int64 {
	most := part(slots(r.Uses), int64(h.Slots[r.Kind]))
	if c := h.Capacity; c != nil {
		most = max(most, part(r.Uses.CPUMilli, c.CPUMilli), part(r.Uses.MemoryMiB, c.MemoryMiB), part(slots(r.Uses), c.Slots),
			part(amount(r.Uses.GPUs)*placement.DeviceMilli+amount(r.Uses.GPUMilli), amount(c.GPUs)*placement.DeviceMilli))
	}
	return min(max(int64(math.Ceil(most*1000)), 1), 1000)
}

func part(used, of int64) float64 {
	if of <= 0 {
		return 0
	}
	return float64(used) / float64(of)
}

// slots is how many an attempt takes, of its kind and over all kinds: at least one.
func slots(r placement.Resources) int64 { return max(amount(r.Slots), 1) }

func amount(n int64) int64 { return min(max(n, 0), amountMax) }
