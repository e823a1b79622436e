package engine

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/errandhq/errand/scheduler"
)

// Bounds of the shell.
const (
	streamOutboxMax = 1024             // messages that wait for a worker's connection; a slower one is closed and comes back
	linkedLimit     = 20 * time.Second // for a graph of ten thousand tasks; those that come with many edges take seconds
	turnsRemembered = 250 * time.Millisecond
)

// Peers reaches the other instances of the region. Everything it does has a slower path through the store, so its errors
// cost time and nothing else.
type Peers interface {
	// Lend asks for rows for the borrower; of a peer in another region than the one that it names, for overdue ones.
	Lend(ctx context.Context, peer scheduler.Session, room []scheduler.KindRoom, limit int, to scheduler.Borrower) ([]scheduler.ReadyRow, error)
	Starved(ctx context.Context, peer scheduler.Session, kinds []string) error
	Cancel(ctx context.Context, peer scheduler.Session, token scheduler.Token) error
	Use(ctx context.Context, peer scheduler.Session, from scheduler.SessionID, use scheduler.Use) error
}

// Hints carries hints to whoever serves a shard. Losing one costs time and nothing else.
type Hints interface {
	Publish(ctx context.Context, hints []Hint) error
}

// Shell drives an [Engine] with goroutines: it runs its statements, carries frames and calls its turns. Its methods are safe
// for concurrent use.
type Shell struct {
	engine *Engine
	store  Store
	timing scheduler.Timing
	peers  Peers // nil for none
	hints  Hints // nil for none

	mu      sync.Mutex
	inbox   []Input
	wake    chan struct{} // capacity 1: there is something in the inbox
	stopped chan struct{}

	start    time.Time // where the local clock begins
	tickets  tickets
	streams  streams
	watchers watchers
	status   atomic.Pointer[Status]
	catalog  atomic.Pointer[Catalog]
	work     sync.WaitGroup // statements and calls to peers under way
}

// NewShell puts a shell around an engine. peers and hints may be nil.
func NewShell(e *Engine, store Store, peers Peers, hints Hints) *Shell {
	s := &Shell{
		engine:  e,
		store:   store,
		timing:  e.timing,
		peers:   peers,
		hints:   hints,
		wake:    make(chan struct{}, 1),
		stopped: make(chan struct{}),
		start:   time.Now(),
	}
	s.status.Store(&Status{})
	s.catalog.Store(&Catalog{})
	return s
}

// Run turns the engine until ctx ends, then shuts it down politely: within the given time what is under way is written and
// the session ended. It returns when every goroutine that it started has ended.
func (s *Shell) Run(ctx context.Context, goodbye time.Duration) error {
	// Statements outlive ctx: they are what a polite end waits for.
	work, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer func() {
		cancel()
		s.work.Wait()
		s.streams.closeAll()
	}()

	start := s.start
	timer := time.NewTimer(0)
	defer timer.Stop()
	done := ctx.Done()
	var giveUp <-chan time.Time
	for {
		select {
		case <-s.wake:
		case <-timer.C:
		case <-done:
			s.Post(ShutdownAsked{})
			done, giveUp = nil, time.After(goodbye)
			continue
		case <-giveUp:
			close(s.stopped)
			return context.DeadlineExceeded
		}
		local := time.Since(start) + 1 // never zero
		effects := s.engine.Turn(local, s.take())
		s.publishStatus()
		s.catalog.Store(s.engine.Catalog())
		for _, eff := range effects {
			if _, end := eff.(Stopped); end {
				close(s.stopped)
				return nil
			}
			s.perform(work, eff)
		}
		timer.Reset(max(s.engine.NextTurn()-time.Since(start), 0))
	}
}

// Post brings an input to the next turn. It never waits.
func (s *Shell) Post(inputs ...Input) {
	s.mu.Lock()
	s.inbox = append(s.inbox, inputs...)
	s.mu.Unlock()
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

func (s *Shell) take() []Input {
	s.mu.Lock()
	defer s.mu.Unlock()
	inputs := s.inbox
	s.inbox = nil
	return inputs
}

// Status is the engine's picture, at most a quarter of a second old while it turns.
func (s *Shell) Status() Status { return *s.status.Load() }

// Catalog is what operators have set, at most a second and a statement old.
func (s *Shell) Catalog() *Catalog { return s.catalog.Load() }

// Settled tells whether it was read once what operators have set: before that a [Shell.Catalog] says nothing.
func (s *Shell) Settled() bool { return s.Catalog().known }

// Clock is the local clock on which the times of [Status] are.
func (s *Shell) Clock() time.Duration { return time.Since(s.start) }

// StoreNow estimates the store's clock; before the first session it is this machine's.
func (s *Shell) StoreNow() time.Time {
	st := s.Status()
	if !st.Opened {
		return time.Now()
	}
	return st.ClockStore.Add(time.Since(s.start) - st.ClockLocal)
}

func (s *Shell) publishStatus() {
	if last := s.status.Load(); s.engine.local-last.Turned >= turnsRemembered || last.Turned == 0 {
		status := s.engine.Status()
		s.status.Store(&status)
	}
}

func (s *Shell) perform(ctx context.Context, eff Effect) {
	switch eff := eff.(type) {
	case Run:
		s.spawn(func() { s.execute(ctx, eff) })
	case Send:
		s.streams.send(eff.Stream, eff.Words)
	case CloseStream:
		s.streams.close(eff.Stream)
	case SubmitAnswered:
		s.tickets.answer(eff.Ticket, eff)
	case LinkAnswered:
		s.tickets.answer(eff.Ticket, eff)
	case CancelAnswered:
		s.tickets.answer(eff.Ticket, eff)
	case Explained:
		s.tickets.answer(eff.Ticket, eff)
	case LendReady:
		s.tickets.answer(eff.Ticket, eff)
	case WorkersListed:
		s.tickets.answer(eff.Ticket, eff)
	case WorkerMarked:
		s.tickets.answer(eff.Ticket, eff)
	case TasksEnded:
		s.watchers.ended(eff.IDs)
	default:
		s.performOutside(ctx, eff)
	}
}

// performOutside calls other instances, with short limits.
func (s *Shell) performOutside(ctx context.Context, eff Effect) {
	const peerAnswer = 200 * time.Millisecond
	call := func(f func(ctx context.Context)) {
		s.spawn(func() {
			ctx, cancel := context.WithTimeout(ctx, peerAnswer)
			defer cancel()
			f(ctx)
		})
	}
	switch eff := eff.(type) {
	case AskPeerToLend:
		call(func(ctx context.Context) {
			var rows []scheduler.ReadyRow
			to := scheduler.Borrower{Region: eff.For, Offers: eff.Offers}
			if s.peers != nil {
				rows, _ = s.peers.Lend(ctx, eff.Peer, eff.Room, eff.Limit, to) // no answer is no rows
			}
			s.Post(LendAnswered{Rows: rows, Spill: eff.For != ""})
		})
	case TellPeersStarved:
		if s.peers == nil {
			return
		}
		for _, peer := range eff.Peers {
			call(func(ctx context.Context) { _ = s.peers.Starved(ctx, peer, eff.Kinds) })
		}
	case TellPeersUse:
		if s.peers == nil {
			return
		}
		from := s.engine.home.id
		for _, peer := range eff.Peers {
			call(func(ctx context.Context) { _ = s.peers.Use(ctx, peer, from, eff.Use) })
		}
	case TellPeerCancel:
		if s.peers != nil {
			call(func(ctx context.Context) { _ = s.peers.Cancel(ctx, eff.Peer, eff.Token) })
		}
	case PublishHints:
		if s.hints != nil {
			call(func(ctx context.Context) { _ = s.hints.Publish(ctx, eff.Hints) })
		}
	}
}

func (s *Shell) spawn(f func()) { s.work.Go(f) }

// execute runs one statement and brings its answer to the next turn.
func (s *Shell) execute(ctx context.Context, run Run) {
	limit := s.timing.Statement
	switch run.Request.(type) {
	case OpenSession, RenewSession, EndSession, ReadSessions:
		limit = s.timing.RenewalCall
	case scheduler.InsertLinked:
		limit = linkedLimit
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	answer, err := Execute(ctx, s.store, run.Request)
	s.Post(StatementDone{ID: run.ID, Answer: answer, Err: err})
}

// Execute calls the store's method that a request stands for.
func Execute(ctx context.Context, store Store, request any) (any, error) {
	switch r := request.(type) {
	case scheduler.Insert:
		return store.Insert(ctx, r)
	case scheduler.ClaimBatch:
		return store.Claim(ctx, r)
	case scheduler.EndBatch:
		return store.End(ctx, r)
	case scheduler.AttachBatch:
		return store.Attach(ctx, r)
	case scheduler.CancelBatch:
		return store.Cancel(ctx, r)
	case scheduler.WakeBatch:
		return store.Wake(ctx, r)
	case scheduler.ExpireBatch:
		return store.Expire(ctx, r)
	case scheduler.InsertLinked:
		return store.InsertLinked(ctx, r)
	case scheduler.CloseEdges:
		return store.CloseEdges(ctx, r)
	case scheduler.ReleaseBatch:
		return store.Release(ctx, r)
	case scheduler.RestBatch:
		return nil, store.Rest(ctx, r)
	case OpenSession:
		return store.OpenSession(ctx, r.Session, r.TTL)
	case RenewSession:
		return store.RenewSession(ctx, r.Session, r.TTL)
	case ReadSessions:
		return store.Sessions(ctx, r.Region)
	case EndSession:
		return nil, store.EndSession(ctx, r.Region, r.ID)
	case EndExpired:
		return store.EndExpired(ctx, r.Region, r.By)
	default:
		return read(ctx, store, request)
	}
}

func read(ctx context.Context, store Reader, request any) (any, error) {
	switch r := request.(type) {
	case scheduler.DiscoverQuery:
		return store.Discover(ctx, r)
	case scheduler.RefillQuery:
		return store.Refill(ctx, r)
	case scheduler.RunningQuery:
		return store.Running(ctx, r)
	case scheduler.OrphanQuery:
		return store.Orphans(ctx, r)
	case Payloads:
		return store.Payloads(ctx, r.Region, r.IDs)
	case scheduler.StandQuery:
		return store.Stand(ctx, r)
	case scheduler.OpenQuery:
		return store.CountOpen(ctx, r)
	case scheduler.SettingsQuery:
		return store.Settings(ctx, r)
	case scheduler.TimedQuery:
		return store.(Timer).Timed(ctx, r)
	default:
		panic("engine: a request without a method")
	}
}
