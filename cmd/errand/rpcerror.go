package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"

	"connectrpc.com/connect"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/errandhq/errand"
)

// rpcError gives an error of a generated client the meaning that exit codes are made of.
func rpcError(err error) error {
	meaning := map[connect.Code]error{
		connect.CodeNotFound:         errand.ErrNotFound,
		connect.CodeInvalidArgument:  errand.ErrInvalid,
		connect.CodeUnauthenticated:  errand.ErrDenied,
		connect.CodePermissionDenied: errand.ErrDenied,
		connect.CodeUnavailable:      errand.ErrUnavailable,
	}[connect.CodeOf(err)]
	if meaning == nil {
		return err
	}
	return &meant{err, meaning}
}

// about is what became of an operator's call, and what the call was about.
func about(what string, err error) error {
	if what == "" {
		return rpcError(err)
	}
	return fmt.Errorf("%s: %w", what, rpcError(err))
}

// meant is an error with a meaning that its text does not repeat.
type meant struct {
	error
	meaning error
}

// Unwrap is both.
func (m *meant) Unwrap() []error { return []error{m.error, m.meaning} }

// surroundings are what an error message has to name to be of use.
type surroundings struct {
	url   string          // the address that was called; empty when none was
	found *devEnvResolver // whose settings may be stale
}

// complain says what went wrong, and on a line of its own what can be done about it.
func complain(w io.Writer, err error, s *surroundings) {
	if errors.Is(err, errQuiet) {
		return
	}
	fmt.Fprintln(w, "errand:", problem(err, s))
	if text := advice(err, s); text != "" {
		fmt.Fprintln(w, "errand:", text)
	}
}

// problem is an error's text for people: without the words that only programs need, and with the address.
func problem(err error, s *surroundings) string {
	var op *net.OpError
	switch {
	case errors.Is(err, errMaybeStored):
		return "interrupted while the task was on its way: it may be stored"
	case errors.Is(err, context.Canceled):
		return "interrupted"
	case errors.Is(err, errand.ErrUnavailable) && errors.As(err, &op) && s.url != "":
		return fmt.Sprintf("no scheduler answers at %s: %s", s.url, strings.TrimPrefix(op.Err.Error(), "connect: "))
	}
	text := strings.ReplaceAll(err.Error(), "errand: ", "")
	for _, prefix := range []error{errUsage, errand.ErrConfig} {
		text = strings.TrimPrefix(text, strings.TrimPrefix(prefix.Error(), "errand: ")+": ")
	}
	if wire := new(connect.Error); errors.As(err, &wire) {
		text = strings.Replace(text, wire.Code().String()+": ", "", 1)
	}
	if errors.Is(err, errand.ErrUnavailable) && s.url != "" {
		return fmt.Sprintf("the scheduler at %s: %s", s.url, text)
	}
	return text
}

// advice is what to do about an error; empty when its text says enough.
func advice(err error, s *surroundings) string {
	var op *net.OpError
	var connecting *pgconn.ConnectError
	var parsing *pgconn.ParseConfigError
	switch {
	case errors.Is(err, context.Canceled) && !errors.Is(err, errMaybeStored):
		return ""
	case errors.As(err, &connecting):
		return "is the database running, and may this user log in? --store is like postgres://USER:PASSWORD@HOST:5432/DATABASE"
	case errors.As(err, &parsing):
		return "--store is like postgres://USER:PASSWORD@HOST:5432/DATABASE"
	case errors.Is(err, errand.ErrUnavailable) && !errors.As(err, &op):
		return "nothing was changed: try again; the scheduler's log says more"
	case errors.Is(err, errand.ErrUnavailable):
		if hint := s.found.hint(err); hint != "" {
			return hint
		}
		return "start one with errand serve, or errand dev to try it; or name another address with --url or ERRAND_URL"
	case errors.Is(err, errand.ErrDenied):
		return "the key comes from --key or ERRAND_KEY; tasks need a tenant's key, and tenant, kind, limit, key, workers, top and audit an admin key"
	case errors.Is(err, errTenantBusy):
		return "let them end, or cancel them with a key of the tenant; docs/fairness.md tells how to empty a tenant"
	case errors.Is(err, errand.ErrOutcomeUnknown), errors.Is(err, errMaybeStored):
		return "look with errand list, or submit it again with --idempotency-key: with one it is stored once, however often it is sent"
	}
	return ""
}
