package scheduler

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/errandhq/errand/placement"
)

// This file holds the answer to "why does my task not run?" as one instance knows it. Its workers, caps and buffers are the instance's own;
// Merge puts the answers of a region's instances together, and Obstacle says what comes first.

// Obstacle is what keeps a task from running. Its values are part of the API.
type Obstacle string

// The obstacles, in the order of precedence: of those that hold, the first one is told. What no waiting cures comes before what does.
const (
	WhyEnded             Obstacle = "ENDED"
	WhyRunning           Obstacle = "RUNNING"
	WhyStopping          Obstacle = "STOPPING"
	WhyWaitingForParents Obstacle = "WAITING_FOR_PARENTS"
	WhyPastStartBy       Obstacle = "PAST_START_BY"
	WhyRegionNotAllowed  Obstacle = "REGION_NOT_ALLOWED"
	WhyRetryLater        Obstacle = "RETRY_LATER"
	WhyNotDue            Obstacle = "NOT_DUE"
	WhyTenantPaused      Obstacle = "TENANT_PAUSED"
	WhyKindPaused        Obstacle = "KIND_PAUSED"
	WhyNoWorker          Obstacle = "NO_WORKER"
	WhyNoWorkerMatches   Obstacle = "NO_WORKER_MATCHES"
	WhyNeverFits         Obstacle = "NEVER_FITS"
	WhyWorkersDraining   Obstacle = "WORKERS_DRAINING"
	WhyTenantAtCap       Obstacle = "TENANT_AT_CAP"
	WhyTenantRate        Obstacle = "TENANT_RATE"
	WhyLimitFull         Obstacle = "LIMIT_FULL"
	WhyLimitRate         Obstacle = "LIMIT_RATE"
	WhyBehind            Obstacle = "BEHIND"
	WhySuspect           Obstacle = "SUSPECT"
	WhyRoomHeld          Obstacle = "ROOM_HELD"
	WhyHeadroom          Obstacle = "HEADROOM"
	WhyNoRoom            Obstacle = "NO_ROOM"
	WhyStarting          Obstacle = "STARTING"
)

// ClosestMax is how many workers an explanation names.
const ClosestMax = 5

// Obstacles lists all of them in the order of precedence.
var Obstacles = [...]Obstacle{
	WhyEnded, WhyRunning, WhyStopping, WhyWaitingForParents, WhyPastStartBy, WhyRegionNotAllowed, WhyRetryLater, WhyNotDue, WhyTenantPaused, WhyKindPaused,
	WhyNoWorker, WhyNoWorkerMatches, WhyNeverFits, WhyWorkersDraining, WhyTenantAtCap, WhyTenantRate, WhyLimitFull, WhyLimitRate, WhyBehind,
	WhySuspect, WhyRoomHeld, WhyHeadroom, WhyNoRoom, WhyStarting,
}

var refusalObstacles = [...]Obstacle{
	placement.Placed: WhyStarting, placement.NoWorker: WhyNoWorker, placement.DoesNotFitNow: WhyNoRoom,
	placement.AllDraining: WhyWorkersDraining, placement.SuspectWaiting: WhySuspect, placement.Headroom: WhyHeadroom,
	placement.NeverFits: WhyNeverFits, placement.Unselected: WhyNoWorkerMatches, placement.Reserved: WhyRoomHeld,
}

// lasting tells of the obstacles of workers that no waiting cures.
func lasting(r placement.Refusal) bool {
	switch r {
	case placement.NoWorker, placement.NeverFits, placement.Unselected, placement.AllDraining:
		return true
	default:
		return false
	}
}

const barredWords = "it may not run in the region that serves it now"

// Hold is what an instance knows of a waiting task.
type Hold struct {
	Here       bool     // the instance has it in its buffers: what it says of caps and of the order counts
	Barred     bool     // it may not run in the instance's region
	Gate       Obstacle // the pause, cap or limit that is in its way; empty for none
	Gated      string   // the same in words
	Ease       string   // what would open the gate
	Refusal    placement.Refusal
	Ahead      int       // tasks of its class that go before it, as far as known
	Start      time.Time // when it starts as things are; zero when nothing can be said
	Closest    []CloseWorker
	Change     placement.ChangeKind // the smallest that would let it run
	Suggestion string               // the same in words
	Place      string               // where it runs and why there, when this instance has it running
}

// CloseWorker is a worker and what it lacks.
type CloseWorker struct {
	Worker  WorkerID
	Name    string
	Rank    int     // less is closer
	Missing float64 // less is closer, among equal ranks
	Lacks   []string
}

// Explain says what keeps a waiting row from starting. A row that is not submitted yet has no ID. It looks at all workers of the kind and
// at all that is buffered of the tenant, so it is for people who ask.
func (c *Core) Explain(r *ReadyRow, now time.Time) Hold {
	h := Hold{Here: c.waiting.rows[r.ID] != nil, Ahead: c.aheadInClass(r)}
	for _, g := range c.gates.of(r.Tenant, r.Kind, r.Limits) {
		why := g.obstacle(now, c.gates)
		if why != "" && (h.Gate == "" || slices.Index(Obstacles[:], why) < slices.Index(Obstacles[:], h.Gate)) {
			h.Gate = why
			h.Gated, h.Ease = g.words(why)
		}
	}
	h.Barred = !c.mayRun(r.Allowed)
	need := placement.Need{Tenant: r.Tenant, Kind: r.Kind, Suspect: r.Suspect, Shape: c.shapes.one(r.Class, r.Shape)}
	told := c.pool.Explain(need, fills[c.fillFor(r, now)], ClosestMax)
	h.Refusal, h.Change, h.Suggestion = told.Refusal, told.Change.Kind, told.Change.String()
	h.Closest = closeWorkers(told.Closest)
	t := Task{
		Tenant: r.Tenant, Kind: r.Kind, Tier: r.Tier, State: Ready, Due: r.Due, StartBy: r.StartBy,
		Spec: Spec{Limits: r.Limits, Shape: r.Shape},
	}
	if h.Here { // what is ahead of it is known
		h.Start = c.estimate(&t, float64(h.Ahead), 0, now).Start
	} else {
		h.Start = c.Estimate(&t, 0, now).Start
	}
	if h.Refusal != placement.Placed && !h.Start.After(now) {
		h.Start = time.Time{} // what is in its way is not foreseen
	}
	return h
}

// fillFor is the part of the capacity that a row may find in use.
func (c *Core) fillFor(r *ReadyRow, now time.Time) fill {
	switch {
	case r.Tier == Urgent && !c.waiting.demoted[r.Tenant]:
		return c.urgentFill(r.Tenant)
	case r.Tier == Deferrable && !r.Due.Before(now):
		return fillDeferrable
	default:
		return fillStandard
	}
}

// aheadInClass counts the buffered rows of the tenant that the same workers could start and that go first.
func (c *Core) aheadInClass(r *ReadyRow) int {
	first := &waiting{id: r.ID, due: r.Due}
	if here := c.waiting.rows[r.ID]; here != nil {
		first = here // the store has counted its times by its own clock
	}
	n := 0
	for _, tier := range Tiers {
		if tier > r.Tier {
			break
		}
		for _, suspect := range [...]bool{false, true} {
			buf := c.waiting.buffers[bufferKey{tenant: r.Tenant, tier: tier, class: r.Class, suspect: suspect}]
			if buf == nil {
				continue
			}
			for _, w := range buf.rows {
				if tier < r.Tier || r.ID == (ID{}) || w.compare(first) < 0 {
					n++
				}
			}
		}
	}
	return n
}

// obstacle says whether a gate is in the way now.
func (g *gate) obstacle(now time.Time, among *gates) Obstacle {
	if g.closed {
		if g.key.of == gateKind {
			return WhyKindPaused
		}
		return WhyTenantPaused
	}
	full, rate := WhyTenantAtCap, WhyTenantRate
	if g.key.of == gateLimit {
		full, rate = WhyLimitFull, WhyLimitRate
	}
	switch {
	case g.capped && g.slots-g.overhang-g.used <= 0:
		return full
	case !g.admits(now, among.parts):
		return rate
	default:
		return ""
	}
}

// words says what a gate does, and what would open it.
func (g *gate) words(o Obstacle) (what, ease string) {
	name := g.key.name
	if g.key.key != "" {
		name += "/" + g.key.key
	}
	switch o {
	case WhyTenantPaused:
		return fmt.Sprintf("tenant %s is paused", g.key.tenant), "errand tenant resume " + g.key.tenant
	case WhyKindPaused:
		return fmt.Sprintf("kind %s of tenant %s is paused", name, g.key.tenant), "errand kind resume " + name
	case WhyTenantAtCap:
		return fmt.Sprintf("tenant %s runs %d attempts here and may run %d (%d in the region)", g.key.tenant, g.used, g.slots, g.limit),
			"wait until one ends, or raise the tenant's --max-running"
	case WhyTenantRate:
		return fmt.Sprintf("tenant %s starts %g attempts per second at most", g.key.tenant, g.rate),
			"wait, or raise the tenant's --start-rate"
	case WhyLimitFull:
		return fmt.Sprintf("limit %s: %d attempts run here and %d may (%d in the region)", name, g.used, g.slots, g.limit),
			"wait until one ends, or raise the concurrency of limit " + g.key.name
	default:
		if g.rate > 0 {
			return fmt.Sprintf("limit %s lets %g attempts per second start", name, g.rate), "wait, or raise the rate of limit " + g.key.name
		}
		return fmt.Sprintf("limit %s gives way: its workers report backpressure", name), "wait until what stands behind it recovers"
	}
}

// Obstacle is the first that holds.
func (h *Hold) Obstacle() Obstacle {
	paused := h.Gate == WhyTenantPaused || h.Gate == WhyKindPaused
	switch {
	case h.Barred:
		return WhyRegionNotAllowed
	case paused:
		return h.Gate
	case lasting(h.Refusal):
		return refusalObstacles[h.Refusal]
	case h.Gate != "":
		return h.Gate
	case h.Ahead > 0:
		return WhyBehind
	default:
		return refusalObstacles[h.Refusal]
	}
}

// Lasting says in words what no waiting cures; empty when there is nothing of the kind.
func (h *Hold) Lasting() string {
	switch {
	case h.Barred:
		return barredWords
	case h.Gate == WhyTenantPaused || h.Gate == WhyKindPaused:
		return h.Gated
	case lasting(h.Refusal):
		return h.Refusal.String()
	default:
		return ""
	}
}

// Words says the first obstacle in words.
func (h *Hold) Words() string {
	switch why := h.Obstacle(); why {
	case WhyRegionNotAllowed:
		return barredWords
	case h.Gate:
		return h.Gated
	case WhyBehind:
		return fmt.Sprintf("%d tasks of its class go before it, of which the first waits: %s", h.Ahead, h.Refusal)
	case WhyStarting:
		return "nothing is in its way: it starts in the next moment"
	default:
		return h.Refusal.String()
	}
}

// Cure says in words what would let it run.
func (h *Hold) Cure() string {
	switch why := h.Obstacle(); why {
	case WhyRegionNotAllowed:
		return "wait until a region where it may run serves it again"
	case h.Gate:
		return h.Ease
	case WhyStarting:
		return ""
	case WhyBehind:
		if h.Refusal == placement.Placed {
			return "wait"
		}
		return "wait, or add workers; of the first: " + h.Suggestion
	default:
		return h.Suggestion
	}
}

// Merge adds what another instance of the region knows.
func (h *Hold) Merge(other *Hold) {
	if other.Here && !h.Here {
		h.Here, h.Barred, h.Gate, h.Gated, h.Ease = true, other.Barred, other.Gate, other.Gated, other.Ease
		h.Ahead, h.Start = other.Ahead, other.Start
	}
	if other.Refusal.NearerThan(h.Refusal) {
		h.Refusal, h.Change, h.Suggestion = other.Refusal, other.Change, other.Suggestion
	} else if other.Refusal == h.Refusal && other.Change < h.Change {
		h.Change, h.Suggestion = other.Change, other.Suggestion
	}
	if h.Place == "" {
		h.Place = other.Place
	}
	all := slices.SortedFunc(slices.Values(slices.Concat(h.Closest, other.Closest)), CloseWorker.compare)
	h.Closest = all[:min(len(all), ClosestMax)]
}

// compare orders workers by how near they are.
func (w CloseWorker) compare(other CloseWorker) int {
	return cmp.Or(cmp.Compare(w.Rank, other.Rank), cmp.Compare(w.Missing, other.Missing), w.Worker.Compare(other.Worker))
}

func closeWorkers(all []placement.Near) []CloseWorker {
	var told []CloseWorker
	for _, n := range all {
		w := CloseWorker{Worker: n.Worker, Name: n.Name, Rank: n.Rank, Missing: n.Missing}
		for _, l := range n.Lacks {
			w.Lacks = append(w.Lacks, l.String())
		}
		told = append(told, w)
	}
	return told
}

// Where says on which worker a running attempt is and what speaks for that one, when this instance has it.
func (c *Core) Where(t Token) (string, bool) {
	a := c.find(t)
	if a == nil || !a.atWorker() {
		return "", false
	}
	return c.pool.Choice(a.place(), a.need()), true
}
