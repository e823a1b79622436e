package engine

import "github.com/errandhq/errand/scheduler"

// shutdown starts a polite end. Nothing new is started or taken in; workers are told to connect elsewhere and keep what they
// run; what is under way is written down; then the session is ended, so that other instances need not wait for it to expire.
// No running row is handed back: its worker takes it along.
func (e *Engine) shutdown() {
	if e.stopping {
		return
	}
	e.stopping, e.stopBy = true, e.local+e.timing.Accept
	for _, id := range e.core.Workers() {
		e.toWorker(id, func(w *ToWorker) { w.Goodbye = true })
	}
}

// settleUnaccepted withdraws assignments that went out just before the goodbye and were not accepted by the time that their
// worker closed its stream, or time is up: nobody runs them, and no attempt must be burnt by a rolling restart.
func (e *Engine) settleUnaccepted() {
	for _, id := range e.core.Workers() {
		if w := e.workers.byID[id]; w != nil && w.stream != 0 && e.local < e.stopBy {
			continue
		}
		if tokens := e.core.Unaccepted(id); len(tokens) > 0 {
			e.core.Step(scheduler.Undelivered{Tokens: tokens})
		}
	}
}

// connected tells whether a worker still has its stream here.
func (e *Engine) connected() bool {
	for _, w := range e.workers.byID {
		if w.stream != 0 {
			return true
		}
	}
	return false
}

// checkStopped ends the session when nothing is under way any more.
func (e *Engine) checkStopped() {
	if !e.stopping || e.stopped {
		return
	}
	if e.connected() && e.local < e.stopBy {
		return
	}
	if e.session.ended || e.submits.waiting() > 0 || len(e.links.open) > 0 || len(e.endings.pending) > 0 || e.unwritten || e.writing() {
		return
	}
	e.session.ended = true
	if !e.session.opened {
		e.stopped = true
		e.emit(Stopped{})
		return
	}
	request := EndSession{Region: e.region, ID: e.session.id}
	e.run(e.session.ending, request, func(s *statement, _ any, err error) {
		const triesMax = 3
		if err != nil && s.tries < triesMax {
			e.tryAgain(s, err)
			return
		}
		e.finish(s)
		e.stopped = true
		e.emit(Stopped{})
	})
}

// writing tells whether the answer to a write is awaited, also of one that is set aside.
func (e *Engine) writing() bool {
	for _, s := range e.statements { // in any order: one is enough
		switch s.request.(type) {
		case scheduler.Insert, scheduler.ClaimBatch, scheduler.EndBatch, scheduler.AttachBatch, scheduler.CancelBatch,
			scheduler.InsertLinked:
			return true
		}
	}
	return false
}
