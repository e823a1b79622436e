package engine

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/errandhq/errand/placement"
	"github.com/errandhq/errand/scheduler"
)

func testEngine() *Engine {
	return New(Config{Region: "here", Timing: scheduler.DefaultTiming(), Rand: rand.New(rand.NewPCG(1, 2))})
}

// A worker that falls silent alone may have been killed by its task; workers that died together fall silent up to a heartbeat
// apart, and none of their tasks is to blame (lease 10 s, heartbeat 3 s).
func TestWorkersThatDieTogetherAreAnIncident(t *testing.T) {
	const second = time.Second
	for name, c := range map[string]struct {
		quiet    []time.Duration // of each worker
		lastLost time.Duration   // before now; zero for never
		silent   int
		incident bool
	}{
		"nobody":                          {[]time.Duration{0, 3 * second}, 0, 0, false},
		"one alone":                       {[]time.Duration{0, 3 * second, 10*second + 1}, 0, 1, false},
		"two at once":                     {[]time.Duration{11 * second, 10*second + 1}, 0, 2, false}, // the core counts them
		"another has missed a heartbeat":  {[]time.Duration{8 * second, 10*second + 1}, 0, 1, true},
		"another is late by a heartbeat":  {[]time.Duration{6 * second, 10*second + 1}, 0, 1, false},
		"another was lost a moment ago":   {[]time.Duration{0, 10*second + 1}, 2 * second, 1, true},
		"another was lost a minute ago":   {[]time.Duration{0, 10*second + 1}, 60 * second, 1, false},
		"the last one of those that died": {[]time.Duration{10*second + 1}, 3 * second, 1, true},
	} {
		t.Run(name, func(t *testing.T) {
			e := testEngine()
			e.local = time.Hour
			if c.lastLost > 0 {
				e.workers.lostAt = e.local - c.lastLost
			}
			for i, quiet := range c.quiet {
				id := scheduler.WorkerID{byte(i + 1)}
				e.workers.byID[id] = &worker{id: id, heard: e.local - quiet}
			}
			silent, incident := e.silentWorkers()
			if len(silent) != c.silent || incident != c.incident {
				t.Errorf("%d silent, incident %v; want %d, %v", len(silent), incident, c.silent, c.incident)
			}
		})
	}
}

// P8: who knows the identity of a worker but comes with another credential does not get its place.
func TestAnotherCredentialDoesNotTakeAWorkersPlace(t *testing.T) {
	e := testEngine()
	id := scheduler.WorkerID{7}
	register := func(stream StreamID, tenant string) {
		e.take(StreamOpened{Stream: stream})
		e.take(WorkerSaid{Stream: stream, Words: FromWorker{Register: &Register{
			Worker: placement.Worker{ID: id, Tenant: tenant, Slots: map[string]int{"encode": 1}},
		}}})
	}
	register(1, "")
	register(2, "thief")
	if e.workers.byID[id].stream != 1 || e.core.Worker(id).Tenant != "" {
		t.Errorf("the worker is on stream %d now, for tenant %q", e.workers.byID[id].stream, e.core.Worker(id).Tenant)
	}
	closed := false
	for _, eff := range e.effects {
		if c, ok := eff.(CloseStream); ok {
			closed = closed || c.Stream == 2
			if c.Stream == 1 {
				t.Error("the worker's own stream was closed")
			}
		}
	}
	if !closed {
		t.Error("the stranger's stream is open")
	}
	register(3, "") // the worker itself, back after a broken stream
	if e.workers.byID[id].stream != 3 {
		t.Error("the worker itself does not get its place back")
	}
}
