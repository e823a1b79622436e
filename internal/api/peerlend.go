package api

import (
	"context"
	"strconv"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/errandhq/errand/placement"
	peerv1 "github.com/errandhq/errand/proto/errand/peer/v1"
	errandv1 "github.com/errandhq/errand/proto/errand/v1"
	"github.com/errandhq/errand/scheduler"
)

// lentKindsMax bounds the kinds for which an instance says that it has room.
const lentKindsMax = 1000

// Lend hands rows over to another instance.
func (s *peerService) Lend(ctx context.Context, req *peerv1.LendRequest) (*peerv1.LendResponse, error) {
	room := make([]scheduler.KindRoom, 0, len(req.GetRoom()))
	for _, r := range req.GetRoom() {
		room = append(room, scheduler.KindRoom{Kind: r.GetKind(), Slots: int(r.GetSlots())})
	}
	var to scheduler.Borrower
	if req.GetRegion() != s.region {
		to.Region = req.GetRegion()
	}
	for i, m := range req.GetOffers() {
		o, err := offerOf(m, "offers["+strconv.Itoa(i)+"].")
		if err != nil {
			return nil, err
		}
		to.Offers = append(to.Offers, o)
	}
	rows, err := s.peer.Lend(ctx, room, int(req.GetLimit()), to)
	if err != nil {
		return nil, err
	}
	resp := &peerv1.LendResponse{}
	for i := range rows {
		m := lentMessage(&rows[i])
		if to.Region != "" {
			m.Region = s.nameOf(rows[i].ID)
		}
		resp.Rows = append(resp.Rows, m)
	}
	return resp, nil
}

// offerOf reads what is free on a worker.
func offerOf(m *peerv1.Offer, prefix string) (placement.Offer, error) {
	o := placement.Offer{Tenant: m.GetTenant(), Slots: map[string]int{}, Suspect: m.GetSuspect(), Zone: m.GetZone(), Labels: m.GetLabels()}
	for i, k := range m.GetKinds() {
		if _, twice := o.Slots[k.GetKind()]; twice {
			return o, invalid(prefix+"kinds["+strconv.Itoa(i)+"].kind", "is named twice")
		}
		o.Slots[k.GetKind()] = int(k.GetSlots())
	}
	if f := m.GetFree(); f != nil {
		o.Free = &placement.Resources{CPUMilli: int64(f.GetCpuMilli()), MemoryMiB: int64(f.GetMemoryMib()), Slots: int64(f.GetSlots())}
	}
	for _, free := range m.GetDevices() {
		o.Devices = append(o.Devices, int(free))
	}
	return o, nil
}

func offerMessage(o *placement.Offer) *peerv1.Offer {
	m := &peerv1.Offer{Tenant: o.Tenant, Suspect: o.Suspect, Zone: o.Zone, Labels: o.Labels}
	for kind, slots := range o.Slots { // in any order
		m.Kinds = append(m.Kinds, &peerv1.KindRoom{Kind: kind, Slots: int32(slots)})
	}
	if f := o.Free; f != nil {
		m.Free = &errandv1.Requirements{CpuMilli: int32(f.CPUMilli), MemoryMib: int32(f.MemoryMiB), Slots: int32(f.Slots)}
	}
	for _, free := range o.Devices {
		m.Devices = append(m.Devices, int32(free))
	}
	return m
}

func rowMessage(r *scheduler.ReadyRow) *peerv1.Row {
	m := &peerv1.Row{
		Id: r.ID[:], Attempt: r.Attempt, Tenant: r.Tenant, Kind: r.Kind, Tier: int32(r.Tier), Class: uint64(r.Class),
		Due: timestamppb.New(r.Due), StartBy: stamp(r.StartBy), PayloadSize: int32(r.PayloadSize), Suspect: r.Suspect,
	}
	for _, l := range r.Limits {
		m.Limits = append(m.Limits, &peerv1.RowLimit{Name: l.Name, Key: l.Key})
	}
	return m
}

// lentMessage is a row with all that decides where it may start.
func lentMessage(r *scheduler.ReadyRow) *peerv1.Row {
	m := rowMessage(r)
	m.AllowedRegions = r.Allowed
	if r.Shape != nil {
		m.Needs = &errandv1.TaskSpec{}
		showShape(m.Needs, r.Shape)
	}
	return m
}

// lentRow reads a row that was lent. It says no to one of which not all that decides where it may start is understood: a newer version's.
// A class is made of all of that.
func lentRow(m *peerv1.Row) (scheduler.ReadyRow, bool) {
	if len(m.GetId()) != len(scheduler.ID{}) {
		return scheduler.ReadyRow{}, false
	}
	row := scheduler.ReadyRow{
		ID: scheduler.ID(m.GetId()), Attempt: m.GetAttempt(), State: scheduler.Ready, Tenant: m.GetTenant(), Kind: m.GetKind(),
		Tier: scheduler.Tier(m.GetTier()), Class: scheduler.Class(m.GetClass()), Due: m.GetDue().AsTime(),
		PayloadSize: int(m.GetPayloadSize()), Suspect: m.GetSuspect(), Allowed: m.GetAllowedRegions(),
	}
	if m.GetStartBy() != nil {
		row.StartBy = m.GetStartBy().AsTime()
	}
	for _, l := range m.GetLimits() {
		row.Limits = append(row.Limits, scheduler.LimitKey{Name: l.GetName(), Key: l.GetKey()})
	}
	var err error
	if row.Shape, err = shapeOf(m.GetNeeds(), "", nil); err != nil {
		return row, false
	}
	is := scheduler.ClassOf(row.Kind, &scheduler.Spec{AllowedRegions: row.Allowed, Limits: row.Limits, Shape: row.Shape})
	return row, is == row.Class
}

// Lend asks a peer for waiting rows that the borrower can start; one in another region than the borrower's, for overdue ones.
func (p *Peers) Lend(
	ctx context.Context, peer scheduler.Session, room []scheduler.KindRoom, limit int, to scheduler.Borrower,
) ([]scheduler.ReadyRow, error) {
	req := &peerv1.LendRequest{Limit: int32(limit), Region: to.Region}
	for _, r := range room[:min(len(room), lentKindsMax)] {
		req.Room = append(req.Room, &peerv1.KindRoom{Kind: r.Kind, Slots: int32(r.Slots)})
	}
	for i := range to.Offers[:min(len(to.Offers), placement.OffersMax)] {
		req.Offers = append(req.Offers, offerMessage(&to.Offers[i]))
	}
	c, err := p.at(peer)
	if err != nil {
		return nil, err
	}
	resp, err := c.Lend(ctx, req)
	if err != nil {
		return nil, err
	}
	rows := make([]scheduler.ReadyRow, 0, len(resp.GetRows()))
	for _, m := range resp.GetRows() {
		if (m.GetRegion() != "") != (to.Region != "") {
			continue // from a newer version: this one cannot start it
		}
		if row, known := lentRow(m); known {
			rows = append(rows, row)
		}
	}
	return rows, nil
}
