package store

import (
	"errors"
	"time"

	"github.com/errandhq/errand/scheduler"
)

// Errors of lookups and of administration.
var (
	// ErrNotFound means that there is no such row, or that it is another tenant's.
	ErrNotFound = scheduler.ErrNotFound
	// ErrExists means that the name is taken.
	ErrExists = errors.New("exists already")
	// ErrBusyTenant means that a tenant cannot be deleted now; [BusyTenantError] tells why.
	ErrBusyTenant = errors.New("the tenant has open tasks")
)

// Tenant is who submits work. A number that is zero means no limit, but for the weight.
type Tenant struct {
	Name         string
	HomeRegion   string  // keeps its idempotency keys; never changes
	Weight       float64 // its share of capacity against other tenants
	Paused       bool    // its tasks are accepted and not started
	Rate         float64 // submits per second
	Burst        int64   // submits at once
	UrgentRate   float64 // urgent submits per second
	RefuseUrgent bool    // refuse urgent submits beyond UrgentRate, rather than store them as standard
	MaxOpen      int64   // open tasks
	MaxRunning   int64   // attempts at once
	StartRate    float64 // starts per second
	CreatedAt    time.Time
}

// TenantChange is what to change of a tenant. What is nil stays.
type TenantChange struct {
	Name         string
	Weight       *float64
	Paused       *bool
	Rate         *float64
	Burst        *int64
	UrgentRate   *float64
	RefuseUrgent *bool
	MaxOpen      *int64
	MaxRunning   *int64
	StartRate    *float64
}

// KeyScope says what an API key may do. The numbers are stored.
type KeyScope int16

// The scopes.
const (
	ScopeTenant KeyScope = 1 // submit, read, cancel and work on one tenant's tasks
	ScopePool   KeyScope = 2 // work on any tenant's tasks of the kinds it names
	ScopeAdmin  KeyScope = 3
)

// Key is an API key. Only the hash of its secret is kept.
type Key struct {
	ID        string
	Hash      []byte // SHA-256 of the secret
	Scope     KeyScope
	Tenant    string
	Kinds     []string
	Note      string
	CreatedAt time.Time
	RevokedAt time.Time // zero while it is good
}

// ListQuery asks for a page of a tenant's tasks, newest first. Empty parts match everything.
type ListQuery struct {
	Region        string
	Tenant        string
	States        []scheduler.State
	Kinds         []string
	Labels        map[string]string
	CreatedAfter  time.Time // inclusive
	CreatedBefore time.Time // exclusive
	Before        *ListCursor
	Limit         int
	Payloads      bool // also read payloads and results
}

// ListCursor is the last row of a page, at full precision.
type ListCursor struct {
	CreatedAt time.Time
	ID        scheduler.ID
}

// ListPage is a page of tasks. The work of one page is bounded: it may be short and not the last.
type ListPage struct {
	Tasks []scheduler.Task
	Next  *ListCursor // nil at the end
}

// AttemptRecord is an attempt that did not simply succeed.
type AttemptRecord struct {
	Number    int64
	Worker    scheduler.WorkerID
	StartedAt time.Time
	EndedAt   time.Time
	Failure   scheduler.Failure
	Counted   bool
}

// Balance compares the ledger with the rows, for one tenant and tier of a region (P2).
type Balance struct {
	Tenant                string
	Tier                  scheduler.Tier
	Accepted, Ended, Open int64
}

// Finding is something that must not be (P3).
type Finding struct {
	Reason  string // unbalanced, no_wake_time, orphaned, overdue_timer
	Rows    int64
	Example scheduler.ID
	Message string // what it means and what to do
}

// Report is the proof that nothing is lost and nothing is stuck; without findings all is well.
type Report struct {
	Balances []Balance
	Findings []Finding
}
