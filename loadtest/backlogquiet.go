package main

import (
	"context"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
	"golang.org/x/sync/errgroup"

	"github.com/errandhq/errand"
)

// quietRun is what the quiet tenant's tasks of one tier have waited, from submit to handler start.
type quietRun struct {
	Tier      string  `json:"tier"`
	P50       float64 `json:"p50_ms"`
	P99       float64 `json:"p99_ms"`
	Max       float64 `json:"max_ms"`
	Submitted int64   `json:"submitted"`
	Missing   int64   `json:"missing"` // not started within a minute: longer waits than any that is counted
	mark      string
	waits     *hdrhistogram.Histogram
}

// count takes the waits from the worker's last tally.
func (q *quietRun) count(last tally) {
	q.waits = last.waitsOf(q.mark)
	q.Missing = q.Submitted - q.waits.TotalCount()
	all := newWaits()
	all.Merge(q.waits)
	_ = all.RecordValues(waitMax, q.Missing) // within its bounds
	q.P50, q.P99, q.Max = float64(all.ValueAtQuantile(50))/1000, float64(all.ValueAtQuantile(99))/1000, float64(all.Max())/1000
}

// quiet submits single tasks, urgent and standard in turn, until the context ends, whatever becomes of the earlier ones.
func (c *backlogCmd) quiet(ctx context.Context, client *errand.Client, of string) ([]quietRun, error) {
	got := []quietRun{{Tier: "urgent", mark: "quiet/urgent/" + of}, {Tier: "standard", mark: "quiet/standard/" + of}}
	tiers := [...]errand.Tier{errand.Urgent, errand.Standard}
	calls, callCtx := errgroup.WithContext(context.WithoutCancel(ctx)) // what is on its way counts
	calls.SetLimit(quietCalls)
	tick := time.NewTicker(time.Second / time.Duration(c.Rate))
	defer tick.Stop()
	for n := 0; ; n++ {
		select {
		case <-ctx.Done():
			return got, calls.Wait()
		case <-callCtx.Done():
			return got, calls.Wait()
		case <-tick.C:
		}
		q, tier := &got[n%len(got)], tiers[n%len(got)]
		q.Submitted++
		calls.Go(func() error {
			_, err := client.Submit(callCtx, errand.Spec{Kind: "work-1", Tier: tier, Payload: orderOf(q.mark, 0)})
			return err
		})
	}
}

// started waits for the quiet tenant's last tasks; those that have not started in time are missing.
func (c *backlogCmd) started(ctx context.Context, w *timed, quiet []quietRun) error {
	_, err := until(ctx, quietPatience, func() bool {
		last := w.last()
		for _, q := range quiet {
			if last.Marks[q.mark].Started < q.Submitted {
				return false
			}
		}
		return true
	})
	return err
}

// quietPatience is how long the last of them may take to start.
const quietPatience = time.Minute

// busy is the closed loop of another tenant. Its ends are those that are recorded, less what others have ended in the meantime.
func (c *backlogCmd) busy(db *backlogged, w *timed) *loop {
	payload := c.payload("busy")
	recorded := func(t tally) int64 { return t.Answered - sum("", t).Ended + t.Marks["busy"].Ended }
	return &loop{
		client: db.busy, total: busyMax, batch: 1000, outstanding: outstandingOf(c.Slots),
		specs: func(_, n int) []errand.Spec {
			specs := make([]errand.Spec, n)
			for i := range specs {
				specs[i] = errand.Spec{Kind: "work-1", Payload: payload}
			}
			return specs
		},
		await: func(ctx context.Context, n int64) (int64, error) {
			t, err := w.when(ctx, func(t tally) bool { return recorded(t) > n })
			return recorded(t), err
		},
	}
}

// busyMax bounds the closed loop, which ends with the measurement.
const busyMax = 1_000_000_000
