package api

import (
	"testing"
	"time"

	"connectrpc.com/connect"

	errandv1 "github.com/errandhq/errand/proto/errand/v1"
	"github.com/errandhq/errand/proto/errand/v1/errandv1connect"
)

// The overview is the region's: what each instance has, and what both know counts once. An instance that is gone is silent at most.
func TestOverview(t *testing.T) {
	reach := func(c *Config) { c.Others = NewPeers(http2Client(t), peerSecret) }
	first := start(t, reach)
	second := startOver(t, first.dsn, reach)
	second.acme, second.pool, second.admin = first.acme, first.pool, first.admin
	w := first.worker(first.pool, 1, "email")
	second.worker(second.pool, 2, "email")

	submit := func(e *edge, kind string) {
		t.Helper()
		if _, err := e.tasks(e.acme).SubmitTask(t.Context(), &errandv1.SubmitTaskRequest{Spec: &errandv1.TaskSpec{Kind: kind}}); err != nil {
			t.Fatal(err)
		}
	}
	submit(first, "email")
	submit(second, "nobodys")
	w.take()

	admin := errandv1connect.NewAdminServiceClient(first.http, first.url, connect.WithInterceptors(bearerOf(first.admin)))
	read := func() *errandv1.Overview {
		resp, err := admin.GetOverview(t.Context(), &errandv1.GetOverviewRequest{})
		if err != nil {
			t.Fatal(err)
		}
		return resp.GetOverview()
	}
	var got *errandv1.Overview
	eventually(t, "an overview of both instances", func() bool {
		got = read()
		return got.GetInstances()+got.GetInstancesSilent() == 2 && len(got.GetTenants()) == 1 && got.GetWorkers() > 0 &&
			got.GetTenants()[0].GetTiers()[0].GetOpen() == 2
	})
	tier := got.GetTenants()[0].GetTiers()[0]
	if got.GetTenants()[0].GetTenant() != "acme" || tier.GetTier() != errandv1.Tier_TIER_STANDARD {
		t.Errorf("the overview is %v", got)
	}
}

// What two instances tell is added, but for what both know of the region.
func TestOverviewsAreJoined(t *testing.T) {
	one := func(atHand int64, due time.Time, bound time.Duration) *errandv1.Overview {
		tier := &errandv1.TierOverview{Tier: errandv1.Tier_TIER_URGENT, Open: 10, AtHand: atHand, Running: 1, OldestDue: stamp(due)}
		tenant := &errandv1.TenantOverview{Tenant: "acme", Weight: 1, Fair: 0.5, Used: 0.4, Tiers: []*errandv1.TierOverview{tier}}
		return &errandv1.Overview{
			Instances: 1, Workers: 2, Tenants: []*errandv1.TenantOverview{tenant},
			Kinds: []*errandv1.KindOverview{{Kind: "email", Slots: 3, Used: 1, AtHand: atHand}},
		}
	}
	early := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	all := one(2, early.Add(time.Hour), time.Minute)
	merge(all, one(3, early, time.Second))
	other := one(1, time.Time{}, 0)
	other.Tenants[0].Tenant, other.Kinds[0].Kind = "globex", "exec"
	merge(all, other)
	settle(all, 1)
	if all.GetInstances() != 3 || all.GetWorkers() != 6 || all.GetTenantsLeftOut() != 1 || len(all.GetTenants()) != 1 || len(all.GetKinds()) != 2 {
		t.Fatalf("%v", all)
	}
	tier := all.GetTenants()[0].GetTiers()[0]
	if tier.GetOpen() != 10 || tier.GetAtHand() != 5 || tier.GetRunning() != 2 || !tier.GetOldestDue().AsTime().Equal(early) {
		t.Errorf("%v", tier)
	}
	if k := all.GetKinds()[0]; k.GetKind() != "email" || k.GetSlots() != 6 || k.GetUsed() != 2 || k.GetAtHand() != 5 {
		t.Errorf("%v", k)
	}
}
