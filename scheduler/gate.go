package scheduler

import (
	"container/heap"
	"hash/fnv"
	"math"
	"time"

	"github.com/errandhq/errand/fairness"
)

// This file holds what a start must pass besides finding room: pauses, caps of tenants, and named limits. A slot of a cap is a running
// row that carries it: the core counts its own attempts, so that nothing can leak. What a closed gate holds back never holds up what
// stands behind it.
//
// The rate of a named limit gives way to backpressure, see pressure.go.

// gateOf says what a gate is for.
type gateOf uint8

const (
	gateTenant gateOf = iota + 1 // a tenant's pause, attempts at once and starts per second
	gateKind                     // a kind's pause
	gateLimit                    // a named limit, by key
)

type gateKey struct {
	tenant    string
	of        gateOf
	name, key string
}

// salt spreads what does not divide evenly among the instances.
func (k gateKey) salt() uint64 {
	h := fnv.New64a()
	for _, part := range [...]string{k.tenant, k.name, k.key} {
		_, _ = h.Write([]byte(part)) // a hash never fails
		_, _ = h.Write([]byte{0})
	}
	return h.Sum64()
}

// gate lets starts pass as long as its cap and its rate allow it.
type gate struct {
	key      gateKey
	among    *gates
	closed   bool // paused
	capped   bool
	limit    int     // attempts at once, in the region
	slots    int     // the part of them that is this instance's
	overhang int     // what others run beyond their parts: it is taken off the slots
	rate     float64 // starts per second in the region, 0 for any
	used     int     // attempts that carry it
	bucket   fairness.Bucket
	adaptive fairness.Adaptive
	waiting  gateHeap // buffers that it holds back
	changed  bool     // in the list of gates that may have opened
	opensAt  int      // index in the heap of gates that open at a time; -1 when it is not there
	opens    time.Time
}

// burstTime is how much of a rate may start at once after a pause: a tenth of a second's, and at least one.
const burstTime = 0.1

// room is how many starts may pass now, and false when there is no bound.
func (g *gate) room(now time.Time, parts []fairness.Part) (int, bool) {
	if g.closed {
		return 0, true
	}
	n, bounded := math.MaxInt, false
	if g.capped {
		n, bounded = max(g.slots-g.overhang-g.used, 0), true
	}
	if limited := g.refill(now, parts); limited {
		n, bounded = min(n, int(max(math.Floor(g.bucket.Tokens), 0))), true
	}
	return n, bounded
}

// refill brings the bucket up to date, and tells whether there is a rate at all.
func (g *gate) refill(now time.Time, parts []fairness.Part) bool {
	rate := g.rate
	of := 1
	for _, p := range parts {
		of = max(of, p.Of)
	}
	rate /= float64(of)
	g.adaptive.Most = rate
	if adaptive, limited := g.adaptive.Rate(now); limited { // of this instance's own starts: no part is taken of it
		rate = adaptive
	}
	if rate == 0 {
		g.bucket = fairness.Bucket{}
		return false
	}
	g.bucket.Limit = fairness.Limit{Rate: rate, Burst: max(1, rate*burstTime)}
	g.bucket.Refill(now)
	return true
}

func (g *gate) admits(now time.Time, parts []fairness.Part) bool {
	n, bounded := g.room(now, parts)
	return n > 0 || !bounded
}

// unused tells whether nothing passes the gate or waits for it.
func (g *gate) unused() bool {
	return g.used == 0 && g.overhang == 0 && len(g.waiting) == 0 && !g.closed
}

// forgets is when an unused gate may be dropped: what it has given out is paid back then, and what it has learned of its rate is old.
func (g *gate) forgets(now time.Time) time.Time {
	at := g.adaptive.Forgets()
	if !g.bucket.Unlimited() {
		if full := now.Add(g.bucket.Full()); full.After(at) {
			at = full
		}
	}
	return at
}

// gates are all that are set, and what is set.
type gates struct {
	byKey   map[gateKey]*gate
	tenants map[string]TenantSettings // those that are paused or capped
	kinds   map[[2]string]bool        // those that are paused
	limits  map[[2]string]LimitSettings
	parts   []fairness.Part // which part of every cap is this instance's; while it changes, those that may hold
	changed []*gate
	opening openingHeap
}

func newGates() *gates {
	return &gates{
		byKey: map[gateKey]*gate{}, tenants: map[string]TenantSettings{}, kinds: map[[2]string]bool{},
		limits: map[[2]string]LimitSettings{}, parts: []fairness.Part{{Of: 1}},
	}
}

// of lists the gates that a task must pass.
func (s *gates) of(tenant, kind string, limits []LimitKey) []*gate {
	if len(s.tenants)+len(s.kinds)+len(s.limits) == 0 {
		return nil
	}
	var all []*gate
	if t, set := s.tenants[tenant]; set {
		all = append(all, s.gate(gateKey{tenant: tenant, of: gateTenant}, t.Paused, t.MaxRunning, t.StartRate))
	}
	if s.kinds[[2]string{tenant, kind}] {
		all = append(all, s.gate(gateKey{tenant: tenant, of: gateKind, name: kind}, true, 0, 0))
	}
	for _, l := range limits {
		if set, is := s.limits[[2]string{tenant, l.Name}]; is { // also one that caps nothing: it gives way to backpressure
			all = append(all, s.gate(gateKey{tenant: tenant, of: gateLimit, name: l.Name, key: l.Key}, false, set.Concurrency, set.Rate))
		}
	}
	return all
}

// gate finds or makes a gate, and brings it up to what is set.
func (s *gates) gate(key gateKey, paused bool, limit int, rate float64) *gate {
	g := s.byKey[key]
	if g == nil {
		g = &gate{key: key, among: s, opensAt: -1}
		s.byKey[key] = g
	} else if g.closed == paused && g.limit == limit && g.rate == rate {
		return g
	}
	g.closed, g.capped, g.limit, g.rate = paused, limit > 0, limit, rate
	g.slots = fairness.Least(s.parts, limit, key.salt())
	s.touch(g)
	return g
}

// touch notes that a gate may have opened.
func (s *gates) touch(g *gate) {
	if !g.changed {
		g.changed = true
		s.changed = append(s.changed, g)
	}
}

// setParts says which part of every cap is this instance's.
func (s *gates) setParts(parts []fairness.Part) {
	s.parts = parts
	for _, g := range s.byKey { // each for itself; the order in which they open is set by the list's users
		g.slots = fairness.Least(parts, g.limit, g.key.salt())
	}
	for _, g := range sortedGates(s.byKey) {
		s.touch(g)
	}
}

// othersRun takes off the slots what other instances run beyond their parts.
func (c *Core) othersRun(ev OthersRun) {
	type use struct {
		gate    *gate
		session SessionID
	}
	used := map[use]int{}
	for i := range ev.Rows {
		h := &ev.Rows[i]
		for _, g := range c.gates.of(h.Tenant, h.Kind, h.Spec.Limits) {
			used[use{g, h.Session}]++
		}
	}
	for _, g := range c.gates.byKey {
		g.overhang = 0
	}
	for u, n := range used { // sums: in any order
		u.gate.overhang += max(n-ev.Parts[u.session].Slots(u.gate.limit, u.gate.key.salt()), 0)
	}
	for _, g := range sortedGates(c.gates.byKey) {
		c.gates.touch(g)
	}
}

// Overhang tells whether others run anything beyond their parts of the caps.
func (c *Core) Overhang() bool {
	for _, g := range c.gates.byKey {
		if g.overhang > 0 {
			return true
		}
	}
	return false
}

// release takes an attempt's slots back.
func (s *gates) release(gates []*gate) {
	for _, g := range gates {
		g.used--
		s.touch(g)
	}
}

// wait sets when a gate with a rate opens next.
func (s *gates) wait(g *gate, now time.Time) {
	if len(g.waiting) == 0 || g.bucket.Unlimited() || g.closed || (g.capped && g.used >= g.slots-g.overhang) {
		return
	}
	s.lookAgain(g, now.Add(g.bucket.Wait(now)))
}

// drop forgets a gate that nothing needs, or looks again when that may be so.
func (s *gates) drop(g *gate, now time.Time) {
	if !g.unused() || s.byKey[g.key] != g {
		return
	}
	if at := g.forgets(now); at.After(now) {
		s.lookAgain(g, at)
		return
	}
	if g.opensAt >= 0 {
		heap.Remove(&s.opening, g.opensAt)
	}
	delete(s.byKey, g.key)
}

// lookAgain has a gate looked at, at a time.
func (s *gates) lookAgain(g *gate, at time.Time) {
	g.opens = at
	if g.opensAt >= 0 {
		heap.Fix(&s.opening, g.opensAt)
		return
	}
	heap.Push(&s.opening, g)
}

// next is when a gate opens by time, and false when none does.
func (s *gates) next() (time.Time, bool) {
	if len(s.opening) == 0 {
		return time.Time{}, false
	}
	return s.opening[0].opens, true
}

// gated counts the rows that wait for gates.
func (s *gates) gated() Gated {
	var n [gateLimit + 1]int
	for _, g := range s.byKey { // sums: in any order
		for _, buf := range g.waiting {
			n[g.key.of] += len(buf.rows)
		}
	}
	return Gated{Tenant: n[gateTenant], Kind: n[gateKind], Limit: n[gateLimit]}
}

// closedGate is the first gate that does not let a buffer's rows pass now, nil when all do.
func (c *Core) closedGate(buf *buffer) *gate {
	for _, g := range c.gates.of(buf.key.tenant, buf.kind, buf.limits) {
		if !g.admits(c.now, c.gates.parts) {
			return g
		}
	}
	return nil
}

// openGates lets pass what gates that have opened held back: as many buffers as there is room for starts.
func (c *Core) openGates() {
	s := c.gates
	for len(s.opening) > 0 && !s.opening[0].opens.After(c.now) {
		s.touch(heap.Pop(&s.opening).(*gate))
	}
	changed := s.changed
	s.changed = nil
	for _, g := range changed {
		g.changed = false
		c.openGate(g)
	}
}

func (c *Core) openGate(g *gate) {
	n, bounded := g.room(c.now, c.gates.parts)
	for len(g.waiting) > 0 && (n > 0 || !bounded) {
		buf := g.waiting[0]
		c.waiting.takeOut(buf)
		c.waiting.enter(buf, c.now)
		n--
	}
	c.gates.wait(g, c.now)
	c.gates.drop(g, c.now)
}

// letNext lets one more buffer pass that waits for the gates of one which cannot start: what it could start, others may.
func (c *Core) letNext(buf *buffer) {
	for _, g := range c.gates.of(buf.key.tenant, buf.kind, buf.limits) {
		if len(g.waiting) > 0 && g.admits(c.now, c.gates.parts) {
			next := g.waiting[0]
			c.waiting.takeOut(next)
			c.waiting.enter(next, c.now)
		}
	}
}

// apply takes what operators have set.
func (c *Core) apply(ev SettingsChanged) {
	s := c.gates
	for i := range ev.Tenants {
		t := &ev.Tenants[i]
		c.shares.SetWeight(t.Tenant, t.Weight)
		c.waiting.reweigh(t.Tenant)
		if t.Paused || t.MaxRunning > 0 || t.StartRate > 0 {
			s.tenants[t.Tenant] = *t
		} else {
			delete(s.tenants, t.Tenant)
		}
	}
	for _, k := range ev.Kinds {
		if k.Paused {
			s.kinds[[2]string{k.Tenant, k.Kind}] = true
		} else {
			delete(s.kinds, [2]string{k.Tenant, k.Kind})
		}
	}
	for _, l := range ev.Limits {
		if l.Deleted {
			delete(s.limits, [2]string{l.Tenant, l.Name})
		} else {
			s.limits[[2]string{l.Tenant, l.Name}] = l
		}
	}
	c.regate()
}

// regate counts attempts anew at the gates that are set now, and looks at all of them again.
func (c *Core) regate() {
	s := c.gates
	old := sortedGates(s.byKey)
	for _, g := range old {
		g.used = 0
	}
	for _, a := range c.attempts.byID { // counts only: in any order
		a.gates = s.of(a.Tenant, a.Kind, a.limits)
		for _, g := range a.gates {
			g.used++
		}
	}
	for _, one := range c.ghosts {
		one.gates = s.of(one.tenant, one.kind, one.limits)
		for _, g := range one.gates {
			g.used++
		}
	}
	for _, g := range old {
		if !s.set(g.key) {
			g.closed, g.capped, g.limit, g.rate = false, false, 0, 0
			g.bucket, g.adaptive = fairness.Bucket{}, fairness.Adaptive{}
		} else {
			s.refresh(g)
		}
		s.touch(g)
	}
}

// set tells whether something is set that makes a gate.
func (s *gates) set(key gateKey) bool {
	switch key.of {
	case gateTenant:
		_, set := s.tenants[key.tenant]
		return set
	case gateKind:
		return s.kinds[[2]string{key.tenant, key.name}]
	default:
		_, set := s.limits[[2]string{key.tenant, key.name}]
		return set
	}
}

// refresh brings a gate up to what is set.
func (s *gates) refresh(g *gate) {
	switch g.key.of {
	case gateTenant:
		t := s.tenants[g.key.tenant]
		s.gate(g.key, t.Paused, t.MaxRunning, t.StartRate)
	case gateLimit:
		l := s.limits[[2]string{g.key.tenant, g.key.name}]
		s.gate(g.key, false, l.Concurrency, l.Rate)
	case gateKind:
		s.gate(g.key, true, 0, 0)
	}
}
