package main

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/errandhq/errand"
)

const (
	loadBatch     = 5                      // tasks of one submission
	loadWaiting   = 64                     // submissions of a region that wait for an answer; then it submits less
	loadPause     = 500 * time.Millisecond // before a submission that was not accepted is sent again
	loadCallLimit = time.Minute            // for one answer: the SDK asks other schedulers by itself
	laterEach     = 5                      // of so many tasks one is for later, so that a region always has tasks that are not due yet
	laterMax      = 20 * time.Second
)

// clients hold what all of them, in every region, have handed over.
type clients struct {
	mu       sync.Mutex
	accepted map[string]time.Time // task id: when it was first sent, or wanted when that is later
}

// run submits at a rate, from clients in every region, until stop; then it waits until all that was sent has been accepted, or ctx ends.
func (l *clients) run(ctx context.Context, d *deployment, rate int, stop <-chan struct{}) error {
	group, ctx := errgroup.WithContext(ctx)
	for _, p := range d.regions {
		group.Go(func() error { return l.submit(ctx, p, rate/len(d.regions), stop) })
	}
	return group.Wait()
}

// submit is one region's clients: what one of them waits for does not hold the others up.
func (l *clients) submit(ctx context.Context, p *regionParts, rate int, stop <-chan struct{}) error {
	every := time.NewTicker(time.Second * loadBatch / time.Duration(max(rate, loadBatch)))
	defer every.Stop()
	var sending sync.WaitGroup
	defer sending.Wait()
	waiting := make(chan struct{}, loadWaiting)
	for n := 0; ; n++ {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-stop:
			return nil
		case <-every.C:
		}
		select {
		case <-stop:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		case waiting <- struct{}{}:
		}
		specs, err := moves(p.name, n)
		if err != nil {
			return err
		}
		sending.Go(func() {
			defer func() { <-waiting }()
			l.offer(ctx, p.client, specs)
		})
	}
}

// moves are a batch of tasks, with keys of their own.
func moves(region string, batch int) ([]errand.Spec, error) {
	specs := make([]errand.Spec, loadBatch)
	for i := range specs {
		payload, err := json.Marshal(drawMove())
		if err != nil {
			return nil, err
		}
		specs[i] = errand.Spec{Kind: moveKind, Payload: payload, IdempotencyKey: fmt.Sprintf("%s-%d-%d", region, batch, i)}
		if (batch*loadBatch+i)%laterEach == 0 {
			specs[i].RunAt = time.Now().Add(rand.N(laterMax))
		}
	}
	return specs, nil
}

// offer submits as a careful client does: again and again with the same keys, until all are accepted or ctx ends.
func (l *clients) offer(ctx context.Context, client *errand.Client, specs []errand.Spec) {
	sent := time.Now()
	for len(specs) > 0 {
		call, cancel := context.WithTimeout(ctx, loadCallLimit)
		outcomes, err := client.SubmitMany(call, specs)
		cancel()
		if err == nil {
			specs = l.take(specs, outcomes, sent)
		}
		if len(specs) > 0 && pause(ctx, loadPause) != nil {
			return
		}
	}
}

// take remembers what was accepted and returns the rest.
func (l *clients) take(specs []errand.Spec, outcomes []errand.Outcome, sent time.Time) (rest []errand.Spec) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i, o := range outcomes {
		if o.Err != nil {
			rest = append(rest, specs[i])
		} else {
			l.accepted[o.ID] = sent
			if specs[i].RunAt.After(sent) {
				l.accepted[o.ID] = specs[i].RunAt
			}
		}
	}
	return rest
}

// homeOf is the region of a task, which its id begins with.
func homeOf(id string) string {
	home, _, _ := strings.Cut(id, ".")
	return home
}
