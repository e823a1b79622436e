package regions

import (
	"cmp"
	"hash/fnv"
	"slices"
)

// Bounds of a region. They are part of the function below: all instances of a region must agree on them.
const (
	ShardsPerRegion    = 16
	InstancesPerRegion = 16
	// Max is how many regions there may be: the shards of all of them are numbered in one byte.
	Max = 256 / ShardsPerRegion
)

// Owner names a scheduler instance by its session.
type Owner [16]byte

// Lanes assigns each shard of a region to one of its live instances by bounded rendezvous hashing: each of n instances gets
// floor or ceil of shards/n, and a change of one instance moves few lanes. The i-th element of the answer owns shard i.
//
// owners may come in any order, and one that is named twice counts once; instances beyond InstancesPerRegion (in byte order) get nothing. With
// no owners the answer is nil. Sources: rendezvous hashing (Thaler and Ravishankar, 1996), bounded loads (Mirrokni, Thorup
// and Zadimoghaddam, 2016).
func Lanes(shards int, owners []Owner) []Owner {
	live := slices.Clone(owners)
	slices.SortFunc(live, func(a, b Owner) int { return slices.Compare(a[:], b[:]) })
	live = slices.Compact(live)
	live = live[:min(len(live), InstancesPerRegion)]
	if shards <= 0 || len(live) == 0 {
		return nil
	}

	type pair struct {
		weight       uint64
		shard, owner int
	}
	pairs := make([]pair, 0, shards*len(live))
	for s := range shards {
		for o, id := range live {
			pairs = append(pairs, pair{weight: weigh(s, id), shard: s, owner: o})
		}
	}
	slices.SortFunc(pairs, func(a, b pair) int {
		return cmp.Or(cmp.Compare(b.weight, a.weight), cmp.Compare(a.shard, b.shard), cmp.Compare(a.owner, b.owner))
	})

	floor, extras := shards/len(live), shards%len(live)
	held := make([]int, len(live))
	taken := make([]bool, shards)
	lanes := make([]Owner, shards)
	for _, p := range pairs {
		full := held[p.owner] > floor || (held[p.owner] == floor && extras == 0)
		if taken[p.shard] || full {
			continue
		}
		if held[p.owner] == floor {
			extras--
		}
		held[p.owner]++
		taken[p.shard] = true
		lanes[p.shard] = live[p.owner]
	}
	return lanes
}

// weigh is the rendezvous weight of a shard at an owner.
func weigh(shard int, owner Owner) uint64 {
	h := fnv.New64a()
	_, _ = h.Write(owner[:]) // a hash never fails
	_, _ = h.Write([]byte{byte(shard), byte(shard >> 8)})
	// FNV's last bytes barely reach the high bits; one round of a finalizer (MurmurHash3's) spreads them.
	x := h.Sum64()
	x ^= x >> 33
	x *= 0xff51afd7ed558ccd
	x ^= x >> 33
	return x
}
