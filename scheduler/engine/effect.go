package engine

import (
	"github.com/errandhq/errand/placement"
	"github.com/errandhq/errand/scheduler"
)

// Effect is something to be done outside.
type Effect interface{ effect() }

// Run asks to execute a statement on the store and to bring its answer as StatementDone with the same ID. Request is one of
// the argument types of [Store]'s methods, or one of the request types of this package.
type Run struct {
	ID      uint64
	Request any
}

// Send asks to bring a message to a worker.
type Send struct {
	Stream StreamID
	Words  ToWorker
}

// CloseStream asks to end a connection.
type CloseStream struct{ Stream StreamID }

// SubmitAnswered answers SubmitAsked: one outcome per task, in order.
type SubmitAnswered struct {
	Ticket   Ticket
	Outcomes []SubmitOutcome
}

// SubmitOutcome is what became of one submitted task.
type SubmitOutcome struct {
	Ref   scheduler.Ref // the task that stands for the submission
	State scheduler.State
	// Estimate is when a task that was stored now may start.
	Estimate scheduler.Estimate
	Existed  bool  // its idempotency key stood for this task already, or this open task holds its unique key
	Err      error // ErrBusy, ErrStopping, ErrKeyReused, ErrKeyHeld, ErrInfeasible, scheduler.ErrRefused: nothing was stored
}

// LinkAnswered answers LinkAsked.
type LinkAnswered struct {
	Ticket   Ticket
	Graph    scheduler.Ref   // of a graph: its name, or with Existed or ErrKeyReused that of the one that stands
	Existed  bool            // its idempotency key stood for this graph already
	Outcomes []SubmitOutcome // one per task, in order, unless Existed or Err is set; with ErrNoParent a Ref is the parent's
	// Err is ErrBusy, ErrStopping, ErrKeyReused, ErrNoParent, scheduler.ErrRefused: nothing was stored; or ErrOutcomeUnknown.
	Err    error
	At     int           // the task that Err is about
	Parent scheduler.Ref // that is not there
}

// CancelAnswered answers CancelAsked: one answer per task, in order, or an error and nothing is known.
type CancelAnswered struct {
	Ticket  Ticket
	Answers []scheduler.CancelAnswer
	Err     error
}

// Explained answers ExplainAsked.
type Explained struct {
	Ticket Ticket
	Hold   scheduler.Hold
}

// LendReady answers LendAsked.
type LendReady struct {
	Ticket Ticket
	Rows   []scheduler.ReadyRow
}

// WorkersListed answers WorkersAsked.
type WorkersListed struct {
	Ticket  Ticket
	Workers []WorkerInfo
}

// WorkerMarked answers MarkAsked.
type WorkerMarked struct {
	Ticket Ticket
	Worker *WorkerInfo // as it stands; nil when it is not connected here
	Gone   bool        // it is known here, and not connected now
	Full   bool        // more labels than can be laid over a worker: nothing was changed
}

// AskPeerToLend asks another instance for waiting rows; the answer comes as LendAnswered, also when there is none.
type AskPeerToLend struct {
	Peer   scheduler.Session
	Room   []scheduler.KindRoom
	Offers []placement.Offer // workers with room
	Limit  int
	For    string // the region that asks, when it is not the peer's: then for overdue work only
}

// TellPeersStarved tells the other instances that rows of these kinds wait here.
type TellPeersStarved struct {
	Peers []scheduler.Session
	Kinds []string
}

// TellPeersUse tells the other instances what tenants have used here.
type TellPeersUse struct {
	Peers []scheduler.Session
	Use   scheduler.Use
}

// TellPeerCancel tells the instance that dispatches a task that it shall be canceled.
type TellPeerCancel struct {
	Peer  scheduler.Session
	Token scheduler.Token
}

// PublishHints tells whoever serves the shards to look.
type PublishHints struct{ Hints []Hint }

// TasksEnded tells that tasks have reached a terminal state, for those who wait for them.
type TasksEnded struct{ IDs []scheduler.ID }

// Stopped tells that a shutdown is complete.
type Stopped struct{}

func (Run) effect()              {}
func (Send) effect()             {}
func (CloseStream) effect()      {}
func (SubmitAnswered) effect()   {}
func (LinkAnswered) effect()     {}
func (CancelAnswered) effect()   {}
func (Explained) effect()        {}
func (LendReady) effect()        {}
func (AskPeerToLend) effect()    {}
func (TellPeersStarved) effect() {}
func (TellPeersUse) effect()     {}
func (TellPeerCancel) effect()   {}
func (PublishHints) effect()     {}
func (TasksEnded) effect()       {}
func (Stopped) effect()          {}
func (WorkersListed) effect()    {}
func (WorkerMarked) effect()     {}
