package engine

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/errandhq/errand/placement"
	"github.com/errandhq/errand/scheduler"
)

// This file holds the doors of a [Shell] for the edge: questions with tickets, workers' streams, and waits for ends.

// Submit stores new tasks and returns one outcome each. When ctx ends first, what is not on its way to the store is dropped
// (ErrBusy) and what is has an unknown outcome (ErrOutcomeUnknown, with the id).
func (s *Shell) Submit(ctx context.Context, tasks []scheduler.Task) ([]SubmitOutcome, error) {
	ticket, answer := s.tickets.issue()
	s.Post(SubmitAsked{Ticket: ticket, Tasks: tasks})
	select {
	case got := <-answer:
		return got.(SubmitAnswered).Outcomes, nil
	case <-s.stopped:
		return nil, ErrStopping
	case <-ctx.Done():
	}
	s.Post(SubmitWithdrawn{Ticket: ticket})
	select {
	case got := <-answer:
		return got.(SubmitAnswered).Outcomes, nil
	case <-s.stopped:
		return nil, ErrStopping
	}
}

// Link stores tasks that have parents; inside is not nil when they are a graph: see [LinkAsked]. When ctx ends first the answer's
// error is ErrBusy, and nothing was stored, or ErrOutcomeUnknown.
func (s *Shell) Link(ctx context.Context, in LinkAsked) (LinkAnswered, error) {
	ticket, answer := s.tickets.issue()
	in.Ticket = ticket
	s.Post(in)
	select {
	case got := <-answer:
		return got.(LinkAnswered), nil
	case <-s.stopped:
		return LinkAnswered{}, ErrStopping
	case <-ctx.Done():
	}
	s.Post(SubmitWithdrawn{Ticket: ticket})
	select {
	case got := <-answer:
		return got.(LinkAnswered), nil
	case <-s.stopped:
		return LinkAnswered{}, ErrStopping
	}
}

// Cancel writes the wish to cancel tasks of a tenant in any one region and returns one answer each.
func (s *Shell) Cancel(ctx context.Context, region, tenant, message string, ids []scheduler.ID) ([]scheduler.CancelAnswer, error) {
	ticket, answer := s.tickets.issue()
	s.Post(CancelAsked{Ticket: ticket, Region: region, Tenant: tenant, IDs: ids, Message: message})
	got, err := s.await(ctx, ticket, answer)
	if err != nil {
		return nil, err
	}
	canceled := got.(CancelAnswered)
	return canceled.Answers, canceled.Err
}

// Updated tells that a waiting task was changed in the store, and how it stands now.
func (s *Shell) Updated(t scheduler.Task) { s.Post(TaskUpdated{Task: t}) }

// Explain says what keeps a waiting task from starting, as far as this instance knows, or with a token where that attempt runs.
func (s *Shell) Explain(ctx context.Context, row scheduler.ReadyRow, token scheduler.Token) (scheduler.Hold, error) {
	ticket, answer := s.tickets.issue()
	s.Post(ExplainAsked{Ticket: ticket, Row: row, Token: token})
	got, err := s.await(ctx, ticket, answer)
	if err != nil {
		return scheduler.Hold{}, err
	}
	return got.(Explained).Hold, nil
}

// Lend hands out rows that wait here, to another instance; overdue ones only when that is in another region, which it names then.
func (s *Shell) Lend(ctx context.Context, room []scheduler.KindRoom, limit int, to scheduler.Borrower) ([]scheduler.ReadyRow, error) {
	ticket, answer := s.tickets.issue()
	s.Post(LendAsked{Ticket: ticket, Room: room, Offers: to.Offers, Limit: limit, For: to.Region})
	got, err := s.await(ctx, ticket, answer)
	if err != nil {
		return nil, err
	}
	return got.(LendReady).Rows, nil
}

func (s *Shell) await(ctx context.Context, ticket Ticket, answer <-chan Effect) (Effect, error) {
	select {
	case got := <-answer:
		return got, nil
	case <-s.stopped:
		return nil, ErrStopping
	case <-ctx.Done():
		s.tickets.forget(ticket)
		return nil, ctx.Err()
	}
}

// tickets pairs questions with answers.
type tickets struct {
	mu   sync.Mutex
	last Ticket
	open map[Ticket]chan Effect
}

func (t *tickets) issue() (Ticket, <-chan Effect) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.open == nil {
		t.open = map[Ticket]chan Effect{}
	}
	t.last++
	answer := make(chan Effect, 1)
	t.open[t.last] = answer
	return t.last, answer
}

func (t *tickets) answer(id Ticket, eff Effect) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if answer := t.open[id]; answer != nil {
		delete(t.open, id)
		answer <- eff
	}
}

func (t *tickets) forget(id Ticket) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.open, id)
}

// Stream is one worker's connection, as the edge holds it.
type Stream struct {
	ID     StreamID
	shell  *Shell
	out    chan ToWorker
	closed chan struct{}
	once   sync.Once
}

// OpenStream begins a worker's connection. Close must be called in the end.
func (s *Shell) OpenStream() *Stream {
	st := s.streams.open(s)
	s.Post(StreamOpened{Stream: st.ID})
	return st
}

// Say brings a worker's message to the engine.
func (st *Stream) Say(words FromWorker) { st.shell.Post(WorkerSaid{Stream: st.ID, Words: words}) }

// Out delivers the messages for the worker, in order.
func (st *Stream) Out() <-chan ToWorker { return st.out }

// Closed is closed when the engine has given the connection up.
func (st *Stream) Closed() <-chan struct{} { return st.closed }

// Close ends the connection; the worker keeps its attempts for the rest of its lease.
func (st *Stream) Close() {
	st.end()
	st.shell.streams.forget(st.ID)
	st.shell.Post(StreamClosed{Stream: st.ID})
}

func (st *Stream) end() { st.once.Do(func() { close(st.closed) }) }

type streams struct {
	mu   sync.Mutex
	last StreamID
	byID map[StreamID]*Stream
}

func (t *streams) open(s *Shell) *Stream {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.byID == nil {
		t.byID = map[StreamID]*Stream{}
	}
	t.last++
	st := &Stream{ID: t.last, shell: s, out: make(chan ToWorker, streamOutboxMax), closed: make(chan struct{})}
	t.byID[st.ID] = st
	return st
}

func (t *streams) find(id StreamID) *Stream {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.byID[id]
}

// send never waits: a worker that does not read fast enough loses its connection, comes back and says what it holds.
func (t *streams) send(id StreamID, words ToWorker) {
	st := t.find(id)
	if st == nil {
		return
	}
	select {
	case st.out <- words:
	default:
		st.end()
	}
}

func (t *streams) close(id StreamID) {
	if st := t.find(id); st != nil {
		st.end()
	}
}

func (t *streams) forget(id StreamID) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.byID, id)
}

func (t *streams) closeAll() {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, st := range t.byID {
		st.end()
	}
}

// watchers tells those who wait for tasks to end at this instance.
type watchers struct {
	mu   sync.Mutex
	byID map[scheduler.ID][]chan<- scheduler.ID
}

// Watch sends the ID of each given task that ends at this instance on the channel, until stop is called. Ends at other
// instances are not seen here. A channel without room misses an end: whoever waits looks at the store from time to time.
func (s *Shell) Watch(ids []scheduler.ID, ended chan<- scheduler.ID) (stop func()) {
	w := &s.watchers
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.byID == nil {
		w.byID = map[scheduler.ID][]chan<- scheduler.ID{}
	}
	for _, id := range ids {
		w.byID[id] = append(w.byID[id], ended)
	}
	return func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		for _, id := range ids {
			w.drop(id, ended)
		}
	}
}

func (w *watchers) drop(id scheduler.ID, ended chan<- scheduler.ID) {
	kept := w.byID[id][:0]
	for _, c := range w.byID[id] {
		if c != ended {
			kept = append(kept, c)
		}
	}
	if w.byID[id] = kept; len(kept) == 0 {
		delete(w.byID, id)
	}
}

func (w *watchers) ended(ids []scheduler.ID) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.byID) == 0 {
		return
	}
	for _, id := range ids {
		for _, c := range w.byID[id] {
			select {
			case c <- id:
			default:
			}
		}
	}
}

// WorkerInfo is a worker as this instance sees it.
type WorkerInfo struct {
	Worker    placement.Worker // with the labels that operators have laid over it
	Version   string           // of its program
	Draining  bool             // it wants no more work, or an operator drains it
	Cordoned  bool
	Connected bool
	Silent    time.Duration // since it was heard last
	Running   int           // attempts
}

// Kinds lists what the worker serves, by name.
func (w *WorkerInfo) Kinds() []scheduler.KindRoom {
	var kinds []scheduler.KindRoom
	for _, kind := range slices.Sorted(maps.Keys(w.Worker.Slots)) {
		kinds = append(kinds, scheduler.KindRoom{Kind: kind, Slots: w.Worker.Slots[kind]})
	}
	return kinds
}

// Workers lists the workers of this instance, by identity.
func (s *Shell) Workers(ctx context.Context) ([]WorkerInfo, error) {
	ticket, answer := s.tickets.issue()
	s.Post(WorkersAsked{Ticket: ticket})
	got, err := s.await(ctx, ticket, answer)
	if err != nil {
		return nil, err
	}
	return got.(WorkersListed).Workers, nil
}

// Errors of [Shell.MarkWorker].
var (
	ErrNoWorker   = errors.New("no such worker is connected to this scheduler")
	ErrWorkerGone = errors.New("the worker was connected to this scheduler, and is not now")
	ErrMarksFull  = errors.New("more labels than can be laid over a worker")
)

// MarkWorker does what an operator wants of a worker of this instance, and returns the worker as it stands then. Its errors are ErrNoWorker,
// ErrWorkerGone and ErrMarksFull.
func (s *Shell) MarkWorker(ctx context.Context, id scheduler.WorkerID, change MarkChange) (WorkerInfo, error) {
	ticket, answer := s.tickets.issue()
	s.Post(MarkAsked{Ticket: ticket, ID: id, Change: change})
	got, err := s.await(ctx, ticket, answer)
	if err != nil {
		return WorkerInfo{}, err
	}
	switch marked := got.(WorkerMarked); {
	case marked.Gone:
		return WorkerInfo{}, ErrWorkerGone
	case marked.Worker == nil:
		return WorkerInfo{}, ErrNoWorker
	case marked.Full:
		return *marked.Worker, ErrMarksFull
	default:
		return *marked.Worker, nil
	}
}
