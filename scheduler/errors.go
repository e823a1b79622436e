package scheduler

import "errors"

// Errors of a store that a scheduler tells apart. They are declared here, below both, so that neither imports the other.
var (
	// ErrNotFound means that there is no such row, or that it is another tenant's.
	ErrNotFound = errors.New("not found")
	// ErrUnavailable means that the store could not be reached or answered too late; a write may or may not stand.
	ErrUnavailable = errors.New("the store is unavailable")
	// ErrLocked means that a row of the batch was locked by somebody for longer than lock_timeout. Nothing was written. The
	// engine halves the batch, down to the row, which it sets aside for a while.
	ErrLocked = errors.New("a row is locked by somebody else")
	// ErrRefused means that the store will never take the batch as it is (a value it cannot hold). Nothing was written.
	ErrRefused = errors.New("the store refuses the value")
)
