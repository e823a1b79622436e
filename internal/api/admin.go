package api

import (
	"context"

	errandv1 "github.com/errandhq/errand/proto/errand/v1"
	"github.com/errandhq/errand/proto/errand/v1/errandv1connect"
	"github.com/errandhq/errand/scheduler"
)

// adminService serves operators.
type adminService struct {
	errandv1connect.UnimplementedAdminServiceHandler
	deployment
	tenants Tenants
	kinds   Kinds
	limits  Limits
	keys    Keys
	audit   Auditor
	workers Workers
	places  Regions
	auth    *authenticator

	scheduler Scheduler
	others    Others
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
