package scheduler

import (
	"slices"

	"github.com/errandhq/errand/placement"
)

// failing is what the checks need of a test, plain or rapid's.
type failing interface {
	Helper()
	Errorf(format string, args ...any)
}

// check verifies what must hold in a core after every turn, whatever has happened.
func (w *world) check(t failing) {
	t.Helper()
	c := w.core
	used := map[WorkerID]map[string]int{}
	for id, a := range c.attempts.byID {
		if a.ID != id || c.attempts.byWorker[a.Worker][id] != a {
			t.Errorf("attempt %v is not filed under its task and its worker", a.Token)
		}
		if c.waiting.rows[id] != nil {
			t.Errorf("task %s waits and is attempted", id)
		}
		_, connected := c.pool.Worker(a.Worker)
		if a.room && (a.phase == ending || !connected) {
			t.Errorf("task %s holds room: %s, worker connected %v", id, a.phase, connected)
		}
		if !a.room && a.atWorker() {
			t.Errorf("task %s is at its worker without room", id)
		}
		if a.room {
			if used[a.Worker] == nil {
				used[a.Worker] = map[string]int{}
			}
			used[a.Worker][a.Kind] += slotsOf(a.shape)
		}
		if timed := a.index >= 0; timed != a.atWorker() {
			t.Errorf("task %s is %s and has a deadline: %v", id, a.phase, timed)
		}
	}
	for _, id := range c.pool.IDs() {
		for kind, n := range c.pool.Used(id) {
			if used[id][kind] != n {
				t.Errorf("worker %s: %d attempts of kind %s, and room reserved for %d", id, used[id][kind], kind, n)
			}
			delete(used[id], kind)
		}
		for kind, n := range used[id] {
			t.Errorf("worker %s: %d attempts of kind %s without room reserved", id, n, kind)
		}
	}
	for _, buf := range c.holders {
		if !slices.Contains(c.cramped, buf) {
			t.Errorf("room is held for buffer %v, which is not cramped", buf.key)
		}
	}
	w.checkBacklog(t)
	w.checkGates(t)
}

// slotsOf is how many slots an attempt takes.
func slotsOf(s *placement.Shape) int {
	if s == nil {
		return 1
	}
	return int(max(s.Slots, 1))
}

// checkGates verifies that gates count what passed them, and that each that may be dropped will be.
func (w *world) checkGates(t failing) {
	t.Helper()
	c := w.core
	used := map[*gate]int{}
	for _, a := range c.attempts.byID {
		for _, g := range a.gates {
			used[g]++
		}
	}
	for _, one := range c.ghosts {
		for _, g := range one.gates {
			used[g]++
		}
	}
	for key, g := range c.gates.byKey {
		if g.key != key || g.used != used[g] {
			t.Errorf("gate %v counts %d attempts, has %d", key, g.used, used[g])
		}
		if g.opensAt >= 0 && c.gates.opening[g.opensAt] != g {
			t.Errorf("gate %v is not where it opens", key)
		}
		if g.unused() && g.opensAt < 0 && !g.changed {
			t.Errorf("gate %v is used by nobody, and nobody will look at it", key)
		}
		if rate, limited := g.adaptive.Rate(w.now); limited && !(rate > 0) {
			t.Errorf("gate %v gives way at %v", key, rate)
		}
		delete(used, g)
	}
	for _, g := range c.gates.opening {
		if c.gates.byKey[g.key] != g {
			t.Errorf("gate %v is gone, and will be looked at", g.key)
		}
	}
	for g, n := range used {
		if set := c.gates.set(g.key); set && n > 0 {
			t.Errorf("gate %v is gone, and %d attempts have passed it", g.key, n)
		}
	}
}

func (w *world) checkBacklog(t failing) {
	t.Helper()
	b := w.core.waiting
	rows, perGroup := 0, map[*group]int{}
	for key, buf := range b.buffers {
		if buf.key != key || len(buf.rows) == 0 {
			t.Errorf("buffer %v holds %d rows", key, len(buf.rows))
		}
		if places := count(buf.level != nil, buf.parked, buf.gate != nil); places != 1 || (b.parked[buf.kind][key] == buf) != buf.parked {
			t.Errorf("buffer %v stands in %d places: level %v, parked %v, gate %v", key, places, buf.level != nil, buf.parked, buf.gate != nil)
		}
		if l := buf.level; l != nil && (l.lines[key.tenant] == nil || l.lines[key.tenant].buffers[buf.index] != buf) {
			t.Errorf("buffer %v is not in its line", key)
		}
		if g := buf.gate; g != nil && (w.core.gates.byKey[g.key] != g || g.waiting[buf.spot] != buf) {
			t.Errorf("buffer %v waits for a gate that does not know it", key)
		}
		rows += len(buf.rows)
		perGroup[buf.group] += len(buf.rows)
	}
	if rows != len(b.rows) {
		t.Errorf("%d rows in buffers, %d known", rows, len(b.rows))
	}
	behind := 0
	for key, g := range b.groups {
		if g.key != key || g.rows != perGroup[g] {
			t.Errorf("group %v counts %d rows, has %d", key, g.rows, perGroup[g])
		}
		if g.needsRefill() && !g.queued {
			t.Errorf("group %v needs a refill and is not on the list", key)
		}
		if g.behind {
			behind++
		}
	}
	for _, n := range b.behind {
		behind -= n
	}
	if behind != 0 {
		t.Errorf("groups behind are miscounted by %d", behind)
	}
}

// count is how many of the conditions hold.
func count(conditions ...bool) (n int) {
	for _, holds := range conditions {
		if holds {
			n++
		}
	}
	return n
}
