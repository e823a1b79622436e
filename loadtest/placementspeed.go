package main

import (
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"runtime/pprof"
	"time"

	"github.com/errandhq/errand/placement"
)

// Of a speed run.
const (
	busyPercent = 90      // of the devices that are taken: as full as a cluster is kept
	warmUp      = 50_000  // decisions before those that count
	decisions   = 200_000 // that count
)

// sizeSpeed are the speed runs with one number of workers.
type sizeSpeed struct {
	Workers int        `json:"workers"`
	Rounds  []speedRun `json:"rounds"`
}

type speedRun struct {
	PerS    float64 `json:"decisions_per_s"`
	P50     float64 `json:"p50_us"`
	P99     float64 `json:"p99_us"`
	Max     float64 `json:"max_us"`
	Refused float64 `json:"refused_part"`
	Taken   float64 `json:"gpu_percent"`
}

// speed measures one processor: tasks arrive, and for each that finds the cluster fuller than it is kept, others end at random. A
// decision is one arrival and what ends for it.
func (t *trace) speed(workers int, seed uint64) speedRun {
	runtime.GC()
	p, milli := placement.NewPool(), int64(0)
	r := rand.New(rand.NewPCG(seed, 1))
	order := r.Perm(len(t.workers))
	for i := range workers {
		w := t.workers[order[i%len(order)]]
		w.ID = traceWorker(i)
		milli += w.Capacity.GPUs * placement.DeviceMilli
		p.Join(w)
	}
	l := &churn{pool: p, trace: t, rand: r, keep: milli * busyPercent / 100}
	for steps := 0; l.taken < l.keep*99/100 && steps < 20*workers; steps++ {
		l.step()
	}
	for range warmUp {
		l.step()
	}
	l.refused = 0
	took := newWaits()
	began := time.Now()
	for range decisions {
		before := time.Now()
		l.step()
		_ = took.RecordValue(time.Since(before).Nanoseconds()) // bounded far above
	}
	whole := time.Since(began)
	us := func(ns int64) float64 { return round3(float64(ns) / 1000) }
	return speedRun{
		PerS: round3(decisions / whole.Seconds()), P50: us(took.ValueAtQuantile(50)), P99: us(took.ValueAtQuantile(99)), Max: us(took.Max()),
		Refused: round3(float64(l.refused) / decisions), Taken: round3(100 * float64(l.taken) / float64(milli)),
	}
}

// churn is a busy cluster.
type churn struct {
	pool        *placement.Pool
	trace       *trace
	rand        *rand.Rand
	keep, taken int64
	refused     int
	running     []runningTask
}

type runningTask struct {
	at   placement.Placement
	need placement.Need
}

func (l *churn) step() {
	n := l.trace.tasks[l.rand.IntN(len(l.trace.tasks))]
	if at, refusal := l.pool.Place(n, everySlot); refusal == placement.Placed {
		l.running = append(l.running, runningTask{at, n})
		l.taken += devices(n)
	} else {
		l.refused++
		l.end() // else what runs could keep everything out for ever
	}
	for l.taken > l.keep {
		l.end()
	}
}

func (l *churn) end() {
	if len(l.running) == 0 {
		return
	}
	i, last := l.rand.IntN(len(l.running)), len(l.running)-1
	one := l.running[i]
	l.running[i] = l.running[last]
	l.running = l.running[:last]
	l.pool.Free(one.at, one.need)
	l.taken -= devices(one.need)
}

// profileInto starts a CPU profile; the returned function ends it.
func profileInto(file string) (func() error, error) {
	out, err := os.Create(filepath.Clean(file))
	if err != nil {
		return nil, err
	}
	if err := pprof.StartCPUProfile(out); err != nil {
		_ = out.Close() // it is empty
		return nil, err
	}
	return func() error {
		pprof.StopCPUProfile()
		return out.Close()
	}, nil
}
