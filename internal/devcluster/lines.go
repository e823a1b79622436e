package devcluster

import (
	"cmp"
	"fmt"
	"slices"
	"sync"
	"time"
)

// LinesMax is the most lines of one deployment: 16 regions with 4 schedulers each, which every other region reaches over a line.
const LinesMax = 1024

// Lines are all lines of a deployment, by the pair of ends that they connect.
type Lines struct {
	latency Latency

	mu    sync.Mutex
	links map[Pair]*link
	count int
}

// link is everything between two ends: one state and one distance, whichever line is used.
type link struct {
	lines  []*Line
	state  LineState
	factor float64 // of the round trip
}

// LinkStatus is what stands between two ends.
type LinkStatus struct {
	Between [2]string `json:"between"`
	State   LineState `json:"state"`
	MS      float64   `json:"ms"` // the round trip now
	Lines   int       `json:"lines"`
}

// NewLines prepares lines of these lengths.
func NewLines(l Latency) *Lines { return &Lines{latency: l, links: map[Pair]*link{}} }

// Between lays a line between two ends to an address of one of them, and returns where it begins: HOST:PORT, or a socket's path.
func (ls *Lines) Between(a, b string, ends LineEnds) (addr string, err error) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	if ls.count >= LinesMax {
		return "", fmt.Errorf("more than %d lines: fewer regions or schedulers, please", LinesMax)
	}
	pair := PairOf(a, b)
	k := ls.links[pair]
	if k == nil {
		k = &link{state: LineOpen, factor: 1}
		ls.links[pair] = k
	}
	line, err := NewLine(ends, ls.roundTrip(pair, k.factor))
	if err != nil {
		return "", err
	}
	line.SetState(k.state)
	k.lines = append(k.lines, line)
	ls.count++
	return line.Addr(), nil
}

func (ls *Lines) roundTrip(p Pair, factor float64) time.Duration {
	return time.Duration(float64(ls.latency.RoundTrip(p)) * factor)
}

// FactorMax is the most that a distance can be multiplied by.
const FactorMax = 1000

// Change is what becomes of a link. Zero fields leave things as they are.
type Change struct {
	State  LineState `json:"state"`
	Factor float64   `json:"factor"` // of the round trip that the latency names, at most FactorMax
}

// Set changes everything between two ends.
func (ls *Lines) Set(a, b string, c Change) error {
	switch c.State {
	case "", LineOpen, LineCut, LineClosed:
	default:
		return fmt.Errorf("state: %q is not one of open, cut, closed", c.State)
	}
	if !(c.Factor >= 0 && c.Factor <= FactorMax) {
		return fmt.Errorf("factor: %v is not between 0 and %d", c.Factor, FactorMax)
	}
	ls.mu.Lock()
	defer ls.mu.Unlock()
	pair := PairOf(a, b)
	k := ls.links[pair]
	if k == nil {
		return fmt.Errorf("there is no line between %s", pair)
	}
	k.state = cmp.Or(c.State, k.state)
	k.factor = cmp.Or(c.Factor, k.factor)
	for _, line := range k.lines {
		line.SetRoundTrip(ls.roundTrip(pair, k.factor))
		line.SetState(k.state)
	}
	return nil
}

// SetAll changes everything between one end and the others; with the store, or between regions only.
func (ls *Lines) SetAll(region string, withStore bool, c Change) error {
	for _, s := range ls.Status() {
		if s.Between[0] != region && s.Between[1] != region || s.Between[1] == TheStore && !withStore {
			continue
		}
		if err := ls.Set(s.Between[0], s.Between[1], c); err != nil {
			return err
		}
	}
	return nil
}

// Status is what stands, by names.
func (ls *Lines) Status() []LinkStatus {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	all := make([]LinkStatus, 0, len(ls.links))
	for pair, k := range ls.links {
		trip := ls.roundTrip(pair, k.factor)
		all = append(all, LinkStatus{
			Between: [2]string{pair.A, pair.B}, State: k.state, MS: float64(trip) / float64(time.Millisecond), Lines: len(k.lines),
		})
	}
	slices.SortFunc(all, func(a, b LinkStatus) int { return slices.Compare(a.Between[:], b.Between[:]) })
	return all
}

// Close ends all lines.
func (ls *Lines) Close() {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	for _, k := range ls.links {
		for _, line := range k.lines {
			line.Close()
		}
	}
	clear(ls.links)
}
