package api

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
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
	if _, err := allow(ctx, store.ScopeAdmin); err != nil {
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
		return nil, outside(err)
	}
	return &errandv1.CreateTenantResponse{Tenant: tenantMessage(&created)}, nil
}

func (s *adminService) UpdateTenant(ctx context.Context, req *errandv1.UpdateTenantRequest) (*errandv1.UpdateTenantResponse, error) {
	if _, err := allow(ctx, store.ScopeAdmin); err != nil {
		return nil, err
	}
	switch {
	case req.Rate != nil:
		return nil, later("rate")
	case req.Burst != nil:
		return nil, later("burst")
	case req.UrgentRate != nil:
		return nil, later("urgent_rate")
	case req.MaxOpen != nil:
		return nil, later("max_open")
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

func (s *adminService) ListTenants(ctx context.Context, req *errandv1.ListTenantsRequest) (*errandv1.ListTenantsResponse, error) {
	if _, err := allow(ctx, store.ScopeAdmin); err != nil {
		return nil, err
	}
	limit := pageSize(req.GetPageSize())
	tenants, err := s.tenants.ListTenants(ctx, req.GetPageToken(), limit)
	if err != nil {
		return nil, outside(err)
	}
	resp := &errandv1.ListTenantsResponse{}
	for i := range tenants {
		resp.Tenants = append(resp.Tenants, tenantMessage(&tenants[i]))
	}
	if len(tenants) == limit {
		resp.NextPageToken = tenants[limit-1].Name
	}
	return resp, nil
}

func tenantError(err error) error {
	if errors.Is(err, store.ErrNotFound) {
		return outside(errTenantNotFound)
	}
	return outside(err)
}

func tenantMessage(t *store.Tenant) *errandv1.Tenant {
	return &errandv1.Tenant{
		Name: t.Name, HomeRegion: t.HomeRegion, Weight: t.Weight, Paused: t.Paused, CreatedAt: stamp(t.CreatedAt),
	}
}

func (s *adminService) CreateKey(ctx context.Context, req *errandv1.CreateKeyRequest) (*errandv1.CreateKeyResponse, error) {
	if _, err := allow(ctx, store.ScopeAdmin); err != nil {
		return nil, err
	}
	k := store.Key{
		ID: NewKeyID(), Scope: store.KeyScope(req.GetScope()), Tenant: req.GetTenant(), Kinds: req.GetKinds(), Note: req.GetNote(),
	}
	if err := s.checkKey(ctx, &k); err != nil {
		return nil, err
	}
	secret, hash := NewSecret()
	k.Hash = hash
	if err := s.keys.CreateKey(ctx, k); err != nil {
		return nil, outside(err)
	}
	return &errandv1.CreateKeyResponse{Key: keyMessage(&k), Secret: secret}, nil
}

// checkKey refuses a key whose parts do not fit its scope: it would allow more, or less, than its maker thinks.
func (s *adminService) checkKey(ctx context.Context, k *store.Key) error {
	switch {
	case k.Scope == store.ScopeTenant && k.Tenant == "":
		return invalid("tenant", "a tenant's key must name its tenant")
	case k.Scope != store.ScopeTenant && k.Tenant != "":
		return invalid("tenant", "only a tenant's key has a tenant")
	case k.Scope == store.ScopePool && len(k.Kinds) == 0:
		return invalid("kinds", "a pool key must name the kinds that it serves")
	case k.Scope != store.ScopePool && len(k.Kinds) > 0:
		return invalid("kinds", "only a pool key has kinds")
	case k.Scope == store.ScopeTenant:
		if _, err := s.tenants.Tenant(ctx, k.Tenant); err != nil {
			return tenantError(err)
		}
	}
	return nil
}

// NewKeyID names a new key; it is not secret.
func NewKeyID() string {
	var raw [8]byte
	if _, err := rand.Read(raw[:]); err != nil {
		panic("api: the system has no randomness: " + err.Error())
	}
	return "key-" + hex.EncodeToString(raw[:])
}

func (s *adminService) ListKeys(ctx context.Context, req *errandv1.ListKeysRequest) (*errandv1.ListKeysResponse, error) {
	if _, err := allow(ctx, store.ScopeAdmin); err != nil {
		return nil, err
	}
	limit := pageSize(req.GetPageSize())
	keys, err := s.keys.ListKeys(ctx, req.GetTenant(), req.GetPageToken(), limit)
	if err != nil {
		return nil, outside(err)
	}
	resp := &errandv1.ListKeysResponse{}
	for i := range keys {
		resp.Keys = append(resp.Keys, keyMessage(&keys[i]))
	}
	if len(keys) == limit {
		resp.NextPageToken = keys[limit-1].ID
	}
	return resp, nil
}

func (s *adminService) RevokeKey(ctx context.Context, req *errandv1.RevokeKeyRequest) (*errandv1.RevokeKeyResponse, error) {
	if _, err := allow(ctx, store.ScopeAdmin); err != nil {
		return nil, err
	}
	k, err := s.keys.RevokeKey(ctx, req.GetKeyId())
	if errors.Is(err, store.ErrNotFound) {
		return nil, outside(errKeyNotFound)
	}
	if err != nil {
		return nil, outside(err)
	}
	return &errandv1.RevokeKeyResponse{Key: keyMessage(&k)}, nil
}

func keyMessage(k *store.Key) *errandv1.Key {
	return &errandv1.Key{
		KeyId: k.ID, Scope: errandv1.KeyScope(k.Scope), Tenant: k.Tenant, Kinds: k.Kinds, Note: k.Note,
		CreatedAt: stamp(k.CreatedAt), RevokedAt: stamp(k.RevokedAt),
	}
}

func (s *adminService) ListWorkers(ctx context.Context, _ *errandv1.ListWorkersRequest) (*errandv1.ListWorkersResponse, error) {
	if _, err := allow(ctx, store.ScopeAdmin); err != nil {
		return nil, err
	}
	workers, err := s.workers.Workers(ctx)
	if err != nil {
		return nil, outside(err)
	}
	resp := &errandv1.ListWorkersResponse{}
	for i := range workers {
		w := &workers[i]
		m := &errandv1.Worker{
			Worker: w.Worker.ID.String(), Name: w.Worker.Name, Tenant: w.Worker.Tenant,
			Draining: w.Draining, Connected: w.Connected, Silent: durationpb.New(w.Silent),
		}
		for _, k := range w.Kinds() {
			m.Kinds = append(m.Kinds, &errandv1.Worker_KindCapacity{Kind: k.Kind, Slots: int32(k.Slots)})
		}
		resp.Workers = append(resp.Workers, m)
	}
	return resp, nil
}

func (s *adminService) DrainWorker(ctx context.Context, req *errandv1.DrainWorkerRequest) (*errandv1.DrainWorkerResponse, error) {
	if _, err := allow(ctx, store.ScopeAdmin); err != nil {
		return nil, err
	}
	workers, err := s.workers.Workers(ctx)
	if err != nil {
		return nil, outside(err)
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
	if _, err := allow(ctx, store.ScopeAdmin); err != nil {
		return nil, err
	}
	region := req.GetRegion()
	if region == "" {
		region = s.region
	}
	report, err := s.audit.Audit(ctx, region)
	if err != nil {
		return nil, outside(err)
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
