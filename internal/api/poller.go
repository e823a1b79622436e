package api

import (
	"context"
	"sync"
	"time"

	"github.com/errandhq/errand/scheduler"
	"github.com/errandhq/errand/scheduler/engine"
)

// Bounds of the workers that poll.
const (
	pollersMax  = 10_000           // known at once; another one is told to try again
	pollerStays = 30 * time.Second // without a call: longer than the lease, after which its attempts are others'
	// givenStays is for how long an assignment that the worker does not name counts as on its way: a call that was cut off may reach
	// us later than the one that came after it.
	givenStays = 5 * time.Second
)

// pollers are the workers that poll this scheduler.
type pollers struct {
	mu   sync.Mutex
	byID map[scheduler.WorkerID]*poller
}

// poller is one of them. It has a stream to the engine while a call of it is here.
type poller struct {
	all *pollers
	id  scheduler.WorkerID

	mu       sync.Mutex
	conn     *engine.Stream // nil between calls
	calls    int            // here now
	turns    int            // polls so far: a new one takes the place of the one before
	said     bool           // a register, on this stream
	register *engine.Register
	told     int64                         // the revision of the marks that a poll has brought last: a worker that does not keep them is not told at once again
	holds    map[scheduler.Token]time.Time // what it runs as far as known here, and when it was given out; zero when it has named it
	heard    engine.ToWorker               // what the engine has said, and no call has taken
	answers  map[scheduler.Token]engine.AckAnswer
	news     chan struct{} // closed, and made anew, at every change
	over     bool          // the engine has given the stream up
	forget   *time.Timer
}

// enter begins a call of a worker.
func (all *pollers) enter(s Scheduler, id scheduler.WorkerID) (*poller, error) {
	all.mu.Lock()
	defer all.mu.Unlock()
	if all.byID == nil {
		all.byID = map[scheduler.WorkerID]*poller{}
	}
	p := all.byID[id]
	if p == nil {
		if len(all.byID) >= pollersMax {
			return nil, engine.ErrBusy
		}
		p = &poller{
			all: all, id: id, holds: map[scheduler.Token]time.Time{}, answers: map[scheduler.Token]engine.AckAnswer{}, news: make(chan struct{}),
		}
		all.byID[id] = p
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.forget != nil {
		p.forget.Stop()
		p.forget = nil
	}
	p.calls++
	if p.conn == nil {
		p.conn, p.said, p.over, p.heard = s.OpenStream(), false, false, engine.ToWorker{}
		go p.hear(p.conn)
	}
	return p, nil
}

// leave ends a call. With the last one the stream ends: the worker keeps its attempts for its lease. A stranger says goodbye.
func (p *poller) leave(stranger bool) {
	p.all.mu.Lock()
	defer p.all.mu.Unlock()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.calls--
	if p.calls > 0 {
		return
	}
	var last engine.FromWorker
	for i := range p.heard.Assign { // nobody was there to take it
		last.Reports = append(last.Reports, scheduler.Report{Token: p.heard.Assign[i].Token, Outcome: scheduler.OutcomeHandedBack})
	}
	if last.Goodbye = stranger; stranger || len(last.Reports) > 0 {
		p.conn.Say(last)
	}
	p.conn.Close()
	p.conn = nil
	clear(p.answers) // of calls that were cut off: said again, it is answered again
	p.forget = time.AfterFunc(pollerStays, p.gone)
}

// gone forgets a worker that does not call any more.
func (p *poller) gone() {
	p.all.mu.Lock()
	defer p.all.mu.Unlock()
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.calls == 0 && p.all.byID[p.id] == p {
		delete(p.all.byID, p.id)
	}
}

// begin says what a poll says, and takes the place of an earlier one that waits still. What is said and what is noted go together:
// between the two another call could change what the worker holds.
func (p *poller) begin(r *engine.Register, beat *engine.Heartbeat) (turn int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.register, p.said = r, true
	before := p.holds
	p.holds = make(map[scheduler.Token]time.Time, len(r.Holds))
	for _, token := range r.Holds {
		p.holds[token] = time.Time{}
	}
	for token, given := range before {
		if _, named := p.holds[token]; !named && time.Since(given) < givenStays {
			p.holds[token] = given
			r.Holds = append(r.Holds, token)
		}
	}
	sortTokens(r.Holds)
	p.turns++
	p.changed()
	p.conn.Say(engine.FromWorker{Register: r, Accepted: r.Holds, Heartbeat: beat})
	return p.turns
}

// answered tells, with p.mu held, whether all reports are answered.
func (p *poller) answered(reports []scheduler.Report) bool {
	for i := range reports {
		if _, here := p.answers[reports[i].Token]; !here {
			return false
		}
	}
	return true
}

func (p *poller) takeAnswer(token scheduler.Token) (engine.AckAnswer, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	answer, here := p.answers[token]
	delete(p.answers, token)
	return answer, here
}

func (p *poller) changed() {
	close(p.news)
	p.news = make(chan struct{})
}

// hear collects what the engine says on a stream until it ends.
func (p *poller) hear(st *engine.Stream) {
	for {
		select {
		case words := <-st.Out():
			p.mu.Lock()
			if p.conn == st {
				p.take(&words)
				p.changed()
			}
			p.mu.Unlock()
		case <-st.Closed():
			p.mu.Lock()
			if p.conn == st {
				p.over = true
				p.changed()
			}
			p.mu.Unlock()
			return
		}
	}
}

func (p *poller) take(words *engine.ToWorker) {
	h := &p.heard
	h.Assign = append(h.Assign, words.Assign...)
	h.Stops = append(h.Stops, words.Stops...)
	h.Drain = h.Drain || words.Drain
	p.over = p.over || words.Goodbye
	if words.Marks != nil {
		h.Marks = words.Marks
	}
	if words.Registered != nil {
		h.Registered = words.Registered
	}
	if words.HeartbeatAck != nil {
		h.HeartbeatAck = words.HeartbeatAck
	}
	for _, ack := range words.Acks {
		p.answers[ack.Token] = ack.Answer
		delete(p.holds, ack.Token)
	}
}

// await waits until enough is there, or the time is over, and takes what there is; nothing for a poll whose place another one has
// taken. turn is 0 for a report. Meanwhile the worker counts as alive.
func (p *poller) await(ctx context.Context, wait time.Duration, turn int, enough func(*engine.ToWorker) bool) (engine.ToWorker, error) {
	timeout := time.NewTimer(wait)
	defer timeout.Stop()
	beat := time.NewTicker(pollBeat)
	defer beat.Stop()
	for late := false; ; {
		p.mu.Lock()
		switch {
		case p.over:
			p.mu.Unlock()
			return engine.ToWorker{}, errReplaced
		case turn > 0 && turn != p.turns:
			p.mu.Unlock()
			return engine.ToWorker{}, nil
		case late || enough(&p.heard):
			got := p.heard
			p.heard = engine.ToWorker{}
			if turn == 0 { // a report: work, and what belongs to it, is for polls
				p.heard.Assign, p.heard.Registered, p.heard.Drain, p.heard.Marks = got.Assign, got.Registered, got.Drain, got.Marks
			} else if got.Marks != nil {
				p.told = got.Marks.Revision
			}
			p.mu.Unlock()
			return got, nil
		}
		news, st := p.news, p.conn
		p.mu.Unlock()
		select {
		case <-news:
		case <-timeout.C:
			late = true
		case <-beat.C:
			if err := revoked(ctx); err != nil {
				return engine.ToWorker{}, err
			}
			st.Say(engine.FromWorker{}) // a word without content: it lives
		case <-ctx.Done():
			return engine.ToWorker{}, ctx.Err()
		}
	}
}
