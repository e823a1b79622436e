package schedulertest

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/errandhq/errand/scheduler"
)

func withUnique(key string) func(*scheduler.Task) {
	return func(k *scheduler.Task) { k.UniqueKey = key }
}

func (s *suite) expectHeld(t *testing.T, what string, a scheduler.Inserted, by scheduler.Ref) {
	t.Helper()
	if a.Verdict != scheduler.InsertHeld || a.Existing != by {
		t.Errorf("%s: %+v, want it held by %s", what, a, by)
	}
}

func (s *suite) expectStored(t *testing.T, what string, a scheduler.Inserted) {
	t.Helper()
	if a.Verdict != scheduler.InsertStored {
		t.Errorf("%s: %+v, want it stored", what, a)
	}
}

// A task has its unique key from when it is stored until it has ended, whatever happens between.
func uniqueKeyIsHeldWhileOpen(t *testing.T, s *suite) {
	first := task(withUnique("u"))
	s.expectStored(t, "the first", s.insert(t, first)[0])
	if got := s.Task(t, first.Ref); got.UniqueKey != "u" {
		t.Errorf("its key is %q", got.UniqueKey)
	}
	s.expectStored(t, "the same again", s.insert(t, first)[0])
	a := s.insert(t, task(withUnique("u")))[0]
	s.expectHeld(t, "while it is ready", a, first.Ref)
	if a.State != scheduler.Ready {
		t.Errorf("the holder is %v, want ready", a.State)
	}
	s.expectStored(t, "another tenant's", s.insert(t, task(withUnique("u"), func(k *scheduler.Task) { k.Tenant = "globex" }))[0])
	s.expectStored(t, "another key", s.insert(t, task(withUnique("v")))[0])
	s.expectStored(t, "no key", s.insert(t, task())[0])

	s.claim(t, s.session, scheduler.Claim{ID: first.ID, From: scheduler.Ready, Worker: s.worker})
	s.expectHeld(t, "while it runs", s.insert(t, task(withUnique("u")))[0], first.Ref)
	token := scheduler.Token{ID: first.ID, Attempt: 1, Worker: s.worker}
	s.end(t, scheduler.Ending{Token: token, To: scheduler.Scheduled, Counted: true, Failure: &scheduler.Failure{Reason: "x"}})
	s.expectHeld(t, "while it waits for its next try", s.insert(t, task(withUnique("u")))[0], first.Ref)
	s.cancel(t, "acme", first.ID)
	second := task(withUnique("u"))
	s.expectStored(t, "after its end", s.insert(t, second)[0])
	s.expectStored(t, "the first again", s.insert(t, first)[0]) // an execution that was thought lost
	s.expectHeld(t, "while the second is open", s.insert(t, task(withUnique("u")))[0], second.Ref)
	if accepted, ended := s.Ledger(t); accepted != 5 || ended != 1 {
		t.Errorf("ledger: accepted %d, ended %d; want 5 and 1", accepted, ended)
	}
}

// Every end frees the key.
func everyEndFreesTheUniqueKey(t *testing.T, s *suite) {
	for _, to := range []scheduler.State{scheduler.Succeeded, scheduler.Failed, scheduler.Canceled} {
		one := s.running(t, withUnique("u"))
		s.end(t, scheduler.Ending{Token: one.Token(), To: to})
	}
	late := task(withUnique("u"), func(k *scheduler.Task) { k.StartBy = time.Now().Add(-time.Second) })
	s.expectStored(t, "one that is useless already", s.insert(t, late)[0])
	must[[]scheduler.Moved](t)(s.Store.Expire(ctx(), scheduler.ExpireBatch{Region: region, IDs: []scheduler.ID{late.ID}}))
	s.expectStored(t, "after it expired", s.insert(t, task(withUnique("u")))[0])
}

// B36: what takes a running task from its worker does not free the key, and does not keep it for longer than the task is open: after a
// killed worker, a reclaim and a dead letter it is free.
func aReclaimedTaskFreesItsUniqueKey(t *testing.T, s *suite) {
	for _, to := range []scheduler.State{scheduler.Succeeded, scheduler.Failed} {
		one := s.running(t, withUnique("u"))
		held := scheduler.Held{Token: one.Token(), Session: one.Session, Spec: one.Spec}
		s.end(t, scheduler.Reclaimed(&held))
		s.expectHeld(t, "after the reclaim", s.insert(t, task(withUnique("u")))[0], one.Ref)
		s.claim(t, s.session, scheduler.Claim{ID: one.ID, From: scheduler.Ready, Seen: 1, Worker: scheduler.WorkerID{7}})
		s.expectHeld(t, "while it runs again", s.insert(t, task(withUnique("u")))[0], one.Ref)
		s.end(t, scheduler.Ending{Token: scheduler.Token{ID: one.ID, Attempt: 2, Worker: scheduler.WorkerID{7}}, To: to, Counted: true})
		if got := s.Task(t, one.Ref).State; got != to {
			t.Fatalf("it is %v, want %v", got, to)
		}
	}
	s.expectStored(t, "after its end", s.insert(t, task(withUnique("u")))[0])
}

func uniqueKeyTwiceInOneBatch(t *testing.T, s *suite) {
	first, second := task(withUnique("u")), task(withUnique("u"))
	for range 2 {
		a := s.insert(t, first, second, task())
		s.expectStored(t, "the first", a[0])
		s.expectHeld(t, "the second", a[1], first.Ref)
		s.expectStored(t, "one without", a[2])
	}
}

// With both keys the idempotency key is looked at first, and stands for nothing that was not stored.
func uniqueAndIdempotencyKey(t *testing.T, s *suite) {
	first := task(withKey("k", "f"), withUnique("u"))
	s.expectStored(t, "the first", s.insert(t, first)[0])
	s.expectStored(t, "the first again", s.insert(t, first)[0])
	if a := s.insert(t, task(withKey("k", "f"), withUnique("u")))[0]; a.Verdict != scheduler.InsertDuplicate || a.Existing != first.Ref {
		t.Errorf("the same request: %+v, want a duplicate of %s", a, first.Ref)
	}
	if a := s.insert(t, task(withKey("k", "g"), withUnique("u")))[0]; a.Verdict != scheduler.InsertKeyReused {
		t.Errorf("another request: %+v, want the key reused", a)
	}
	loser, free := task(withKey("l", "f"), withUnique("u")), task(withKey("m", "f"), withUnique("v"))
	a := s.insert(t, loser, free)
	s.expectHeld(t, "another idempotency key", a[0], first.Ref)
	s.expectStored(t, "beside it", a[1])
	s.expectHeld(t, "without an idempotency key", s.insert(t, task(withUnique("u")))[0], first.Ref)

	s.cancel(t, "acme", first.ID)
	second := task(withKey("l", "f"), withUnique("u"))
	s.expectStored(t, "its idempotency key is free still", s.insert(t, second)[0])
	if a := s.insert(t, task(withKey("k", "f"), withUnique("u")))[0]; a.Verdict != scheduler.InsertDuplicate || a.Existing != first.Ref {
		t.Errorf("the first request after its end: %+v, want a duplicate of it", a)
	}
	if accepted, _ := s.Ledger(t); accepted != 3 {
		t.Errorf("accepted %d, want 3", accepted)
	}
}

// Many submit one key while its holders end: never are two open, and everybody gets an answer.
func uniqueKeyInParallel(t *testing.T, s *suite) {
	const parallel, rounds = 8, 12
	var mu sync.Mutex
	var stored []scheduler.Ref
	submit := func(change ...func(*scheduler.Task)) {
		for range rounds {
			one := task(append(change, withUnique("u"))...)
			got, err := s.Store.Insert(context.Background(), scheduler.Insert{Region: region, Tasks: []scheduler.Task{one}})
			if err != nil {
				t.Errorf("insert: %v", err)
				return
			}
			holder := one.Ref
			switch got[0].Verdict {
			case scheduler.InsertStored:
				mu.Lock()
				stored = append(stored, one.Ref)
				mu.Unlock()
			case scheduler.InsertHeld:
				holder = got[0].Existing
			case scheduler.InsertNotStarted: // all its tries met one that ended just then
			default:
				t.Errorf("%+v", got[0])
			}
			// Half of them end what stands in the way.
			if one.ID[15]%2 == 0 {
				if _, err := s.Store.Cancel(context.Background(), scheduler.CancelBatch{Region: region, Tenant: "acme", IDs: []scheduler.ID{holder.ID}}); err != nil {
					t.Errorf("cancel: %v", err)
				}
			}
		}
	}
	var all sync.WaitGroup
	for i := range parallel {
		if i%2 == 0 {
			all.Go(func() { submit() })
		} else {
			all.Go(func() { submit(func(k *scheduler.Task) { withKey(k.ID.String(), "f")(k) }) })
		}
	}
	all.Wait()

	open := 0
	for _, ref := range stored {
		if s.Task(t, ref).State.Open() {
			open++
		}
	}
	if open > 1 || len(stored) < 2 {
		t.Errorf("%d of %d are open at once", open, len(stored))
	}
	if accepted, ended := s.Ledger(t); accepted != int64(len(stored)) || ended != int64(len(stored)-open) {
		t.Errorf("ledger: %d accepted, %d ended; want %d and %d", accepted, ended, len(stored), len(stored)-open)
	}
}
