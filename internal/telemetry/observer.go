package telemetry

import (
	"context"
	"log/slog"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/metric"

	"github.com/errandhq/errand/scheduler"
	"github.com/errandhq/errand/scheduler/engine"
)

// The fixed sets of label values that an engine uses. Tests compare them with its source.
var (
	writes = []string{
		"insert_urgent", "insert", "claim_urgent", "claim", "payloads", "end", "cancel", "attach", "wake", "expire",
		"discover", "refill", "timed", "running", "orphans", "session", "insert_linked", "close_edges", "release", "rest", "end_expired", "settings", "stand", "stock",
		"watch",
	}
	batches = []string{"insert_urgent", "insert", "claim_urgent", "claim", "end", "close_edges"}
	rowKind = []string{
		"accepted", "ended", "lent", "borrowed", "reconciled", "reclaimed", "missing", "expired", "woken", "lost_worker", "refused",
		"backpressure", "backpressure_unlimited", "released", "forsaken", "repairs", "spilled",
	}
	submitOutcomes = []string{"answered", "withdrawn", "refused"}
)

// failureLoggedEvery is how often a kind of statement that keeps failing is logged: in an outage each fails every second.
const failureLoggedEvery = 10 * time.Second

const (
	tiersMax  = int(scheduler.Deferrable) + 1
	statesMax = int(scheduler.Expired) + 1
)

// Observer takes what a scheduler instance tells of itself. It implements [engine.Observer]: no method waits, and those that
// are called for every attempt allocate nothing. It is safe for concurrent use.
type Observer struct {
	log   *slog.Logger
	lines *lines

	rows, claims, failures   metric.Int64Counter
	batch                    metric.Int64Histogram
	wait, late, run, submits metric.Float64Histogram

	won, lost     []metric.AddOption
	rowsOf        labels[metric.AddOption]
	failuresOf    labels[metric.AddOption]
	batchOf       labels[metric.RecordOption]
	submitsOf     labels[metric.RecordOption]
	waitOf        [tiersMax][2][]metric.RecordOption // by tier and whether it started late
	lateOf        [tiersMax][]metric.RecordOption
	runOf         [tiersMax][statesMax][]metric.RecordOption // by tier and where the task stands after the attempt
	failureLogged map[string]*atomic.Int64
}

var _ engine.Observer = (*Observer)(nil)

// Observer returns what an engine of this process reports to; its events go to log. Several engines may share one.
func (t *Telemetry) Observer(log *slog.Logger) (*Observer, error) {
	b := builder{meter: t.meter}
	o := &Observer{
		log:      log,
		lines:    t.lines,
		rows:     b.counter("errand.rows", "Rows handled, by what was done with them."),
		claims:   b.counter("errand.claims", "Claims by outcome: won, or lost to another instance or a cancel."),
		failures: b.counter("errand.statement.failures", "Executions of a statement that failed and are tried again."),
		batch:    b.sizes("errand.batch.rows", "Rows per write.", rowsPerBatch),
		wait:     b.seconds("errand.wait", "From ready to started, by tier and whether the start was on time or late.", waitSeconds),
		late:     b.seconds("errand.late", "By how much late starts came after their due.", waitSeconds),
		run:      b.seconds("errand.run", "From started to the stored end of an attempt, by tier and the task's state then.", runSeconds),
		submits:  b.seconds("errand.submit", "From a submit's arrival in the scheduler to its answer.", callSeconds),
	}
	o.label()
	return o, b.err
}

// label makes all option lists, and the counters' series: a counter that appears with its first increment hides it.
func (o *Observer) label() {
	o.won, o.lost = options(adding, "outcome", "won"), options(adding, "outcome", "lost")
	o.rowsOf = newLabels(adding, "what", rowKind...)
	o.failuresOf = newLabels(adding, "write", writes...)
	o.batchOf = newLabels(recording, "write", batches...)
	o.submitsOf = newLabels(recording, "outcome", submitOutcomes...)
	for i := range o.waitOf {
		tier := scheduler.Tier(i).String()
		o.lateOf[i] = options(recording, "tier", tier)
		o.waitOf[i] = [2][]metric.RecordOption{
			options(recording, "tier", tier, "outcome", "on_time"), options(recording, "tier", tier, "outcome", "late"),
		}
		for j := range o.runOf[i] {
			o.runOf[i][j] = options(recording, "tier", tier, "outcome", scheduler.State(j).String())
		}
	}
	o.Claims(0, 0)
	for _, what := range rowKind {
		o.Rows(what, 0)
	}
	o.failureLogged = map[string]*atomic.Int64{other: {}}
	for _, write := range writes {
		o.failures.Add(context.Background(), 0, o.failuresOf.value(write)...)
		o.failureLogged[write] = &atomic.Int64{}
	}
}

// Batch records the size of a write.
func (o *Observer) Batch(write string, rows int) {
	o.batch.Record(context.Background(), int64(rows), o.batchOf.value(write)...)
}

// Claims counts won and lost claims.
func (o *Observer) Claims(won, lost int) {
	o.claims.Add(context.Background(), int64(won), o.won...)
	o.claims.Add(context.Background(), int64(lost), o.lost...)
}

// Started records an attempt's wait, and by how much it came late.
func (o *Observer) Started(tier scheduler.Tier, wait, late time.Duration) {
	ctx, i := context.Background(), tierIndex(tier)
	if late <= 0 {
		o.wait.Record(ctx, seconds(wait), o.waitOf[i][0]...)
		return
	}
	o.wait.Record(ctx, seconds(wait), o.waitOf[i][1]...)
	o.late.Record(ctx, seconds(late), o.lateOf[i]...)
}

// Ended records how long an attempt ran.
func (o *Observer) Ended(tier scheduler.Tier, to scheduler.State, run time.Duration) {
	j := 0
	if to.Open() || to.Terminal() {
		j = int(to)
	}
	o.run.Record(context.Background(), seconds(run), o.runOf[tierIndex(tier)][j]...)
}

// Submitted records how long a submit took.
func (o *Observer) Submitted(outcome string, took time.Duration) {
	o.submits.Record(context.Background(), seconds(took), o.submitsOf.value(outcome)...)
}

// Rows counts rows.
func (o *Observer) Rows(what string, n int) {
	o.rows.Add(context.Background(), int64(n), o.rowsOf.value(what)...)
}

// StatementFailed counts a failed execution, and logs one of each kind now and then.
func (o *Observer) StatementFailed(write string, tries int, err error) {
	o.failures.Add(context.Background(), 1, o.failuresOf.value(write)...)
	last := o.failureLogged[write]
	if last == nil {
		last = o.failureLogged[other]
	}
	if due(last, failureLoggedEvery) {
		o.lines.log(o.log, slog.LevelWarn, "a statement failed and is tried again", "write", write, "tries", tries, "error", err)
	}
}

// Event logs a warning.
func (o *Observer) Event(message string, args ...any) {
	o.lines.log(o.log, slog.LevelWarn, message, args...)
}

// Note logs a change in the usual course.
func (o *Observer) Note(message string, args ...any) {
	o.lines.log(o.log, slog.LevelInfo, message, args...)
}

func tierIndex(t scheduler.Tier) int {
	if t.Valid() {
		return int(t)
	}
	return 0
}

// seconds is a time as metrics have it. Clocks disagree a little: what would be negative is nothing.
func seconds(d time.Duration) float64 { return max(d, 0).Seconds() }
