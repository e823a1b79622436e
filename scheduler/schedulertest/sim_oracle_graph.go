package schedulertest

import (
	"reflect"
	"time"

	"github.com/errandhq/errand/scheduler"
	"github.com/errandhq/errand/scheduler/graph"
)

// sameEnd tells whether an end stands as it was, but for when its children are to be looked at.
func sameEnd(before, after *scheduler.Task) bool {
	a, b := *before, *after
	a.WakeAt, b.WakeAt, a.Parent, b.Parent = time.Time{}, time.Time{}, false, false
	return after.State.Terminal() && reflect.DeepEqual(a, b)
}

// leftBlocked judges a child that does not wait for its parents any more by how they stand, whatever the edges say.
func (o *oracle) leftBlocked(t *scheduler.Task) {
	if o.released[t.Ref]++; o.released[t.Ref] > 1 {
		o.failf("%s was let go %d times", t.Ref, o.released[t.Ref])
	}
	var edges graph.Edges
	for _, e := range o.s.memory.links.edges[t.Ref] {
		edges = edges.With(scheduler.OutcomeOf(o.s.memory.tasks[e.parent].State))
	}
	verdict := graph.Evaluate(t.Spec.Condition, edges)
	forsaken := t.State == scheduler.Canceled && t.Failure.Reason == scheduler.ReasonParents
	switch run := t.Spec.Impossible.OrDefault() == graph.Run; {
	case t.State.Terminal() && !forsaken: // canceled by somebody, or useless
	case forsaken && (verdict != graph.Impossible || run):
		o.failf("%s was canceled for its parents, and they say %s: %+v", t.Ref, verdict, edges)
	case !forsaken && verdict != graph.Release && (verdict != graph.Impossible || !run):
		o.failf("%s was made %s, and its parents say %s: %+v", t.Ref, t.State, verdict, edges)
	}
}
