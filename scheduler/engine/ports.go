package engine

import (
	"context"
	"time"

	"github.com/errandhq/errand/scheduler"
)

// The engine needs a store through these small ports. They are declared here, by the one who needs them; the SQL store and
// the memory store of the tests implement them, and cmd/errand brings the two together.
//
// Rules for every method:
//   - It may be called again with the same arguments at any time and answers what stands. An error therefore never means
//     "it did not happen"; the engine keeps what it reserved and calls again. The errors that it tells apart are
//     scheduler.ErrLocked and scheduler.ErrRefused; everything else is taken as scheduler.ErrUnavailable.
//   - The answer has exactly one element per row asked, in the order asked (reads excepted).
//   - A row is won only when what the store returned names the caller's own session, attempt and id.

// Writer changes tasks.
type Writer interface {
	Insert(ctx context.Context, in scheduler.Insert) ([]scheduler.Inserted, error)
	Claim(ctx context.Context, b scheduler.ClaimBatch) ([]scheduler.Claimed, error)
	End(ctx context.Context, b scheduler.EndBatch) ([]scheduler.Ended, error)
	// Attach fails when a token is good and only the session has ended: Lost means that somebody else has the task.
	Attach(ctx context.Context, b scheduler.AttachBatch) ([]scheduler.Attached, error)
	Cancel(ctx context.Context, b scheduler.CancelBatch) ([]scheduler.CancelAnswer, error)
}

// Timer moves rows whose time has come.
type Timer interface {
	Timed(ctx context.Context, q scheduler.TimedQuery) ([]scheduler.TimedRow, error)
	Wake(ctx context.Context, b scheduler.WakeBatch) ([]scheduler.Moved, error)
	Expire(ctx context.Context, b scheduler.ExpireBatch) ([]scheduler.Moved, error)
}

// Linker stores tasks that wait for tasks, and lets them go; scheduler/release.go tells the steps.
type Linker interface {
	InsertLinked(ctx context.Context, in scheduler.InsertLinked) (scheduler.Linked, error)
	CloseEdges(ctx context.Context, b scheduler.CloseEdges) ([]scheduler.Closed, error)
	Release(ctx context.Context, b scheduler.ReleaseBatch) ([]scheduler.Released, error)
	Rest(ctx context.Context, b scheduler.RestBatch) error
}

// Reader finds the rows that a scheduler must look at.
type Reader interface {
	Discover(ctx context.Context, q scheduler.DiscoverQuery) ([]scheduler.BufferKey, error)
	Refill(ctx context.Context, q scheduler.RefillQuery) ([]scheduler.ReadyRow, error)
	Running(ctx context.Context, q scheduler.RunningQuery) ([]scheduler.Held, error)
	Orphans(ctx context.Context, q scheduler.OrphanQuery) ([]scheduler.Held, error)
	Payloads(ctx context.Context, region string, ids []scheduler.ID) ([][]byte, error)
	// Stand tells how tasks stand, in no order; those that are not there are missing.
	Stand(ctx context.Context, q scheduler.StandQuery) ([]scheduler.Stand, error)
	// CountOpen tells how many tasks are open, by tenant and tier, the most first.
	CountOpen(ctx context.Context, q scheduler.OpenQuery) ([]scheduler.Open, error)
	// Settings reads what operators have set; what was read before may come again.
	Settings(ctx context.Context, q scheduler.SettingsQuery) (scheduler.Settings, error)
}

// Sessions keeps the leases of scheduler instances.
type Sessions interface {
	// OpenSession stores a new session. Opening the same one again renews it.
	OpenSession(ctx context.Context, s scheduler.Session, ttl time.Duration) (scheduler.Renewal, error)
	// RenewSession extends the session unless somebody ended it, however long ago it expired, and notes its role and
	// whether it is idle.
	RenewSession(ctx context.Context, s scheduler.Session, ttl time.Duration) (scheduler.Renewal, error)
	// Sessions lists the sessions of any region that nobody has ended, with the store's clock. Alive says nothing.
	Sessions(ctx context.Context, region string) (scheduler.Renewal, error)
	// EndSession ends the caller's own session, at shutdown.
	EndSession(ctx context.Context, region string, id scheduler.SessionID) error
	// EndExpired ends other sessions of the region that have expired by the store's clock, and returns which.
	// It does nothing unless the session by is itself open and not expired.
	EndExpired(ctx context.Context, region string, by scheduler.SessionID) ([]scheduler.SessionID, error)
}

// Store is everything the engine needs of one.
type Store interface {
	Writer
	Timer
	Linker
	Reader
	Sessions
}
