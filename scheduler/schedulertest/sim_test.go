package schedulertest

import (
	"flag"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
)

var seedFlag = flag.Uint64("seed", 0, "play this one history and print it; ERRAND_SIM_SEED does the same")

// historiesDefault is how many histories a run plays; ERRAND_SIM_HISTORIES plays more.
const historiesDefault = 400

func number(t *testing.T, name string, otherwise uint64) uint64 {
	t.Helper()
	text := os.Getenv(name)
	if text == "" {
		return otherwise
	}
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return n
}

// P2, P3, P4, P5: whatever fails, everything ends once and nothing twice.
func TestSimulation(t *testing.T) {
	if seed := number(t, "ERRAND_SIM_SEED", *seedFlag); seed > 0 {
		h := Simulation{Seed: seed, Traced: true}.Run()
		t.Logf("%s\n%s", h.Trace, summary(&h))
		report(t, &h)
		return
	}
	histories := number(t, "ERRAND_SIM_HISTORIES", historiesDefault)
	var tasks, attempts, pushed, statements, turns atomic.Int64
	play(1, histories, func(seed uint64) {
		h := Simulation{Seed: seed}.Run()
		report(t, &h)
		tasks.Add(int64(h.Tasks))
		attempts.Add(h.Attempts)
		pushed.Add(int64(h.PushedBack))
		statements.Add(int64(h.Statements))
		turns.Add(int64(h.Turns))
	})
	if histories >= 50 && pushed.Load() == 0 {
		t.Error("nothing met with backpressure")
	}
	t.Logf("%d histories: %d tasks, %d attempts, %d met with backpressure, %d statements, %d turns",
		histories, tasks.Load(), attempts.Load(), pushed.Load(), statements.Load(), turns.Load())
}

// play runs histories on all cores; each is one goroutine from its start to its end.
func play(from, n uint64, history func(seed uint64)) {
	var next atomic.Uint64
	var all sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		all.Go(func() {
			for {
				i := next.Add(1) - 1
				if i >= n {
					return
				}
				history(from + i)
			}
		})
	}
	all.Wait()
}

func report(t *testing.T, h *History) {
	t.Helper()
	if len(h.Violations) == 0 {
		return
	}
	t.Errorf("%s\n%s\nto see it all: go test ./scheduler/schedulertest -run 'TestSimulation$' -v -seed %d",
		summary(h), strings.Join(h.Violations, "\n"), h.Seed)
}

func summary(h *History) string {
	return fmt.Sprintf("seed %d (%s): %d tasks, %d attempts, %d statements, %d turns, %v",
		h.Seed, h.Faults, h.Tasks, h.Attempts, h.Statements, h.Turns, h.Took)
}
