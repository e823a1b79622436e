package scheduler

import (
	"slices"
	"time"

	"github.com/errandhq/errand/placement"
)

// This file holds why a stream of small tasks does not starve a large one. A class that finds no room is passed over: what comes after it
// may start. When that has gone on for Timing.HoldAfter, what becomes free of the worker on which it lacks least is held for it. A
// class that nothing but its own like has passed holds nothing: it waits for room like everybody.

// crampedMax bounds the classes of which it is noted that they are passed over.
const crampedMax = 64

// noRoom notes that a buffer's first row found no room on workers that could run it, and holds room for it if that has gone on for long.
func (c *Core) noRoom(buf *buffer) {
	if buf.shape == nil {
		return // one slot: whatever becomes free is room enough
	}
	if !buf.cramped && len(c.cramped) < crampedMax {
		buf.cramped = true
		c.cramped = append(c.cramped, buf)
	}
	if buf.passed.IsZero() || c.now.Sub(buf.passed) < c.timing.HoldAfter {
		return
	}
	if _, held := c.pool.Hold(c.needOf(buf)); held && !slices.Contains(c.holders, buf) {
		c.holders = append(c.holders, buf)
	}
}

// passOver notes that something has started on a worker while others wait that could run there.
func (c *Core) passOver(on WorkerID, by Class) {
	for _, buf := range c.cramped {
		if buf.key.class != by && buf.passed.IsZero() && c.pool.CouldRun(on, c.needOf(buf)) {
			buf.passed = c.now
		}
	}
}

// roomy notes that a buffer's first row has found room.
func (c *Core) roomy(buf *buffer) {
	if buf.cramped {
		c.forgive(buf)
		c.cramped = slices.DeleteFunc(c.cramped, func(b *buffer) bool { return b == buf })
	}
}

// forgive lets a buffer begin anew, and holds nothing for it.
func (c *Core) forgive(buf *buffer) {
	buf.cramped, buf.passed = false, time.Time{}
	if i := slices.Index(c.holders, buf); i >= 0 {
		c.holders = slices.Delete(c.holders, i, i+1)
		c.pool.Release(c.needOf(buf))
	}
}

// reviewCramped drops buffers that have nothing left or wait for something else than room.
func (c *Core) reviewCramped() {
	c.cramped = slices.DeleteFunc(c.cramped, func(buf *buffer) bool {
		gone := len(buf.rows) == 0 || buf.setAside()
		if gone {
			c.forgive(buf)
		}
		return gone
	})
}

// needOf is what a buffer's rows ask of a worker.
func (c *Core) needOf(buf *buffer) placement.Need {
	return placement.Need{Tenant: buf.key.tenant, Kind: buf.kind, Suspect: buf.key.suspect, Shape: buf.shape}
}
