package api

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/errandhq/errand/internal/store"
	errandv1 "github.com/errandhq/errand/proto/errand/v1"
	"github.com/errandhq/errand/scheduler"
	"github.com/errandhq/errand/scheduler/engine"
)

// Bounds of polling.
const (
	pollWaitDefault = 20 * time.Second
	pollWaitMax     = 60 * time.Second // as the rule in the .proto file says
	pollCallMax     = pollWaitMax + 5*time.Second
	pollBeat        = time.Second     // how often a call that waits says that its worker lives, and looks at its credential
	reportWait      = 8 * time.Second // for the answers to a report; the worker sends it again when they do not come
	// exclusivePause puts an exclusive task off that came to a worker without heartbeats, which nobody could stop in time.
	exclusivePause = time.Second
)

// Poll brings work to a worker that cannot keep a stream. The engine sees a worker like every other, connected while calls wait; what
// was given out is the worker's by its naming it in one of its next calls.
func (s *workerService) Poll(ctx context.Context, req *errandv1.PollRequest) (*errandv1.PollResponse, error) {
	who := principal(ctx)
	ears := &listener{workerService: s, who: who, given: req.GetRegister().GetWorkerInstance()}
	register, err := ears.registerOf(req.GetRegister())
	if err != nil {
		return nil, err
	}
	most, wait := max(int(req.GetMaxAssignments()), 1), pollWaitDefault
	if req.GetWait() != nil {
		wait = req.GetWait().AsDuration()
	}
	for kind, slots := range register.Worker.Slots { // no more than this call can bring
		register.Worker.Slots[kind] = min(slots, len(register.Holds)+most)
	}
	p, err := s.polls.enter(s.scheduler, register.Worker.ID)
	if err != nil {
		return nil, err
	}
	defer p.leave(false)
	turn := p.begin(register, beatOf(req.GetHeartbeat()))
	got, err := p.await(ctx, wait, turn, func(w *engine.ToWorker) bool {
		return len(w.Assign) > 0 || len(w.Stops) > 0 || w.Drain || (w.Marks != nil && w.Marks.Revision > p.told)
	})
	if err != nil {
		return nil, err
	}
	assign := p.give(&got, most, req.GetHeartbeat() != nil)
	return s.pollResponse(&got, assign, req.GetHeartbeat()), nil
}

func (s *workerService) pollResponse(got *engine.ToWorker, assign []scheduler.Start, beat *errandv1.Heartbeat) *errandv1.PollResponse {
	m := s.answers(got)
	resp := &errandv1.PollResponse{Registered: m.GetRegistered(), Stops: m.GetStops(), Drain: m.GetDrain(), Marks: m.GetMarks()}
	if beat != nil && m.GetHeartbeatAck().GetSeq() == beat.GetSeq() {
		resp.HeartbeatAck = m.GetHeartbeatAck()
	}
	for i := range assign {
		a := s.assignment(&assign[i])
		a.Token.Region = s.nameOf(assign[i].ID) // the next call may reach another region's scheduler
		resp.Assign = append(resp.Assign, a)
	}
	return resp
}

// Report carries what a polling worker has to say and waits until it is recorded. It may reach another scheduler than the polls did:
// then the attempts are taken over first.
func (s *workerService) Report(ctx context.Context, req *errandv1.ReportRequest) (*errandv1.ReportResponse, error) {
	if len(req.GetCheckpoints()) > 0 {
		return nil, later("checkpoints")
	}
	ears := &listener{workerService: s, who: principal(ctx), given: req.GetWorkerInstance()}
	ears.id = workerID(ears.who, ears.given)
	words, err := ears.words(&errandv1.WorkRequest{Accepted: req.GetAccepted(), Finished: req.GetFinished()})
	if err != nil {
		return nil, err
	}
	words.Heartbeat = beatOf(req.GetHeartbeat())
	p, err := s.polls.enter(s.scheduler, ears.id)
	if err != nil {
		return nil, err
	}
	defer p.leave(p.speak(ears.who, words))
	got, err := p.await(ctx, reportWait, 0, func(*engine.ToWorker) bool { return p.answered(words.Reports) })
	if err != nil {
		return nil, err
	}
	resp := &errandv1.ReportResponse{Stops: s.answers(&got).GetStops()}
	for _, r := range words.Reports {
		answer, here := p.takeAnswer(r.Token)
		if !here {
			return nil, outside(scheduler.ErrUnavailable) // not recorded in time: said again, it is answered
		}
		resp.Acks = append(resp.Acks, &errandv1.Ack{Token: s.tokenMessage(r.Token), Answer: errandv1.AckAnswer(answer)})
	}
	if beat := req.GetHeartbeat(); beat != nil && got.HeartbeatAck != nil && got.HeartbeatAck.Seq == beat.GetSeq() {
		resp.HeartbeatAck = s.answers(&engine.ToWorker{HeartbeatAck: got.HeartbeatAck}).GetHeartbeatAck()
	}
	return resp, nil
}

// beatOf is a heartbeat for the engine, which gives no work without one.
func beatOf(hb *errandv1.Heartbeat) *engine.Heartbeat {
	return &engine.Heartbeat{Seq: hb.GetSeq(), SentAt: hb.GetSentAt()}
}

// give hands out at most so many assignments. The others go back at once, and so does, for a while, an exclusive one when its worker
// could not be told how long it may run.
func (p *poller) give(got *engine.ToWorker, most int, beats bool) []scheduler.Start {
	p.mu.Lock()
	defer p.mu.Unlock()
	var back []scheduler.Report
	var given []scheduler.Start
	for i := range got.Assign {
		a := &got.Assign[i]
		switch {
		case a.Spec.Exclusive && !beats:
			back = append(back, scheduler.Report{Token: a.Token, Outcome: scheduler.OutcomeSnoozed, Delay: exclusivePause})
		case len(given) == most:
			back = append(back, scheduler.Report{Token: a.Token, Outcome: scheduler.OutcomeHandedBack})
		default:
			given = append(given, *a)
			p.holds[a.Token] = time.Now()
		}
	}
	if len(back) > 0 {
		p.conn.Say(engine.FromWorker{Reports: back})
	}
	return given
}

// speak says the words of a report; on a stream that is new the worker says first what it holds. It tells whether this scheduler knows
// the worker from reports only: then it is not kept as one that will come back here.
func (p *poller) speak(who Principal, words engine.FromWorker) (stranger bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	defer func() { p.conn.Say(words) }()
	if p.said {
		return p.register == nil
	}
	r := engine.Register{}
	r.Worker.ID = p.id
	if who.Scope == store.ScopeTenant {
		r.Worker.Tenant = who.Tenant
	}
	if p.register != nil {
		r.Worker, r.Version, r.Marks = p.register.Worker, p.register.Version, p.register.Marks
	}
	for token := range p.holds {
		r.Holds = append(r.Holds, token)
	}
	for _, report := range words.Reports {
		r.Holds = append(r.Holds, report.Token)
	}
	r.Holds = append(r.Holds, words.Accepted...)
	sortTokens(r.Holds)
	r.Holds = slices.Compact(r.Holds)
	words.Register, p.said = &r, true
	return p.register == nil
}

func sortTokens(tokens []scheduler.Token) {
	slices.SortFunc(tokens, func(a, b scheduler.Token) int { return cmp.Or(a.ID.Compare(b.ID), cmp.Compare(a.Attempt, b.Attempt)) })
}
