package scheduler

import (
	"fmt"
	"strings"
	"testing"
	"time"
	"unicode/utf8"
)

// FIELD-REPORTS B37, B39: what a handler says must never keep its attempt from ending.
func TestCleanText(t *testing.T) {
	for name, c := range map[string]struct {
		text  string
		limit int
		want  string
	}{
		"empty":               {"", 8, ""},
		"plain":               {"no card", 8, "no card"},
		"at the limit":        {"12345678", 8, "12345678"},
		"above the limit":     {"123456789", 8, "12345678"},
		"NUL":                 {"a\x00b\x00", 8, "ab"},
		"only NULs":           {"\x00\x00\x00", 8, ""},
		"bad UTF-8":           {"a\xffb\xc3", 8, "ab"},
		"surrogate":           {"a\xed\xa0\x80b", 8, "ab"},
		"cut inside a rune":   {"1234567é", 8, "1234567"},
		"rune ends at limit":  {"123456é", 8, "123456é"},
		"NUL inside bad rune": {"\xc3\x00\xa9", 8, ""},
		"limit zero":          {"abc", 0, ""},
	} {
		t.Run(name, func(t *testing.T) {
			if got := CleanText(c.text, c.limit); got != c.want {
				t.Errorf("%q, want %q", got, c.want)
			}
		})
	}
}

func TestCleanTextOfTenMebibytes(t *testing.T) {
	const size = 10 << 20
	for name, text := range map[string]string{
		"letters": strings.Repeat("a", size), "NULs": strings.Repeat("\x00", size),
		"runes": strings.Repeat("é", size/2), "bad bytes": strings.Repeat("\xff", size),
	} {
		cost := testing.AllocsPerRun(1, func() {
			if got := CleanText(text, FailureMessageMax); len(got) > FailureMessageMax || !utf8.ValidString(got) {
				t.Errorf("%s: %d bytes", name, len(got))
			}
		})
		if cost > 4 {
			t.Errorf("%s: %v allocations", name, cost)
		}
	}
}

func FuzzCleanText(f *testing.F) {
	f.Add("a\x00b", 2)
	f.Add("\xe2\x82", 3)
	f.Fuzz(func(t *testing.T, text string, limit int) {
		limit = min(max(limit, 0), 1<<16)
		got := CleanText(text, limit)
		if len(got) > limit || !utf8.ValidString(got) || strings.ContainsRune(got, 0) {
			t.Fatalf("%q, limit %d: %q", text, limit, got)
		}
		if len(text) <= limit && utf8.ValidString(text) && !strings.ContainsRune(text, 0) && got != text {
			t.Fatalf("%q was fine, and became %q", text, got)
		}
	})
}

func heldWith(change func(*Held)) *Held {
	h := &Held{Token: Token{ID: ID{1}, Attempt: 3, Worker: WorkerID{2}}, Session: SessionID{3}, Counted: 1}
	change(h)
	return h
}

// What follows from each word of a worker. The draw is one half, so that a first backoff of 2 s gives 1 s.
func TestWhatFollowsFromAReport(t *testing.T) {
	plain := heldWith(func(*Held) {})
	last := heldWith(func(h *Held) { h.Counted = 4 })
	suspect := heldWith(func(h *Held) { h.Suspect = true })
	picky := heldWith(func(h *Held) { h.Spec.Retry.NonRetryable = []Reason{"bad_card", ReasonTimeout} })
	for name, c := range map[string]struct {
		held *Held
		stop StopCause
		r    Report
		want string
	}{
		"succeeded":             {plain, 0, Report{Outcome: OutcomeSucceeded}, "succeeded"},
		"succeeded, stopped":    {plain, StopTimedOut, Report{Outcome: OutcomeSucceeded}, "succeeded"},
		"result at the limit":   {plain, 0, Report{Outcome: OutcomeSucceeded, Result: make([]byte, ResultMax)}, "succeeded"},
		"result too large":      {plain, 0, Report{Outcome: OutcomeSucceeded, Result: make([]byte, ResultMax+1)}, "failed bad_result counted"},
		"failed":                {plain, 0, Report{Outcome: OutcomeFailed}, "scheduled handler_error counted in 1s"},
		"failed with a reason":  {plain, 0, Report{Outcome: OutcomeFailed, Failure: Failure{Reason: "no\x00_card"}}, "scheduled no_card counted in 1s"},
		"failed, retry after":   {plain, 0, Report{Outcome: OutcomeFailed, RetryAfter: time.Minute}, "scheduled handler_error counted in 1m7.5s"},
		"failed, not retryable": {plain, 0, Report{Outcome: OutcomeFailed, NonRetryable: true}, "failed handler_error counted"},
		"failed, by its reason": {picky, 0, Report{Outcome: OutcomeFailed, Failure: Failure{Reason: "bad_card"}}, "failed bad_card counted"},
		"failed the last time":  {last, 0, Report{Outcome: OutcomeFailed}, "failed handler_error counted"},
		"failed a suspect":      {suspect, 0, Report{Outcome: OutcomeFailed}, "scheduled handler_error counted in 1s"},
		"timed out":             {plain, StopTimedOut, Report{Outcome: OutcomeStopped}, "scheduled timeout counted in 1s"},
		"timed out with error":  {plain, StopTimedOut, Report{Outcome: OutcomeFailed}, "scheduled timeout counted in 1s"},
		"timed out, last":       {last, StopTimedOut, Report{Outcome: OutcomeStopped}, "failed timeout counted"},
		"timed out, final":      {picky, StopTimedOut, Report{Outcome: OutcomeStopped}, "failed timeout counted"},
		"canceled":              {plain, StopCanceled, Report{Outcome: OutcomeStopped}, "canceled canceled counted"},
		"canceled, error":       {plain, StopCanceled, Report{Outcome: OutcomeFailed}, "scheduled handler_error counted in 1s"},
		"stopped by its worker": {plain, 0, Report{Outcome: OutcomeStopped}, "ready drained"},
		"handed back":           {plain, 0, Report{Outcome: OutcomeHandedBack}, "ready drained"},
		"preempted":             {plain, 0, Report{Outcome: OutcomeHandedBack, Failure: Failure{Reason: ReasonPreempted}}, "ready preempted"},
		"handed back, suspect":  {suspect, 0, Report{Outcome: OutcomeHandedBack}, "ready drained suspect"},
		"snoozed":               {plain, 0, Report{Outcome: OutcomeSnoozed, Delay: time.Hour}, "scheduled snoozed in 1h0m0s"},
		"snoozed for nothing":   {plain, 0, Report{Outcome: OutcomeSnoozed}, "scheduled snoozed in 1ms"},
		"snoozed backwards":     {plain, 0, Report{Outcome: OutcomeSnoozed, Delay: -time.Hour}, "scheduled snoozed in 1ms"},
		"snoozed for ever":      {plain, 0, Report{Outcome: OutcomeSnoozed, Delay: 1 << 62}, "scheduled snoozed in 8760h0m0s"},
		"an unknown outcome":    {plain, 0, Report{Outcome: 99}, "scheduled handler_error counted in 1s"},
	} {
		t.Run(name, func(t *testing.T) {
			c.r.Token = c.held.Token
			e := decide(c.held, c.stop, &c.r, 0.5)
			if got := endingWords(&e); got != c.want {
				t.Errorf("%s, want %s", got, c.want)
			}
			if e.Token != c.held.Token || !e.Session.IsZero() {
				t.Errorf("guarded by %+v and session %v, want the token alone", e.Token, e.Session)
			}
		})
	}
}

func endingWords(e *Ending) string {
	words := []string{e.To.String()}
	if e.Failure != nil {
		words = append(words, string(e.Failure.Reason))
	}
	if e.Counted {
		words = append(words, "counted")
	}
	if e.Suspect {
		words = append(words, "suspect")
	}
	if e.SoleSuspect {
		words = append(words, "blamed")
	}
	if e.To == Scheduled {
		words = append(words, "in "+e.Delay.String())
	}
	return strings.Join(words, " ")
}

func TestTextsOfAReportAreStorable(t *testing.T) {
	h := heldWith(func(*Held) {})
	e := decide(h, 0, &Report{Token: h.Token, Outcome: OutcomeSucceeded, Result: []byte("a\x00b"), ResultType: "text/\x00plain\xff"}, 0)
	if e.ResultType != "text/plain" || string(e.Result) != "a\x00b" {
		t.Errorf("type %q, result %q: the type is text, the result is bytes", e.ResultType, e.Result)
	}
	long := strings.Repeat("é", FailureMessageMax)
	e = decide(h, 0, &Report{Token: h.Token, Outcome: OutcomeFailed, Failure: Failure{Reason: Reason(long), Message: "\x00" + long}}, 0)
	if n := len(e.Failure.Reason); n > ReasonMax || n < ReasonMax-1 {
		t.Errorf("a reason of %d bytes, want it cut to %d", n, ReasonMax)
	}
	if n := len(e.Failure.Message); n > FailureMessageMax || n < FailureMessageMax-2 {
		t.Errorf("a message of %d bytes, want it cut to %d", n, FailureMessageMax)
	}
}

// What the scheduler ends by itself.
func TestWhatTheSchedulerEndsItself(t *testing.T) {
	plain := heldWith(func(*Held) {})
	last := heldWith(func(h *Held) { h.Counted = 4 })
	blamedTwice := heldWith(func(h *Held) { h.Counted, h.WorkerLosses, h.Suspect = 2, 2, true })
	for name, c := range map[string]struct {
		e    Ending
		want string
	}{
		"worker lost":                     {lostWorker(plain, false), "ready worker_lost counted suspect"},
		"worker lost, alone":              {lostWorker(plain, true), "ready worker_lost counted suspect blamed"},
		"worker lost, last attempt":       {lostWorker(last, false), "failed worker_lost counted suspect"},
		"worker lost, third blame":        {lostWorker(blamedTwice, true), "failed poison counted suspect blamed"},
		"worker lost, third but not sole": {lostWorker(blamedTwice, false), "ready worker_lost counted suspect"},
		"session ended":                   {Reclaimed(plain), "ready scheduler_lost counted"},
		"session ended, suspect":          {Reclaimed(blamedTwice), "ready scheduler_lost counted suspect"},
		"session ended, last attempt":     {Reclaimed(last), "failed scheduler_lost counted"},
		"not accepted":                    {Withdrawn(last, ReasonNotAccepted), "ready not_accepted"},
		"unaccounted, suspect":            {Withdrawn(blamedTwice, ReasonUnknownToCore), "ready unaccounted suspect"},
	} {
		if got := endingWords(&c.e); got != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
		if c.e.Session != (SessionID{3}) {
			t.Errorf("%s: not guarded by the session", name)
		}
	}
}

// tryOf is one attempt's fate.
type tryOf struct {
	name string
	end  func(h *Held) Ending
}

func tryReported(name string, outcome Outcome, stop StopCause, failure Failure) tryOf {
	return tryOf{name, func(h *Held) Ending {
		return decide(h, stop, &Report{Token: h.Token, Outcome: outcome, Failure: failure}, 0)
	}}
}

var (
	tryError    = tryReported("handler error", OutcomeFailed, 0, Failure{})
	tryTimeout  = tryReported("timeout", OutcomeStopped, StopTimedOut, Failure{})
	tryDrained  = tryReported("drained", OutcomeHandedBack, 0, Failure{})
	tryPreempt  = tryReported("preempted", OutcomeHandedBack, 0, Failure{Reason: ReasonPreempted})
	trySnoozed  = tryReported("snoozed", OutcomeSnoozed, 0, Failure{})
	trySuccess  = tryReported("success", OutcomeSucceeded, 0, Failure{})
	tryLost     = tryOf{"worker lost", func(h *Held) Ending { return lostWorker(h, false) }}
	tryReclaim  = tryOf{"scheduler lost", Reclaimed}
	tryPressed  = tryOf{"backpressure", func(h *Held) Ending { return pressed(h, &Report{Token: h.Token, Limit: "api"}, true, 0) }}
	tryUngated  = tryOf{"backpressure of no limit", func(h *Held) Ending { return pressed(h, &Report{Token: h.Token}, false, 0) }}
	tryNoAccept = tryOf{"not accepted", func(h *Held) Ending { return Withdrawn(h, ReasonNotAccepted) }}
)

// FIELD-REPORTS B30: max_attempts is the number of starts that count. Errors, timeouts and lost workers count; drains,
// preemptions, snoozes, backpressure and assignments that never ran do not. One place counts.
func TestWhatCountsAgainstMaxAttempts(t *testing.T) {
	for _, maxAttempts := range []int{1, 3} {
		for _, counts := range []tryOf{tryError, tryTimeout, tryLost, tryReclaim} {
			t.Run(fmt.Sprintf("%s, max_attempts %d", counts.name, maxAttempts), func(t *testing.T) {
				task := lifeOf(t, maxAttempts, counts, counts, counts, counts)
				if task.State != Failed || task.Attempt != int64(maxAttempts) || task.Counted != maxAttempts {
					t.Errorf("%v after %d starts, %d counted; want failed at once after the last counted one",
						task.State, task.Attempt, task.Counted)
				}
			})
		}
		for _, free := range []tryOf{tryDrained, tryPreempt, trySnoozed, tryPressed, tryUngated, tryNoAccept} {
			t.Run(fmt.Sprintf("%s five times, max_attempts %d", free.name, maxAttempts), func(t *testing.T) {
				task := lifeOf(t, maxAttempts, free, free, free, free, free, trySuccess)
				if task.State != Succeeded || task.Attempt != 6 || task.Counted != 0 {
					t.Errorf("%v after %d starts, %d counted; want succeeded after 6, none counted", task.State, task.Attempt, task.Counted)
				}
			})
		}
	}
	task := lifeOf(t, 3, tryError, tryDrained, tryTimeout, trySnoozed, tryPreempt, tryLost)
	if task.State != Failed || task.Attempt != 6 || task.Counted != 3 {
		t.Errorf("mixed: %v after %d starts, %d counted", task.State, task.Attempt, task.Counted)
	}
}

// lifeOf takes a task through tries until it has ended or there are no more.
func lifeOf(t *testing.T, maxAttempts int, tries ...tryOf) Task {
	t.Helper()
	task, now := taskIn(Ready), epoch
	task.Attempt, task.Counted, task.Spec.MaxAttempts = 0, 0, maxAttempts
	for _, try := range tries {
		if task.State.Terminal() {
			break
		}
		now = now.Add(24 * time.Hour)
		var err error
		if task, err = task.Claim(task.State, task.Attempt, SessionID{1}, WorkerID{1}, now); err != nil {
			t.Fatal(err)
		}
		h := heldOf(&task)
		if task, err = task.End(try.end(&h), now); err != nil {
			t.Fatal(err)
		}
	}
	return task
}
