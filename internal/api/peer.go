package api

import (
	"context"
	"errors"
	"time"

	"connectrpc.com/connect"

	"github.com/errandhq/errand/fairness"
	peerv1 "github.com/errandhq/errand/proto/errand/peer/v1"
	"github.com/errandhq/errand/proto/errand/peer/v1/peerv1connect"
	"github.com/errandhq/errand/scheduler"
	"github.com/errandhq/errand/scheduler/engine"
)

// usedKindsMax bounds the kinds of which an instance tells its slots; the others count as this instance's alone.
const usedKindsMax = 1000

// watchAnswer is the longest a peer's Watch stays open.
const watchAnswer = 20 * time.Second

// peerService serves the other scheduler instances.
type peerService struct {
	deployment
	peer      Peer
	scheduler Scheduler
	workers   Workers
}

func (s *peerService) Cancel(_ context.Context, req *peerv1.CancelRequest) (*peerv1.CancelResponse, error) {
	s.peer.Post(engine.PeerCancel{Token: scheduler.Token{
		ID: scheduler.ID(req.GetId()), Attempt: req.GetAttempt(), Worker: scheduler.WorkerID(req.GetWorker()),
	}})
	return &peerv1.CancelResponse{}, nil
}

func (s *peerService) Watch(ctx context.Context, req *peerv1.WatchRequest) (*peerv1.WatchResponse, error) {
	ids := make([]scheduler.ID, len(req.GetIds()))
	for i, id := range req.GetIds() {
		ids[i] = scheduler.ID(id)
	}
	ended := make(chan scheduler.ID, len(ids))
	defer s.peer.Watch(ids, ended)()
	ctx, cancel := context.WithTimeout(ctx, watchAnswer)
	defer cancel()
	resp := &peerv1.WatchResponse{}
	select {
	case id := <-ended:
		resp.Ended = append(resp.Ended, id[:])
	case <-ctx.Done():
	}
	return resp, nil
}

func (s *peerService) Hint(_ context.Context, req *peerv1.HintRequest) (*peerv1.HintResponse, error) {
	s.peer.Post(engine.PeerStarved{Kinds: req.GetStarvedKinds()})
	return &peerv1.HintResponse{}, nil
}

func (s *peerService) Use(_ context.Context, req *peerv1.UseRequest) (*peerv1.UseResponse, error) {
	use := scheduler.Use{Virtual: req.GetVirtual(), Slots: map[string]int{}}
	for _, u := range req.GetUsed() {
		use.Used = append(use.Used, fairness.Spent{Tenant: u.GetTenant(), Amount: u.GetAmount()})
	}
	for _, s := range req.GetSlots() {
		use.Slots[s.GetKind()] = int(s.GetSlots())
	}
	s.peer.Post(engine.PeerUsed{Session: scheduler.SessionID(req.GetSession()), Use: use})
	return &peerv1.UseResponse{}, nil
}

// Peers reaches other instances over their peer service; it implements [engine.Peers].
type Peers struct {
	client connect.HTTPClient
	secret string
}

// NewPeers returns a caller of other instances' peer services, with the deployment's secret.
func NewPeers(client connect.HTTPClient, secret string) *Peers { return &Peers{client, secret} }

// Starved tells a peer which kinds wait here.
func (p *Peers) Starved(ctx context.Context, peer scheduler.Session, kinds []string) error {
	c, err := p.at(peer)
	if err != nil {
		return err
	}
	_, err = c.Hint(ctx, &peerv1.HintRequest{StarvedKinds: kinds})
	return err
}

// Use tells a peer what tenants have used here.
func (p *Peers) Use(ctx context.Context, peer scheduler.Session, from scheduler.SessionID, use scheduler.Use) error {
	c, err := p.at(peer)
	if err != nil {
		return err
	}
	req := &peerv1.UseRequest{Session: from[:], Virtual: use.Virtual}
	for _, u := range use.Used {
		req.Used = append(req.Used, &peerv1.TenantUse{Tenant: u.Tenant, Amount: u.Amount})
	}
	for kind, n := range use.Slots {
		if len(req.Slots) < usedKindsMax {
			req.Slots = append(req.Slots, &peerv1.KindRoom{Kind: kind, Slots: int32(n)})
		}
	}
	_, err = c.Use(ctx, req)
	return err
}

// Cancel tells a peer that an attempt which it dispatches shall be canceled.
func (p *Peers) Cancel(ctx context.Context, peer scheduler.Session, token scheduler.Token) error {
	c, err := p.at(peer)
	if err != nil {
		return err
	}
	_, err = c.Cancel(ctx, &peerv1.CancelRequest{Id: token.ID[:], Attempt: token.Attempt, Worker: token.Worker[:]})
	return err
}

var errNoAddress = errors.New("the peer has no address")

func (p *Peers) at(peer scheduler.Session) (peerv1connect.PeerServiceClient, error) {
	if peer.Address == "" {
		return nil, errNoAddress
	}
	return peerv1connect.NewPeerServiceClient(p.client, peer.Address, connect.WithInterceptors(withBearer(p.secret))), nil
}

// withBearer sends a secret with every call.
func withBearer(secret string) connect.UnaryInterceptorFunc {
	return func(next connect.UnaryFunc) connect.UnaryFunc {
		return func(ctx context.Context, req connect.AnyRequest) (connect.AnyResponse, error) {
			req.Header().Set("Authorization", "Bearer "+secret)
			return next(ctx, req)
		}
	}
}
