package engine

import (
	"slices"
	"time"

	"github.com/errandhq/errand/fairness"
	"github.com/errandhq/errand/regions"
	"github.com/errandhq/errand/scheduler"
)

// division is which part of every cap is this instance's. It shrinks at once, and grows only when nobody can use what it grows by: every
// other instance has had time to shrink, no row of an instance that is gone is running any more, and what others run beyond
// their parts is known. So all running rows together never exceed a cap.
type division struct {
	sessions []scheduler.SessionID // that it is among, in order
	idle     []scheduler.SessionID // that have no part; what they have taken over nevertheless is read like the others' rows
	usedAt   time.Duration         // when this instance last had a worker or an attempt
	target   fairness.Part
	parts    []fairness.Part // in force: what all of them have may be used
	expired  bool            // one of the sessions has expired and is not ended: it may have rows, and cannot shrink
	settled  bool            // nothing but the target is in force
	changed  time.Duration   // when the target changed last

	asked  bool
	askAt  time.Duration
	asking pipe
	others []scheduler.SessionID // whose rows are read still
	rows   []scheduler.Held      // read so far
}

func newDivision() division { return division{asking: pipe{name: "running", limit: 1}} }

// idle tells whether this instance should leave its part of every cap to others: without workers it starts nothing. Alone it keeps
// it: nobody else could use it.
func (e *Engine) idle() bool {
	return len(e.home.others) > 0 && e.local-e.division.usedAt >= e.timing.SessionTTL
}

// noticeUse takes note of whether this instance can use its part. One that has given it up asks for it as soon as it can.
func (e *Engine) noticeUse() {
	d := &e.division
	if len(e.workers.byID) == 0 && len(e.workers.coming) == 0 && e.core.Attempts() == 0 {
		return
	}
	if d.usedAt = e.local; e.home.idle && !e.home.asked {
		e.home.askedAt = min(e.home.askedAt, e.local-e.timing.Renewal)
	}
}

// giveUpPart lets go of this instance's part of every cap, until it is among those that have one again.
func (e *Engine) giveUpPart() {
	if d := &e.division; len(d.parts) > 0 || d.target.Of > 0 {
		*d = division{asking: d.asking, asked: d.asked, usedAt: d.usedAt}
		e.setParts(nil)
	}
}

// divideAmong takes note of the region's sessions: those that have a part of every cap, and those that have none.
func (e *Engine) divideAmong(sessions, idle []scheduler.SessionID, expired bool) {
	slices.SortFunc(sessions, scheduler.SessionID.Compare)
	d := &e.division
	d.expired, d.idle = expired, idle
	if e.home.idle || slices.Equal(sessions, d.sessions) {
		return
	}
	target := e.partOf(sessions, e.home.id)
	d.sessions, d.target, d.settled, d.changed, d.askAt = sessions, target, false, e.local, 0
	if len(d.parts) > 0 && !slices.Contains(d.parts, target) {
		e.setParts(append(slices.Clone(d.parts), target))
	}
}

func (e *Engine) partOf(sessions []scheduler.SessionID, id scheduler.SessionID) fairness.Part {
	return fairness.Part{Of: len(sessions), Number: slices.Index(sessions, id)}
}

func (e *Engine) setParts(parts []fairness.Part) {
	e.division.parts = parts
	e.core.Step(scheduler.PartChanged{Parts: parts})
}

// divide lets the present division hold when nobody can use an older one any more, and looks again at what others run beyond their parts
// as long as they do.
func (e *Engine) divide() {
	e.noticeUse()
	d := &e.division
	// Every other instance has renewed its session by then and has seen this one, or trusts its session no more. Alone, one more look
	// at the sessions shows who came at the same moment.
	wait := e.timing.SessionTTL
	if d.target.Of <= 1 && len(d.parts) == 0 {
		wait = e.timing.Renewal + e.timing.RenewalCall
	}
	switch {
	case d.asked || !e.trusted() || d.target.Of == 0 || e.local < max(d.changed+wait, d.askAt):
	case d.settled && !e.core.Overhang():
	case d.expired:
		d.askAt = e.local + e.timing.Reclaim
	default:
		e.readOrphans()
	}
}

// readOrphans begins the look: rows of sessions that are ended are nobody's, and count for no part.
func (e *Engine) readOrphans() {
	d := &e.division
	all := make([]uint8, regions.ShardsPerRegion)
	for i := range all {
		all[i] = e.home.number*regions.ShardsPerRegion + uint8(i)
	}
	d.asked, d.rows = true, nil
	d.others = slices.DeleteFunc(slices.Concat(d.sessions, d.idle), func(id scheduler.SessionID) bool { return id == e.home.id })
	sessions := d.sessions
	e.run(&d.asking, scheduler.OrphanQuery{Region: e.home.name, Shards: all, Limit: 1}, func(s *statement, answer any, err error) {
		e.finish(s)
		if err != nil || len(answer.([]scheduler.Held)) > 0 || !slices.Equal(sessions, e.division.sessions) {
			e.lookAgain()
			return
		}
		e.readOthers(sessions, scheduler.ID{})
	})
}

// readOthers reads what the others run, page by page.
func (e *Engine) readOthers(sessions []scheduler.SessionID, after scheduler.ID) {
	d := &e.division
	if len(d.others) == 0 {
		e.settleDivision()
		return
	}
	q := scheduler.RunningQuery{Region: e.home.name, Session: d.others[0], After: after, Limit: scheduler.BatchRowsMax}
	e.run(&d.asking, q, func(s *statement, answer any, err error) {
		e.finish(s)
		d := &e.division
		// Without others the part was given up meanwhile, and perhaps taken again among the same sessions.
		if err != nil || len(d.others) == 0 || !slices.Equal(sessions, d.sessions) {
			e.lookAgain()
			return
		}
		page := answer.([]scheduler.Held)
		d.rows = append(d.rows, page...)
		if len(page) < q.Limit {
			d.others = d.others[1:]
			e.readOthers(sessions, scheduler.ID{})
			return
		}
		e.readOthers(sessions, page[len(page)-1].ID)
	})
}

func (e *Engine) settleDivision() {
	d := &e.division
	parts := map[scheduler.SessionID]fairness.Part{}
	for _, id := range d.sessions {
		parts[id] = e.partOf(d.sessions, id)
	}
	d.settled = true
	e.core.Step(scheduler.OthersRun{Rows: d.rows, Parts: parts})
	e.setParts([]fairness.Part{d.target})
	e.lookAgain()
}

func (e *Engine) lookAgain() {
	d := &e.division
	d.asked, d.rows, d.others, d.askAt = false, nil, nil, e.local+e.timing.Reclaim
}
