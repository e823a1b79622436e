package main

import (
	"testing"

	"github.com/errandhq/errand/internal/store"
)

// An operator's day with a deployment of one region.
func TestRegionCommands(t *testing.T) {
	d := deploy(t)
	admin := d.key(t, store.Key{Scope: store.ScopeAdmin})
	d.play(t, admin, []step{
		{"the regions", []string{"region"}, 0, "local   up"},
		{"the regions, spelt out", []string{"region", "list"}, 0, "REGION  VERDICT"},
		{"a drain", []string{"region", "drain", "local"}, 0, "drain"},
		{"the end of it", []string{"region", "resume", "local"}, 0, "local"},
		{"a drain of no region", []string{"region", "drain", "mars"}, exitNotFound, "mars"},
		{"the end of that", []string{"region", "resume", "mars"}, exitNotFound, "mars"},
		{"an empty name", []string{"region", "drain", ""}, exitUsage, "name: "},
	})
	var got []regionView
	d.show(t, admin, &got, "region", "list")
	if len(got) != 1 || got[0].Name != "local" || got[0].Adopter != "" {
		t.Errorf("%+v", got)
	}
	tenant := d.key(t, store.Key{Scope: store.ScopeTenant, Tenant: "acme"})
	d.play(t, tenant, []step{{"a tenant's key", []string{"region", "drain", "local"}, exitDenied, ""}})
}
