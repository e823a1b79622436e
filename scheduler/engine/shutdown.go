package engine

import (
	"slices"

	"github.com/errandhq/errand/scheduler"
)

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
	if e.home.ended || e.submits.waiting() > 0 || len(e.links.open) > 0 || e.ending() || e.unwritten || e.writing() {
		return
	}
	e.home.ended = true
	open := 0
	for _, one := range e.served {
		one.ended = true
		if one.opened {
			open++
			e.endSession(one, &open)
		}
	}
	if open == 0 {
		e.stopped = true
		e.emit(Stopped{})
	}
}

// endSession ends a session politely; with the last one the instance has stopped.
func (e *Engine) endSession(s *served, open *int) {
	request := EndSession{Region: s.name, ID: s.id}
	e.run(s.session.ending, request, func(st *statement, _ any, err error) {
		const triesMax = 3
		if err != nil && st.tries < triesMax {
			e.tryAgain(st, err)
			return
		}
		e.finish(st)
		if *open--; *open == 0 {
			e.stopped = true
			e.emit(Stopped{})
		}
	})
}

// ending tells whether ends of attempts wait to be written.
func (e *Engine) ending() bool {
	return slices.ContainsFunc(e.served, func(s *served) bool { return len(s.ends.pending) > 0 })
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
