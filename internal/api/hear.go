package api

import (
	"bytes"
	"crypto/sha256"
	"slices"
	"strconv"

	"github.com/errandhq/errand/internal/store"
	"github.com/errandhq/errand/placement"
	errandv1 "github.com/errandhq/errand/proto/errand/v1"
	"github.com/errandhq/errand/scheduler"
	"github.com/errandhq/errand/scheduler/engine"
)

// What a worker says of ends is never refused for what it contains: a refusal would make finished work look unfinished, and the
// worker would say it again for ever. Only a message that breaks the protocol ends the connection.

// reasonUnserved ends an attempt whose outcome this release does not serve.
const reasonUnserved = scheduler.Reason("not_yet_available")

// workerID is how the scheduler knows a worker instance. A tenant's worker gets a name that only this tenant's workers can have:
// the instance of a pool worker shows in the tasks that it runs, and must be of no use to whoever reads it there.
func workerID(who Principal, instance []byte) scheduler.WorkerID {
	if who.Scope != store.ScopeTenant {
		return scheduler.WorkerID(instance)
	}
	sum := sha256.Sum256(append([]byte("tenant\x00"+who.Tenant+"\x00"), instance...))
	return scheduler.WorkerID(sum[:len(scheduler.WorkerID{})])
}

// words turns a message into the engine's words. A worker can only speak for itself: the token's worker is the connection's, and
// what it serves is cut to what its credential allows.
func (l *listener) words(req *errandv1.WorkRequest) (engine.FromWorker, error) {
	words := engine.FromWorker{Drain: req.GetDrain(), Goodbye: req.GetGoodbye()}
	var err error
	if r := req.GetRegister(); r != nil {
		if words.Register, err = l.registerOf(r); err != nil {
			return words, err
		}
	}
	if words.Accepted, err = l.tokensOf(req.GetAccepted(), "accepted"); err != nil {
		return words, err
	}
	words.Reports = make([]scheduler.Report, 0, len(req.GetFinished()))
	for i, f := range req.GetFinished() {
		token, fault := l.tokenOf(f.GetToken())
		if fault != nil {
			return words, fault("finished[" + strconv.Itoa(i) + "].token")
		}
		words.Reports = append(words.Reports, reportOf(token, f))
	}
	l.owed.Add(int64(len(words.Reports)))
	if hb := req.GetHeartbeat(); hb != nil {
		words.Heartbeat = &engine.Heartbeat{Seq: hb.GetSeq(), SentAt: hb.GetSentAt()}
	}
	if words.Goodbye {
		l.goodbye.Store(true)
	}
	return words, nil
}

func (l *listener) registerOf(r *errandv1.Register) (*engine.Register, error) {
	const prefix = "register."
	if err := l.valid.check(r, prefix); err != nil {
		return nil, err
	}
	if !bytes.Equal(r.GetWorkerInstance(), l.given) {
		return nil, invalid(prefix+"worker_instance", "must stay the same on a connection")
	}
	l.id = workerID(l.who, l.given)
	w := placement.Worker{ID: l.id, Name: r.GetName(), Slots: map[string]int{}, Zone: r.GetZone(), Labels: r.GetLabels()}
	if l.who.Scope == store.ScopeTenant {
		w.Tenant = l.who.Tenant
	}
	for i, k := range r.GetKinds() {
		field := prefix + "kinds[" + strconv.Itoa(i) + "].kind"
		if l.who.Scope == store.ScopePool && !slices.Contains(l.who.Kinds, k.GetKind()) {
			return nil, invalid(field, "this credential does not allow the kind "+k.GetKind())
		}
		if _, twice := w.Slots[k.GetKind()]; twice {
			return nil, invalid(field, "is named twice")
		}
		w.Slots[k.GetKind()] = int(k.GetSlots())
	}
	holds, err := l.tokensOf(r.GetHolds(), prefix+"holds")
	if err != nil {
		return nil, err
	}
	if w.Capacity, err = capacityOf(r.GetCapacity(), prefix+"capacity."); err != nil {
		return nil, err
	}
	return &engine.Register{Worker: w, Version: r.GetVersion(), Holds: holds, Marks: marksOf(r.GetMarks())}, nil
}

// capacityOf is nil when the worker says nothing of it.
func capacityOf(c *errandv1.Requirements, prefix string) (*placement.Resources, error) {
	if c == nil {
		return nil, nil //nolint:nilnil // nothing is said
	}
	if c.GetGpuMilli() != 0 {
		return nil, invalid(prefix+"gpu_milli", "a worker has whole devices: gpus says how many")
	}
	return &placement.Resources{
		CPUMilli: int64(c.GetCpuMilli()), MemoryMiB: int64(c.GetMemoryMib()), GPUs: int64(c.GetGpus()), Slots: int64(c.GetSlots()),
	}, nil
}

func marksOf(m *errandv1.WorkerMarks) engine.Marks {
	return engine.Marks{
		Revision: m.GetRevision(), Cordoned: m.GetCordoned(), Draining: m.GetDraining(), Labels: m.GetLabels(), Removed: m.GetRemoved(),
	}
}

func (l *listener) tokensOf(tokens []*errandv1.Token, field string) ([]scheduler.Token, error) {
	if len(tokens) == 0 {
		return nil, nil
	}
	out := make([]scheduler.Token, len(tokens))
	for i, t := range tokens {
		var fault func(field string) error
		if out[i], fault = l.tokenOf(t); fault != nil {
			return nil, fault(field + "[" + strconv.Itoa(i) + "]")
		}
	}
	return out, nil
}

// tokenOf reads a token, or says what is wrong with it, once it is told the field's name: names cost more than tokens.
func (l *listener) tokenOf(t *errandv1.Token) (_ scheduler.Token, fault func(field string) error) {
	if len(t.GetId()) != len(scheduler.ID{}) || t.GetAttempt() < 1 {
		return scheduler.Token{}, func(field string) error {
			return invalid(field, "a token has 16 bytes of id and an attempt of at least 1")
		}
	}
	if r := t.GetRegion(); r != "" && r != l.nameOf(scheduler.ID(t.GetId())) { // a region that this instance has not heard of yet
		return scheduler.Token{}, func(field string) error { return later(field + ".region") }
	}
	return scheduler.Token{ID: scheduler.ID(t.GetId()), Attempt: t.GetAttempt(), Worker: l.id}, nil
}

func reportOf(token scheduler.Token, f *errandv1.Finished) scheduler.Report {
	r := scheduler.Report{Token: token}
	switch o := f.GetOutcome().(type) {
	case *errandv1.Finished_Succeeded:
		r.Outcome, r.Result = scheduler.OutcomeSucceeded, o.Succeeded.GetData()
		r.ResultType = scheduler.CleanText(o.Succeeded.GetContentType(), contentTypeMax)
	case *errandv1.Finished_Failed:
		r.Outcome = scheduler.OutcomeFailed
		r.Failure = scheduler.Failure{Reason: scheduler.Reason(o.Failed.GetReason()), Message: o.Failed.GetMessage()}
		r.NonRetryable, r.RetryAfter = o.Failed.GetNonRetryable(), o.Failed.GetRetryAfter().AsDuration()
	case *errandv1.Finished_Stopped:
		r.Outcome = scheduler.OutcomeStopped
	case *errandv1.Finished_HandedBack:
		r.Outcome = scheduler.OutcomeHandedBack
		r.Failure.Reason = scheduler.Reason(o.HandedBack.GetReason())
	case *errandv1.Finished_Snoozed:
		r.Outcome, r.Delay = scheduler.OutcomeSnoozed, o.Snoozed.GetDelay().AsDuration()
	case *errandv1.Finished_Backpressure:
		r.Outcome, r.RetryAfter = scheduler.OutcomeBackpressure, o.Backpressure.GetRetryAfter().AsDuration()
		r.Limit = scheduler.CleanText(o.Backpressure.GetLimit(), scheduler.LimitNameMax)
	case *errandv1.Finished_CompletesLater:
		// Running it again would only end the same way, and do its effects twice.
		r.Outcome, r.NonRetryable, r.Failure = scheduler.OutcomeFailed, true, unserved("completes_later")
	default:
		r.Outcome, r.NonRetryable, r.Failure = scheduler.OutcomeFailed, true, unserved("an outcome that this scheduler does not know")
	}
	return r
}

const contentTypeMax = 255

func unserved(what string) scheduler.Failure {
	return scheduler.Failure{
		Reason: reasonUnserved, Message: "the handler answered " + what + ", which is not available in this release",
	}
}
