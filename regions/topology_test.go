package regions

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"
	"pgregory.net/rapid"
)

// world is the topology that the tests of this package share: eu and us are near, ap is far from both.
func world() Topology {
	return Topology{
		Version: 1, Primary: "eu", Survival: SurviveRegion,
		Regions: []Region{{"ap"}, {"eu"}, {"us"}},
		Distances: []Distance{
			{Between: []string{"eu", "us"}, RoundTripMS: 80},
			{Between: []string{"ap", "us"}, RoundTripMS: 150},
			{Between: []string{"eu", "ap"}, RoundTripMS: 220},
		},
	}
}

// drawTopology draws regions with random distances, of which several are the same.
func drawTopology(least int) *rapid.Generator[Topology] {
	return rapid.Custom(func(t *rapid.T) Topology {
		n := rapid.IntRange(least, 6).Draw(t, "regions")
		top := Topology{Version: 1, Primary: "r0", Survival: SurviveZone}
		for i := range n {
			top.Regions = append(top.Regions, Region{fmt.Sprintf("r%d", i)})
			for j := range i {
				d := Distance{Between: []string{top.Regions[i].Name, top.Regions[j].Name}, RoundTripMS: 10 * rapid.IntRange(0, 4).Draw(t, "distance")}
				top.Distances = append(top.Distances, d)
			}
		}
		return top
	})
}

func names(t *Topology) []string {
	var all []string
	for _, r := range t.Regions {
		all = append(all, r.Name)
	}
	return all
}

// shuffled is the same topology with everything in another order.
func shuffled(t *rapid.T, top Topology) Topology {
	top.Regions = rapid.Permutation(top.Regions).Draw(t, "order of regions")
	if len(top.Distances) > 0 {
		top.Distances = rapid.Permutation(top.Distances).Draw(t, "order of distances")
	}
	top.Distances = slices.Clone(top.Distances)
	for i := range top.Distances {
		if rapid.Bool().Draw(t, "turned") {
			top.Distances[i].Between = slices.Clone(top.Distances[i].Between)
			slices.Reverse(top.Distances[i].Between)
		}
	}
	return top
}

func TestATopologyNamesWhatIsWrong(t *testing.T) {
	tests := map[string]struct {
		change func(*Topology)
		want   string
	}{
		"nothing":            {func(*Topology) {}, ""},
		"no survival":        {func(t *Topology) { t.Survival = "" }, ""},
		"one region":         {func(t *Topology) { *t = Single("local") }, ""},
		"version":            {func(t *Topology) { t.Version = 0 }, "version"},
		"no regions":         {func(t *Topology) { t.Regions = nil }, "regions: there are 0"},
		"many regions":       {func(t *Topology) { t.Regions = make([]Region, RegionsMax+1) }, "regions: there are 17"},
		"no name":            {func(t *Topology) { t.Regions[1].Name = "" }, "regions[1].name"},
		"a dot in a name":    {func(t *Topology) { t.Regions[1].Name = "eu.west" }, "regions[1].name"},
		"a digit first":      {func(t *Topology) { t.Regions[1].Name = "1eu" }, "regions[1].name"},
		"a long name":        {func(t *Topology) { t.Regions[1].Name = strings.Repeat("x", NameLettersMax+1) }, "regions[1].name"},
		"a name twice":       {func(t *Topology) { t.Regions[2] = t.Regions[0] }, "regions[2].name"},
		"no primary":         {func(t *Topology) { t.Primary = "" }, "primary"},
		"an unknown goal":    {func(t *Topology) { t.Survival = "planet" }, "survival"},
		"too few to survive": {func(t *Topology) { t.Regions, t.Distances = t.Regions[1:], t.Distances[:1] }, "survival"},
		"a stranger":         {func(t *Topology) { t.Distances[1].Between[0] = "mars" }, `distances[1].between: "mars"`},
		"to itself":          {func(t *Topology) { t.Distances[1].Between[0] = "us" }, "distances[1].between"},
		"a pair twice":       {func(t *Topology) { t.Distances[1].Between = []string{"us", "eu"} }, "distances[1].between"},
		"of one region":      {func(t *Topology) { t.Distances[1].Between = []string{"us"} }, "distances[1].between names 1"},
		"negative":           {func(t *Topology) { t.Distances[2].RoundTripMS = -1 }, "distances[2].round_trip_ms"},
		"in nanoseconds":     {func(t *Topology) { t.Distances[2].RoundTripMS = 80_000_000 }, "distances[2].round_trip_ms"},
		"a pair is missing":  {func(t *Topology) { t.Distances = t.Distances[:2] }, "distances: none between ap and eu"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			top := world()
			tt.change(&top)
			err := top.Validate()
			if tt.want == "" && err != nil {
				t.Fatal(err)
			}
			if tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)) {
				t.Errorf("got %v, want an error that names %q", err, tt.want)
			}
		})
	}
}

func TestNearest(t *testing.T) {
	top := world()
	all := []string{"eu", "mars", "ap", "us", "ap"}
	for from, want := range map[string]string{"eu": "us ap", "us": "eu ap", "ap": "us eu"} {
		if got := strings.Join(top.Nearest(from, all), " "); got != want {
			t.Errorf("from %s: %q, want %q", from, got, want)
		}
	}
	if a, b := top.RoundTripMS("eu", "eu"), top.RoundTripMS("eu", "mars"); a != 0 || b != RoundTripMSMax {
		t.Errorf("to itself %d, to a stranger %d", a, b)
	}
}

func TestNearestDoesNotDependOnOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		top := drawTopology(1).Draw(t, "topology")
		turned := shuffled(t, top)
		from := rapid.SampledFrom(names(&top)).Draw(t, "from")
		a, b := top.Nearest(from, names(&top)), turned.Nearest(from, names(&turned))
		if !slices.Equal(a, b) {
			t.Fatalf("%v or %v, by the order of the file", a, b)
		}
		for i := 1; i < len(a); i++ {
			if top.RoundTripMS(from, a[i-1]) > top.RoundTripMS(from, a[i]) {
				t.Fatalf("%s is not the nearer one: %v", a[i-1], a)
			}
		}
	})
}

// fromYAML is how a command reads the file.
func fromYAML(raw string) (Topology, error) {
	var values any
	if err := yaml.Unmarshal([]byte(raw), &values); err != nil {
		return Topology{}, err
	}
	plain, err := json.Marshal(values)
	if err != nil {
		return Topology{}, err
	}
	return ParseTopology(plain)
}

const worldFile = `
version: 1
primary: eu
survival: region
regions:
  - name: ap
  - name: eu
  - name: us
distances:
  - {between: [eu, us], round_trip_ms: 80}
  - {between: [ap, us], round_trip_ms: 150}
  - {between: [eu, ap], round_trip_ms: 220}
`

func TestATopologyIsAFile(t *testing.T) {
	top, err := fromYAML(worldFile)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := fmt.Sprint(top), fmt.Sprint(world()); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	for text, want := range map[string]string{
		worldFile + "surival: zone\n": `unknown field "surival"`,
		"version: one":                "version",
		"":                            "version 0",
		"[]":                          "array",
	} {
		if _, err := fromYAML(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want an error that names %s", text, err, want)
		}
	}
	if _, err := ParseTopology([]byte(`{"version": 1, "primary": "a", "regions": [{"name": "a"}]} {}`)); err == nil {
		t.Error("what follows is ignored")
	}
}

// Whatever the file says, what is let pass has an order of nearest regions that holds all others, and can be written and read again.
func FuzzParseTopology(f *testing.F) {
	whole, err := json.Marshal(world())
	if err != nil {
		f.Fatal(err)
	}
	f.Add(whole)
	f.Add([]byte(`{"version": 1, "primary": "a", "regions": [{"name": "a"}]}`))
	f.Add([]byte(`{"distances": [{"between": ["a", "a", "a"]}]}`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		top, err := ParseTopology(raw)
		if err != nil {
			return
		}
		for _, r := range top.Regions {
			if got := top.Nearest(r.Name, names(&top)); len(got) != len(top.Regions)-1 {
				t.Errorf("from %s: %v", r.Name, got)
			}
		}
		written, err := json.Marshal(top)
		if err != nil {
			t.Fatal(err)
		}
		if again, err := ParseTopology(written); err != nil || fmt.Sprint(again) != fmt.Sprint(top) {
			t.Errorf("%s is read as %v, %v", written, again, err)
		}
	})
}
