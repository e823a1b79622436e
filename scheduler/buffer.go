package scheduler

import (
	"cmp"
	"time"

	"github.com/errandhq/errand/placement"
)

// waiting is one buffered row.
type waiting struct {
	id      ID
	attempt int64
	due     time.Time
	state   State
	size    int
	avoid   WorkerID // where its last attempt has just failed
	buffer  *buffer
	index   int // in the buffer's heap
}

// row is what was buffered.
func (w *waiting) row() ReadyRow {
	k := w.buffer.key
	return ReadyRow{
		ID: w.id, Attempt: w.attempt, State: w.state, Tenant: k.tenant, Kind: w.buffer.kind, Tier: k.tier, Class: k.class,
		Due: w.due, PayloadSize: w.size, Suspect: k.suspect, Limits: w.buffer.limits, Shape: w.buffer.shape, Allowed: w.buffer.allowed, Avoid: w.avoid,
	}
}

// compare orders rows by due, then ID.
func (w *waiting) compare(other *waiting) int {
	return cmp.Or(w.due.Compare(other.due), w.id.Compare(other.id))
}

// buffer orders the buffered rows that one refusal answers for: one tenant, tier and class, suspects apart from the others.
type buffer struct {
	key     bufferKey
	kind    string
	group   *group
	ofKind  *kindTally
	limits  []LimitKey // that its rows must pass
	shape   *placement.Shape
	allowed []string // regions where its rows may run; nil for any
	rows    rowHeap
	level   *level        // in whose line it stands; nil while it is set aside
	shift   time.Duration // how much later than they say its rows are due, being served at a lower level
	index   int           // in its tenant's line; -1 when it is not there
	parked  bool          // no worker could run it
	gate    *gate         // that is closed for it
	spot    int           // among those that wait for the gate

	cramped bool      // it is among those that find no room
	passed  time.Time // since when others start where it could; zero while none does
}

type bufferKey struct {
	tenant  string
	tier    Tier
	class   Class
	suspect bool
}

// compare orders buffers by their keys.
func (k bufferKey) compare(other bufferKey) int {
	suspect := func(k bufferKey) int {
		if k.suspect {
			return 1
		}
		return 0
	}
	return cmp.Or(
		cmp.Compare(k.tier, other.tier), cmp.Compare(k.tenant, other.tenant),
		cmp.Compare(k.class, other.class), cmp.Compare(suspect(k), suspect(other)),
	)
}

// head is the row that is served first.
func (b *buffer) head() *waiting { return b.rows[0] }

// due is when its first row is due where it is served.
func (b *buffer) due() time.Time { return b.rows[0].due.Add(b.shift) }

// before orders buffers by when they are due, then by the IDs at their heads.
func (b *buffer) before(other *buffer) bool {
	return cmp.Or(b.due().Compare(other.due()), b.head().id.Compare(other.head().id)) < 0
}

// rowHeap orders rows by due, then ID.
type rowHeap []*waiting

func (h rowHeap) Len() int           { return len(h) }
func (h rowHeap) Less(i, j int) bool { return h[i].compare(h[j]) < 0 }
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

// bufferHeap orders the buffers of one line.
type bufferHeap []*buffer

func (h bufferHeap) Len() int           { return len(h) }
func (h bufferHeap) Less(i, j int) bool { return h[i].before(h[j]) }
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
