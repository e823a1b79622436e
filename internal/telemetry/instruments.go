package telemetry

import (
	"errors"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
)

// The bounds of the histograms' buckets. Each is a series of its own for every set of labels, so they are few.
var (
	callSeconds  = []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10}
	waitSeconds  = []float64{.005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300, 1800, 3600, 21600, 86400}
	runSeconds   = []float64{.01, .05, .1, .5, 1, 5, 10, 30, 60, 300, 900, 3600, 21600, 86400}
	rowsPerBatch = []float64{1, 2, 5, 10, 20, 50, 100, 200, 500, 1000}
)

// other is the value of a label whose value is none of its fixed set.
const other = "other"

// builder makes instruments and remembers the errors.
type builder struct {
	meter metric.Meter
	err   error
}

func (b *builder) keep(err error) { b.err = errors.Join(b.err, err) }

func (b *builder) counter(name, description string) metric.Int64Counter {
	c, err := b.meter.Int64Counter(name, metric.WithDescription(description))
	b.keep(err)
	return c
}

func (b *builder) seconds(name, description string, buckets []float64) metric.Float64Histogram {
	h, err := b.meter.Float64Histogram(name, metric.WithDescription(description), metric.WithUnit("s"),
		metric.WithExplicitBucketBoundaries(buckets...))
	b.keep(err)
	return h
}

func (b *builder) sizes(name, description string, buckets []float64) metric.Int64Histogram {
	h, err := b.meter.Int64Histogram(name, metric.WithDescription(description), metric.WithExplicitBucketBoundaries(buckets...))
	b.keep(err)
	return h
}

func (b *builder) gauge(name, description string) metric.Int64ObservableGauge {
	g, err := b.meter.Int64ObservableGauge(name, metric.WithDescription(description))
	b.keep(err)
	return g
}

func (b *builder) secondsGauge(name, description string) metric.Float64ObservableGauge {
	g, err := b.meter.Float64ObservableGauge(name, metric.WithDescription(description), metric.WithUnit("s"))
	b.keep(err)
	return g
}

func (b *builder) ratioGauge(name, description string) metric.Float64ObservableGauge {
	g, err := b.meter.Float64ObservableGauge(name, metric.WithDescription(description))
	b.keep(err)
	return g
}

// labels holds one option list for every value of a label, made once: a measurement then allocates nothing. Pairs of key and
// value are made into O, which is one of metric's option types.
type labels[O any] struct {
	of    map[string][]O
	other []O
}

func newLabels[O any](convert func(metric.MeasurementOption) O, key string, values ...string) labels[O] {
	l := labels[O]{of: map[string][]O{}, other: options(convert, key, other)}
	for _, value := range values {
		l.of[value] = options(convert, key, value)
	}
	return l
}

// value returns the options for a value, those of other when it is not in the set.
func (l *labels[O]) value(v string) []O {
	if o := l.of[v]; o != nil {
		return o
	}
	return l.other
}

func options[O any](convert func(metric.MeasurementOption) O, pairs ...string) []O {
	attributes := make([]attribute.KeyValue, 0, len(pairs)/2)
	for i := 0; i+1 < len(pairs); i += 2 {
		attributes = append(attributes, attribute.String(pairs[i], pairs[i+1]))
	}
	return []O{convert(metric.WithAttributeSet(attribute.NewSet(attributes...)))}
}

func adding(o metric.MeasurementOption) metric.AddOption       { return o }
func recording(o metric.MeasurementOption) metric.RecordOption { return o }
func observing(o metric.MeasurementOption) metric.ObserveOption {
	return o
}
