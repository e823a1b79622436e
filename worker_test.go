package errand

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/durationpb"

	errandv1 "github.com/errandhq/errand/proto/errand/v1"
)

type nilError struct{ text string }

func (e *nilError) Error() string { return e.text }

// ending is how an attempt ended, in words.
func ending(f *errandv1.Finished) string {
	switch o := f.GetOutcome().(type) {
	case *errandv1.Finished_Succeeded:
		return strings.TrimSpace("succeeded " + string(o.Succeeded.GetData()) + " " + o.Succeeded.GetContentType())
	case *errandv1.Finished_Failed:
		words := []string{"failed"}
		if o.Failed.GetReason() != "" {
			words = append(words, o.Failed.GetReason())
		}
		if o.Failed.GetNonRetryable() {
			words = append(words, "for good")
		}
		if o.Failed.GetRetryAfter() != nil {
			words = append(words, "after "+o.Failed.GetRetryAfter().AsDuration().String())
		}
		return strings.Join(words, " ") + ": " + o.Failed.GetMessage()
	case *errandv1.Finished_Stopped:
		return "stopped"
	case *errandv1.Finished_HandedBack:
		return "handed back: " + o.HandedBack.GetReason()
	case *errandv1.Finished_Snoozed:
		return "snoozed " + o.Snoozed.GetDelay().AsDuration().String()
	case *errandv1.Finished_Backpressure:
		words := "backpressure of " + o.Backpressure.GetLimit()
		if o.Backpressure.GetRetryAfter() != nil {
			words += " after " + o.Backpressure.GetRetryAfter().AsDuration().String()
		}
		return words
	}
	return "?"
}

// Every way in which a handler can end is one word to the scheduler, and none of them can end the worker.
func TestEnds(t *testing.T) {
	type pair struct{ A, B int }
	oops := errors.New("oops")
	fails := func(err error) Handler {
		return func(context.Context, *Attempt) (Result, error) { return Result{}, err }
	}
	long := strings.Repeat("x", 10<<20)
	tests := map[string]struct {
		h       Handler
		payload string
		want    string
	}{
		"typed":         {Typed(func(_ context.Context, in pair) (int, error) { return in.A + in.B, nil }), `{"A":1,"B":2}`, "succeeded 3 application/json"},
		"bad-payload":   {Typed(func(_ context.Context, in pair) (int, error) { return in.A, nil }), `{`, "failed bad_payload for good: decode the payload: unexpected end of JSON input"},
		"bad-result":    {Typed(func(context.Context, pair) (chan int, error) { return make(chan int), nil }), `{}`, "failed bad_result for good: encode the result: json: unsupported type: chan int"},
		"error":         {fails(oops), "", "failed: oops"},
		"final":         {fails(NonRetryable(oops)), "", "failed for good: oops"},
		"all-marks":     {fails(NonRetryable(fmt.Errorf("in between: %w", WithReason(RetryAfter(oops, time.Minute), "no_card")))), "", "failed no_card for good after 1m0s: in between: oops"},
		"outer-reason":  {fails(WithReason(WithReason(oops, "inner"), "outer")), "", "failed outer: oops"},
		"backwards":     {fails(RetryAfter(oops, -time.Minute)), "", "failed: oops"},
		"marked-nil":    {fails(NonRetryable(WithReason(RetryAfter(nil, time.Minute), "x"))), "", "succeeded"},
		"long-reason":   {fails(WithReason(oops, strings.Repeat("r", 100))), "", "failed " + strings.Repeat("r", 63) + ": oops"},
		"snooze":        {fails(Snooze(time.Hour)), "", "snoozed 1h0m0s"},
		"snooze-back":   {fails(Snooze(-time.Hour)), "", "snoozed 1ms"},
		"snooze-nested": {fails(fmt.Errorf("busy: %w", Snooze(time.Hour))), "", "snoozed 1h0m0s"},
		"pressed":       {fails(Backpressure("api", 0)), "", "backpressure of api"},
		"pressed-after": {fails(fmt.Errorf("busy: %w", Backpressure("api", time.Minute))), "", "backpressure of api after 1m0s"},
		"pressed-back":  {fails(Backpressure("api", -time.Minute)), "", "backpressure of api"},
		"pressed-nul":   {fails(Backpressure("a\x00"+strings.Repeat("p", 100), 0)), "", "backpressure of a" + strings.Repeat("p", 61)},
		"pressed-mark":  {fails(RetryAfter(NonRetryable(Backpressure("api", time.Hour)), time.Minute)), "", "backpressure of api after 1m0s"},
		"panic":         {func(context.Context, *Attempt) (Result, error) { panic("oh") }, "", "failed panic: panic: oh"},
		"panic-error":   {func(context.Context, *Attempt) (Result, error) { panic(context.Canceled) }, "", "failed panic: panic: context canceled"},
		"goexit":        {func(context.Context, *Attempt) (Result, error) { runtime.Goexit(); return Result{}, nil }, "", "failed: " + errExited.Error()},
		"nil-pointer":   {fails((*nilError)(nil)), "", "failed: <nil>"},
		"nul":           {fails(errors.New("a\x00b\xff\xfec")), "", "failed: abc"},
		"long":          {fails(errors.New(long)), "", "failed: " + long[:messageMax]},
		"large": {
			func(context.Context, *Attempt) (Result, error) { return Result{Data: make([]byte, resultMax+1)}, nil }, "",
			"failed bad_result for good: the result has 262145 bytes, the most is 262144",
		},
		"content-type": {
			func(context.Context, *Attempt) (Result, error) { return Result{ContentType: "a\xff\x00" + long}, nil }, "",
			"succeeded  a" + strings.Repeat("x", 252),
		},
		"canceled-itself": {fails(fmt.Errorf("a call of mine: %w", context.Canceled)), "", "failed: a call of mine: context canceled"},
	}
	inVirtualTime(t, func(t *testing.T, n *network) {
		s := n.scheduler("eu")
		handlers := map[string]Handler{}
		for kind, tt := range tests {
			handlers[kind] = tt.h
		}
		w := n.works(WorkerConfig{}, handlers, s)
		l := until(t, "the worker", s.lines)
		kinds := slices.Sorted(maps.Keys(tests))
		for i, kind := range kinds {
			a := assignment(i, kind)
			a.Payload = []byte(tests[kind].payload)
			l.say(&errandv1.WorkResponse{Assign: []*errandv1.Assignment{a}})
		}
		for number, f := range l.reported(t, len(kinds), true) {
			if kind := kinds[number]; ending(f) != tests[kind].want {
				t.Errorf("%s ended: %.200q, want %.200q", kind, ending(f), tests[kind].want)
			}
		}
		w.leaves(l)
	})
}

func TestWhatAHandlerSees(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, n *network) {
		s := n.scheduler("eu")
		seen := make(chan *Attempt, 1)
		deadlines := make(chan time.Duration, 1)
		w := n.works(WorkerConfig{}, map[string]Handler{"k": func(ctx context.Context, a *Attempt) (Result, error) {
			if AttemptOf(ctx) != a {
				t.Error("the context knows another attempt")
			}
			deadline, _ := ctx.Deadline()
			deadlines <- time.Until(deadline)
			seen <- a
			return Result{}, nil
		}}, s)
		l := until(t, "the worker", s.lines)
		assigned := assignment(7, "k")
		assigned.Labels, assigned.Payload, assigned.ContentType = map[string]string{"a": "b"}, []byte("p"), "text/plain"
		assigned.Counted, assigned.Token.Attempt, assigned.Timeout = 2, 4, durationpb.New(time.Minute)
		l.say(&errandv1.WorkResponse{Assign: []*errandv1.Assignment{assigned}})
		a := until(t, "the attempt", seen)
		if a.TaskID != "eu.0000000000000000000000000w" {
			t.Errorf("the handle is %s", a.TaskID)
		}
		if a.EffectKey != a.TaskID || a.Number != 4 || a.Counted != 2 || a.Tenant != "acme" || string(a.Payload) != "p" || a.Labels["a"] != "b" {
			t.Errorf("the attempt is %+v", a)
		}
		if d := <-deadlines; d != time.Minute {
			t.Errorf("the deadline is in %v", d)
		}
		l.reported(t, 1, true)
		redriven := assignment(8, "k")
		redriven.EffectKey = "eu.first"
		l.say(&errandv1.WorkResponse{Assign: []*errandv1.Assignment{redriven}})
		if a := until(t, "the redriven attempt", seen); a.EffectKey != "eu.first" {
			t.Errorf("the effect key is %s", a.EffectKey)
		}
		l.reported(t, 1, true)
		w.leaves(l)
	})
}

// The handler's context says why it must stop, and the scheduler hears that it stopped because of that.
func TestStops(t *testing.T) {
	tests := map[string]struct {
		cause errandv1.StopCause
		want  error
		end   string // empty for none: nothing that it says counts
	}{
		"canceled":  {errandv1.StopCause_STOP_CAUSE_CANCELED, ErrCanceled, "stopped"},
		"timed out": {errandv1.StopCause_STOP_CAUSE_TIMED_OUT, ErrTimedOut, "failed timeout: " + ErrTimedOut.Error()},
		"lost":      {errandv1.StopCause_STOP_CAUSE_LOST, ErrLost, ""},
		"preempted": {errandv1.StopCause_STOP_CAUSE_PREEMPTED, ErrDraining, "handed back: drained"},
		"drained":   {errandv1.StopCause_STOP_CAUSE_DRAINED, ErrDraining, "handed back: drained"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			inVirtualTime(t, func(t *testing.T, n *network) {
				s := n.scheduler("eu")
				h := newStub()
				w := n.works(WorkerConfig{}, map[string]Handler{"k": h.handle, "returns-cause": func(ctx context.Context, _ *Attempt) (Result, error) {
					h.started <- nil
					<-ctx.Done()
					return Result{}, fmt.Errorf("gave up: %w", context.Cause(ctx))
				}}, s)
				l := until(t, "the worker", s.lines)
				for number, kind := range []string{"k", "returns-cause"} {
					l.assign(number, kind)
					until(t, "the handler", h.started)
					l.stop(tt.cause, &errandv1.Token{Id: taskID(number), Attempt: 1})
					if kind == "k" {
						if cause := until(t, "the stop", h.causes); !errors.Is(cause, tt.want) {
							t.Errorf("the cause is %v, want %v", cause, tt.want)
						}
					}
					if tt.end == "" {
						never(t, "an end of a lost attempt", l.finished)
						continue
					}
					f := until(t, "the end", l.finished)
					if ending(f) != tt.end {
						t.Errorf("%s: %s, want %s", kind, ending(f), tt.end)
					}
					l.ack(f.GetToken())
				}
				l.stop(tt.cause, &errandv1.Token{Id: taskID(99), Attempt: 1}) // one that does not run here
				w.leaves(l)
			})
		})
	}
}

// A handler that fails by itself after it was told to stop has failed; one that succeeds all the same has succeeded.
func TestOnlyWhoGivesUpIsStopped(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, n *network) {
		s := n.scheduler("eu")
		started := make(chan struct{}, 2)
		after := func(r Result, err error) Handler {
			return func(ctx context.Context, _ *Attempt) (Result, error) {
				started <- struct{}{}
				<-ctx.Done()
				return r, err
			}
		}
		w := n.works(WorkerConfig{}, map[string]Handler{
			"succeeds": after(Result{Data: []byte("ok")}, nil), "fails": after(Result{}, errors.New("by itself")), "snoozes": after(Result{}, Snooze(time.Minute)),
		}, s)
		l := until(t, "the worker", s.lines)
		for number, kind := range []string{"succeeds", "fails", "snoozes"} {
			l.assign(number, kind)
			until(t, "the handler", started)
			l.stop(errandv1.StopCause_STOP_CAUSE_CANCELED, &errandv1.Token{Id: taskID(number), Attempt: 1})
		}
		got := l.reported(t, 3, true)
		for number, want := range []string{"succeeded ok", "failed: by itself", "snoozed 1m0s"} {
			if ending(got[number]) != want {
				t.Errorf("%s, want %s", ending(got[number]), want)
			}
		}
		w.leaves(l)
	})
}

// The execution cap holds though no scheduler is there to say that it is over.
func TestTheCapHoldsWithoutAScheduler(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, n *network) {
		s := n.scheduler("eu")
		h := newStub()
		w := n.works(WorkerConfig{}, map[string]Handler{"k": h.handle}, s)
		l := until(t, "the worker", s.lines)
		a := assignment(1, "k")
		a.Timeout = durationpb.New(time.Minute)
		l.say(&errandv1.WorkResponse{Assign: []*errandv1.Assignment{a}})
		until(t, "the handler", h.started)
		began := time.Now()
		n.host("eu:80").hangs.Store(true)
		n.swallow()
		if cause := until(t, "the cap", h.causes); !errors.Is(cause, ErrTimedOut) || time.Since(began) != time.Minute {
			t.Errorf("%v after %v", cause, time.Since(began))
		}
		n.host("eu:80").hangs.Store(false)
		l = until(t, "the worker again", s.lines)
		if got := ending(l.reported(t, 1, true)[1]); !strings.HasPrefix(got, "failed timeout") {
			t.Error(got)
		}
		w.leaves(l)
	})
}

// An exclusive handler runs only within the scheduler's grant, and none starts without one.
func TestExclusive(t *testing.T) {
	exclusive := func(number int) *errandv1.WorkResponse {
		a := assignment(number, "k")
		a.Exclusive = true
		return &errandv1.WorkResponse{Assign: []*errandv1.Assignment{a}}
	}
	t.Run("ends with the grant", func(t *testing.T) {
		inVirtualTime(t, func(t *testing.T, n *network) {
			s := n.scheduler("eu", func(s *scripted) { s.grant = 8 * time.Second })
			h := newStub()
			w := n.works(WorkerConfig{}, map[string]Handler{"k": h.handle}, s)
			l := until(t, "the worker", s.lines)
			until(t, "a heartbeat", l.beats)
			never(t, "a second heartbeat", l.beats)
			l.say(exclusive(1))
			l.assign(2, "k")
			until(t, "the exclusive handler", h.started)
			until(t, "the other one", h.started)
			var beat time.Time
			for range 20 { // it lasts as long as grants come
				beat = until(t, "a heartbeat", l.beats)
			}
			synctest.Wait() // its answer has arrived
			n.host("eu:80").hangs.Store(true)
			n.swallow()
			cause := until(t, "the end of the grant", h.causes)
			if ran := time.Since(beat); !errors.Is(cause, ErrLost) || ran != 8*time.Second {
				t.Errorf("%v, %v after the last heartbeat that was answered; want 8s", cause, ran)
			}
			never(t, "a stop of what is not exclusive", h.causes)
			h.release <- nil
			n.host("eu:80").hangs.Store(false)
			l = until(t, "the worker again", s.lines)
			got := l.reported(t, 2, true)
			if ending(got[1]) != "stopped" || ending(got[2]) != "succeeded" {
				t.Errorf("%s and %s", ending(got[1]), ending(got[2]))
			}
			w.leaves(l)
		})
	})
	t.Run("does not start without one", func(t *testing.T) {
		inVirtualTime(t, func(t *testing.T, n *network) {
			s := n.scheduler("eu")
			h := newStub()
			w := n.works(WorkerConfig{}, map[string]Handler{"k": h.handle}, s)
			l := until(t, "the worker", s.lines)
			until(t, "a heartbeat", l.beats)
			l.say(exclusive(1))
			if got := ending(l.reported(t, 1, true)[1]); got != "handed back: refused" {
				t.Error(got)
			}
			never(t, "a start", h.started)
			w.leaves(l)
		})
	})
}

func TestWorkersThatCannotWork(t *testing.T) {
	good := Config{URLs: []string{"http://eu"}, Key: "k"}
	noop := func(context.Context, *Attempt) (Result, error) { return Result{}, nil }
	tests := map[string]struct {
		cfg   WorkerConfig
		kind  string
		slots int
		h     Handler
		want  string
	}{
		"no URL":             {WorkerConfig{Config: Config{Key: "k"}}, "k", 1, noop, "URLs"},
		"not a URL":          {WorkerConfig{Config: Config{URLs: []string{"eu:7070"}, Key: "k"}}, "k", 1, noop, "URLs"},
		"no key":             {WorkerConfig{Config: Config{URLs: good.URLs}}, "k", 1, noop, "Key"},
		"a key of two lines": {WorkerConfig{Config: Config{URLs: good.URLs, Key: "a\r\nb"}}, "k", 1, noop, "Key"},
		"a long name":        {WorkerConfig{Config: good, Name: strings.Repeat("n", 256)}, "k", 1, noop, "Name"},
		"a binary name":      {WorkerConfig{Config: good, Name: "\xff"}, "k", 1, noop, "Name"},
		"a negative grace":   {WorkerConfig{Config: good, DrainGrace: -1}, "k", 1, noop, "DrainGrace"},
		"a negative stop":    {WorkerConfig{Config: good, StopGrace: -1}, "k", 1, noop, "StopGrace"},
		"a bad kind":         {WorkerConfig{Config: good}, "Email", 1, noop, `"Email"`},
		"no slots":           {WorkerConfig{Config: good}, "k", 0, noop, "0 slots"},
		"too many slots":     {WorkerConfig{Config: good}, "k", 1 << 40, noop, "slots"},
		"no handler":         {WorkerConfig{Config: good}, "k", 1, nil, "nil"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			w, err := NewWorker(tt.cfg)
			if err == nil {
				w.Use(func(h Handler) Handler { return h })
				w.Handle(tt.kind, tt.slots, tt.h)
				err = w.Run(t.Context())
			}
			if !errors.Is(err, ErrConfig) || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("%v, want ErrConfig with %s", err, tt.want)
			}
		})
	}
	w, err := NewWorker(WorkerConfig{Config: good})
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Run(t.Context()); !errors.Is(err, ErrNoHandlers) {
		t.Errorf("without handlers: %v", err)
	}
}

// A worker that is refused ends with the reason, and its handlers stop: nothing that they say can be told.
func TestARefusedWorkerEnds(t *testing.T) {
	t.Run("at once", func(t *testing.T) {
		inVirtualTime(t, func(t *testing.T, n *network) {
			s := n.scheduler("eu", func(s *scripted) {
				s.refuse = problem(connect.CodeUnauthenticated, &errandv1.ErrorDetail{Reason: "UNAUTHENTICATED"})
			})
			w := n.works(WorkerConfig{}, map[string]Handler{"k": newStub().handle}, s)
			if err := until(t, "the end of Run", w.ran); !errors.Is(err, ErrDenied) {
				t.Errorf("Run: %v, want ErrDenied", err)
			}
		})
	})
	t.Run("later", func(t *testing.T) {
		inVirtualTime(t, func(t *testing.T, n *network) {
			s := n.scheduler("eu")
			h := newStub()
			w := n.works(WorkerConfig{}, map[string]Handler{"k": h.handle}, s)
			l := until(t, "the worker", s.lines)
			l.assign(1, "k")
			until(t, "the handler", h.started)
			l.end <- problem(connect.CodeUnauthenticated, &errandv1.ErrorDetail{Reason: "UNAUTHENTICATED"})
			if cause := until(t, "the stop", h.causes); !errors.Is(cause, ErrLost) {
				t.Errorf("the cause is %v", cause)
			}
			if err := until(t, "the end of Run", w.ran); !errors.Is(err, ErrDenied) {
				t.Errorf("Run: %v, want ErrDenied", err)
			}
		})
	})
	t.Run("not by a proxy", func(t *testing.T) { // an answer without a reason is not a scheduler's
		inVirtualTime(t, func(t *testing.T, n *network) {
			s := n.scheduler("eu", func(s *scripted) { s.refuse = problem(connect.CodeUnauthenticated, nil) })
			w := n.works(WorkerConfig{}, map[string]Handler{"k": newStub().handle}, s)
			for range 3 {
				until(t, "another try", s.lines)
			}
			w.quit()
			if err := until(t, "the end of Run", w.ran); err != nil {
				t.Errorf("Run: %v", err)
			}
		})
	})
}

func TestAWorkerRunsOnce(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, n *network) {
		s := n.scheduler("eu")
		w := n.works(WorkerConfig{}, map[string]Handler{"k": newStub().handle}, s)
		w.leaves(until(t, "the worker", s.lines))
		if err := w.Run(t.Context()); !errors.Is(err, ErrConfig) {
			t.Errorf("a second Run: %v", err)
		}
	})
}

// Middleware is applied from the outside in, to handlers that are added later.
func TestMiddleware(t *testing.T) {
	w, err := NewWorker(WorkerConfig{Config: Config{URLs: []string{"http://eu"}, Key: "k"}})
	if err != nil {
		t.Fatal(err)
	}
	var order []string
	wrap := func(name string) Middleware {
		return func(next Handler) Handler {
			return func(ctx context.Context, a *Attempt) (Result, error) {
				order = append(order, name)
				return next(ctx, a)
			}
		}
	}
	w.Use(wrap("outer"), wrap("inner"))
	Handle(w, "k", 1, func(context.Context, struct{}) (string, error) {
		order = append(order, "handler")
		return "done", nil
	})
	r, err := Try(t.Context(), w.kinds["k"].handler, &Attempt{Payload: []byte("{}")})
	if err != nil || string(r.Data) != `"done"` || strings.Join(order, " ") != "outer inner handler" {
		t.Errorf("%q, %v, in the order %v", r.Data, err, order)
	}
	if _, err := Try(t.Context(), func(_ context.Context, a *Attempt) (Result, error) { panic(a.Number) }, nil); err == nil || err.Error() != "panic: 1" {
		t.Errorf("a panic in Try: %v", err)
	}
	if AttemptOf(t.Context()) != nil {
		t.Error("a context without an attempt has one")
	}
}
