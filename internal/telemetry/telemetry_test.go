package telemetry

import (
	"context"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// begin starts telemetry without exporters and ends it with the test.
func begin(t *testing.T, cfg Config) *Telemetry {
	t.Helper()
	tel, err := Start(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := tel.Shutdown(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return tel
}

func scrape(t *testing.T, tel *Telemetry) map[string]*dto.MetricFamily {
	t.Helper()
	answer := httptest.NewRecorder()
	tel.MetricsHandler().ServeHTTP(answer, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	if answer.Code != http.StatusOK {
		t.Fatalf("the scrape answers %d: %s", answer.Code, answer.Body)
	}
	return parse(t, answer.Body)
}

func parse(t *testing.T, text io.Reader) map[string]*dto.MetricFamily {
	t.Helper()
	parser := expfmt.NewTextParser(model.LegacyValidation)
	families, err := parser.TextToMetricFamilies(text)
	if err != nil {
		t.Fatal(err)
	}
	return families
}

// sample returns the value of a counter or gauge, or the count of a histogram, with exactly these labels.
func sample(t *testing.T, families map[string]*dto.MetricFamily, name string, labels ...string) float64 {
	t.Helper()
	f := families[name]
	if f == nil {
		t.Fatalf("there is no metric %s", name)
	}
	want := map[string]string{}
	for i := 0; i+1 < len(labels); i += 2 {
		want[labels[i]] = labels[i+1]
	}
	for _, m := range f.GetMetric() {
		if len(m.GetLabel()) != len(want) {
			continue
		}
		same := true
		for _, l := range m.GetLabel() {
			same = same && want[l.GetName()] == l.GetValue()
		}
		if same {
			return m.GetCounter().GetValue() + m.GetGauge().GetValue() + float64(m.GetHistogram().GetSampleCount())
		}
	}
	t.Fatalf("%s has no series %v: %v", name, labels, f.GetMetric())
	return 0
}

func TestStartNamesTheProcess(t *testing.T) {
	t.Setenv("OTEL_RESOURCE_ATTRIBUTES", "deployment.environment.name=test")
	tel := begin(t, Config{ServiceName: "errand-serve", ServiceVersion: "1.2.3", Region: "eu", Instance: "a", MetricsAddr: "127.0.0.1:0"})
	answer, err := http.Get("http://" + tel.MetricsAddr() + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	families := parse(t, answer.Body)
	_ = answer.Body.Close()
	http.DefaultTransport.(*http.Transport).CloseIdleConnections()

	have := map[string]string{}
	for _, l := range families["target_info"].GetMetric()[0].GetLabel() {
		have[l.GetName()] = l.GetValue()
	}
	for name, value := range map[string]string{
		"service_name": "errand-serve", "service_version": "1.2.3", "service_instance_id": "a", "errand_region": "eu",
		"deployment_environment_name": "test",
	} {
		if have[name] != value {
			t.Errorf("target_info has %s=%q, want %q", name, have[name], value)
		}
	}
	if families["go_goroutines"] == nil {
		t.Error("the Go runtime's metrics are missing")
	}
}

// Nobody has named an endpoint: nothing is recorded for export, and a caller's trace is carried on all the same.
func TestWithoutEndpointTraceContextIsCarriedOn(t *testing.T) {
	begin(t, Config{})
	const parent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
	ctx := otel.GetTextMapPropagator().Extract(t.Context(), propagation.MapCarrier{"traceparent": parent})
	ctx, span := otel.Tracer("test").Start(ctx, "work")
	defer span.End()
	if span.IsRecording() {
		t.Error("a span is recorded though it is exported nowhere")
	}
	carrier := propagation.MapCarrier{}
	otel.GetTextMapPropagator().Inject(ctx, carrier)
	if carrier["traceparent"] != parent {
		t.Errorf("traceparent is %q, want the caller's %q", carrier["traceparent"], parent)
	}
}

func TestExported(t *testing.T) {
	for _, c := range []struct {
		name, value string
		want        bool
	}{
		{"OTEL_SERVICE_NAME", "x", false},
		{"OTEL_TRACES_EXPORTER", "otlp", true},
		{"OTEL_METRICS_EXPORTER", "otlp", false},
		{"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "http://collector:4318/v1/traces", true},
		{"OTEL_EXPORTER_OTLP_ENDPOINT", "http://collector:4318", true},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Setenv(c.name, c.value)
			if got := exported("TRACES"); got != c.want {
				t.Errorf("exported(TRACES) is %v, want %v", got, c.want)
			}
			t.Setenv("OTEL_SDK_DISABLED", "true")
			if exported("TRACES") {
				t.Error("exported although OTEL_SDK_DISABLED is set")
			}
		})
	}
}

func TestStartRefusesBadSettings(t *testing.T) {
	for name, value := range map[string]string{
		"OTEL_TRACES_EXPORTER": "carrier-pigeon", "OTEL_METRICS_EXPORTER": "carrier-pigeon", "OTEL_RESOURCE_ATTRIBUTES": "no-value",
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv(name, value)
			if _, err := Start(t.Context(), Config{MetricsAddr: "127.0.0.1:0"}); err == nil {
				t.Error("Start takes it")
			}
		})
	}
	t.Run("MetricsAddr", func(t *testing.T) {
		first := begin(t, Config{MetricsAddr: "127.0.0.1:0"})
		_, err := Start(t.Context(), Config{MetricsAddr: first.MetricsAddr()})
		if err == nil || !strings.Contains(err.Error(), first.MetricsAddr()) {
			t.Errorf("the error is %v, want one that names the address", err)
		}
	})
}

// report makes one span, one metric and one log line.
func report(tel *Telemetry) {
	ctx, span := otel.Tracer("test").Start(context.Background(), "work")
	tel.Logger(slog.New(slog.DiscardHandler)).InfoContext(ctx, "not at this level")
	tel.Logger(NewLogger(io.Discard, slog.LevelInfo, Text)).InfoContext(ctx, "hello")
	span.End()
	tel.Statement("claim tasks", time.Millisecond, nil)
}

func TestEverythingGoesToTheEndpoint(t *testing.T) {
	var mu sync.Mutex
	got := map[string]int{}
	collector := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		got[r.URL.Path]++
	}))
	defer collector.Close()
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.URL)
	tel, err := Start(t.Context(), Config{})
	if err != nil {
		t.Fatal(err)
	}
	report(tel)
	if err := tel.Shutdown(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{"/v1/traces", "/v1/metrics", "/v1/logs"} {
		if got[path] == 0 {
			t.Errorf("nothing came to %s: %v", path, got)
		}
	}
}

func TestShutdownWithDeadEndpointKeepsItsLimit(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	dead := l.Addr().String()
	_ = l.Close()
	for _, protocol := range []string{"http/protobuf", "grpc"} {
		t.Run(protocol, func(t *testing.T) {
			t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://"+dead)
			t.Setenv("OTEL_EXPORTER_OTLP_PROTOCOL", protocol)
			tel, err := Start(t.Context(), Config{})
			if err != nil {
				t.Fatal(err)
			}
			report(tel)
			const limit = 500 * time.Millisecond
			ctx, cancel := context.WithTimeout(t.Context(), limit)
			defer cancel()
			began := time.Now()
			err = tel.Shutdown(ctx)
			if took := time.Since(began); took > limit+2*time.Second {
				t.Errorf("Shutdown took %v", took)
			}
			if err == nil {
				t.Error("Shutdown does not tell that something could not be sent")
			}
			if again := tel.Shutdown(t.Context()); again == nil || again.Error() != err.Error() {
				t.Errorf("the second Shutdown says %v, want %v", again, err)
			}
		})
	}
}

// The RPC library labels its metrics with addresses of peers: those would be a series per client.
func TestRPCMetricsHaveNoAddresses(t *testing.T) {
	tel := begin(t, Config{})
	h, err := otel.Meter("connectrpc.com/otelconnect").Float64Histogram("rpc.server.call.duration", metric.WithUnit("s"))
	if err != nil {
		t.Fatal(err)
	}
	for port := range 100 {
		h.Record(t.Context(), 1, metric.WithAttributes(
			attribute.String("rpc.method", "errand.v1.TaskService/GetTask"), attribute.Int("network.peer.port", port)))
	}
	got := sample(t, scrape(t, tel), "rpc_server_call_duration_seconds", "rpc_method", "errand.v1.TaskService/GetTask")
	if got != 100 {
		t.Errorf("the one series counts %v calls, want 100", got)
	}
}

func TestTroublesAreToldNowAndThen(t *testing.T) {
	var out strings.Builder
	h := newTroubles(NewLogger(&out, slog.LevelInfo, Text))
	for range 10 {
		h.Handle(io.ErrUnexpectedEOF)
	}
	if n := strings.Count(out.String(), "telemetry is impaired"); n != 1 {
		t.Errorf("told %d times, want once:\n%s", n, &out)
	}
	newTroubles(nil).Handle(io.ErrUnexpectedEOF)
}

func TestLoggerAddsTraceIDs(t *testing.T) {
	at := trace.NewSpanContext(trace.SpanContextConfig{TraceID: trace.TraceID{1}, SpanID: trace.SpanID{2}})
	for _, format := range []Format{Text, JSON} {
		var out strings.Builder
		log := NewLogger(&out, slog.LevelInfo, format).With("tenant", "acme")
		log.InfoContext(trace.ContextWithSpanContext(t.Context(), at), "hello")
		log.Debug("not at this level")
		log.Info("outside of a trace")
		for _, want := range []string{at.TraceID().String(), at.SpanID().String(), "acme", "hello"} {
			if !strings.Contains(out.String(), want) {
				t.Errorf("%s: the line lacks %q: %s", format, want, &out)
			}
		}
		if n := strings.Count(out.String(), "trace_id"); n != 1 || strings.Contains(out.String(), "not at this level") {
			t.Errorf("%s: want two lines, one of them with a trace: %s", format, &out)
		}
	}
	var f Format
	if f.UnmarshalText([]byte("json")) != nil || f != JSON || f.UnmarshalText([]byte("xml")) == nil {
		t.Errorf("Format takes the wrong names")
	}
}
