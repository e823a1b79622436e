package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/goccy/go-yaml"
	"golang.org/x/sync/errgroup"

	"github.com/errandhq/errand/fairness/tokenbucket"
	"github.com/errandhq/errand/internal/api"
	"github.com/errandhq/errand/internal/hints"
	"github.com/errandhq/errand/internal/store"
	"github.com/errandhq/errand/internal/telemetry"
	"github.com/errandhq/errand/regions"
	"github.com/errandhq/errand/scheduler"
	"github.com/errandhq/errand/scheduler/engine"
)

// serveCmd runs a scheduler instance.
type serveCmd struct {
	Region string `help:"The region of this instance: a-z 0-9 -." default:"local"`
	Listen string `help:"Address of the one port for everything: HOST:PORT." default:"127.0.0.1:7070"`
	Store  string `help:"URL of PostgreSQL or CockroachDB." required:"" placeholder:"URL"`
	Redis  string `help:"URL of the region's Redis; none is fine: things are noticed a little later, and each instance admits its share of a tenant's rate." placeholder:"URL"`

	Topology string `help:"File that names all regions and how far they are from each other, the same for every instance of the deployment. Default: there is one region." placeholder:"FILE"`
	Profile  string `help:"Times after which regions take each other for down, and of sessions: wan, or local for regions near each other." enum:"wan,local" default:"wan"`

	Advertise  string   `help:"URL at which the region's other instances reach this one. Default from --listen." placeholder:"URL"`
	PeerRoute  []string `help:"HOST:PORT=HOST:PORT, may be repeated: reach an instance that advertises the first at the second, where regions see each other through gateways." placeholder:"ADDR=ADDR"`
	PeerSecret string   `help:"Secret that the deployment's instances share; without one they do not talk to each other."`
	TLSCert    string   `help:"File with the server's certificate." placeholder:"FILE"`
	TLSKey     string   `help:"File with its key." placeholder:"FILE"`
	ClientCA   string   `help:"File with the authorities of client certificates; clients must then have one." placeholder:"FILE"`
	PeerCA     string   `help:"File with the authorities of the other instances' certificates. Default the system's." placeholder:"FILE"`

	Retention     time.Duration `help:"How long ended tasks are kept; at least 168h." default:"168h"`
	ShutdownGrace time.Duration `help:"How long a polite end may take." default:"15s"`
	MetricsListen string        `help:"Address of the Prometheus endpoint /metrics: HOST:PORT. Default none." placeholder:"ADDR"`
	Pprof         bool          `help:"Serve /debug/pprof there too."`
	PrintConfig   bool          `help:"Print the settings in force, and stop."`

	Timing timingSettings `embed:"" group:"Timing"`
	logSettings
}

// timingSettings are the times of the protocol between store, schedulers and workers; see docs/operations for what must hold.
type timingSettings struct {
	SessionTTL    time.Duration `help:"How long an instance lives without renewing its session. Default the profile's: 6s, local 3s."`
	SessionRenew  time.Duration `help:"How often it renews; at most a third of the TTL. Default the profile's: 2s, local 1s."`
	SessionMargin time.Duration `help:"How much less than the TTL it trusts its session. Default the profile's: 1.5s, local 800ms."`
	ReattachGrace time.Duration `help:"How long the attempts of an ended session wait for their workers. Default the profile's: 6s, local 3s."`
	WorkerLease   time.Duration `help:"How long a silent worker keeps its attempts." default:"10s"`
	Heartbeat     time.Duration `help:"How often workers say that they live; at most a third of the lease." default:"3s"`
}

// timing is the times in force: those that are set, else the profile's.
func (t *timingSettings) timing(p *regions.Profile) scheduler.Timing {
	timing := scheduler.DefaultTiming()
	timing.SessionTTL, timing.Renewal = cmp.Or(t.SessionTTL, p.SessionTTL), cmp.Or(t.SessionRenew, p.Renewal)
	timing.Margin, timing.ReattachGrace = cmp.Or(t.SessionMargin, p.Margin), cmp.Or(t.ReattachGrace, p.ReattachGrace)
	timing.RenewalCall, timing.ReconnectCap, timing.ClockOffset = p.RenewalCall, p.ReconnectCap, p.ClockOffset
	timing.WorkerLease, timing.Heartbeat = t.WorkerLease, t.Heartbeat
	return timing
}

// profile is the named times of regions, with what is set.
func (c *serveCmd) profile() (regions.Profile, error) {
	p, err := regions.ProfileNamed(cmp.Or(c.Profile, regions.WAN().Name)) // the flag's default
	if err != nil {
		return p, fmt.Errorf("--profile: %w", err)
	}
	t := c.Timing.timing(&p)
	p.SessionTTL, p.Renewal, p.Margin, p.ReattachGrace = t.SessionTTL, t.Renewal, t.Margin, t.ReattachGrace
	return p, nil
}

// timingSettingsOf is the other way round.
func timingSettingsOf(t scheduler.Timing) timingSettings {
	return timingSettings{
		SessionTTL: t.SessionTTL, SessionRenew: t.Renewal, SessionMargin: t.Margin,
		ReattachGrace: t.ReattachGrace, WorkerLease: t.WorkerLease, Heartbeat: t.Heartbeat,
	}
}

// Validate checks the settings together.
func (c *serveCmd) Validate() error {
	if !scheduler.ValidName(c.Region) {
		return fmt.Errorf("--region: %q: a letter, then letters, digits and dashes, at most 63", c.Region)
	}
	if (c.TLSCert == "") != (c.TLSKey == "") {
		return errors.New("--tls-cert and --tls-key go together")
	}
	if c.ClientCA != "" && c.TLSCert == "" {
		return errors.New("--client-ca needs --tls-cert and --tls-key")
	}
	if c.Pprof && c.MetricsListen == "" {
		return errors.New("--pprof needs --metrics-listen: profiles are served beside the metrics")
	}
	if c.Retention < store.RetentionMin {
		return fmt.Errorf("--retention: %v is less than %v, for which idempotency keys stand", c.Retention, store.RetentionMin)
	}
	if _, err := peerRoutes(c.PeerRoute); err != nil {
		return err
	}
	p, err := c.profile()
	if err != nil {
		return err
	}
	return c.Timing.timing(&p).Validate()
}

// Run serves until the context ends.
func (c *serveCmd) Run(ctx context.Context) error {
	if c.PrintConfig {
		return c.printConfig()
	}
	listener, err := net.Listen("tcp", c.Listen)
	if err != nil {
		return fmt.Errorf("--listen: %w", err)
	}
	return c.on(ctx, listener)
}

// on serves on a listener until the context ends, and closes it.
func (c *serveCmd) on(ctx context.Context, listener net.Listener) error {
	defer func() { _ = listener.Close() }() // closed already after a start that went well
	tuneGC()
	base := c.logger().With("region", c.Region)
	tel, err := telemetry.Start(ctx, telemetry.Config{
		ServiceName: "errand", ServiceVersion: version, Region: c.Region, MetricsAddr: c.MetricsListen, Profiles: c.Pprof, Log: base,
	})
	if err != nil {
		return err
	}
	log := tel.Logger(base)
	defer func() {
		if err := tel.Shutdown(context.WithoutCancel(ctx)); err != nil {
			log.Warn("the last telemetry could not be sent", "error", err)
		}
	}()
	st, err := store.Open(ctx, store.Config{URL: c.Store, Trace: tel.Statement})
	if err != nil {
		return err
	}
	defer st.Close()
	if err := st.CheckSchema(ctx); err != nil {
		return err
	}
	return c.serve(ctx, log, tel, st, listener)
}

func (c *serveCmd) printConfig() error {
	shown, times := *c, c.times()
	if shown.PeerSecret != "" {
		shown.PeerSecret = "(set)"
	}
	raw, err := yaml.Marshal(map[string]any{
		"region": shown.Region, "topology": shown.Topology, "profile": shown.Profile, "listen": shown.Listen, "store": redactURL(shown.Store), "redis": redactURL(shown.Redis),
		"advertise": shown.Advertise, "metrics-listen": shown.MetricsListen, "pprof": shown.Pprof, "peer-secret": shown.PeerSecret, "peer-route": shown.PeerRoute, "tls-cert": shown.TLSCert, "tls-key": shown.TLSKey,
		"retention": shown.Retention.String(), "client-ca": shown.ClientCA, "peer-ca": shown.PeerCA, "shutdown-grace": shown.ShutdownGrace.String(), "session-ttl": times.SessionTTL.String(),
		"session-renew": times.Renewal.String(), "session-margin": times.Margin.String(),
		"reattach-grace": times.ReattachGrace.String(), "worker-lease": times.WorkerLease.String(),
		"heartbeat": times.Heartbeat.String(), "log-level": shown.LogLevel.String(), "log-format": shown.LogFormat,
	})
	if err != nil {
		return err
	}
	_, err = os.Stdout.Write(raw)
	return err
}

// serve wires the instance together: store, engine, edge.
func (c *serveCmd) serve(ctx context.Context, log *slog.Logger, tel *telemetry.Telemetry, st *store.Store, listener net.Listener) error {
	places, err := c.places(ctx, st)
	if ctx.Err() != nil {
		return nil // stopped before it began
	}
	if err != nil {
		return err
	}
	eng, err := c.engine(tel, log, listener, places)
	if err != nil {
		return err
	}
	buckets, err := c.buckets(log)
	if err != nil {
		return err
	}
	defer func() { _ = buckets.Close() }() // nothing is lost with it
	bus, publish, err := c.hints(log)
	if err != nil {
		return err
	}
	if bus != nil {
		defer func() { _ = bus.Close() }() // nothing is lost with it
	}
	peers, err := c.peerClient()
	if err != nil {
		return err
	}
	others := api.NewPeers(peers, c.PeerSecret)
	shell := engine.NewShell(eng, st, others, publish)
	admitted, err := tel.Admission(buckets.Status)
	if err := errors.Join(err, tel.WatchInstance(shell), tel.WatchPools(st.Pools)); err != nil {
		return err
	}
	handler, err := api.Handler(api.Config{
		Region: c.Region, Regions: places.names, Places: st, PeerSecret: c.PeerSecret, Scheduler: shell, Peer: shell, Others: others, Workers: shell,
		Tasks: st, Tenants: st, Kinds: st, Limits: st, Keys: st, Auditor: st, Settings: catalog{shell},
		Admission: admission{buckets, shell}, Standing: st, Admitted: admitted,
		Ready: func() error { return ready(shell, c.times()) }, Log: log,
	})
	if err != nil {
		return err
	}
	server, err := c.server(handler)
	if err != nil {
		return err
	}

	in := &serving{c, shell, st, server, listener, buckets, bus, log}
	return in.run(ctx)
}

// serving is an instance that is wired together.
type serving struct {
	*serveCmd
	shell    *engine.Shell
	store    *store.Store
	server   *http.Server
	listener net.Listener
	buckets  *tokenbucket.Buckets
	bus      *hints.Bus // nil for none
	log      *slog.Logger
}

// run serves until the context ends.
func (s *serving) run(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	stopServing, stop := context.WithCancel(context.WithoutCancel(ctx))
	group.Go(func() error { // first the engine says goodbye, then the port closes
		defer stop()
		return s.shell.Run(ctx, s.ShutdownGrace)
	})
	group.Go(func() error {
		if s.TLSCert != "" {
			return ignoreClosed(s.server.ServeTLS(s.listener, "", "")) // the certificate is in the configuration
		}
		return ignoreClosed(s.server.Serve(s.listener))
	})
	group.Go(func() error {
		<-stopServing.Done()
		return closeServer(s.server)
	})
	group.Go(func() error { return sweep(ctx, s.shell, s.store, s.Region, s.Retention, s.log) })
	group.Go(func() error {
		keepMemory(ctx)
		return nil
	})
	group.Go(func() error {
		warnOfEviction(ctx, s.buckets, s.log)
		return nil
	})
	if s.bus != nil {
		group.Go(func() error {
			return s.bus.Run(stopServing, func(h []engine.Hint) { s.shell.Post(engine.Hinted{Hints: h}) })
		})
	}
	s.log.Info("serving", "listen", s.listener.Addr().String(), "store", s.store.Dialect().String(), "version", version)
	err := group.Wait()
	s.log.Info("stopped")
	return err
}

func (c *serveCmd) engine(tel *telemetry.Telemetry, log *slog.Logger, listener net.Listener, at *places) (*engine.Engine, error) {
	observer, err := tel.Observer(log)
	if err != nil {
		return nil, err
	}
	return engine.New(engine.Config{
		Region: c.Region, Regions: at.names, Topology: at.topology, Profile: &at.profile, Address: c.advertised(listener), Timing: c.times(),
		Rand: rand.New(rand.NewPCG(rand.Uint64(), rand.Uint64())), Observe: observer,
	}), nil
}

// buckets opens the region's token buckets; it needs no Redis to be there.
func (c *serveCmd) buckets(log *slog.Logger) (*tokenbucket.Buckets, error) {
	quietRedis(log)
	return tokenbucket.Open(c.Redis, c.Region, tokenbucket.Options{Ahead: tokenbucket.AheadFor})
}

// hints opens the bus of hints; without a Redis there is none.
func (c *serveCmd) hints(log *slog.Logger) (*hints.Bus, engine.Hints, error) {
	if c.Redis == "" {
		return nil, nil, nil
	}
	bus, err := hints.Open(c.Redis, c.Region, log)
	return bus, bus, err
}

func (c *serveCmd) server(handler http.Handler) (*http.Server, error) {
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	protocols.SetHTTP2(true)
	protocols.SetUnencryptedHTTP2(true)
	s := &http.Server{
		Handler: handler, Protocols: protocols, ReadHeaderTimeout: 10 * time.Second, IdleTimeout: 2 * time.Minute,
		HTTP2: &http.HTTP2Config{MaxConcurrentStreams: 10_000, SendPingTimeout: 15 * time.Second, PingTimeout: 10 * time.Second},
	}
	if c.TLSCert == "" {
		return s, nil
	}
	var err error
	s.TLSConfig, err = api.TLSConfig(c.TLSCert, c.TLSKey, c.ClientCA)
	return s, err
}

// advertised is where the region's other instances reach this one.
func (c *serveCmd) advertised(l net.Listener) string {
	if c.Advertise != "" {
		return c.Advertise
	}
	scheme := "http://"
	if c.TLSCert != "" {
		scheme = "https://"
	}
	return scheme + l.Addr().String()
}

// failingLimit is how long a statement may fail before this instance says that it is not well.
const failingLimit = 15 * time.Second

// ready tells why this instance cannot do its work, nil when it can.
func ready(shell *engine.Shell, timing scheduler.Timing) error {
	st := shell.Status()
	switch {
	case st.Stopping:
		return errors.New("stopping")
	case !st.Opened:
		return errors.New("no session yet: the store has not answered")
	case !shell.Settled():
		return errors.New("not read yet what is set for tenants, kinds and limits: the store has not answered")
	case !st.Trusted:
		return fmt.Errorf("the session is not trusted: the store has not answered a renewal for %v", timing.SessionTTL-timing.Margin)
	case st.Failing > failingLimit:
		return fmt.Errorf("the statement %q has failed for %v: see the log for the store's error", st.FailingWrite, st.Failing.Round(time.Second))
	}
	return nil
}

func closeServer(s *http.Server) error {
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Second)
	defer cancel()
	if err := s.Shutdown(ctx); err != nil {
		return s.Close()
	}
	return nil
}

func ignoreClosed(err error) error {
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return err
}

// peerClient calls the region's other instances, and shows them this one's certificate.
func (c *serveCmd) peerClient() (*http.Client, error) {
	cfg, err := api.TLSClientConfig(c.PeerCA, c.TLSCert, c.TLSKey)
	if err != nil {
		return nil, err
	}
	routes, err := peerRoutes(c.PeerRoute)
	if err != nil {
		return nil, err
	}
	protocols := new(http.Protocols)
	protocols.SetHTTP2(true)
	protocols.SetUnencryptedHTTP2(true)
	return &http.Client{Transport: &http.Transport{
		Protocols: protocols, TLSClientConfig: cfg, IdleConnTimeout: time.Minute, DialContext: routedDial(routes),
	}}, nil
}

// routedDial goes the way that is set for an address, else straight there. Whom it reaches is checked against the address all the same.
func routedDial(routes map[string]string) func(ctx context.Context, network, address string) (net.Conn, error) {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, network, cmp.Or(routes[address], address))
	}
}

func peerRoutes(settings []string) (map[string]string, error) {
	routes := map[string]string{}
	for _, s := range settings {
		from, to, _ := strings.Cut(s, "=")
		for _, address := range []string{from, to} {
			if host, port, err := net.SplitHostPort(address); err != nil || host == "" || port == "" {
				return nil, fmt.Errorf("--peer-route: %q: HOST:PORT=HOST:PORT", s)
			}
		}
		routes[from] = to
	}
	return routes, nil
}
