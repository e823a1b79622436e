package engine_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/errandhq/errand/placement"
	"github.com/errandhq/errand/scheduler"
	"github.com/errandhq/errand/scheduler/engine"
	"github.com/errandhq/errand/scheduler/schedulertest"
)

// region is some instances over one store, turned by hand. What the simulation has found is told here step by step.
type region struct {
	t     *testing.T
	store *schedulertest.Memory
	local time.Duration
	down  bool // the store answers nobody
}

func newRegion(t *testing.T) *region {
	t.Helper()
	r := &region{t: t, local: 1}
	start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	r.store = schedulertest.NewMemory(func() time.Time { return start.Add(r.local) })
	return r
}

// instance is one of them, with the one worker that is connected to it.
type instance struct {
	*region
	engine  *engine.Engine
	inbox   []engine.Input
	hold    func(request any) bool // statements that match wait until they are released
	held    []engine.Run
	stream  engine.StreamID
	silent  bool              // the worker says nothing by itself
	words   []engine.ToWorker // what the worker has heard
	stopped bool
	tries   int                 // statements that end attempts
	outside func(engine.Effect) // what the engine wants of anybody else; nil for nothing
}

func (r *region) instance(seed uint64) *instance {
	r.t.Helper()
	in := &instance{region: r, hold: func(any) bool { return false }}
	in.engine = engine.New(engine.Config{Region: "eu", Timing: scheduler.DefaultTiming(), Rand: rand.New(rand.NewPCG(seed, 2))})
	in.run(100 * time.Millisecond)
	return in
}

// run turns instances for a while. Their workers send heartbeats every second.
func (in *instance) run(d time.Duration, others ...*instance) {
	in.t.Helper()
	const step = 10 * time.Millisecond
	for end := in.local + d; in.local < end; in.local += step {
		for _, one := range append([]*instance{in}, others...) {
			one.turn()
		}
	}
}

func (in *instance) turn() {
	if in.stopped {
		return
	}
	if in.stream > 0 && !in.silent && (in.local/(10*time.Millisecond))%100 == 0 {
		in.beat()
	}
	inputs := in.inbox
	in.inbox = nil
	effects := in.engine.Turn(in.local, inputs)
	in.stopped = slices.ContainsFunc(effects, func(eff engine.Effect) bool { _, is := eff.(engine.Stopped); return is })
	for _, eff := range effects {
		switch eff := eff.(type) {
		case engine.Run:
			if !in.stopped { // then the process ends, and takes its statements along
				in.execute(eff)
			}
		case engine.Send:
			in.words = append(in.words, eff.Words)
		default:
			if in.outside != nil {
				in.outside(eff)
			}
		}
	}
}

func (in *instance) execute(run engine.Run) {
	if _, end := run.Request.(scheduler.EndBatch); end {
		in.tries++
	}
	if in.hold(run.Request) {
		in.held = append(in.held, run)
		return
	}
	done := engine.StatementDone{ID: run.ID}
	if in.down {
		done.Err = errors.New("the store is away")
	} else {
		done.Answer, done.Err = engine.Execute(context.Background(), in.store, run.Request)
	}
	in.inbox = append(in.inbox, done)
}

func (in *instance) release() {
	in.hold = func(any) bool { return false }
	for _, run := range in.held {
		in.execute(run)
	}
	in.held = nil
}

var theWorker = scheduler.WorkerID{7}

func (in *instance) connect(holds ...scheduler.Token) {
	in.stream++
	in.inbox = append(in.inbox, engine.StreamOpened{Stream: in.stream})
	in.say(engine.FromWorker{Register: &engine.Register{
		Worker: placement.Worker{ID: theWorker, Slots: map[string]int{"encode": 1}}, Holds: holds,
	}})
	in.beat()
}

func (in *instance) disconnect() {
	in.inbox = append(in.inbox, engine.StreamClosed{Stream: in.stream})
	in.silent = true
}

func (in *instance) beat() {
	in.say(engine.FromWorker{Heartbeat: &engine.Heartbeat{SentAt: int64(in.local)}})
}

func (in *instance) say(words engine.FromWorker) {
	in.inbox = append(in.inbox, engine.WorkerSaid{Stream: in.stream, Words: words})
}

func (in *instance) succeed(token scheduler.Token) {
	in.say(engine.FromWorker{Reports: []scheduler.Report{{Token: token, Outcome: scheduler.OutcomeSucceeded}}})
}

// start has one task running at the worker and returns its token.
func (in *instance) start(change ...func(*scheduler.Task)) scheduler.Token {
	in.t.Helper()
	in.connect()
	in.run(50 * time.Millisecond)
	in.submit(change...)
	in.run(50 * time.Millisecond)
	assigned := in.assigned()
	if len(assigned) != 1 {
		in.t.Fatalf("%d assignments, want one", len(assigned))
	}
	return assigned[0].Token
}

func (in *instance) submit(change ...func(*scheduler.Task)) {
	task := scheduler.Task{Tenant: "acme", Kind: "encode", Tier: scheduler.Standard, Tolerance: time.Minute}
	for _, f := range change {
		f(&task)
	}
	in.inbox = append(in.inbox, engine.SubmitAsked{Ticket: 1, Tasks: []scheduler.Task{task}})
}

func (in *instance) assigned() []scheduler.Start {
	var all []scheduler.Start
	for _, w := range in.words {
		all = append(all, w.Assign...)
	}
	return all
}

func (in *instance) toldLost(token scheduler.Token) bool {
	return slices.ContainsFunc(in.words, func(w engine.ToWorker) bool {
		return slices.Contains(w.Stops, scheduler.Stop{Token: token, Cause: scheduler.StopLost})
	})
}

func (in *instance) acks() []engine.Ack {
	var all []engine.Ack
	for _, w := range in.words {
		all = append(all, w.Acks...)
	}
	return all
}

func (r *region) task(token scheduler.Token) scheduler.Task {
	r.t.Helper()
	t, stands := r.store.Task(scheduler.Ref{Region: "eu", ID: token.ID})
	if !stands {
		r.t.Fatalf("there is no %s", token.ID)
	}
	return t
}

func isAttach(request any) bool { _, is := request.(scheduler.AttachBatch); return is }
func isClaim(request any) bool  { _, is := request.(scheduler.ClaimBatch); return is }
func isEnd(request any) bool    { _, is := request.(scheduler.EndBatch); return is }

// A worker that was at another instance meanwhile is taken over again, although this instance thinks that it holds its attempts.
func TestAWorkerGoesAndComesBack(t *testing.T) {
	r := newRegion(t)
	a, b := r.instance(1), r.instance(2)
	token := a.start()
	a.say(engine.FromWorker{Accepted: []scheduler.Token{token}})
	a.run(50 * time.Millisecond)
	for _, hop := range []struct{ from, to *instance }{{a, b}, {b, a}} {
		hop.from.disconnect()
		hop.to.silent = false
		hop.to.connect(token)
		a.run(50*time.Millisecond, b)
		if got, want := r.task(token).Session, hop.to.engine.Status().Session; got != want {
			t.Fatalf("the attempt is under session %s, its worker at %s", got, want)
		}
	}
	a.run(20*time.Second, b) // several comparisons, and longer than a lease
	if a.toldLost(token) || r.task(token).Attempt != 1 || r.task(token).State != scheduler.Running {
		t.Fatalf("told lost: %v; the task: %+v", a.toldLost(token), r.task(token))
	}
	a.succeed(token)
	a.run(50*time.Millisecond, b)
	if got := r.task(token); got.State != scheduler.Succeeded || got.Counted != 0 {
		t.Errorf("%v, counted %d", got.State, got.Counted)
	}
}

// The answer to a report may be lost with its connection. Said again, here or at another instance, it is answered like the first time.
func TestARepeatedReportIsAnsweredLikeTheFirst(t *testing.T) {
	for name, c := range map[string]struct {
		first, second scheduler.Outcome
		want          engine.AckAnswer
	}{
		"succeeded":      {scheduler.OutcomeSucceeded, scheduler.OutcomeSucceeded, engine.AckRecorded},
		"failed":         {scheduler.OutcomeFailed, scheduler.OutcomeFailed, engine.AckRecorded},
		"handed back":    {scheduler.OutcomeHandedBack, scheduler.OutcomeHandedBack, engine.AckRecorded},
		"something else": {scheduler.OutcomeHandedBack, scheduler.OutcomeSucceeded, engine.AckLost},
	} {
		for _, elsewhere := range []bool{false, true} {
			r := newRegion(t)
			a, b := r.instance(1), r.instance(2)
			token := a.start()
			report := func(in *instance, o scheduler.Outcome) {
				failure := scheduler.Failure{Reason: "no_such_thing"}
				in.say(engine.FromWorker{Reports: []scheduler.Report{{Token: token, Outcome: o, Failure: failure, NonRetryable: true}}})
			}
			report(a, c.first)
			a.turn()
			a.disconnect() // before the answer
			a.run(100*time.Millisecond, b)
			again := a
			if elsewhere {
				again = b
			}
			again.words = nil
			again.connect(token)
			report(again, c.second)
			a.run(500*time.Millisecond, b)
			acks := again.acks()
			if len(acks) == 0 || acks[len(acks)-1].Answer != c.want {
				t.Errorf("%s, elsewhere %v: %v, want %v; the task is %v", name, elsewhere, acks, c.want, r.task(token).State)
			}
		}
	}
}

// A take-over may be answered after the end that the worker has reported meanwhile was recorded: its answer does not say lost, whatever
// the end.
func TestATakeOverMeetsARecordedEnd(t *testing.T) {
	for name, report := range map[string]scheduler.Report{
		"succeeded":    {Outcome: scheduler.OutcomeSucceeded},
		"failed":       {Outcome: scheduler.OutcomeFailed, Failure: scheduler.Failure{Reason: "broken"}},
		"handed back":  {Outcome: scheduler.OutcomeHandedBack},
		"snoozed":      {Outcome: scheduler.OutcomeSnoozed, Delay: time.Hour},
		"backpressure": {Outcome: scheduler.OutcomeBackpressure, Limit: "api", RetryAfter: time.Hour},
	} {
		t.Run(name, func(t *testing.T) { takeOverMeetsEnd(t, report) })
	}
}

func takeOverMeetsEnd(t *testing.T, report scheduler.Report) {
	r := newRegion(t)
	a := r.instance(1)
	token := a.start()
	a.say(engine.FromWorker{Accepted: []scheduler.Token{token}})
	a.run(50 * time.Millisecond)
	a.disconnect()
	a.hold = isAttach
	a.silent = false
	a.connect(token) // it is taken over again, and that takes long
	a.run(50 * time.Millisecond)
	a.words = nil
	report.Token = token
	a.say(engine.FromWorker{Reports: []scheduler.Report{report}})
	a.run(100 * time.Millisecond)
	a.hold = func(any) bool { return false }
	a.release()
	a.run(200 * time.Millisecond)
	if got := r.task(token); got.State == scheduler.Running && got.Attempt == token.Attempt {
		t.Fatalf("the task is %v still", got.State)
	}
	acks := a.acks()
	if len(acks) == 0 {
		t.Error("no answer")
	}
	for _, ack := range acks {
		if ack.Answer != engine.AckRecorded {
			t.Errorf("answered %v", acks)
		}
	}
	if a.toldLost(token) {
		t.Error("the worker is told to stop what it has reported")
	}
}

// A worker that says something new of itself on a connection has not lost what is on its way to it there.
func TestARegisterOnTheSameConnection(t *testing.T) {
	r := newRegion(t)
	a := r.instance(1)
	token := a.start() // assigned, and not accepted yet
	a.say(engine.FromWorker{Register: &engine.Register{Worker: placement.Worker{ID: token.Worker, Slots: map[string]int{"k": 7}}}})
	a.run(100 * time.Millisecond)
	if got := r.task(token); got.State != scheduler.Running || a.toldLost(token) {
		t.Fatalf("the task is %v, told lost: %v", got.State, a.toldLost(token))
	}
	a.succeed(token)
	a.run(100 * time.Millisecond)
	if got := r.task(token); got.State != scheduler.Succeeded {
		t.Errorf("the task is %v", got.State)
	}
}

// A report that meets an end which the scheduler is writing is not lost together with it.
func TestAReportMeetsAnEndThatLoses(t *testing.T) {
	r := newRegion(t)
	a, b := r.instance(1), r.instance(2)
	token := a.start()
	a.hold = isEnd
	a.run(6 * time.Second) // not accepted: it is given back, and that does not get through
	a.disconnect()
	b.connect(token)
	b.run(50*time.Millisecond, a) // the worker runs it and has gone to b
	b.disconnect()
	a.silent = false
	a.connect(token)
	a.run(50*time.Millisecond, b)
	a.succeed(token)
	a.run(50*time.Millisecond, b)
	a.release()
	a.run(2*time.Second, b)
	if got := r.task(token); got.State != scheduler.Succeeded {
		t.Errorf("the task is %v, the worker has succeeded", got.State)
	}
	if acks := a.acks(); len(acks) == 0 || acks[len(acks)-1].Answer != engine.AckRecorded {
		t.Errorf("the worker was told %v", acks)
	}
}

// What an instance cannot send while it stops is given back before its session ends.
func TestAStopGivesBackWhatWasNotSent(t *testing.T) {
	r := newRegion(t)
	a := r.instance(1)
	a.hold = isClaim
	a.submit(func(t *scheduler.Task) { t.Spec.Exclusive = true }) // nobody is there: it waits
	a.run(50 * time.Millisecond)
	a.connect()
	a.run(100 * time.Millisecond)
	if len(a.held) != 1 {
		t.Fatalf("%d claims under way, want one", len(a.held))
	}
	a.inbox = append(a.inbox, engine.ShutdownAsked{})
	a.disconnect()
	a.run(time.Second)
	if a.stopped {
		t.Fatal("it has stopped, and a claim is under way")
	}
	a.release()
	a.run(time.Second)
	id := r.store.Tasks("eu")[0].Ref.ID
	if got := r.task(scheduler.Token{ID: id}); !a.stopped || got.State != scheduler.Ready || got.Counted != 0 {
		t.Errorf("stopped: %v; the task is %v, counted %d; want it ready and uncounted", a.stopped, got.State, got.Counted)
	}
}

// Nothing is granted to exclusive handlers, and no work given, before it is known whether what the worker holds is its own.
func TestAReturningWorkerWaitsForItsTakeOvers(t *testing.T) {
	r := newRegion(t)
	a, b := r.instance(1), r.instance(2)
	token := a.start(func(t *scheduler.Task) { t.Spec.Exclusive = true })
	a.disconnect()
	b.hold = isAttach
	b.connect(token)
	b.submit()
	b.run(100*time.Millisecond, a)
	for _, w := range b.words {
		if w.HeartbeatAck != nil && w.HeartbeatAck.Grant > 0 {
			t.Errorf("granted %v", w.HeartbeatAck.Grant)
		}
	}
	if n := len(b.assigned()); n > 0 {
		t.Errorf("%d assignments to a worker with one slot, which is taken", n)
	}
	b.words = nil
	b.release()
	b.run(100*time.Millisecond, a)
	if len(b.words) == 0 || b.words[0].HeartbeatAck == nil || b.words[0].HeartbeatAck.Grant <= 0 {
		t.Errorf("after the take-over: %+v, want a grant at once", b.words)
	}
	if n := len(b.assigned()); n > 0 {
		t.Errorf("%d assignments, and the slot is taken", n)
	}
}

// After an outage of the store a silent worker has time to be taken over by whom it has gone to.
func TestSilenceConcludesNothingRightAfterAnOutage(t *testing.T) {
	r := newRegion(t)
	a := r.instance(1)
	token := a.start()
	a.say(engine.FromWorker{Accepted: []scheduler.Token{token}})
	a.run(10 * time.Second)
	r.down = true
	a.disconnect()
	a.run(20 * time.Second)
	r.down = false
	before := a.tries
	a.run(5 * time.Second)
	if a.tries != before || r.task(token).State != scheduler.Running {
		t.Errorf("5 s after the outage: %d ends written, the task is %v", a.tries-before, r.task(token).State)
	}
	a.run(5 * time.Second)
	if got := r.task(token); got.State != scheduler.Ready || got.Failure.Reason != scheduler.ReasonWorkerLost {
		t.Errorf("10 s after it: %v; want it given back by then", got.State)
	}
}

// Trust that comes back is passed on: exclusive handlers need not wait for the next heartbeat.
func TestGrantsComeBackWithTrust(t *testing.T) {
	r := newRegion(t)
	a := r.instance(1)
	a.connect()
	a.run(time.Second)
	r.down = true
	a.run(9500 * time.Millisecond) // the last heartbeats were answered without trust
	a.silent, a.words = true, nil
	r.down = false
	a.run(500 * time.Millisecond)
	if !slices.ContainsFunc(a.words, func(w engine.ToWorker) bool { return w.HeartbeatAck != nil && w.HeartbeatAck.Grant > 5*time.Second }) {
		t.Errorf("nothing was granted: %+v", a.words)
	}
}
