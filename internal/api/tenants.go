package api

import (
	"context"
	"errors"

	"github.com/errandhq/errand/internal/store"
	errandv1 "github.com/errandhq/errand/proto/errand/v1"
)

// defaultWeight is a tenant's share when nobody says otherwise.
const defaultWeight = 1.0

func (s *adminService) CreateTenant(ctx context.Context, req *errandv1.CreateTenantRequest) (*errandv1.CreateTenantResponse, error) {
	t := store.Tenant{
		Name: req.GetName(), HomeRegion: req.GetHomeRegion(), Weight: defaultWeight, Rate: req.GetRate(), Burst: int64(req.GetBurst()),
		UrgentRate: req.GetUrgentRate(), RefuseUrgent: req.GetRefuseUrgent(), MaxOpen: req.GetMaxOpen(), MaxRunning: req.GetMaxRunning(),
		StartRate: req.GetStartRate(),
	}
	if t.HomeRegion == "" {
		t.HomeRegion = s.region
	}
	if req.Weight != nil {
		t.Weight = req.GetWeight()
	}
	created, err := s.tenants.CreateTenant(ctx, t)
	if errors.Is(err, store.ErrExists) {
		return nil, outside(errTenantExists)
	}
	if err != nil {
		return nil, err
	}
	return &errandv1.CreateTenantResponse{Tenant: tenantMessage(&created)}, nil
}

func (s *adminService) UpdateTenant(ctx context.Context, req *errandv1.UpdateTenantRequest) (*errandv1.UpdateTenantResponse, error) {
	change := store.TenantChange{
		Name: req.GetName(), Weight: req.Weight, Rate: req.Rate, UrgentRate: req.UrgentRate, RefuseUrgent: req.RefuseUrgent,
		MaxOpen: req.MaxOpen, MaxRunning: req.MaxRunning, StartRate: req.StartRate,
	}
	if req.Burst != nil {
		burst := int64(req.GetBurst())
		change.Burst = &burst
	}
	t, err := s.changeTenant(ctx, &change)
	return &errandv1.UpdateTenantResponse{Tenant: t}, err
}

func (s *adminService) PauseTenant(ctx context.Context, req *errandv1.PauseTenantRequest) (*errandv1.PauseTenantResponse, error) {
	paused := true
	t, err := s.changeTenant(ctx, &store.TenantChange{Name: req.GetName(), Paused: &paused})
	return &errandv1.PauseTenantResponse{Tenant: t}, err
}

func (s *adminService) ResumeTenant(ctx context.Context, req *errandv1.ResumeTenantRequest) (*errandv1.ResumeTenantResponse, error) {
	paused := false
	t, err := s.changeTenant(ctx, &store.TenantChange{Name: req.GetName(), Paused: &paused})
	return &errandv1.ResumeTenantResponse{Tenant: t}, err
}

func (s *adminService) changeTenant(ctx context.Context, change *store.TenantChange) (*errandv1.Tenant, error) {
	t, err := s.tenants.UpdateTenant(ctx, *change)
	if err != nil {
		return nil, tenantError(err)
	}
	return tenantMessage(&t), nil
}

func (s *adminService) GetTenant(ctx context.Context, req *errandv1.GetTenantRequest) (*errandv1.GetTenantResponse, error) {
	t, err := s.tenants.Tenant(ctx, req.GetName())
	if err != nil {
		return nil, tenantError(err)
	}
	return &errandv1.GetTenantResponse{Tenant: tenantMessage(&t)}, nil
}

func (s *adminService) ListTenants(ctx context.Context, req *errandv1.ListTenantsRequest) (*errandv1.ListTenantsResponse, error) {
	limit, pages := pageSize(req.GetPageSize()), newPager("tenants", "", nil)
	after, err := pages.cursor(req.GetPageToken())
	if err != nil {
		return nil, err
	}
	tenants, err := s.tenants.ListTenants(ctx, string(after), limit)
	if err != nil {
		return nil, err
	}
	resp := &errandv1.ListTenantsResponse{}
	for i := range tenants {
		resp.Tenants = append(resp.Tenants, tenantMessage(&tenants[i]))
	}
	if len(tenants) == limit {
		resp.NextPageToken = pages.token([]byte(tenants[limit-1].Name))
	}
	return resp, nil
}

func (s *adminService) DeleteTenant(ctx context.Context, req *errandv1.DeleteTenantRequest) (*errandv1.DeleteTenantResponse, error) {
	err := s.tenants.DeleteTenant(ctx, req.GetName())
	var busy *store.BusyTenantError
	if errors.As(err, &busy) {
		plain := outside(err)
		return nil, problem(plain.Code(), &shown{busy.Error(), err}, detailOf(plain)) // with the numbers
	}
	if err != nil {
		return nil, tenantError(err)
	}
	s.auth.forget(func(p Principal) bool { return p.Tenant == req.GetName() })
	return &errandv1.DeleteTenantResponse{}, nil
}

// knowTenant refuses what is about a tenant that is not there.
func (s *adminService) knowTenant(ctx context.Context, name string) error {
	_, err := s.tenants.Tenant(ctx, name)
	return tenantError(err)
}

func tenantError(err error) error {
	if errors.Is(err, store.ErrNotFound) {
		return outside(errTenantNotFound)
	}
	return err
}

func tenantMessage(t *store.Tenant) *errandv1.Tenant {
	return &errandv1.Tenant{
		Name: t.Name, HomeRegion: t.HomeRegion, Weight: t.Weight, Paused: t.Paused, Rate: t.Rate, Burst: int32(t.Burst),
		UrgentRate: t.UrgentRate, RefuseUrgent: t.RefuseUrgent, MaxOpen: t.MaxOpen, MaxRunning: t.MaxRunning, StartRate: t.StartRate,
		CreatedAt: stamp(t.CreatedAt),
	}
}
