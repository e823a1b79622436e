package regions

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
)

// Bounds of a topology.
const (
	RegionsMax     = Max    // that share a store
	NameLettersMax = 63     // of a region's name, which is the first part of every handle
	RoundTripMSMax = 60_000 // a longer one is a mistake of units
)

// Survival is what a deployment's store survives without losing what it has committed.
type Survival string

// The goals of survival.
const (
	SurviveZone   Survival = "zone"   // one zone of a region may fail; default
	SurviveRegion Survival = "region" // a whole region may fail; takes three regions, and each write a round trip between regions
)

// survivingRegionsMin is how many regions a quorum needs to be left when one of them fails.
const survivingRegionsMin = 3

// Topology is which regions there are and how far they are from each other. It is configuration: every instance of every region is
// given the same, and a larger Version replaces a smaller one.
//
// The tags are the keys of its file, which ParseTopology reads.
type Topology struct {
	Version   int64      `json:"version"`            // at least 1
	Primary   string     `json:"primary"`            // where what is global is written
	Survival  Survival   `json:"survival,omitempty"` // default SurviveZone
	Regions   []Region   `json:"regions"`            // 1 to RegionsMax
	Distances []Distance `json:"distances,omitempty"`
}

// Region is one place with its own schedulers, workers and Redis.
type Region struct {
	Name string `json:"name"` // 1 to NameLettersMax of [a-z0-9-], first a letter, last not a dash
}

// Distance is how far two regions are from each other, in both directions the same. Each pair has exactly one.
type Distance struct {
	Between     []string `json:"between"`       // two regions, in any order
	RoundTripMS int      `json:"round_trip_ms"` // milliseconds, 0 to RoundTripMSMax
}

// Single is the topology of a deployment with one region.
func Single(name string) Topology {
	return Topology{Version: 1, Primary: name, Regions: []Region{{Name: name}}}
}

// ParseTopology reads a topology and validates it. A key that is not known is an error: what is misspelt must not be ignored.
//
// It takes JSON. Who has a YAML file decodes it to plain values first and encodes those: the YAML module that this project uses panics on some
// files that it reads into structs.
func ParseTopology(raw []byte) (Topology, error) {
	var t Topology
	d := json.NewDecoder(bytes.NewReader(raw))
	d.DisallowUnknownFields()
	if err := d.Decode(&t); err != nil {
		return Topology{}, fmt.Errorf("topology: %w", err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return Topology{}, errors.New("topology: something follows it")
	}
	if err := t.Validate(); err != nil {
		return Topology{}, err
	}
	return t, nil
}

// Validate checks that the regions have names of their own and that there is a distance between any two. The error names the field.
func (t *Topology) Validate() error {
	if t.Version < 1 {
		return fmt.Errorf("topology: version %d must be at least 1", t.Version)
	}
	if n := len(t.Regions); n < 1 || n > RegionsMax {
		return fmt.Errorf("topology: regions: there are %d, must be 1 to %d", n, RegionsMax)
	}
	for i, r := range t.Regions {
		if !validName(r.Name) {
			return fmt.Errorf("topology: regions[%d].name %q must be 1 to %d of [a-z0-9-], first a letter, last not a dash", i, r.Name, NameLettersMax)
		}
		if slices.Contains(t.Regions[:i], r) {
			return fmt.Errorf("topology: regions[%d].name %q is there twice", i, r.Name)
		}
	}
	if !t.Has(t.Primary) {
		return fmt.Errorf("topology: primary %q is none of the regions", t.Primary)
	}
	switch t.Survival {
	case "", SurviveZone:
	case SurviveRegion:
		if len(t.Regions) < survivingRegionsMin {
			return fmt.Errorf("topology: survival %q takes at least %d regions, there are %d", t.Survival, survivingRegionsMin, len(t.Regions))
		}
	default:
		return fmt.Errorf("topology: survival %q must be %q or %q", t.Survival, SurviveZone, SurviveRegion)
	}
	return t.validateDistances()
}

func (t *Topology) validateDistances() error {
	known := map[[2]string]bool{}
	for i, d := range t.Distances {
		if len(d.Between) != 2 {
			return fmt.Errorf("topology: distances[%d].between names %d regions, must be two", i, len(d.Between))
		}
		pair := ordered(d.Between[0], d.Between[1])
		for _, name := range pair {
			if !t.Has(name) {
				return fmt.Errorf("topology: distances[%d].between: %q is none of the regions", i, name)
			}
		}
		switch {
		case pair[0] == pair[1]:
			return fmt.Errorf("topology: distances[%d].between: %q twice; a region is no way from itself", i, pair[0])
		case known[pair]:
			return fmt.Errorf("topology: distances[%d].between: the distance between %s and %s is there twice", i, pair[0], pair[1])
		case d.RoundTripMS < 0 || d.RoundTripMS > RoundTripMSMax:
			return fmt.Errorf("topology: distances[%d].round_trip_ms %d must be 0 to %d", i, d.RoundTripMS, RoundTripMSMax)
		}
		known[pair] = true
	}
	for i, a := range t.Regions {
		for _, b := range t.Regions[:i] {
			if pair := ordered(a.Name, b.Name); !known[pair] {
				return fmt.Errorf("topology: distances: none between %s and %s", pair[0], pair[1])
			}
		}
	}
	return nil
}

// Has tells whether there is a region of that name.
func (t *Topology) Has(name string) bool { return slices.Contains(t.Regions, Region{Name: name}) }

// RoundTripMS is the distance between two regions in milliseconds: 0 from a region to itself, RoundTripMSMax when it is not known.
func (t *Topology) RoundTripMS(a, b string) int {
	if a == b {
		return 0
	}
	pair := ordered(a, b)
	for _, d := range t.Distances {
		if len(d.Between) == 2 && ordered(d.Between[0], d.Between[1]) == pair {
			return d.RoundTripMS
		}
	}
	return RoundTripMSMax
}

// LongestMS is the longest round trip between two regions, in milliseconds.
func (t *Topology) LongestMS() int {
	longest := 0
	for _, d := range t.Distances {
		longest = max(longest, d.RoundTripMS)
	}
	return longest
}

// Nearest returns the regions among the given ones by their distance from one of them, then by name. That one itself, repetitions and
// names of no region are left out.
func (t *Topology) Nearest(from string, among []string) []string {
	var others []string
	for _, name := range among {
		if name != from && t.Has(name) {
			others = append(others, name)
		}
	}
	slices.SortFunc(others, func(a, b string) int {
		return cmp.Or(cmp.Compare(t.RoundTripMS(from, a), t.RoundTripMS(from, b)), cmp.Compare(a, b))
	})
	return slices.Compact(others)
}

func ordered(a, b string) [2]string { return [2]string{min(a, b), max(a, b)} }

// validName is the rule for names that a scheduler has; a test compares the two.
func validName(name string) bool {
	if name == "" || len(name) > NameLettersMax || name[0] < 'a' || name[0] > 'z' || name[len(name)-1] == '-' {
		return false
	}
	for _, c := range []byte(name) {
		if (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '-' {
			return false
		}
	}
	return true
}
