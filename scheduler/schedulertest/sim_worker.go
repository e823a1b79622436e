package schedulertest

import (
	"fmt"
	"slices"
	"time"

	"github.com/errandhq/errand/placement"
	"github.com/errandhq/errand/scheduler"
	"github.com/errandhq/errand/scheduler/engine"
)

// Times of a worker, as the SDK has them.
const (
	simReconnectMin  = 50 * time.Millisecond
	simRegisterLimit = 5 * time.Second
	simRepeatEvery   = 3 // heartbeats, after which a worker says again what it is
)

// worker is a worker process as the SDK makes one: it holds what it runs across connections, says every end until it is
// acknowledged, and stops exclusive handlers when its grant runs out. It crashes, pauses, drains, and comes back as another.
type worker struct {
	s       *sim
	index   int
	name    string
	life    int
	alive   bool
	paused  time.Duration // until when it does nothing
	frozen  bool          // and has not gone on yet
	cutUp   time.Duration // until when nothing of it reaches anybody
	cutDown time.Duration // until when nothing reaches it

	self     placement.Worker
	conn     *conn
	answered *conn // on which its register was answered
	misses   int   // tries to connect that failed since it was connected last
	pause    time.Duration
	heard    time.Duration
	limit    time.Duration // the longest silence
	beats    uint64
	attempts map[scheduler.Token]*handler
	ends     map[scheduler.Token]scheduler.Report // not acknowledged
	toSend   []scheduler.Token                    // ends not said on this connection
	accepted []scheduler.Token
	beat     bool // a heartbeat is to be said
	drain    bool // it is to be said that no more work is wanted
	speaking bool // a message is planned
	draining bool
	granted  time.Duration // until when exclusive handlers may run
}

func newWorker(s *sim, index int) *worker {
	return &worker{s: s, index: index, name: fmt.Sprintf("w%d", index)}
}

// start begins a new process with a fresh identity. The first worker serves everything and everybody.
func (w *worker) start() {
	if w.alive {
		return
	}
	s := w.s
	w.life++
	w.alive, w.draining, w.drain, w.beat, w.speaking = true, false, false, false, false
	w.paused, w.frozen, w.granted, w.pause, w.conn = 0, false, 0, simReconnectMin, nil
	w.attempts, w.ends = map[scheduler.Token]*handler{}, map[scheduler.Token]scheduler.Report{}
	w.toSend, w.accepted = nil, nil
	w.self = placement.Worker{ID: s.bytes16(), Name: w.name, Slots: map[string]int{"encode": 1 + s.rand.IntN(4), "mail": 1 + s.rand.IntN(3)}}
	if w.index >= s.regions && s.chance(0.2) {
		w.self.Tenant = "acme"
	}
	if w.index < s.regions || s.chance(0.5) {
		w.self.Slots["report"] = 1 + s.rand.IntN(2)
	}
	s.tracef("%s starts as %s: %v %s", w.name, short(w.self.ID), w.self.Slots, w.self.Tenant)
	w.connect()
}

// after plans something that this process will do; while it is paused it does nothing, and afterwards everything in order.
func (w *worker) after(d time.Duration, do func()) {
	life := w.life
	w.s.after(d, func() { w.wakes(life, do) })
}

func (w *worker) wakes(life int, do func()) {
	switch {
	case w.life != life || !w.alive:
	case w.paused > w.s.now:
		w.s.at(w.paused, func() { w.wakes(life, do) })
	default:
		do()
	}
}

// region is where a worker is.
func (w *worker) region() string { return simRegions[w.index%w.s.regions] }

// choose is the instance to try next: of its own region, and after some misses any.
func (w *worker) choose() *instance {
	var own []*instance
	for _, in := range w.s.instances {
		if in.region() == w.region() {
			own = append(own, in)
		}
	}
	if w.misses >= 2*len(own) {
		own = w.s.instances
	}
	return own[(w.index+w.misses)%len(own)]
}

// goHome leaves another region's instance after a while: its own region may have some again.
func (w *worker) goHome() {
	c := w.conn
	w.after(20*time.Second, func() {
		if w.conn == c && c != nil {
			w.s.reset(w)
		}
	})
}

// connect tries the next instance, and again after a pause that grows.
func (w *worker) connect() {
	if w.conn != nil {
		return
	}
	s := w.s
	in := w.choose()
	w.after(s.latency(), func() {
		if w.conn != nil {
			return
		}
		if in.engine == nil || w.cutUp > s.now || w.cutDown > s.now {
			w.retry()
			return
		}
		w.open(in)
	})
}

func (w *worker) retry() {
	w.misses++
	wait := w.s.between(w.pause/2, w.pause)
	w.pause = min(w.pause*2, w.s.timing.ReconnectCap)
	w.after(wait, w.connect)
}

// open registers on a new connection and says everything that is not acknowledged.
func (w *worker) open(in *instance) {
	in.lastStream++
	c := &conn{s: w.s, id: in.lastStream, in: in, life: in.life, w: w, openAtInstance: true, openAtWorker: true}
	in.conns[c.id] = c
	w.conn, w.heard, w.limit, w.misses = c, w.s.now, simRegisterLimit, 0
	if in.region() != w.region() {
		w.goHome()
	}
	w.accepted = nil
	w.toSend = w.unacknowledged()
	holds := w.holds()
	w.s.tracef("%s connects to %s, stream %d, holds %s", w.name, in.name, c.id, tokenText(holds))
	r := &engine.Register{Worker: w.self, Holds: holds}
	in.post(engine.StreamOpened{Stream: c.id})
	c.toInstance(engine.FromWorker{Register: r})
	w.drain = w.drain || w.draining
	w.speak()
	w.watch(c)
}

// holds are the attempts that it runs, and those of which it is not known that their ends are recorded.
func (w *worker) holds() []scheduler.Token {
	holds := w.unacknowledged()
	for token, h := range w.attempts {
		if !h.lost {
			holds = append(holds, token)
		}
	}
	sortTokens(holds)
	return holds
}

func (w *worker) unacknowledged() []scheduler.Token {
	var tokens []scheduler.Token
	for token := range w.ends {
		tokens = append(tokens, token)
	}
	sortTokens(tokens)
	return tokens
}

// watch ends a connection on which nothing is heard.
func (w *worker) watch(c *conn) {
	w.after(500*time.Millisecond, func() {
		if w.conn != c {
			return
		}
		if w.s.now-w.heard >= w.limit {
			w.s.tracef("%s hears nothing from %s", w.name, c.in.name)
			w.hangUp(false)
			return
		}
		w.watch(c)
	})
}

// hangUp ends the connection from this side, and connects again.
func (w *worker) hangUp(orderly bool) {
	w.conn.closeByWorker(orderly)
	w.conn = nil
	w.retry()
}

func (w *worker) disconnected(c *conn) {
	w.after(0, func() {
		if w.conn == c {
			w.conn = nil
			w.retry()
		}
	})
}

// speak plans a message with everything that there is to say then.
func (w *worker) speak() {
	if w.speaking || w.conn == nil {
		return
	}
	w.speaking = true
	w.after(w.s.upTo(500*time.Microsecond), func() {
		w.speaking = false
		w.say()
	})
}

func (w *worker) say() {
	if w.conn == nil {
		return
	}
	words := engine.FromWorker{Accepted: w.accepted, Drain: w.drain}
	for _, token := range w.toSend {
		if r, open := w.ends[token]; open {
			words.Reports = append(words.Reports, r)
		}
	}
	if w.beat {
		w.beats++
		words.Heartbeat = &engine.Heartbeat{Seq: w.beats, SentAt: int64(w.s.now)}
		if w.beats%simRepeatEvery == 0 {
			words.Register = &engine.Register{Worker: w.self, Holds: w.holds(), Update: true}
		}
	}
	w.accepted, w.toSend, w.beat, w.drain = nil, nil, false, false
	if words.Accepted != nil || words.Reports != nil || words.Heartbeat != nil || words.Drain {
		w.conn.toInstance(words)
	}
}

// heartbeat says that it lives, as long as the connection is the same.
func (w *worker) heartbeat(c *conn) {
	if w.conn != c {
		return
	}
	w.beat = true
	w.speak()
	w.after(w.s.timing.Heartbeat, func() { w.heartbeat(c) })
}

// receive takes words of an instance.
func (w *worker) receive(c *conn, words engine.ToWorker) {
	w.after(0, func() {
		if w.conn == c {
			w.hear(c, words)
		}
	})
}

func (w *worker) hear(c *conn, words engine.ToWorker) {
	w.heard = w.s.now
	if words.Registered != nil && w.answered != c { // later ones answer what it has said again
		w.answered = c
		w.pause, w.limit = simReconnectMin, max(words.Registered.Lease*2/3, time.Second)
		w.heartbeat(c)
	}
	if ack := words.HeartbeatAck; ack != nil {
		w.extend(time.Duration(ack.SentAt) + ack.Grant)
	}
	for _, ack := range words.Acks {
		w.s.oracle.acknowledged(w, ack)
		delete(w.ends, ack.Token)
	}
	for _, stop := range words.Stops {
		if h := w.attempts[stop.Token]; h != nil {
			h.stop(stop.Cause)
		}
	}
	for i := range words.Assign {
		w.assigned(&words.Assign[i])
	}
	if words.Goodbye {
		w.say()
		w.hangUp(true)
	}
}

// assigned starts a handler, or hands the attempt back.
func (w *worker) assigned(st *scheduler.Start) {
	if w.attempts[st.Token] != nil {
		return
	}
	if w.draining || (st.Spec.Exclusive && w.s.now >= w.granted) {
		w.end(scheduler.Report{Token: st.Token, Outcome: scheduler.OutcomeHandedBack, Failure: scheduler.Failure{Reason: "refused"}})
		return
	}
	w.s.oracle.starts(w, st)
	h := &handler{w: w, token: st.Token, kind: st.Kind, exclusive: st.Spec.Exclusive}
	w.attempts[st.Token] = h
	w.accepted = append(w.accepted, st.Token)
	h.run(st)
	w.speak()
}

// end says how an attempt has ended, until it is acknowledged.
func (w *worker) end(r scheduler.Report) {
	w.ends[r.Token] = r
	w.toSend = append(w.toSend, r.Token)
	w.speak()
}

// extend takes a grant for exclusive handlers, which are stopped when it runs out.
func (w *worker) extend(until time.Duration) {
	w.granted = max(w.granted, until)
	granted := w.granted
	w.s.tracef("%s may run exclusive tasks until %v", w.name, granted)
	w.after(granted-w.s.now, func() {
		if w.s.now < w.granted {
			return
		}
		for _, h := range w.running() {
			if h.exclusive && !h.told {
				h.expire()
			}
		}
	})
}

// running lists the handlers, in order.
func (w *worker) running() []*handler {
	var all []*handler
	for _, h := range w.attempts {
		all = append(all, h)
	}
	slices.SortFunc(all, func(a, b *handler) int { return compareTokens(a.token, b.token) })
	return all
}

// runs counts the handlers of a kind that nobody has given up.
func (w *worker) runs(kind string) int {
	n := 0
	for _, h := range w.attempts { // a sum: the order does not matter
		if h.kind == kind && !h.lost {
			n++
		}
	}
	return n
}

// freeze stops everything for a while. What comes meanwhile is taken afterwards, in order.
func (w *worker) freeze(d time.Duration) {
	if !w.alive || w.paused > w.s.now {
		return
	}
	w.s.tracef("%s is paused for %v", w.name, d)
	w.paused, w.frozen = min(w.s.now+d, simTrouble), true
	w.s.at(w.paused, w.thaw)
}

// thaw goes on. An exclusive handler whose time has run out meanwhile is killed before anything else.
func (w *worker) thaw() {
	if !w.alive || !w.frozen || w.paused > w.s.now {
		return
	}
	w.frozen = false
	w.s.tracef("%s goes on", w.name)
	for _, h := range w.running() {
		switch {
		case !h.exclusive:
		case w.s.now >= w.granted:
			h.stopped()
		default:
			w.s.oracle.alone(w, h.token)
		}
	}
}

// crash ends the process with everything it ran.
func (w *worker) crash(down time.Duration) {
	if !w.alive {
		return
	}
	w.s.tracef("%s is killed, down for %v", w.name, down)
	w.vanish(down)
}

func (w *worker) vanish(down time.Duration) {
	w.alive = false
	w.life++
	if w.conn != nil {
		w.conn.workerDied(w.s.chance(0.8))
		w.conn = nil
	}
	w.attempts, w.ends = nil, nil
	w.s.after(down, w.start)
}

// leave drains: no more work, a grace for what runs, every end said; then the process ends.
func (w *worker) leave(grace time.Duration) {
	if !w.alive || w.draining {
		return
	}
	w.s.tracef("%s drains", w.name)
	w.draining, w.drain = true, true
	w.speak()
	w.after(grace, func() {
		for _, h := range w.running() {
			h.giveUp()
		}
	})
	w.awaitFlush(w.s.now + grace + 10*time.Second)
}

func (w *worker) awaitFlush(limit time.Duration) {
	w.after(100*time.Millisecond, func() {
		if (len(w.attempts) > 0 || len(w.ends) > 0) && w.s.now < limit {
			w.awaitFlush(limit)
			return
		}
		w.s.tracef("%s says goodbye", w.name)
		if len(w.attempts) > 0 || len(w.ends) > 0 {
			w.s.oracle.leftUnsaid[w.self.ID] = true
		} else if w.conn != nil {
			w.conn.toInstance(engine.FromWorker{Goodbye: true})
		}
		w.vanish(w.s.upTo(2 * time.Second))
	})
}

// busy tells whether it still holds something, or is on its way to be there.
func (w *worker) busy() bool {
	return !w.alive || w.draining || len(w.attempts) > 0 || len(w.ends) > 0 || w.paused > w.s.now
}
