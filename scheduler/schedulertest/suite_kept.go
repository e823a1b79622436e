package schedulertest

import (
	"testing"
	"time"

	"github.com/errandhq/errand/scheduler"
)

// A task that keeps its due while it waits has it when it is ready again, when it is claimed from where it waits, and when nothing but
// its labels changes; a change of what the due follows from makes a new one.
func aKeptDueStays(t *testing.T, s *suite) {
	kept := func(delay time.Duration) (scheduler.Task, scheduler.Task) {
		t.Helper()
		before := s.running(t)
		s.end(t, scheduler.Ending{Token: before.Token(), To: scheduler.Scheduled, Delay: delay, KeepDue: true})
		return before, s.Task(t, before.Ref)
	}
	check := func(what string, before, got scheduler.Task, state scheduler.State) {
		t.Helper()
		if got.State != state || !got.Due.Equal(before.Due) || !got.ReadyAt.Equal(before.ReadyAt) {
			t.Errorf("%s: %v, due %v, ready since %v; it was due %v, ready since %v", what, got.State, got.Due, got.ReadyAt, before.Due, before.ReadyAt)
		}
	}

	before, got := kept(time.Hour)
	check("waiting", before, got, scheduler.Scheduled)
	got = must[scheduler.Task](t)(s.update(t, "acme", before.Ref, scheduler.Change{SetLabels: true, Labels: map[string]string{"a": "b"}}))
	check("labels changed", before, got, scheduler.Scheduled)
	later := time.Now().Add(2 * time.Hour).Truncate(time.Microsecond)
	got = must[scheduler.Task](t)(s.update(t, "acme", before.Ref, scheduler.Change{RunAt: &later}))
	if !got.Due.Equal(got.RunAt.Add(got.Tolerance)) {
		t.Errorf("moved: due %v, runs at %v, tolerance %v", got.Due, got.RunAt, got.Tolerance)
	}

	before, _ = kept(0)
	must[[]scheduler.Moved](t)(s.Store.Wake(ctx(), scheduler.WakeBatch{Region: region, Rows: []scheduler.Seen{{ID: before.ID, Attempt: 1}}}))
	check("woken", before, s.Task(t, before.Ref), scheduler.Ready)

	before, _ = kept(0)
	s.claim(t, s.session, scheduler.Claim{ID: before.ID, From: scheduler.Scheduled, Seen: 1, Worker: s.worker})
	check("claimed", before, s.Task(t, before.Ref), scheduler.Running)
}
