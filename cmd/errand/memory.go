package main

import (
	"context"
	"os"
	"runtime/debug"
	"runtime/metrics"
	"time"
)

// How a scheduler uses memory. What the environment says (GOGC, GOMEMLIMIT) wins.
const (
	// gcPercent is GOGC: a scheduler keeps little and makes much garbage, so a heap that grows to five times what is in use is still small,
	// and half the time of collecting is saved.
	gcPercent = 400
	// memoryLimit is GOMEMLIMIT while a third of it is enough for what is in use: beyond it garbage is collected sooner. When more is in use
	// the limit grows with it: at a limit that is too small a process does little but collect.
	memoryLimit    = 240 << 20
	memoryRoom     = 3
	memoryCheck    = 5 * time.Second
	liveHeapMetric = "/gc/heap/live:bytes"
)

func tuneGC() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(gcPercent)
	}
}

// keepMemory keeps the limit above what is in use, until ctx ends.
func keepMemory(ctx context.Context) {
	if os.Getenv("GOMEMLIMIT") != "" {
		return
	}
	tick := time.NewTicker(memoryCheck)
	defer tick.Stop()
	live := []metrics.Sample{{Name: liveHeapMetric}}
	for {
		metrics.Read(live)
		debug.SetMemoryLimit(max(memoryLimit, memoryRoom*int64(live[0].Value.Uint64())))
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}
