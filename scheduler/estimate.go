package scheduler

import (
	"math"
	"time"

	"github.com/errandhq/errand/placement"
)

// This file holds the guess at when a new task will start. It is made of what is known here: the tenant's own work ahead, what the kind
// usually takes, the slots for it in the region, and the tenant's share of them. Work of others that comes later and goes first is not
// foreseen.

// Risk says why a task may not start in time. Its values are part of the API.
type Risk string

// The risks.
const (
	NoRisk           Risk = ""
	RiskNoWorker     Risk = "NO_WORKER"         // no worker that takes work serves the kind
	RiskNoMatch      Risk = "NO_WORKER_MATCHES" // no worker that serves the kind satisfies the selectors
	RiskNeverFits    Risk = "NEVER_FITS"        // no worker that serves the kind is large enough, even empty
	RiskPaused       Risk = "PAUSED"            // the tenant or the kind is paused
	RiskAfterDue     Risk = "AFTER_DUE"         // it will start later than its due time
	RiskAfterStartBy Risk = "AFTER_START_BY"    // it will not have started by then, and so never will
)

// Estimate is a guess at when a task will start. The zero value says nothing.
type Estimate struct {
	Start time.Time // zero when nothing can be said
	Risk  Risk
}

// estimateMax is the latest start that is told; beyond it nothing useful is known.
const estimateMax = 365 * 24 * time.Hour

// gateSample bounds the buffers that are counted behind one gate; those beyond it are thought to be like them.
const gateSample = 64

// Estimate guesses when a new task will start that does not start at once. before is how many of its tenant, kind and tier came just before
// it and are not told of yet.
func (c *Core) Estimate(t *Task, before int, now time.Time) Estimate {
	return c.estimate(t, c.ahead(t.Tenant, t.Kind, t.Tier)+float64(before), before, now)
}

// estimate is the same for a task when it is known how many of its kind go before it.
func (c *Core) estimate(t *Task, ahead float64, before int, now time.Time) Estimate {
	if t.State == Running {
		return Estimate{Start: now}
	}
	load, elsewhere := c.pool.Load(t.Tenant, t.Kind), c.elsewhere[t.Kind]
	if load.Own+load.Shared+elsewhere == 0 {
		return Estimate{Risk: RiskNoWorker}
	}
	if risk := c.hopeless(t); risk != NoRisk {
		return Estimate{Risk: risk}
	}
	wait, possible := c.gateWait(t, before, now)
	if !possible {
		return Estimate{Risk: RiskPaused}
	}
	wait = max(wait, c.roomWait(t, ahead, load, elsewhere))
	if wait > 0 && !c.costs.usual.Any() {
		return Estimate{} // nobody knows how long anything takes
	}
	if wait >= estimateMax.Seconds() {
		return Estimate{Risk: t.late(now.Add(estimateMax))}
	}
	start := now.Add(time.Duration(wait * float64(time.Second)))
	if t.RunAt.After(start) {
		start = t.RunAt
	}
	return Estimate{Start: start, Risk: t.late(start)}
}

// late says what a start at a time would be too late for.
func (t *Task) late(start time.Time) Risk {
	switch {
	case !t.StartBy.IsZero() && start.After(t.StartBy):
		return RiskAfterStartBy
	case start.After(t.Due):
		return RiskAfterDue
	default:
		return NoRisk
	}
}

// hopeless says why no worker could ever run a task, as far as is known: of the other instances only the slots are, so while they have any
// it may fit there.
func (c *Core) hopeless(t *Task) Risk {
	if t.Spec.Shape == nil || c.elsewhere[t.Kind] > 0 {
		return NoRisk
	}
	switch c.pool.Hopeless(t.need()) {
	case placement.AllDraining:
		return RiskNoWorker
	case placement.Unselected:
		return RiskNoMatch
	case placement.NeverFits:
		return RiskNeverFits
	default:
		return NoRisk
	}
}

func (t *Task) need() placement.Need {
	return placement.Need{Tenant: t.Tenant, Kind: t.Kind, Suspect: t.Suspect, Shape: t.Spec.Shape}
}

// roomWait is how many seconds pass until a slot is the task's.
func (c *Core) roomWait(t *Task, ahead float64, load placement.Load, elsewhere int) float64 {
	may, _ := c.eager(t)
	part := fills[may].Part
	if ahead == 0 && t.Spec.Shape != nil && c.pool.Fits(t.need(), fills[may]) == placement.Placed {
		return 0
	}
	if ahead == 0 && t.Spec.Shape == nil && (load.OwnUsed < load.Own || float64(load.SharedUsed) < math.Ceil(part*float64(load.Shared))) {
		return 0
	}
	shared := float64(load.Shared + elsewhere)
	if share := c.shareOf(t.need()); t.Spec.Shape != nil && share > 0 {
		shared = 1 / share
	}
	slots := float64(load.Own) + part*shared*c.fairOfWaiting(t.Tenant)
	return (ahead + 1) * c.costs.usual.Expect(costKey{t.Tenant, t.Kind}) / slots
}

// fairOfWaiting is the part of the capacity that is the tenant's among those that have something waiting which only room holds back.
func (c *Core) fairOfWaiting(tenant string) float64 {
	weight, all := c.shares.Weight(tenant), c.waiting.weight
	if of := c.waiting.tallies[tenant]; of == nil || of.lines == 0 {
		all += weight
	}
	return weight / max(all, weight)
}

// ahead is how many tasks of a tenant's kind wait that go before a new one of the tier, as far as is known.
func (c *Core) ahead(tenant, kind string, tier Tier) float64 {
	of := c.waiting.tallies[tenant]
	if of == nil {
		return 0
	}
	n := 0.0
	for _, one := range Tiers {
		if one <= tier {
			n += of.waits(kind, one, c.stock[stockKey{tenant, one}])
		}
	}
	return n
}

// waits is how many tasks of a kind and tier wait: those that are buffered and, when the store has more, the same part of what is open
// there.
func (t *tally) waits(kind string, tier Tier, open int64) float64 {
	here, of := 0, t.rows[tier]
	if k := t.kinds[kind]; k != nil {
		here = k.rows[tier]
	}
	rest := open - int64(of)
	if t.behind[tier] == 0 || rest <= 0 {
		return float64(here)
	}
	if of == 0 { // nothing is known of the kinds: it may be all of this one
		return float64(rest)
	}
	return float64(here) * float64(open) / float64(of)
}

// gateWait is how many seconds pass until the gates let a new task through, and false when nobody knows: something is paused.
func (c *Core) gateWait(t *Task, before int, now time.Time) (float64, bool) {
	wait := 0.0
	for _, g := range c.gates.of(t.Tenant, t.Kind, t.Spec.Limits) {
		if g.closed {
			return 0, false
		}
		if g.admits(now, c.gates.parts) && len(g.waiting) == 0 {
			continue
		}
		ahead := g.rowsHeld() + float64(before) + 1
		if slots := g.slots - g.overhang; g.capped {
			wait = max(wait, ahead*c.costs.usual.Expect(costKey{t.Tenant, t.Kind})/float64(max(slots, 1)))
		}
		if rate := g.bucket.Rate; rate > 0 {
			wait = max(wait, ahead/rate)
		}
	}
	return wait, true
}

// rowsHeld is about how many rows a gate holds back.
func (g *gate) rowsHeld() float64 {
	n := 0
	sample := g.waiting[:min(len(g.waiting), gateSample)]
	for _, buf := range sample {
		n += len(buf.rows)
	}
	return float64(n) * float64(len(g.waiting)) / float64(max(len(sample), 1))
}
