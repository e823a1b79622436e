package telemetry

import (
	"context"
	"strings"
	"time"

	"go.opentelemetry.io/otel/metric"
)

// statementNames are the store's names for its statements. A test compares them with its source.
var statementNames = []string{
	"insert tasks", "read inserted tasks", "read idempotency keys", "read unique keys", "read attached tasks", "claim tasks", "read claimed tasks", "read payloads",
	"end succeeded attempts", "end attempts", "read ended tasks", "attach attempts", "wake tasks", "expire tasks",
	"read moved tasks", "cancel tasks", "read canceled tasks", "discover groups", "refill groups", "read timed rows",
	"read running rows", "read orphaned rows", "fold starts", "renew session", "list sessions", "end session", "end expired sessions",
	"purge sessions", "read task", "read task states", "read task to update", "update task", "read attempts of", "list tasks", "create tenant", "update tenant",
	"read tenant", "list tenants", "create key", "look up key", "list keys", "revoke key", "audit", "read old tasks", "purge tasks",
	"count open tasks of", "count open tasks",
	"put kind", "read kind", "list kinds", "pause kind", "resume kind", "put limit", "list limits", "delete limit",
	"insert linked tasks", "read children", "close edges", "settle edges", "read edges", "release tasks", "cancel for parents", "let tasks wait",
	"rest parents", "count links of", "read parents", "read graph", "count tasks of a graph", "read parents of a running task", "read token",
	"read the clock", "read changed tenants", "read changed kinds", "read changed limits",
	"add region", "list regions", "drain region",
}

// statements records what the store's statements take.
type statements struct {
	took     metric.Float64Histogram
	failed   metric.Int64Counter
	tookOf   labels[metric.RecordOption]
	failedOf labels[metric.AddOption]
}

func newStatements(meter metric.Meter) (*statements, error) {
	b := builder{meter: meter}
	s := &statements{
		took:   b.seconds("errand.store", "What an execution of a statement took, without the wait for a connection.", callSeconds),
		failed: b.counter("errand.store.errors", "Executions of a statement that ended in an error, repeated ones included."),
		tookOf: newLabels(recording, "statement"), failedOf: newLabels(adding, "statement"),
	}
	for _, name := range statementNames {
		value := strings.ReplaceAll(name, " ", "_")
		s.tookOf.of[name] = options(recording, "statement", value)
		s.failedOf.of[name] = options(adding, "statement", value)
	}
	return s, b.err
}

// Statement records one execution of a statement of the store; it is the store's Trace. what is a name of the fixed set, or
// one followed by another word (an id, a tenant), which is left out; everything else is counted as other.
func (t *Telemetry) Statement(what string, took time.Duration, err error) {
	s, ctx := t.statements, context.Background()
	name := what
	if s.tookOf.of[name] == nil {
		if end := strings.LastIndexByte(what, ' '); end > 0 {
			name = what[:end]
		}
	}
	s.took.Record(ctx, seconds(took), s.tookOf.value(name)...)
	if err != nil {
		s.failed.Add(ctx, 1, s.failedOf.value(name)...)
	}
}
