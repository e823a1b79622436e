// Package hints carries wake-up hints between the scheduler instances of a region over Redis publish/subscribe. Losing a hint,
// or all of Redis, costs time and nothing else: whoever serves a lane looks at it from time to time anyway.
package hints

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"

	"github.com/redis/go-redis/v9"

	"github.com/errandhq/errand/scheduler/engine"
)

// messageMax bounds a message that is read.
const messageMax = 256 << 10

// Bus is a connection to a region's channel.
type Bus struct {
	client  *redis.Client
	channel string
	log     *slog.Logger
}

// Open prepares a bus; it does not need Redis to be there.
func Open(url, region string, log *slog.Logger) (*Bus, error) {
	opts, err := redis.ParseURL(url)
	if err != nil {
		return nil, fmt.Errorf("the URL of Redis: %w", err)
	}
	return &Bus{client: redis.NewClient(opts), channel: "errand:{" + region + "}:hints", log: log}, nil
}

// Close ends the connection.
func (b *Bus) Close() error { return b.client.Close() }

// Publish sends hints to the other instances of the region.
func (b *Bus) Publish(ctx context.Context, hints []engine.Hint) error {
	raw, err := json.Marshal(hints)
	if err != nil {
		return err
	}
	return b.client.Publish(ctx, b.channel, raw).Err()
}

// Run brings the hints of others until ctx ends. The client connects again by itself.
func (b *Bus) Run(ctx context.Context, hinted func([]engine.Hint)) error {
	sub := b.client.Subscribe(ctx, b.channel)
	defer func() { _ = sub.Close() }() // nothing is lost with it
	messages := sub.Channel()
	for {
		select {
		case <-ctx.Done():
			return nil
		case m, open := <-messages:
			if !open {
				return nil
			}
			var hints []engine.Hint
			if len(m.Payload) > messageMax {
				continue
			}
			if err := json.Unmarshal([]byte(m.Payload), &hints); err != nil {
				b.log.Warn("a hint that cannot be read: another version of errand on this channel?", "error", err)
				continue
			}
			hinted(hints)
		}
	}
}
