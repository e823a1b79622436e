package scheduler

import (
	"container/heap"
	"time"

	"github.com/errandhq/errand/fairness"
)

// level is one class of urgency: the waiting buffers that are served at it, by tenant. Urgent buffers of a tenant that has used up
// its urgent share are served at the standard level.
type level struct {
	turns   *fairness.Queue // tenants with something that may start
	overdue *fairness.Queue // those whose first row is overdue
	reserve *fairness.Queue // those that may have what is kept free, as far as is known
	lines   map[string]*line
	coming  lineHeap // lines whose first row is not overdue yet, by when it will be

	buffers int             // in lines
	alike   map[likeKey]int // the same, by what a refusal by the shared workers answers for
	// hopeless is how many of the buffers a refusal answers for in the present round, by the part of the capacity that was refused.
	hopeless [fillCount]int
}

// line is what one tenant has waiting at a level, the earliest due first.
type line struct {
	tenant  string
	buffers bufferHeap
	index   int // in the level's coming; -1 when its first row is overdue
}

// due is when its first row is due.
func (l *line) due() time.Time { return l.buffers[0].due() }

func newLevel(shares *fairness.Shares) *level {
	return &level{
		turns: shares.NewQueue(), overdue: shares.NewQueue(), reserve: shares.NewQueue(),
		lines: map[string]*line{}, alike: map[likeKey]int{},
	}
}

// insert puts a buffer into its tenant's line.
func (v *level) insert(buf *buffer) {
	tenant := buf.key.tenant
	l := v.lines[tenant]
	if l == nil {
		l = &line{tenant: tenant, index: -1}
		v.lines[tenant] = l
		heap.Push(&l.buffers, buf)
		heap.Push(&v.coming, l)
		v.turns.Add(tenant)
		v.reserve.Add(tenant)
	} else {
		heap.Push(&l.buffers, buf)
		v.settle(l)
	}
	buf.level = v
	v.buffers++
	v.alike[buf.like()]++
}

// extract takes a buffer out of its line.
func (v *level) extract(buf *buffer) {
	l := v.lines[buf.key.tenant]
	heap.Remove(&l.buffers, buf.index)
	buf.level = nil
	v.buffers--
	if v.alike[buf.like()]--; v.alike[buf.like()] == 0 {
		delete(v.alike, buf.like())
	}
	if len(l.buffers) > 0 {
		v.settle(l)
		return
	}
	delete(v.lines, l.tenant)
	v.turns.Remove(l.tenant)
	v.overdue.Remove(l.tenant)
	v.reserve.Remove(l.tenant)
	if l.index >= 0 {
		heap.Remove(&v.coming, l.index)
	}
}

// moved tells that a buffer has another first row.
func (v *level) moved(buf *buffer) {
	l := v.lines[buf.key.tenant]
	heap.Fix(&l.buffers, buf.index)
	v.settle(l)
}

// settle takes note of a line's first row. Whether it is overdue is seen at the next [level.pass].
func (v *level) settle(l *line) {
	if l.index >= 0 {
		heap.Fix(&v.coming, l.index)
		return
	}
	v.overdue.Remove(l.tenant)
	heap.Push(&v.coming, l)
}

// pass lets the tenants whose first row has become overdue into their queue.
func (v *level) pass(now time.Time) {
	for len(v.coming) > 0 && v.coming[0].due().Before(now) {
		l := heap.Pop(&v.coming).(*line)
		v.overdue.Add(l.tenant)
	}
}

// mayReserve tells that a tenant may hold little now.
func (v *level) mayReserve(tenant string) {
	if v.lines[tenant] != nil {
		v.reserve.Add(tenant)
	}
}

// reserving is the queue of the tenants that may have what is kept free, without those that hold much by now.
func (v *level) reserving(holdsMuch func(tenant string) bool) *fairness.Queue {
	for tenant, _, some := v.reserve.Peek(); some && holdsMuch(tenant); tenant, _, some = v.reserve.Peek() {
		v.reserve.Remove(tenant)
	}
	return v.reserve
}

// refused takes note in a round that nothing of a class and need starts any more when no more than a part of the capacity may be used.
func (v *level) refused(like likeKey, f fill, n int) {
	v.hopeless[f] += n * v.alike[like]
}

// lineHeap orders lines by when their first row is due, then by tenant.
type lineHeap []*line

func (h lineHeap) Len() int { return len(h) }
func (h lineHeap) Less(i, j int) bool {
	a, b := h[i].due(), h[j].due()
	if !a.Equal(b) {
		return a.Before(b)
	}
	return h[i].tenant < h[j].tenant
}

func (h lineHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].index, h[j].index = i, j
}

func (h *lineHeap) Push(x any) {
	l := x.(*line)
	l.index = len(*h)
	*h = append(*h, l)
}

func (h *lineHeap) Pop() any {
	old := *h
	l := old[len(old)-1]
	old[len(old)-1] = nil
	*h = old[:len(old)-1]
	l.index = -1
	return l
}
