// Package telemetry makes visible what a process of Errand does: metrics, traces and logs.
//
// [Start] sets OpenTelemetry up for the process by the standard OTEL_* variables. Nothing is sent anywhere unless one of them
// says where to; the metrics can always be scraped by Prometheus ([Telemetry.MetricsHandler]). The other functions connect the
// parts of a process to it: [Telemetry.Observer] is what a scheduler instance tells of itself, [Telemetry.WatchInstance] and
// [Telemetry.WatchPools] are asked at each scrape, and [Telemetry.Statement] takes the store's latencies.
//
// Two rules hold everywhere. Labels have values from fixed sets only, never a tenant, a kind, an id or an error's text, so the
// number of series does not grow with use. And whoever reports never waits: a log line that cannot be written at once goes
// through a bounded queue, and what does not fit is counted and dropped.
//
// What each metric means is in docs/metrics.md.
package telemetry

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/propagation"
	sdklog "go.opentelemetry.io/otel/sdk/log"
)

// scope names this package's meter.
const scope = "github.com/errandhq/errand"

// ShutdownMax is the longest that [Telemetry.Shutdown] takes, whatever its context allows.
const ShutdownMax = 5 * time.Second

// Config says who the process is. Every field may be empty.
type Config struct {
	ServiceName    string // default "errand"; OTEL_SERVICE_NAME and OTEL_RESOURCE_ATTRIBUTES win over all of these
	ServiceVersion string
	Region         string
	Instance       string       // tells this process from others of its service
	MetricsAddr    string       // host:port on which /metrics is served; empty for nowhere
	Profiles       bool         // serve /debug/pprof there too
	Log            *slog.Logger // where trouble with exporting is told; nil for nowhere
}

// Telemetry is a process's connection to whoever watches it. It is safe for concurrent use.
type Telemetry struct {
	registry   *prometheus.Registry
	meter      metric.Meter
	statements *statements
	lines      *lines
	logs       *sdklog.LoggerProvider // nil when logs are not exported
	listener   net.Listener           // nil when nothing is served

	ends []func(context.Context) error // what Shutdown must end, all at once
	once sync.Once
	err  error
}

// Start begins to watch the process and sets OpenTelemetry's global providers and propagators, once per process. It connects
// to nothing by itself. It fails when an OTEL_* variable has a value that cannot be used, or when MetricsAddr is taken.
func Start(ctx context.Context, cfg Config) (*Telemetry, error) {
	t := &Telemetry{registry: prometheus.NewRegistry()}
	if err := t.start(ctx, cfg); err != nil {
		return nil, errors.Join(fmt.Errorf("start telemetry: %w", err), t.Shutdown(ctx))
	}
	return t, nil
}

func (t *Telemetry) start(ctx context.Context, cfg Config) error {
	otel.SetErrorHandler(newTroubles(cfg.Log))
	otel.SetTextMapPropagator(propagation.NewCompositeTextMapPropagator(propagation.TraceContext{}, propagation.Baggage{}))
	who, err := describe(ctx, cfg)
	if err != nil {
		return err
	}
	for _, begin := range []func() error{
		func() error { return t.startMetrics(ctx, who) },
		func() error { return t.startTraces(ctx, who) },
		func() error { return t.startLogs(ctx, who) },
		func() error { return t.serve(ctx, cfg.MetricsAddr, cfg.Profiles) },
	} {
		if err := begin(); err != nil {
			return err
		}
	}
	for _, c := range []prometheus.Collector{
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
	} {
		if err := t.registry.Register(c); err != nil {
			return err
		}
	}
	if t.statements, err = newStatements(t.meter); err != nil {
		return err
	}
	t.lines, err = newLines(t.meter)
	return err
}

// Shutdown sends what is not sent yet and ends everything that Start began, within ctx and [ShutdownMax]. Its error tells what
// could not be sent; nothing is left running either way. Later calls return the same.
func (t *Telemetry) Shutdown(ctx context.Context) error {
	t.once.Do(func() {
		ctx, cancel := context.WithTimeout(ctx, ShutdownMax)
		defer cancel()
		if t.lines != nil { // first: its last lines are exported too
			t.lines.close(ctx)
		}
		errs := make([]error, len(t.ends))
		var all sync.WaitGroup
		for i, end := range t.ends {
			all.Go(func() { errs[i] = end(ctx) })
		}
		all.Wait()
		if err := errors.Join(errs...); err != nil {
			t.err = fmt.Errorf("end telemetry: %w", err)
		}
	})
	return t.err
}
