package scheduler

import (
	"time"
)

// Bounds of the ready buffers. A tenant with ten million tasks occupies no more memory than one with a thousand.
const (
	groupRowsMin = 32   // what a group of rows starts with
	groupRowsMax = 4096 // what one that drains fast grows to
	// refillPause is the least time between two refills of one group when the first brought nothing new.
	refillPause = 250 * time.Millisecond
)

// waiting is one buffered row.
type waiting struct {
	id      ID
	attempt int64
	due     time.Time
	state   State
	size    int
	buffer  *buffer
	index   int // in the buffer's heap
}

// row is what was buffered.
func (w *waiting) row() ReadyRow {
	k := w.buffer.key
	return ReadyRow{
		ID: w.id, Attempt: w.attempt, State: w.state, Tenant: k.tenant, Kind: w.buffer.kind, Tier: k.tier, Class: k.class,
		Due: w.due, PayloadSize: w.size, Suspect: k.suspect,
	}
}

// buffer orders the buffered rows that one refusal answers for: one tenant, tier and class, suspects apart from the others.
type buffer struct {
	key   bufferKey
	kind  string
	group *group
	rows  rowHeap
	index int // in its tenant's heap; -1 when it is not there
}

type bufferKey struct {
	tenant  string
	tier    Tier
	class   Class
	suspect bool
}

// head is the row that is served first.
func (b *buffer) head() *waiting { return b.rows[0] }

// group is what one refill brings: the rows that share a key in the store's index. Two classes may share one.
type group struct {
	key        BufferKey
	rows       int  // buffered now
	want       int  // how many a refill asks for
	behind     bool // the store has, or may have, ready rows that are not buffered
	asked      bool // a refill is in flight
	pauseUntil time.Time
	refilledAt time.Time
	latest     time.Time // the largest due buffered since the group was last empty
}

// accepts tells whether a row that is known to be ready is buffered, or left to a later refill.
func (g *group) accepts(due time.Time) bool {
	switch {
	case g.rows >= 2*groupRowsMax:
		return false
	case g.behind && g.rows > 0:
		return due.Before(g.latest) // it would be served before rows that are here
	default:
		return g.rows < groupRowsMax
	}
}

// needsRefill tells whether the store should be asked for more rows.
func (g *group) needsRefill(now time.Time) bool {
	return g.behind && !g.asked && g.rows <= g.want/2 && !now.Before(g.pauseUntil)
}

// refilled takes note of a refill's answer: how many new rows it brought, and whether it showed all there is.
func (g *group) refilled(brought int, complete bool, now time.Time) {
	g.asked, g.behind, g.refilledAt = false, !complete, now
	if complete {
		return
	}
	g.want = min(g.want*2, groupRowsMax)
	if brought == 0 { // all it showed is in flight already
		g.pauseUntil = now.Add(refillPause)
	}
}

// rowHeap orders rows by due, then ID.
type rowHeap []*waiting

func (h rowHeap) Len() int { return len(h) }
func (h rowHeap) Less(i, j int) bool {
	if !h[i].due.Equal(h[j].due) {
		return h[i].due.Before(h[j].due)
	}
	return h[i].id.Compare(h[j].id) < 0
}

func (h rowHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].index, h[j].index = i, j
}

func (h *rowHeap) Push(x any) {
	w := x.(*waiting)
	w.index = len(*h)
	*h = append(*h, w)
}

func (h *rowHeap) Pop() any {
	old := *h
	w := old[len(old)-1]
	old[len(old)-1] = nil
	*h = old[:len(old)-1]
	w.index = -1
	return w
}

// bufferHeap orders the buffers of one tenant and tier by their heads.
type bufferHeap []*buffer

func (h bufferHeap) Len() int { return len(h) }
func (h bufferHeap) Less(i, j int) bool {
	a, b := h[i].head(), h[j].head()
	if !a.due.Equal(b.due) {
		return a.due.Before(b.due)
	}
	return a.id.Compare(b.id) < 0
}

func (h bufferHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].index, h[j].index = i, j
}

func (h *bufferHeap) Push(x any) {
	b := x.(*buffer)
	b.index = len(*h)
	*h = append(*h, b)
}

func (h *bufferHeap) Pop() any {
	old := *h
	b := old[len(old)-1]
	old[len(old)-1] = nil
	*h = old[:len(old)-1]
	b.index = -1
	return b
}
