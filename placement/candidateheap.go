package placement

import "slices"

// The heap of a seeker, written out: it is where the time goes.

func (k *seeker) push(c candidate) {
	k.heap = append(k.heap, c)
	i := len(k.heap) - 1
	for i > 0 {
		above := (i - 1) / 2
		if !k.heap[i].before(&k.heap[above]) {
			break
		}
		k.heap[i], k.heap[above] = k.heap[above], k.heap[i]
		i = above
	}
}

func (k *seeker) pop() {
	last := len(k.heap) - 1
	k.heap[0] = k.heap[last]
	k.heap[last] = candidate{}
	k.heap = k.heap[:last]
	for i := 0; ; {
		least := i
		for below := 2*i + 1; below <= 2*i+2 && below < last; below++ {
			if k.heap[below].before(&k.heap[least]) {
				least = below
			}
		}
		if least == i {
			return
		}
		k.heap[i], k.heap[least] = k.heap[least], k.heap[i]
		i = least
	}
}

// trim drops stale candidates, and the worst of the others when they are too many: then not everybody with room is known any more.
func (k *seeker) trim() {
	all := len(k.heap)
	kept := slices.DeleteFunc(k.heap, func(c candidate) bool { return c.stale() })
	if len(kept) > candidatesMax {
		k.complete = false
	}
	kept = bestOf(kept, candidatesMax)
	clear(k.heap[len(kept):all])
	k.heap = kept
}

// bestOf returns the best of some candidates, in order: a heap too.
func bestOf(all []candidate, limit int) []candidate {
	// At first any that many are kept as a heap with the worst on top, then each better one takes its place.
	kept := all[:min(limit, len(all))]
	for i := len(kept)/2 - 1; i >= 0; i-- {
		sink(kept, i)
	}
	for i := len(kept); i < len(all); i++ {
		if all[i].before(&kept[0]) {
			kept[0], all[i] = all[i], kept[0]
			sink(kept, 0)
		}
	}
	for last := len(kept) - 1; last > 0; last-- {
		kept[0], kept[last] = kept[last], kept[0]
		sink(kept[:last], 0)
	}
	return kept
}

// sink moves a candidate down in a heap with the worst on top.
func sink(h []candidate, i int) {
	for {
		worst := i
		for below := 2*i + 1; below <= 2*i+2 && below < len(h); below++ {
			if h[worst].before(&h[below]) {
				worst = below
			}
		}
		if worst == i {
			return
		}
		h[i], h[worst] = h[worst], h[i]
		i = worst
	}
}
