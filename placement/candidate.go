package placement

// Bounds of the search.
const (
	seekersMax    = 1024 // shapes whose candidates are remembered
	candidatesMax = 128  // of a shape
	sampleMax     = 512  // workers with room that are scored in one scan
	recentMax     = 32   // of the workers changed since the last time, when older candidates are left
	logMax        = 4096 // changes of workers that are remembered
)

// candidate is a worker with room for a shape, as it was when it was looked at.
type candidate struct {
	seat    *seat
	devices Devices
	version uint32
	wish    int32   // more is better
	loss    int32   // less is better
	load    float32 // less is better
}

func (c *candidate) stale() bool { return c.version != c.seat.member.version || c.seat.index < 0 }

// before orders candidates. A tie goes to the smaller identity.
func (c *candidate) before(other *candidate) bool {
	switch {
	case c.wish != other.wish:
		return c.wish > other.wish
	case c.loss != other.loss:
		return c.loss < other.loss
	case c.load != other.load:
		return c.load < other.load
	default:
		return c.seat.member.worker.ID.Compare(other.seat.member.worker.ID) < 0
	}
}

// candidates is a group's memory of which workers have room for which shape.
type candidates struct {
	of     map[*Shape]*seeker
	log    []*seat     // the last changes, in a ring
	end    uint64      // changes so far
	cursor int         // where the next scan begins
	sample []candidate // of a scan; kept for its memory only
}

// seeker is the candidates of one shape in one group.
type seeker struct {
	form
	group        *group
	heap         []candidate // the best first; some are stale
	seen         uint64      // changes that have been looked at
	complete     bool        // every worker with room is in the heap, but for changes after seen
	epoch        uint32      // of the weights when it began
	witness      *seat       // one that could hold it, as long as it stays
	verdict      Refusal     // why none ever does, as of judged
	judged       uint64
	newer, older *seeker // in the order of use
}

// note writes a change of a worker into the log.
func (g *group) note(s *seat) {
	if len(g.of) == 0 {
		return // nobody reads it
	}
	if g.log == nil {
		g.log = make([]*seat, logMax)
	}
	g.log[g.end%logMax] = s
	g.end++
	s.logged = g.end
}

// index keeps the seekers of all groups within a bound.
type index struct {
	ends  seeker // of the ring of seekers: newest after it, oldest before
	count int
}

func (x *index) unlink(k *seeker) {
	k.newer.older, k.older.newer = k.older, k.newer
	x.count--
}

func (x *index) link(k *seeker) {
	if x.ends.older == nil {
		x.ends.older, x.ends.newer = &x.ends, &x.ends
	}
	k.newer, k.older = &x.ends, x.ends.older
	k.newer.older, k.older.newer = k, k
	x.count++
}

// seeker finds or makes the one of a shape. The one that was not used for longest makes room.
func (x *index) seeker(g *group, n *Need) *seeker {
	k := g.of[n.shape()]
	if k != nil {
		x.unlink(k)
		x.link(k)
		return k
	}
	if x.count == seekersMax {
		oldest := x.ends.newer
		x.unlink(oldest)
		delete(oldest.group.of, oldest.shape)
	}
	k = &seeker{form: n.form(), group: g}
	g.of[k.shape] = k
	x.link(k)
	return k
}

// drop forgets the seekers of a group that is gone.
func (x *index) drop(g *group) {
	for _, k := range g.of { // in any order: they are only taken out
		x.unlink(k)
	}
	clear(g.of)
}

// consider looks at a worker, and keeps it if it has room.
func (k *seeker) consider(s *seat, d *demand) bool {
	c, fits := k.candidate(s, d)
	if fits {
		if len(k.heap) >= 2*candidatesMax {
			k.trim()
		}
		k.push(c)
	}
	return fits
}

// candidate scores a worker, if it has room.
func (k *seeker) candidate(s *seat, d *demand) (candidate, bool) {
	if s.index < 0 || !s.fits(&k.form) {
		return candidate{}, false
	}
	m := s.member
	suits := m.suits(&k.form)
	if !suits.selected {
		return candidate{}, false
	}
	c := candidate{seat: s, version: m.version, wish: suits.wish, load: s.load(&k.form)}
	c.loss, c.devices = d.loss(m, &k.form)
	return c, true
}

// load orders workers that lose the same: of those with devices the one with least left of them, of the others the emptiest.
func (s *seat) load(f *form) float32 {
	m := s.member
	switch {
	case !m.counted:
		return -float32(s.free()) / (1 << 20)
	case len(m.free) > 0:
		return 1 + float32(m.left)
	}
	part := func(used, has int64) float32 {
		if has == 0 {
			return 0
		}
		return float32(used) / float32(has)
	}
	load := max(part(int64(s.used+f.slots), int64(s.slots)), part(m.used.CPUMilli+f.cpu, m.has.CPUMilli), part(m.used.MemoryMiB+f.mem, m.has.MemoryMiB))
	return max(load, part(m.used.Slots+int64(f.slots), m.has.Slots))
}

// best returns the best candidate that is not barred, without taking it out. Barred ones are kept for others.
func (k *seeker) best(d *demand, barred func(*member) bool) (candidate, bool) {
	if k.epoch != d.turned {
		k.reset(d)
	}
	k.clean()
	pending := k.group.end - k.seen
	switch {
	case pending > logMax:
		k.complete, k.seen = false, k.group.end
	case pending > recentMax && len(k.heap) > 0:
		k.complete = false
		k.read(k.group.end-recentMax, d)
	default:
		k.read(k.seen, d)
	}
	c, found := k.first(barred)
	if found || k.complete {
		return c, found
	}
	k.scan(d) // until enough have room, or everybody was looked at
	if c, found := k.first(barred); found || k.complete {
		return c, found
	}
	return k.search(d, barred)
}

func (k *seeker) reset(d *demand) {
	clear(k.heap)
	k.heap, k.complete, k.epoch, k.seen = k.heap[:0], false, d.turned, k.group.end
}

// read looks at the workers that changed since a place in the log, each once.
func (k *seeker) read(from uint64, d *demand) {
	for at := from; at < k.group.end; at++ {
		if s := k.group.log[at%logMax]; s.logged == at+1 {
			k.consider(s, d)
		}
	}
	k.seen = k.group.end
}

// scan fills the candidates from all workers, at most sampleMax with room, from where the last one ended.
func (k *seeker) scan(d *demand) {
	k.seen = k.group.end
	seats, looked := k.group.seats, 0
	sample := k.group.sample[:0]
	for ; looked < len(seats) && len(sample) < sampleMax; looked++ {
		if k.group.cursor++; k.group.cursor >= len(seats) {
			k.group.cursor = 0
		}
		if c, fits := k.candidate(seats[k.group.cursor], d); fits {
			sample = append(sample, c)
		}
	}
	k.complete = looked == len(seats) && len(sample) <= candidatesMax
	k.heap = append(k.heap[:0], bestOf(sample, candidatesMax)...)
	clear(sample)
	k.group.sample = sample
}

// first returns the best that is neither stale nor barred.
func (k *seeker) first(barred func(*member) bool) (best candidate, found bool) {
	var aside []candidate
	for k.clean(); len(k.heap) > 0; k.clean() {
		if best = k.heap[0]; !barred(best.seat.member) {
			found = true
			break
		}
		aside = append(aside, best)
		k.pop()
	}
	for _, c := range aside {
		k.push(c)
	}
	return best, found
}

// search looks at everybody, for the rare case that all candidates are barred: the first one with room that is not will do.
func (k *seeker) search(d *demand, barred func(*member) bool) (candidate, bool) {
	for _, s := range k.group.seats {
		if !barred(s.member) && k.consider(s, d) {
			return k.first(barred)
		}
	}
	return candidate{}, false
}

// clean takes stale candidates off the top.
func (k *seeker) clean() {
	for len(k.heap) > 0 && k.heap[0].stale() {
		k.pop()
	}
}
