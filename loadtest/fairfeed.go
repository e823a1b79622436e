package main

import (
	"context"
	"fmt"
	"time"

	"github.com/errandhq/errand"
)

// feeder keeps a tenant backlogged in every kind at one scheduler.
type feeder struct {
	client  *errand.Client
	mark    string // of its tasks: tenant, scheduler, kind
	kinds   []string
	takes   time.Duration
	backlog int64 // tasks of each kind that wait or run
	workers [2]*timed
	sent    []int64
}

// feedEvery is how often a feeder looks.
const feedEvery = 50 * time.Millisecond

// backlogTime is how long the backlog of a kind lasts though the tenant gets all slots of it.
const backlogTime = time.Second

// feeders are those of both tenants.
func (c *fairnessCmd) feeders(ctx context.Context, cl *cluster, of fairCase, workers [2]*timed) ([]*feeder, error) {
	var all []*feeder
	for _, tenant := range []struct {
		name   string
		weight float64
		takes  time.Duration
		at     []string
	}{{"a", of.a, c.Long, cl.urls}, {"b", of.b, c.Short, cl.urls}} {
		key, err := cl.makeTenant(ctx, "tenant-"+tenant.name, tenant.weight)
		if err != nil {
			return nil, err
		}
		for i, url := range tenant.at {
			if of.pinned && tenant.name == "a" && i > 0 {
				break
			}
			client, err := errand.NewClient(errand.Config{URLs: []string{url}, Key: key})
			if err != nil {
				return nil, err
			}
			all = append(all, &feeder{
				client: client, mark: fmt.Sprintf("%s/%d/", tenant.name, i+1), kinds: kindNames(c.Kinds), takes: tenant.takes, workers: workers,
				backlog: int64(4*c.Slots) + int64(float64(2*c.Slots)*backlogTime.Seconds()/tenant.takes.Seconds()), sent: make([]int64, c.Kinds),
			})
		}
	}
	return all, nil
}

// feed goes on until the context ends, which is no error.
func (f *feeder) feed(ctx context.Context) error {
	tick := time.NewTicker(feedEvery)
	defer tick.Stop()
	for {
		specs := f.wanted()
		for len(specs) > 0 {
			n := min(len(specs), feedBatch)
			if err := submitBatch(ctx, f.client, specs[:n]); err != nil {
				if ctx.Err() != nil {
					return nil
				}
				return err
			}
			specs = specs[n:]
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// feedBatch is the most tasks of one submission.
const feedBatch = 500

// wanted is what is missing in each kind. The kinds take turns, so that each has something soon.
func (f *feeder) wanted() []errand.Spec {
	one, two := f.workers[0].last(), f.workers[1].last()
	var specs []errand.Spec
	missing := make([]int64, len(f.kinds))
	for i, kind := range f.kinds {
		ended := one.Marks[f.mark+kind].Ended + two.Marks[f.mark+kind].Ended
		missing[i] = f.backlog - (f.sent[i] - ended)
	}
	for more := true; more; {
		more = false
		for i, kind := range f.kinds {
			if missing[i] <= 0 {
				continue
			}
			missing[i]--
			f.sent[i]++
			more = true
			specs = append(specs, errand.Spec{Kind: kind, Payload: orderOf(f.mark+kind, f.takes)})
		}
	}
	return specs
}
