package telemetry

import (
	"context"
	"time"

	"go.opentelemetry.io/otel/metric"

	"github.com/errandhq/errand/fairness/tokenbucket"
)

// The fixed sets of label values of admission. A test compares the first with its source.
var (
	admissionOutcomes = []string{"admitted", "demoted", "existed", "over_rate", "over_urgent_rate", "too_many_open"}
	admissionAnswers  = []string{"redis", "ahead", "twin"}
)

// Admission takes what an instance's edge tells of the submits that it lets in or refuses. It is safe for concurrent use.
type Admission struct {
	tasks   metric.Int64Counter
	asked   metric.Float64Histogram
	tasksOf labels[metric.AddOption]
}

// Admission returns what the edge of this process reports to, and shows the state of the token buckets at every scrape, until
// Shutdown; status must not wait.
func (t *Telemetry) Admission(status func() tokenbucket.Status) (*Admission, error) {
	b := builder{meter: t.meter}
	a := &Admission{
		tasks:   b.counter("errand.admissions", "Submitted tasks by what became of them at the intake."),
		asked:   b.seconds("errand.admission.ask", "What the token buckets took to answer for a submit, asked of Redis or not.", callSeconds),
		tasksOf: newLabels(adding, "outcome", admissionOutcomes...),
	}
	open := b.gauge("errand.admission.breaker.open", "1 while Redis is not asked for tokens, since it does not answer.")
	answers, err := t.meter.Int64ObservableCounter("errand.admission.answers",
		metric.WithDescription("Answers about tokens, by who gave them."))
	b.keep(err)
	if b.err != nil {
		return nil, b.err
	}
	for _, outcome := range admissionOutcomes {
		a.Admitted(outcome, 0)
	}
	by := newLabels(observing, "by", admissionAnswers...)
	_, err = t.meter.RegisterCallback(func(_ context.Context, to metric.Observer) error {
		s := status()
		to.ObserveInt64(open, int64(one(s.Open)))
		to.ObserveInt64(answers, int64(s.ByRedis), by.value("redis")...)
		to.ObserveInt64(answers, int64(s.Ahead), by.value("ahead")...)
		to.ObserveInt64(answers, int64(s.ByTwin), by.value("twin")...)
		return nil
	}, open, answers)
	return a, err
}

// Admitted counts tasks.
func (a *Admission) Admitted(outcome string, tasks int) {
	a.tasks.Add(context.Background(), int64(tasks), a.tasksOf.value(outcome)...)
}

// Asked records how long the buckets took.
func (a *Admission) Asked(took time.Duration) {
	a.asked.Record(context.Background(), seconds(took))
}
