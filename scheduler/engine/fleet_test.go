package engine_test

import (
	"context"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/errandhq/errand/placement"
	"github.com/errandhq/errand/scheduler"
	"github.com/errandhq/errand/scheduler/engine"
	"github.com/errandhq/errand/scheduler/schedulertest"
)

// fleet is many workers at one engine over a memory store, turned by hand.
type fleet struct {
	t       *testing.T
	store   *schedulertest.Memory
	engine  *engine.Engine
	local   time.Duration
	streams engine.StreamID
	inbox   []engine.Input
	workers []*hand
	at      map[engine.StreamID]*hand
	listed  []engine.WorkersListed
	asked   map[string]int // statements, by kind
	ended   map[scheduler.ID]int
}

// hand is one worker. It ends what it runs when it is told to, and names what is not acknowledged.
type hand struct {
	said       placement.Worker
	stream     engine.StreamID // zero while it is not connected
	runs       []scheduler.Token
	owed       []scheduler.Token
	given      int // assignments so far
	most       int // that ran at once
	lost       int // attempts that it ran and had to stop
	registered int
}

func newFleet(t *testing.T) *fleet {
	t.Helper()
	f := &fleet{t: t, local: 1, at: map[engine.StreamID]*hand{}, ended: map[scheduler.ID]int{}, asked: map[string]int{}}
	start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	f.store = schedulertest.NewMemory(func() time.Time { return start.Add(f.local) })
	f.scheduler(1)
	return f
}

// scheduler is a new one in the place of the last, which is dead.
func (f *fleet) scheduler(seed uint64) {
	f.engine = engine.New(engine.Config{Region: "eu", Timing: scheduler.DefaultTiming(), Rand: rand.New(rand.NewPCG(seed, 2))})
	f.inbox, f.at = nil, map[engine.StreamID]*hand{}
	for _, h := range f.workers {
		h.stream = 0
	}
	f.run(100 * time.Millisecond)
}

func (f *fleet) worker(n byte, slots int) *hand {
	h := &hand{said: placement.Worker{ID: scheduler.WorkerID{1, n}, Slots: map[string]int{"encode": slots}}}
	f.workers = append(f.workers, h)
	return h
}

// connect opens a stream and registers.
func (f *fleet) connect(h *hand) {
	f.streams++
	h.stream = f.streams
	f.at[h.stream] = h
	f.inbox = append(f.inbox, engine.StreamOpened{Stream: h.stream})
	f.register(h, false)
}

func (f *fleet) register(h *hand, update bool) {
	w := h.said
	w.Slots = map[string]int{"encode": h.said.Slots["encode"]}
	words := engine.FromWorker{Register: &engine.Register{Worker: w, Holds: slices.Concat(h.runs, h.owed), Update: update}}
	if !update {
		words.Heartbeat = &engine.Heartbeat{}
		for _, token := range h.owed {
			words.Reports = append(words.Reports, scheduler.Report{Token: token, Outcome: scheduler.OutcomeSucceeded})
		}
	}
	f.say(h, words)
}

func (f *fleet) say(h *hand, words engine.FromWorker) {
	f.inbox = append(f.inbox, engine.WorkerSaid{Stream: h.stream, Words: words})
}

func (f *fleet) cut(h *hand) {
	f.inbox = append(f.inbox, engine.StreamClosed{Stream: h.stream})
	delete(f.at, h.stream)
	h.stream = 0
}

// finish ends the oldest attempts of a worker.
func (f *fleet) finish(h *hand, n int) {
	var words engine.FromWorker
	for range min(n, len(h.runs)) {
		words.Reports = append(words.Reports, scheduler.Report{Token: h.runs[0], Outcome: scheduler.OutcomeSucceeded})
		h.owed, h.runs = append(h.owed, h.runs[0]), h.runs[1:]
	}
	f.say(h, words)
}

func (f *fleet) submit(n int) {
	for ; n > 0; n -= scheduler.BatchRowsMax {
		tasks := make([]scheduler.Task, min(n, scheduler.BatchRowsMax))
		for i := range tasks {
			tasks[i] = scheduler.Task{Tenant: "acme", Kind: "encode", Tier: scheduler.Standard, Tolerance: time.Minute}
		}
		f.inbox = append(f.inbox, engine.SubmitAsked{Ticket: 1, Tasks: tasks})
		f.run(20 * time.Millisecond)
	}
}

// run turns the engine for a while. Connected workers beat every second.
func (f *fleet) run(d time.Duration) {
	f.t.Helper()
	const step = 10 * time.Millisecond
	for end := f.local + d; f.local < end; f.local += step {
		if f.local/step%100 == 0 {
			for _, h := range f.workers {
				if h.stream != 0 {
					f.say(h, engine.FromWorker{Heartbeat: &engine.Heartbeat{}})
				}
			}
		}
		f.turn()
	}
}

func (f *fleet) turn() {
	inputs := f.inbox
	f.inbox = nil
	for _, eff := range f.engine.Turn(f.local, inputs) {
		switch eff := eff.(type) {
		case engine.Run:
			if _, attach := eff.Request.(scheduler.AttachBatch); attach {
				f.asked["attach"]++
			}
			answer, err := engine.Execute(context.Background(), f.store, eff.Request)
			f.inbox = append(f.inbox, engine.StatementDone{ID: eff.ID, Answer: answer, Err: err})
		case engine.Send:
			if h := f.at[eff.Stream]; h != nil {
				f.hear(h, &eff.Words)
			}
		case engine.CloseStream:
			if h := f.at[eff.Stream]; h != nil {
				delete(f.at, eff.Stream)
				f.inbox = append(f.inbox, engine.StreamClosed(eff))
				if h.stream == eff.Stream {
					h.stream = 0
				}
			}
		case engine.WorkersListed:
			f.listed = append(f.listed, eff)
		case engine.TasksEnded:
			for _, id := range eff.IDs {
				f.ended[id]++
			}
		}
	}
}

func (f *fleet) hear(h *hand, words *engine.ToWorker) {
	if words.Registered != nil {
		h.registered++
	}
	var taken []scheduler.Token
	for i := range words.Assign {
		taken = append(taken, words.Assign[i].Token)
	}
	if len(taken) > 0 {
		f.say(h, engine.FromWorker{Accepted: taken})
	}
	h.given += len(taken)
	h.runs = append(h.runs, taken...)
	h.most = max(h.most, len(h.runs))
	for _, stop := range words.Stops {
		before := len(h.runs)
		h.runs = slices.DeleteFunc(h.runs, func(t scheduler.Token) bool { return t == stop.Token })
		h.lost += before - len(h.runs)
	}
	for _, ack := range words.Acks {
		h.owed = slices.DeleteFunc(h.owed, func(t scheduler.Token) bool { return t == ack.Token })
	}
}

// endedOnce is how many tasks have ended; one that has ended twice fails the test.
func (f *fleet) endedOnce() int {
	f.t.Helper()
	for id, n := range f.ended {
		if n > 1 {
			f.t.Errorf("%s has ended %d times", id, n)
		}
	}
	return len(f.ended)
}
