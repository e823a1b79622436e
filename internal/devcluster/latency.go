package devcluster

import (
	"bytes"
	"fmt"
	"slices"
	"time"

	"github.com/goccy/go-yaml"
)

// TheStore is the name of the shared store among the ends of lines; no region has it.
const TheStore = "store"

// RoundTripMax is the longest round trip of a line, in milliseconds.
const RoundTripMax = 10_000

// Latency says how far regions are from each other and from the store. What it does not name is near: 0 ms.
type Latency struct {
	// Store is the round trip in ms from each region to the store.
	Store map[string]float64 `yaml:"store"`
	// Distances are the round trips between regions, each pair once.
	Distances []Distance `yaml:"distances"`
}

// Distance is the round trip in ms between two regions.
type Distance struct {
	Between []string `yaml:"between"`
	MS      float64  `yaml:"ms"`
}

// ParseLatency reads a file for these regions, and refuses what it does not understand.
func ParseLatency(raw []byte, regions []string) (Latency, error) {
	var l Latency
	if err := yaml.NewDecoder(bytes.NewReader(raw), yaml.Strict()).Decode(&l); err != nil {
		return Latency{}, err
	}
	return l, l.Validate(regions)
}

// Validate names what is wrong with it for these regions.
func (l Latency) Validate(regions []string) error {
	for region, ms := range l.Store {
		if !slices.Contains(regions, region) {
			return fmt.Errorf("store: there is no region %q", region)
		}
		if err := checkRoundTrip(ms); err != nil {
			return fmt.Errorf("store: %s: %w", region, err)
		}
	}
	seen := map[Pair]bool{}
	for i, d := range l.Distances {
		if len(d.Between) != 2 || d.Between[0] == d.Between[1] {
			return fmt.Errorf("distances[%d]: between: name two regions", i)
		}
		for _, region := range d.Between {
			if !slices.Contains(regions, region) {
				return fmt.Errorf("distances[%d]: there is no region %q", i, region)
			}
		}
		if err := checkRoundTrip(d.MS); err != nil {
			return fmt.Errorf("distances[%d]: %w", i, err)
		}
		pair := PairOf(d.Between[0], d.Between[1])
		if seen[pair] {
			return fmt.Errorf("distances[%d]: %s was named before", i, pair)
		}
		seen[pair] = true
	}
	return nil
}

func checkRoundTrip(ms float64) error {
	if !(ms >= 0 && ms <= RoundTripMax) {
		return fmt.Errorf("ms: %v is not between 0 and %d", ms, RoundTripMax)
	}
	return nil
}

// RoundTrip is how far two ends are from each other.
func (l Latency) RoundTrip(p Pair) time.Duration {
	if p.B == TheStore {
		return milliseconds(l.Store[p.A])
	}
	for _, d := range l.Distances {
		if PairOf(d.Between[0], d.Between[1]) == p {
			return milliseconds(d.MS)
		}
	}
	return 0
}

func milliseconds(ms float64) time.Duration { return time.Duration(ms * float64(time.Millisecond)) }

// Pair is two ends in a fixed order: by name, the store last.
type Pair struct{ A, B string }

// PairOf puts two ends in order.
func PairOf(a, b string) Pair {
	if a == TheStore || b != TheStore && b < a {
		a, b = b, a
	}
	return Pair{a, b}
}

func (p Pair) String() string { return p.A + " and " + p.B }
