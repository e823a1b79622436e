package api

import (
	"crypto/sha256"
	"slices"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	errandv1 "github.com/errandhq/errand/proto/errand/v1"
	"github.com/errandhq/errand/scheduler"
	"github.com/errandhq/errand/scheduler/graph"
)

// taskOf turns a submission into a new task, without its times: those depend on when it comes, see setTimes. Rules of single
// fields were checked before; here are those between fields. prefix is the path of the spec in the request, for errors; defaults are
// the kind's. Parents live in the region; an empty one takes any.
func taskOf(spec *errandv1.TaskSpec, prefix, tenant, region string, defaults *scheduler.KindDefaults) (scheduler.Task, error) {
	if !plain(spec) {
		if err := onlyServed(spec, prefix); err != nil {
			return scheduler.Task{}, err
		}
	}
	t := scheduler.Task{
		Tenant:      tenant,
		Kind:        spec.GetKind(),
		Tier:        scheduler.Tier(spec.GetTier()),
		Payload:     spec.GetPayload(),
		ContentType: spec.GetContentType(),
		Spec: scheduler.Spec{
			AttemptTimeout:   spec.GetAttemptTimeout().AsDuration(),
			MaxAttempts:      int(spec.GetMaxAttempts()),
			MaxWorkerLosses:  int(spec.GetMaxWorkerLosses()),
			Retry:            retryOf(spec.GetRetryPolicy()),
			Exclusive:        spec.GetExclusive(),
			Labels:           spec.GetLabels(),
			RejectInfeasible: spec.GetRejectIfInfeasible(),
			RefuseHeld:       spec.GetUniquePolicy() == errandv1.UniquePolicy_UNIQUE_POLICY_REFUSE,
		},
		IdempotencyKey: spec.GetIdempotencyKey(),
		UniqueKey:      spec.GetUniqueKey(),
	}
	fillIn(&t, spec, defaults)
	if d := spec.GetDelayTolerance(); d != nil {
		t.Tolerance = d.AsDuration()
		if err := checkTolerance(t.Tolerance, t.Tier, prefix); err != nil {
			return scheduler.Task{}, err
		}
	}
	if err := checkRetry(&t.Spec.Retry, prefix); err != nil {
		return scheduler.Task{}, err
	}
	var err error
	if t.Spec.Limits, err = limitsOf(spec.GetLimits(), prefix); err != nil {
		return scheduler.Task{}, err
	}
	if t.Spec.Shape, err = shapeOf(spec, prefix, defaults.Requirements); err != nil {
		return scheduler.Task{}, err
	}
	if t.Spec.AllowedRegions = slices.Sorted(slices.Values(spec.GetAllowedRegions())); len(t.Spec.AllowedRegions) == 0 {
		t.Spec.AllowedRegions = nil
	}
	if spec.GetUniquePolicy() != 0 && t.UniqueKey == "" {
		return scheduler.Task{}, invalid(prefix+"unique_policy", "says nothing without a unique_key")
	}
	if t.Parents, err = parentsOf(spec.GetParents(), prefix, region); err != nil {
		return scheduler.Task{}, err
	}
	t.Spec.Condition, t.Spec.Impossible = graph.Condition(spec.GetParentCondition()), graph.Policy(spec.GetImpossiblePolicy())
	if t.IdempotencyKey != "" {
		t.Fingerprint = fingerprint(spec)
	}
	return t, nil
}

// setTimes counts what was asked from now, and refuses a task that would never run.
func setTimes(t *scheduler.Task, spec *errandv1.TaskSpec, prefix string, now time.Time) error {
	switch start := spec.GetStart().(type) {
	case *errandv1.TaskSpec_RunAt:
		t.RunAt = start.RunAt.AsTime()
	case *errandv1.TaskSpec_Delay:
		t.RunAt = now.Add(start.Delay.AsDuration())
	}
	if !t.RunAt.After(now) {
		t.RunAt = time.Time{}
	}
	field := "start_by"
	switch useless := spec.GetUseless().(type) {
	case *errandv1.TaskSpec_StartBy:
		t.StartBy = useless.StartBy.AsTime()
	case *errandv1.TaskSpec_StartWithin:
		field = "start_within"
		t.StartBy = now.Add(useless.StartWithin.AsDuration())
	default:
		return nil
	}
	if !t.StartBy.After(now) {
		return invalid(prefix+field, "is past: the task would never run")
	}
	if !t.StartBy.After(t.RunAt) {
		return invalid(prefix+field, "must be later than run_at or delay: the task would never run")
	}
	return nil
}

// checkRetry refuses a backoff that would shrink.
func checkRetry(r *scheduler.RetryPolicy, prefix string) error {
	if r.Initial > 0 && r.Max > 0 && r.Max < r.Initial {
		return invalid(prefix+"retry_policy.max_backoff", "must not be below initial_backoff")
	}
	return nil
}

func retryOf(p *errandv1.RetryPolicy) scheduler.RetryPolicy {
	r := scheduler.RetryPolicy{
		Initial:    p.GetInitialBackoff().AsDuration(),
		Max:        p.GetMaxBackoff().AsDuration(),
		Multiplier: p.GetMultiplier(),
	}
	for _, reason := range p.GetNonRetryableReasons() {
		r.NonRetryable = append(r.NonRetryable, scheduler.Reason(reason))
	}
	return r
}

// fingerprint hashes what was asked, so that a key used again for something else is noticed. The payload counts byte by byte:
// the same JSON with its keys in another order is another request.
func fingerprint(spec *errandv1.TaskSpec) []byte {
	raw, err := proto.MarshalOptions{Deterministic: true}.Marshal(spec)
	if err != nil { // it was just decoded: it can be encoded
		return nil
	}
	sum := sha256.Sum256(raw)
	return sum[:]
}

// taskMessage shows a task.
func taskMessage(t *scheduler.Task, payloads bool) *errandv1.Task {
	m := &errandv1.Task{
		TaskId:          t.Ref.String(),
		Tenant:          t.Tenant,
		State:           errandv1.TaskState(t.State),
		Attempt:         t.Attempt,
		CountedAttempts: int32(t.Counted),
		WorkerLosses:    int32(t.WorkerLosses),
		Failure:         failureMessage(t.Failure),
		CreatedAt:       stamp(t.CreatedAt),
		ReadyAt:         stamp(t.ReadyAt),
		Due:             stamp(t.Due),
		StartedAt:       stamp(t.StartedAt),
		EndedAt:         stamp(t.EndedAt),
		WakeAt:          stamp(t.WakeAt),
		CancelRequested: t.CancelRequested,
		EffectKey:       scheduler.Ref{Region: t.Region, ID: t.EffectKey}.String(),
		Spec:            specMessage(t),
	}
	if t.State.Terminal() { // when its children are looked at is nobody's concern
		m.WakeAt = nil
	}
	if t.Spec.Graph != "" {
		m.GraphId, m.GraphName = t.Region+"."+t.Spec.Graph, t.Spec.Name
		m.Spec.IdempotencyKey = "" // the graph's
	}
	if !t.Worker.IsZero() {
		m.Worker = t.Worker.String()
	}
	if payloads {
		m.Spec.Payload = t.Payload
		m.Result, m.ResultContentType = t.Result, t.ResultType
	}
	return m
}

func specMessage(t *scheduler.Task) *errandv1.TaskSpec {
	maxAttempts, maxLosses := int32(t.Spec.Attempts()), int32(t.Spec.WorkerLosses())
	m := &errandv1.TaskSpec{
		Kind:            t.Kind,
		ContentType:     t.ContentType,
		Labels:          t.Spec.Labels,
		Tier:            errandv1.Tier(t.Tier),
		DelayTolerance:  durationpb.New(t.Tolerance),
		AttemptTimeout:  durationpb.New(t.Spec.Timeout()),
		MaxAttempts:     &maxAttempts,
		MaxWorkerLosses: &maxLosses,
		IdempotencyKey:  t.IdempotencyKey,
		UniqueKey:       t.UniqueKey,
		ParentCondition: errandv1.ParentCondition(t.Spec.Condition), ImpossiblePolicy: errandv1.ImpossiblePolicy(t.Spec.Impossible),
		Exclusive: t.Spec.Exclusive,

		RejectIfInfeasible: t.Spec.RejectInfeasible,
	}
	if t.UniqueKey != "" {
		m.UniquePolicy = errandv1.UniquePolicy_UNIQUE_POLICY_JOIN
		if t.Spec.RefuseHeld {
			m.UniquePolicy = errandv1.UniquePolicy_UNIQUE_POLICY_REFUSE
		}
	}
	if !t.RunAt.IsZero() {
		m.Start = &errandv1.TaskSpec_RunAt{RunAt: timestamppb.New(t.RunAt)}
	}
	if !t.StartBy.IsZero() {
		m.Useless = &errandv1.TaskSpec_StartBy{StartBy: timestamppb.New(t.StartBy)}
	}
	m.RetryPolicy = retryMessage(&t.Spec.Retry)
	showShape(m, t.Spec.Shape)
	m.AllowedRegions = t.Spec.AllowedRegions
	for _, l := range t.Spec.Limits {
		m.Limits = append(m.Limits, &errandv1.Limit{Name: l.Name, Key: l.Key})
	}
	return m
}

// retryMessage shows a policy; nil for one that says nothing.
func retryMessage(r *scheduler.RetryPolicy) *errandv1.RetryPolicy {
	if r.Initial == 0 && r.Max == 0 && r.Multiplier == 0 && len(r.NonRetryable) == 0 {
		return nil
	}
	m := &errandv1.RetryPolicy{InitialBackoff: span(r.Initial), MaxBackoff: span(r.Max), Multiplier: r.Multiplier}
	for _, reason := range r.NonRetryable {
		m.NonRetryableReasons = append(m.NonRetryableReasons, string(reason))
	}
	return m
}

// span is nil for a time that is not set.
func span(d time.Duration) *durationpb.Duration {
	if d == 0 {
		return nil
	}
	return durationpb.New(d)
}

func failureMessage(f *scheduler.Failure) *errandv1.Failure {
	if f == nil {
		return nil
	}
	return &errandv1.Failure{Reason: string(f.Reason), Message: f.Message}
}

func stamp(t time.Time) *timestamppb.Timestamp {
	if t.IsZero() {
		return nil
	}
	return timestamppb.New(t)
}
