package main

import (
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	errandv1 "github.com/errandhq/errand/proto/errand/v1"
)

// overviewView is top -o json. Parts are of one.
type overviewView struct {
	Region          string               `json:"region"`
	At              *time.Time           `json:"at"`
	Instances       int32                `json:"instances"`
	InstancesSilent int32                `json:"instances_silent"`
	Workers         int32                `json:"workers"`
	Tiers           []tierOverviewView   `json:"tiers"`
	Tenants         []tenantOverviewView `json:"tenants"`
	TenantsLeftOut  int32                `json:"tenants_left_out"`
	Kinds           []kindOverviewView   `json:"kinds"`
}

type tierOverviewView struct {
	Tier         string     `json:"tier"`
	Open         int64      `json:"open"`
	AtHand       int64      `json:"at_hand"`
	Running      int64      `json:"running"`
	Held         int64      `json:"held"`
	Unserved     int64      `json:"unserved"`
	OldestDue    *time.Time `json:"oldest_due"`
	BoundSeconds *float64   `json:"bound_seconds"`
}

type tenantOverviewView struct {
	Tenant  string             `json:"tenant"`
	Weight  float64            `json:"weight"`
	Fair    float64            `json:"fair"`
	Used    float64            `json:"used"`
	Demoted bool               `json:"demoted"`
	Tiers   []tierOverviewView `json:"tiers"`
}

type kindOverviewView struct {
	Kind   string `json:"kind"`
	Slots  int64  `json:"slots"`
	Used   int64  `json:"used"`
	AtHand int64  `json:"at_hand"`
}

func overviewViewOf(o *errandv1.Overview) overviewView {
	v := overviewView{
		Region: o.GetRegion(), At: stampOf(o.GetAt()), Instances: o.GetInstances(), InstancesSilent: o.GetInstancesSilent(),
		Workers: o.GetWorkers(), Tiers: tierViewsOf(o.GetTiers()), Tenants: []tenantOverviewView{},
		TenantsLeftOut: o.GetTenantsLeftOut(), Kinds: []kindOverviewView{},
	}
	for _, t := range o.GetTenants() {
		v.Tenants = append(v.Tenants, tenantOverviewView{
			t.GetTenant(), t.GetWeight(), t.GetFair(), t.GetUsed(), t.GetDemoted(), tierViewsOf(t.GetTiers()),
		})
	}
	for _, k := range o.GetKinds() {
		v.Kinds = append(v.Kinds, kindOverviewView{k.GetKind(), k.GetSlots(), k.GetUsed(), k.GetAtHand()})
	}
	return v
}

func tierViewsOf(tiers []*errandv1.TierOverview) []tierOverviewView {
	views := []tierOverviewView{}
	for _, t := range tiers {
		views = append(views, tierOverviewView{
			wordOf(t.GetTier().String(), "TIER_"), t.GetOpen(), t.GetAtHand(), t.GetRunning(), t.GetHeld(), t.GetUnserved(),
			stampOf(t.GetOldestDue()), secondsOf(t.GetBound()),
		})
	}
	return views
}

// secondsOf is nil for a time span that is not known.
func secondsOf(d *durationpb.Duration) *float64 {
	if d == nil {
		return nil
	}
	s := d.AsDuration().Seconds()
	return &s
}
