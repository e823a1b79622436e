package scheduler

import (
	"cmp"
	"container/heap"
	"slices"
	"strings"
	"time"

	"github.com/errandhq/errand/placement"
)

// This file holds what one instance needs to know to hand waiting rows to another, or to ask for some.

// KindRoom is a kind and how many attempts of it could start now.
type KindRoom struct {
	Kind  string
	Slots int
}

// lendLookMax bounds the classes for which no offered room is found, of one answer: beyond it only rows that need a slot and nothing else are
// looked at.
const lendLookMax = 1024

// Spare lists the kinds for which pool workers have room that nothing here waits for, in the order of their names.
func (c *Core) Spare() []KindRoom {
	var spare []KindRoom
	for _, kind := range c.pool.Kinds() {
		if free := c.pool.FreeSlots(kind); free > 0 && !c.awaited(kind) {
			spare = append(spare, KindRoom{kind, free})
		}
	}
	slices.SortFunc(spare, func(a, b KindRoom) int { return strings.Compare(a.Kind, b.Kind) })
	return spare
}

// awaited tells whether rows of a kind wait here that may take what is free. Those that no worker here could run do not, nor those for
// which what is free of processors, memory or devices is not enough: free slots are for others then.
func (c *Core) awaited(kind string) bool {
	rows := c.waiting.perKind[kind]
	for _, buf := range c.waiting.parked[kind] {
		rows -= len(buf.rows)
	}
	for _, buf := range c.cramped {
		if buf.kind == kind && !buf.setAside() {
			rows -= len(buf.rows)
		}
	}
	return rows > 0
}

// Offers lists what is free on workers for other instances' rows, also on those of single tenants. See [placement.Pool.Offers].
func (c *Core) Offers(after WorkerID) ([]placement.Offer, WorkerID) {
	known := map[string]bool{}
	return c.pool.Offers(after, func(_, kind string) bool {
		awaited, asked := known[kind]
		if !asked {
			awaited = c.awaited(kind)
			known[kind] = awaited
		}
		return !awaited
	})
}

// Runnable keeps of lent rows those that a worker here could run which takes work. The others are found again by who lent them.
func (c *Core) Runnable(rows []ReadyRow) []ReadyRow {
	return slices.DeleteFunc(rows, func(r ReadyRow) bool {
		need := placement.Need{Tenant: r.Tenant, Kind: r.Kind, Suspect: r.Suspect, Shape: c.shapes.one(r.Class, r.Shape)}
		return c.pool.Hopeless(need) != placement.Placed
	})
}

// Starved lists the kinds of rows that wait here, in the order of their names. Right after Plan it means: they cannot start
// here now.
func (c *Core) Starved() []string { return c.waiting.kinds() }

// Borrower says to whom rows are lent.
type Borrower struct {
	Region    string    // that runs them, when it is not this one: rows that may not leave stay
	DueBefore time.Time // then: what was due by this time is overdue
	// Offers are workers with room. Without any, only rows are lent that need a slot and nothing else.
	Offers []placement.Offer
}

// Lend takes out rows that wait here and find room at the borrower, urgent ones first, then the earliest due, at most Slots of each kind on
// pool workers and limit in all. They are forgotten: should the borrower not claim them, the next discovery finds them again.
func (c *Core) Lend(kinds []KindRoom, limit int, to Borrower) []ReadyRow {
	room := newLentRoom(kinds, to.Offers)
	candidates := c.waiting.lendable(room.may)
	var lent []ReadyRow
	for len(lent) < limit && len(candidates) > 0 {
		buf := candidates[0]
		w := buf.head()
		// What is scheduled still is started or woken in this very turn.
		if w.state != Ready || !c.lends(buf, &to) || !room.take(buf.key.class, c.needOf(buf)) {
			heap.Pop(&candidates)
			continue
		}
		lent = append(lent, w.row())
		c.waiting.remove(w, c.now)
		if len(buf.rows) == 0 {
			heap.Pop(&candidates)
			continue
		}
		heap.Fix(&candidates, 0)
	}
	return lent
}

// lends tells whether a buffer's first row may be lent. Another region gets what is overdue, or sure to be since nobody in this region could
// run it; nothing that may not leave, and nothing that carries a named limit: its cap is this region's.
func (c *Core) lends(buf *buffer, to *Borrower) bool {
	if to.Region == "" {
		return true
	}
	late := buf.head().due.Before(to.DueBefore) || buf.parked && c.elsewhere[buf.kind] == 0
	return late && len(buf.limits) == 0 && (len(buf.allowed) == 0 || slices.Contains(buf.allowed, to.Region))
}

// lendable lists the buffers that a borrower may have room for, parked ones too, as a heap in the order in which they lend.
func (b *backlog) lendable(may func(*buffer) bool) lendHeap {
	var h lendHeap
	for _, buf := range b.buffers {
		if may(buf) {
			h = append(h, buf)
		}
	}
	heap.Init(&h)
	return h
}

// lendHeap orders buffers by tier, then by the rows at their heads.
type lendHeap []*buffer

func (h lendHeap) Len() int { return len(h) }
func (h lendHeap) Less(i, j int) bool {
	return cmp.Or(cmp.Compare(h[i].key.tier, h[j].key.tier), h[i].head().compare(h[j].head())) < 0
}
func (h lendHeap) Swap(i, j int) { h[i], h[j] = h[j], h[i] }
func (h *lendHeap) Push(x any)   { *h = append(*h, x.(*buffer)) }

func (h *lendHeap) Pop() any {
	old := *h
	b := old[len(old)-1]
	*h = old[:len(old)-1]
	return b
}
