package scheduler

import (
	"cmp"
	"maps"
	"slices"
)

// gateHeap orders the buffers that a gate holds back by tier, then by what is due first.
type gateHeap []*buffer

func (h gateHeap) Len() int { return len(h) }
func (h gateHeap) Less(i, j int) bool {
	a, b := h[i], h[j]
	return cmp.Or(cmp.Compare(a.key.tier, b.key.tier), a.head().compare(b.head())) < 0
}

func (h gateHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].spot, h[j].spot = i, j
}

func (h *gateHeap) Push(x any) {
	b := x.(*buffer)
	b.spot = len(*h)
	*h = append(*h, b)
}

func (h *gateHeap) Pop() any {
	old := *h
	b := old[len(old)-1]
	old[len(old)-1] = nil
	*h = old[:len(old)-1]
	return b
}

// openingHeap orders gates by when they open, then by name.
type openingHeap []*gate

func (h openingHeap) Len() int { return len(h) }
func (h openingHeap) Less(i, j int) bool {
	return cmp.Or(h[i].opens.Compare(h[j].opens), h[i].key.compare(h[j].key)) < 0
}

func (h openingHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].opensAt, h[j].opensAt = i, j
}

func (h *openingHeap) Push(x any) {
	g := x.(*gate)
	g.opensAt = len(*h)
	*h = append(*h, g)
}

func (h *openingHeap) Pop() any {
	old := *h
	g := old[len(old)-1]
	old[len(old)-1] = nil
	*h = old[:len(old)-1]
	g.opensAt = -1
	return g
}

func (k gateKey) compare(other gateKey) int {
	return cmp.Or(cmp.Compare(k.tenant, other.tenant), cmp.Compare(k.of, other.of), cmp.Compare(k.name, other.name), cmp.Compare(k.key, other.key))
}

func sortedGates(byKey map[gateKey]*gate) []*gate {
	return slices.SortedFunc(maps.Values(byKey), func(a, b *gate) int { return a.key.compare(b.key) })
}
