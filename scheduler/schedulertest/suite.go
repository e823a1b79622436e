package schedulertest

import (
	"context"
	"encoding/binary"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/errandhq/errand/scheduler"
	"github.com/errandhq/errand/scheduler/engine"
)

// Fixture is a store under test, empty, with what the suite must see of it besides its methods.
type Fixture struct {
	Store engine.Store
	// Task reads a task as it stands.
	Task func(t *testing.T, ref scheduler.Ref) scheduler.Task
	// Ledger returns what the ledger says was accepted and ended, over all tenants and tiers.
	Ledger func(t *testing.T) (accepted, ended int64)
	// ForgetSession deletes a session's row, as an operator or a restored backup might.
	ForgetSession func(t *testing.T, id scheduler.SessionID)
}

// RunStoreSuite runs every test of the conformance suite on fresh stores.
func RunStoreSuite(t *testing.T, open func(t *testing.T) Fixture) {
	tests := []struct {
		name string
		run  func(t *testing.T, s *suite)
	}{
		{"InsertStoresWhatWasAsked", insertStoresWhatWasAsked},
		{"InsertMayBeExecutedAgain", insertMayBeExecutedAgain},
		{"EagerStartNeedsALiveSession", eagerStartNeedsALiveSession},
		{"EagerStartIsNotTooLate", eagerStartIsNotTooLate},
		{"TwinOfARefusedEagerStart", twinOfARefusedEagerStart},
		{"KeyIsStoredOnce", keyIsStoredOnce},
		{"KeyIsStoredOnceInParallel", keyIsStoredOnceInParallel},
		{"KeyTwiceInOneBatch", keyTwiceInOneBatch},
		{"UniqueKeyIsHeldWhileOpen", uniqueKeyIsHeldWhileOpen},
		{"EveryEndFreesTheUniqueKey", everyEndFreesTheUniqueKey},
		{"AReclaimedTaskFreesItsUniqueKey", aReclaimedTaskFreesItsUniqueKey},
		{"UniqueKeyTwiceInOneBatch", uniqueKeyTwiceInOneBatch},
		{"UniqueAndIdempotencyKey", uniqueAndIdempotencyKey},
		{"UniqueKeyInParallel", uniqueKeyInParallel},
		{"ClaimFollowsTheLifecycle", claimFollowsTheLifecycle},
		{"ClaimMayBeExecutedAgain", claimMayBeExecutedAgain},
		{"ClaimNeedsALiveSession", claimNeedsALiveSession},
		{"ClaimReturnsSmallPayloads", claimReturnsSmallPayloads},
		{"TwoContendersBelieveTheStore", twoContendersBelieveTheStore},
		{"EndFollowsTheLifecycle", endFollowsTheLifecycle},
		{"EndMayBeExecutedAgain", endMayBeExecutedAgain},
		{"AKeptDueStays", aKeptDueStays},
		{"EndIsGuardedByTheToken", endIsGuardedByTheToken},
		{"EndBySchedulerIsGuardedByTheSession", endBySchedulerIsGuardedByTheSession},
		{"TerminalNeverChanges", terminalNeverChanges},
		{"AValueThatCannotBeStoredIsRefused", aValueThatCannotBeStoredIsRefused},
		{"CancelSaysWhatHappened", cancelSaysWhatHappened},
		{"CancelIsTheTenantsOwn", cancelIsTheTenantsOwn},
		{"UpdateMovesAWaitingTask", updateMovesAWaitingTask},
		{"UpdateIsRefused", updateIsRefused},
		{"UpdateInParallel", updateInParallel},
		{"AttachTakesOver", attachTakesOver},
		{"WakeAndExpireAskTheStoresClock", wakeAndExpireAskTheStoresClock},
		{"LanesShowWhatIsReady", lanesShowWhatIsReady},
		{"DiscoverGoesInSlices", discoverGoesInSlices},
		{"TimedShowsWhatComesNext", timedShowsWhatComesNext},
		{"RunningShowsASessionsRows", runningShowsASessionsRows},
		{"OrphansAreFoundByTheirRows", orphansAreFoundByTheirRows},
		{"SessionsReviveUntilEnded", sessionsReviveUntilEnded},
		{"OnlyALiveSessionEndsOthers", onlyALiveSessionEndsOthers},
		{"AFullBatch", aFullBatch},
		{"AChildDoesWhatItsParentsAllow", aChildDoesWhatItsParentsAllow},
		{"LateChildren", lateChildren},
		{"EndsAreHandedDown", endsAreHandedDown},
		{"AReleaseMayStopAnywhere", aReleaseMayStopAnywhere},
		{"AGraphIsStoredWholeAndOnce", aGraphIsStoredWholeAndOnce},
		{"ParentsEndWhileTheChildComes", parentsEndWhileTheChildComes},
		{"FanInAtTheSameTime", fanInAtTheSameTime},
		{"ABlockedTaskMayEndByItself", aBlockedTaskMayEndByItself},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := &suite{Fixture: open(t), session: scheduler.SessionID{0xA1}, other: scheduler.SessionID{0xB2}, worker: scheduler.WorkerID{0xC3}}
			s.open(t, s.session, time.Minute)
			tt.run(t, s)
		})
	}
}

const region = "eu"

// suite is a fixture with two sessions' names, of which the first is open, and a worker's.
type suite struct {
	Fixture
	session, other scheduler.SessionID
	worker         scheduler.WorkerID
}

var serial atomic.Uint64

func newID(shard uint8) scheduler.ID {
	var random [scheduler.RandomBytes]byte
	binary.BigEndian.PutUint64(random[:], serial.Add(1))
	return scheduler.NewID(shard, time.Now(), random)
}

// task makes a ready standard task; change may alter it.
func task(change ...func(*scheduler.Task)) scheduler.Task {
	id := newID(3)
	t := scheduler.Task{
		Ref: scheduler.Ref{Region: region, ID: id}, Tenant: "acme", Kind: "encode", Tier: scheduler.Standard,
		State: scheduler.Ready, Tolerance: time.Minute, EffectKey: id,
	}
	for _, f := range change {
		f(&t)
	}
	return t
}

func ctx() context.Context { return context.Background() }

func must[T any](t *testing.T) func(T, error) T {
	t.Helper()
	return func(v T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

func (s *suite) open(t *testing.T, id scheduler.SessionID, ttl time.Duration) scheduler.Renewal {
	t.Helper()
	return must[scheduler.Renewal](t)(s.Store.OpenSession(ctx(), scheduler.Session{Region: region, ID: id, Address: "here"}, ttl))
}

func (s *suite) insert(t *testing.T, tasks ...scheduler.Task) []scheduler.Inserted {
	t.Helper()
	return must[[]scheduler.Inserted](t)(s.Store.Insert(ctx(), scheduler.Insert{Region: region, Tasks: tasks}))
}

// running makes a task that runs under the suite's session and worker.
func (s *suite) running(t *testing.T, change ...func(*scheduler.Task)) scheduler.Task {
	t.Helper()
	one := task(change...)
	s.insert(t, one)
	a := s.claim(t, s.session, scheduler.Claim{ID: one.ID, From: scheduler.Ready, Worker: s.worker})
	if a[0].Verdict != scheduler.Won {
		t.Fatalf("claim: %+v", a[0])
	}
	return s.Task(t, one.Ref)
}

func (s *suite) claim(t *testing.T, by scheduler.SessionID, claims ...scheduler.Claim) []scheduler.Claimed {
	t.Helper()
	return must[[]scheduler.Claimed](t)(s.Store.Claim(ctx(), scheduler.ClaimBatch{Region: region, Session: by, Claims: claims}))
}

func (s *suite) end(t *testing.T, endings ...scheduler.Ending) []scheduler.Ended {
	t.Helper()
	return must[[]scheduler.Ended](t)(s.Store.End(ctx(), scheduler.EndBatch{Region: region, Endings: endings}))
}

func (s *suite) cancel(t *testing.T, tenant string, ids ...scheduler.ID) []scheduler.CancelAnswer {
	t.Helper()
	return must[[]scheduler.CancelAnswer](t)(s.Store.Cancel(ctx(), scheduler.CancelBatch{Region: region, Tenant: tenant, Message: "why", IDs: ids}))
}

// same compares what the store made of a task with what the lifecycle makes of it. Times are compared as set or not, since the
// store's clock has the last word.
func same(t *testing.T, got, want scheduler.Task) {
	t.Helper()
	type shape struct {
		state                              scheduler.State
		attempt                            int64
		counted, losses                    int
		suspect, cancel                    bool
		ready, wake, started, ended, runAt bool
		session                            scheduler.SessionID
		worker                             scheduler.WorkerID
		result                             string
		reason                             scheduler.Reason
	}
	shapeOf := func(k *scheduler.Task) shape {
		out := shape{
			k.State, k.Attempt, k.Counted, k.WorkerLosses, k.Suspect, k.CancelRequested, !k.ReadyAt.IsZero(), !k.WakeAt.IsZero(),
			!k.StartedAt.IsZero(), !k.EndedAt.IsZero(), !k.RunAt.IsZero(), k.Session, k.Worker, string(k.Result), "",
		}
		if k.Failure != nil {
			out.reason = k.Failure.Reason
		}
		return out
	}
	if g, w := shapeOf(&got), shapeOf(&want); g != w {
		t.Errorf("the store made %+v of it, the lifecycle says %+v", g, w)
	}
}

func verdicts[T any](answers []T, verdict func(T) scheduler.Verdict) []scheduler.Verdict {
	var all []scheduler.Verdict
	for _, a := range answers {
		all = append(all, verdict(a))
	}
	return all
}

func claimVerdict(a scheduler.Claimed) scheduler.Verdict { return a.Verdict }
func endVerdict(a scheduler.Ended) scheduler.Verdict     { return a.Verdict }
func moveVerdict(a scheduler.Moved) scheduler.Verdict    { return a.Verdict }

func expect(t *testing.T, what string, got []scheduler.Verdict, want ...scheduler.Verdict) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("%s: verdicts %v, want %v", what, got, want)
	}
}
