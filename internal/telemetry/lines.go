package telemetry

import (
	"context"
	"log/slog"
	"time"

	"go.opentelemetry.io/otel/metric"
)

// Bounds of the lines that wait to be written.
const (
	linesMax      = 1024        // more are dropped and counted
	linesFlushMax = time.Second // how long a shutdown waits for a log that does not take them
)

// lines writes log lines for those who must not wait: a terminal that is stopped or a full pipe blocks whoever writes to it.
type lines struct {
	queue   chan line
	dropped metric.Int64Counter
	stop    chan struct{}
	stopped chan struct{}
}

type line struct {
	to     slog.Handler
	record slog.Record
}

func newLines(meter metric.Meter) (*lines, error) {
	b := builder{meter: meter}
	l := &lines{
		queue:   make(chan line, linesMax),
		dropped: b.counter("errand.log.dropped", "Log lines that were dropped because the log did not take them in time."),
		stop:    make(chan struct{}),
		stopped: make(chan struct{}),
	}
	if b.err != nil {
		return nil, b.err
	}
	l.dropped.Add(context.Background(), 0)
	go l.write()
	return l, nil
}

// log queues a line and never waits.
func (l *lines) log(to *slog.Logger, level slog.Level, message string, args ...any) {
	ctx := context.Background()
	if !to.Enabled(ctx, level) {
		return
	}
	record := slog.NewRecord(time.Now(), level, message, 0)
	record.Add(args...)
	select {
	case l.queue <- line{to: to.Handler(), record: record}:
	default:
		l.dropped.Add(ctx, 1)
	}
}

func (l *lines) write() {
	defer close(l.stopped)
	for {
		select {
		case next := <-l.queue:
			next.write()
		case <-l.stop:
			for range len(l.queue) {
				(<-l.queue).write()
			}
			return
		}
	}
}

func (l line) write() { _ = l.to.Handle(context.Background(), l.record) } // there is no better place to tell of it

// close writes what waits. A log that takes nothing keeps its writer until it does.
func (l *lines) close(ctx context.Context) {
	close(l.stop)
	ctx, cancel := context.WithTimeout(ctx, linesFlushMax)
	defer cancel()
	select {
	case <-l.stopped:
	case <-ctx.Done():
	}
}
