package main

import (
	"slices"
	"strings"
	"testing"

	"github.com/errandhq/errand/scheduler"
)

const topologyText = `
version: 1
primary: eu
survival: region
regions: [{name: eu}, {name: us}, {name: ap}]
distances:
  - {between: [eu, us], round_trip_ms: 80}
  - {between: [eu, ap], round_trip_ms: 160}
  - {between: [us, ap], round_trip_ms: 120}
`

func TestATopologyIsRead(t *testing.T) {
	got, err := parseTopology([]byte(topologyText))
	if err != nil || got.RoundTripMS("ap", "us") != 120 || got.Primary != "eu" {
		t.Fatalf("%+v, %v", got, err)
	}
	for name, c := range map[string]struct{ from, to, want string }{
		"a misspelt key":   {"primary", "primery", "primery"},
		"no such region":   {"primary: eu", "primary: mars", "primary"},
		"a distance twice": {"[us, ap]", "[eu, us]", "distances[2]"},
		"no YAML":          {"regions: [", "regions: [[", ""},
	} {
		if _, err := parseTopology([]byte(strings.Replace(topologyText, c.from, c.to, 1))); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
}

func FuzzTopology(f *testing.F) {
	f.Add([]byte(topologyText))
	f.Add([]byte("regions: !!seq"))
	f.Fuzz(func(t *testing.T, raw []byte) {
		if got, err := parseTopology(raw); err == nil && len(got.Regions) == 0 {
			t.Error("a topology without regions")
		}
	})
}

func TestNamesByNumber(t *testing.T) {
	got := namesByNumber([]scheduler.RegionSettings{{Name: "us", Number: 2}, {Name: "eu"}})
	if !slices.Equal(got, []string{"eu", "", "us"}) {
		t.Errorf("%q", got)
	}
}
