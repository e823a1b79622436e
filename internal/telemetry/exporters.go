package telemetry

import (
	"context"
	"log/slog"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"github.com/prometheus/otlptranslator"
	"go.opentelemetry.io/contrib/exporters/autoexport"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	promexporter "go.opentelemetry.io/otel/exporters/prometheus"
	"go.opentelemetry.io/otel/sdk/instrumentation"
	sdklog "go.opentelemetry.io/otel/sdk/log"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace/noop"
)

// seriesMax bounds the series of one instrument, should a label of somebody else's instrument ever grow: what is beyond is
// added up in one series.
const seriesMax = 500

// exported tells whether the environment asks to export a signal (TRACES, METRICS or LOGS). OpenTelemetry's own default is to
// try the local machine; here nothing is tried that nobody has named.
func exported(signal string) bool {
	if strings.EqualFold(os.Getenv("OTEL_SDK_DISABLED"), "true") {
		return false
	}
	for _, name := range []string{
		"OTEL_" + signal + "_EXPORTER", "OTEL_EXPORTER_OTLP_" + signal + "_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT",
	} {
		if os.Getenv(name) != "" {
			return true
		}
	}
	return false
}

// describe says who the process is; the environment has the last word.
func describe(ctx context.Context, cfg Config) (*resource.Resource, error) {
	name := cfg.ServiceName
	if name == "" {
		name = "errand"
	}
	attributes := []attribute.KeyValue{attribute.String("service.name", name)}
	for key, value := range map[string]string{
		"service.version": cfg.ServiceVersion, "service.instance.id": cfg.Instance, "errand.region": cfg.Region,
	} {
		if value != "" {
			attributes = append(attributes, attribute.String(key, value))
		}
	}
	return resource.New(ctx, resource.WithAttributes(attributes...), resource.WithTelemetrySDK(), resource.WithFromEnv())
}

func (t *Telemetry) startMetrics(ctx context.Context, who *resource.Resource) error {
	scraped, err := promexporter.New(promexporter.WithRegisterer(t.registry), promexporter.WithoutScopeInfo(),
		promexporter.WithTranslationStrategy(otlptranslator.UnderscoreEscapingWithSuffixes))
	if err != nil {
		return err
	}
	options := []sdkmetric.Option{
		sdkmetric.WithResource(who), sdkmetric.WithReader(scraped), sdkmetric.WithCardinalityLimit(seriesMax),
		sdkmetric.WithView(callsView()),
	}
	if exported("METRICS") {
		reader, err := autoexport.NewMetricReader(ctx)
		if err != nil {
			return err
		}
		if !autoexport.IsNoneMetricReader(reader) {
			options = append(options, sdkmetric.WithReader(reader))
		}
	}
	provider := sdkmetric.NewMeterProvider(options...)
	t.ends = append(t.ends, provider.Shutdown)
	t.meter = provider.Meter(scope)
	otel.SetMeterProvider(provider)
	return nil
}

// callsView keeps of the RPC metrics only labels with few values: addresses and ports of peers are none.
func callsView() sdkmetric.View {
	return sdkmetric.NewView(
		sdkmetric.Instrument{Scope: instrumentation.Scope{Name: "connectrpc.com/otelconnect"}},
		sdkmetric.Stream{AttributeFilter: attribute.NewAllowKeysFilter(
			"rpc.system", "rpc.system.name", "rpc.service", "rpc.method", "rpc.response.status_code")},
	)
}

// startTraces records spans only when they are exported. Otherwise the trace context of callers is still carried on.
func (t *Telemetry) startTraces(ctx context.Context, who *resource.Resource) error {
	otel.SetTracerProvider(noop.NewTracerProvider())
	if !exported("TRACES") {
		return nil
	}
	exporter, err := autoexport.NewSpanExporter(ctx)
	if err != nil || autoexport.IsNoneSpanExporter(exporter) {
		return err
	}
	to := newSpans(exporter)
	provider := sdktrace.NewTracerProvider(sdktrace.WithResource(who), sdktrace.WithBatcher(to))
	t.ends = append(t.ends, func(ctx context.Context) error { return to.end(ctx, provider) })
	otel.SetTracerProvider(provider)
	return nil
}

func (t *Telemetry) startLogs(ctx context.Context, who *resource.Resource) error {
	if !exported("LOGS") {
		return nil
	}
	exporter, err := autoexport.NewLogExporter(ctx)
	if err != nil || autoexport.IsNoneLogExporter(exporter) {
		return err
	}
	t.logs = sdklog.NewLoggerProvider(sdklog.WithResource(who), sdklog.WithProcessor(sdklog.NewBatchProcessor(exporter)))
	t.ends = append(t.ends, t.logs.Shutdown)
	return nil
}

// troubleEvery is how often trouble with exporting is told: an endpoint that is down fails every few seconds.
const troubleEvery = time.Minute

// troubles logs what goes wrong in OpenTelemetry itself.
type troubles struct {
	log  *slog.Logger
	last atomic.Int64 // when the last one was told, in Unix nanoseconds
}

func newTroubles(log *slog.Logger) *troubles {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	return &troubles{log: log}
}

// Handle tells of an error unless another was told shortly before.
func (t *troubles) Handle(err error) {
	if due(&t.last, troubleEvery) {
		t.log.Warn("telemetry is impaired: metrics, traces or logs may be missing; the work goes on", "error", err)
	}
}

// due tells whether at least the given time has passed since it last said so.
func due(last *atomic.Int64, every time.Duration) bool {
	now, before := time.Now().UnixNano(), last.Load()
	return now-before >= int64(every) && last.CompareAndSwap(before, now)
}
