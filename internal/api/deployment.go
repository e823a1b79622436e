package api

import (
	"slices"

	"github.com/errandhq/errand/scheduler"
)

// deployment is the regions that exist.
type deployment struct {
	region string   // of this instance
	names  []string // of all regions, by number
}

func newDeployment(cfg *Config) deployment {
	d := deployment{cfg.Region, cfg.Regions}
	if len(d.names) == 0 {
		d.names = []string{cfg.Region}
	}
	return d
}

// nameOf names the region where a task's row lives. An id of a region that is not known is taken for one of this region's, where it is
// not found.
func (d *deployment) nameOf(id scheduler.ID) string {
	if n := int(id.Region()); n < len(d.names) && d.names[n] != "" {
		return d.names[n]
	}
	return d.region
}

// knows tells whether there is a region of that name.
func (d *deployment) knows(region string) bool {
	return region == d.region || slices.Contains(d.names, region)
}
