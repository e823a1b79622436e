package api

import (
	"iter"
	"math/bits"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	errandv1 "github.com/errandhq/errand/proto/errand/v1"
	"github.com/errandhq/errand/scheduler"
	"github.com/errandhq/errand/scheduler/engine"
)

const (
	protocolVersion = 1
	// assignBytesMax is when a message to a worker is full of assignments. It is far below the 16 MiB that a worker must take,
	// so that even clients that read no more than 4 MiB at once are served.
	assignBytesMax = 2 << 20
)

// responses turns the engine's words into messages, cut by bytes: what answers the worker comes first, then assignments in their
// order, and a goodbye last, since nothing after it is read.
func (s *workerService) responses(w *engine.ToWorker) iter.Seq[*errandv1.WorkResponse] {
	return func(yield func(*errandv1.WorkResponse) bool) {
		m := s.answers(w)
		bytes := 0
		for i := range w.Assign {
			a := s.assignment(&w.Assign[i])
			size := proto.Size(a)
			if bytes += size; bytes > assignBytesMax && len(m.Assign) > 0 {
				if !yield(m) {
					return
				}
				m, bytes = &errandv1.WorkResponse{}, size
			}
			m.Assign = append(m.Assign, a)
		}
		m.Goodbye = w.Goodbye
		yield(m)
	}
}

// answers is a message with everything but assignments and the goodbye.
func (s *workerService) answers(w *engine.ToWorker) *errandv1.WorkResponse {
	m := &errandv1.WorkResponse{Drain: w.Drain}
	if k := w.Marks; k != nil {
		m.Marks = &errandv1.WorkerMarks{Revision: k.Revision, Cordoned: k.Cordoned, Draining: k.Draining, Labels: k.Labels, Removed: k.Removed}
	}
	if r := w.Registered; r != nil {
		m.Registered = &errandv1.Registered{
			Session: r.Session.String(), Lease: durationpb.New(r.Lease), Heartbeat: durationpb.New(r.Heartbeat), Region: s.region,
			Protocol: protocolVersion, MaxMessageBytes: workRequestBytesMax,
		}
	}
	if h := w.HeartbeatAck; h != nil {
		m.HeartbeatAck = &errandv1.HeartbeatAck{Seq: h.Seq, SentAt: h.SentAt, ExclusiveGrant: durationpb.New(h.Grant)}
	}
	acks, tokens := make([]errandv1.Ack, len(w.Acks)), make([]errandv1.Token, len(w.Acks)) // two allocations, not two per ack
	m.Acks = make([]*errandv1.Ack, len(w.Acks))
	for i := range w.Acks {
		a := &w.Acks[i]
		tokens[i].Id, tokens[i].Attempt = a.Token.ID[:], a.Token.Attempt
		if name := s.nameOf(a.Token.ID); name != s.region {
			tokens[i].Region = name
		}
		acks[i].Token, acks[i].Answer = &tokens[i], errandv1.AckAnswer(a.Answer)
		m.Acks[i] = &acks[i]
	}
	for _, stop := range w.Stops {
		m.Stops = append(m.Stops, &errandv1.StopAttempt{Token: s.tokenMessage(stop.Token), Cause: errandv1.StopCause(stop.Cause)})
	}
	return m
}

func (s *workerService) assignment(start *scheduler.Start) *errandv1.Assignment {
	a := &errandv1.Assignment{
		Token:       s.tokenMessage(start.Token),
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
	for _, l := range start.Spec.Limits {
		a.Limits = append(a.Limits, &errandv1.Limit{Name: l.Name, Key: l.Key})
	}
	for rest := uint64(start.Devices); rest != 0; rest &= rest - 1 {
		a.GpuDevices = append(a.GpuDevices, uint32(bits.TrailingZeros64(rest)))
	}
	if start.EffectKey != start.ID {
		a.EffectKey = scheduler.Ref{Region: s.nameOf(start.EffectKey), ID: start.EffectKey}.String()
	}
	return a
}

// tokenMessage shows a token; the region only where it is not the one that the worker was told when it registered.
func (d *deployment) tokenMessage(t scheduler.Token) *errandv1.Token {
	m := &errandv1.Token{Id: t.ID[:], Attempt: t.Attempt}
	if name := d.nameOf(t.ID); name != d.region {
		m.Region = name
	}
	return m
}
