package scheduler

import (
	"github.com/errandhq/errand/fairness"
	"github.com/errandhq/errand/placement"
)

// Event is something that happened and that a [Core] must know. The concrete types are in this file.
type Event interface{ event() }

// RowsReady tells of rows that are known to be ready without a read of the store: own inserts, attempts that were given back,
// rows lent by another instance, scheduled rows whose time has come.
type RowsReady struct{ Rows []ReadyRow }

// Refilled is the answer to a refill of the given groups. A group is complete when no shard reached PerShard rows.
type Refilled struct {
	Keys     []BufferKey
	Rows     []ReadyRow
	PerShard int
}

// RefillFailed tells that a refill was not answered; its groups may be asked for again.
type RefillFailed struct{ Keys []BufferKey }

// Discovered tells which groups have ready rows in the store.
type Discovered struct{ Keys []BufferKey }

// RowsGone tells that waiting rows have ended (expired, canceled) or are lent to somebody.
type RowsGone struct{ IDs []ID }

// RowChanged tells that somebody has changed a waiting row, and how it stands now. A row that is not ready any more is forgotten.
type RowChanged struct{ Row ReadyRow }

// LanesChanged tells which shards this instance serves now.
type LanesChanged struct{ Mine [256]bool }

// WorkerJoined tells that a worker has connected, or says something new of itself.
type WorkerJoined struct{ Worker placement.Worker }

// WorkerDraining tells whether a worker takes no more work: it drains, or nobody can reach it now.
type WorkerDraining struct {
	ID       WorkerID
	Draining bool
}

// WorkerHolds tells which attempts a reconnected worker still holds, running or to be reported. What the core thinks it
// holds and the worker does not name is known not to run.
type WorkerHolds struct {
	ID     WorkerID
	Tokens []Token
	// Again says that it is no new connection: an assignment that was not accepted may be on its way on it still.
	Again bool
}

// WorkersLost tells of workers that were silent for their lease. When there are several it is an incident, and makes no task
// poison. Workers that died together fall silent up to a heartbeat apart: Incident says that another one is silent beyond a
// heartbeat already, or was lost within the last one.
type WorkersLost struct {
	IDs      []WorkerID
	Incident bool
}

// WorkerLeft tells that a worker has said goodbye and holds nothing, or has moved to another instance with what it holds.
type WorkerLeft struct{ ID WorkerID }

// Accepted tells that workers have started attempts.
type Accepted struct{ Tokens []Token }

// Reported tells what became of attempts that the core holds. See [Core.Holds].
type Reported struct{ Reports []Report }

// CancelAsked tells that a running attempt's task shall be canceled; the store says so already.
type CancelAsked struct{ Token Token }

// TookOver tells that this session has taken running attempts over, of a worker that is connected here.
type TookOver struct{ Held []Held }

// RowsMissing tells that attempts which the core holds are not running rows of this session any more.
type RowsMissing struct{ Tokens []Token }

// Undelivered tells that assignments could not be sent: nobody runs them.
type Undelivered struct{ Tokens []Token }

// Stale tells that a group may have ready rows that are not buffered.
type Stale struct{ Key BufferKey }

// SessionChanged tells that the instance has a new session in a region, of which it claims rows under that session from now on. An older
// one was ended by somebody.
type SessionChanged struct {
	Region  uint8 // its number
	Session SessionID
}

// SettingsChanged tells what operators have set: only what may have changed.
type SettingsChanged struct{ Settings }

// PartChanged tells which part of every cap is this instance's: what all of the given parts have, while it is not sure which holds; none
// means nothing.
type PartChanged struct{ Parts []fairness.Part }

// UsedElsewhere tells what tenants have used at another instance of the region since it told last, how many slots all others have for
// each kind, and the other's virtual time.
type UsedElsewhere struct {
	Used    []fairness.Spent
	Slots   map[string]int
	Virtual float64
}

// Vanished tells of attempts that have moved to another instance, or were thought to, and run no more. See [Core.Ghosts].
type Vanished struct{ Tokens []Token }

// OthersRun tells what the region's other instances run, and which part of every cap is each one's: what one runs beyond its part, since
// its part was larger once, is nobody else's yet.
type OthersRun struct {
	Rows  []Held
	Parts map[SessionID]fairness.Part
}

func (OthersRun) event()       {}
func (Vanished) event()        {}
func (SettingsChanged) event() {}
func (PartChanged) event()     {}
func (UsedElsewhere) event()   {}
func (StockTaken) event()      {}
func (RowsReady) event()       {}
func (Refilled) event()        {}
func (RefillFailed) event()    {}
func (Discovered) event()      {}
func (RowsGone) event()        {}
func (RowChanged) event()      {}
func (LanesChanged) event()    {}
func (WorkerJoined) event()    {}
func (WorkerDraining) event()  {}
func (WorkerHolds) event()     {}
func (WorkersLost) event()     {}
func (WorkerLeft) event()      {}
func (Accepted) event()        {}
func (Reported) event()        {}
func (CancelAsked) event()     {}
func (TookOver) event()        {}
func (RowsMissing) event()     {}
func (Undelivered) event()     {}
func (Stale) event()           {}
func (SessionChanged) event()  {}

// Result is the store's answer to something the core has planned or admitted.
type Result interface{ result() }

// ClaimsAnswered is the answer to claims.
type ClaimsAnswered struct{ Answers []Claimed }

// StartStored tells that a task which [Core.Admit] admitted stands as a running row.
type StartStored struct{ Task Task }

// StartRefused tells that such a task was not stored as running: the reserved room is free again.
type StartRefused struct{ ID ID }

// EndingsAnswered is the answer to endings. Endings[i] is what was asked, Answers[i] what stands.
type EndingsAnswered struct {
	Endings []Ending
	Answers []Ended
}

func (ClaimsAnswered) result()  {}
func (StartStored) result()     {}
func (StartRefused) result()    {}
func (EndingsAnswered) result() {}

// Room says how much a [Core] may plan now; claims beyond it stay in their order and can still be overtaken.
type Room struct {
	Urgent int // claims of urgent rows
	Others int // claims of all other rows
	// HoldDeadlines is set while what workers have said may be unread, for instance after a pause of this process: then
	// nothing is concluded from their silence.
	HoldDeadlines bool
}

// Plan is what a [Core] wants done. Rows of one list may be written in any order.
type Plan struct {
	UrgentClaims []Claim
	Claims       []Claim
	Assign       []Start    // running rows to send to their workers
	Endings      []Ending   // attempts to close
	Stops        []Stop     // what workers must be told
	Wakes        []ReadyRow // scheduled rows whose time has come and for which no worker is free
}

// Stop tells a worker to stop an attempt.
type Stop struct {
	Token
	Cause StopCause
}
