package scheduler

import (
	"maps"
	"slices"
	"time"

	"github.com/errandhq/errand/fairness"
	"github.com/errandhq/errand/placement"
)

// This file holds the order of service: the class of urgency, then the tenant that has used least for its weight, then the earliest
// due over the heads of the tenant's classes.

// fill names what of the capacity may be in use after a start, the most first: what one refuses, those after it refuse too.
type fill uint8

const (
	fillAll fill = iota
	fillOwed
	fillStandard
	fillDeferrable
	fillCount = iota
)

// The parts of a kind's slots that work of a tier may fill. What is kept free of standard work is found by urgent work of tenants of
// which no more than such a part runs. Of few slots at least one.
const (
	StandardFill   = 0.95
	DeferrableFill = 0.85
)

// Overdue work that is owed its share is not kept out by urgent work that runs, and leaves the reserve all the same.
var fills = [fillCount]placement.Fill{
	fillAll:        {Part: 1},
	fillOwed:       {Part: StandardFill, BesideUrgent: true},
	fillStandard:   {Part: StandardFill},
	fillDeferrable: {Part: DeferrableFill},
}

// demotedGrace is how much later urgent work is due when it is served as standard: as if it had been submitted so.
var demotedGrace = DefaultTolerance(Standard) - DefaultTolerance(Urgent)

// demotedCheck is how often it is looked whether urgent work of a tenant goes first again.
const demotedCheck = 50 * time.Millisecond

// pass is one class of urgency during a round.
type pass struct {
	levels  []*level
	overdue bool // only what is overdue
	reserve bool // only of tenants that hold little
	fill    fill
	use     fairness.Use
	urgent  bool // its claims go into the pipeline for urgent ones
	done    bool // nothing more can start
}

// round is one run over the waiting rows.
type round struct {
	room    Room
	refused map[refusedKey]fill // the smallest part of the capacity of which it is known; more is refused too where the index is larger
	skipped []skipped           // taken out of their lines until the round ends
	urgent  []Claim
	others  []Claim
}

type skipped struct {
	buf *buffer
	at  *level
}

// refusedKey names what one refusal answers for during one round.
type refusedKey struct {
	class   Class
	suspect bool
	tenant  string // empty unless the tenant has workers of its own
}

// start starts what may start now: first overdue work while it is owed, then urgent, standard and deferrable work, and last what else is
// overdue: deferrable work may use then what standard work may. A tenant that floods is always overdue, and an urgent task must find room
// beside it.
func (c *Core) start(room Room) {
	b := c.waiting
	c.reviewDemoted()
	c.reviewCramped()
	c.openGates()
	urgent, standard, deferrable := b.levels[Urgent], b.levels[Standard], b.levels[Deferrable]
	late := []*level{standard, deferrable}
	passes := [...]pass{
		{levels: late, overdue: true, fill: fillOwed, use: fairness.Overdue},
		{levels: []*level{urgent}, fill: fillStandard, use: fairness.Urgent, urgent: true},
		{levels: []*level{urgent}, fill: fillAll, use: fairness.Urgent, urgent: true, reserve: true},
		{levels: []*level{standard}, fill: fillStandard},
		{levels: []*level{deferrable}, fill: fillDeferrable},
	}
	r := round{room: room, refused: map[refusedKey]fill{}}
	for _, v := range b.levels {
		if v != nil {
			v.hopeless = [fillCount]int{}
		}
	}
	for p := c.nextPass(passes[:], &r, true); p != nil; p = c.nextPass(passes[:], &r, true) {
		c.serve(p, &r)
	}
	r.restore()
	passes[0].done, passes[0].fill = false, fillStandard
	for p := c.nextPass(passes[:1], &r, false); p != nil; p = c.nextPass(passes[:1], &r, false) {
		c.serve(p, &r)
	}
	c.plan.UrgentClaims = append(c.plan.UrgentClaims, r.urgent...)
	c.plan.Claims = append(c.plan.Claims, r.others...)
	r.restore()
}

// pass charges an attempt that starts, and takes what it needs of the gates' rates.
func (c *Core) pass(a *attempt, use fairness.Use) {
	a.urgent = use == fairness.Urgent
	c.shares.Served(a.Tenant)
	c.charge(a, use)
	for _, g := range a.gates {
		g.bucket.Take(1)
		g.adaptive.Passed(c.now)
	}
}

// reviewDemoted lets urgent work go first again of tenants that are within their urgent share.
func (c *Core) reviewDemoted() {
	if len(c.waiting.demoted) == 0 || c.now.Sub(c.demotedAt) < demotedCheck {
		return
	}
	c.demotedAt = c.now
	for _, tenant := range slices.Sorted(maps.Keys(c.waiting.demoted)) {
		if c.shares.UrgentFirst(tenant, c.now) {
			c.waiting.restore(tenant)
		}
	}
}

// nextPass is the first class of urgency of which something may start still.
func (c *Core) nextPass(passes []pass, r *round, owed bool) *pass {
	for i := range passes {
		p := &passes[i]
		switch {
		case p.done:
		case p.overdue && owed && !c.shares.OverdueOwed(c.now):
		case p.urgent && len(r.urgent) < r.room.Urgent, !p.urgent && len(r.others) < r.room.Others:
			return p
		}
	}
	return nil
}

// holdsMuch tells whether a tenant's urgent work runs in as much of the capacity as is kept free, and leaves that to others.
func (c *Core) holdsMuch(tenant string) bool { return c.shares.HoldsUrgent(tenant) >= 1-StandardFill }

// urgentFill is what of the capacity a tenant's urgent work may find in use.
func (c *Core) urgentFill(tenant string) fill {
	if c.holdsMuch(tenant) {
		return fillStandard
	}
	return fillAll
}

// next is the line whose turn it is in a pass, nil when nothing of the pass can start.
func (c *Core) next(p *pass) *line {
	var first *line
	least, anyOwn := 0.0, c.pool.AnyOwn()
	for _, v := range p.levels {
		if v.hopeless[p.fill] >= v.buffers && !anyOwn {
			continue
		}
		turns := v.turns
		switch {
		case p.overdue:
			v.pass(c.now)
			turns = v.overdue
		case p.reserve:
			turns = v.reserving(c.holdsMuch)
		}
		if tenant, virtual, some := turns.Peek(); some && (first == nil || virtual < least) {
			first, least = v.lines[tenant], virtual
		}
	}
	return first
}

// serve starts the first row of the line whose turn it is, or takes the buffer out of the round that cannot start.
func (c *Core) serve(p *pass, r *round) {
	line := c.next(p)
	if line == nil {
		p.done = true
		if p.urgent {
			r.restore() // what it has been refused may be in the reserve
		}
		return
	}
	buf := line.buffers[0]
	tenant := buf.key.tenant
	if p.urgent && !c.shares.UrgentFirst(tenant, c.now) {
		c.waiting.demote(tenant)
		return
	}
	if !c.mayRun(buf.allowed) {
		c.waiting.park(buf, c.now)
		return
	}
	if gate := c.closedGate(buf); gate != nil {
		c.waiting.hold(buf, gate, c.now)
		c.gates.wait(gate, c.now)
		c.letNext(buf) // through those that it had passed
		return
	}
	key := c.refusalKey(buf)
	if refused, known := r.refused[key]; known && refused <= p.fill {
		r.skip(buf)
		return
	}
	need := c.needOf(buf)
	need.Urgent, need.Avoid = p.urgent, buf.head().avoid
	at, refusal := c.pool.Place(need, fills[p.fill])
	switch refusal {
	case placement.Placed:
		c.roomy(buf)
		c.passOver(at.Worker, buf.key.class)
		use := p.use
		if use == fairness.Plain && buf.due().Before(c.now) { // whatever its turn was: it has had what is guaranteed
			use = fairness.Overdue
		}
		claim := c.claim(buf.head(), at, use)
		if p.urgent {
			r.urgent = append(r.urgent, claim)
		} else {
			r.others = append(r.others, claim)
		}
	case placement.NoWorker, placement.Unselected, placement.NeverFits:
		c.waiting.park(buf, c.now)
	case placement.Headroom:
		c.refuse(r, key, buf, p.fill)
	default:
		c.noRoom(buf)
		c.refuse(r, key, buf, fillAll)
	}
	if refusal != placement.Placed {
		c.letNext(buf)
	}
}

// refuse notes that a class finds no room while no more than a part of the capacity may be used, nor with less.
func (c *Core) refuse(r *round, key refusedKey, buf *buffer, f fill) {
	before, known := r.refused[key]
	if !known {
		before = fillCount
	}
	r.refused[key] = min(f, before)
	if key.tenant != "" {
		return // its own workers: it answers for one tenant only
	}
	for _, v := range c.waiting.levels {
		for g := f; v != nil && g < before; g++ {
			v.refused(buf.like(), g, 1)
		}
	}
}

// skip takes a buffer out of its line for the rest of the round.
func (r *round) skip(buf *buffer) {
	at := buf.level
	at.extract(buf)
	if refused, known := r.refused[refusedKey{class: buf.key.class, suspect: buf.key.suspect}]; known {
		for g := refused; g < fillCount; g++ {
			at.hopeless[g]--
		}
	}
	r.skipped = append(r.skipped, skipped{buf, at})
}

// restore brings back what was taken out.
func (r *round) restore() {
	for _, s := range r.skipped {
		s.at.insert(s.buf)
		if refused, known := r.refused[refusedKey{class: s.buf.key.class, suspect: s.buf.key.suspect}]; known {
			for g := refused; g < fillCount; g++ {
				s.at.hopeless[g]++
			}
		}
	}
	r.skipped = r.skipped[:0]
}

func (c *Core) refusalKey(buf *buffer) refusedKey {
	key := refusedKey{class: buf.key.class, suspect: buf.key.suspect}
	if c.pool.HasOwn(buf.key.tenant, buf.kind) {
		key.tenant = buf.key.tenant
	}
	return key
}
