package api

import (
	"context"
	"errors"
	"slices"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/errandhq/errand/internal/store"
	"github.com/errandhq/errand/placement"
	errandv1 "github.com/errandhq/errand/proto/errand/v1"
	"github.com/errandhq/errand/scheduler"
)

func (s *adminService) PutKind(ctx context.Context, req *errandv1.PutKindRequest) (*errandv1.PutKindResponse, error) {
	defaults, err := defaultsOf(req.GetKind().GetDefaults(), "kind.defaults.")
	if err != nil {
		return nil, err
	}
	k, err := s.kinds.PutKind(ctx, req.GetKind().GetTenant(), req.GetKind().GetName(), &defaults)
	if err != nil {
		return nil, tenantError(err)
	}
	return &errandv1.PutKindResponse{Kind: kindMessage(&k)}, nil
}

func (s *adminService) GetKind(ctx context.Context, req *errandv1.GetKindRequest) (*errandv1.GetKindResponse, error) {
	k, err := s.kinds.Kind(ctx, req.GetTenant(), req.GetName())
	if err != nil {
		return nil, s.kindError(ctx, req.GetTenant(), err)
	}
	return &errandv1.GetKindResponse{Kind: kindMessage(&k)}, nil
}

func (s *adminService) ListKinds(ctx context.Context, req *errandv1.ListKindsRequest) (*errandv1.ListKindsResponse, error) {
	limit, pages := pageSize(req.GetPageSize()), newPager("kinds", req.GetTenant(), nil)
	after, err := pages.cursor(req.GetPageToken())
	if err != nil {
		return nil, err
	}
	if err := s.knowTenant(ctx, req.GetTenant()); err != nil {
		return nil, err
	}
	kinds, err := s.kinds.ListKinds(ctx, req.GetTenant(), string(after), limit)
	if err != nil {
		return nil, err
	}
	resp := &errandv1.ListKindsResponse{}
	for i := range kinds {
		resp.Kinds = append(resp.Kinds, kindMessage(&kinds[i]))
	}
	if len(kinds) == limit {
		resp.NextPageToken = pages.token([]byte(kinds[limit-1].Kind))
	}
	return resp, nil
}

func (s *adminService) PauseKind(ctx context.Context, req *errandv1.PauseKindRequest) (*errandv1.PauseKindResponse, error) {
	k, err := s.kinds.PauseKind(ctx, req.GetTenant(), req.GetName())
	if err != nil {
		return nil, tenantError(err)
	}
	return &errandv1.PauseKindResponse{Kind: kindMessage(&k)}, nil
}

func (s *adminService) ResumeKind(ctx context.Context, req *errandv1.ResumeKindRequest) (*errandv1.ResumeKindResponse, error) {
	k, err := s.kinds.ResumeKind(ctx, req.GetTenant(), req.GetName())
	if err != nil {
		return nil, s.kindError(ctx, req.GetTenant(), err)
	}
	return &errandv1.ResumeKindResponse{Kind: kindMessage(&k)}, nil
}

// kindError tells a kind that is not stored from a tenant that is not there.
func (s *adminService) kindError(ctx context.Context, tenant string, err error) error {
	if !errors.Is(err, store.ErrNotFound) {
		return err
	}
	if err := s.knowTenant(ctx, tenant); err != nil {
		return err
	}
	return outside(errKindNotFound)
}

// defaultsOf reads the defaults of a kind, by the rules of a task's fields. prefix is their path in the request, for errors.
func defaultsOf(m *errandv1.KindDefaults, prefix string) (scheduler.KindDefaults, error) {
	if m == nil {
		return scheduler.KindDefaults{}, nil
	}
	if err := onlyServed(m, prefix); err != nil {
		return scheduler.KindDefaults{}, err
	}
	d := scheduler.KindDefaults{
		Tier:            scheduler.Tier(m.GetTier()),
		Tolerance:       m.GetDelayTolerance().AsDuration(),
		AttemptTimeout:  m.GetAttemptTimeout().AsDuration(),
		MaxAttempts:     int(m.GetMaxAttempts()),
		MaxWorkerLosses: int(m.GetMaxWorkerLosses()),
		Retry:           retryOf(m.GetRetryPolicy()),
	}
	if r := requirementsOf(m.GetRequirements()); r != (placement.Resources{}) {
		if err := checkRequirements(&r, prefix+"requirements."); err != nil {
			return scheduler.KindDefaults{}, err
		}
		d.Requirements = &r
	}
	if m.GetDelayTolerance() != nil {
		if err := checkTolerance(d.Tolerance, tierOf(&d), prefix); err != nil {
			return scheduler.KindDefaults{}, err
		}
	}
	if err := checkRetry(&d.Retry, prefix); err != nil {
		return scheduler.KindDefaults{}, err
	}
	return d, nil
}

// tierOf is the tier of a kind's tasks.
func tierOf(d *scheduler.KindDefaults) scheduler.Tier {
	if d.Tier == 0 {
		return scheduler.Standard
	}
	return d.Tier
}

// checkTolerance refuses less than a tier asks for: who cannot wait that long is urgent.
func checkTolerance(d time.Duration, tier scheduler.Tier, prefix string) error {
	if least := scheduler.LeastTolerance(tier); d < least {
		return invalid(prefix+"delay_tolerance", "must be at least "+least.String()+" for the tier "+tier.String())
	}
	return nil
}

// fillIn gives a new task what its kind says where its spec says nothing. A kind's tolerance is meant for the kind's tier: who asks
// for another tier gets that one's.
func fillIn(t *scheduler.Task, spec *errandv1.TaskSpec, d *scheduler.KindDefaults) {
	if t.Tier == 0 {
		t.Tier = tierOf(d)
	}
	t.Tolerance = toleranceOf(t.Tier, d)
	if t.Spec.AttemptTimeout == 0 {
		t.Spec.AttemptTimeout = d.AttemptTimeout
	}
	if t.Spec.MaxAttempts == 0 {
		t.Spec.MaxAttempts = d.MaxAttempts
	}
	if t.Spec.MaxWorkerLosses == 0 {
		t.Spec.MaxWorkerLosses = d.MaxWorkerLosses
	}
	if proto.Size(spec.GetRetryPolicy()) == 0 {
		t.Spec.Retry = d.Retry
		t.Spec.Retry.NonRetryable = slices.Clone(d.Retry.NonRetryable) // the kind's is shared by many tasks
	}
}

// toleranceOf is how long a task of a tier may wait when its submitter does not say.
func toleranceOf(tier scheduler.Tier, d *scheduler.KindDefaults) time.Duration {
	if d.Tolerance > 0 && tier == tierOf(d) {
		return d.Tolerance
	}
	return scheduler.DefaultTolerance(tier)
}

func kindMessage(k *scheduler.KindSettings) *errandv1.Kind {
	d := &k.Defaults
	m := &errandv1.KindDefaults{
		Tier: errandv1.Tier(d.Tier), DelayTolerance: span(d.Tolerance), AttemptTimeout: span(d.AttemptTimeout),
		RetryPolicy: retryMessage(&d.Retry), MaxAttempts: count(d.MaxAttempts), MaxWorkerLosses: count(d.MaxWorkerLosses),
		Requirements: requirementsMessage(d.Requirements),
	}
	return &errandv1.Kind{Tenant: k.Tenant, Name: k.Kind, Paused: k.Paused, Defaults: m}
}

// count is nil for a number that is not set.
func count(n int) *int32 {
	if n == 0 {
		return nil
	}
	short := int32(n)
	return &short
}
