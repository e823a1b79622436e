package regions

// Adoption says which region serves the lanes of one that does not serve them itself: claims, reclaiming, schedules and timers.
// Rows keep their region.
type Adoption struct {
	Region  string
	Adopter string
}

// Adopters returns who adopts whom, by the names of the adopted. A region that is down, draining or drained is adopted by the nearest one that is
// up; if none is up, by the nearest that is suspect; if none is left, by nobody. Of two that are equally near, the first by name.
//
// An adopter serves its own lanes, so that nobody adopts for another: there is no chain. Its instances divide an adopted region's lanes as they do their
// own, by Lanes. A region of the topology without a verdict neither adopts nor is adopted.
func Adopters(t *Topology, v *Verdicts) []Adoption {
	var up, suspect []string
	for _, r := range v.Regions {
		switch r.Health {
		case Up:
			up = append(up, r.Region)
		case Suspect:
			suspect = append(suspect, r.Region)
		default: // serves nobody
		}
	}
	var all []Adoption
	for _, r := range v.Regions {
		if r.Health.Serves() || !t.Has(r.Region) {
			continue
		}
		near := t.Nearest(r.Region, up)
		if len(near) == 0 {
			near = t.Nearest(r.Region, suspect)
		}
		if len(near) > 0 {
			all = append(all, Adoption{Region: r.Region, Adopter: near[0]})
		}
	}
	return all
}

// Served returns the regions that a region's instances serve: itself first while it serves, then those that it has adopted.
func Served(region string, v *Verdicts, adoptions []Adoption) []string {
	var all []string
	if own, judged := v.Of(region); judged && own.Health.Serves() {
		all = append(all, region)
	}
	for _, a := range adoptions {
		if a.Adopter == region {
			all = append(all, a.Region)
		}
	}
	return all
}
