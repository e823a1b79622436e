package schedulertest

import (
	"sync"
	"testing"
	"time"

	"github.com/errandhq/errand/scheduler"
)

func insertStoresWhatWasAsked(t *testing.T, s *suite) {
	in := time.Now().Add(time.Hour)
	tests := map[string]scheduler.Task{
		"ready":             task(),
		"scheduled":         task(func(k *scheduler.Task) { k.State, k.RunAt = scheduler.Scheduled, in }),
		"useless when late": task(func(k *scheduler.Task) { k.StartBy = in }),
		"useless before it may run": task(func(k *scheduler.Task) {
			k.State, k.RunAt, k.StartBy = scheduler.Scheduled, in, in.Add(-time.Minute)
		}),
		"running": task(func(k *scheduler.Task) {
			k.State, k.Attempt, k.Session, k.Worker = scheduler.Running, 1, s.session, s.worker
		}),
		"everything": task(func(k *scheduler.Task) {
			k.Payload, k.ContentType, k.TraceParent = []byte{0, 1, 2, 0xff}, "x/y", "00-trace"
			k.Spec = scheduler.Spec{
				MaxAttempts: 9, AttemptTimeout: time.Second, Exclusive: true, Labels: map[string]string{"a": "b"},
				Retry: scheduler.RetryPolicy{Initial: time.Second, NonRetryable: []scheduler.Reason{"r"}},
			}
		}),
	}
	for name, want := range tests {
		t.Run(name, func(t *testing.T) {
			a := s.insert(t, want)[0]
			if a.Verdict != scheduler.InsertStored || a.State != want.State || a.At.IsZero() {
				t.Fatalf("answer %+v", a)
			}
			got := s.Task(t, want.Ref)
			if got.Tenant != want.Tenant || got.Kind != want.Kind || got.Tier != want.Tier || string(got.Payload) != string(want.Payload) ||
				got.ContentType != want.ContentType || got.TraceParent != want.TraceParent || got.EffectKey != want.ID ||
				got.Spec.MaxAttempts != want.Spec.MaxAttempts || got.Spec.Labels["a"] != want.Spec.Labels["a"] || got.Tolerance != want.Tolerance {
				t.Errorf("stored %+v, asked %+v", got, want)
			}
			want.ReadyAt, want.StartedAt, want.WakeAt = time.Time{}, time.Time{}, time.Time{}
			switch want.State {
			case scheduler.Scheduled:
				want.WakeAt = want.RunAt
			case scheduler.Running:
				want.ReadyAt, want.StartedAt = in, in
			default:
				want.ReadyAt, want.WakeAt = in, want.StartBy
			}
			same(t, got, want)
			if due := want.RunAt; !due.IsZero() && !got.Due.Equal(due.Add(want.Tolerance).Truncate(time.Microsecond)) {
				t.Errorf("due %v, want run_at + tolerance %v", got.Due, due.Add(want.Tolerance))
			}
		})
	}
}

// P2, P5: an unknown outcome is settled by the same insert again; the ledger counts once.
func insertMayBeExecutedAgain(t *testing.T, s *suite) {
	keyed := task(func(k *scheduler.Task) { k.IdempotencyKey, k.Fingerprint = "key", []byte("f") })
	eager := task(func(k *scheduler.Task) {
		k.State, k.Attempt, k.Session, k.Worker = scheduler.Running, 1, s.session, s.worker
	})
	for range 3 {
		for i, a := range s.insert(t, task(), keyed, eager) {
			if a.Verdict != scheduler.InsertStored {
				t.Errorf("task %d: %+v, want stored", i, a)
			}
		}
	}
	if accepted, ended := s.Ledger(t); accepted != 3+2 || ended != 0 {
		t.Errorf("ledger: accepted %d, ended %d; want 5 (three plain, one keyed, one eager) and 0", accepted, ended)
	}
	// Also when the task has gone on meanwhile.
	s.end(t, scheduler.Ending{Token: scheduler.Token{ID: eager.ID, Attempt: 1, Worker: s.worker}, To: scheduler.Succeeded})
	if a := s.insert(t, eager)[0]; a.Verdict != scheduler.InsertStored || a.State != scheduler.Succeeded {
		t.Errorf("after its end: %+v, want stored and succeeded", a)
	}
}

func eagerStartNeedsALiveSession(t *testing.T, s *suite) {
	eager := task(func(k *scheduler.Task) {
		k.State, k.Attempt, k.Session, k.Worker = scheduler.Running, 1, s.session, s.worker
	})
	plain := task()
	if err := s.Store.EndSession(ctx(), region, s.session); err != nil {
		t.Fatal(err)
	}
	a := s.insert(t, eager, plain)
	if a[0].Verdict != scheduler.InsertNotStarted || a[1].Verdict != scheduler.InsertStored {
		t.Errorf("%+v: want the eager one refused and the other stored", a)
	}
	eager.State, eager.Attempt = scheduler.Ready, 0
	if a := s.insert(t, eager); a[0].Verdict != scheduler.InsertStored || a[0].State != scheduler.Ready {
		t.Errorf("as ready: %+v", a[0])
	}
}

func withKey(key, print string) func(*scheduler.Task) {
	return func(k *scheduler.Task) { k.IdempotencyKey, k.Fingerprint = key, []byte(print) }
}

func keyIsStoredOnce(t *testing.T, s *suite) {
	first := task(withKey("k", "f"))
	s.insert(t, first)
	if a := s.insert(t, task(withKey("k", "f")))[0]; a.Verdict != scheduler.InsertDuplicate || a.Existing != first.Ref || a.State != scheduler.Ready {
		t.Errorf("the same request: %+v, want a duplicate of %s", a, first.Ref)
	}
	if a := s.insert(t, task(withKey("k", "g")))[0]; a.Verdict != scheduler.InsertKeyReused || a.Existing != first.Ref {
		t.Errorf("another request: %+v, want the key reused", a)
	}
	other := task(withKey("k", "f"), func(k *scheduler.Task) { k.Tenant = "globex" })
	if a := s.insert(t, other)[0]; a.Verdict != scheduler.InsertStored {
		t.Errorf("another tenant: %+v, want stored", a)
	}
	if accepted, _ := s.Ledger(t); accepted != 2 {
		t.Errorf("accepted %d, want 2", accepted)
	}
}

// B35: twenty at once make one task.
func keyIsStoredOnceInParallel(t *testing.T, s *suite) {
	const parallel = 20
	answers := make([]scheduler.Inserted, parallel)
	errs := make([]error, parallel)
	var all sync.WaitGroup
	for i := range parallel {
		all.Go(func() {
			got, err := s.Store.Insert(ctx(), scheduler.Insert{Region: region, Tasks: []scheduler.Task{task(withKey("k", "f"))}})
			if errs[i] = err; err == nil {
				answers[i] = got[0]
			}
		})
	}
	all.Wait()
	stored := 0
	refs := map[scheduler.ID]bool{}
	for i, a := range answers {
		switch {
		case errs[i] != nil:
			t.Errorf("insert %d: %v", i, errs[i])
		case a.Verdict == scheduler.InsertStored:
			stored++
			refs[a.ID] = true
		case a.Verdict == scheduler.InsertDuplicate:
			refs[a.Existing.ID] = true
		default:
			t.Errorf("insert %d: %+v", i, a)
		}
	}
	if accepted, _ := s.Ledger(t); stored != 1 || len(refs) != 1 || accepted != 1 {
		t.Errorf("%d stored, %d tasks named, %d accepted by the ledger: want one each", stored, len(refs), accepted)
	}
}

func keyTwiceInOneBatch(t *testing.T, s *suite) {
	first, twin, reused := task(withKey("k", "f")), task(withKey("k", "f")), task(withKey("k", "g"))
	for range 2 {
		a := s.insert(t, first, twin, reused)
		if a[0].Verdict != scheduler.InsertStored || a[1].Verdict != scheduler.InsertDuplicate || a[1].Existing != first.Ref ||
			a[2].Verdict != scheduler.InsertKeyReused {
			t.Errorf("%+v: want stored, a duplicate of it, the key reused", a)
		}
	}
}

func aFullBatch(t *testing.T, s *suite) {
	tasks := make([]scheduler.Task, scheduler.BatchRowsMax)
	claims := make([]scheduler.Claim, len(tasks))
	endings := make([]scheduler.Ending, len(tasks))
	for i := range tasks {
		tasks[i] = task(func(k *scheduler.Task) { k.Tenant = []string{"acme", "globex", "initech"}[i%3] })
		claims[i] = scheduler.Claim{ID: tasks[i].ID, From: scheduler.Ready, Worker: s.worker}
		endings[i] = scheduler.Ending{Token: scheduler.Token{ID: tasks[i].ID, Attempt: 1, Worker: s.worker}, To: scheduler.Succeeded, Result: []byte("r")}
	}
	s.insert(t, tasks...)
	for i, a := range s.claim(t, s.session, claims...) {
		if a.Verdict != scheduler.Won || a.ID != tasks[i].ID || a.Start.Tenant != tasks[i].Tenant {
			t.Fatalf("claim %d: %+v", i, a)
		}
	}
	for i, a := range s.end(t, endings...) {
		if a.Verdict != scheduler.Won || a.ID != tasks[i].ID || a.State != scheduler.Succeeded {
			t.Fatalf("end %d: %+v", i, a)
		}
	}
	if accepted, ended := s.Ledger(t); accepted != 1000 || ended != 1000 {
		t.Errorf("ledger %d, %d; want 1000 each", accepted, ended)
	}
}

// An insert that lands late starts nothing that is useless by then; it can be stored to wait, and expires.
func eagerStartIsNotTooLate(t *testing.T, s *suite) {
	eager := task(func(k *scheduler.Task) {
		k.State, k.Attempt, k.Session, k.Worker = scheduler.Running, 1, s.session, s.worker
		k.StartBy = time.Now().Add(-time.Second)
	})
	if a := s.insert(t, eager)[0]; a.Verdict != scheduler.InsertNotStarted {
		t.Fatalf("useless since a second: %+v, want it not started", a)
	}
	eager.State, eager.Attempt = scheduler.Ready, 0
	if a := s.insert(t, eager)[0]; a.Verdict != scheduler.InsertStored || a.State != scheduler.Ready {
		t.Errorf("as ready: %+v", a)
	}
	expired := must[[]scheduler.Moved](t)(s.Store.Expire(ctx(), scheduler.ExpireBatch{Region: region, IDs: []scheduler.ID{eager.ID}}))
	expect(t, "expire", verdicts(expired, moveVerdict), scheduler.Won)
}

// The second task of a batch with a key must not wait for ever for a first one that was refused.
func twinOfARefusedEagerStart(t *testing.T, s *suite) {
	first := task(withKey("k", "f"), func(k *scheduler.Task) {
		k.State, k.Attempt, k.Session, k.Worker = scheduler.Running, 1, s.other, s.worker // never opened
	})
	twin := task(withKey("k", "f"))
	for range 2 {
		for i, a := range s.insert(t, first, twin) {
			if a.Verdict != scheduler.InsertNotStarted {
				t.Errorf("task %d: %+v, want it not started", i, a)
			}
		}
	}
	first.State, first.Attempt = scheduler.Ready, 0
	a := s.insert(t, first, twin)
	if a[0].Verdict != scheduler.InsertStored || a[1].Verdict != scheduler.InsertDuplicate || a[1].Existing != first.Ref {
		t.Errorf("as ready: %+v, want stored and a duplicate", a)
	}
}
