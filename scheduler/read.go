package scheduler

import (
	"cmp"
	"time"

	"github.com/errandhq/errand/placement"
)

// This file holds the reads that a scheduler asks of a store. All are bounded and bind the region.

// ReadyRow is one task that may start, as the buffers hold it: State Ready, or Scheduled when its wake time has come.
type ReadyRow struct {
	ID          ID
	Attempt     int64
	State       State
	Tenant      string
	Kind        string
	Tier        Tier
	Class       Class
	Due         time.Time
	StartBy     time.Time // zero for none
	PayloadSize int
	Suspect     bool
	Limits      []LimitKey       // that a start must pass
	Shape       *placement.Shape // what it needs of a worker
	Allowed     []string         // regions where it may run; nil for any
	Avoid       WorkerID         // where its last attempt has just failed; zero when that is not known
}

// WaitingRow is a task as the buffers hold it.
func (t *Task) WaitingRow() ReadyRow {
	return ReadyRow{
		ID: t.ID, Attempt: t.Attempt, State: t.State, Tenant: t.Tenant, Kind: t.Kind, Tier: t.Tier, Class: t.Class(),
		Due: t.Due, StartBy: t.StartBy, PayloadSize: len(t.Payload), Suspect: t.Suspect, Limits: t.Spec.Limits, Shape: t.Spec.Shape, Allowed: t.Spec.AllowedRegions,
	}
}

// BufferKey names one group of ready rows in the store's index.
type BufferKey struct {
	Tenant string
	Tier   Tier
	Class  int16 // Class.Hash
}

// DiscoverQuery asks which groups have ready rows in one shard, from a cursor on, in the order of the key.
type DiscoverQuery struct {
	Region string
	Shard  uint8
	After  *BufferKey // nil starts at the beginning
	Limit  int
}

// RefillQuery asks for the earliest due ready rows of some groups.
type RefillQuery struct {
	Region   string
	Slices   []RefillSlice
	PerShard int // rows per slice
}

// RefillSlice is what a refill reads of one group in one shard: rows after a position, in order.
type RefillSlice struct {
	Key   BufferKey
	Shard uint8
	After Position // zero is the beginning
}

// Position is a place in the order of a group's rows: due, then ID.
type Position struct {
	Due time.Time
	ID  ID
}

// Compare orders positions.
func (p Position) Compare(other Position) int {
	return cmp.Or(p.Due.Compare(other.Due), p.ID.Compare(other.ID))
}

// TimedQuery asks for rows whose wake time is past or comes within the horizon, earliest first per shard.
type TimedQuery struct {
	Region  string
	Shards  []uint8
	Horizon time.Duration
	Limit   int // rows per shard
}

// TimedRow is a waiting row with a wake time.
type TimedRow struct {
	ReadyRow
	WakeAt time.Time
}

// RunningQuery asks for the running rows of a session, by ID from a cursor on.
type RunningQuery struct {
	Region  string
	Session SessionID
	After   ID
	Limit   int
}

// StandQuery asks how tasks stand.
type StandQuery struct {
	Region string
	IDs    []ID
}

// Stand is how a task stands.
type Stand struct {
	ID      ID
	State   State
	Attempt int64
}

// OrphanQuery asks for running rows of the given shards whose session is missing, or ended for longer than the grace.
type OrphanQuery struct {
	Region string
	Shards []uint8
	Grace  time.Duration
	Limit  int
}

// Session is a scheduler instance's lease.
type Session struct {
	Region    string
	ID        SessionID
	Address   string // where the instance's peer service listens; empty for none
	StartedAt time.Time
	ExpiresAt time.Time
	EndedAt   time.Time // zero while it is open
	Role      Role
	Home      string // where a guest or an adopter has its own lanes; empty for a native
	// Idle says that it has no workers and runs nothing, and has no part of any cap.
	Idle bool
}

// Role is what a session does in its region. Its values are stored.
type Role uint8

// The roles.
const (
	Native  Role = iota // serves the region's lanes
	Guest               // runs tasks of the region elsewhere, and serves no lanes
	Adopter             // serves the lanes while the region has no native session
)

// Renewal is the answer to opening or renewing a session.
type Renewal struct {
	Alive    bool      // false when the session has been ended
	Now      time.Time // the store's clock when it answered
	Sessions []Session // the region's sessions that are not ended, also expired ones, by ID
}
