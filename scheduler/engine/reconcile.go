package engine

import (
	"maps"
	"slices"
	"time"

	"github.com/errandhq/errand/scheduler"
)

// Bounds of the reviews.
const (
	reviewPage  = scheduler.BatchRowsMax // running rows per read
	reclaimPage = scheduler.BatchRowsMax
)

// review compares what the store says is running with what is known here.
type review struct {
	reading  pipe
	orphans  pipe
	at       time.Duration // when the last comparison began
	rows     map[scheduler.Token]bool
	before   []scheduler.Held // what the core held when the comparison began
	under    scheduler.SessionID
	suspects map[scheduler.Token]bool // rows that nobody knew of in the last comparison
	unknown  map[scheduler.Token]scheduler.Held
	// takenOver are attempts taken over since the comparison began: a read may have missed them.
	takenOver map[scheduler.Token]bool

	reclaimAt time.Duration
}

func newReview() review {
	return review{
		reading:  pipe{name: "running", limit: 1},
		orphans:  pipe{name: "orphans", limit: 1},
		suspects: map[scheduler.Token]bool{},

		takenOver: map[scheduler.Token]bool{},
	}
}

// reconcile starts a comparison in each region when it is time for one.
func (e *Engine) reconcile() {
	for _, s := range e.served {
		r := &s.review
		if !r.reading.free() || !e.trusts(s) || e.local-r.at < e.timing.Reconcile {
			continue
		}
		r.at, r.under = e.local, s.id
		r.rows = map[scheduler.Token]bool{}
		r.unknown = map[scheduler.Token]scheduler.Held{}
		r.takenOver = map[scheduler.Token]bool{}
		r.before = e.heldOf(s)
		e.readRunning(s, scheduler.ID{})
	}
}

// heldOf lists the attempts of a region's tasks.
func (e *Engine) heldOf(s *served) []scheduler.Held {
	return slices.DeleteFunc(e.core.Held(), func(h scheduler.Held) bool { return h.ID.Region() != s.number })
}

func (e *Engine) readRunning(s *served, after scheduler.ID) {
	q := scheduler.RunningQuery{Region: s.name, Session: s.id, After: after, Limit: reviewPage}
	e.run(&s.review.reading, q, func(st *statement, answer any, err error) {
		e.finish(st)
		if err != nil || s.review.under != s.id {
			return // the next comparison starts afresh
		}
		rows := answer.([]scheduler.Held)
		for i := range rows {
			e.compare(&s.review, &rows[i])
		}
		if len(rows) == reviewPage {
			e.readRunning(s, rows[len(rows)-1].ID)
			return
		}
		e.conclude(s)
	})
}

// compare takes one running row of this session.
func (e *Engine) compare(r *review, row *scheduler.Held) {
	r.rows[row.Token] = true
	known, held := e.core.Row(row.Token)
	switch {
	case held && row.CancelRequested && !known.CancelRequested:
		e.core.Step(scheduler.CancelAsked{Token: row.Token})
	case held:
	case e.comes(row.Token):
	default:
		r.unknown[row.Token] = *row
	}
}

// comes tells whether a statement under way is about this attempt.
func (e *Engine) comes(token scheduler.Token) bool {
	_, attaching := e.workers.coming[token]
	_, ending := e.strays[token]
	return attaching || ending
}

// conclude gives back rows that nobody knew of twice in a row, and drops attempts whose rows are not here any more.
func (e *Engine) conclude(s *served) {
	r := &s.review
	suspects := map[scheduler.Token]bool{}
	given := 0
	for _, token := range slices.SortedFunc(maps.Keys(r.unknown), func(a, b scheduler.Token) int { return a.ID.Compare(b.ID) }) {
		row := r.unknown[token]
		if !r.suspects[token] {
			suspects[token] = true
			continue
		}
		if _, held := e.core.Row(token); held || e.comes(token) {
			continue
		}
		if e.stray(scheduler.Withdrawn(&row, scheduler.ReasonUnknownToCore), row) {
			given++
		}
	}
	r.suspects = suspects
	if given > 0 {
		e.observe.Rows("reconciled", given)
		e.observe.Event("gave back running rows that nobody knew of", "rows", given, "session", s.id)
	}
	var missing []scheduler.Token
	for i := range r.before {
		token := r.before[i].Token
		switch {
		case r.rows[token] || r.takenOver[token] || !e.core.Holds(token) || e.comes(token):
		case e.talks(token.Worker): // perhaps a late take-over of an instance that it has left: only a write of our own tells
			e.attach(token, takeOver{})
		default:
			missing = append(missing, token)
		}
	}
	if len(missing) > 0 {
		e.observe.Rows("missing", len(missing))
		e.core.Step(scheduler.RowsMissing{Tokens: missing})
	}
	r.rows, r.before, r.unknown = nil, nil, nil
}

// talks tells whether a worker is connected here and was heard lately: then it is connected nowhere else.
func (e *Engine) talks(id scheduler.WorkerID) bool {
	w := e.workers.byID[id]
	return w != nil && w.stream != 0 && e.local-w.heard <= 2*e.timing.Heartbeat
}

// reclaim takes back running rows of this instance's lanes whose session has ended and that no instance took over. It is
// driven by the rows, not by the sessions: a session row that is gone altogether hides nothing.
func (e *Engine) reclaim() {
	for _, s := range e.served {
		r := &s.review
		if r.orphans.free() && e.steady(s) && len(s.shards) > 0 && e.local-r.reclaimAt >= e.timing.Reclaim {
			r.reclaimAt = e.local
			e.readOrphanRows(s)
		}
	}
}

func (e *Engine) readOrphanRows(s *served) {
	q := scheduler.OrphanQuery{Region: s.name, Shards: s.shards, Grace: e.timing.ReattachGrace, Limit: reclaimPage}
	e.run(&s.review.orphans, q, func(st *statement, answer any, err error) {
		e.finish(st)
		if err != nil {
			return
		}
		rows := answer.([]scheduler.Held)
		taken := 0
		for i := range rows {
			if e.core.Holds(rows[i].Token) || e.comes(rows[i].Token) {
				continue // being taken over by its worker right now
			}
			if e.stray(scheduler.Reclaimed(&rows[i]), rows[i]) {
				taken++
			}
		}
		if taken > 0 {
			e.observe.Rows("reclaimed", taken)
			e.observe.Event("reclaimed running rows of ended sessions", "rows", taken, "region", s.name)
		}
		if len(rows) == reclaimPage {
			s.review.reclaimAt = 0
		}
	})
}
