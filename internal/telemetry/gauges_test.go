package telemetry

import (
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/errandhq/errand/scheduler"
	"github.com/errandhq/errand/scheduler/engine"
)

type still struct {
	status engine.Status
	clock  time.Duration
}

func (s still) Status() engine.Status { return s.status }
func (s still) Clock() time.Duration  { return s.clock }

func TestInstanceIsShown(t *testing.T) {
	tel := begin(t, Config{})
	err := tel.WatchInstance(still{
		status: engine.Status{
			Trusted: true, Lanes: 64, Workers: 3, Pending: 17, Unsettled: 2, Turned: 9 * time.Second, LastStore: 4 * time.Second,
			DiscoverCycle: 250 * time.Millisecond,
			Counts:        scheduler.Counts{Buffered: 1, Claiming: 2, Sent: 3, Running: 4, Stopping: 5, Ending: 6, Groups: 7, Gated: scheduler.Gated{Tenant: 8, Kind: 9, Limit: 10}},
		},
		clock: 10 * time.Second,
	})
	if err != nil {
		t.Fatal(err)
	}
	got := scrape(t, tel)
	for _, c := range []struct {
		want   float64
		name   string
		labels []string
	}{
		{1, "errand_session_trusted", nil},
		{0, "errand_stopping", nil},
		{64, "errand_lanes", nil},
		{3, "errand_workers", nil},
		{7, "errand_groups", nil},
		{17, "errand_submit_pending", nil},
		{2, "errand_unsettled_statements", nil},
		{1, "errand_progress_age_seconds", []string{"of", "turn"}},
		{6, "errand_progress_age_seconds", []string{"of", "store"}},
		{.25, "errand_discover_cycle_seconds", nil},
		{1, "errand_tasks_open", []string{"state", "buffered"}},
		{4, "errand_tasks_open", []string{"state", "running"}},
		{6, "errand_tasks_open", []string{"state", "ending"}},
		{8, "errand_tasks_held", []string{"gate", "tenant"}},
		{9, "errand_tasks_held", []string{"gate", "kind"}},
		{10, "errand_tasks_held", []string{"gate", "limit"}},
	} {
		if value := sample(t, got, c.name, c.labels...); value != c.want {
			t.Errorf("%s%v is %v, want %v", c.name, c.labels, value, c.want)
		}
	}
}

func TestPoolsAreShown(t *testing.T) {
	tel := begin(t, Config{})
	pool, err := pgxpool.New(t.Context(), "postgres://nobody@127.0.0.1:1/none?pool_max_conns=7")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	stats := map[string]*pgxpool.Stat{"hot": pool.Stat(), "control": pool.Stat()}
	of := func() map[string]*pgxpool.Stat { return stats }
	if err := tel.WatchPools(of); err == nil {
		t.Error("a missing pool is not noticed")
	}
	stats["general"] = pool.Stat()
	if err := tel.WatchPools(of); err != nil {
		t.Fatal(err)
	}
	got := scrape(t, tel)
	if limit := sample(t, got, "errand_store_connections_limit", "pool", "hot"); limit != 7 {
		t.Errorf("the limit is %v, want 7", limit)
	}
	for _, state := range []string{"in_use", "idle", "opening"} {
		if n := sample(t, got, "errand_store_connections", "pool", "general", "state", state); n != 0 {
			t.Errorf("%v connections are %s, want none", n, state)
		}
	}
	sample(t, got, "errand_store_acquire_waits_total", "pool", "control")
	sample(t, got, "errand_store_acquire_wait_seconds_total", "pool", "control")
}
