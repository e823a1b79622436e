package hints

import (
	"context"
	"log/slog"
	"reflect"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/errandhq/errand/internal/devcluster"
	"github.com/errandhq/errand/internal/testdb"
	"github.com/errandhq/errand/scheduler"
	"github.com/errandhq/errand/scheduler/engine"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const limit = 30 * time.Second

func open(t *testing.T, r *devcluster.Redis, region string) *Bus {
	t.Helper()
	b, err := Open(r.URL(), region, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = b.Close() })
	return b
}

// listen runs a bus until the test ends and returns what it brings.
func listen(t *testing.T, b *Bus) <-chan []engine.Hint {
	t.Helper()
	got := make(chan []engine.Hint, 100)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- b.Run(ctx, func(h []engine.Hint) { got <- h }) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run: %v", err)
		}
	})
	return got
}

// until publishes again and again until a hint arrives: a subscriber hears only what comes after it has subscribed.
func until(t *testing.T, publish func(context.Context) error, got <-chan []engine.Hint) []engine.Hint {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	again := time.NewTicker(20 * time.Millisecond)
	defer again.Stop()
	for {
		_ = publish(ctx) // Redis may be away: that is what is tried here
		select {
		case h := <-got:
			return h
		case <-again.C:
		case <-ctx.Done():
			t.Fatal("no hint arrived")
		}
	}
}

var some = []engine.Hint{{
	Region: "eu", Shard: 3, Key: scheduler.BufferKey{Tenant: "acme", Tier: scheduler.Urgent, Class: -7}, Timed: true,
}}

func TestHintsReachTheRegion(t *testing.T) {
	r := testdb.Redis(t)
	got := listen(t, open(t, r, "eu"))
	other := listen(t, open(t, r, "us"))
	sender := open(t, r, "eu")
	if h := until(t, func(ctx context.Context) error { return sender.Publish(ctx, some) }, got); !reflect.DeepEqual(h, some) {
		t.Errorf("got %+v, want %+v", h, some)
	}
	if len(other) != 0 {
		t.Errorf("another region heard %+v", <-other)
	}
}

// P9: Redis may be killed and come back empty; hints go on without a restart of anything.
func TestHintsGoOnAfterRedisCameBack(t *testing.T) {
	r := testdb.Redis(t)
	got := listen(t, open(t, r, "eu"))
	sender := open(t, r, "eu")
	publish := func(ctx context.Context) error { return sender.Publish(ctx, some) }
	until(t, publish, got)
	r.Kill()
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	if err := publish(ctx); err == nil {
		t.Error("publishing to a dead Redis says that it went well")
	}
	for len(got) > 0 {
		<-got
	}
	if err := r.Start(ctx); err != nil {
		t.Fatal(err)
	}
	until(t, publish, got)
}

// Another version's message, or a stranger's, is passed over.
func TestWhatCannotBeReadIsPassedOver(t *testing.T) {
	r := testdb.Redis(t)
	b := open(t, r, "eu")
	got := listen(t, b)
	sender := open(t, r, "eu")
	until(t, func(ctx context.Context) error {
		for _, bad := range []string{"", "not json", `{"a": 1}`, "\x00"} {
			if err := sender.client.Publish(ctx, sender.channel, bad).Err(); err != nil {
				return err
			}
		}
		return sender.Publish(ctx, some)
	}, got)
	for len(got) > 0 {
		if h := <-got; !reflect.DeepEqual(h, some) {
			t.Errorf("heard %+v", h)
		}
	}
}

func TestABadURLIsRefused(t *testing.T) {
	if _, err := Open("localhost:6379", "eu", slog.New(slog.DiscardHandler)); err == nil {
		t.Error("a URL without a scheme was taken")
	}
}
