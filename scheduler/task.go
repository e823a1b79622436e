package scheduler

import "time"

// Task is one piece of work with everything the store keeps of it. All times are the store's.
type Task struct {
	Ref
	Tenant string
	Kind   string // which handler runs it
	Tier   Tier
	State  State

	Payload     []byte // at most PayloadMax bytes, opaque
	ContentType string
	Spec        Spec

	Tolerance time.Duration // how long it may wait once it is ready: due = ready_at + tolerance
	RunAt     time.Time     // not before; zero means at once
	StartBy   time.Time     // useless when started later; zero means never useless

	Attempt         int64 // claims so far; part of the token
	Counted         int   // attempts that count against Spec.MaxAttempts
	WorkerLosses    int   // lost workers for which this task was the only suspect
	Suspect         bool  // was running when a worker was lost
	CancelRequested bool

	CreatedAt time.Time
	ReadyAt   time.Time
	Due       time.Time
	WakeAt    time.Time // when somebody must look again; zero for none
	StartedAt time.Time // of the latest attempt
	EndedAt   time.Time

	Session SessionID // who dispatches the running attempt
	Worker  WorkerID  // who runs, or ran, the latest attempt

	Result     []byte // at most ResultMax bytes
	ResultType string
	Failure    *Failure // why it failed, was canceled or tried again; nil for none

	IdempotencyKey string // one task per tenant and key, in all regions
	Fingerprint    []byte // hash of the request the key stands for
	UniqueKey      string // at most one open task per tenant and key, in all regions; empty for none
	EffectKey      ID     // the first task of a redrive chain; its own ID by default
	TraceParent    string // W3C trace context of the submitter

	Parents []Ref // of a new task only: what it waits for, in the order in which it names them
	Parent  bool  // has children: once it has ended, its WakeAt says that they must be looked at
}

// Class names the tasks that the same workers could start.
func (t *Task) Class() Class { return ClassOf(t.Kind, &t.Spec) }

// Token is the fencing token of the latest attempt.
func (t *Task) Token() Token { return Token{ID: t.ID, Attempt: t.Attempt, Worker: t.Worker} }

// Failure says why an attempt did not succeed.
type Failure struct {
	Reason  Reason `json:"reason"`
	Message string `json:"message,omitempty"` // at most FailureMessageMax bytes, valid UTF-8, no NUL
}

// Reason is a stable word for why an attempt or a task ended as it did. Handlers may add their own (lower case).
type Reason string

// The reasons that Errand itself gives.
const (
	ReasonHandlerError  Reason = "handler_error"  // the handler returned an error
	ReasonPanic         Reason = "panic"          // the handler panicked
	ReasonTimeout       Reason = "timeout"        // the attempt ran longer than its cap
	ReasonWorkerLost    Reason = "worker_lost"    // the worker was silent for its lease
	ReasonSchedulerLost Reason = "scheduler_lost" // the scheduler's session ended and nobody took the attempt over
	ReasonNotAccepted   Reason = "not_accepted"   // the worker did not take the assignment
	ReasonUnknownToCore Reason = "unaccounted"    // the store said running, and nobody knew of it
	ReasonDrained       Reason = "drained"        // the worker stopped and handed it back
	ReasonPreempted     Reason = "preempted"      // a task of a higher tier needed the place
	ReasonSnoozed       Reason = "snoozed"        // the handler put it off
	ReasonBackpressure  Reason = "backpressure"   // what a named limit guards asked for less
	ReasonPoison        Reason = "poison"         // it took too many workers down
	ReasonCanceled      Reason = "canceled"       // somebody asked for it
	ReasonParents       Reason = "parents"        // its parents can no longer meet its condition
	ReasonExpired       Reason = "expired"        // not started by its start_by
	ReasonBadResult     Reason = "bad_result"     // the handler's result could not be stored
)
