package main

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"golang.org/x/sync/errgroup"

	"github.com/errandhq/errand"
)

// flood submits batches at the rate. Batches that the scheduler refuses, or for which it is too slow, are counted and left out.
func (c *noisyCmd) flood(ctx context.Context, client *errand.Client, tiers []errand.Tier, end time.Time, got *noisyRun) error {
	var calls errgroup.Group
	calls.SetLimit(floodCalls)
	var accepted, refused atomic.Int64
	began := time.Now()
	batches := 0
	err := c.steadily(ctx, time.Second*floodBatch/time.Duration(c.Rate*c.Flood), end, func() {
		tier := tiers[0]
		if n := batches % trickle; n > 0 && n < len(tiers) {
			tier = tiers[n]
		}
		batches++
		taken := calls.TryGo(func() error {
			if err := submitBatch(ctx, client, c.batch(tier)); err != nil {
				refused.Add(floodBatch)
				return nil //nolint:nilerr // a refusal is what a flood may get
			}
			accepted.Add(floodBatch)
			return nil
		})
		if !taken {
			got.LeftOut += floodBatch
		}
	})
	_ = calls.Wait() // they return none
	got.PerS, got.Refused = float64(accepted.Load())/time.Since(began).Seconds(), refused.Load()
	return err
}

func (c *noisyCmd) batch(tier errand.Tier) []errand.Spec {
	specs := make([]errand.Spec, floodBatch)
	for i := range specs {
		specs[i] = errand.Spec{Kind: "work-1", Tier: tier, Payload: orderOf("loud", c.Work)}
		switch tier { // the least that may be asked for, so that it is soon seen whether overdue work is served
		case errand.Standard:
			specs[i].DelayTolerance = 10 * time.Second
		case errand.Deferrable:
			specs[i].DelayTolerance = 10 * time.Minute
		default:
		}
	}
	return specs
}

// tierWait is how the tasks of a tenant in one tier have fared so far.
type tierWait struct {
	Tier    int16   `json:"tier"`
	Tasks   int64   `json:"tasks"`
	Started int64   `json:"started"`
	Oldest  float64 `json:"oldest_wait_s"` // the longest wait, of those that wait still too
	Late    float64 `json:"late_s"`        // the same beyond what was due
	Bound   float64 `json:"bound_s"`       // the largest that was exported meanwhile; 0 when nothing waited
	Within  bool    `json:"within_bound"`
	Starved bool    `json:"starved"` // overdue ones wait, and none has started for stillness
}

// stillness is how long a tier with overdue work may go without a start.
const stillness = 10 * time.Second

// tierWaits asks the store how a tenant's tiers have fared.
func (c *cluster) tierWaits(ctx context.Context, tenant string) ([]tierWait, error) {
	conn, err := pgx.Connect(ctx, c.postgres.DSN(c.database))
	if err != nil {
		return nil, err
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	rows, err := conn.Query(ctx, `
		SELECT tier, count(*), count(started_at),
			max(extract(epoch FROM coalesce(started_at, now()) - ready_at))::float8,
			greatest(max(extract(epoch FROM coalesce(started_at, now()) - due)), 0)::float8,
			coalesce(min(due) FILTER (WHERE started_at IS NULL) < now() - $2::interval, false)
				AND coalesce(max(started_at) < now() - $2::interval, true)
		FROM tasks WHERE tenant = $1 GROUP BY tier ORDER BY tier`, tenant, stillness)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (tierWait, error) {
		var w tierWait
		err := row.Scan(&w.Tier, &w.Tasks, &w.Started, &w.Oldest, &w.Late, &w.Starved)
		return w, err
	})
}

// clientOf makes a tenant and a client of it, for these schedulers or, where none are named, for all.
func (c *cluster) clientOf(ctx context.Context, tenant string, weight float64) (*errand.Client, error) {
	key, err := c.makeTenant(ctx, tenant, weight)
	if err != nil {
		return nil, err
	}
	return errand.NewClient(errand.Config{URLs: c.urls, Key: key})
}
