package errand

import (
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	errandv1 "github.com/errandhq/errand/proto/errand/v1"
)

// Tier is how urgent a task is.
type Tier int

// The tiers. The zero value means standard.
const (
	Urgent     Tier = 1 // may wait about a second
	Standard   Tier = 2 // may wait about a minute
	Deferrable Tier = 3 // may wait a day, and shifts to quiet hours
)

// State is where a task is in its life.
type State int

// The states. The first four are open, the others ends.
const (
	Scheduled State = 1
	Ready     State = 2
	Running   State = 3
	Blocked   State = 4
	Succeeded State = 5
	Failed    State = 6
	Canceled  State = 7
	Expired   State = 8
)

var stateNames = [...]string{"unknown", "scheduled", "ready", "running", "blocked", "succeeded", "failed", "canceled", "expired"}

// String is the state's word.
func (s State) String() string {
	if s < Scheduled || s > Expired {
		return stateNames[0]
	}
	return stateNames[s]
}

// Ended tells whether the state is an end: it never changes again.
func (s State) Ended() bool { return s >= Succeeded }

// Spec is what a submitter says of a task. Only Kind is needed. The defaults are those that an operator has set for the kind, and where
// there are none those that stand here.
type Spec struct {
	Kind        string // which handler runs it: a letter, then up to 62 of a-z 0-9 . _ -
	Payload     []byte // opaque; at most 256 KiB
	ContentType string
	Labels      map[string]string // for people and filters; at most 32
	Tier        Tier              // default Standard

	DelayTolerance time.Duration // how long it may wait once ready; default by tier: 1 s, 1 min, 24 h
	RunAt          time.Time     // not before; default at once
	Delay          time.Duration // the same from now; not together with RunAt
	StartBy        time.Time     // useless if not started by then; default never
	StartWithin    time.Duration // the same from now; not together with StartBy

	AttemptTimeout  time.Duration // the execution cap of one attempt; default 1 h
	MaxAttempts     int           // most starts that count; default 5
	MaxWorkerLosses int           // lost workers for which it was the only suspect; default 3
	Retry           Retry
	Limits          []Limit // named limits of the tenant that a start must pass; at most 8, each name and key once

	Needs       Requirements // of its worker, for each attempt; default the kind's, then a slot
	Selectors   []Selector   // conditions on the worker's labels that must hold; at most 16
	Preferences []Preference // conditions that are better met; at most 16
	Near        string       // a zone whose workers are preferred, for instance where the input lies

	// RejectInfeasible refuses the submission with an error that is ErrInfeasible when as things are the task would not start by its due
	// time and StartBy.
	RejectInfeasible bool
	// IdempotencyKey makes the submission happen once, however often it is sent. With one the SDK sends again by itself when
	// it does not know what became of a submission.
	IdempotencyKey string
	// UniqueKey lets at most one open task of the tenant have it, in all regions; at most 255 bytes. While one is open, a submission
	// gets that task (Submitted.Existed), or with RefuseHeld an error that is ErrKeyHeld. It says nothing of tasks that have ended.
	UniqueKey  string
	RefuseHeld bool
	// Exclusive says that a handler must have stopped before another attempt may start.
	Exclusive bool

	// Parents are handles of tasks that this one waits for, each once; at most 1000. They may have ended already.
	Parents []string
	When    Condition // when it may run, if it has parents; default AllSucceeded
	IfNot   IfNot     // what becomes of it when that cannot be any more; default CancelIt
}

// Limit names a cap on rate or concurrency that an operator has set for the tenant. A name for which none is set caps nothing.
type Limit struct {
	Name string // a letter, then up to 62 of a-z 0-9 . _ -
	Key  string // a key within it, for instance a customer, each with the whole cap for itself; at most 255 bytes, empty for none
}

// Retry says when a failed attempt is tried again. Zero fields mean the default.
type Retry struct {
	Initial      time.Duration // backoff after the first attempt; default 1 s
	Max          time.Duration // its cap; default 1 h
	Multiplier   float64       // growth; default 2
	NonRetryable []string      // failure reasons after which it is not tried again
}

// check refuses what the request could not say.
func (s *Spec) check(field string) error {
	switch {
	case !s.RunAt.IsZero() && s.Delay != 0:
		return invalid(field+".run_at", "RunAt and Delay say the same: set one of them")
	case s.RefuseHeld && s.UniqueKey == "":
		return invalid(field+".unique_policy", "RefuseHeld says nothing without a UniqueKey")
	case !s.StartBy.IsZero() && s.StartWithin != 0:
		return invalid(field+".start_by", "StartBy and StartWithin say the same: set one of them")
	}
	return nil
}

func (s *Spec) message() *errandv1.TaskSpec {
	m := &errandv1.TaskSpec{
		Kind: s.Kind, Payload: s.Payload, ContentType: s.ContentType, Labels: s.Labels, Tier: errandv1.Tier(s.Tier),
		IdempotencyKey: s.IdempotencyKey, UniqueKey: s.UniqueKey, Exclusive: s.Exclusive,
		RejectIfInfeasible: s.RejectInfeasible,
	}
	if s.RefuseHeld {
		m.UniquePolicy = errandv1.UniquePolicy_UNIQUE_POLICY_REFUSE
	}
	s.parentsInto(m)
	for _, l := range s.Limits {
		m.Limits = append(m.Limits, &errandv1.Limit{Name: l.Name, Key: l.Key})
	}
	s.needsInto(m)
	if s.DelayTolerance != 0 {
		m.DelayTolerance = durationpb.New(s.DelayTolerance)
	}
	if !s.RunAt.IsZero() {
		m.Start = &errandv1.TaskSpec_RunAt{RunAt: timestamppb.New(s.RunAt)}
	} else if s.Delay != 0 {
		m.Start = &errandv1.TaskSpec_Delay{Delay: durationpb.New(s.Delay)}
	}
	if !s.StartBy.IsZero() {
		m.Useless = &errandv1.TaskSpec_StartBy{StartBy: timestamppb.New(s.StartBy)}
	} else if s.StartWithin != 0 {
		m.Useless = &errandv1.TaskSpec_StartWithin{StartWithin: durationpb.New(s.StartWithin)}
	}
	if s.AttemptTimeout != 0 {
		m.AttemptTimeout = durationpb.New(s.AttemptTimeout)
	}
	if s.MaxAttempts != 0 {
		n := int32(min(s.MaxAttempts, 1<<30))
		m.MaxAttempts = &n
	}
	if s.MaxWorkerLosses != 0 {
		n := int32(min(s.MaxWorkerLosses, 1<<30))
		m.MaxWorkerLosses = &n
	}
	if r := s.Retry; r.Initial != 0 || r.Max != 0 || r.Multiplier != 0 || len(r.NonRetryable) > 0 {
		m.RetryPolicy = &errandv1.RetryPolicy{Multiplier: r.Multiplier, NonRetryableReasons: r.NonRetryable}
		if r.Initial != 0 {
			m.RetryPolicy.InitialBackoff = durationpb.New(r.Initial)
		}
		if r.Max != 0 {
			m.RetryPolicy.MaxBackoff = durationpb.New(r.Max)
		}
	}
	return m
}

// Task is a task as it stands.
type Task struct {
	ID              string // the handle, REGION.BASE32
	Kind            string
	Tenant          string
	State           State
	Tier            Tier
	Attempt         int64 // the number of the current or latest attempt; 0 before the first
	CountedAttempts int
	Payload         []byte
	Result          []byte
	ResultType      string
	Reason          string // why it ended badly, or its latest attempt did
	Message         string
	Labels          map[string]string
	Limits          []Limit // by name, then key
	Needs           Requirements
	Selectors       []Selector
	Preferences     []Preference
	Near            string
	EffectKey       string
	Worker          string
	CancelRequested bool
	CreatedAt       time.Time
	ReadyAt         time.Time
	Due             time.Time
	RunAt           time.Time // not before; zero means at once
	StartedAt       time.Time
	EndedAt         time.Time

	Graph       string   // the graph that it was submitted with; empty for none
	Name        string   // its name there
	Parents     []string // the first 1000; only from Get, as what follows
	ParentCount int
	OpenParents int // that have not ended, as far as the task has been told
	Children    int
}

func taskOf(m *errandv1.Task) Task {
	t := Task{
		ID: m.GetTaskId(), Kind: m.GetSpec().GetKind(), Tenant: m.GetTenant(), State: State(m.GetState()),
		Tier: Tier(m.GetSpec().GetTier()), Attempt: m.GetAttempt(), CountedAttempts: int(m.GetCountedAttempts()),
		Payload: m.GetSpec().GetPayload(), Result: m.GetResult(), ResultType: m.GetResultContentType(),
		Reason: m.GetFailure().GetReason(), Message: m.GetFailure().GetMessage(), Labels: m.GetSpec().GetLabels(),
		Limits:    limitsOf(m.GetSpec().GetLimits()),
		EffectKey: m.GetEffectKey(), Worker: m.GetWorker(), CancelRequested: m.GetCancelRequested(),
		CreatedAt: timeOf(m.GetCreatedAt()), ReadyAt: timeOf(m.GetReadyAt()), Due: timeOf(m.GetDue()),
		RunAt: timeOf(m.GetSpec().GetRunAt()), StartedAt: timeOf(m.GetStartedAt()), EndedAt: timeOf(m.GetEndedAt()),
		Graph: m.GetGraphId(), Name: m.GetGraphName(), Parents: m.GetSpec().GetParents(), ParentCount: int(m.GetParents()),
		OpenParents: int(m.GetOpenParents()), Children: int(m.GetChildren()),
	}
	t.needsOf(m.GetSpec())
	return t
}

func timeOf(t *timestamppb.Timestamp) time.Time {
	if t == nil {
		return time.Time{}
	}
	return t.AsTime()
}

func limitsOf(messages []*errandv1.Limit) []Limit {
	var limits []Limit
	for _, l := range messages {
		limits = append(limits, Limit{Name: l.GetName(), Key: l.GetKey()})
	}
	return limits
}
