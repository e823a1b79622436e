package main

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/errandhq/errand"
)

// Three attempts that need a device each, on a worker with two: two run at once, each on a device of its own, and the third gets the one that
// is free first. One that needs none has none.
func TestDevicesReachTheHandler(t *testing.T) {
	d := deploy(t)
	type start struct {
		gpus []int
		end  chan struct{}
	}
	starts := make(chan start)
	d.work(t, errand.WorkerConfig{Capacity: &errand.Capacity{CPUMilli: 4000, MemoryMiB: 4000, GPUs: 2}}, map[string]errand.Handler{
		"train": func(ctx context.Context, a *errand.Attempt) (errand.Result, error) {
			s := start{a.GPUs, make(chan struct{})}
			select {
			case starts <- s:
				<-s.end
			case <-ctx.Done():
			}
			return errand.Result{Data: []byte(fmt.Sprint(a.GPUs))}, nil
		},
	})
	next := func() start {
		t.Helper()
		select {
		case s := <-starts:
			return s
		case <-time.After(patience):
			t.Fatal("nothing starts")
			return start{}
		}
	}
	none := d.submit(t, errand.Spec{Kind: "train"})
	if s := next(); len(s.gpus) != 0 {
		t.Errorf("an attempt that needs none has the devices %v", s.gpus)
	} else {
		close(s.end)
	}
	if got := d.wait(t, none); string(got.Result) != "[]" || got.Needs != (errand.Requirements{}) {
		t.Errorf("it ended as %+v", got)
	}
	var ids []string
	for range 3 {
		ids = append(ids, d.submit(t, errand.Spec{Kind: "train", Needs: errand.Requirements{CPUMilli: 100, GPUs: 1}}))
	}
	first, second := next(), next()
	both := slices.Sorted(slices.Values(slices.Concat(first.gpus, second.gpus)))
	if !slices.Equal(both, []int{0, 1}) {
		t.Errorf("two attempts have the devices %v and %v", first.gpus, second.gpus)
	}
	select {
	case s := <-starts:
		t.Errorf("a third attempt runs at the same time, on %v", s.gpus)
	default:
	}
	close(second.end)
	third := next()
	if !slices.Equal(third.gpus, second.gpus) {
		t.Errorf("the third has the devices %v, want those that are free: %v", third.gpus, second.gpus)
	}
	close(first.end)
	close(third.end)
	for _, id := range ids {
		if got := d.wait(t, id); got.State != errand.Succeeded || got.Needs != (errand.Requirements{CPUMilli: 100, GPUs: 1}) {
			t.Errorf("it ended as %+v", got)
		}
	}
}
