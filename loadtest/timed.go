package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"github.com/errandhq/errand"
)

// order is the payload of a task for a timed worker. The worker's clock is the submitter's: they run on one machine.
type order struct {
	Mark string `json:"mark"` // under which the task is counted
	At   int64  `json:"at"`   // when it was submitted, in microseconds since 1970
	For  int64  `json:"for"`  // how long its handler takes, in microseconds
}

// orderOf is the payload of a task that is submitted now.
func orderOf(mark string, takes time.Duration) []byte {
	return order{mark, time.Now().UnixMicro(), takes.Microseconds()}.encode()
}

func (o order) encode() []byte {
	raw, _ := json.Marshal(o) // strings and numbers always can be
	return raw
}

// counts are what a timed worker has seen of the tasks with one mark.
type counts struct {
	Started int64 `json:"started"`
	Ended   int64 `json:"ended"`
	Busy    int64 `json:"busy"` // microseconds in handlers, those that still run included
}

func (c counts) plus(d counts) counts {
	return counts{c.Started + d.Started, c.Ended + d.Ended, c.Busy + d.Busy}
}

func (c counts) minus(d counts) counts {
	return counts{c.Started - d.Started, c.Ended - d.Ended, c.Busy - d.Busy}
}

// tally is what a timed worker tells. Its last one, when it has drained, has the waits from submit to handler start in microseconds.
type tally struct {
	At       int64                             `json:"at"` // microseconds since 1970
	Peak     int                               `json:"peak"`
	Answered int64                             `json:"answered"` // ends that are recorded
	Marks    map[string]counts                 `json:"marks"`
	Waits    map[string]*hdrhistogram.Snapshot `json:"waits,omitempty"`
}

// Bounds of waits: a microsecond to an hour, with three digits. What waits longer counts as an hour.
const (
	waitMin, waitMax = 1, 3_600_000_000
	waitDigits       = 3
)

func newWaits() *hdrhistogram.Histogram { return hdrhistogram.New(waitMin, waitMax, waitDigits) }

// timedCmd is a worker whose tasks say how long they take, and which tells who has used how much of it.
type timedCmd struct {
	URL   []string      `required:""`
	Key   string        `required:""`
	Kinds []string      `required:""`
	Slots int           `help:"For each kind." required:""`
	Every time.Duration `help:"How often it tells." default:"${tally_every}"`
	Peak  string        `help:"File of the count that worker processes share; none for this process's own." placeholder:"FILE"`
}

// tallyEvery is how often it tells, where nothing else is said; busy times are exact at that moment.
const tallyEvery = 100 * time.Millisecond

// Run serves until the context ends, and drains.
func (c *timedCmd) Run(ctx context.Context) error {
	w, err := errand.NewWorker(errand.WorkerConfig{
		Config: errand.Config{URLs: c.URL, Key: c.Key},
		Log:    slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn})),
	})
	if err != nil {
		return err
	}
	b := &book{marks: map[string]*page{}}
	if c.Every <= 0 {
		return errors.New("--every: must be above 0")
	}
	if c.Peak != "" {
		if b.shared, err = openSharedCount(c.Peak); err != nil {
			return err
		}
	}
	for _, kind := range c.Kinds {
		w.Handle(kind, c.Slots, b.handle)
	}
	out := json.NewEncoder(os.Stdout)
	stop, told := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(told)
		tick := time.NewTicker(c.Every)
		defer tick.Stop()
		for {
			select {
			case <-stop:
				return
			case <-tick.C:
				_ = out.Encode(b.tally(w, false)) // the parent is gone: so will be this process
			}
		}
	}()
	err = w.Run(ctx)
	close(stop)
	<-told
	if err != nil {
		return err
	}
	return out.Encode(b.tally(w, true))
}

// book keeps the counts of a timed worker.
type book struct {
	shared *sharedCount // nil for none

	mu      sync.Mutex
	running int
	peak    int
	marks   map[string]*page
}

// page is of one mark. Those that run have been busy for running times now, less the sum of when they began.
type page struct {
	counts
	running, began int64
	waits          *hdrhistogram.Histogram
}

func (b *book) handle(ctx context.Context, a *errand.Attempt) (errand.Result, error) {
	var o order
	if err := json.Unmarshal(a.Payload, &o); err != nil {
		return errand.Result{}, errand.NonRetryable(fmt.Errorf("the payload is no order: %w", err))
	}
	began := time.Now().UnixMicro()
	b.begin(o, began)
	defer b.end(o, began)
	if o.For == 0 {
		return errand.Result{}, nil
	}
	timer := time.NewTimer(time.Duration(o.For) * time.Microsecond)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return errand.Result{}, context.Cause(ctx)
	case <-timer.C:
		return errand.Result{}, nil
	}
}

func (b *book) begin(o order, now int64) {
	if b.shared != nil {
		b.shared.add(1)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	p := b.marks[o.Mark]
	if p == nil {
		p = &page{waits: newWaits()}
		b.marks[o.Mark] = p
	}
	p.Started++
	p.running++
	p.began += now
	_ = p.waits.RecordValue(min(max(now-o.At, waitMin), waitMax)) // within its bounds
	b.running++
	b.peak = max(b.peak, b.running)
}

func (b *book) end(o order, began int64) {
	b.mu.Lock()
	p := b.marks[o.Mark]
	p.Ended++
	p.running--
	p.began -= began
	p.Busy += time.Now().UnixMicro() - began
	b.running--
	b.mu.Unlock()
	if b.shared != nil {
		b.shared.add(-1)
	}
}

func (b *book) tally(w *errand.Worker, last bool) tally {
	answered := w.Stats().Answered
	b.mu.Lock()
	defer b.mu.Unlock()
	t := tally{At: time.Now().UnixMicro(), Peak: b.peak, Answered: answered, Marks: make(map[string]counts, len(b.marks))}
	if b.shared != nil {
		t.Peak = b.shared.peak()
	}
	for mark, p := range b.marks {
		now := p.counts
		now.Busy += p.running*t.At - p.began
		t.Marks[mark] = now
		if last {
			if t.Waits == nil {
				t.Waits = map[string]*hdrhistogram.Snapshot{}
			}
			t.Waits[mark] = p.waits.Export()
		}
	}
	return t
}
