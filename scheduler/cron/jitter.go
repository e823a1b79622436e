package cron

import (
	"hash/fnv"
	"math/bits"
	"time"
)

// Jitter is by how much each occurrence of a schedule fires later: from 0 until just before maximum, in milliseconds, evenly
// spread over schedules. It is the same for every occurrence, so that the time between two stays what the expression says and
// they never overtake each other; and it is the same wherever it is computed. A maximum of 0 or less is no jitter.
func Jitter(scheduleID string, maximum time.Duration) time.Duration {
	if maximum <= 0 {
		return 0
	}
	h := fnv.New64a()
	_, _ = h.Write([]byte(scheduleID)) // a hash never fails
	// FNV's last bytes barely reach the high bits; MurmurHash3's finalizer spreads them.
	x := h.Sum64()
	x ^= x >> 33
	x *= 0xff51afd7ed558ccd
	x ^= x >> 33
	x *= 0xc4ceb9fe1a85ec53
	x ^= x >> 33
	part, _ := bits.Mul64(x, uint64(maximum))
	return time.Duration(part).Truncate(time.Millisecond)
}
