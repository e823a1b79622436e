package engine

import (
	"time"

	"github.com/errandhq/errand/scheduler"
)

// Observer is told what a scheduler instance does, for metrics and logs. Its methods are called from the turn and must not
// wait. Implementations are in internal/telemetry.
type Observer interface {
	// Batch tells how many rows a write had.
	Batch(write string, rows int)
	// Claims tells how many claims were won and lost.
	Claims(won, lost int)
	// Started tells that an attempt went to its worker: how long its task was ready before, and how long after its due it
	// started; late is negative for a task that started in time. It is called for every attempt.
	Started(tier scheduler.Tier, wait, late time.Duration)
	// Ended tells that the end of an attempt is stored: where its task stands now and how long the attempt ran. It is called
	// for every attempt.
	Ended(tier scheduler.Tier, to scheduler.State, run time.Duration)
	// Submitted tells that a submit was answered, whatever its size: outcome is one of answered, withdrawn, refused.
	Submitted(outcome string, took time.Duration)
	// Rows counts rows: what is accepted or ended for the tasks of the usual course, and for what is outside of it one of lent,
	// borrowed, reconciled, reclaimed, missing, expired, woken, lost_worker, refused, backpressure (of a limit that gives way),
	// backpressure_unlimited (of a name that limits nothing).
	Rows(what string, n int)
	// StatementFailed tells that a statement is tried again.
	StatementFailed(write string, tries int, err error)
	// Event tells of something that a person at night wants to read.
	Event(message string, args ...any)
	// Note tells of a change in the usual course, worth a line in the log.
	Note(message string, args ...any)
}

// silent observes nothing.
type silent struct{}

func (silent) Batch(string, int)                                    {}
func (silent) Claims(int, int)                                      {}
func (silent) Started(scheduler.Tier, time.Duration, time.Duration) {}
func (silent) Ended(scheduler.Tier, scheduler.State, time.Duration) {}
func (silent) Submitted(string, time.Duration)                      {}
func (silent) Rows(string, int)                                     {}
func (silent) StatementFailed(string, int, error)                   {}
func (silent) Event(string, ...any)                                 {}
func (silent) Note(string, ...any)                                  {}
