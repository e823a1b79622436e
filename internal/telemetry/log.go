package telemetry

import (
	"context"
	"fmt"
	"io"
	"log/slog"

	"go.opentelemetry.io/contrib/bridges/otelslog"
	"go.opentelemetry.io/otel/trace"
)

// Format is how log lines look.
type Format string

// The formats.
const (
	Text Format = "text" // key=value, for people
	JSON Format = "json" // one object a line, for machines
)

// UnmarshalText accepts the names of the formats.
func (f *Format) UnmarshalText(text []byte) error {
	switch named := Format(text); named {
	case Text, JSON:
		*f = named
		return nil
	default:
		return fmt.Errorf("log format %q is unknown: use text or json", text)
	}
}

// NewLogger returns a logger whose lines carry trace_id and span_id of the context they are logged with. An unknown format is
// taken as [Text].
func NewLogger(w io.Writer, level slog.Leveler, format Format) *slog.Logger {
	options := &slog.HandlerOptions{Level: level}
	if format == JSON {
		return slog.New(traced{slog.NewJSONHandler(w, options)})
	}
	return slog.New(traced{slog.NewTextHandler(w, options)})
}

// Logger returns a logger that writes to base and exports the same records over OTLP when the environment asks for that.
func (t *Telemetry) Logger(base *slog.Logger) *slog.Logger {
	if t.logs == nil {
		return base
	}
	exporting := leveled{otelslog.NewHandler(scope, otelslog.WithLoggerProvider(t.logs)), base.Handler()}
	return slog.New(slog.NewMultiHandler(base.Handler(), exporting))
}

// traced adds the ids of the trace; within a group they are part of it.
type traced struct{ slog.Handler }

// Handle adds the ids and hands on.
func (h traced) Handle(ctx context.Context, r slog.Record) error {
	if at := trace.SpanContextFromContext(ctx); at.IsValid() {
		r.AddAttrs(slog.String("trace_id", at.TraceID().String()), slog.String("span_id", at.SpanID().String()))
	}
	return h.Handler.Handle(ctx, r)
}

// WithAttrs keeps the ids coming.
func (h traced) WithAttrs(attrs []slog.Attr) slog.Handler { return traced{h.Handler.WithAttrs(attrs)} }

// WithGroup keeps the ids coming.
func (h traced) WithGroup(name string) slog.Handler { return traced{h.Handler.WithGroup(name)} }

// leveled takes the records that another handler takes too: one level rules both.
type leveled struct {
	slog.Handler
	as slog.Handler
}

// Enabled asks the other handler.
func (h leveled) Enabled(ctx context.Context, level slog.Level) bool { return h.as.Enabled(ctx, level) }

// WithAttrs keeps the level.
func (h leveled) WithAttrs(attrs []slog.Attr) slog.Handler {
	return leveled{h.Handler.WithAttrs(attrs), h.as}
}

// WithGroup keeps the level.
func (h leveled) WithGroup(name string) slog.Handler { return leveled{h.Handler.WithGroup(name), h.as} }
