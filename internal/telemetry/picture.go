package telemetry

import (
	"go.opentelemetry.io/otel/metric"

	"github.com/errandhq/errand/scheduler"
)

// tenantsShown bounds the tenants that have series of their own: those with most open tasks.
const tenantsShown = 10

// tiers are the values of the label tier.
var tiers = [...]string{scheduler.Urgent: "urgent", scheduler.Standard: "standard", scheduler.Deferrable: "deferrable"}

// pictureGauges show who waits, and how long at most.
type pictureGauges struct {
	waiting              metric.Int64ObservableGauge
	bound, overdue       metric.Float64ObservableGauge
	tenantOpen, demoted  metric.Int64ObservableGauge
	tenantBound          metric.Float64ObservableGauge
	tenantFair, tenantIs metric.Float64ObservableGauge
}

func newPictureGauges(b *builder) (*pictureGauges, error) {
	g := &pictureGauges{
		waiting: b.gauge("errand.waiting", "Ready tasks that this instance holds at hand, by tier and what they wait for."),
		bound:   b.secondsGauge("errand.wait.bound", "The longest that a task waits once it is ready while nothing but room holds it back, of all tenants that wait."),
		overdue: b.secondsGauge("errand.wait.overdue", "How long ago the first task was due that only room holds back; 0 when none is overdue."),

		tenantOpen:  b.gauge("errand.tenant.open", "Open tasks in the region, of the tenants with most."),
		tenantBound: b.secondsGauge("errand.tenant.wait.bound", "The same bound, of the tenants with most open tasks."),
		tenantFair:  b.ratioGauge("errand.tenant.fair", "The part of the capacity that is a tenant's own while all that are present want as much as they can get."),
		tenantIs:    b.ratioGauge("errand.tenant.used", "A tenant's part of what was used in the region over the last minute."),
		demoted:     b.gauge("errand.tenant.demoted", "1 while a tenant's urgent work is served as standard, being beyond its urgent share."),
	}
	return g, b.err
}

func (g *pictureGauges) all() []metric.Observable {
	return []metric.Observable{g.waiting, g.bound, g.overdue, g.tenantOpen, g.tenantBound, g.tenantFair, g.tenantIs, g.demoted}
}

func (g *pictureGauges) observe(to metric.Observer, p *scheduler.Picture) {
	if p == nil {
		return
	}
	for _, tier := range scheduler.Tiers {
		t, name := &p.Tiers[tier], tiers[tier]
		for _, waiting := range []struct {
			what string
			n    int
		}{{"room", t.Here - t.Held - t.Unserved}, {"gate", t.Held}, {"worker", t.Unserved}} {
			to.ObserveInt64(g.waiting, int64(waiting.n), options(observing, "tier", name, "for", waiting.what)...)
		}
		of := options(observing, "tier", name)
		to.ObserveFloat64(g.bound, t.Bound.Seconds(), of...)
		overdue := 0.0
		if !t.OldestDue.IsZero() {
			overdue = max(p.At.Sub(t.OldestDue).Seconds(), 0)
		}
		to.ObserveFloat64(g.overdue, overdue, of...)
	}
	for i := range p.Tenants[:min(len(p.Tenants), tenantsShown)] {
		g.tenant(to, &p.Tenants[i])
	}
}

func (g *pictureGauges) tenant(to metric.Observer, t *scheduler.TenantPicture) {
	of := options(observing, "tenant", t.Tenant)
	to.ObserveFloat64(g.tenantFair, t.Fair, of...)
	to.ObserveFloat64(g.tenantIs, t.Used, of...)
	to.ObserveInt64(g.demoted, int64(one(t.Demoted)), of...)
	for _, tier := range scheduler.Tiers {
		if w := &t.Tiers[tier]; w.Open > 0 || w.Here > 0 {
			of := options(observing, "tenant", t.Tenant, "tier", tiers[tier])
			to.ObserveInt64(g.tenantOpen, w.Open, of...)
			to.ObserveFloat64(g.tenantBound, w.Bound.Seconds(), of...)
		}
	}
}
