package engine

import (
	"github.com/errandhq/errand/placement"
	"github.com/errandhq/errand/scheduler"
)

// Input is something that happened.
type Input interface{ input() }

// Ticket names a question of the edge; its answer carries the same number.
type Ticket uint64

// SubmitAsked brings new tasks. They are valid, without ID, region, state and times; State is set by the engine.
type SubmitAsked struct {
	Ticket Ticket
	Tasks  []scheduler.Task
}

// LinkAsked brings new tasks that have parents. They are as those of SubmitAsked, and Parents names tasks that exist.
type LinkAsked struct {
	Ticket Ticket
	Tasks  []scheduler.Task
	// Inside is not nil when the tasks are a graph, all or none: of each the indices of its parents among them.
	Inside      [][]int
	Key         string // the graph's idempotency key; empty for none
	Fingerprint []byte
}

// SubmitWithdrawn tells that nobody waits for a submit any more: what is not on its way to the store is dropped, and the
// ticket is answered at once.
type SubmitWithdrawn struct{ Ticket Ticket }

// CancelAsked asks to cancel tasks of a tenant.
type CancelAsked struct {
	Ticket  Ticket
	Region  string // of all the tasks
	Tenant  string
	IDs     []scheduler.ID
	Message string
}

// TaskUpdated tells that a waiting task was changed, and how it stands now.
type TaskUpdated struct{ Task scheduler.Task }

// StreamOpened tells of a new connection of a worker. It does nothing before its Register.
type StreamOpened struct{ Stream StreamID }

// StreamClosed tells that a connection has ended, for whatever reason.
type StreamClosed struct{ Stream StreamID }

// WorkerSaid brings a message of a worker.
type WorkerSaid struct {
	Stream StreamID
	Words  FromWorker
}

// StatementDone brings the store's answer to a Run effect.
type StatementDone struct {
	ID     uint64
	Answer any
	Err    error
}

// ExplainAsked asks what keeps a task from running, or where it runs.
type ExplainAsked struct {
	Ticket Ticket
	Row    scheduler.ReadyRow
	Token  scheduler.Token // of the attempt when it runs
}

// LendAsked tells that another instance has room and asks for waiting rows.
type LendAsked struct {
	Ticket Ticket
	Room   []scheduler.KindRoom
	Offers []placement.Offer // workers with room
	Limit  int
	For    string // the region that asks, when it is another one
}

// LendAnswered brings the rows that another instance has lent; none when it had none or did not answer.
type LendAnswered struct {
	Rows  []scheduler.ReadyRow
	Spill bool // of another region
}

// PeerStarved tells that another instance has waiting rows of these kinds that it cannot start.
type PeerStarved struct{ Kinds []string }

// PeerUsed tells what tenants have used at another instance.
type PeerUsed struct {
	Session scheduler.SessionID
	Use     scheduler.Use
}

// PeerCancel tells that another instance has written the wish to cancel a task that runs here.
type PeerCancel struct{ Token scheduler.Token }

// Hinted tells that somebody else has made rows of this instance's lanes ready or timed.
type Hinted struct{ Hints []Hint }

// Hint says where somebody should look sooner than by itself.
type Hint struct {
	Region string
	Shard  uint8
	Key    scheduler.BufferKey
	Timed  bool // a row with a wake time, rather than a ready one
	// Changed is a row that was changed: what is known of it from before is forgotten. Zero for none.
	Changed scheduler.ID `json:",omitzero"`
}

// MarkAsked asks to lay something over a worker.
type MarkAsked struct {
	Ticket Ticket
	ID     scheduler.WorkerID
	Change MarkChange
}

// WorkersAsked asks for a list of the workers.
type WorkersAsked struct{ Ticket Ticket }

// ShutdownAsked starts a polite end: nothing new, what is under way is finished, the session is ended.
type ShutdownAsked struct{}

func (SubmitAsked) input()     {}
func (LinkAsked) input()       {}
func (SubmitWithdrawn) input() {}
func (CancelAsked) input()     {}
func (TaskUpdated) input()     {}
func (StreamOpened) input()    {}
func (StreamClosed) input()    {}
func (WorkerSaid) input()      {}
func (StatementDone) input()   {}
func (ExplainAsked) input()    {}
func (LendAsked) input()       {}
func (LendAnswered) input()    {}
func (PeerStarved) input()     {}
func (PeerUsed) input()        {}
func (PeerCancel) input()      {}
func (Hinted) input()          {}
func (MarkAsked) input()       {}
func (ShutdownAsked) input()   {}
func (WorkersAsked) input()    {}
