package engine

// Observer is told what a scheduler instance does, for metrics and logs. Its methods are called from the turn and must not
// wait. Implementations are in internal/telemetry.
type Observer interface {
	// Batch tells how many rows a write had.
	Batch(write string, rows int)
	// Claims tells how many claims were won and lost.
	Claims(won, lost int)
	// Rows tells of rows handled outside the usual course: what is one of lent, borrowed, reconciled, reclaimed, missing,
	// expired, woken, lost_worker, refused.
	Rows(what string, n int)
	// StatementFailed tells that a statement is tried again.
	StatementFailed(write string, tries int, err error)
	// Event tells of something that a person at night wants to read.
	Event(message string, args ...any)
}

// silent observes nothing.
type silent struct{}

func (silent) Batch(string, int)                  {}
func (silent) Claims(int, int)                    {}
func (silent) Rows(string, int)                   {}
func (silent) StatementFailed(string, int, error) {}
func (silent) Event(string, ...any)               {}
