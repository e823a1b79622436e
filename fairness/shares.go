package fairness

import (
	"cmp"
	"math"
	"slices"
	"time"
)

// Bounds and defaults of shares.
const (
	DefaultWeight = 1.0
	// UrgentShare is how much of its fair share a tenant may use for urgent work that goes first; beyond it is served as standard.
	UrgentShare = 0.20
	// OverdueShare is how much of all use is guaranteed to work that is overdue, however much urgent work there is.
	OverdueShare = 0.25
	// Window is the time over which uses are compared with shares. They fade away exponentially.
	Window = time.Minute

	// lagMax is how far a tenant that waits may stay behind the virtual time of those who are served: one that waits for a scarce
	// resource for hours does not get everything else for hours after.
	lagMax = 60.0
	// accountsMax bounds the tenants that are remembered; beyond it those that have been idle longest are forgotten, and with them a
	// lead of at most what they had in flight.
	accountsMax = 100_000
	// urgentBack is the part of its urgent budget below which a tenant that was beyond it goes first again.
	urgentBack = 0.9
)

// Use is what a start counts as.
type Use uint8

// The uses.
const (
	Plain   Use = iota
	Urgent      // went first because it is urgent: counts against UrgentShare
	Overdue     // is overdue: counts toward OverdueShare
)

// Shares keeps what tenants have used of a region's capacity. It is not safe for concurrent use. Amounts are resource-seconds of
// the dominant resource: 1 is the whole capacity for a second.
type Shares struct {
	virtual  float64 // virtual time: of the tenant that was served last, never less than before
	accounts map[string]*account
	weights  map[string]float64 // of those that do not have the default
	present  float64            // sum of the weights of tenants that wait or run
	idle     []idleAccount      // in the order in which they became idle
	untold   []*account         // that have used something since it was told last

	overdue, all fading
	region       fading // what is known of the whole region's
}

// account is one tenant's.
type account struct {
	tenant  string
	weight  float64
	virtual float64
	urgent  fading
	used    fading  // in the whole region
	demoted bool    // its urgent use was beyond its share
	refs    int     // what it waits for and what it runs
	holds   float64 // the part of this instance's capacity that its urgent work runs in now
	seats   []*seat // in queues
	idleAt  time.Time
	untold  float64 // what was charged here since it was told last
	telling bool    // among the untold
}

type idleAccount struct {
	account *account
	at      time.Time
}

// NewShares returns shares of which nobody has used any.
func NewShares() *Shares {
	return &Shares{accounts: map[string]*account{}, weights: map[string]float64{}}
}

// SetWeight sets a tenant's weight from now on; one that is not positive and finite means the default.
func (s *Shares) SetWeight(tenant string, weight float64) {
	if !(weight > 0) || math.IsInf(weight, 1) {
		weight = DefaultWeight
	}
	if weight == DefaultWeight {
		delete(s.weights, tenant)
	} else {
		s.weights[tenant] = weight
	}
	if a := s.accounts[tenant]; a != nil {
		if a.refs > 0 {
			s.present += weight - a.weight
		}
		a.weight = weight
	}
}

// Weight is a tenant's weight.
func (s *Shares) Weight(tenant string) float64 {
	if w, set := s.weights[tenant]; set {
		return w
	}
	return DefaultWeight
}

// Hold tells that a tenant waits or runs something more (n > 0) or less. While it does neither it has no part in the capacity.
func (s *Shares) Hold(tenant string, n int, now time.Time) {
	a := s.account(tenant, now)
	was := a.refs > 0
	a.refs = max(a.refs+n, 0)
	switch is := a.refs > 0; {
	case is && !was:
		s.present += a.weight
	case was && !is:
		a.holds = 0 // of many additions and subtractions something remains
		s.present = max(s.present-a.weight, 0)
		s.becameIdle(a, now)
	}
}

// HoldUrgent tells that the urgent work of a tenant that goes first takes a part of this instance's capacity more (part > 0) or less.
func (s *Shares) HoldUrgent(tenant string, part float64, now time.Time) {
	a := s.account(tenant, now)
	a.holds = max(a.holds+part, 0)
}

// HoldsUrgent is the part of this instance's capacity that a tenant's urgent work runs in now.
func (s *Shares) HoldsUrgent(tenant string) float64 {
	if a := s.accounts[tenant]; a != nil {
		return a.holds
	}
	return 0
}

// Fair is the part of the capacity that is a tenant's own while all that are present want as much as they can get.
func (s *Shares) Fair(tenant string) float64 {
	weight := s.Weight(tenant)
	others := s.present
	if a := s.accounts[tenant]; a == nil || a.refs == 0 {
		others += weight
	}
	return weight / max(others, weight)
}

// Charge counts an amount for a tenant; a negative one takes back what was charged too much.
func (s *Shares) Charge(tenant string, use Use, amount float64, now time.Time) {
	if amount == 0 || math.IsNaN(amount) || math.IsInf(amount, 0) {
		return
	}
	a := s.account(tenant, now)
	if a.untold += amount; !a.telling {
		a.telling = true
		s.untold = append(s.untold, a)
	}
	s.use(a, amount, now)
	s.all.add(amount, now)
	switch use {
	case Urgent:
		a.urgent.add(amount, now)
	case Overdue:
		s.overdue.add(amount, now)
	case Plain:
	}
}

// Suspect counts an amount against a tenant's urgent share only, or takes it back: what urgent work may turn out to use of which nothing
// is known.
func (s *Shares) Suspect(tenant string, amount float64, now time.Time) {
	if amount != 0 && !math.IsNaN(amount) && !math.IsInf(amount, 0) {
		s.account(tenant, now).urgent.add(amount, now)
	}
}

// ChargeElsewhere counts what a tenant has used at another instance of the region.
func (s *Shares) ChargeElsewhere(tenant string, amount float64, now time.Time) {
	if amount == 0 || math.IsNaN(amount) || math.IsInf(amount, 0) {
		return
	}
	s.use(s.account(tenant, now), amount, now)
}

// Used is a tenant's part of what was used in the region over the last minute.
func (s *Shares) Used(tenant string, now time.Time) float64 {
	a, all := s.accounts[tenant], s.region.value(now)
	if a == nil || all <= 0 {
		return 0
	}
	return min(a.used.value(now)/all, 1)
}

// Served tells that a tenant's turn is used. Virtual time goes on to the tenant's own.
func (s *Shares) Served(tenant string) {
	if a := s.accounts[tenant]; a != nil {
		s.CatchUp(a.virtual)
	}
}

// Virtual is the virtual time: what a tenant that comes now has used, as it were.
func (s *Shares) Virtual() float64 { return s.virtual }

// CatchUp moves virtual time on, to what another instance has reached: idle capacity that one tenant has used there is nothing
// that others have saved up here.
func (s *Shares) CatchUp(virtual float64) {
	if virtual > s.virtual && !math.IsInf(virtual, 1) {
		s.virtual = virtual
	}
}

// OverdueOwed tells whether overdue work has had less than its guaranteed share lately.
func (s *Shares) OverdueOwed(now time.Time) bool {
	return s.overdue.value(now) <= OverdueShare*s.all.value(now)
}

// UrgentFirst tells whether a tenant's urgent work goes first now: its urgent use over the last minute is within its share. A tenant
// that was beyond it must fall a little below, so that it does not go to and fro.
func (s *Shares) UrgentFirst(tenant string, now time.Time) bool {
	a := s.accounts[tenant]
	if a == nil {
		return true
	}
	budget := UrgentShare * s.Fair(tenant) * Window.Seconds()
	if a.demoted {
		budget *= urgentBack
	}
	a.demoted = a.urgent.value(now) > budget
	return !a.demoted
}

// Spent is what a tenant has used here.
type Spent struct {
	Tenant string
	Amount float64
}

// Spent returns what tenants have used here since it was told last, at most limit tenants, those that have used most first. What it does
// not tell it tells later.
func (s *Shares) Spent(limit int) []Spent {
	slices.SortFunc(s.untold, func(a, b *account) int {
		return cmp.Or(cmp.Compare(math.Abs(b.untold), math.Abs(a.untold)), cmp.Compare(a.tenant, b.tenant))
	})
	n := min(limit, len(s.untold))
	spent := make([]Spent, n)
	for i, a := range s.untold[:n] {
		spent[i] = Spent{a.tenant, a.untold}
		a.untold, a.telling = 0, false
	}
	s.untold = slices.Delete(s.untold, 0, n)
	return spent
}

func (s *Shares) account(tenant string, now time.Time) *account {
	a := s.accounts[tenant]
	if a == nil {
		a = &account{tenant: tenant, weight: s.Weight(tenant), virtual: s.virtual}
		s.accounts[tenant] = a
		s.becameIdle(a, now)
	}
	return a
}

func (s *Shares) use(a *account, amount float64, now time.Time) {
	a.used.add(amount, now)
	s.region.add(amount, now)
	a.virtual += amount / a.weight
	for _, seat := range a.seats {
		seat.queue.moved(seat)
	}
}

// Lift brings a tenant that begins to wait up to the virtual time: what it did not use while it wanted nothing, or could have
// nothing, is not saved up.
func (s *Shares) Lift(tenant string, now time.Time) {
	if a := s.account(tenant, now); a.virtual < s.virtual {
		a.virtual = s.virtual
		for _, seat := range a.seats {
			seat.queue.moved(seat)
		}
	}
}

// becameIdle remembers when, and forgets those that have been idle for a window.
func (s *Shares) becameIdle(a *account, now time.Time) {
	a.idleAt = now
	s.idle = append(s.idle, idleAccount{a, now})
	for len(s.idle) > 0 {
		first := s.idle[0]
		if len(s.accounts) <= accountsMax && now.Sub(first.at) < Window {
			return
		}
		s.idle = s.idle[1:]
		if b := first.account; b.refs == 0 && len(b.seats) == 0 && b.idleAt.Equal(first.at) && b != a {
			delete(s.accounts, b.tenant)
		}
	}
}

// fading is a sum whose parts fade away over the window: of a steady use it holds one window's.
type fading struct {
	sum float64
	at  time.Time
}

func (f *fading) add(amount float64, now time.Time) {
	f.sum = max(f.value(now)+amount, 0)
	if now.After(f.at) {
		f.at = now
	}
}

func (f *fading) value(now time.Time) float64 {
	if f.sum == 0 || !now.After(f.at) {
		return f.sum
	}
	return f.sum * math.Exp(-now.Sub(f.at).Seconds()/Window.Seconds())
}
