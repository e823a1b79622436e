package schedulertest

import (
	"errors"
	"testing"
	"time"

	"github.com/errandhq/errand/scheduler"
)

func endingsOf(token scheduler.Token) map[string]scheduler.Ending {
	why := &scheduler.Failure{Reason: "why", Message: "words"}
	return map[string]scheduler.Ending{
		"succeeded":                 {Token: token, To: scheduler.Succeeded, Result: []byte("r"), ResultType: "x/y"},
		"succeeded, no result":      {Token: token, To: scheduler.Succeeded},
		"failed":                    {Token: token, To: scheduler.Failed, Counted: true, Failure: why},
		"canceled":                  {Token: token, To: scheduler.Canceled, Counted: true, Failure: why},
		"tried again":               {Token: token, To: scheduler.Scheduled, Delay: time.Minute, Counted: true, Failure: why},
		"snoozed":                   {Token: token, To: scheduler.Scheduled, Delay: time.Hour, Failure: why},
		"backpressure":              {Token: token, To: scheduler.Scheduled, Delay: time.Minute, KeepDue: true, Failure: why},
		"handed back":               {Token: token, To: scheduler.Ready, Failure: why},
		"lost":                      {Token: token, To: scheduler.Ready, Counted: true, Suspect: true, Failure: why},
		"lost, sole suspect":        {Token: token, To: scheduler.Ready, Counted: true, Suspect: true, SoleSuspect: true, Failure: why},
		"poison":                    {Token: token, To: scheduler.Failed, Counted: true, Suspect: true, SoleSuspect: true, Failure: why},
		"far in the future":         {Token: token, To: scheduler.Scheduled, Delay: 5 * 365 * 24 * time.Hour, Failure: why},
		"handed back for no reason": {Token: token, To: scheduler.Ready},
	}
}

// Every ending, with and without a wish to cancel and a start_by, makes of a row what the lifecycle makes of it.
func endFollowsTheLifecycle(t *testing.T, s *suite) {
	for name := range endingsOf(scheduler.Token{}) {
		t.Run(name, func(t *testing.T) { endAsTheLifecycle(t, s, name, false, time.Time{}) })
		t.Run(name+", cancel requested", func(t *testing.T) { endAsTheLifecycle(t, s, name, true, time.Time{}) })
		if name != "far in the future" {
			soon := time.Now().Add(30 * time.Second)
			t.Run(name+", start_by", func(t *testing.T) { endAsTheLifecycle(t, s, name, false, soon) })
			t.Run(name+", cancel requested, start_by", func(t *testing.T) { endAsTheLifecycle(t, s, name, true, soon) })
		}
	}
}

func endAsTheLifecycle(t *testing.T, s *suite, ending string, cancel bool, startBy time.Time) {
	t.Helper()
	one := s.running(t, func(k *scheduler.Task) { k.StartBy = startBy })
	if cancel {
		s.cancel(t, "acme", one.ID)
	}
	before := s.Task(t, one.Ref)
	e := endingsOf(one.Token())[ending]
	want, refusal := before.End(e, time.Now())
	if refusal != nil {
		t.Fatal(refusal)
	}
	if a := s.end(t, e)[0]; a.Verdict != scheduler.Won || a.State != want.State || a.Attempt != 1 {
		t.Fatalf("answer %+v, want won and %v", a, want.State)
	}
	got := s.Task(t, one.Ref)
	same(t, got, want)
	near(t, "due", got.Due, want.Due)
	near(t, "wake_at", got.WakeAt, want.WakeAt)
}

// near allows for the time that a statement takes.
func near(t *testing.T, what string, got, want time.Time) {
	t.Helper()
	if d := got.Sub(want).Abs(); !got.IsZero() && d > 5*time.Second {
		t.Errorf("%s is %v, want about %v", what, got, want)
	}
}

func endMayBeExecutedAgain(t *testing.T, s *suite) {
	for name := range endingsOf(scheduler.Token{}) {
		t.Run(name, func(t *testing.T) {
			one := s.running(t)
			_, before := s.Ledger(t)
			e := endingsOf(one.Token())[name]
			s.end(t, e)
			stands := s.Task(t, one.Ref)
			for range 2 {
				expect(t, "again", verdicts(s.end(t, e), endVerdict), scheduler.Won)
			}
			same(t, s.Task(t, one.Ref), stands)
			_, ended := s.Ledger(t)
			want := int64(0)
			if stands.State.Terminal() {
				want = 1
			}
			if ended-before != want {
				t.Errorf("the ledger counts %d ends, want %d", ended-before, want)
			}
		})
	}
}

// P4, B04: nothing but the current token ends an attempt.
func endIsGuardedByTheToken(t *testing.T, s *suite) {
	one := s.running(t)
	s.end(t, scheduler.Ending{Token: one.Token(), To: scheduler.Ready})
	second := scheduler.WorkerID{7}
	s.claim(t, s.session, scheduler.Claim{ID: one.ID, From: scheduler.Ready, Seen: 1, Worker: second})
	stands := s.Task(t, one.Ref)
	for name, token := range map[string]scheduler.Token{
		"the first attempt":  one.Token(),
		"another worker":     {ID: one.ID, Attempt: 2, Worker: s.worker},
		"an attempt to come": {ID: one.ID, Attempt: 3, Worker: second},
	} {
		for ending, e := range endingsOf(token) {
			if a := s.end(t, e)[0]; a.Verdict != scheduler.Lost || a.State != scheduler.Running || a.Attempt != 2 {
				t.Errorf("%s, %s: %+v, want lost", name, ending, a)
			}
		}
	}
	same(t, s.Task(t, one.Ref), stands)
	missing := s.end(t, scheduler.Ending{Token: scheduler.Token{ID: newID(1), Attempt: 1, Worker: s.worker}, To: scheduler.Succeeded})
	expect(t, "a row that is not there", verdicts(missing, endVerdict), scheduler.Missing)
}

// B03: a scheduler that read a row as its own, or as an orphan, changes it only while that is still so.
func endBySchedulerIsGuardedByTheSession(t *testing.T, s *suite) {
	one := s.running(t)
	s.open(t, s.other, time.Minute)
	must[[]scheduler.Attached](t)(s.Store.Attach(ctx(), scheduler.AttachBatch{Region: region, Session: s.other, Tokens: []scheduler.Token{one.Token()}}))
	e := scheduler.Ending{Token: one.Token(), Session: s.session, To: scheduler.Ready, Counted: true}
	expect(t, "by the old session", verdicts(s.end(t, e), endVerdict), scheduler.Lost)
	if got := s.Task(t, one.Ref); got.State != scheduler.Running || got.Counted != 0 {
		t.Errorf("the row was changed: %v, counted %d", got.State, got.Counted)
	}
	e.Session = s.other
	expect(t, "by the new one", verdicts(s.end(t, e), endVerdict), scheduler.Won)
}

// P2, P4: a terminal state never changes, whatever comes.
func terminalNeverChanges(t *testing.T, s *suite) {
	for _, to := range []scheduler.State{scheduler.Succeeded, scheduler.Failed, scheduler.Canceled} {
		one := s.running(t)
		s.end(t, scheduler.Ending{Token: one.Token(), To: to})
		stands := s.Task(t, one.Ref)
		_, before := s.Ledger(t)
		for name, e := range endingsOf(one.Token()) {
			a := s.end(t, e)[0]
			if a.State != to {
				t.Errorf("%v, then %s: the answer says %v", to, name, a.State)
			}
		}
		s.claim(t, s.session, scheduler.Claim{ID: one.ID, From: scheduler.Ready, Seen: 1, Worker: s.worker})
		s.cancel(t, "acme", one.ID)
		must[[]scheduler.Moved](t)(s.Store.Wake(ctx(), scheduler.WakeBatch{Region: region, Rows: []scheduler.Seen{{ID: one.ID, Attempt: 1}}}))
		must[[]scheduler.Moved](t)(s.Store.Expire(ctx(), scheduler.ExpireBatch{Region: region, IDs: []scheduler.ID{one.ID}}))
		must[[]scheduler.Attached](t)(s.Store.Attach(ctx(), scheduler.AttachBatch{Region: region, Session: s.session, Tokens: []scheduler.Token{one.Token()}}))
		same(t, s.Task(t, one.Ref), stands)
		if _, after := s.Ledger(t); after != before {
			t.Errorf("%v: the ledger counted another end", to)
		}
	}
}

// B37: what no store can hold is refused as such, so that the engine can isolate the row; nothing of the batch is written.
func aValueThatCannotBeStoredIsRefused(t *testing.T, s *suite) {
	good, bad := s.running(t), s.running(t)
	_, err := s.Store.End(ctx(), scheduler.EndBatch{Region: region, Endings: []scheduler.Ending{
		{Token: good.Token(), To: scheduler.Failed, Failure: &scheduler.Failure{Reason: "r"}},
		{Token: bad.Token(), To: scheduler.Failed, Failure: &scheduler.Failure{Reason: "r", Message: "a\x00b"}},
	}})
	if !errors.Is(err, scheduler.ErrRefused) {
		t.Fatalf("a NUL byte in a text: %v, want ErrRefused", err)
	}
	if got := s.Task(t, good.Ref); got.State != scheduler.Running {
		t.Errorf("the other row is %v: nothing of a refused batch may be written", got.State)
	}
}

func cancelSaysWhatHappened(t *testing.T, s *suite) {
	future := time.Now().Add(time.Hour)
	waiting := []scheduler.Task{task(), task(func(k *scheduler.Task) { k.State, k.RunAt = scheduler.Scheduled, future })}
	s.insert(t, waiting...)
	for _, one := range waiting {
		want, _ := s.Task(t, one.Ref).Cancel("why", time.Now())
		for range 2 { // again: the same answer
			if a := s.cancel(t, "acme", one.ID)[0]; a.Verdict != scheduler.Won || a.State != scheduler.Canceled {
				t.Errorf("waiting: %+v, want canceled", a)
			}
		}
		same(t, s.Task(t, one.Ref), want)
	}
	run := s.running(t)
	for range 2 {
		a := s.cancel(t, "acme", run.ID)[0]
		if a.Verdict != scheduler.Won || a.State != scheduler.Running || a.Token != run.Token() || a.Session != s.session {
			t.Errorf("running: %+v, want the token to stop", a)
		}
	}
	done := s.running(t)
	s.end(t, scheduler.Ending{Token: done.Token(), To: scheduler.Succeeded})
	if a := s.cancel(t, "acme", done.ID)[0]; a.Verdict != scheduler.Lost || a.State != scheduler.Succeeded {
		t.Errorf("ended: %+v, want lost and succeeded", a)
	}
	if _, ended := s.Ledger(t); ended != 3 {
		t.Errorf("the ledger counts %d ends, want 3", ended)
	}
}

// P8: another tenant's task looks like none.
func cancelIsTheTenantsOwn(t *testing.T, s *suite) {
	one := task()
	s.insert(t, one)
	for _, a := range s.cancel(t, "globex", one.ID, newID(2)) {
		if a.Verdict != scheduler.Missing || a.State != 0 {
			t.Errorf("%+v, want missing and nothing told", a)
		}
	}
	if got := s.Task(t, one.Ref); got.State != scheduler.Ready || got.CancelRequested {
		t.Errorf("the row was changed: %+v", got)
	}
}
