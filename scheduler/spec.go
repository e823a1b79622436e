package scheduler

import (
	"encoding/json"
	"slices"
	"time"

	"github.com/errandhq/errand/internal/txsql"
	"github.com/errandhq/errand/placement"
	"github.com/errandhq/errand/scheduler/graph"
)

// Defaults and limits of what a submitter may ask for.
const (
	DefaultMaxAttempts     = 5
	DefaultMaxWorkerLosses = 3
	DefaultAttemptTimeout  = time.Hour
	PayloadMax             = 256 << 10 // bytes
	ResultMax              = 256 << 10 // bytes
	FailureMessageMax      = 4 << 10   // bytes; longer messages are cut, never refused
)

// DefaultTolerance is how long a task of a tier may wait when its submitter does not say.
func DefaultTolerance(t Tier) time.Duration {
	switch t {
	case Urgent:
		return time.Second
	case Deferrable:
		return 24 * time.Hour
	default:
		return time.Minute
	}
}

// LeastTolerance is the smallest delay tolerance a tier accepts: who cannot wait that long is urgent.
func LeastTolerance(t Tier) time.Duration {
	switch t {
	case Urgent:
		return 0
	case Deferrable:
		return 10 * time.Minute
	default:
		return 10 * time.Second
	}
}

// Spec holds what few tasks set and what no statement filters by. A zero field means the default. It is stored as JSON, and
// not at all when every field is zero; unknown fields of a newer version are ignored by an older one.
type Spec struct {
	AttemptTimeout  time.Duration     `json:"attempt_timeout,omitempty"` // the execution cap of one attempt; default 1 h
	MaxAttempts     int               `json:"max_attempts,omitempty"`    // most counted starts; default 5
	MaxWorkerLosses int               `json:"max_worker_losses,omitempty"`
	Retry           RetryPolicy       `json:"retry,omitzero"`
	Exclusive       bool              `json:"exclusive,omitempty"` // the handler must have stopped before another may start
	Preemptible     bool              `json:"preemptible,omitempty"`
	AllowedRegions  []string          `json:"allowed_regions,omitempty"` // default any
	Labels          map[string]string `json:"labels,omitempty"`
	Limits          []LimitKey        `json:"limits,omitempty"` // named limits that a start must pass, sorted
	Shape           *placement.Shape  `json:"shape,omitempty"`  // what it needs of a worker; nil is a slot of its kind. Never changed in place
	// RejectInfeasible says that a task which would not start in time as things are shall not be stored.
	RejectInfeasible bool `json:"reject_infeasible,omitempty"`
	RefuseHeld       bool `json:"refuse_held,omitempty"` // refuse rather than join the open task that holds the unique key

	Condition  graph.Condition `json:"condition,omitempty"`  // when it may run, if it has parents; default all succeeded
	Impossible graph.Policy    `json:"impossible,omitempty"` // what becomes of it when that cannot be any more; default cancel
	Graph      string          `json:"graph,omitempty"`      // the ID, as text, of the graph that it was submitted with; empty for none
	Name       string          `json:"name,omitempty"`       // its name there
}

// Attempts is the number of counted starts after which the task has failed.
func (s *Spec) Attempts() int {
	if s.MaxAttempts <= 0 {
		return DefaultMaxAttempts
	}
	return s.MaxAttempts
}

// WorkerLosses is the number of losses as the only suspect after which the task is poison.
func (s *Spec) WorkerLosses() int {
	if s.MaxWorkerLosses <= 0 {
		return DefaultMaxWorkerLosses
	}
	return s.MaxWorkerLosses
}

// Timeout is the execution cap of one attempt.
func (s *Spec) Timeout() time.Duration {
	if s.AttemptTimeout <= 0 {
		return DefaultAttemptTimeout
	}
	return s.AttemptTimeout
}

// Class names the tasks that the same workers could start, so that one refusal answers for all of them.
type Class uint64

// Hash is the class as the store's index holds it: two bytes, so two classes may share one there, and never in memory.
func (c Class) Hash() int16 { return int16(uint16(c)) }

// ClassOf hashes what decides whether a task may start: its kind, its allowed regions, its limits and what it needs of a worker.
func ClassOf(kind string, spec *Spec) Class {
	if len(spec.AllowedRegions)+len(spec.Limits) == 0 && spec.Shape == nil {
		return Class(txsql.ClassOf(kind))
	}
	parts := slices.Sorted(slices.Values(spec.AllowedRegions))
	for _, l := range spec.Limits {
		parts = append(parts, "="+l.Name, l.Key) // no region's name begins so
	}
	if spec.Shape != nil {
		if shape, err := json.Marshal(spec.Shape); err == nil { // numbers and texts: always
			parts = append(parts, "#"+string(shape))
		}
	}
	return Class(txsql.ClassOf(kind, parts...))
}
