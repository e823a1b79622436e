package api

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"strings"

	"connectrpc.com/connect"
	"connectrpc.com/grpchealth"
	"connectrpc.com/grpcreflect"
	"connectrpc.com/otelconnect"
	"go.opentelemetry.io/otel/propagation"

	"github.com/errandhq/errand/proto/errand/peer/v1/peerv1connect"
	"github.com/errandhq/errand/proto/errand/v1/errandv1connect"
)

// Bounds of messages.
const (
	readBytesMax = 16 << 20
	workBytesMax = 64 << 20 // a worker's batch of results
)

// Config is what the edge must be told.
type Config struct {
	Region     string
	PeerSecret string // without one the peer service is closed
	Scheduler  Scheduler
	Peer       Peer
	Workers    Workers
	Tasks      Tasks
	Tenants    Tenants
	Keys       Keys
	Auditor    Auditor
	Ready      func() error // nil error while this instance can do its work
	Log        *slog.Logger
}

// Handler returns everything that one port serves: Connect, gRPC and gRPC-Web for all services, health and reflection.
func Handler(cfg Config) (http.Handler, error) {
	valid, err := newValidator()
	if err != nil {
		return nil, err
	}
	traces, err := otelconnect.NewInterceptor(otelconnect.WithTrustRemote())
	if err != nil {
		return nil, err
	}
	options := func(limit int) connect.HandlerOption {
		return connect.WithHandlerOptions(
			connect.WithReadMaxBytes(limit),
			connect.WithCompressMinBytes(readBytesMax), // payloads are opaque and links are near: compressing costs more than it saves
			connect.WithInterceptors(traces, clean(cfg.Log), valid),
		)
	}

	mux := http.NewServeMux()
	auth := NewAuthenticator(cfg.Keys, func(err error) { cfg.Log.Error("authentication is impaired", "error", err) })
	guarded := func(path string, h http.Handler) { mux.Handle(path, auth.Middleware(h)) }
	guarded(errandv1connect.NewTaskServiceHandler(
		&taskService{region: cfg.Region, scheduler: cfg.Scheduler, tasks: cfg.Tasks}, options(readBytesMax)))
	guarded(errandv1connect.NewWorkerServiceHandler(
		&workerService{region: cfg.Region, scheduler: cfg.Scheduler, valid: valid}, options(workBytesMax)))
	guarded(errandv1connect.NewScheduleServiceHandler(errandv1connect.UnimplementedScheduleServiceHandler{}, options(readBytesMax)))
	guarded(errandv1connect.NewAdminServiceHandler(
		&adminService{region: cfg.Region, tenants: cfg.Tenants, keys: cfg.Keys, audit: cfg.Auditor, workers: cfg.Workers},
		options(readBytesMax)))
	path, peers := peerv1connect.NewPeerServiceHandler(&peerService{peer: cfg.Peer}, options(readBytesMax))
	mux.Handle(path, peersOnly(cfg.PeerSecret, peers))

	mux.Handle(grpchealth.NewHandler(health{cfg.Ready}))
	reflector := grpcreflect.NewStaticReflector(errandv1connect.TaskServiceName, errandv1connect.WorkerServiceName,
		errandv1connect.ScheduleServiceName, errandv1connect.AdminServiceName)
	mux.Handle(grpcreflect.NewHandlerV1(reflector))
	mux.Handle(grpcreflect.NewHandlerV1Alpha(reflector))
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		if err := cfg.Ready(); err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
		_, _ = w.Write([]byte("ok\n")) // the client is gone when it fails
	})
	mux.HandleFunc("GET /livez", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("ok\n")) })
	return mux, nil
}

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

// clean makes sure that only errors of this package's table leave: an unimplemented RPC says so in its detail, and whatever
// else slips through is logged here and shown as internal.
func clean(log *slog.Logger) connect.Interceptor { return &cleaner{log} }

type cleaner struct{ log *slog.Logger }

func (c *cleaner) WrapUnary(next connect.UnaryFunc) connect.UnaryFunc {
	return func(ctx context.Context, req connect.AnyRequest) (connect.AnyResponse, error) {
		resp, err := next(ctx, req)
		return resp, c.clean(err, req.Spec().Procedure)
	}
}

func (c *cleaner) WrapStreamingClient(next connect.StreamingClientFunc) connect.StreamingClientFunc {
	return next
}

func (c *cleaner) WrapStreamingHandler(next connect.StreamingHandlerFunc) connect.StreamingHandlerFunc {
	return func(ctx context.Context, conn connect.StreamingHandlerConn) error {
		return c.clean(next(ctx, conn), conn.Spec().Procedure)
	}
}

func (c *cleaner) clean(err error, procedure string) error {
	if err == nil {
		return nil
	}
	var known *connect.Error
	if errors.As(err, &known) {
		if known.Code() == connect.CodeUnimplemented && len(known.Details()) == 0 {
			return later("")
		}
		return known
	}
	shown := outside(err)
	if shown.Code() == connect.CodeInternal {
		c.log.Error("an internal error reached the edge", "procedure", procedure, "error", err)
	}
	return shown
}

// traceParent returns the caller's trace context in W3C form, empty for none.
func traceParent(ctx context.Context) string {
	carrier := propagation.MapCarrier{}
	propagation.TraceContext{}.Inject(ctx, carrier)
	return carrier["traceparent"]
}
