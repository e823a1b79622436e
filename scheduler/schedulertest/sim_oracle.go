package schedulertest

import (
	"bytes"
	"fmt"
	"slices"

	"github.com/errandhq/errand/scheduler"
	"github.com/errandhq/errand/scheduler/engine"
)

// oracle watches a history and says what must never happen. It judges by what it sees itself (rows as they change, handlers as
// they start and report, what submitters are told), never by what an engine thinks.
type oracle struct {
	s          *sim
	violations []string
	started    map[scheduler.Token]bool
	succeeded  map[scheduler.Token]bool // handlers that have reported success
	pressed    map[scheduler.Token]bool // and those that have reported backpressure
	ends       map[scheduler.Ref]int
	released   map[scheduler.Ref]int       // children that ceased to wait for their parents
	notStored  map[string]bool             // payloads of submissions that were told of another task in their stead
	pushes     int                         // attempts that met with backpressure
	open       int                         // rows that have not ended
	leftUnsaid map[scheduler.WorkerID]bool // workers that drained, and could not say everything before they had to go
	limited    map[limitUse]int            // running rows that carry a limit
}

// limitUse names the rows that share a limit's slots.
type limitUse struct {
	tenant string
	limit  scheduler.LimitKey
	region string
}

// Some tasks of a history carry a limit with a few slots, as many as there are instances or not.
const (
	simLimit      = "scarce"
	simLimitSlots = 3
)

// carries counts running rows of a limit; a slot is a running row, whoever started it.
func (o *oracle) carries(t *scheduler.Task, n int) {
	if o.s.memory.homeOf(t.Region, t.Session) != t.Region {
		return // run by another region's instance, within the caps there
	}
	for _, l := range t.Spec.Limits {
		use := limitUse{t.Tenant, l, t.Region}
		o.s.tracef("  %s carries %s %v by session %s: %+d to %d", short(t.ID), t.Tenant, l, short(t.Session), n, o.limited[use]+n)
		if o.limited[use] += n; o.limited[use] > simLimitSlots {
			o.failf("limit %v has %d running rows, its cap is %d: %s", use, o.limited[use], simLimitSlots, t.Ref)
		}
	}
}

func newOracle(s *sim) *oracle {
	return &oracle{
		s: s, started: map[scheduler.Token]bool{}, succeeded: map[scheduler.Token]bool{}, pressed: map[scheduler.Token]bool{}, ends: map[scheduler.Ref]int{},
		leftUnsaid: map[scheduler.WorkerID]bool{}, notStored: map[string]bool{}, limited: map[limitUse]int{}, released: map[scheduler.Ref]int{},
	}
}

func (o *oracle) failf(format string, args ...any) {
	text := fmt.Sprintf("at %v: ", o.s.now) + fmt.Sprintf(format, args...)
	o.s.tracef("VIOLATION %s", text)
	o.violations = append(o.violations, text)
}

// changed sees every change of a row.
func (o *oracle) changed(before, after *scheduler.Task) {
	if before == nil {
		o.open++
		o.unique(after)
		if o.notStored[string(after.Payload)] {
			o.failf("P1: %s is stored, and its submitter was told of another task", after.Ref)
		}
		o.s.tracef("  %s is stored %s", short(after.ID), after.State)
		if after.State == scheduler.Running {
			o.becameRunning(&scheduler.Task{State: scheduler.Ready}, after)
		}
		return
	}
	o.s.tracef("  %s/%d %s -> %s/%d counted %d", short(before.ID), before.Attempt, before.State, after.State, after.Attempt, after.Counted)
	switch {
	case before.State.Terminal() && sameEnd(before, after): // a parent: when its children are looked at may change
		return
	case before.State.Terminal():
		o.failf("P4: %s had ended as %s and was changed to %s", before.Ref, before.State, after.State)
		return
	case before.State == scheduler.Running && after.State == scheduler.Running:
		o.staysRunning(before, after)
	case after.State == scheduler.Running:
		o.becameRunning(before, after)
	case before.State == scheduler.Running:
		o.leftRunning(before, after)
	case before.State == scheduler.Blocked && after.State != scheduler.Blocked:
		o.leftBlocked(after)
	}
	if after.State.Terminal() {
		o.ended(before, after)
	}
	_, asked := o.s.running.(scheduler.Change)
	if after.State == scheduler.Ready && before.State == scheduler.Scheduled && before.WakeAt.After(o.s.memory.now()) && !asked {
		o.failf("%s was made ready before its time %v", after.Ref, before.WakeAt)
	}
	if after.Counted > after.Spec.Attempts() {
		o.failf("%s: %d attempts counted, the most is %d", after.Ref, after.Counted, after.Spec.Attempts())
	}
}

// unique checks that no other open task has the unique key of one that is stored.
func (o *oracle) unique(t *scheduler.Task) {
	for _, other := range o.s.memory.rows {
		if t.UniqueKey != "" && other.UniqueKey == t.UniqueKey && other.Tenant == t.Tenant && other.ID != t.ID && other.State.Open() {
			o.failf("%s and %s are open with the unique key %q", t.Ref, other.Ref, t.UniqueKey)
		}
	}
}

// becameRunning checks a start by the store's clock, at the moment of the write.
func (o *oracle) becameRunning(before, after *scheduler.Task) {
	o.s.tokens++
	o.carries(after, 1)
	now := o.s.memory.now()
	switch {
	case after.Attempt != before.Attempt+1:
		o.failf("P4: %s went from attempt %d to %d", after.Ref, before.Attempt, after.Attempt)
	case before.CancelRequested:
		o.failf("%s was started although it shall be canceled", after.Ref)
	case !after.StartBy.IsZero() && !after.StartBy.After(now):
		o.failf("%s was started at %v, useless since %v", after.Ref, now, after.StartBy)
	case before.State == scheduler.Scheduled && before.WakeAt.After(now):
		o.failf("%s was started at %v, before its time %v", after.Ref, now, before.WakeAt)
	case !o.s.memory.sessionOpen(after.Region, after.Session):
		o.failf("P4: %s was started by session %s, which had ended", after.Ref, after.Session)
	case !o.seen(before):
		o.failf("P4: %s was started by a claim that had not seen it as it was: %s, attempt %d", after.Ref, before.State, before.Attempt)
	}
}

// seen tells whether a claim knew the row that it took; an eager start takes one that was not there.
func (o *oracle) seen(before *scheduler.Task) bool {
	b, isClaim := o.s.running.(scheduler.ClaimBatch)
	return !isClaim || slices.ContainsFunc(b.Claims, func(c scheduler.Claim) bool {
		return c.ID == before.ID && c.Seen == before.Attempt && c.From == before.State
	})
}

// staysRunning allows a take-over by a live session and a wish to cancel.
func (o *oracle) staysRunning(before, after *scheduler.Task) {
	o.carries(before, -1)
	o.carries(after, 1)
	switch {
	case after.Token() != before.Token():
		o.failf("P4: running %s was given to %d at %s", tokenText([]scheduler.Token{before.Token()}), after.Attempt, short(after.Worker))
	case after.Session == before.Session:
	case !o.s.memory.sessionOpen(after.Region, after.Session):
		o.failf("P4: %s was taken over by session %s, which had ended", after.Ref, after.Session)
	default:
		if b, ok := o.s.running.(scheduler.AttachBatch); !ok || !slices.Contains(b.Tokens, before.Token()) {
			o.failf("P4: %s was taken over without its token", after.Ref)
		}
	}
}

// leftRunning checks that the attempt was ended in the name of its token, and by its own session where a scheduler did it.
func (o *oracle) leftRunning(before, after *scheduler.Task) {
	o.carries(before, -1)
	b, _ := o.s.running.(scheduler.EndBatch)
	for i := range b.Endings {
		e := &b.Endings[i]
		if e.Token == before.Token() && (e.Session.IsZero() || e.Session == before.Session) {
			o.pushedBack(before, after, e)
			return
		}
	}
	o.failf("P4: attempt %d of %s at %s under session %s was ended by somebody else", before.Attempt, before.Ref, short(before.Worker), short(before.Session))
}

// pushedBack checks what becomes of a task that met with backpressure: it waits, with the due it had, and nothing has counted.
func (o *oracle) pushedBack(before, after *scheduler.Task, e *scheduler.Ending) {
	if e.Failure == nil || e.Failure.Reason != scheduler.ReasonBackpressure {
		return
	}
	o.pushes++
	switch {
	case !o.pressed[before.Token()]:
		o.failf("%s was pushed back, and its handler did not say so", resultOf(before.Token()))
	case after.Counted != before.Counted || after.Suspect:
		o.failf("%s met with backpressure, and %d attempts count in place of %d", after.Ref, after.Counted, before.Counted)
	case after.State == scheduler.Canceled && before.CancelRequested:
	case !after.State.Waiting() || !after.Due.Equal(before.Due):
		o.failf("%s met with backpressure: it is %s and due %v in place of %v", after.Ref, after.State, after.Due, before.Due)
	}
}

// ended checks an end when it is written down.
func (o *oracle) ended(before, after *scheduler.Task) {
	o.open--
	if o.ends[after.Ref]++; o.ends[after.Ref] > 1 {
		o.failf("P2: %s ended %d times", after.Ref, o.ends[after.Ref])
	}
	if after.State == scheduler.Expired && after.StartBy.After(o.s.memory.now()) {
		o.failf("%s expired before %v", after.Ref, after.StartBy)
	}
	if after.State != scheduler.Succeeded {
		return
	}
	token := before.Token()
	if !o.succeeded[token] || !bytes.Equal(after.Result, []byte(resultOf(token))) {
		o.failf("P4: %s succeeded under %s with the result of %q", after.Ref, resultOf(token), after.Result)
	}
}

// starts sees a handler begin.
func (o *oracle) starts(w *worker, st *scheduler.Start) {
	if o.started[st.Token] {
		o.failf("P5: %s starts %s again", w.name, resultOf(st.Token))
	}
	o.started[st.Token] = true
	if t, _ := o.s.memory.Task(refOf(st.ID)); !bytes.Equal(t.Payload, st.Payload) {
		o.failf("%s got the payload %.20q of %s, which has %.20q", w.name, st.Payload, t.Ref, t.Payload)
	}
	if st.Spec.Exclusive {
		o.alone(w, st.Token)
	}
	// Where take-overs cannot be written for long, a worker gets work before it is known what it holds.
	const slow = StatementFaults | StoreOutages | StoreCuts
	if n := w.runs(st.Kind); n >= w.self.Slots[st.Kind] && o.s.faults&slow == 0 {
		o.failf("%s runs %d of %s already, and gets another", w.name, n, st.Kind)
	}
}

// alone checks that nobody else runs an exclusive task at this moment. Who is paused runs nothing.
func (o *oracle) alone(w *worker, token scheduler.Token) {
	for _, other := range o.s.workers {
		for t := range other.attempts {
			if t.ID == token.ID && t != token && !other.frozen {
				o.failf("exclusive %s runs at %s as attempt %d and at %s as attempt %d", t.ID, w.name, token.Attempt, other.name, t.Attempt)
			}
		}
	}
}

// reports sees a handler's own word on its end.
func (o *oracle) reports(r *scheduler.Report) {
	switch r.Outcome {
	case scheduler.OutcomeSucceeded:
		o.succeeded[r.Token] = true
	case scheduler.OutcomeBackpressure:
		o.pressed[r.Token] = true
	default:
	}
}

// acknowledged checks what a worker is told of its report.
func (o *oracle) acknowledged(w *worker, ack engine.Ack) {
	if ack.Answer != engine.AckRecorded {
		return
	}
	t, _ := o.s.memory.Task(refOf(ack.ID))
	if t.Token() == ack.Token && t.State == scheduler.Running {
		o.failf("%s is told that the end of %s is recorded, and it runs", w.name, resultOf(ack.Token))
	}
}

// accepted checks what a submitter is told (P1).
func (o *oracle) accepted(sub *submission, outcome engine.SubmitOutcome) {
	t, stands := o.s.memory.Task(outcome.Ref)
	switch {
	case !stands:
		o.failf("P1: %s was accepted, and is not there", outcome.Ref)
	case !outcome.Existed && !bytes.Equal(t.Payload, sub.task.Payload):
		o.failf("P1: %q was accepted as %s, which is %q", sub.task.Payload, outcome.Ref, t.Payload)
	case outcome.Existed && sub.task.UniqueKey != "" && t.UniqueKey == sub.task.UniqueKey && t.Tenant == sub.task.Tenant: // joined
	case t.IdempotencyKey != sub.task.IdempotencyKey:
		o.failf("P5: key %q was accepted as %s with key %q", sub.task.IdempotencyKey, outcome.Ref, t.IdempotencyKey)
	}
}

// told checks what waiters are told.
func (o *oracle) told(in *instance, ids []scheduler.ID) {
	for _, id := range ids {
		if t, _ := o.s.memory.Task(refOf(id)); !t.State.Terminal() {
			o.failf("%s tells that %s has ended, and it is %s", in.name, id, t.State)
		}
	}
}
