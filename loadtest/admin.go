package main

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"connectrpc.com/connect"

	errandv1 "github.com/errandhq/errand/proto/errand/v1"
	"github.com/errandhq/errand/proto/errand/v1/errandv1connect"
)

// limitsKnown is how long schedulers may take to hear of a new limit: they read what operators have set every second.
const limitsKnown = 3 * time.Second

// operator is a client of the first scheduler's administration.
func (c *cluster) operator() errandv1connect.AdminServiceClient {
	key := connect.UnaryInterceptorFunc(func(next connect.UnaryFunc) connect.UnaryFunc {
		return func(ctx context.Context, req connect.AnyRequest) (connect.AnyResponse, error) {
			req.Header().Set("Authorization", "Bearer "+c.admin)
			return next(ctx, req)
		}
	})
	return errandv1connect.NewAdminServiceClient(http.DefaultClient, c.urls[0], connect.WithInterceptors(key))
}

// putLimits sets limits of a tenant, and waits until the schedulers know them.
func (c *cluster) putLimits(ctx context.Context, tenant string, limits ...*errandv1.NamedLimit) error {
	admin := c.operator()
	for _, l := range limits {
		l.Tenant = tenant
		if _, err := admin.PutLimit(ctx, &errandv1.PutLimitRequest{Limit: l}); err != nil {
			return fmt.Errorf("limit %s: %w", l.GetName(), err)
		}
	}
	return pause(ctx, limitsKnown)
}
