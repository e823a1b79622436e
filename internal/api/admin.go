package api

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"strings"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/errandhq/errand/internal/store"
	errandv1 "github.com/errandhq/errand/proto/errand/v1"
	"github.com/errandhq/errand/proto/errand/v1/errandv1connect"
	"github.com/errandhq/errand/scheduler"
	"github.com/errandhq/errand/scheduler/engine"
)

// defaultWeight is a tenant's share when nobody says otherwise.
const defaultWeight = 1.0

// adminService serves operators.
type adminService struct {
	errandv1connect.UnimplementedAdminServiceHandler
	region  string
	tenants Tenants
	keys    Keys
	audit   Auditor
	workers Workers
}

// Workers lists and drains the workers of this instance. [engine.Shell] implements it.
type Workers interface {
	Workers(ctx context.Context) ([]engine.WorkerInfo, error)
	Post(inputs ...engine.Input)
}

func (s *adminService) CreateTenant(ctx context.Context, req *errandv1.CreateTenantRequest) (*errandv1.CreateTenantResponse, error) {
	if err := onlyServed(req, ""); err != nil {
		return nil, err
	}
	t := store.Tenant{Name: req.GetName(), HomeRegion: req.GetHomeRegion(), Weight: defaultWeight}
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
	if err := onlyServed(req, ""); err != nil {
		return nil, err
	}
	t, err := s.tenants.Tenant(ctx, req.GetName())
	if err != nil {
		return nil, tenantError(err)
	}
	if req.Weight != nil {
		t.Weight = req.GetWeight()
	}
	if t, err = s.tenants.UpdateTenant(ctx, t); err != nil {
		return nil, tenantError(err)
	}
	return &errandv1.UpdateTenantResponse{Tenant: tenantMessage(&t)}, nil
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

func tenantError(err error) error {
	if errors.Is(err, store.ErrNotFound) {
		return outside(errTenantNotFound)
	}
	return err
}

func tenantMessage(t *store.Tenant) *errandv1.Tenant {
	return &errandv1.Tenant{
		Name: t.Name, HomeRegion: t.HomeRegion, Weight: t.Weight, Paused: t.Paused, CreatedAt: stamp(t.CreatedAt),
	}
}

// ListWorkers lists the workers of this instance by identity.
func (s *adminService) ListWorkers(ctx context.Context, req *errandv1.ListWorkersRequest) (*errandv1.ListWorkersResponse, error) {
	limit, pages := pageSize(req.GetPageSize()), newPager("workers", s.region, nil)
	after, err := pages.cursor(req.GetPageToken())
	if err != nil {
		return nil, err
	}
	workers, err := s.workers.Workers(ctx)
	if err != nil {
		return nil, err
	}
	slices.SortFunc(workers, func(a, b engine.WorkerInfo) int { return a.Worker.ID.Compare(b.Worker.ID) })
	resp := &errandv1.ListWorkersResponse{}
	for i := range workers {
		id := workers[i].Worker.ID
		if after != nil && bytes.Compare(id[:], after) <= 0 {
			continue
		}
		if len(resp.Workers) == limit {
			last := workers[i-1].Worker.ID
			resp.NextPageToken = pages.token(last[:])
			break
		}
		resp.Workers = append(resp.Workers, workerMessage(&workers[i]))
	}
	return resp, nil
}

func workerMessage(w *engine.WorkerInfo) *errandv1.Worker {
	m := &errandv1.Worker{
		Worker: w.Worker.ID.String(), Name: w.Worker.Name, Tenant: w.Worker.Tenant,
		Draining: w.Draining, Connected: w.Connected, Silent: durationpb.New(w.Silent),
	}
	for _, k := range w.Kinds() {
		m.Kinds = append(m.Kinds, &errandv1.Worker_KindCapacity{Kind: k.Kind, Slots: int32(k.Slots)})
	}
	return m
}

func (s *adminService) DrainWorker(ctx context.Context, req *errandv1.DrainWorkerRequest) (*errandv1.DrainWorkerResponse, error) {
	workers, err := s.workers.Workers(ctx)
	if err != nil {
		return nil, err
	}
	for i := range workers {
		if strings.EqualFold(workers[i].Worker.ID.String(), req.GetWorker()) {
			s.workers.Post(engine.DrainWorker{ID: workers[i].Worker.ID})
			return &errandv1.DrainWorkerResponse{}, nil
		}
	}
	return nil, outside(errWorkerNotFound)
}

func (s *adminService) Audit(ctx context.Context, req *errandv1.AuditRequest) (*errandv1.AuditResponse, error) {
	region := req.GetRegion()
	if region == "" {
		region = s.region
	}
	report, err := s.audit.Audit(ctx, region)
	if err != nil {
		return nil, err
	}
	resp := &errandv1.AuditResponse{}
	for _, b := range report.Balances {
		resp.Balances = append(resp.Balances, &errandv1.AuditBalance{
			Tenant: b.Tenant, Tier: errandv1.Tier(b.Tier), Accepted: b.Accepted, Ended: b.Ended, Open: b.Open,
		})
	}
	for _, f := range report.Findings {
		m := &errandv1.AuditFinding{Reason: f.Reason, Rows: f.Rows, Message: f.Message}
		if !f.Example.IsZero() {
			m.ExampleTaskId = scheduler.Ref{Region: region, ID: f.Example}.String()
		}
		resp.Findings = append(resp.Findings, m)
	}
	return resp, nil
}
