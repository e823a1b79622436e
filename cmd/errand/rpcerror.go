package main

import (
	"errors"

	"connectrpc.com/connect"

	"github.com/errandhq/errand"
)

// rpcError gives an error of a generated client the meaning that exit codes are made of.
func rpcError(err error) error {
	kind := map[connect.Code]error{
		connect.CodeNotFound:         errand.ErrNotFound,
		connect.CodeInvalidArgument:  errand.ErrInvalid,
		connect.CodeUnauthenticated:  errand.ErrDenied,
		connect.CodePermissionDenied: errand.ErrDenied,
		connect.CodeUnavailable:      errand.ErrUnavailable,
	}[connect.CodeOf(err)]
	if kind == nil {
		return err
	}
	return errors.Join(err, kind)
}
