package api

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strconv"

	"github.com/errandhq/errand/internal/store"
	errandv1 "github.com/errandhq/errand/proto/errand/v1"
	"github.com/errandhq/errand/scheduler"
)

func (s *adminService) PutLimit(ctx context.Context, req *errandv1.PutLimitRequest) (*errandv1.PutLimitResponse, error) {
	m := req.GetLimit()
	if err := onlyServed(m, "limit."); err != nil {
		return nil, err
	}
	l, err := s.limits.PutLimit(ctx, scheduler.LimitSettings{
		Tenant: m.GetTenant(), Name: m.GetName(), Concurrency: int(m.GetConcurrency()), Rate: m.GetRate(),
	})
	if err != nil {
		return nil, tenantError(err)
	}
	return &errandv1.PutLimitResponse{Limit: limitMessage(&l)}, nil
}

func (s *adminService) DeleteLimit(ctx context.Context, req *errandv1.DeleteLimitRequest) (*errandv1.DeleteLimitResponse, error) {
	err := s.limits.DeleteLimit(ctx, req.GetTenant(), req.GetName())
	if errors.Is(err, store.ErrNotFound) {
		if err := s.knowTenant(ctx, req.GetTenant()); err != nil {
			return nil, err
		}
		return nil, outside(errLimitNotFound)
	}
	if err != nil {
		return nil, err
	}
	return &errandv1.DeleteLimitResponse{}, nil
}

func (s *adminService) ListLimits(ctx context.Context, req *errandv1.ListLimitsRequest) (*errandv1.ListLimitsResponse, error) {
	limit, pages := pageSize(req.GetPageSize()), newPager("limits", req.GetTenant(), nil)
	after, err := pages.cursor(req.GetPageToken())
	if err != nil {
		return nil, err
	}
	if err := s.knowTenant(ctx, req.GetTenant()); err != nil {
		return nil, err
	}
	limits, err := s.limits.ListLimits(ctx, req.GetTenant(), string(after), limit)
	if err != nil {
		return nil, err
	}
	resp := &errandv1.ListLimitsResponse{}
	for i := range limits {
		resp.Limits = append(resp.Limits, limitMessage(&limits[i]))
	}
	if len(limits) == limit {
		resp.NextPageToken = pages.token([]byte(limits[limit-1].Name))
	}
	return resp, nil
}

func limitMessage(l *scheduler.LimitSettings) *errandv1.NamedLimit {
	return &errandv1.NamedLimit{Tenant: l.Tenant, Name: l.Name, Concurrency: int32(l.Concurrency), Rate: l.Rate, Global: l.Global}
}

// limitsOf reads which limits a task must pass, sorted: tasks with the same ones are of one class.
func limitsOf(all []*errandv1.Limit, prefix string) ([]scheduler.LimitKey, error) {
	if len(all) == 0 {
		return nil, nil
	}
	keys := make([]scheduler.LimitKey, len(all))
	for i, l := range all {
		keys[i] = scheduler.LimitKey{Name: l.GetName(), Key: l.GetKey()}
		if slices.Contains(keys[:i], keys[i]) {
			return nil, invalid(prefix+"limits["+strconv.Itoa(i)+"]", "stands there twice")
		}
	}
	slices.SortFunc(keys, func(a, b scheduler.LimitKey) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.Key, b.Key))
	})
	return keys, nil
}
