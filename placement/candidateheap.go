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
	slices.SortFunc(kept, func(a, b candidate) int {
		switch {
		case a.before(&b):
			return -1
		case b.before(&a):
			return 1
		default:
			return 0
		}
	})
	if len(kept) > candidatesMax {
		kept, k.complete = kept[:candidatesMax], false
	}
	clear(k.heap[len(kept):all])
	k.heap = kept // sorted is a heap
}
