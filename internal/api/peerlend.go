package api

import (
	"context"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/errandhq/errand/placement"
	peerv1 "github.com/errandhq/errand/proto/errand/peer/v1"
	errandv1 "github.com/errandhq/errand/proto/errand/v1"
	"github.com/errandhq/errand/scheduler"
	"github.com/errandhq/errand/scheduler/engine"
)

// Lend hands out waiting rows.
func (s *peerService) Lend(ctx context.Context, req *peerv1.LendRequest) (*peerv1.LendResponse, error) {
	ask := engine.LendAsked{Limit: int(req.GetLimit())}
	for _, r := range req.GetRoom() {
		ask.Room = append(ask.Room, scheduler.KindRoom{Kind: r.GetKind(), Slots: int(r.GetSlots())})
	}
	for i, o := range req.GetOffers() {
		ask.Offers = append(ask.Offers, offerOf(o, byte(i)))
	}
	if req.GetRegion() != s.region {
		ask.For = req.GetRegion()
	}
	rows, err := s.peer.Lend(ctx, ask)
	if err != nil {
		return nil, err
	}
	resp := &peerv1.LendResponse{}
	for i := range rows {
		m := rowMessage(&rows[i])
		if ask.For != "" {
			m.Region = s.nameOf(rows[i].ID)
		}
		resp.Rows = append(resp.Rows, m)
	}
	return resp, nil
}

// Lend asks a peer for waiting rows.
func (p *Peers) Lend(ctx context.Context, ask *engine.AskPeerToLend) ([]scheduler.ReadyRow, error) {
	req := &peerv1.LendRequest{Limit: int32(ask.Limit), Region: ask.For}
	for _, r := range ask.Room {
		req.Room = append(req.Room, &peerv1.KindRoom{Kind: r.Kind, Slots: int32(r.Slots)})
	}
	for i := range ask.Offers {
		req.Offers = append(req.Offers, offerMessage(&ask.Offers[i]))
	}
	c, err := p.at(ask.Peer)
	if err != nil {
		return nil, err
	}
	resp, err := c.Lend(ctx, req)
	if err != nil {
		return nil, err
	}
	rows := make([]scheduler.ReadyRow, 0, len(resp.GetRows()))
	for _, m := range resp.GetRows() {
		if len(m.GetId()) != len(scheduler.ID{}) || (m.GetRegion() != "") != (ask.For != "") {
			continue // from a newer version: this one cannot start it
		}
		if row, err := rowOf(m); err == nil {
			rows = append(rows, row)
		}
	}
	return rows, nil
}

// offerOf reads a worker that is offered. Its identity does not matter: it is numbered.
func offerOf(o *peerv1.Offer, number byte) placement.Worker {
	w := placement.Worker{
		ID: placement.WorkerID{number + 1}, Tenant: o.GetTenant(), Slots: map[string]int{}, Zone: o.GetZone(), Labels: o.GetLabels(),
	}
	for _, k := range o.GetKinds() {
		w.Slots[k.GetKind()] = int(k.GetSlots())
	}
	if o.GetCounted() {
		free := requirementsOf(o.GetFree())
		free.Slots = int64(o.GetFree().GetSlots())
		w.Capacity = &free
	}
	return w
}

func offerMessage(w *placement.Worker) *peerv1.Offer {
	o := &peerv1.Offer{Tenant: w.Tenant, Zone: w.Zone, Labels: w.Labels, Counted: w.Capacity != nil, Free: requirementsMessage(w.Capacity)}
	for kind, slots := range w.Slots { // they are put into a map again
		o.Kinds = append(o.Kinds, &peerv1.KindRoom{Kind: kind, Slots: int32(slots)})
	}
	return o
}

func rowMessage(r *scheduler.ReadyRow) *peerv1.Row {
	m := &peerv1.Row{
		Id: r.ID[:], Attempt: r.Attempt, Tenant: r.Tenant, Kind: r.Kind, Tier: int32(r.Tier), Class: uint64(r.Class),
		Due: timestamppb.New(r.Due), StartBy: stamp(r.StartBy), PayloadSize: int32(r.PayloadSize), Suspect: r.Suspect, AllowedRegions: r.Allowed,
	}
	for _, l := range r.Limits {
		m.Limits = append(m.Limits, &peerv1.RowLimit{Name: l.Name, Key: l.Key})
	}
	if r.Shape != nil {
		m.Needs = &errandv1.TaskSpec{}
		showShape(m.Needs, r.Shape)
	}
	return m
}

// rowOf reads a waiting row, or says that it asks for something that is not known here.
func rowOf(m *peerv1.Row) (scheduler.ReadyRow, error) {
	shape, err := shapeOf(m.GetNeeds(), "needs.", nil)
	row := scheduler.ReadyRow{
		ID: scheduler.ID(m.GetId()), Attempt: m.GetAttempt(), State: scheduler.Ready, Tenant: m.GetTenant(), Kind: m.GetKind(),
		Tier: scheduler.Tier(m.GetTier()), Class: scheduler.Class(m.GetClass()), Due: m.GetDue().AsTime(),
		PayloadSize: int(m.GetPayloadSize()), Suspect: m.GetSuspect(), Shape: shape, Allowed: m.GetAllowedRegions(),
	}
	if m.GetStartBy() != nil {
		row.StartBy = m.GetStartBy().AsTime()
	}
	for _, l := range m.GetLimits() {
		row.Limits = append(row.Limits, scheduler.LimitKey{Name: l.GetName(), Key: l.GetKey()})
	}
	return row, err
}
