package engine

import (
	"slices"
	"time"

	"github.com/errandhq/errand/placement"
	"github.com/errandhq/errand/scheduler"
)

// workers holds the connections and leases of workers, and attempts that are being taken over for them.
type workers struct {
	streams  map[StreamID]scheduler.WorkerID // zero before its Register
	byID     map[scheduler.WorkerID]*worker
	lostAt   time.Duration // when the last worker was lost; zero for never
	coming   map[scheduler.Token]takeOver
	comingOf map[scheduler.WorkerID]int // how many, by worker
	// unsettled are workers in the order in which they have registered; see worker.settling.
	unsettled []scheduler.WorkerID
}

type worker struct {
	id       scheduler.WorkerID
	stream   StreamID // zero while it is not connected
	heard    time.Duration
	beat     Heartbeat        // its last one
	beatAt   time.Duration    // when that was heard; zero for never
	draining bool             // it has said so
	said     placement.Worker // what it says of itself
	version  string
	marks    Marks
	// settling is set from a register until what the worker holds is taken over and its first heartbeat is answered, but not
	// for longer than settleBy: only then is it known how much room it has, and may it run exclusive tasks.
	settling bool
	settleBy time.Duration
}

// takeOver is what is known of an attempt that is being taken over.
type takeOver struct {
	named  bool              // its worker says that it has it
	report *scheduler.Report // what it has reported meanwhile; nil for nothing
	// ends is set when the attempt was reported while its take-over was under way, and its end is being written: that will answer.
	ends bool
}

func newWorkers() workers {
	return workers{
		streams:  map[StreamID]scheduler.WorkerID{},
		byID:     map[scheduler.WorkerID]*worker{},
		coming:   map[scheduler.Token]takeOver{},
		comingOf: map[scheduler.WorkerID]int{},
	}
}

// forgive takes a pause of this process out of every worker's silence.
func (w *workers) forgive(gap time.Duration) {
	for _, one := range w.byID {
		one.heard += gap // not the time from which grants are counted: they end by the worker's clock
	}
}

// toWorker adds words to a worker's message of this turn, and tells whether there is a stream to send it on.
func (e *Engine) toWorker(id scheduler.WorkerID, add func(*ToWorker)) bool {
	w := e.workers.byID[id]
	if w == nil || w.stream == 0 {
		return false
	}
	words := e.out[w.stream]
	if words == nil {
		words = &ToWorker{}
		e.out[w.stream] = words
		e.outIDs = append(e.outIDs, w.stream)
	}
	add(words)
	return true
}

// workerSaid takes one message of a worker. Words before the Register, and on a stream that was replaced, are not heard.
func (e *Engine) workerSaid(in WorkerSaid) {
	if in.Words.Register != nil {
		e.register(in.Stream, in.Words.Register)
	}
	id, known := e.workers.streams[in.Stream]
	w := e.workers.byID[id]
	if !known || w == nil || w.stream != in.Stream {
		return
	}
	w.heard = e.local
	if len(in.Words.Accepted) > 0 {
		e.accepted(in.Words.Accepted)
	}
	if len(in.Words.Reports) > 0 {
		e.reported(in.Words.Reports)
	}
	if hb := in.Words.Heartbeat; hb != nil {
		w.beat, w.beatAt = *hb, e.local
		e.grant(w)
		e.settle(w)
	}
	if in.Words.Drain {
		e.drainWorker(id)
	}
	if in.Words.Goodbye {
		e.goodbye(w)
	}
}

// unsettle gives a worker no more work until its next heartbeat.
func (e *Engine) unsettle(w *worker) {
	if !w.settling {
		e.workers.unsettled = append(e.workers.unsettled, w.id)
	}
	w.settling, w.settleBy = true, e.local+e.timing.Accept
	e.core.Step(scheduler.WorkerDraining{ID: w.id, Draining: true})
}

// settle gives a worker work as soon as it is known what it holds.
func (e *Engine) settle(w *worker) {
	settled := w.beatAt > 0 && e.workers.comingOf[w.id] == 0
	if !w.settling || (!settled && e.local < w.settleBy) {
		return
	}
	w.settling = false
	e.core.Step(scheduler.WorkerDraining{ID: w.id, Draining: w.shut()})
}

// settleLate gives work to those whose take-overs take too long: a row that somebody else locks must not idle a worker.
func (e *Engine) settleLate() {
	list := &e.workers.unsettled
	for e.trusted() && len(*list) > 0 {
		w := e.workers.byID[(*list)[0]]
		if w != nil && w.settling && e.local < w.settleBy {
			return
		}
		if w != nil {
			e.settle(w)
		}
		*list = (*list)[1:]
	}
}

// grant answers a worker's last heartbeat, again when more can be granted than before.
func (e *Engine) grant(w *worker) {
	if w.beatAt == 0 {
		return
	}
	ack := HeartbeatAck{Seq: w.beat.Seq, SentAt: w.beat.SentAt, Grant: e.exclusiveGrant(w)}
	e.toWorker(w.id, func(words *ToWorker) { words.HeartbeatAck = &ack })
}

// grantAll answers everybody again: the session is trusted once more.
func (e *Engine) grantAll() {
	for _, id := range e.core.Workers() {
		if w := e.workers.byID[id]; w != nil {
			if e.workers.comingOf[id] > 0 { // they could not be written before
				e.unsettle(w)
			}
			e.grant(w)
		}
	}
}

// exclusiveGrant is how long an exclusive handler may run on from when its worker sent its last heartbeat: less than the time
// after which anybody could start the task again. While it is not known whether what the worker holds is still its own,
// nothing more is granted.
func (e *Engine) exclusiveGrant(w *worker) time.Duration {
	if e.workers.comingOf[w.id] > 0 {
		return 0
	}
	until := min(w.beatAt+e.timing.WorkerLease, e.trustedUntil()+e.timing.ReattachGrace)
	return max(until-w.beatAt-e.timing.ExclusiveStop, 0)
}

// trustedUntil is until when all sessions are trusted under which attempts may run here.
func (e *Engine) trustedUntil() time.Duration {
	until := e.home.trustUntil
	for _, s := range e.served {
		if s.opened && !s.ended {
			until = min(until, s.trustUntil)
		}
	}
	return until
}

// register connects a worker. A worker that was here before keeps its attempts; those that it held elsewhere are taken over.
func (e *Engine) register(stream StreamID, r *Register) {
	if _, open := e.workers.streams[stream]; !open {
		return
	}
	id := r.Worker.ID
	w := e.workers.byID[id]
	if w != nil && e.core.Worker(id).Tenant != r.Worker.Tenant { // an identity is no secret: another credential is another worker
		e.observe.Event("refused a worker that names another one's instance", "worker", id, "tenant", r.Worker.Tenant)
		e.emit(CloseStream{Stream: stream})
		return
	}
	e.workers.streams[stream] = id
	again := w != nil && w.stream == stream
	if w == nil {
		w = &worker{id: id}
		e.workers.byID[id] = w
	} else if w.stream != 0 && w.stream != stream {
		e.emit(CloseStream{Stream: w.stream})
	}
	update := again && r.Update
	w.stream, w.heard, w.said, w.version = stream, e.local, r.Worker, r.Version
	if w.marks.believes(&r.Marks) {
		w.marks = r.Marks
	} else {
		known := w.marks
		e.toWorker(id, func(words *ToWorker) { words.Marks = &known })
	}
	e.join(w)
	if !update {
		w.beatAt = 0
		e.unsettle(w)
	}
	e.toWorker(id, func(w *ToWorker) {
		w.Registered = &Registered{Session: e.home.id, Lease: e.timing.WorkerLease, Heartbeat: e.timing.Heartbeat}
	})

	var known []scheduler.Token
	for _, token := range r.Holds {
		token.Worker = id
		if e.core.Holds(token) {
			known = append(known, token)
		}
		if !update || !e.core.Holds(token) {
			e.attach(token, takeOver{named: true}) // also what is known here: another instance may have taken it over meanwhile
		}
	}
	if update && e.workers.comingOf[id] > 0 {
		e.unsettle(w)
	}
	e.core.Step(scheduler.WorkerHolds{ID: id, Tokens: known, Again: again})
}

func (e *Engine) accepted(tokens []scheduler.Token) {
	known := make([]scheduler.Token, 0, len(tokens))
	for _, token := range tokens {
		if e.core.Holds(token) {
			known = append(known, token)
		} else { // withdrawn meanwhile, or another instance's
			e.attach(token, takeOver{named: true})
		}
	}
	e.core.Step(scheduler.Accepted{Tokens: known})
}

// reported takes the ends of attempts. Of one that is not known to run here the row is taken over first, since what follows
// from a report depends on it; one whose end is being written already gets its answer from that, or from the take-over.
func (e *Engine) reported(reports []scheduler.Report) {
	known := make([]scheduler.Report, 0, len(reports))
	for i := range reports {
		r := &reports[i]
		if e.core.Runs(r.Token) {
			known = append(known, *r)
			if t, underway := e.workers.coming[r.Token]; underway {
				t.ends = true
				e.workers.coming[r.Token] = t
			}
			continue
		}
		e.attach(r.Token, takeOver{named: true, report: r})
	}
	e.core.Step(scheduler.Reported{Reports: known})
	for i := range known {
		// One that hands work back has a reason that is not known here: without a pause the same task would go to and fro.
		if w := e.workers.byID[known[i].Token.Worker]; w != nil && known[i].Outcome == scheduler.OutcomeHandedBack {
			e.unsettle(w)
		}
	}
}

// attach queues the take-over of an attempt.
func (e *Engine) attach(token scheduler.Token, t takeOver) {
	known, underway := e.workers.coming[token]
	if !underway {
		of := e.serve(token.ID)
		of.wanted = append(of.wanted, token)
		e.workers.comingOf[token.Worker]++
	}
	if t.report == nil {
		t.report = known.report
	}
	t.named, t.ends = t.named || known.named, t.ends || known.ends
	e.workers.coming[token] = t
}

// attachHeld takes everything over that ran under an earlier session of this instance in a region.
func (e *Engine) attachHeld(s *served) {
	for _, h := range e.heldOf(s) {
		e.attach(h.Token, takeOver{})
		if w := e.workers.byID[h.Worker]; w != nil {
			e.unsettle(w)
		}
	}
}

// attachWanted sends the take-overs that wait. One whose end this instance is writing already waits for the answer: after a
// take-over by the same session that end would be allowed to win.
func (e *Engine) attachWanted() {
	for _, s := range e.served {
		e.attachWantedIn(s)
	}
}

func (e *Engine) attachWantedIn(w *served) {
	for w.attaching.free() && e.trusts(w) {
		var batch, later []scheduler.Token
		for _, token := range w.wanted {
			_, stray := e.strays[token]
			if stray || (e.core.Holds(token) && !e.core.Runs(token)) || len(batch) == scheduler.BatchRowsMax {
				later = append(later, token)
			} else {
				batch = append(batch, token)
			}
		}
		w.wanted = later
		if len(batch) == 0 {
			return
		}
		e.run(&w.attaching, scheduler.AttachBatch{Region: w.name, Session: w.id, Tokens: batch}, e.attached)
	}
}

func (e *Engine) attached(s *statement, answer any, err error) {
	b := s.request.(scheduler.AttachBatch)
	of := e.serve(b.Tokens[0].ID)
	if err != nil && b.Session == of.id {
		switch classify(err, len(b.Tokens)) {
		case halve:
			first, second := b, b
			half := len(b.Tokens) / 2
			first.Tokens, second.Tokens = b.Tokens[:half], b.Tokens[half:]
			e.split(s, first, second)
		case aside, refuse:
			e.setAside(s, err)
		default:
			e.tryAgain(s, err)
		}
		return
	}
	e.finish(s)
	if b.Session != of.id { // the session has changed meanwhile: ask again under the new one
		of.wanted = append(of.wanted, b.Tokens...)
		return
	}
	answers := answer.([]scheduler.Attached)
	for i := range answers {
		e.attachAnswered(b.Tokens[i], &answers[i])
	}
}

// attachAnswered goes on with an attempt that is this instance's now, and tells the worker of one that is not its own any more.
func (e *Engine) attachAnswered(token scheduler.Token, a *scheduler.Attached) {
	t := e.workers.coming[token]
	delete(e.workers.coming, token)
	w := e.workers.byID[token.Worker]
	if e.workers.comingOf[token.Worker]--; e.workers.comingOf[token.Worker] == 0 {
		delete(e.workers.comingOf, token.Worker)
		if w != nil {
			e.grant(w)
			defer e.settle(w) // when its room is known
		}
	}
	switch {
	case a.Verdict == scheduler.Won && w != nil && (t.named || e.core.Runs(token)):
		if of := e.serve(token.ID); of.review.takenOver != nil {
			of.review.takenOver[token] = true
		}
		e.core.Step(scheduler.TookOver{Held: []scheduler.Held{a.Held}})
		if t.report != nil {
			e.core.Step(scheduler.Reported{Reports: []scheduler.Report{*t.report}})
		}
	case a.Verdict == scheduler.Won:
		// The worker is gone again, or it was given up meanwhile and never said that it runs: the row is nobody's, and
		// reconciliation gives it back.
	case t.ends && t.report == nil:
		// What it says is that the end is recorded, or somebody else's: the answer to the end says which.
	default:
		if t.report == nil {
			e.core.Step(scheduler.RowsMissing{Tokens: []scheduler.Token{token}})
		}
		answer := ackOfRepetition(t.report, a)
		e.toWorker(token.Worker, func(w *ToWorker) { // what it may have reported since was not answered, waiting for this
			w.Acks = append(w.Acks, Ack{Token: token, Answer: answer})
			if t.report == nil {
				w.Stops = append(w.Stops, scheduler.Stop{Token: token, Cause: scheduler.StopLost})
			}
		})
	}
}

// ackOfRepetition answers for an attempt that is not running: like the first time when its end was recorded, and the answer was lost on
// the way or is on its way still. Without a report to compare with, only an end that none but the worker can have told counts as told.
func ackOfRepetition(r *scheduler.Report, a *scheduler.Attached) AckAnswer {
	succeeded := a.State == scheduler.Succeeded
	switch {
	case !a.Latest:
		return AckLost
	case r == nil && succeeded:
		return AckRecorded
	case r == nil:
		return AckLost
	case a.State == scheduler.Canceled && r.Outcome != scheduler.OutcomeSucceeded:
		return AckCanceled
	case succeeded == (r.Outcome == scheduler.OutcomeSucceeded):
		return AckRecorded
	default:
		return AckLost
	}
}

// streamClosed leaves a worker without a connection: it gets no work, and keeps its attempts for the rest of its lease.
func (e *Engine) streamClosed(stream StreamID) {
	id := e.workers.streams[stream]
	delete(e.workers.streams, stream)
	delete(e.out, stream)
	e.outIDs = slices.DeleteFunc(e.outIDs, func(s StreamID) bool { return s == stream })
	if w := e.workers.byID[id]; w != nil && w.stream == stream {
		w.stream = 0
		e.core.Step(scheduler.WorkerDraining{ID: id, Draining: true})
	}
}

// goodbye forgets a worker that holds nothing and goes.
func (e *Engine) goodbye(w *worker) {
	delete(e.workers.byID, w.id)
	e.core.Step(scheduler.WorkerHolds{ID: w.id})
	e.core.Step(scheduler.WorkerLeft{ID: w.id})
	e.emit(CloseStream{Stream: w.stream})
}

func (e *Engine) drainWorker(id scheduler.WorkerID) {
	if w := e.workers.byID[id]; w != nil {
		w.draining = true
		e.core.Step(scheduler.WorkerDraining{ID: id, Draining: true})
		e.toWorker(id, func(w *ToWorker) { w.Drain = true })
	}
}

// watchWorkers gives back what silent workers ran, and sends the take-overs that wait. A worker that is silent here may have
// gone to an instance that could not write that down while the store was away: it gets the time to do so first.
func (e *Engine) watchWorkers() {
	e.attachWanted()
	e.settleLate()
	if e.local < e.quietUntil {
		return
	}
	silent, incident := e.silentWorkers()
	if len(silent) == 0 {
		return
	}
	slices.SortFunc(silent, scheduler.WorkerID.Compare)
	if !e.steady(e.home) {
		e.disconnect(silent)
		return
	}
	for _, id := range silent {
		e.observe.Event("worker lost: silent for its lease", "worker", id, "attempts", len(e.core.HeldBy(id)))
		if w := e.workers.byID[id]; w.stream != 0 {
			e.emit(CloseStream{Stream: w.stream})
		}
		delete(e.workers.byID, id)
	}
	e.observe.Rows("lost_worker", len(silent))
	e.workers.lostAt = e.local
	e.core.Step(scheduler.WorkersLost{IDs: silent, Incident: incident})
}

// silentWorkers lists the workers that were silent for their lease. Those that died together fall silent up to a heartbeat
// apart: it is an incident when another one was lost within the last heartbeat, or is silent for so long that it has missed one.
func (e *Engine) silentWorkers() (silent []scheduler.WorkerID, incident bool) {
	w := &e.workers
	incident = w.lostAt > 0 && e.local-w.lostAt <= e.timing.Heartbeat
	for id, one := range w.byID {
		switch quiet := e.local - one.heard; {
		case quiet > e.timing.WorkerLease:
			silent = append(silent, id)
		case quiet > e.timing.WorkerLease-e.timing.Heartbeat:
			incident = true
		}
	}
	return silent, incident
}

// disconnect gives silent workers no more work, and concludes nothing else.
func (e *Engine) disconnect(silent []scheduler.WorkerID) {
	for _, id := range silent {
		w := e.workers.byID[id]
		if w.stream == 0 {
			continue
		}
		e.emit(CloseStream{Stream: w.stream})
		w.stream = 0
		e.core.Step(scheduler.WorkerDraining{ID: id, Draining: true})
	}
}

func (e *Engine) listWorkers(ticket Ticket) {
	var list []WorkerInfo
	for _, id := range e.core.Workers() {
		if w := e.workers.byID[id]; w != nil {
			list = append(list, e.workerInfo(w))
		}
	}
	e.emit(WorkersListed{Ticket: ticket, Workers: list})
}
