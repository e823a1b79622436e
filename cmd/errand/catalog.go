package main

import (
	"github.com/errandhq/errand/scheduler"
	"github.com/errandhq/errand/scheduler/engine"
)

// catalog is what operators have set, as the instance knows it at the moment of each question.
type catalog struct{ shell *engine.Shell }

// Kind is what is set for a kind of a tenant.
func (c catalog) Kind(tenant, kind string) (scheduler.KindSettings, bool) {
	return c.shell.Catalog().Kind(tenant, kind)
}

// Tenant is what is set for a tenant.
func (c catalog) Tenant(tenant string) (scheduler.TenantSettings, bool) {
	return c.shell.Catalog().Tenant(tenant)
}
