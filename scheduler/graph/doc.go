// Package graph decides what tasks that wait for other tasks may do. It is pure, and knows no task: names, edges, outcomes.
//
// A graph is checked once, when it is submitted ([Check]): names stand for one task each, parents exist, and nothing waits for
// itself, however long the way. A child can name only what exists already, so no later submission can close a cycle: there is
// no call that adds an edge between two tasks that are stored.
//
// From then on each edge is open until its parent has ended, and then has the parent's outcome for ever. [Evaluate] says what a
// child does, from which outcomes there are among its edges: it needs no counts, so none can be wrong. Its answer, once it is
// not to wait, never changes: edges only go from open to an outcome. So whoever evaluates a child after the last of its edges
// was closed is right, in whatever order and however often the steps before were executed.
package graph
