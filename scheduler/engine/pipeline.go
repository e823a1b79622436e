package engine

import (
	"errors"
	"time"

	"github.com/errandhq/errand/scheduler"
)

// Bounds of retrying a statement whose outcome is not known. It is executed again until the store answers: what it may have
// changed is settled by the same guarded statement, never by a read alone.
const (
	retryFirst = 50 * time.Millisecond
	retryMax   = time.Second
	// asidePause is how long a single row that somebody else locks is set aside.
	asidePause = time.Second
)

// statement is one execution in flight, or waiting to be tried again.
type statement struct {
	id      uint64
	request any
	tries   int
	aside   bool          // a single row set aside: it occupies no place in its pipeline
	again   time.Duration // when it is tried again; zero while it is in flight
	failing time.Duration // when it failed first; zero while it has not
	done    func(s *statement, answer any, err error)
	pipe    *pipe
}

// pipe counts the statements of one kind that are in flight.
type pipe struct {
	name     string
	inFlight int
	limit    int
}

func (p *pipe) free() bool { return p.inFlight < p.limit }

// takeBatch takes the first rows of what is pending, as many as one write may have: at most rows, and together at most
// BatchBytesMax unless a single one is larger. The batch shares no room with what stays: neither grows into the other.
func takeBatch[T any](pending *[]T, rows int, bytes func(T) int) []T {
	all, sum, n := *pending, 0, 0
	for n < len(all) && n < rows {
		if sum += bytes(all[n]); n > 0 && sum > scheduler.BatchBytesMax {
			break
		}
		n++
	}
	*pending = all[n:]
	if n == len(all) {
		*pending = nil
	}
	return all[:n:n]
}

// run starts a statement in a pipe. done is called with its answer in a later turn.
func (e *Engine) run(p *pipe, request any, done func(s *statement, answer any, err error)) {
	e.launch(&statement{request: request, done: done, pipe: p})
}

func (e *Engine) launch(s *statement) {
	if s.id == 0 {
		e.lastStatement++
		s.id = e.lastStatement
		e.statements[s.id] = s
		if !s.aside {
			s.pipe.inFlight++
		}
	}
	s.again = 0
	s.tries++
	e.emit(Run{ID: s.id, Request: s.request})
}

// statementDone takes an answer to the one who asked.
func (e *Engine) statementDone(in StatementDone) {
	s := e.statements[in.ID]
	if s == nil {
		return
	}
	s.done(s, in.Answer, in.Err)
}

// finish forgets a statement that needs no further try.
func (e *Engine) finish(s *statement) {
	delete(e.statements, s.id)
	if !s.aside {
		s.pipe.inFlight--
	}
}

// tryAgain executes a statement again after a pause. Its place in the pipe stays taken: the next batch collects meanwhile.
func (e *Engine) tryAgain(s *statement, err error) {
	pause := min(retryFirst<<min(s.tries-1, 10), retryMax)
	if s.aside {
		pause = max(pause, asidePause)
	}
	s.again = e.local + pause
	if s.failing == 0 {
		s.failing = e.local
	}
	e.retries = append(e.retries, s)
	e.observe.StatementFailed(s.pipe.name, s.tries, err)
}

// launchRetries starts the statements whose pause is over.
func (e *Engine) launchRetries() {
	later := e.retries[:0]
	var now []*statement
	for _, s := range e.retries {
		if s.again <= e.local {
			now = append(now, s)
		} else {
			later = append(later, s)
		}
	}
	e.retries = later
	for _, s := range now {
		e.launch(s)
	}
}

// failure says what to do with a batch of n rows after an error.
type failure uint8

const (
	again  failure = iota // nobody knows what stands: the same statement again
	halve                 // one of the rows is the cause: try the halves
	refuse                // this single row will never be taken
	aside                 // this single row is locked by somebody: later
)

func classify(err error, rows int) failure {
	switch {
	case errors.Is(err, scheduler.ErrRefused) && rows > 1, errors.Is(err, scheduler.ErrLocked) && rows > 1:
		return halve
	case errors.Is(err, scheduler.ErrRefused):
		return refuse
	case errors.Is(err, scheduler.ErrLocked):
		return aside
	default:
		return again
	}
}

// split runs the two halves of a batch in its stead; they may exceed the pipe's limit for a moment.
func (e *Engine) split(s *statement, first, second any) {
	e.finish(s)
	for _, request := range []any{first, second} {
		e.launch(&statement{request: request, done: s.done, pipe: s.pipe})
	}
}

// setAside tries a single row again later, without holding up the batches behind it.
func (e *Engine) setAside(s *statement, err error) {
	if !s.aside {
		s.aside = true
		s.pipe.inFlight--
	}
	e.tryAgain(s, err)
}
