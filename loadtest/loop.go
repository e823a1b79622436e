package main

import (
	"context"
	"math"
	"sync/atomic"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sync/semaphore"

	"github.com/errandhq/errand"
)

// standardPart is the part of the slots that standard work may fill before it is overdue; the rest is kept for more urgent work.
const standardPart = 0.95

// outstandingOf is how many standard tasks run at once in so many slots, hence how many a closed loop keeps between submit and recorded
// end. One more would not start before another has ended: it would be stored as waiting and claimed later, a statement more, and what
// is measured would be the way from a backlog.
func outstandingOf(slots int) int { return int(math.Ceil(standardPart * float64(slots))) }

// loop hands tasks to Errand.
type loop struct {
	client      *errand.Client
	total       int
	batch       int                                               // tasks of one submission
	outstanding int                                               // at most so many are between submit and recorded end
	specs       func(from, n int) []errand.Spec                   // of the tasks with these numbers
	await       func(ctx context.Context, n int64) (int64, error) // waits until more than n ends of them are recorded, and says how many
}

// submitters is how many submissions are on their way at once: enough to keep the scheduler busy.
const submitters = 4

// run returns when the end of each is recorded.
func (l *loop) run(ctx context.Context) error {
	room := semaphore.NewWeighted(int64(l.outstanding))
	group, groupCtx := errgroup.WithContext(ctx)
	group.Go(func() error { // what has ended makes room
		for ended := int64(0); ended < int64(l.total); {
			now, err := l.await(groupCtx, ended)
			if err != nil {
				return err
			}
			room.Release(now - ended)
			ended = now
		}
		return nil
	})
	group.Go(func() error { return l.submit(groupCtx, room) })
	return group.Wait()
}

// submit returns when all are stored.
func (l *loop) submit(ctx context.Context, room *semaphore.Weighted) error {
	size := min(l.batch, max(l.outstanding/4, 1))
	group, ctx := errgroup.WithContext(ctx)
	var next atomic.Int64
	for range submitters {
		group.Go(func() error {
			for {
				from := int(next.Add(int64(size))) - size
				if from >= l.total {
					return nil
				}
				n := min(size, l.total-from)
				if err := room.Acquire(ctx, int64(n)); err != nil {
					return err
				}
				if err := submitBatch(ctx, l.client, l.specs(from, n)); err != nil {
					return err
				}
			}
		})
	}
	return group.Wait()
}

func submitBatch(ctx context.Context, client *errand.Client, specs []errand.Spec) error {
	outcomes, err := client.SubmitMany(ctx, specs)
	if err != nil {
		return err
	}
	for _, o := range outcomes {
		if o.Err != nil {
			return o.Err
		}
	}
	return nil
}
