package api

import (
	"bytes"
	"context"
	"errors"
	"math"
	"time"

	"github.com/errandhq/errand/fairness"
	"github.com/errandhq/errand/fairness/tokenbucket"
	errandv1 "github.com/errandhq/errand/proto/errand/v1"
	"github.com/errandhq/errand/scheduler"
	"github.com/errandhq/errand/scheduler/engine"
)

// lookUpsMax bounds the look-ups of keys of refused submissions that are under way at once: a tenant far over its rate must not
// keep the store busy. Beyond it a submission is refused without one.
const lookUpsMax = 2

// intake admits submissions: within the tenant's rate, and up to the open tasks that it may have.
//
// Whatever is let in takes a token, also when it is not stored in the end: because its key stands for a task already, or because
// the store is away. What is refused was not stored. A submission that is refused and whose idempotency key stands for a task is not
// lost: it is answered with that task as ever (see known).
type intake struct {
	region   string
	buckets  Admission // nil: everything is admitted
	standing Standing
	settings Settings
	observer AdmissionObserver
	open     *openCounts
	lookUps  chan struct{} // a place for each that is under way
}

func newIntake(cfg *Config) *intake {
	in := &intake{
		region: cfg.Region, buckets: cfg.Admission, standing: cfg.Standing, settings: cfg.Settings, observer: cfg.Admitted,
		lookUps: make(chan struct{}, lookUpsMax),
	}
	if in.buckets != nil {
		in.open = newOpenCounts(in.standing.CountOpenOf)
	}
	return in
}

// verdict is what the intake says of one task.
type verdict struct {
	demote  bool  // it is to be stored as standard
	refused error // it is not to be stored
}

// admit says of each task of a tenant whether it may be stored; nil means that all may, as they are. done must be called once the tasks
// that may are answered, with how many were stored.
func (in *intake) admit(ctx context.Context, tenant string, tasks []scheduler.Task) (verdicts []verdict, done func(stored int)) {
	set, known := in.settings.Tenant(tenant)
	if in.buckets == nil || !known || set.Rate <= 0 && set.UrgentRate <= 0 && set.MaxOpen <= 0 {
		in.observer.Admitted("admitted", len(tasks))
		return nil, func(int) {}
	}
	room := len(tasks)
	if set.MaxOpen > 0 {
		room = in.open.take(ctx, tenant, set.MaxOpen, room)
	}
	verdicts = make([]verdict, len(tasks))
	for i := room; i < len(tasks); i++ {
		verdicts[i].refused = &laterError{errOpenTasksFull, openRetryAfter}
	}
	in.ask(ctx, &set, tasks[:room], verdicts)
	admitted := in.tally(verdicts)
	if set.MaxOpen <= 0 {
		return verdicts, func(int) {}
	}
	in.open.settle(tenant, room-admitted, 0)
	return verdicts, func(stored int) { in.open.settle(tenant, admitted, stored) }
}

// ask takes the tokens of tasks for which there is room.
func (in *intake) ask(ctx context.Context, set *scheduler.TenantSettings, tasks []scheduler.Task, verdicts []verdict) {
	urgent := 0
	for i := range tasks {
		if tasks[i].Tier == scheduler.Urgent {
			urgent++
		}
	}
	if len(tasks) == 0 || set.Rate <= 0 && (set.UrgentRate <= 0 || urgent == 0) {
		return
	}
	began := time.Now()
	got := in.buckets.Admit(ctx, []tokenbucket.Ask{{
		Tenant: tasks[0].Tenant, Policy: tokenbucket.Policy{Rate: set.Rate, Burst: set.Burst, UrgentRate: set.UrgentRate},
		Tasks: len(tasks), Urgent: urgent,
	}})[0]
	in.observer.Asked(time.Since(began))
	urgent = 0
	for i := range tasks {
		switch {
		case i >= got.Granted:
			verdicts[i].refused = &laterError{errOverRate, spread(got.RetryAfter, i-got.Granted, set.Rate)}
		case tasks[i].Tier != scheduler.Urgent:
		case urgent < got.Urgent:
			urgent++
		case set.RefuseUrgent:
			verdicts[i].refused = &laterError{errOverUrgentRate, got.UrgentAfter}
		default:
			verdicts[i].demote = true
		}
	}
}

// spread is when the task that is n places behind the next one gets its token, so that the rest of a batch does not come back at once.
func spread(next time.Duration, n int, rate float64) time.Duration {
	behind := math.Ceil(float64(n)/rate*1e3) * float64(time.Millisecond)
	return time.Duration(min(float64(next)+behind, float64(fairness.WaitMax)))
}

// tally counts what was decided, and returns how many tasks are admitted.
func (in *intake) tally(verdicts []verdict) int {
	counts := map[string]int{}
	for i := range verdicts {
		counts[verdicts[i].outcome()]++
	}
	for outcome, n := range counts {
		in.observer.Admitted(outcome, n)
	}
	return counts["admitted"] + counts["demoted"]
}

func (v *verdict) outcome() string {
	switch {
	case v.demote:
		return "demoted"
	case v.refused == nil:
		return "admitted"
	case errors.Is(v.refused, errOpenTasksFull):
		return "too_many_open"
	case errors.Is(v.refused, errOverUrgentRate):
		return "over_urgent_rate"
	default:
		return "over_rate"
	}
}

// known answers refused tasks whose idempotency keys stand for tasks, in place of the refusals: whoever sends a request again gets
// its answer, at any rate. Where the store cannot be asked the refusal stays; to try again is right then too.
func (in *intake) known(ctx context.Context, tasks []scheduler.Task, outcomes []submitted) {
	var keys []string
	for i := range outcomes {
		if outcomes[i].unstored() && tasks[i].IdempotencyKey != "" {
			keys = append(keys, tasks[i].IdempotencyKey)
		}
	}
	if len(keys) == 0 {
		return
	}
	select {
	case in.lookUps <- struct{}{}:
		defer func() { <-in.lookUps }()
	default:
		return
	}
	found, err := in.standing.KeyedTasks(ctx, in.region, tasks[0].Tenant, keys)
	if err != nil || len(found) == 0 {
		return
	}
	n := 0
	for i := range outcomes {
		one, stands := found[tasks[i].IdempotencyKey] // no key stands for nothing
		if !outcomes[i].unstored() || !stands {
			continue
		}
		n++
		outcomes[i].SubmitOutcome = engine.SubmitOutcome{Ref: one.Ref, State: one.State, Existed: true}
		if !bytes.Equal(one.Fingerprint, tasks[i].Fingerprint) {
			outcomes[i].SubmitOutcome = engine.SubmitOutcome{Ref: one.Ref, Err: engine.ErrKeyReused}
		}
	}
	in.observer.Admitted("existed", n)
}

// demote makes an urgent task what it would be had it been submitted as standard. It may wait longer than its tolerance says when that
// is less than a standard task has to bear. Its start_by stays, and so does its fingerprint: it is the same request.
func demote(t *scheduler.Task, spec *errandv1.TaskSpec, kind *scheduler.KindDefaults) {
	t.Tier = scheduler.Standard
	if spec.GetDelayTolerance() != nil {
		t.Tolerance = max(t.Tolerance, scheduler.LeastTolerance(t.Tier))
		return
	}
	t.Tolerance = toleranceOf(t.Tier, kind)
}
