package api

import (
	"context"
	"errors"
	"strings"

	"connectrpc.com/connect"
	"connectrpc.com/grpchealth"
)

// health answers the standard health service with this instance's readiness.
type health struct{ ready func() error }

// Check tells whether the instance can do its work.
func (h health) Check(_ context.Context, req *grpchealth.CheckRequest) (*grpchealth.CheckResponse, error) {
	if req.Service != "" && !strings.HasPrefix(req.Service, "errand.v1.") {
		return nil, connect.NewError(connect.CodeNotFound, errors.New("unknown service"))
	}
	if h.ready() != nil {
		return &grpchealth.CheckResponse{Status: grpchealth.StatusNotServing}, nil
	}
	return &grpchealth.CheckResponse{Status: grpchealth.StatusServing}, nil
}
