package main

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/errandhq/errand/fairness/tokenbucket"
	"github.com/errandhq/errand/scheduler/engine"
)

// admission is the region's token buckets, which are told at each call how many instances share a tenant's rate.
type admission struct {
	*tokenbucket.Buckets
	shell *engine.Shell
}

// Admit asks the buckets.
func (a admission) Admit(ctx context.Context, asks []tokenbucket.Ask) []tokenbucket.Answer {
	a.SetInstances(1 + len(a.shell.Status().Others))
	return a.Buckets.Admit(ctx, asks)
}

// evictionAskMax bounds the one question to Redis about its memory.
const evictionAskMax = time.Second

// warnOfEviction says it once when Redis drops keys that are in use. A Redis that does not say is not asked again.
func warnOfEviction(ctx context.Context, b *tokenbucket.Buckets, log *slog.Logger) {
	ctx, cancel := context.WithTimeout(ctx, evictionAskMax)
	defer cancel()
	if policy := b.Evicts(ctx); policy != "" {
		log.Warn("Redis drops keys in use when its memory is full: each time a tenant may submit one more burst; noeviction is better",
			"maxmemory_policy", policy)
	}
}

// quietRedis makes the client's own words about lost connections messages of a log, for whoever debugs; it would write to standard
// error. They are the process's, hence the first log's that comes.
var quietRedis = func() func(*slog.Logger) {
	var once sync.Once
	return func(log *slog.Logger) { once.Do(func() { redis.SetLogger(redisLog{log}) }) }
}()

type redisLog struct{ log *slog.Logger }

// Printf logs.
func (r redisLog) Printf(ctx context.Context, format string, args ...any) {
	if r.log.Enabled(ctx, slog.LevelDebug) {
		r.log.DebugContext(ctx, fmt.Sprintf(format, args...))
	}
}
