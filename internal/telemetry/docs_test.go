package telemetry

import (
	"io"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/errandhq/errand/scheduler"
	"github.com/errandhq/errand/scheduler/engine"
)

// docs/metrics.md and the source have the same metrics.
func TestDocsNameEveryMetric(t *testing.T) {
	tel := begin(t, Config{})
	pool, err := pgxpool.New(t.Context(), "postgres://nobody@127.0.0.1:1/none")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	stats := map[string]*pgxpool.Stat{"hot": pool.Stat(), "control": pool.Stat(), "general": pool.Stat()}
	if err := tel.WatchPools(func() map[string]*pgxpool.Stat { return stats }); err != nil {
		t.Fatal(err)
	}
	pictured := &scheduler.Picture{Tenants: make([]scheduler.TenantPicture, 1)}
	pictured.Tenants[0].Tiers[scheduler.Urgent].Open = 1
	if err := tel.WatchInstance(still{status: engine.Status{Picture: pictured}}); err != nil {
		t.Fatal(err)
	}
	o := observe(t, tel, io.Discard)
	o.Started(scheduler.Urgent, time.Second, time.Second)
	o.Ended(scheduler.Urgent, scheduler.Succeeded, time.Second)
	o.Submitted("answered", time.Second)
	o.Batch("claim", 1)
	tel.Statement("claim tasks", time.Second, io.EOF)

	text, err := os.ReadFile("../../docs/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	families := scrape(t, tel)
	for name := range families {
		if strings.HasPrefix(name, "errand_") && !strings.Contains(string(text), "`"+name+"`") {
			t.Errorf("docs/metrics.md does not explain %s", name)
		}
	}
	for _, name := range slices.Compact(slices.Sorted(slices.Values(regexp.MustCompile(`errand_[a-z_]+`).FindAllString(string(text), -1)))) {
		plain := strings.TrimSuffix(strings.TrimSuffix(name, "_bucket"), "_count")
		if families[name] == nil && families[plain] == nil {
			t.Errorf("docs/metrics.md names %s, which does not exist", name)
		}
	}
}
