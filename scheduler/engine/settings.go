package engine

import (
	"maps"
	"time"

	"github.com/errandhq/errand/scheduler"
)

// settingsEvery is how often it is read what operators have set: a pause holds no later than this and one statement.
const settingsEvery = time.Second

// settings is what operators have set, as this instance knows it. Nothing starts before it was read once: a pause holds from the start.
type settings struct {
	reading pipe
	asked   bool
	readAt  time.Duration
	known   bool
	since   time.Time // the store's time of the last answer
	catalog *Catalog
}

func newSettings() settings {
	return settings{reading: pipe{name: "settings", limit: 1}, catalog: &Catalog{}}
}

// Catalog is what operators have set. It never changes: what is set later is in a new one.
type Catalog struct {
	known   bool // it was read once
	tenants map[string]scheduler.TenantSettings
	kinds   map[[2]string]scheduler.KindSettings
}

// Tenant returns what is set for a tenant, and false when nothing is.
func (c *Catalog) Tenant(name string) (scheduler.TenantSettings, bool) {
	t, set := c.tenants[name]
	return t, set
}

// Kind returns what is set for a kind of a tenant, and false when nothing is.
func (c *Catalog) Kind(tenant, kind string) (scheduler.KindSettings, bool) {
	k, set := c.kinds[[2]string{tenant, kind}]
	return k, set
}

// with returns a catalog with what is set now.
func (c *Catalog) with(s *scheduler.Settings) *Catalog {
	if c.known && len(s.Tenants)+len(s.Kinds) == 0 {
		return c
	}
	next := &Catalog{known: true, tenants: maps.Clone(c.tenants), kinds: maps.Clone(c.kinds)}
	if next.tenants == nil {
		next.tenants, next.kinds = map[string]scheduler.TenantSettings{}, map[[2]string]scheduler.KindSettings{}
	}
	for _, t := range s.Tenants {
		next.tenants[t.Tenant] = t
	}
	for _, k := range s.Kinds {
		next.kinds[[2]string{k.Tenant, k.Kind}] = k
	}
	return next
}

// readSettings asks the store for what has changed.
func (e *Engine) readSettings() {
	s := &e.settings
	if s.asked || (s.readAt > 0 && e.local-s.readAt < settingsEvery) {
		return
	}
	s.asked, s.readAt = true, e.local
	e.run(&s.reading, scheduler.SettingsQuery{Since: s.since}, func(st *statement, answer any, err error) {
		e.finish(st)
		s := &e.settings
		s.asked = false
		if err != nil {
			e.observe.StatementFailed(s.reading.name, 1, err)
			return
		}
		got := answer.(scheduler.Settings)
		s.since, s.known = got.At, true
		s.catalog = s.catalog.with(&got)
		e.learnRegions(got.Regions)
		if len(got.Tenants)+len(got.Kinds)+len(got.Limits) == 0 {
			return
		}
		e.core.Step(scheduler.SettingsChanged{Settings: got})
	})
}
