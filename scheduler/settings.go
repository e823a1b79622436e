package scheduler

import (
	"time"

	"github.com/errandhq/errand/placement"
	"github.com/errandhq/errand/regions"
)

// LimitKey names a cap that a start must pass: a named limit of the task's tenant, and a key within it.
type LimitKey struct {
	Name string `json:"name"`
	Key  string `json:"key,omitempty"` // empty for none
}

// TenantSettings is what operators have set for a tenant. The zero value of each number means that there is no limit.
type TenantSettings struct {
	Tenant     string
	Weight     float64 // its share of capacity against other tenants; default 1
	Paused     bool    // its tasks are accepted and not started
	MaxRunning int     // attempts at once
	StartRate  float64 // starts per second

	// Admission of submits.
	Rate         float64 // submits per second
	Burst        int     // submits at once
	UrgentRate   float64 // urgent submits per second
	RefuseUrgent bool    // refuse urgent submits beyond UrgentRate, rather than store them as standard
	MaxOpen      int64   // open tasks
}

// KindSettings is what operators have set for a kind of a tenant.
type KindSettings struct {
	Tenant, Kind string
	Paused       bool // its tasks are accepted and not started
	Defaults     KindDefaults
}

// KindDefaults is what tasks of a kind get where their submitter says nothing. A zero field stays with Errand's own default.
type KindDefaults struct {
	Tier            Tier          `json:"tier,omitempty"`
	Tolerance       time.Duration `json:"tolerance,omitempty"`
	AttemptTimeout  time.Duration `json:"attempt_timeout,omitempty"`
	MaxAttempts     int           `json:"max_attempts,omitempty"`
	MaxWorkerLosses int           `json:"max_worker_losses,omitempty"`
	Retry           RetryPolicy   `json:"retry,omitzero"`
	// Requirements is what an attempt needs of a worker, nil for a slot. Never changed in place.
	Requirements *placement.Resources `json:"requirements,omitempty"`
}

// LimitSettings is a named limit of a tenant. Without one a name caps nothing.
type LimitSettings struct {
	Tenant, Name string
	Concurrency  int     // attempts at once, per key; 0 for no cap
	Rate         float64 // starts per second, per key; 0 for no cap
	Global       bool    // over all regions together, rather than in each
	Deleted      bool    // it caps nothing any more
}

// RegionsMax is how many regions a deployment may have.
const RegionsMax = regions.Max

// RegionSettings is a region of the deployment.
type RegionSettings struct {
	Name      string
	Number    uint8 // given once and kept: it is in the first byte of every id of the region
	Draining  bool  // it starts nothing new, and other regions serve its tasks
	ChangedAt time.Time
}

// SettingsQuery asks for what operators have set.
type SettingsQuery struct {
	// Since leaves out what has not changed since this time of the store's, less an overlap that the store knows; zero asks for all.
	Since time.Time
}

// Settings is what operators have set, as far as it was asked for.
type Settings struct {
	Tenants []TenantSettings
	Kinds   []KindSettings
	Limits  []LimitSettings
	Regions []RegionSettings // all of them, whatever was asked for
	At      time.Time        // the store's clock when it answered
}
