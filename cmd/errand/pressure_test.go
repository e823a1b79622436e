package main

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/errandhq/errand"
	"github.com/errandhq/errand/fairness"
	"github.com/errandhq/errand/internal/testdb"
	"github.com/errandhq/errand/scheduler"
)

// busyService bears so many calls a second, and counts.
type busyService struct {
	mu      sync.Mutex
	bucket  fairness.Bucket
	served  []time.Time
	refused int
}

func (s *busyService) call() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	s.bucket.Refill(now)
	if s.bucket.Take(1) == 0 {
		s.refused++
		return false
	}
	s.served = append(s.served, now)
	return true
}

// Workers that say that a service is asked too much slow its limit down to what it bears. The queue drains, nothing counts, nothing
// is lost, and tasks without the limit are not held up.
func TestBackpressureFindsWhatAServiceBears(t *testing.T) {
	const tasks, bears = 120, 20.0
	dsn := testdb.New(t, testdb.ReadCommitted)
	before := deployOn(t, dsn, "")
	if _, err := before.store.PutLimit(t.Context(), scheduler.LimitSettings{Tenant: "acme", Name: "service"}); err != nil {
		t.Fatal(err)
	}
	before.stop()
	d := deployOn(t, dsn, before.cfg.Key) // it knows the limit from its beginning
	service := &busyService{bucket: fairness.Bucket{Limit: fairness.Limit{Rate: bears, Burst: bears}}}
	var ids []string
	for i := range tasks {
		ids = append(ids, d.submit(t, errand.Spec{
			Kind: "call", MaxAttempts: 1, Payload: fmt.Append(nil, i), Limits: []errand.Limit{{Name: "service"}}, DelayTolerance: time.Hour,
		}))
	}
	d.work(t, errand.WorkerConfig{}, map[string]errand.Handler{
		"call": func(_ context.Context, a *errand.Attempt) (errand.Result, error) {
			if !service.call() {
				return errand.Result{}, errand.Backpressure(a.Limits[0].Name, 0)
			}
			return errand.Result{Data: a.Payload}, nil
		},
		"other": func(context.Context, *errand.Attempt) (errand.Result, error) { return errand.Result{}, nil },
	})
	if other := d.wait(t, d.submit(t, errand.Spec{Kind: "other"})); other.State != errand.Succeeded {
		t.Errorf("a task without the limit: %v", other.State)
	}
	tried := int64(0)
	for i, id := range ids {
		got := d.wait(t, id)
		if got.State != errand.Succeeded || got.CountedAttempts != 0 || string(got.Result) != fmt.Sprint(i) {
			t.Errorf("task %d: %v with %q, %d attempts count", i, got.State, got.Result, got.CountedAttempts)
		}
		tried += got.Attempt
	}
	service.mu.Lock()
	defer service.mu.Unlock()
	if len(service.served) != tasks || int(tried) != tasks+service.refused {
		t.Errorf("%d calls were served and %d refused, %d attempts at %d tasks", len(service.served), service.refused, tried, tasks)
	}
	took := service.served[tasks-1].Sub(service.served[tasks/4])
	rate := float64(tasks-1-tasks/4) / took.Seconds()
	t.Logf("%d served, %d refused; %.1f a second after the first quarter, of %v", tasks, service.refused, rate, bears)
	if rate < bears/4 || service.refused > tasks {
		t.Errorf("%.1f calls a second were served, and %d refused: the service bears %v", rate, service.refused, bears)
	}
}
