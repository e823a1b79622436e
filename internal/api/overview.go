package api

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	peerv1 "github.com/errandhq/errand/proto/errand/peer/v1"
	errandv1 "github.com/errandhq/errand/proto/errand/v1"
	"github.com/errandhq/errand/scheduler"
	"github.com/errandhq/errand/scheduler/engine"
)

// Bounds of overviews.
const (
	overviewTenants    = 100             // unless more are asked for
	overviewPeersMax   = 64              // instances that are asked
	overviewPeerAnswer = 1 * time.Second // the longest that one is waited for
	overviewKindsMax   = 1000
)

// GetOverview puts together what the region's instances know. One that does not answer is counted as silent.
func (s *adminService) GetOverview(ctx context.Context, req *errandv1.GetOverviewRequest) (*errandv1.GetOverviewResponse, error) {
	status := s.scheduler.Status()
	others := status.Others[:min(len(status.Others), overviewPeersMax)]
	all := overviewOf(&status)
	for _, one := range s.ask(ctx, others) {
		if one == nil {
			all.InstancesSilent++
			continue
		}
		merge(all, one)
	}
	limit := int(req.GetTenants())
	if limit == 0 {
		limit = overviewTenants
	}
	settle(all, limit)
	return &errandv1.GetOverviewResponse{Overview: all}, nil
}

// ask returns what instances answer, nil for each that does not.
func (s *adminService) ask(ctx context.Context, others []scheduler.Session) []*errandv1.Overview {
	told := make([]*errandv1.Overview, len(others))
	if s.others == nil {
		return told
	}
	ctx, cancel := context.WithTimeout(ctx, overviewPeerAnswer)
	defer cancel()
	var asked sync.WaitGroup
	for i := range others {
		asked.Go(func() { told[i], _ = s.others.Overview(ctx, others[i]) }) // whoever does not answer is counted
	}
	asked.Wait()
	return told
}

func (s *peerService) Overview(context.Context, *peerv1.OverviewRequest) (*peerv1.OverviewResponse, error) {
	status := s.scheduler.Status()
	return &peerv1.OverviewResponse{Overview: overviewOf(&status)}, nil
}

// Overview asks a peer who waits and who runs there.
func (p *Peers) Overview(ctx context.Context, peer scheduler.Session) (*errandv1.Overview, error) {
	c, err := p.at(peer)
	if err != nil {
		return nil, err
	}
	resp, err := c.Overview(ctx, &peerv1.OverviewRequest{})
	if err != nil {
		return nil, err
	}
	return resp.GetOverview(), nil
}

// overviewOf is what one instance knows.
func overviewOf(s *engine.Status) *errandv1.Overview {
	o := &errandv1.Overview{Instances: 1, Workers: int32(s.Workers)}
	p := s.Picture
	if p == nil {
		return o
	}
	o.At, o.TenantsLeftOut = timestamppb.New(p.At), int32(p.LeftOut)
	for _, tier := range scheduler.Tiers {
		o.Tiers = append(o.Tiers, tierOverview(tier, &p.Tiers[tier]))
	}
	for i := range p.Tenants {
		o.Tenants = append(o.Tenants, tenantOverview(&p.Tenants[i]))
	}
	for _, k := range p.Kinds[:min(len(p.Kinds), overviewKindsMax)] {
		o.Kinds = append(o.Kinds, &errandv1.KindOverview{Kind: k.Kind, Slots: int64(k.Slots), Used: int64(k.Used), AtHand: int64(k.Here)})
	}
	return o
}

func tierOverview(tier scheduler.Tier, t *scheduler.TierPicture) *errandv1.TierOverview {
	m := &errandv1.TierOverview{
		Tier: errandv1.Tier(tier), Open: t.Open, AtHand: int64(t.Here), Running: int64(t.Running), Held: int64(t.Held),
		Unserved: int64(t.Unserved), OldestDue: stamp(t.OldestDue),
	}
	if t.Bound > 0 {
		m.Bound = durationpb.New(t.Bound)
	}
	return m
}

func tenantOverview(t *scheduler.TenantPicture) *errandv1.TenantOverview {
	m := &errandv1.TenantOverview{Tenant: t.Tenant, Weight: t.Weight, Fair: t.Fair, Used: t.Used, Demoted: t.Demoted}
	for _, tier := range scheduler.Tiers {
		if one := &t.Tiers[tier]; one.Open > 0 || one.Here > 0 || one.Running > 0 {
			m.Tiers = append(m.Tiers, tierOverview(tier, one))
		}
	}
	return m
}

// merge adds what another instance knows. What both know of the whole region is taken once.
func merge(all, one *errandv1.Overview) {
	all.Instances += one.GetInstances()
	all.Workers += one.GetWorkers()
	all.TenantsLeftOut = max(all.GetTenantsLeftOut(), one.GetTenantsLeftOut())
	all.Tiers = mergeTiers(all.GetTiers(), one.GetTiers())
	tenants := map[string]*errandv1.TenantOverview{}
	for _, a := range all.GetTenants() {
		tenants[a.GetTenant()] = a
	}
	for _, t := range one.GetTenants() {
		a := tenants[t.GetTenant()]
		if a == nil {
			all.Tenants = append(all.Tenants, t)
			continue
		}
		a.Fair, a.Used = min(a.GetFair(), t.GetFair()), max(a.GetUsed(), t.GetUsed())
		a.Demoted = a.GetDemoted() || t.GetDemoted()
		a.Tiers = mergeTiers(a.GetTiers(), t.GetTiers())
	}
	mergeKinds(all, one.GetKinds())
}

func mergeKinds(all *errandv1.Overview, more []*errandv1.KindOverview) {
	kinds := map[string]*errandv1.KindOverview{}
	for _, a := range all.GetKinds() {
		kinds[a.GetKind()] = a
	}
	for _, k := range more {
		a := kinds[k.GetKind()]
		if a == nil {
			all.Kinds = append(all.Kinds, k)
			continue
		}
		a.Slots, a.Used, a.AtHand = a.GetSlots()+k.GetSlots(), a.GetUsed()+k.GetUsed(), a.GetAtHand()+k.GetAtHand()
	}
}

func mergeTiers(all, more []*errandv1.TierOverview) []*errandv1.TierOverview {
	for _, t := range more {
		i := slices.IndexFunc(all, func(a *errandv1.TierOverview) bool { return a.GetTier() == t.GetTier() })
		if i < 0 {
			all = append(all, t)
			continue
		}
		a := all[i]
		a.Open = max(a.GetOpen(), t.GetOpen())
		a.AtHand, a.Running = a.GetAtHand()+t.GetAtHand(), a.GetRunning()+t.GetRunning()
		a.Held, a.Unserved = a.GetHeld()+t.GetHeld(), a.GetUnserved()+t.GetUnserved()
		if a.GetOldestDue() == nil || (t.GetOldestDue() != nil && t.GetOldestDue().AsTime().Before(a.GetOldestDue().AsTime())) {
			a.OldestDue = t.GetOldestDue()
		}
		if t.GetBound().AsDuration() > a.GetBound().AsDuration() {
			a.Bound = t.GetBound()
		}
	}
	return all
}

// settle brings tenants and kinds in order, and leaves out what is more than was asked for.
func settle(all *errandv1.Overview, limit int) {
	open := func(t *errandv1.TenantOverview) int64 {
		n := int64(0)
		for _, tier := range t.GetTiers() {
			n += max(tier.GetOpen(), tier.GetAtHand()+tier.GetRunning())
		}
		return n
	}
	slices.SortFunc(all.GetTenants(), func(a, b *errandv1.TenantOverview) int {
		return cmp.Or(cmp.Compare(open(b), open(a)), cmp.Compare(a.GetTenant(), b.GetTenant()))
	})
	if more := len(all.GetTenants()) - limit; more > 0 {
		all.TenantsLeftOut += int32(more)
		all.Tenants = all.GetTenants()[:limit]
	}
	slices.SortFunc(all.GetKinds(), func(a, b *errandv1.KindOverview) int { return cmp.Compare(a.GetKind(), b.GetKind()) })
	for _, t := range all.GetTenants() {
		slices.SortFunc(t.GetTiers(), func(a, b *errandv1.TierOverview) int { return cmp.Compare(a.GetTier(), b.GetTier()) })
	}
}
