package tokenbucket

import (
	"context"
	"strings"

	"github.com/redis/go-redis/v9"
)

// Evicts returns the policy by which Redis drops keys that are in use when its memory is full, for a warning: a bucket that is
// dropped is full again. It is empty when nothing is dropped, and when Redis does not say.
func (b *Buckets) Evicts(ctx context.Context) string {
	client, single := b.client.(*redis.Client)
	if !single { // none, or a cluster, whose servers may differ
		return ""
	}
	text, err := client.Info(ctx, "memory").Result()
	if err != nil {
		return ""
	}
	facts := map[string]string{}
	for line := range strings.SplitSeq(text, "\r\n") {
		if name, value, is := strings.Cut(line, ":"); is {
			facts[name] = value
		}
	}
	policy := facts["maxmemory_policy"]
	if facts["maxmemory"] == "0" || policy == "noeviction" {
		return ""
	}
	return policy
}
