package api

import (
	"context"
	"errors"
	"io"
	"slices"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/errandhq/errand/internal/store"
	"github.com/errandhq/errand/placement"
	errandv1 "github.com/errandhq/errand/proto/errand/v1"
	"github.com/errandhq/errand/proto/errand/v1/errandv1connect"
	"github.com/errandhq/errand/scheduler"
	"github.com/errandhq/errand/scheduler/engine"
)

// workerService serves workers.
type workerService struct {
	errandv1connect.UnimplementedWorkerServiceHandler
	region    string
	scheduler Scheduler
	valid     *validator
}

// Work carries words between a worker and the engine until either side ends the connection.
func (s *workerService) Work(ctx context.Context, conn *connect.BidiStream[errandv1.WorkRequest, errandv1.WorkResponse]) error {
	p, err := allow(ctx, store.ScopeTenant, store.ScopePool)
	if err != nil {
		return err
	}
	first, err := conn.Receive()
	if err != nil {
		return s.readEnded(err)
	}
	words, err := s.firstWords(p, first)
	if err != nil {
		return err
	}

	stream := s.scheduler.OpenStream()
	defer stream.Close()
	stream.Say(words)
	read := make(chan error, 1)
	go func() { // ends when the handler returns: that ends the connection
		read <- s.read(p, words.Register.Worker.ID, conn, stream)
	}()
	for {
		select {
		case out := <-stream.Out():
			if err := conn.Send(s.response(&out)); err != nil {
				return err
			}
		case err := <-read:
			return err
		case <-stream.Closed():
			return outside(errReplaced)
		case <-ctx.Done():
			return outside(ctx.Err())
		}
	}
}

func (s *workerService) firstWords(p Principal, first *errandv1.WorkRequest) (engine.FromWorker, error) {
	if first.GetRegister() == nil {
		return engine.FromWorker{}, outside(errNotRegistered)
	}
	if err := s.valid.check(first.GetRegister()); err != nil {
		return engine.FromWorker{}, err
	}
	return s.fromWorker(p, scheduler.WorkerID(first.GetRegister().GetWorkerInstance()), first)
}

func (s *workerService) read(p Principal, id scheduler.WorkerID, conn *connect.BidiStream[errandv1.WorkRequest, errandv1.WorkResponse],
	stream *engine.Stream,
) error {
	for {
		req, err := conn.Receive()
		if err != nil {
			return s.readEnded(err)
		}
		if r := req.GetRegister(); r != nil {
			if err := s.valid.check(r); err != nil {
				return err
			}
			if scheduler.WorkerID(r.GetWorkerInstance()) != id {
				return invalid("register.worker_instance", "must stay the same on a connection")
			}
		}
		words, err := s.fromWorker(p, id, req)
		if err != nil {
			return err
		}
		stream.Say(words)
	}
}

func (s *workerService) readEnded(err error) error {
	if errors.Is(err, io.EOF) {
		return nil
	}
	return err
}

// fromWorker turns a message into the engine's words. A worker can only speak for itself: the token's worker is the
// connection's, and what it serves is cut to what its credential allows.
func (s *workerService) fromWorker(p Principal, id scheduler.WorkerID, req *errandv1.WorkRequest) (engine.FromWorker, error) {
	words := engine.FromWorker{Drain: req.GetDrain(), Goodbye: req.GetGoodbye()}
	var err error
	if r := req.GetRegister(); r != nil {
		if words.Register, err = registerOf(p, id, r); err != nil {
			return words, err
		}
	}
	if words.Accepted, err = tokensOf(id, req.GetAccepted(), "accepted"); err != nil {
		return words, err
	}
	for _, f := range req.GetFinished() {
		report, err := reportOf(id, f)
		if err != nil {
			return words, err
		}
		words.Reports = append(words.Reports, report)
	}
	if hb := req.GetHeartbeat(); hb != nil {
		words.Heartbeat = &engine.Heartbeat{Seq: hb.GetSeq(), SentAt: hb.GetSentAt()}
	}
	return words, nil
}

func registerOf(p Principal, id scheduler.WorkerID, r *errandv1.Register) (*engine.Register, error) {
	w := placement.Worker{ID: id, Name: r.GetName(), Slots: map[string]int{}}
	if p.Scope == store.ScopeTenant {
		w.Tenant = p.Tenant
	}
	for _, k := range r.GetKinds() {
		if p.Scope == store.ScopePool && !slices.Contains(p.Kinds, k.GetKind()) {
			return nil, invalid("register.kinds", "this credential does not allow the kind "+k.GetKind())
		}
		w.Slots[k.GetKind()] = int(k.GetSlots())
	}
	holds, err := tokensOf(id, r.GetHolds(), "register.holds")
	if err != nil {
		return nil, err
	}
	return &engine.Register{Worker: w, Holds: holds}, nil
}

func tokensOf(id scheduler.WorkerID, tokens []*errandv1.Token, field string) ([]scheduler.Token, error) {
	if len(tokens) == 0 {
		return nil, nil
	}
	out := make([]scheduler.Token, len(tokens))
	for i, t := range tokens {
		var err error
		if out[i], err = tokenOf(id, t, field); err != nil {
			return nil, err
		}
	}
	return out, nil
}

func tokenOf(id scheduler.WorkerID, t *errandv1.Token, field string) (scheduler.Token, error) {
	if len(t.GetId()) != len(scheduler.ID{}) || t.GetAttempt() < 1 {
		return scheduler.Token{}, invalid(field, "a token has 16 bytes of id and an attempt of at least 1")
	}
	return scheduler.Token{ID: scheduler.ID(t.GetId()), Attempt: t.GetAttempt(), Worker: id}, nil
}

func reportOf(id scheduler.WorkerID, f *errandv1.Finished) (scheduler.Report, error) {
	token, err := tokenOf(id, f.GetToken(), "finished.token")
	if err != nil {
		return scheduler.Report{}, err
	}
	r := scheduler.Report{Token: token}
	switch o := f.GetOutcome().(type) {
	case *errandv1.Finished_Succeeded:
		r.Outcome, r.Result = scheduler.OutcomeSucceeded, o.Succeeded.GetData()
		r.ResultType = scheduler.CleanText(o.Succeeded.GetContentType(), 255)
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
	default:
		return r, invalid("finished.outcome", "must be set")
	}
	return r, nil
}

// response turns the engine's words into a message.
func (s *workerService) response(w *engine.ToWorker) *errandv1.WorkResponse {
	m := &errandv1.WorkResponse{Drain: w.Drain, Goodbye: w.Goodbye}
	if r := w.Registered; r != nil {
		m.Registered = &errandv1.Registered{
			Session: r.Session.String(), Lease: durationpb.New(r.Lease), Heartbeat: durationpb.New(r.Heartbeat), Region: s.region,
		}
	}
	if h := w.HeartbeatAck; h != nil {
		m.HeartbeatAck = &errandv1.HeartbeatAck{Seq: h.Seq, SentAt: h.SentAt, ExclusiveGrant: durationpb.New(h.Grant)}
	}
	if len(w.Assign) > 0 {
		m.Assign = make([]*errandv1.Assignment, len(w.Assign))
		for i := range w.Assign {
			m.Assign[i] = s.assignment(&w.Assign[i])
		}
	}
	if len(w.Acks) > 0 {
		m.Acks = make([]*errandv1.Ack, len(w.Acks))
		for i, a := range w.Acks {
			m.Acks[i] = &errandv1.Ack{Token: tokenMessage(a.Token), Answer: errandv1.AckAnswer(a.Answer)}
		}
	}
	for _, stop := range w.Stops {
		m.Stops = append(m.Stops, &errandv1.StopAttempt{Token: tokenMessage(stop.Token), Cause: errandv1.StopCause(stop.Cause)})
	}
	return m
}

func (s *workerService) assignment(start *scheduler.Start) *errandv1.Assignment {
	a := &errandv1.Assignment{
		Token:       tokenMessage(start.Token),
		Kind:        start.Kind,
		Tenant:      start.Tenant,
		Payload:     start.Payload,
		ContentType: start.ContentType,
		Timeout:     durationpb.New(start.Spec.Timeout()),
		Exclusive:   start.Spec.Exclusive,
		TraceParent: start.TraceParent,
		Counted:     int32(start.Counted),
		MaxAttempts: int32(start.Spec.Attempts()),
		Labels:      start.Spec.Labels,
	}
	if start.EffectKey != start.ID {
		a.EffectKey = scheduler.Ref{Region: s.region, ID: start.EffectKey}.String()
	}
	return a
}

func tokenMessage(t scheduler.Token) *errandv1.Token {
	return &errandv1.Token{Id: t.ID[:], Attempt: t.Attempt}
}
