package scheduler

import (
	"slices"
	"strings"
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

// Lend takes out rows of the given kinds that wait here, the earliest due first, at most Slots of each and limit in all. They
// are forgotten: should the borrower not claim them, the next discovery finds them again.
func (c *Core) Lend(kinds []KindRoom, limit int) []ReadyRow {
	room := map[string]int{}
	for _, k := range kinds {
		room[k.Kind] = max(k.Slots, 0)
	}
	candidates := c.waiting.ofKinds(room)
	var lent []ReadyRow
	for _, w := range candidates {
		if len(lent) >= limit {
			break
		}
		if kind := w.buffer.kind; room[kind] > 0 {
			room[kind]--
			lent = append(lent, w.row())
			c.waiting.remove(w)
		}
	}
	return lent
}
