package scheduler

import (
	"cmp"
	"container/heap"
	"slices"
	"strings"
	"time"
)

// This file holds what one instance needs to know to hand waiting rows to another, or to ask for some.

// KindRoom is a kind and how many attempts of it could start now.
type KindRoom struct {
	Kind  string
	Slots int
}

// Spare lists the kinds for which pool workers have room and no row waits here, in the order of their names.
func (c *Core) Spare() []KindRoom {
	var spare []KindRoom
	for _, kind := range c.pool.Kinds() {
		if free := c.pool.FreeSlots(kind); free > 0 && !c.waiting.has(kind) {
			spare = append(spare, KindRoom{kind, free})
		}
	}
	slices.SortFunc(spare, func(a, b KindRoom) int { return strings.Compare(a.Kind, b.Kind) })
	return spare
}

// Starved lists the kinds of rows that wait here, in the order of their names. Right after Plan it means: they cannot start
// here now.
func (c *Core) Starved() []string { return c.waiting.kinds() }

// Borrower says to whom rows are lent.
type Borrower struct {
	Region    string    // that runs them, when it is not this one: rows that may not leave stay
	DueBefore time.Time // then: what was due by this time is overdue
}

// Lend takes out rows of the given kinds that wait here, urgent ones first, then the earliest due, at most Slots of each kind
// and limit in all. They are forgotten: should the borrower not claim them, the next discovery finds them again.
func (c *Core) Lend(kinds []KindRoom, limit int, to Borrower) []ReadyRow {
	room := map[string]int{}
	for _, k := range kinds {
		room[k.Kind] = max(k.Slots, 0)
	}
	candidates := c.waiting.lendable(room)
	var lent []ReadyRow
	for len(lent) < limit && len(candidates) > 0 {
		buf := candidates[0]
		w := buf.head()
		if room[buf.kind] == 0 || w.state != Ready || !c.lends(buf, &to) { // what is scheduled still is started or woken in this very turn
			heap.Pop(&candidates)
			continue
		}
		room[buf.kind]--
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

// lendable lists the buffers of the given kinds, parked ones too, as a heap in the order in which they lend.
func (b *backlog) lendable(kinds map[string]int) lendHeap {
	var h lendHeap
	for _, buf := range b.buffers {
		if kinds[buf.kind] > 0 {
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
