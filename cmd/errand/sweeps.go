package main

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"time"

	"github.com/errandhq/errand/internal/store"
	"github.com/errandhq/errand/scheduler/engine"
)

// sweepEvery is how often an instance sweeps its lanes, jittered so that instances that started together do not sweep together.
const sweepEvery = time.Minute

// sweep purges what ended long ago in this instance's lanes and folds the ledger, until ctx ends. A sweep that fails is tried
// again at the next turn: nothing waits for it.
func sweep(ctx context.Context, shell *engine.Shell, st *store.Store, region string, keep time.Duration, log *slog.Logger) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(sweepEvery/2 + rand.N(sweepEvery)):
		}
		status := shell.Status()
		if !status.Trusted {
			continue
		}
		purged := 0
		for _, shard := range status.Shards {
			n, err := st.Sweep(ctx, region, shard, keep)
			purged += n
			if err != nil && ctx.Err() == nil {
				log.Warn("a sweep of old tasks failed and is tried again", "lane", shard, "error", err)
				break
			}
		}
		folded := 0
		if len(status.Shards) > 0 && status.Shards[0] == 0 { // whoever serves the first lane folds
			n, err := st.FoldLedger(ctx, region)
			folded = n
			if err != nil && ctx.Err() == nil {
				log.Warn("folding the ledger failed and is tried again", "error", err)
			}
		}
		if purged > 0 {
			log.Info("purged tasks that ended long ago", "tasks", purged, "ledger_rows_folded", folded)
		}
	}
}
