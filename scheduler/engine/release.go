package engine

import (
	"errors"
	"slices"
	"time"

	"github.com/errandhq/errand/scheduler"
)

// Bounds of releasing children.
const (
	releasesPendingMax = 20_000      // parents that wait here; those beyond are found by their wake time
	releaseGrace       = time.Second // how long whoever wrote an end has for its release before others look
	releasesInFlight   = 2
)

// releases lets the children of ended parents go. The instance that writes an end begins at once; whoever serves the parent's lane
// repeats what was not finished. Nothing here must be remembered: the wake time of the parent's row stands until all is done.
type releases struct {
	closing, evaluating, resting pipe
	parents                      []releasing
	known                        map[scheduler.ID]bool // parents that wait, or are under way
	children                     []scheduler.ID        // blocked, and to be evaluated by themselves
	fresh                        map[scheduler.ID]bool // whether it is a sweep that looks, rather than who stored them
	rest                         []scheduler.SeenParent
}

// releasing is a parent whose children are being looked at.
type releasing struct {
	page  scheduler.ParentPage
	wake  time.Time // as read with the first page
	swept bool      // found by its wake time, not by its end
}

func newReleases() releases {
	return releases{
		closing:    pipe{name: "close_edges", limit: releasesInFlight},
		evaluating: pipe{name: "release", limit: 2 * releasesInFlight},
		resting:    pipe{name: "rest", limit: 1},
		known:      map[scheduler.ID]bool{},
		fresh:      map[scheduler.ID]bool{},
	}
}

// releaseChildren begins with the children of a parent that has just ended.
func (e *Engine) releaseChildren(id scheduler.ID) { e.addParent(id, false) }

func (e *Engine) addParent(id scheduler.ID, swept bool) {
	of := e.byNumber[id.Region()]
	if of == nil { // canceled from here, and not served: its own region finds it
		return
	}
	q := &of.releases
	if q.known[id] || len(q.parents) >= releasesPendingMax {
		return
	}
	q.known[id] = true
	q.parents = append(q.parents, releasing{page: scheduler.ParentPage{ID: id}, swept: swept})
}

// releaseFresh looks at blocked tasks that were just stored here.
func (e *Engine) releaseFresh(ids []scheduler.ID) { e.addChildren(ids, false) }

func (e *Engine) addChildren(ids []scheduler.ID, swept bool) {
	for _, id := range ids {
		of := e.byNumber[id.Region()]
		if of == nil {
			continue
		}
		q := &of.releases
		if _, known := q.fresh[id]; !known && len(q.children) < releasesPendingMax {
			q.fresh[id] = swept
			q.children = append(q.children, id)
		}
	}
}

// sweepReleases takes rows whose wake time says that a release was not finished.
func (e *Engine) sweepReleases(r *scheduler.ReadyRow) {
	if r.State == scheduler.Blocked {
		e.addChildren([]scheduler.ID{r.ID}, true)
		return
	}
	e.addParent(r.ID, true)
}

// release runs the steps of what waits, as far as the pipelines have room.
func (e *Engine) release() {
	if e.stopping {
		return // others look soon
	}
	for _, of := range e.served {
		e.releaseIn(of)
		e.rest(of)
	}
}

func (e *Engine) releaseIn(of *served) {
	q := &of.releases
	for q.closing.free() && q.evaluating.free() && len(q.parents) > 0 {
		n := min(len(q.parents), scheduler.ReleaseParentsMax)
		batch := slices.Clone(q.parents[:n])
		q.parents = append(q.parents[:0:0], q.parents[n:]...)
		e.closeEdges(of, batch)
	}
	for q.evaluating.free() && len(q.children) > 0 {
		n := min(len(q.children), scheduler.ReleasePageMax)
		ids := slices.Clone(q.children[:n])
		q.children = append(q.children[:0:0], q.children[n:]...)
		e.evaluate(of, ids, true, func(id scheduler.ID) bool { return q.fresh[id] }, func(bool) {
			for _, id := range ids {
				delete(q.fresh, id)
			}
		})
	}
}

// rest takes away the wake times of parents whose children have all been looked at.
func (e *Engine) rest(of *served) {
	q := &of.releases
	if !q.resting.free() || len(q.rest) == 0 {
		return
	}
	n := min(len(q.rest), scheduler.BatchRowsMax)
	b := scheduler.RestBatch{Region: of.name, Parents: slices.Clone(q.rest[:n])}
	q.rest = append(q.rest[:0:0], q.rest[n:]...)
	e.run(&q.resting, b, func(s *statement, _ any, err error) {
		e.finishRelease(s, err)
		for _, p := range b.Parents {
			delete(q.known, p.ID)
		}
	})
}

// closeEdges marks the edges of a page of each parent, and then has the children evaluated, each once.
func (e *Engine) closeEdges(of *served, batch []releasing) {
	limit := min(max(scheduler.ReleaseEdgesMax/len(batch), 20), scheduler.ReleasePageMax)
	b := scheduler.CloseEdges{Region: of.name, Limit: limit}
	for i := range batch {
		b.Parents = append(b.Parents, batch[i].page)
	}
	e.observe.Batch("close_edges", len(batch))
	e.run(&of.releases.closing, b, func(s *statement, answer any, err error) {
		e.finishRelease(s, err)
		if err != nil {
			of.releases.dropParents(batch)
			return
		}
		var ids []scheduler.ID
		swept := map[scheduler.ID]bool{} // children that only a sweep has found
		for i, c := range answer.([]scheduler.Closed) {
			r := &batch[i]
			if r.page.After.IsZero() {
				r.wake = c.Wake
			}
			for _, id := range c.Children {
				found, before := swept[id]
				if !before {
					ids = append(ids, id)
				}
				swept[id] = r.swept && (found || !before)
			}
			if r.page.After = (scheduler.ID{}); len(c.Children) == limit {
				r.page.After = c.Children[limit-1]
			}
		}
		e.evaluate(of, ids, false, func(id scheduler.ID) bool { return swept[id] }, func(ok bool) { of.releases.pageDone(batch, ok) })
	})
}

// finishRelease forgets a step, whatever became of it: after an error the parent's wake time stands, and the step is done again.
func (e *Engine) finishRelease(s *statement, err error) {
	if err != nil {
		e.observe.StatementFailed(s.pipe.name, s.tries, err)
	}
	e.finish(s)
}

// pageDone goes on with the parents that have more children, and lets the others rest.
func (q *releases) pageDone(batch []releasing, ok bool) {
	if !ok {
		q.dropParents(batch)
		return
	}
	for i := range batch {
		switch r := &batch[i]; {
		case !r.page.After.IsZero():
			q.parents = append(q.parents, *r)
		case r.wake.IsZero():
			delete(q.known, r.page.ID)
		default:
			q.rest = append(q.rest, scheduler.SeenParent{ID: r.page.ID, Wake: r.wake})
		}
	}
}

// dropParents forgets parents after an error: their wake time stands, and somebody looks again.
func (q *releases) dropParents(batch []releasing) {
	for i := range batch {
		delete(q.known, batch[i].page.ID)
	}
}

// evaluate looks at blocked tasks in pages. done is called once all are looked at, with whether all went well.
func (e *Engine) evaluate(of *served, ids []scheduler.ID, fresh bool, swept func(scheduler.ID) bool, done func(ok bool)) {
	pages, good := slices.Collect(slices.Chunk(ids, scheduler.ReleasePageMax)), true
	open := len(pages)
	if open == 0 {
		done(true)
		return
	}
	for _, page := range pages {
		b := scheduler.ReleaseBatch{Region: of.name, IDs: page, Fresh: fresh}
		e.evaluatePage(of, b, swept, func(ok bool) {
			good = good && ok
			if open--; open == 0 {
				done(good)
			}
		})
	}
}

func (e *Engine) evaluatePage(of *served, b scheduler.ReleaseBatch, swept func(scheduler.ID) bool, done func(ok bool)) {
	e.run(&of.releases.evaluating, b, func(s *statement, answer any, err error) {
		e.finishRelease(s, err)
		switch {
		case err != nil && len(b.IDs) > 1 && !errors.Is(err, scheduler.ErrUnavailable): // one row must not hold up the others
			half, good, open := len(b.IDs)/2, true, 2
			for _, ids := range [][]scheduler.ID{b.IDs[:half], b.IDs[half:]} {
				e.evaluatePage(of, scheduler.ReleaseBatch{Region: b.Region, IDs: ids, Fresh: b.Fresh}, swept, func(ok bool) {
					good = good && ok
					if open--; open == 0 {
						done(good)
					}
				})
			}
		case err != nil:
			done(false)
		default:
			e.released(answer.([]scheduler.Released), swept)
			done(true)
		}
	})
}

// released takes up the children that were let go, or ended for their parents.
func (e *Engine) released(answers []scheduler.Released, swept func(scheduler.ID) bool) {
	var ready []scheduler.ReadyRow
	freed, forsaken, repairs := 0, 0, 0
	for i := range answers {
		a := &answers[i]
		if a.Verdict != scheduler.Won {
			continue
		}
		if a.Parent && a.State.Terminal() {
			e.releaseChildren(a.ID)
		}
		if swept(a.ID) {
			repairs++
		}
		switch {
		case a.State.Terminal():
			forsaken++
			e.ended = append(e.ended, a.ID)
			continue
		case a.State == scheduler.Ready:
			ready = append(ready, a.Row.ReadyRow)
		case e.lanes[a.ID.Shard()]:
			e.addTimer(a.Row)
		default:
			e.hint(a.ID, scheduler.BufferKey{Tenant: a.Row.Tenant, Tier: a.Row.Tier, Class: a.Row.Class.Hash()}, true)
		}
		freed++
	}
	e.observe.Rows("released", freed)
	e.observe.Rows("forsaken", forsaken)
	e.observe.Rows("repairs", repairs)
	if len(ready) > 0 {
		e.offer(ready)
	}
}
