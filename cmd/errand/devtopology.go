//go:build unix

package main

import (
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"strings"

	"github.com/errandhq/errand/internal/devcluster"
	"github.com/errandhq/errand/regions"
)

// devTopologyName is the file that all schedulers of errand dev read.
const devTopologyName = "topology.yaml"

// topologyOf is the map of these regions, which are as far from each other as a latency says.
func topologyOf(names []string, l devcluster.Latency) regions.Topology {
	t := regions.Topology{Version: 1, Primary: names[0]}
	for i, name := range names {
		t.Regions = append(t.Regions, regions.Region{Name: name})
		for _, other := range names[:i] {
			trip := l.RoundTrip(devcluster.PairOf(name, other))
			t.Distances = append(t.Distances, regions.Distance{
				Between: []string{other, name}, RoundTripMS: int(math.Ceil(float64(trip.Microseconds()) / 1000)),
			})
		}
	}
	return t
}

// devTopologyText is a topology as its file.
func devTopologyText(t *regions.Topology) string {
	var s strings.Builder
	fmt.Fprintf(&s, "# Written by errand dev at every start.\nversion: %d\nprimary: %q\nregions:\n", t.Version, t.Primary)
	for _, r := range t.Regions {
		fmt.Fprintf(&s, "  - name: %q\n", r.Name)
	}
	if len(t.Distances) > 0 {
		fmt.Fprintln(&s, "distances:")
	}
	for _, d := range t.Distances {
		fmt.Fprintf(&s, "  - {between: [%q, %q], round_trip_ms: %d}\n", d.Between[0], d.Between[1], d.RoundTripMS)
	}
	return s.String()
}

// keepTopology writes the file. Regions of earlier starts have to be there: nobody would look at their tasks any more.
func (f *devFolder) keepTopology(t *regions.Topology) error {
	file := f.in(devTopologyName)
	earlier, err := readTopology(file)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		one := regions.Single(t.Primary)
		if _, err := os.Stat(filepath.Join(f.data, "data")); err == nil {
			one = regions.Single(devRegion) // there was no other before there was this file
		}
		earlier = &one
	case err != nil:
		return fmt.Errorf("%s: %w; remove it when you know which regions there were", file, err)
	}
	for _, r := range earlier.Regions {
		if !t.Has(r.Name) {
			return fmt.Errorf("%w: %s has tasks of region %s, which nobody would serve: name it in --region-names, or choose another folder with --dir",
				errUsage, f.path, r.Name)
		}
	}
	fresh := file + ".new"
	if err := os.WriteFile(fresh, []byte(devTopologyText(t)), 0o600); err != nil {
		return err
	}
	return os.Rename(fresh, file)
}
