package engine

import (
	"slices"
	"time"

	"github.com/errandhq/errand/fairness"
	"github.com/errandhq/errand/regions"
	"github.com/errandhq/errand/scheduler"
)

// division is which part of every cap is this instance's. It shrinks at once, and grows only after everyone else has had time to
// shrink, and no row of an instance that is gone is running any more: so the parts in use never exceed the cap.
type division struct {
	target  fairness.Part // by the sessions as they were seen last
	parts   []fairness.Part
	settled bool          // nothing but the target holds
	at      time.Duration // when the target changed last
	asked   bool
	askAt   time.Duration
	asking  pipe
}

func newDivision() division { return division{asking: pipe{name: "orphans", limit: 1}} }

// divideAmong takes note of the region's sessions, this one among them.
func (e *Engine) divideAmong(sessions []scheduler.SessionID) {
	slices.SortFunc(sessions, scheduler.SessionID.Compare)
	d := &e.division
	target := fairness.Part{Of: len(sessions), Number: slices.Index(sessions, e.session.id)}
	if target == d.target {
		return
	}
	d.target, d.settled, d.at, d.askAt = target, false, e.local, 0
	if len(d.parts) > 0 && !slices.Contains(d.parts, target) {
		e.setParts(append(slices.Clone(d.parts), target))
	}
}

func (e *Engine) setParts(parts []fairness.Part) {
	e.division.parts = parts
	e.core.Step(scheduler.PartChanged{Parts: parts})
}

// divide lets the present division hold when nobody can use an older one any more.
func (e *Engine) divide() {
	d := &e.division
	// Every other instance has renewed its session by then and has seen this one, or trusts its session no more. Alone, one more look
	// at the sessions shows who came at the same moment.
	wait := e.timing.SessionTTL
	if d.target.Of <= 1 && len(d.parts) == 0 {
		wait = e.timing.Renewal + e.timing.RenewalCall
	}
	if d.settled || d.asked || !e.trusted() || d.target.Of == 0 || e.local < max(d.at+wait, d.askAt) {
		return
	}
	d.asked = true
	all := make([]uint8, regions.ShardsPerRegion)
	for i := range all {
		all[i] = uint8(i)
	}
	target := d.target
	e.run(&d.asking, scheduler.OrphanQuery{Region: e.region, Shards: all, Limit: 1}, func(s *statement, answer any, err error) {
		e.finish(s)
		d := &e.division
		d.asked, d.askAt = false, e.local+e.timing.Reclaim
		if err != nil || len(answer.([]scheduler.Held)) > 0 || d.target != target {
			return
		}
		d.settled = true
		e.setParts([]fairness.Part{target})
	})
}
