package scheduler

import (
	"strings"
	"testing"
	"time"
)

// B37, B41: whatever a worker says of backpressure, the task waits for a time that can be stored, or for its limit's gate.
func TestBackpressureEndings(t *testing.T) {
	for name, c := range map[string]struct {
		attempt    int64
		retryAfter time.Duration
		gated      bool
		want       string
	}{
		"at the limit's pace":            {1, 0, true, "ready backpressure"},
		"backwards":                      {1, -time.Hour, true, "ready backpressure"},
		"after a while":                  {1, time.Minute, true, "scheduled backpressure in 1m0s"},
		"at once, almost":                {1, 1, true, "scheduled backpressure in 1ms"},
		"never":                          {1, 1 << 62, true, "scheduled backpressure in 8760h0m0s"},
		"no gate":                        {1, 0, false, "scheduled backpressure in 500ms"},
		"no gate, the fourth time":       {4, 0, false, "scheduled backpressure in 4s"},
		"no gate, for ever":              {1 << 40, 0, false, "scheduled backpressure in 30m0s"},
		"no gate, backwards":             {1, -time.Hour, false, "scheduled backpressure in 500ms"},
		"no gate, after a while":         {1, time.Minute, false, "scheduled backpressure in 1m7.5s"},
		"no gate, never":                 {1, 1 << 62, false, "scheduled backpressure in 8760h0m0s"},
		"no gate, and a huge number too": {1 << 62, 1 << 62, false, "scheduled backpressure in 8760h0m0s"},
	} {
		h := &Held{Token: Token{ID: ID{1}, Attempt: c.attempt, Worker: WorkerID{1}}, Suspect: true, Spec: Spec{MaxAttempts: 1}}
		r := &Report{Token: h.Token, Outcome: OutcomeBackpressure, Limit: "a\x00pi" + strings.Repeat("x", 1<<20), RetryAfter: c.retryAfter}
		e := pressed(h, r, c.gated, 0.5)
		if got := endingWords(&e); got != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
		if e.Suspect || e.Token != h.Token || len(e.Failure.Message) > len("limit ")+LimitNameMax || strings.Contains(e.Failure.Message, "\x00") {
			t.Errorf("%s: %+v, %q", name, e, e.Failure.Message)
		}
		if e.To == Scheduled && !e.KeepDue {
			t.Errorf("%s: the due is lost", name)
		}
	}
}

// A part of the cap is no part of what the instance has learned: that is of its own starts already.
func TestAdaptiveIsOfTheInstancesOwnStarts(t *testing.T) {
	s := newScript()
	for _, line := range []string{
		"parts 1/4", "worker w1 pay=60", "limit api rate=400", "ready p01..p10 kind=pay limits=api", "then", "won all", "accept all",
		"report all backpressure limit=api",
	} {
		if err := s.run(strings.Fields(line)); err != nil {
			t.Fatal(err)
		}
	}
	g := s.core.gates.byKey[gateKey{tenant: "x", of: gateLimit, name: "api"}]
	g.room(s.now, s.core.gates.parts)
	if g.bucket.Rate != 2.5 || g.adaptive.Most != 100 {
		t.Errorf("%v a second after ten at once, within %v; want 2.5 within 100", g.bucket.Rate, g.adaptive.Most)
	}
	if n := s.core.Pressed(); n != (Pressed{Limited: 10}) {
		t.Errorf("counted %+v", n)
	}
}

// What was learned goes with the time, and so does the gate: a key per customer leaves nothing behind.
func TestGatesAreForgotten(t *testing.T) {
	s := newScript()
	for _, line := range []string{
		"worker w1 pay=60", "limit api", "ready p1 kind=pay limits=api/a", "ready p2 kind=pay limits=api/b", "then", "won all", "accept all",
		"report p1 succeeded", "report p2 backpressure limit=api retry_after=24h", "then", "ended p1", "ended p2", "then",
	} {
		if err := s.run(strings.Fields(line)); err != nil {
			t.Fatal(err)
		}
	}
	for len(s.core.gates.byKey) > 0 {
		at, some := s.core.NextDeadline()
		if !some || at.Sub(epoch) > time.Hour {
			t.Fatalf("%d gates left, and nothing to look at (%v)", len(s.core.gates.byKey), at)
		}
		s.now = at
		s.plan(s.room)
	}
}
