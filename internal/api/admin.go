package api

import (
	"bytes"
	"context"
	"slices"
	"strings"

	"google.golang.org/protobuf/types/known/durationpb"

	errandv1 "github.com/errandhq/errand/proto/errand/v1"
	"github.com/errandhq/errand/proto/errand/v1/errandv1connect"
	"github.com/errandhq/errand/scheduler"
	"github.com/errandhq/errand/scheduler/engine"
)

// adminService serves operators.
type adminService struct {
	errandv1connect.UnimplementedAdminServiceHandler
	region  string
	tenants Tenants
	kinds   Kinds
	limits  Limits
	keys    Keys
	audit   Auditor
	workers Workers
	auth    *authenticator

	scheduler Scheduler
	others    Others
}

// Workers lists and drains the workers of this instance. [engine.Shell] implements it.
type Workers interface {
	Workers(ctx context.Context) ([]engine.WorkerInfo, error)
	Post(inputs ...engine.Input)
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
