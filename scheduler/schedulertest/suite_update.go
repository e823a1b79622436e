package schedulertest

import (
	"context"
	"errors"
	"reflect"
	"sync"
	"testing"
	"time"

	"github.com/errandhq/errand/scheduler"
)

// updater is the edge's part of a store that changes waiting tasks.
type updater interface {
	UpdateTask(ctx context.Context, tenant string, ref scheduler.Ref, c scheduler.Change) (scheduler.Task, error)
}

func (s *suite) update(t *testing.T, tenant string, ref scheduler.Ref, c scheduler.Change) (scheduler.Task, error) {
	t.Helper()
	u, is := s.Store.(updater)
	if !is {
		t.Fatalf("%T cannot change a task", s.Store)
	}
	return u.UpdateTask(ctx(), tenant, ref, c)
}

func some[T any](v T) *T { return &v }

// What an update answers is what stands, and lanes and timers show the task in its new place.
func updateMovesAWaitingTask(t *testing.T, s *suite) {
	one := task(func(k *scheduler.Task) {
		k.Spec.Labels = map[string]string{"a": "b"}
		k.Spec.MaxAttempts = 7
		k.Payload = []byte("p")
	})
	s.insert(t, one)
	change := func(c scheduler.Change) scheduler.Task {
		t.Helper()
		got, err := s.update(t, "acme", one.Ref, c)
		if err != nil {
			t.Fatal(err)
		}
		if stands := s.Task(t, one.Ref); !reflect.DeepEqual(got, stands) {
			t.Errorf("the answer is\n%+v, and what stands\n%+v", got, stands)
		}
		return got
	}
	keys := func() []scheduler.BufferKey {
		t.Helper()
		return must[[]scheduler.BufferKey](t)(s.Store.Discover(ctx(), scheduler.DiscoverQuery{Region: region, Shard: one.ID.Shard(), Limit: 5}))
	}
	timed := func() []scheduler.TimedRow {
		t.Helper()
		return must[[]scheduler.TimedRow](t)(s.Store.Timed(ctx(), scheduler.TimedQuery{
			Region: region, Shards: []uint8{one.ID.Shard()}, Horizon: 3 * time.Hour, Limit: 5,
		}))
	}

	got := change(scheduler.Change{Tier: some(scheduler.Urgent)})
	if got.Tier != scheduler.Urgent || got.Tolerance != time.Second || !got.Due.Equal(got.ReadyAt.Add(time.Second)) {
		t.Errorf("made urgent: %+v", got)
	}
	if k := keys(); len(k) != 1 || k[0].Tier != scheduler.Urgent {
		t.Errorf("the lane shows %v, want it among the urgent", k)
	}
	in := time.Now().Add(time.Hour)
	if got = change(scheduler.Change{RunAt: &in, Labels: map[string]string{"c": "d"}, SetLabels: true}); got.State != scheduler.Scheduled ||
		got.Spec.Labels["c"] != "d" || len(got.Spec.Labels) != 1 || got.Spec.MaxAttempts != 7 || string(got.Payload) != "p" {
		t.Errorf("put off, with other labels: %+v", got)
	}
	if k, w := keys(), timed(); len(k) != 0 || len(w) != 1 || !w[0].WakeAt.Equal(got.RunAt) {
		t.Errorf("the lane shows %v and the timers %v, want it there only, at %v", k, w, got.RunAt)
	}
	by := in.Add(time.Hour)
	change(scheduler.Change{StartBy: &by, Tolerance: some(20 * time.Second)})
	if got = change(scheduler.Change{RunAt: &time.Time{}, SetLabels: true}); got.State != scheduler.Ready || !got.RunAt.IsZero() || len(got.Spec.Labels) != 0 ||
		!got.WakeAt.Equal(got.StartBy) || !got.Due.Equal(got.ReadyAt.Add(20*time.Second)) {
		t.Errorf("at once: %+v", got)
	}
	change(scheduler.Change{StartBy: &time.Time{}})
	if k, w := keys(), timed(); len(k) != 1 || len(w) != 0 {
		t.Errorf("the lane shows %v and the timers %v, want it in the lane only", k, w)
	}
	a := s.claim(t, s.session, scheduler.Claim{ID: one.ID, From: scheduler.Ready, Worker: s.worker})
	if a[0].Verdict != scheduler.Won || a[0].Start.Tier != scheduler.Urgent {
		t.Errorf("claimed: %+v", a[0])
	}
	s.end(t, scheduler.Ending{Token: a[0].Start.Token, To: scheduler.Succeeded})
	if accepted, ended := s.Ledger(t); accepted != 1 || ended != 1 { // and each tier is balanced
		t.Errorf("ledger: accepted %d, ended %d", accepted, ended)
	}
}

func updateIsRefused(t *testing.T, s *suite) {
	urgent := scheduler.Change{Tier: some(scheduler.Urgent)}
	expectErr := func(what string, ref scheduler.Ref, tenant string, c scheduler.Change, want error) {
		t.Helper()
		if _, err := s.update(t, tenant, ref, c); !errors.Is(err, want) {
			t.Errorf("%s: %v, want %v", what, err, want)
		}
	}
	ready, running := task(), s.running(t)
	s.insert(t, ready)
	expectErr("another tenant's", ready.Ref, "globex", urgent, scheduler.ErrNotFound)
	expectErr("nobody's", task().Ref, "acme", urgent, scheduler.ErrNotFound)
	expectErr("of another region", scheduler.Ref{Region: "us", ID: ready.ID}, "acme", urgent, scheduler.ErrNotFound)
	expectErr("running", running.Ref, "acme", urgent, scheduler.ErrNotWaiting)
	s.end(t, scheduler.Ending{Token: running.Token(), To: scheduler.Succeeded})
	expectErr("ended", running.Ref, "acme", urgent, scheduler.ErrNotWaiting)
	expectErr("a text that cannot be stored", ready.Ref, "acme", scheduler.Change{SetLabels: true, Labels: map[string]string{"a": "\x00"}}, scheduler.ErrRefused)
	var bad *scheduler.BadChange
	if _, err := s.update(t, "acme", ready.Ref, scheduler.Change{Tolerance: some(time.Second)}); !errors.As(err, &bad) || bad.Field != "delay_tolerance" {
		t.Errorf("too little tolerance: %v", err)
	}
	late := task(func(k *scheduler.Task) { k.StartBy = time.Now().Add(-time.Second) })
	s.insert(t, late)
	expectErr("useless already", late.Ref, "acme", scheduler.Change{StartBy: some(time.Now().Add(time.Hour))}, scheduler.ErrTooLate)
	if got := s.Task(t, ready.Ref); got.Tier != scheduler.Standard {
		t.Errorf("what was refused has changed it: %+v", got)
	}
}

// Many change one task while it is claimed and given back: each change stands as a whole, and the ledger stays balanced.
func updateInParallel(t *testing.T, s *suite) {
	one := task()
	s.insert(t, one)
	u := s.Store.(updater)
	var all sync.WaitGroup
	for i := range 4 {
		all.Go(func() {
			tier := scheduler.Tiers[i%3]
			for range 10 {
				c := scheduler.Change{Tier: &tier, Tolerance: some(time.Duration(i+1) * time.Hour)}
				got, err := u.UpdateTask(context.Background(), "acme", one.Ref, c)
				switch {
				case err == nil && (got.Tier != tier || got.Tolerance != *c.Tolerance):
					t.Errorf("answered %+v, want tier %v and tolerance %v", got, tier, *c.Tolerance)
				case err == nil, errors.Is(err, scheduler.ErrNotWaiting), errors.Is(err, scheduler.ErrSeenOther):
				default:
					t.Error(err)
				}
			}
		})
	}
	all.Go(func() {
		for n := range int64(10) {
			claim := scheduler.Claim{ID: one.ID, From: scheduler.Ready, Seen: n, Worker: s.worker}
			got, err := s.Store.Claim(context.Background(), scheduler.ClaimBatch{Region: region, Session: s.session, Claims: []scheduler.Claim{claim}})
			if err != nil || got[0].Verdict != scheduler.Won {
				t.Errorf("claim %d: %+v, %v: a change of its order is no reason to lose it", n, got, err)
				return
			}
			e := scheduler.Ending{Token: got[0].Start.Token, To: scheduler.Ready, Failure: &scheduler.Failure{Reason: scheduler.ReasonDrained}}
			if _, err := s.Store.End(context.Background(), scheduler.EndBatch{Region: region, Endings: []scheduler.Ending{e}}); err != nil {
				t.Error(err)
			}
		}
	})
	all.Wait()
	got := s.Task(t, one.Ref)
	if hours := int(got.Tolerance / time.Hour); hours > 0 && got.Tier != scheduler.Tiers[(hours-1)%3] {
		t.Errorf("tier %v with a tolerance of %v: two changes are mixed", got.Tier, got.Tolerance)
	}
	if !got.Due.Equal(got.ReadyAt.Add(got.Tolerance)) {
		t.Errorf("due %v, ready since %v, tolerance %v", got.Due, got.ReadyAt, got.Tolerance)
	}
	if accepted, ended := s.Ledger(t); accepted != 1 || ended != 0 {
		t.Errorf("ledger: accepted %d, ended %d", accepted, ended)
	}
}
