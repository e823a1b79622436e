package scheduler

import (
	"slices"
	"testing"
	"time"
)

// What a core tells of itself: one attempt in each phase, by name of its first byte.
func TestWhatACoreTells(t *testing.T) {
	w := newWorld(DefaultTiming(), func() float64 { return 0.5 })
	if _, some := w.core.NextDeadline(); some {
		t.Error("an empty core waits for a time")
	}
	worker := WorkerID{1}
	w.join(worker, "x", map[string]int{"k": 5})
	for n := range byte(6) {
		w.insert(Task{
			Ref: Ref{Region: "here", ID: ID{n + 1}}, Tenant: "x", Kind: "k", Tier: Standard, State: Ready, ReadyAt: epoch, Due: epoch,
			Spec: Spec{AttemptTimeout: time.Minute},
		})
	}
	w.plan(Room{Others: 10})
	token := func(n byte) Token { return Token{ID: ID{n}, Attempt: 1, Worker: worker} }
	for n := range byte(4) {
		w.settleClaim(ID{n + 2}) // 1 is claiming still, 6 waits
	}
	w.core.Step(Accepted{Tokens: []Token{token(3), token(4), token(5)}})
	w.core.Step(CancelAsked{Token: token(4)})
	w.core.Step(Reported{Reports: []Report{{Token: token(5), Outcome: OutcomeSucceeded}}})
	p := w.plan(Room{})

	if got, want := w.core.Counts(), (Counts{Buffered: 1, Claiming: 1, Sent: 1, Running: 1, Stopping: 1, Ending: 1, Groups: 1}); got != want {
		t.Errorf("counts %+v, want %+v", got, want)
	}
	for n, want := range map[byte]struct{ row, holds, awaits bool }{
		1: {true, false, false}, 2: {true, true, true}, 3: {true, true, false}, 4: {true, true, false}, 5: {true, true, false}, 6: {},
	} {
		held, row := w.core.Row(token(n))
		if row != want.row || w.core.Holds(token(n)) != want.holds || w.core.Awaits(token(n)) != want.awaits || row != (held.Tenant == "x") {
			t.Errorf("task %d: row %v, holds %v, awaits %v; want %v", n, row, w.core.Holds(token(n)), w.core.Awaits(token(n)), want)
		}
	}
	if w.core.Holds(Token{ID: ID{3}, Attempt: 2, Worker: worker}) || w.core.Holds(Token{ID: ID{3}, Attempt: 1}) {
		t.Error("the core holds a token that differs in one part")
	}
	if got, want := w.core.HeldBy(worker), []Token{token(2), token(3), token(4)}; !slices.Equal(got, want) || len(w.core.Held()) != 3 {
		t.Errorf("held %v, want %v", got, want)
	}
	if got := w.core.Unaccepted(worker); !slices.Equal(got, []Token{token(2)}) {
		t.Errorf("not accepted: %v", got)
	}
	if at, some := w.core.NextDeadline(); !some || !at.Equal(epoch.Add(DefaultTiming().Accept)) {
		t.Errorf("the next deadline is %v", at)
	}
	if len(p.Assign) != 4 || len(w.core.Workers()) != 1 || w.core.Worker(worker).Tenant != "x" || w.core.Worker(WorkerID{9}).Tenant != "" {
		t.Errorf("%d assignments, workers %v", len(p.Assign), w.core.Workers())
	}
}

// Nothing that names no attempt changes anything: late words and answers are a normal thing.
func TestWordsOfNobodysAttempts(t *testing.T) {
	w := newWorld(DefaultTiming(), func() float64 { return 0.5 })
	w.join(WorkerID{1}, "", map[string]int{"k": 1})
	stranger := Token{ID: ID{9}, Attempt: 1, Worker: WorkerID{1}}
	for _, ev := range []Event{
		Accepted{Tokens: []Token{stranger}},
		Reported{Reports: []Report{{Token: stranger, Outcome: OutcomeSucceeded}}},
		CancelAsked{Token: stranger},
		Undelivered{Tokens: []Token{stranger}},
		RowsMissing{Tokens: []Token{stranger}},
		RowsGone{IDs: []ID{stranger.ID}},
		WorkersLost{IDs: []WorkerID{{7}}},
		WorkerLeft{ID: WorkerID{7}},
		WorkerHolds{ID: WorkerID{7}, Tokens: []Token{stranger}},
		WorkerDraining{ID: WorkerID{7}, Draining: true},
		TookOver{Held: []Held{{Token: Token{ID: ID{9}, Attempt: 1, Worker: WorkerID{7}}}}}, // a worker that is not here
		Refilled{},
		RefillFailed{Keys: []BufferKey{{}}},
		Discovered{},
		RowsReady{},
	} {
		w.core.Step(ev)
	}
	for _, res := range []Result{
		ClaimsAnswered{Answers: []Claimed{{ID: ID{9}, Verdict: Won, State: Running}}},
		StartRefused{ID: ID{9}},
		StartStored{Task: Task{Ref: Ref{ID: ID{9}}}},
		EndingsAnswered{Endings: []Ending{{Token: stranger}}, Answers: []Ended{{ID: ID{9}, Verdict: Won, State: Ready}}},
	} {
		w.core.Advance(res)
	}
	p := w.plan(Room{Urgent: 9, Others: 9})
	if len(p.Claims)+len(p.UrgentClaims)+len(p.Assign)+len(p.Endings)+len(p.Stops)+len(p.Wakes) != 0 {
		t.Errorf("plan %+v, want nothing to do", p)
	}
	w.check(t)
	if got := w.core.Counts(); got != (Counts{}) {
		t.Errorf("counts %+v", got)
	}
}
