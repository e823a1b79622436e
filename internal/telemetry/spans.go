package telemetry

import (
	"context"
	"sync"
	"time"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
)

// spansCloseMax is how long an exporter of spans may take to close its connections.
const spansCloseMax = time.Second

// spans is an exporter of spans that can be cut off. OpenTelemetry's batches go on trying to reach a dead endpoint, with their
// goroutines and connections, long after their own Shutdown has given up.
type spans struct {
	sdktrace.SpanExporter
	ctx    context.Context // ends with cutOff
	cutOff context.CancelFunc
	once   sync.Once
	closed chan struct{}
}

func newSpans(to sdktrace.SpanExporter) *spans {
	s := &spans{SpanExporter: to, closed: make(chan struct{})}
	s.ctx, s.cutOff = context.WithCancel(context.Background())
	return s
}

// ExportSpans exports until ctx ends or the exporter is cut off.
func (s *spans) ExportSpans(ctx context.Context, batch []sdktrace.ReadOnlySpan) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(s.ctx, cancel)()
	return s.SpanExporter.ExportSpans(ctx, batch)
}

// Shutdown closes the connections, also when ctx has ended already.
func (s *spans) Shutdown(ctx context.Context) error {
	defer s.once.Do(func() { close(s.closed) })
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), spansCloseMax)
	defer cancel()
	return s.SpanExporter.Shutdown(ctx)
}

// end shuts a provider down that exports to s, and returns when nothing of it is left.
func (s *spans) end(ctx context.Context, provider *sdktrace.TracerProvider) error {
	err := provider.Shutdown(ctx)
	s.cutOff()
	<-s.closed
	return err
}
