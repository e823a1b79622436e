package scheduler

import (
	"time"

	"github.com/errandhq/errand/scheduler/graph"
)

// This file holds what a scheduler asks of a store for tasks with parents. An end of a parent sets its wake time, if it has
// children, and nothing else. Then, step by step:
//
//  1. [CloseEdges] marks the edges to a page of its children with its outcome.
//  2. [ReleaseBatch] evaluates each of these children, in a statement that begins after the marks were committed, and lets those go
//     that need not wait. Whoever comes last sees all marks: nobody is missed, and nothing is counted.
//  3. [RestBatch] takes the parent's wake time away, unless it has got another child meanwhile.
//
// Each may be executed again, and a pass that stops between two of them is repeated by whoever finds the parent's wake time.

// Bounds of a release.
const (
	ReleasePageMax    = 500 // children of one parent per step
	ReleaseParentsMax = 100 // parents per step
	ReleaseEdgesMax   = 2000
)

// InsertLinked stores tasks that have parents, or children within the same call. Parents in other regions are not served yet, and taken
// for missing. What stands of each is answered as for an [Insert].
type InsertLinked struct {
	Region string
	// Ready, scheduled or blocked; Parents name tasks of the call or ones that exist, Parent tells who has children here. A WakeAt that is
	// not zero says of a blocked one that it is to be evaluated: one of its parents may have ended.
	Tasks []Task
	// Graph is not zero when the tasks are one graph, of this ID: all are stored or none.
	Graph       ID
	Key         string // the graph's idempotency key; empty for none
	Fingerprint []byte
}

// Linked is the answer to an [InsertLinked].
type Linked struct {
	Tasks []Inserted
	// Verdict is InsertStored of a graph that stands, or else why none of its tasks does; zero when the tasks are no graph.
	Verdict  InsertVerdict
	Existing Ref // the graph that stands for the key
	At       int // the task that was the cause
}

// ParentPage is a page of a parent's children.
type ParentPage struct {
	ID    ID
	After ID // children are listed by ID; zero is the beginning
}

// CloseEdges marks the edges from children to parents that have ended, at most Limit children of each.
type CloseEdges struct {
	Region  string
	Parents []ParentPage
	Limit   int
}

// Closed is the answer for one parent.
type Closed struct {
	ID       ID
	Wake     time.Time // its wake time, read before its children; zero when there is nothing to do
	Children []ID      // that may have waited for it, in order; Limit of them when there may be more
}

// ReleaseBatch evaluates blocked tasks. Fresh ones were just stored: their parents are looked at too, for one may have ended
// before it was known to have children.
type ReleaseBatch struct {
	Region string
	IDs    []ID
	Fresh  bool
}

// Released is the answer for one child. Verdict is Won when this execution has moved it.
type Released struct {
	ID      ID
	Verdict Verdict
	State   State    // where it stands now
	Parent  bool     // it has children itself
	Row     TimedRow // when it was won and is ready or scheduled
}

// SeenParent names an ended parent as it was read.
type SeenParent struct {
	ID   ID
	Wake time.Time
}

// RestBatch takes the wake times of ended parents away whose children have all been looked at.
type RestBatch struct {
	Region  string
	Parents []SeenParent
}

// OutcomeOf is what the edges to a task come to that stands so.
func OutcomeOf(s State) graph.Outcome {
	switch {
	case s == Succeeded:
		return graph.Succeeded
	case s.Terminal():
		return graph.Otherwise
	default:
		return graph.Open
	}
}

// ParentFailure is why a task is canceled whose parent, of those that did not succeed the first, has ended so.
func ParentFailure(spec *Spec, parent Ref, ended State) *Failure {
	how := "has " + ended.String()
	if ended == Canceled {
		how = "was canceled"
	}
	return &Failure{Reason: ReasonParents, Message: "its parent " + parent.String() + " " + how + ", and it runs only when " + spec.Condition.String()}
}
