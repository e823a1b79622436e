package schedulertest

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/errandhq/errand/scheduler"
)

// handler is one attempt that a worker runs.
type handler struct {
	w         *worker
	token     scheduler.Token
	kind      string
	exclusive bool
	lost      bool // nothing it says counts
	told      bool // to stop
	stubborn  bool // it does not care
	done      bool
}

// run plans how the handler will end by itself.
func (h *handler) run(st *scheduler.Start) {
	s := h.w.s
	lasts := s.between(time.Millisecond, 800*time.Millisecond)
	if s.chance(0.3) {
		lasts = s.between(time.Second, 12*time.Second)
	}
	r := scheduler.Report{Token: h.token, Outcome: scheduler.OutcomeSucceeded, Result: []byte(resultOf(h.token))}
	if s.faults&HandlerFaults != 0 && !s.healed {
		h.stubborn = !h.exclusive && s.chance(0.2)
		switch s.rand.IntN(10) {
		case 0, 1:
			r = scheduler.Report{Token: h.token, Outcome: scheduler.OutcomeFailed, NonRetryable: s.chance(0.2)}
		case 2:
			r = scheduler.Report{Token: h.token, Outcome: scheduler.OutcomeSnoozed, Delay: s.upTo(4 * time.Second)}
		case 3:
			lasts = s.between(3*time.Second, 20*time.Second)
		}
	}
	if limits := st.Spec.Limits; len(limits) > 0 && s.faults&HandlerFaults != 0 && !s.healed && s.chance(0.3) {
		r = scheduler.Report{Token: h.token, Outcome: scheduler.OutcomeBackpressure, Limit: pick(s, limits[0].Name, limits[0].Name, "nobody's")}
		if s.chance(0.5) {
			r.RetryAfter = s.upTo(4 * time.Second)
		}
	}
	s.tracef("%s starts %s for %v", h.w.name, tokenText([]scheduler.Token{st.Token}), lasts)
	h.w.after(lasts, func() { h.ends(&r) })
}

// resultOf is what an attempt returns: the token under which it ran.
func resultOf(t scheduler.Token) string { return fmt.Sprintf("%s/%d at %s", t.ID, t.Attempt, t.Worker) }

// stop ends the handler's context. A good one obeys soon, an exclusive one within the time it is given, a bad one does not.
func (h *handler) stop(cause scheduler.StopCause) {
	h.lost = h.lost || cause == scheduler.StopLost
	if h.told && !h.lost {
		return
	}
	h.told = true
	s := h.w.s
	within := s.upTo(s.timing.ExclusiveStop)
	switch {
	case h.stubborn && cause != scheduler.StopLost:
		return
	case !h.exclusive && s.faults&HandlerFaults != 0 && s.chance(0.1):
		within = s.between(8*time.Second, 14*time.Second) // about as long as it is waited for
	}
	s.tracef("%s stops %s: %s, in %v", h.w.name, tokenText([]scheduler.Token{h.token}), cause, within)
	h.w.after(within, h.stopped)
}

// giveUp ends the handler because its worker drains.
func (h *handler) giveUp() {
	h.ends(&scheduler.Report{Token: h.token, Outcome: scheduler.OutcomeHandedBack, Failure: scheduler.Failure{Reason: scheduler.ReasonDrained}})
}

// expire ends the handler's context because nobody can say any more that no other attempt starts. It has to return in time.
func (h *handler) expire() {
	h.told = true
	h.w.after(h.w.s.upTo(h.w.s.timing.ExclusiveStop), h.stopped)
}

// stopped is what a handler says that has ended because it was told to.
func (h *handler) stopped() {
	h.ends(&scheduler.Report{Token: h.token, Outcome: scheduler.OutcomeStopped})
}

func (h *handler) ends(r *scheduler.Report) {
	if h.done {
		return
	}
	h.done = true
	delete(h.w.attempts, h.token)
	if h.lost {
		return
	}
	h.w.s.oracle.reports(r)
	h.w.end(*r)
}

func compareTokens(a, b scheduler.Token) int {
	return cmp.Or(a.ID.Compare(b.ID), cmp.Compare(a.Attempt, b.Attempt), a.Worker.Compare(b.Worker))
}

func sortTokens(tokens []scheduler.Token) { slices.SortFunc(tokens, compareTokens) }

func tokenText(tokens []scheduler.Token) string {
	texts := make([]string, len(tokens))
	for i, t := range tokens {
		texts[i] = fmt.Sprintf("%s/%d", short(t.ID), t.Attempt)
	}
	return "[" + strings.Join(texts, " ") + "]"
}
