package scheduler

import (
	"time"

	"github.com/errandhq/errand/placement"
)

// This file holds the writes that a scheduler asks of a store. Each is a bounded batch, guarded row by row, and may win only
// partly. Each may be executed again with the same arguments, any number of times, and then answers what stands: that is how
// an unknown outcome (a connection lost during a commit) is settled.

// Bounds of a batch.
const (
	BatchRowsMax       = 1000
	BatchRowsUrgentMax = 200     // for other batches while urgent work arrives
	BatchBytesMax      = 1 << 20 // payloads or results of one batch, together
	InlinePayloadMax   = 4 << 10 // a claim returns payloads up to this size; larger ones are read after winning
	InlineBatchMax     = 256 << 10
)

// Insert stores new tasks. Their State says how: Scheduled, Ready, Blocked, or Running for an eager start (Attempt 1, with
// Session and Worker), which is stored only while that session is not ended and before its StartBy.
type Insert struct {
	Region string
	Tasks  []Task
}

// InsertVerdict is what became of one task of an [Insert].
type InsertVerdict uint8

// The verdicts of an insert.
const (
	InsertStored     InsertVerdict = iota + 1 // the task stands as given, by this execution or an earlier one
	InsertDuplicate                           // its idempotency key already stands for the task named by Existing
	InsertKeyReused                           // its idempotency key stands for a different request
	InsertNotStarted                          // nothing stored, and worth another try: an eager start whose session has ended, a key just freed
	InsertHeld                                // its unique key is held by the open task named by Existing: nothing stored
	InsertNoParent                            // one of its parents, named by Existing, is not there or is another tenant's: nothing stored
)

// Inserted is the answer for one task.
type Inserted struct {
	ID       ID
	Verdict  InsertVerdict
	Existing Ref       // for InsertDuplicate, InsertKeyReused, InsertHeld and InsertNoParent
	State    State     // where the task stands now
	At       time.Time // created_at
}

// Claim asks to turn one waiting task into a running attempt of a worker.
type Claim struct {
	ID     ID
	From   State // Ready, or Scheduled when its wake time has come
	Seen   int64 // the attempt number that the claimer read
	Worker WorkerID
	// PayloadSize bounds the answer: small payloads come with it.
	PayloadSize int
}

// ClaimBatch claims tasks of one region for one session, which must not be ended.
type ClaimBatch struct {
	Region  string
	Session SessionID
	Claims  []Claim
}

// Start is a running attempt with everything its worker needs.
type Start struct {
	Held
	Payload     []byte // nil when PayloadSize is above InlinePayloadMax and it was not read yet
	PayloadSize int
	ContentType string
	EffectKey   ID
	TraceParent string
	Devices     placement.Devices // of its worker's GPUs, that it may use; the core says it, no store
}

// Held is a running attempt as its scheduler needs to know it.
type Held struct {
	Token
	Session         SessionID
	Tenant          string
	Kind            string
	Tier            Tier
	Spec            Spec
	Counted         int
	WorkerLosses    int
	Suspect         bool
	CancelRequested bool
	StartedAt       time.Time
	ReadyAt         time.Time
	Due             time.Time
}

// Ending is how an attempt ended and where its task goes. It is guarded by the token, and by the session too when set: the
// ends that a scheduler makes by itself (lost, timed out, handed back) name the session, the worker's own reports do not.
type Ending struct {
	Token
	Session     SessionID
	To          State // Succeeded, Failed, Canceled; Ready (keeps its due); Scheduled (after Delay, with a new due)
	Delay       time.Duration
	KeepDue     bool // for Scheduled: the due stays, also when the task is ready again
	Counted     bool // counts against max_attempts
	Suspect     bool // the task was running when its worker was lost
	SoleSuspect bool // and it was the only suspect there: counts toward poison
	Result      []byte
	ResultType  string
	Failure     *Failure
}

// EndBatch ends attempts of one region.
type EndBatch struct {
	Region  string
	Endings []Ending
}

// Verdict is what became of one guarded row.
type Verdict uint8

// The verdicts of a guarded write.
const (
	Won     Verdict = iota + 1 // the write stands, by this execution or an earlier one with the same arguments
	Lost                       // the guard did not hold: somebody else was first, or it was too late
	Missing                    // there is no such row
)

// Ended is the answer for one ending.
type Ended struct {
	ID      ID
	Verdict Verdict
	State   State // where the task stands now
	Attempt int64 // the attempt that stands now
	Parent  bool  // it has children
}

// AttachBatch takes running attempts over for a session, guarded by their tokens.
type AttachBatch struct {
	Region  string
	Session SessionID
	Tokens  []Token
}

// Attached is the answer for one token. Held is set when the verdict is Won.
type Attached struct {
	ID      ID
	Verdict Verdict
	State   State // where the task stands now
	Held    Held
	// Latest tells of a token that was not taken over whether it is that of the task's latest attempt: then State is what its end has
	// made of the task.
	Latest bool
}

// Seen names a waiting row as it was read.
type Seen struct {
	ID      ID
	Attempt int64
}

// WakeBatch makes scheduled tasks ready whose time has come.
type WakeBatch struct {
	Region string
	Rows   []Seen
}

// ExpireBatch ends waiting tasks whose start_by has passed.
type ExpireBatch struct {
	Region string
	IDs    []ID
}

// Moved is the answer for one row of a [WakeBatch] or an [ExpireBatch].
type Moved struct {
	ID      ID
	Verdict Verdict
	State   State
	Due     time.Time
	Parent  bool // it has children
}

// CancelBatch writes the wish to cancel: waiting tasks end at once, running ones are marked. Only rows of the tenant.
type CancelBatch struct {
	Region  string
	Tenant  string
	Message string
	IDs     []ID
}

// CancelAnswer is the answer for one task. Verdict is Won also for a task that is canceled already or still to be stopped,
// Lost for one that ended otherwise, Missing for one that is not there or another tenant's.
type CancelAnswer struct {
	ID      ID
	Verdict Verdict
	State   State
	Token   Token     // for State Running: the attempt to stop
	Session SessionID // and who dispatches it
	Parent  bool      // it has children
}

// Claimed is the answer for one claim. Start is set when the verdict is Won.
type Claimed struct {
	ID      ID
	Verdict Verdict
	State   State // where the task stands now, when lost
	Start   Start
}
