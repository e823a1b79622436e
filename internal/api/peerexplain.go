package api

import (
	"context"
	"math"

	"github.com/errandhq/errand/placement"
	peerv1 "github.com/errandhq/errand/proto/errand/peer/v1"
	"github.com/errandhq/errand/scheduler"
)

// Explain answers another instance what keeps a task from running here.
func (s *peerService) Explain(ctx context.Context, req *peerv1.ExplainRequest) (*peerv1.ExplainResponse, error) {
	row, known := lentRow(req.GetRow())
	if !known {
		return nil, invalid("row", "says more than this version understands")
	}
	var token scheduler.Token
	if worker := req.GetWorker(); len(worker) > 0 {
		token = scheduler.Token{ID: row.ID, Attempt: row.Attempt, Worker: scheduler.WorkerID(worker)}
	}
	h, err := s.scheduler.Explain(ctx, row, token)
	if err != nil {
		return nil, err
	}
	return holdMessage(&h), nil
}

// Explain asks a peer what keeps a task from running there.
func (p *Peers) Explain(ctx context.Context, peer scheduler.Session, t *scheduler.Task) (*scheduler.Hold, error) {
	row := t.WaitingRow()
	req := &peerv1.ExplainRequest{Row: lentMessage(&row)}
	if t.State == scheduler.Running {
		req.Worker = t.Worker[:]
	}
	c, err := p.at(peer)
	if err != nil {
		return nil, err
	}
	resp, err := c.Explain(ctx, req)
	if err != nil {
		return nil, err
	}
	return holdOf(resp), nil
}

func holdMessage(h *scheduler.Hold) *peerv1.ExplainResponse {
	m := &peerv1.ExplainResponse{
		Here: h.Here, Gate: string(h.Gate), Gated: h.Gated, Ease: h.Ease, Refusal: int32(h.Refusal), Ahead: int32(min(h.Ahead, math.MaxInt32)),
		Start: stamp(h.Start), Change: int32(h.Change), Suggestion: h.Suggestion, Place: h.Place,
	}
	for _, w := range h.Closest {
		m.Closest = append(m.Closest, &peerv1.CloseWorker{
			Worker: w.Worker[:], Name: w.Name, Rank: int32(w.Rank), Missing: w.Missing, Lacks: w.Lacks,
		})
	}
	return m
}

func holdOf(m *peerv1.ExplainResponse) *scheduler.Hold {
	h := &scheduler.Hold{
		Here: m.GetHere(), Gate: scheduler.Obstacle(m.GetGate()), Gated: m.GetGated(), Ease: m.GetEase(),
		Refusal: placement.RefusalOf(m.GetRefusal()), Ahead: int(m.GetAhead()), Change: placement.ChangeKind(m.GetChange()),
		Suggestion: m.GetSuggestion(), Place: m.GetPlace(),
	}
	if m.GetStart() != nil {
		h.Start = m.GetStart().AsTime()
	}
	for _, w := range m.GetClosest() {
		if len(w.GetWorker()) == len(scheduler.WorkerID{}) {
			h.Closest = append(h.Closest, scheduler.CloseWorker{
				Worker: scheduler.WorkerID(w.GetWorker()), Name: w.GetName(), Rank: int(w.GetRank()), Missing: w.GetMissing(), Lacks: w.GetLacks(),
			})
		}
	}
	return h
}
