package api

import (
	"context"
	"log/slog"
	"net/http"

	"connectrpc.com/connect"
	"connectrpc.com/grpchealth"
	"connectrpc.com/grpcreflect"
	"connectrpc.com/otelconnect"
	"go.opentelemetry.io/otel/propagation"

	"github.com/errandhq/errand/internal/store"
	"github.com/errandhq/errand/proto/errand/peer/v1/peerv1connect"
	"github.com/errandhq/errand/proto/errand/v1/errandv1connect"
)

// Bounds of messages.
const (
	readBytesMax        = 16 << 20 // any request, after decompression
	probeBytesMax       = 64 << 10 // a health check, a question to reflection
	workRequestBytesMax = 8 << 20  // what workers are told; the reading limit leaves room for one end more
	compressNever       = 1 << 30  // payloads are opaque and links are near: compressing costs more than it saves
)

// Config is what the edge must be told. All but PeerSecret, Others, Settings, Admission, Admitted and Log is
// required.
type Config struct {
	Region string // of this instance
	// Regions names all regions of the deployment by their numbers. Default: the own one alone.
	Regions    []string
	PeerSecret string // shared by the deployment's instances; without one the peer service is closed
	Scheduler  Scheduler
	Peer       Peer
	Others     Others // nil when there are none to ask
	Workers    Workers
	Tasks      Tasks
	Tenants    Tenants
	Kinds      Kinds
	Limits     Limits
	Places     Regions
	Keys       Keys
	Auditor    Auditor
	Settings   Settings // nil means that nothing is set
	// Admission bounds what tenants submit, by what Settings say of them. Nil: everything is admitted.
	Admission Admission
	Standing  Standing
	Admitted  AdmissionObserver // nil: nobody is told
	// Ready returns nil while this instance can do its work. The text of its error is shown to whoever asks /readyz.
	Ready func() error
	Log   *slog.Logger // default: nowhere
}

// Handler returns everything that one port serves: Connect, gRPC and gRPC-Web for all services, health and reflection. Bidi
// streams and gRPC need a server that speaks HTTP/2, with TLS or without.
func Handler(cfg Config) (http.Handler, error) {
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	if cfg.Settings == nil {
		cfg.Settings = nothingSet{}
	}
	if cfg.Admitted == nil {
		cfg.Admitted = unobserved{}
	}
	valid, err := newValidator()
	if err != nil {
		return nil, err
	}
	traces, err := otelconnect.NewInterceptor(otelconnect.WithTrustRemote(), otelconnect.WithPropagator(propagation.TraceContext{}),
		otelconnect.WithFilter(unaryOnly))
	if err != nil {
		return nil, err
	}
	cleaner := &cleaner{log: cfg.Log}
	options := connect.WithHandlerOptions(
		withCodecs(),
		connect.WithReadMaxBytes(readBytesMax),
		connect.WithCompressMinBytes(compressNever),
		connect.WithRecover(cleaner.recovered),
		connect.WithInterceptors(traces, cleaner, valid),
	)
	logins := newLogins()
	auth := newAuthenticator(cfg.Keys, logins, cfg.Log)
	mux := http.NewServeMux()
	mount := func(guard func(http.Handler) http.Handler) func(string, http.Handler) {
		return func(path string, h http.Handler) { mux.Handle(path, guard(h)) }
	}

	tenants := mount(auth.only(store.ScopeTenant))
	tenants(errandv1connect.NewTaskServiceHandler(&taskService{
		deployment: newDeployment(&cfg), scheduler: cfg.Scheduler, others: cfg.Others, tasks: cfg.Tasks, settings: cfg.Settings, valid: valid,
		intake: newIntake(&cfg),
	}, options))
	tenants(errandv1connect.NewScheduleServiceHandler(errandv1connect.UnimplementedScheduleServiceHandler{}, options))
	mount(auth.only(store.ScopeTenant, store.ScopePool))(errandv1connect.NewWorkerServiceHandler(
		&workerService{deployment: newDeployment(&cfg), scheduler: cfg.Scheduler, tasks: cfg.Tasks, valid: valid}, options))
	mount(auth.only(store.ScopeAdmin))(errandv1connect.NewAdminServiceHandler(&adminService{
		deployment: newDeployment(&cfg), tenants: cfg.Tenants, kinds: cfg.Kinds, limits: cfg.Limits, places: cfg.Places, keys: cfg.Keys, audit: cfg.Auditor, workers: cfg.Workers,
		auth: auth, scheduler: cfg.Scheduler, others: cfg.Others,
	}, options))
	mount(peersOnly(cfg.PeerSecret, logins))(peerv1connect.NewPeerServiceHandler(
		&peerService{deployment: newDeployment(&cfg), peer: cfg.Peer, scheduler: cfg.Scheduler, workers: cfg.Workers}, options))
	mountProbes(mux, cfg.Ready)
	return mux, nil
}

// unaryOnly keeps worker streams out of traces: a span as long as a worker's life tells nothing, and the interceptor must not see a
// stream whose reader is still waiting when its handler returns.
func unaryOnly(_ context.Context, spec connect.Spec) bool {
	return spec.StreamType == connect.StreamTypeUnary
}

// mountProbes adds what needs no credential: health, reflection, and the same for plain HTTP.
func mountProbes(mux *http.ServeMux, ready func() error) {
	limit := connect.WithReadMaxBytes(probeBytesMax)
	mux.Handle(grpchealth.NewHandler(health{ready}, limit))
	reflector := grpcreflect.NewStaticReflector(errandv1connect.TaskServiceName, errandv1connect.WorkerServiceName,
		errandv1connect.ScheduleServiceName, errandv1connect.AdminServiceName)
	mux.Handle(grpcreflect.NewHandlerV1(reflector, limit))
	mux.Handle(grpcreflect.NewHandlerV1Alpha(reflector, limit))
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		if err := ready(); err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
		_, _ = w.Write([]byte("ok\n")) // the client is gone when it fails
	})
	mux.HandleFunc("GET /livez", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("ok\n")) })
}
