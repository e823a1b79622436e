package scheduler

import "time"

// Change is what is asked of a waiting task, see [Task.Update]. Parts that are nil stay as they are.
type Change struct {
	// Tier changes the delay tolerance along when that was the old tier's default and none is given.
	Tier      *Tier
	Tolerance *time.Duration
	RunAt     *time.Time // one that is not in the future, zero too, means at once
	StartBy   *time.Time // zero means never useless
	SetLabels bool       // Labels count, also when there are none
	Labels    map[string]string
}

// Stored is the change at the precision of a store: microseconds.
func (c Change) Stored() *Change {
	if c.Tolerance != nil {
		tolerance := c.Tolerance.Truncate(time.Microsecond)
		c.Tolerance = &tolerance
	}
	for _, part := range []**time.Time{&c.RunAt, &c.StartBy} {
		if *part != nil && !(*part).IsZero() {
			at := (*part).UTC().Truncate(time.Microsecond)
			*part = &at
		}
	}
	return &c
}

// BadChange refuses a change that the task cannot take as it stands.
type BadChange struct {
	Field string // delay_tolerance, run_at or start_by
	Why   string
}

// Error says what is wrong with which part.
func (b *BadChange) Error() string { return b.Field + ": " + b.Why }

// tiers changes how urgent a task is and how long it may wait.
func (c *Change) tiers(t *Task) {
	if c.Tier != nil && *c.Tier != t.Tier {
		if t.Tolerance == DefaultTolerance(t.Tier) {
			t.Tolerance = DefaultTolerance(*c.Tier)
		}
		t.Tier = *c.Tier
	}
	if c.Tolerance != nil {
		t.Tolerance = *c.Tolerance
	}
}

// times changes when a task may start and must have started, and what follows from it. A ready task that may start at once
// already has waited since it was ready; one that has kept its due keeps it still unless that is what changes.
func (c *Change) times(t *Task, kept bool, now time.Time) {
	if c.StartBy != nil {
		t.StartBy = *c.StartBy
	}
	switch {
	case c.RunAt == nil:
	case c.RunAt.After(now):
		if t.State == Ready {
			t.State, t.ReadyAt = Scheduled, time.Time{}
		}
		t.RunAt = *c.RunAt
	case t.State == Scheduled:
		t.State, t.RunAt, t.ReadyAt = Ready, time.Time{}, now
	}
	if t.State == Scheduled {
		if !kept || c.RunAt != nil || c.Tier != nil || c.Tolerance != nil {
			t.Due = t.RunAt.Add(t.Tolerance)
		}
		t.WakeAt = t.firstWake()
		return
	}
	t.Due, t.WakeAt = t.ReadyAt.Add(t.Tolerance), t.StartBy
}

// check looks only at what the change has to do with: a retry may well wait beyond the start_by that its task had from the
// beginning.
func (c *Change) check(t *Task, now time.Time) error {
	if least := LeastTolerance(t.Tier); (c.Tier != nil || c.Tolerance != nil) && t.Tolerance < least {
		return &BadChange{"delay_tolerance", "must be at least " + least.String() + " for the tier " + t.Tier.String()}
	}
	asked := c.StartBy != nil || c.RunAt != nil
	switch {
	case !asked || t.StartBy.IsZero():
		return nil
	case !t.StartBy.After(now):
		return &BadChange{"start_by", "is past: the task would never run"}
	case t.State == Scheduled && !t.StartBy.After(t.RunAt) && c.StartBy != nil:
		return &BadChange{"start_by", "must be later than the task may run: it would never run"}
	case t.State == Scheduled && !t.StartBy.After(t.RunAt):
		return &BadChange{"run_at", "must be earlier than start_by: the task would never run"}
	}
	return nil
}
