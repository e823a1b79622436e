package main

import (
	"context"
	"net/http"

	"connectrpc.com/connect"

	"github.com/errandhq/errand/proto/errand/v1/errandv1connect"
)

// listPageMax is how many rows a page of an operator's list has: as many as the API gives.
const listPageMax = 500

// admin calls the service for operators.
func (c *clientSettings) admin() (errandv1connect.AdminServiceClient, error) {
	cfg, err := c.checked("an admin")
	if err != nil {
		return nil, err
	}
	hc := &http.Client{Transport: &http.Transport{TLSClientConfig: cfg.TLS}}
	key := connect.UnaryInterceptorFunc(func(next connect.UnaryFunc) connect.UnaryFunc {
		return func(ctx context.Context, req connect.AnyRequest) (connect.AnyResponse, error) {
			req.Header().Set("Authorization", "Bearer "+cfg.Key)
			return next(ctx, req)
		}
	})
	return errandv1connect.NewAdminServiceClient(hc, c.URL, connect.WithInterceptors(key)), nil
}
