package errand

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/durationpb"

	errandv1 "github.com/errandhq/errand/proto/errand/v1"
	"github.com/errandhq/errand/proto/errand/v1/errandv1connect"
)

// desk is a scheduler's TaskService as a test wants it. Calls are listed in calls.
type desk struct {
	errandv1connect.UnimplementedTaskServiceHandler
	url    string
	calls  chan string
	keys   chan string // of the Authorization header
	submit func(*errandv1.SubmitTaskRequest) (*errandv1.SubmitTaskResponse, error)
	many   func(*errandv1.SubmitTasksRequest) (*errandv1.SubmitTasksResponse, error)
	get    func(context.Context, *errandv1.GetTaskRequest) (*errandv1.GetTaskResponse, error)
	wait   func(context.Context, *errandv1.WaitTaskRequest) (*errandv1.WaitTaskResponse, error)
	list   func(*errandv1.ListTasksRequest) (*errandv1.ListTasksResponse, error)
	cancel func(*errandv1.CancelTaskRequest) (*errandv1.CancelTaskResponse, error)
}

func (n *network) desk(name string) *desk {
	d := &desk{calls: make(chan string, 1000), keys: make(chan string, 1000)}
	mux := http.NewServeMux()
	path, handler := errandv1connect.NewTaskServiceHandler(d)
	mux.Handle(path, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		d.keys <- r.Header.Get("Authorization")
		handler.ServeHTTP(w, r)
	}))
	d.url = n.serve(name, mux)
	return d
}

func (d *desk) SubmitTask(_ context.Context, r *errandv1.SubmitTaskRequest) (*errandv1.SubmitTaskResponse, error) {
	d.calls <- "submit"
	return d.submit(r)
}

func (d *desk) SubmitTasks(_ context.Context, r *errandv1.SubmitTasksRequest) (*errandv1.SubmitTasksResponse, error) {
	d.calls <- "many"
	return d.many(r)
}

func (d *desk) GetTask(ctx context.Context, r *errandv1.GetTaskRequest) (*errandv1.GetTaskResponse, error) {
	d.calls <- "get"
	return d.get(ctx, r)
}

func (d *desk) WaitTask(ctx context.Context, r *errandv1.WaitTaskRequest) (*errandv1.WaitTaskResponse, error) {
	d.calls <- "wait"
	return d.wait(ctx, r)
}

func (d *desk) ListTasks(_ context.Context, r *errandv1.ListTasksRequest) (*errandv1.ListTasksResponse, error) {
	d.calls <- "list"
	return d.list(r)
}

func (d *desk) CancelTask(_ context.Context, r *errandv1.CancelTaskRequest) (*errandv1.CancelTaskResponse, error) {
	d.calls <- "cancel"
	return d.cancel(r)
}

func (n *network) calls(urls ...string) *Client {
	n.t.Helper()
	c, err := NewClient(Config{URLs: urls, Key: "errand_test", HTTPClient: n.client()})
	if err != nil {
		n.t.Fatal(err)
	}
	return c
}

func accepted(id string) *errandv1.SubmitTaskResponse {
	return &errandv1.SubmitTaskResponse{TaskId: id, State: errandv1.TaskState_TASK_STATE_READY}
}

// failing answers with errors in turn, and then with a task.
func failing(errs ...error) func(*errandv1.SubmitTaskRequest) (*errandv1.SubmitTaskResponse, error) {
	return func(*errandv1.SubmitTaskRequest) (*errandv1.SubmitTaskResponse, error) {
		if len(errs) == 0 {
			return accepted("eu.1"), nil
		}
		err := errs[0]
		errs = errs[1:]
		return nil, err
	}
}

func reason(code connect.Code, word string) error {
	return problem(code, &errandv1.ErrorDetail{Reason: word, Field: "spec.kind", TaskId: "eu.9", RetryAfter: durationpb.New(time.Second)})
}

// A call is sent again only when that is safe: always when nothing was stored, with an idempotency key when that is not known.
func TestWhatIsSentAgain(t *testing.T) {
	tests := map[string]struct {
		err          error
		plain, keyed bool // sent again without and with a key
		is           error
	}{
		"busy":              {reason(connect.CodeUnavailable, "BUSY"), true, true, ErrUnavailable},
		"stopping":          {reason(connect.CodeUnavailable, "STOPPING"), true, true, ErrUnavailable},
		"store away":        {reason(connect.CodeUnavailable, "STORE_UNAVAILABLE"), true, true, ErrUnavailable},
		"unknown outcome":   {reason(connect.CodeUnknown, "OUTCOME_UNKNOWN"), false, true, ErrOutcomeUnknown},
		"out of time":       {reason(connect.CodeDeadlineExceeded, "DEADLINE_EXCEEDED"), false, true, ErrOutcomeUnknown},
		"a proxy's 503":     {problem(connect.CodeUnavailable, nil), false, true, ErrOutcomeUnknown},
		"a proxy's 500":     {problem(connect.CodeUnknown, nil), false, true, ErrOutcomeUnknown},
		"not well-formed":   {reason(connect.CodeInvalidArgument, "INVALID_FIELD"), false, false, ErrInvalid},
		"no such key":       {reason(connect.CodeUnauthenticated, "UNAUTHENTICATED"), false, false, ErrDenied},
		"not allowed":       {reason(connect.CodePermissionDenied, "FORBIDDEN"), false, false, ErrDenied},
		"another's key":     {reason(connect.CodeAlreadyExists, "KEY_REUSED"), false, false, ErrKeyReused},
		"over the rate":     {reason(connect.CodeResourceExhausted, "OVER_RATE"), false, false, ErrOverLimit},
		"over urgent rate":  {reason(connect.CodeResourceExhausted, "OVER_URGENT_RATE"), false, false, ErrOverLimit},
		"too much is open":  {reason(connect.CodeResourceExhausted, "TOO_MANY_OPEN"), false, false, ErrOverLimit},
		"another too many":  {reason(connect.CodeResourceExhausted, "TOO_MANY_FAILED_LOGINS"), false, false, nil},
		"not found":         {reason(connect.CodeNotFound, "TASK_NOT_FOUND"), false, false, ErrNotFound},
		"not yet":           {reason(connect.CodeUnimplemented, "NOT_YET_AVAILABLE"), false, false, nil},
		"a scheduler's bug": {reason(connect.CodeInternal, "INTERNAL"), false, false, nil},
	}
	sentinels := []error{ErrNotFound, ErrKeyReused, ErrOutcomeUnknown, ErrUnavailable, ErrInvalid, ErrDenied, ErrOverLimit}
	for name, tt := range tests {
		for key, again := range map[string]bool{"": tt.plain, "key": tt.keyed} {
			t.Run(name+" "+key, func(t *testing.T) {
				inVirtualTime(t, func(t *testing.T, n *network) {
					d := n.desk("eu")
					d.submit = failing(tt.err)
					got, err := n.calls(d.url).Submit(t.Context(), Spec{Kind: "k", IdempotencyKey: key})
					if again {
						if err != nil || got.ID != "eu.1" || got.State != Ready || len(d.calls) != 2 {
							t.Errorf("%+v, %v after %d calls", got, err, len(d.calls))
						}
						return
					}
					var e *Error
					if !errors.As(err, &e) || len(d.calls) != 1 {
						t.Fatalf("%v after %d calls", err, len(d.calls))
					}
					for _, s := range sentinels {
						if errors.Is(err, s) != errors.Is(tt.is, s) {
							t.Errorf("%v is %v: %v", err, s, errors.Is(err, s))
						}
					}
					var sent *connect.Error
					if errors.As(tt.err, &sent); len(sent.Details()) > 0 && (e.Field != "spec.kind" || e.TaskID != "eu.9" || e.RetryAfter != time.Second || e.Reason == "") {
						t.Errorf("the details are %+v", e)
					}
				})
			})
		}
	}
}

// A connection that breaks under a call leaves its outcome open; one that did not come about does not.
func TestDeadConnections(t *testing.T) {
	for key, again := range map[string]bool{"": false, "key": true} {
		t.Run("cut "+key, func(t *testing.T) {
			inVirtualTime(t, func(t *testing.T, n *network) {
				d := n.desk("eu")
				cuts := 1
				d.submit = func(*errandv1.SubmitTaskRequest) (*errandv1.SubmitTaskResponse, error) {
					if cuts--; cuts >= 0 {
						n.cut()
					}
					return accepted("eu.1"), nil
				}
				got, err := n.calls(d.url).Submit(t.Context(), Spec{Kind: "k", IdempotencyKey: key})
				if again && (err != nil || got.ID != "eu.1") {
					t.Errorf("%+v, %v", got, err)
				}
				if !again && (!errors.Is(err, ErrOutcomeUnknown) || len(d.calls) != 1) {
					t.Errorf("%v after %d calls", err, len(d.calls))
				}
			})
		})
		t.Run("nobody there "+key, func(t *testing.T) {
			inVirtualTime(t, func(t *testing.T, n *network) {
				_, err := n.calls("http://gone").Submit(t.Context(), Spec{Kind: "k", IdempotencyKey: key})
				if !errors.Is(err, ErrUnavailable) || errors.Is(err, ErrOutcomeUnknown) {
					t.Errorf("%v, want ErrUnavailable: nothing was sent", err)
				}
				if dials := n.host("gone:80").dials.Load(); dials != callTriesMax {
					t.Errorf("%d tries", dials)
				}
			})
		})
		t.Run("silence "+key, func(t *testing.T) {
			inVirtualTime(t, func(t *testing.T, n *network) {
				first, second := n.desk("first"), n.desk("second")
				second.submit = failing()
				quiet := make(chan struct{})
				t.Cleanup(func() { close(quiet) })
				first.submit = func(*errandv1.SubmitTaskRequest) (*errandv1.SubmitTaskResponse, error) {
					<-quiet
					return nil, nil
				}
				began := time.Now()
				got, err := n.calls(first.url, second.url).Submit(t.Context(), Spec{Kind: "k", IdempotencyKey: key})
				if took := time.Since(began); took > callTimeLimit+time.Second {
					t.Errorf("it took %v", took)
				}
				if again != (err == nil && got.ID == "eu.1") || (!again && !errors.Is(err, ErrOutcomeUnknown)) {
					t.Errorf("%+v, %v", got, err)
				}
			})
		})
	}
}

// A scheduler that is not there is passed over, and not asked again while another one answers.
func TestFailover(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, n *network) {
		d := n.desk("second")
		d.submit = failing(reason(connect.CodeUnavailable, "STOPPING"))
		c := n.calls("http://first", d.url)
		for range 10 {
			if _, err := c.Submit(t.Context(), Spec{Kind: "k"}); err != nil {
				t.Fatal(err)
			}
		}
		if dials := n.host("first:80").dials.Load(); dials != 2 { // before the first answer, and after the second one's STOPPING
			t.Errorf("the dead one was asked %d times", dials)
		}
		if key := <-d.keys; key != "Bearer errand_test" {
			t.Errorf("the key was sent as %q", key)
		}
	})
}

// The scheduler's pause is kept once all of them have been asked.
func TestBusySchedulersGetTime(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, n *network) {
		d := n.desk("eu")
		busy := slices.Repeat([]error{reason(connect.CodeUnavailable, "BUSY")}, callTriesMax)
		d.submit = failing(busy...)
		began := time.Now()
		_, err := n.calls(d.url).Submit(t.Context(), Spec{Kind: "k"})
		if took := time.Since(began); !errors.Is(err, ErrUnavailable) || took < (callTriesMax-1)*time.Second || len(d.calls) != callTriesMax {
			t.Errorf("%v after %v and %d calls", err, took, len(d.calls))
		}
	})
}

func TestEndedContexts(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, n *network) {
		d := n.desk("eu")
		d.submit = failing(slices.Repeat([]error{reason(connect.CodeUnavailable, "BUSY")}, 2*callTriesMax)...)
		d.get = func(ctx context.Context, _ *errandv1.GetTaskRequest) (*errandv1.GetTaskResponse, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		}
		c := n.calls(d.url)
		ctx, stop := context.WithTimeout(t.Context(), 1500*time.Millisecond)
		defer stop()
		began := time.Now()
		_, err := c.Submit(ctx, Spec{Kind: "k"})
		if !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, ErrUnavailable) || time.Since(began) > 1500*time.Millisecond {
			t.Errorf("between tries: %v after %v", err, time.Since(began))
		}
		ctx, stop = context.WithCancel(t.Context())
		time.AfterFunc(time.Second, stop)
		if _, err := c.Get(ctx, "eu.1"); !errors.Is(err, context.Canceled) {
			t.Errorf("in a try: %v", err)
		}
		calls := len(d.calls)
		if _, err := c.Submit(ctx, Spec{Kind: "k"}); !errors.Is(err, context.Canceled) {
			t.Errorf("before the first: %v", err)
		}
		if len(d.calls) != calls {
			t.Error("a call with an ended context was sent")
		}
	})
}

func TestWait(t *testing.T) {
	task := func(state errandv1.TaskState) *errandv1.WaitTaskResponse {
		return &errandv1.WaitTaskResponse{Task: &errandv1.Task{TaskId: "eu.1", State: state, Result: []byte("r")}, Ended: state >= errandv1.TaskState_TASK_STATE_SUCCEEDED}
	}
	inVirtualTime(t, func(t *testing.T, n *network) {
		d := n.desk("eu")
		var polls atomic.Int64
		d.wait = func(ctx context.Context, r *errandv1.WaitTaskRequest) (*errandv1.WaitTaskResponse, error) {
			poll := polls.Add(1)
			if poll == 4 {
				return task(errandv1.TaskState_TASK_STATE_SUCCEEDED), nil
			}
			if poll == 2 {
				return nil, reason(connect.CodeUnavailable, "STOPPING")
			}
			select {
			case <-time.After(r.GetTimeout().AsDuration()):
				return task(errandv1.TaskState_TASK_STATE_RUNNING), nil
			case <-ctx.Done():
				return nil, ctx.Err()
			}
		}
		c := n.calls(d.url)
		if got, err := c.Wait(t.Context(), "eu.1"); err != nil || got.State != Succeeded || string(got.Result) != "r" || polls.Load() != 4 {
			t.Errorf("%+v, %v after %d polls", got, err, polls.Load())
		}
		polls.Store(10)
		ctx, stop := context.WithTimeout(t.Context(), 2*time.Minute)
		defer stop()
		began := time.Now()
		got, err := c.Wait(ctx, "eu.1")
		if !errors.Is(err, context.DeadlineExceeded) || got.State != Running || time.Since(began) > 2*time.Minute {
			t.Errorf("%+v, %v after %v", got, err, time.Since(began))
		}
		if polls.Load() > 110 { // four long ones, and ever shorter ones towards the deadline
			t.Errorf("%d polls", polls.Load()-10)
		}
	})
}

func TestList(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, n *network) {
		d := n.desk("eu")
		var requests []*errandv1.ListTasksRequest
		d.list = func(r *errandv1.ListTasksRequest) (*errandv1.ListTasksResponse, error) {
			requests = append(requests, r)
			page := len(r.GetPageToken())
			if page == 3 {
				return nil, reason(connect.CodeInvalidArgument, "INVALID_FIELD")
			}
			m := &errandv1.ListTasksResponse{NextPageToken: r.GetPageToken() + "x"}
			for i := range 2 {
				m.Tasks = append(m.Tasks, &errandv1.Task{TaskId: fmt.Sprint(page*2 + i)})
			}
			return m, nil
		}
		c := n.calls(d.url)
		all := c.List(t.Context(), Filter{States: []State{Failed}, Kinds: []string{"k"}, Labels: map[string]string{"a": "b"}, CreatedAfter: time.Unix(1, 0)})
		for range 2 { // it can be walked again
			requests = nil
			var ids []string
			var last error
			for task, err := range all {
				ids, last = append(ids, task.ID), err
			}
			if strings.Join(ids, "") != "012345" || !errors.Is(last, ErrInvalid) || len(requests) != 4 {
				t.Errorf("%v, %v in %d pages", ids, last, len(requests))
			}
		}
		f := requests[0].GetFilter()
		if f.GetStates()[0] != errandv1.TaskState_TASK_STATE_FAILED || f.GetKinds()[0] != "k" || f.GetLabels()["a"] != "b" || f.GetCreatedAfter().GetSeconds() != 1 || f.GetCreatedBefore() != nil {
			t.Errorf("the filter is %v", f)
		}
		requests = nil
		for range all {
			break
		}
		if len(requests) != 1 {
			t.Errorf("%d pages for the first task", len(requests))
		}
	})
}

func TestSubmitMany(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, n *network) {
		d := n.desk("eu")
		fail := []error{reason(connect.CodeUnknown, "OUTCOME_UNKNOWN")}
		d.many = func(r *errandv1.SubmitTasksRequest) (*errandv1.SubmitTasksResponse, error) {
			if len(fail) > 0 {
				err := fail[0]
				fail = fail[1:]
				return nil, err
			}
			m := &errandv1.SubmitTasksResponse{}
			for i, spec := range r.GetSpecs() {
				o := &errandv1.SubmitOutcome{Outcome: &errandv1.SubmitOutcome_Accepted{Accepted: accepted(fmt.Sprint("eu.", i))}}
				if spec.GetKind() == "bad" {
					o.Outcome = &errandv1.SubmitOutcome_Error{Error: &errandv1.SubmitError{
						Code: "already_exists", Message: "no", Detail: &errandv1.ErrorDetail{Reason: "KEY_REUSED", TaskId: "eu.7"},
					}}
				}
				m.Outcomes = append(m.Outcomes, o)
			}
			return m, nil
		}
		c := n.calls(d.url)
		specs := []Spec{{Kind: "a", IdempotencyKey: "1"}, {Kind: "bad", IdempotencyKey: "2"}, {Kind: "c", IdempotencyKey: "3"}}
		got, err := c.SubmitMany(t.Context(), specs)
		if err != nil || len(got) != 3 || got[0].ID != "eu.0" || got[0].Err != nil || got[2].ID != "eu.2" {
			t.Errorf("%+v, %v", got, err)
		}
		var e *Error
		if !errors.As(got[1].Err, &e) || !errors.Is(e, ErrKeyReused) || e.TaskID != "eu.7" {
			t.Errorf("the second is %v", got[1].Err)
		}
		fail = []error{reason(connect.CodeUnknown, "OUTCOME_UNKNOWN")}
		specs[2].IdempotencyKey = ""
		if _, err := c.SubmitMany(t.Context(), specs); !errors.Is(err, ErrOutcomeUnknown) {
			t.Errorf("one without a key: %v", err)
		}
		d.many = func(*errandv1.SubmitTasksRequest) (*errandv1.SubmitTasksResponse, error) {
			return &errandv1.SubmitTasksResponse{}, nil
		}
		if got, err := c.SubmitMany(t.Context(), specs); err == nil {
			t.Errorf("too few outcomes: %v", got)
		}
	})
}

func TestCancelAndGet(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, n *network) {
		d := n.desk("eu")
		d.cancel = func(r *errandv1.CancelTaskRequest) (*errandv1.CancelTaskResponse, error) {
			return &errandv1.CancelTaskResponse{State: errandv1.TaskState_TASK_STATE_RUNNING, Accepted: r.GetReason() == "why"}, nil
		}
		d.get = func(_ context.Context, r *errandv1.GetTaskRequest) (*errandv1.GetTaskResponse, error) {
			return &errandv1.GetTaskResponse{Task: &errandv1.Task{TaskId: r.GetTaskId(), State: errandv1.TaskState_TASK_STATE_READY}}, nil
		}
		c := n.calls(d.url)
		if a, err := c.Cancel(t.Context(), "eu.1", "why"); err != nil || a.State != Running || !a.Accepted {
			t.Errorf("%+v, %v", a, err)
		}
		if task, err := c.Get(t.Context(), "eu.1"); err != nil || task.ID != "eu.1" || task.State.Ended() || !task.EndedAt.IsZero() {
			t.Errorf("%+v, %v", task, err)
		}
		synctest.Wait()
	})
}

// Every field of a spec is said, and what cannot be said is refused before it is sent.
func TestSpecs(t *testing.T) {
	at := time.Unix(1000, 0)
	m := (&Spec{
		Kind: "k", Payload: []byte("p"), ContentType: "c", Labels: map[string]string{"a": "b"}, Tier: Urgent, DelayTolerance: time.Second, RunAt: at,
		StartBy: at, AttemptTimeout: time.Minute, MaxAttempts: 3, MaxWorkerLosses: 4,
		Retry: Retry{Initial: time.Second, Max: time.Minute, Multiplier: 3, NonRetryable: []string{"x"}}, IdempotencyKey: "i", Exclusive: true,
	}).message()
	if m.GetKind() != "k" || string(m.GetPayload()) != "p" || m.GetTier() != errandv1.Tier_TIER_URGENT || m.GetRunAt().GetSeconds() != 1000 ||
		m.GetStartBy().GetSeconds() != 1000 || m.GetMaxAttempts() != 3 || m.GetMaxWorkerLosses() != 4 || m.GetRetryPolicy().GetMultiplier() != 3 ||
		m.GetRetryPolicy().GetMaxBackoff().GetSeconds() != 60 || !m.GetExclusive() || m.GetIdempotencyKey() != "i" {
		t.Errorf("the spec is %v", m)
	}
	m = (&Spec{Kind: "k", Delay: time.Second, StartWithin: time.Minute}).message()
	if m.GetDelay().GetSeconds() != 1 || m.GetStartWithin().GetSeconds() != 60 || m.MaxAttempts != nil || m.RetryPolicy != nil || m.DelayTolerance != nil {
		t.Errorf("the spec is %v", m)
	}
	inVirtualTime(t, func(t *testing.T, n *network) {
		c := n.calls("http://gone")
		for field, spec := range map[string]Spec{
			"run_at":   {Kind: "k", RunAt: at, Delay: time.Second},
			"start_by": {Kind: "k", StartBy: at, StartWithin: time.Second},
		} {
			var e *Error
			if _, err := c.Submit(t.Context(), spec); !errors.As(err, &e) || !errors.Is(err, ErrInvalid) || e.Field != "spec."+field {
				t.Errorf("%s: %v", field, err)
			}
			if _, err := c.SubmitMany(t.Context(), []Spec{{Kind: "k"}, spec}); !errors.As(err, &e) || e.Field != "specs[1]."+field {
				t.Errorf("%s: %v", field, err)
			}
		}
	})
	if State(99).String() != "unknown" || Expired.String() != "expired" || Scheduled.Ended() || !Succeeded.Ended() {
		t.Error("states have the wrong words")
	}
	for s := Scheduled; s <= Expired; s++ {
		if want := "TASK_STATE_" + strings.ToUpper(s.String()); errandv1.TaskState(s).String() != want {
			t.Errorf("%v is %v in the protocol", s, errandv1.TaskState(s))
		}
	}
}
