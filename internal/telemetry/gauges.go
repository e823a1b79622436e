package telemetry

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"go.opentelemetry.io/otel/metric"

	"github.com/errandhq/errand/scheduler/engine"
)

// Instance is what a scheduler instance shows of itself; [engine.Shell] is one.
type Instance interface {
	// Status is the instance's picture. It must not wait.
	Status() engine.Status
	// Clock is the local clock that the picture's times are read from.
	Clock() time.Duration
}

// phases are the values of the label state of errand_tasks_open, in the order in which a task goes through them.
var phases = []string{"buffered", "claiming", "sent", "running", "stopping", "ending"}

// gates are the values of the label gate of errand_tasks_held.
var gates = []string{"tenant", "kind", "limit"}

// WatchInstance shows an instance's picture in gauges at every scrape, until Shutdown. It reads memory only: it costs the store
// nothing, and works while the store is away. A process shows one instance.
func (t *Telemetry) WatchInstance(of Instance) error {
	b := builder{meter: t.meter}
	open := b.gauge("errand.tasks.open", "Open tasks that this instance holds, by where they are on their way.")
	held := b.gauge("errand.tasks.held", "Buffered tasks that something set by an operator holds back, by what it is for.")
	whole := []struct {
		gauge metric.Int64ObservableGauge
		value func(*engine.Status) int
	}{
		{b.gauge("errand.session.trusted", "1 while this instance may start work."), func(s *engine.Status) int { return one(s.Trusted) }},
		{b.gauge("errand.stopping", "1 while this instance shuts down."), func(s *engine.Status) int { return one(s.Stopping) }},
		{b.gauge("errand.lanes", "Lanes that this instance serves."), func(s *engine.Status) int { return s.Lanes }},
		{b.gauge("errand.workers", "Workers connected to this instance."), func(s *engine.Status) int { return s.Workers }},
		{b.gauge("errand.groups", "Groups of waiting tasks that this instance knows of."), func(s *engine.Status) int { return s.Counts.Groups }},
		{b.gauge("errand.submit.pending", "New tasks that wait for their insert."), func(s *engine.Status) int { return s.Pending }},
		{b.gauge("errand.unsettled.statements", "Statements that are tried again because their outcome is not known."), func(s *engine.Status) int { return s.Unsettled }},
	}
	age := b.secondsGauge("errand.progress.age", "Time since this instance last took a turn, and since the store last answered.")
	cycle := b.secondsGauge("errand.discover.cycle", "What the last full search for waiting tasks took.")
	if b.err != nil {
		return b.err
	}
	pictured, err := newPictureGauges(&b)
	if err != nil {
		return err
	}
	state := newLabels(observing, "state", phases...)
	gate := newLabels(observing, "gate", gates...)
	turn, store := options(observing, "of", "turn"), options(observing, "of", "store")
	instruments := append([]metric.Observable{open, held, age, cycle}, pictured.all()...)
	for _, w := range whole {
		instruments = append(instruments, w.gauge)
	}
	_, err = t.meter.RegisterCallback(func(_ context.Context, to metric.Observer) error {
		s := of.Status()
		pictured.observe(to, s.Picture)
		for _, w := range whole {
			to.ObserveInt64(w.gauge, int64(w.value(&s)))
		}
		for i, n := range inPhases(&s) {
			to.ObserveInt64(open, int64(n), state.value(phases[i])...)
		}
		for i, n := range []int{s.Counts.Gated.Tenant, s.Counts.Gated.Kind, s.Counts.Gated.Limit} {
			to.ObserveInt64(held, int64(n), gate.value(gates[i])...)
		}
		now := of.Clock()
		to.ObserveFloat64(age, seconds(now-s.Turned), turn...)
		to.ObserveFloat64(age, seconds(now-s.LastStore), store...)
		to.ObserveFloat64(cycle, seconds(s.DiscoverCycle))
		return nil
	}, instruments...)
	return err
}

func inPhases(s *engine.Status) []int {
	c := &s.Counts
	return []int{c.Buffered, c.Claiming, c.Sent, c.Running, c.Stopping, c.Ending}
}

func one(is bool) int {
	if is {
		return 1
	}
	return 0
}

// pools are the names of the store's pools.
var pools = []string{"hot", "control", "general"}

// WatchPools shows the store's pools of connections at every scrape, until Shutdown; stats is the store's Pools. It fails when
// the store does not have the pools that are known here.
func (t *Telemetry) WatchPools(stats func() map[string]*pgxpool.Stat) error {
	have := stats()
	for _, name := range pools {
		if have[name] == nil {
			return fmt.Errorf("watch the store's connections: there is no pool %q", name)
		}
	}
	b := builder{meter: t.meter}
	connections := b.gauge("errand.store.connections", "Connections to the store, by pool and what they do.")
	limit := b.gauge("errand.store.connections.limit", "The most connections that a pool opens.")
	waits, err := t.meter.Int64ObservableCounter("errand.store.acquire.waits",
		metric.WithDescription("Statements that found no free connection in their pool and had to wait."))
	b.keep(err)
	waited, err := t.meter.Float64ObservableCounter("errand.store.acquire.wait",
		metric.WithDescription("Time that statements have waited for a connection, together."), metric.WithUnit("s"))
	b.keep(err)
	if b.err != nil {
		return b.err
	}
	_, err = t.meter.RegisterCallback(func(_ context.Context, to metric.Observer) error {
		for name, stat := range known(stats()) {
			to.ObserveInt64(connections, int64(stat.AcquiredConns()), options(observing, "pool", name, "state", "in_use")...)
			to.ObserveInt64(connections, int64(stat.IdleConns()), options(observing, "pool", name, "state", "idle")...)
			to.ObserveInt64(connections, int64(stat.ConstructingConns()), options(observing, "pool", name, "state", "opening")...)
			of := options(observing, "pool", name)
			to.ObserveInt64(limit, int64(stat.MaxConns()), of...)
			to.ObserveInt64(waits, stat.EmptyAcquireCount(), of...)
			to.ObserveFloat64(waited, seconds(stat.EmptyAcquireWaitTime()), of...)
		}
		return nil
	}, connections, limit, waits, waited)
	return err
}

// known goes over the pools that have a name of the fixed set.
func known(stats map[string]*pgxpool.Stat) func(yield func(string, *pgxpool.Stat) bool) {
	return func(yield func(string, *pgxpool.Stat) bool) {
		for _, name := range pools {
			if stat := stats[name]; stat != nil && !yield(name, stat) {
				return
			}
		}
	}
}
