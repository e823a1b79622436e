package api

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"connectrpc.com/connect"

	errandv1 "github.com/errandhq/errand/proto/errand/v1"
	"github.com/errandhq/errand/scheduler"
)

// follower collects what a watch tells, until the test ends or the watch does.
type follower struct {
	told  chan *errandv1.Task
	ended chan error
	stop  context.CancelFunc
}

func (e *edge) watch(key string, req *errandv1.WatchTasksRequest) *follower {
	e.t.Helper()
	ctx, stop := context.WithCancel(context.Background())
	stream, err := e.tasks(key).WatchTasks(ctx, req)
	if err != nil {
		e.t.Fatal(err)
	}
	w := &follower{told: make(chan *errandv1.Task, inboxMax), ended: make(chan error, 1), stop: stop}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for stream.Receive() {
			if m := stream.Msg().GetTask(); m != nil {
				w.told <- m
			}
		}
		w.ended <- stream.Err()
	}()
	e.t.Cleanup(func() { stop(); <-done })
	return w
}

// until waits for a task in a state.
func (w *follower) until(t *testing.T, id string, state errandv1.TaskState) *errandv1.Task {
	t.Helper()
	for {
		got := receive(t, fmt.Sprintf("%s as %v", id, state), w.told)
		if got.GetTaskId() == id && got.GetState() == state {
			return got
		}
	}
}

func TestWatchNamed(t *testing.T) {
	e := start(t)
	first, second := e.submit(&errandv1.TaskSpec{Kind: "email", Payload: []byte("p")}).GetTaskId(), e.submit(&errandv1.TaskSpec{Kind: "email"}).GetTaskId()
	w := e.watch(e.acme, &errandv1.WatchTasksRequest{TaskIds: []string{first, second}, IncludeCurrent: true})
	w.until(t, first, errandv1.TaskState_TASK_STATE_READY)
	w.until(t, second, errandv1.TaskState_TASK_STATE_READY)
	worker := e.worker(e.acme, 1, "email")
	a, b := worker.take(), worker.take()
	w.until(t, second, errandv1.TaskState_TASK_STATE_RUNNING)
	worker.finish(succeeded(a, []byte("r")))
	worker.finish(succeeded(b, nil))
	if got := w.until(t, first, errandv1.TaskState_TASK_STATE_SUCCEEDED); got.GetSpec().GetPayload() != nil || got.GetResult() != nil {
		t.Errorf("payload and result are told: %v", got)
	}
	if err := receive(t, "the end, with the last of them", w.ended); err != nil {
		t.Error(err)
	}
	// Of one that has ended nothing else comes: it is told, and that is all.
	w = e.watch(e.acme, &errandv1.WatchTasksRequest{TaskIds: []string{first}})
	w.until(t, first, errandv1.TaskState_TASK_STATE_SUCCEEDED)
	if err := receive(t, "the end", w.ended); err != nil {
		t.Error(err)
	}
	for name, id := range map[string]string{"another tenant's": e.submitAs(e.globex), "none": scheduler.Ref{Region: region, ID: scheduler.ID{1}}.String()} {
		w := e.watch(e.acme, &errandv1.WatchTasksRequest{TaskIds: []string{id}})
		if err := receive(t, "the refusal", w.ended); connect.CodeOf(err) != connect.CodeNotFound {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestWatchAll(t *testing.T) {
	e := start(t)
	old := e.submit(&errandv1.TaskSpec{Kind: "email", Labels: map[string]string{"a": "b"}}).GetTaskId()
	e.submit(&errandv1.TaskSpec{Kind: "sms", Labels: map[string]string{"a": "b"}})
	e.submit(&errandv1.TaskSpec{Kind: "email"})
	filter := &errandv1.TaskFilter{Kinds: []string{"email"}, Labels: map[string]string{"a": "b"}}
	w := e.watch(e.acme, &errandv1.WatchTasksRequest{Filter: filter, IncludeCurrent: true})
	ends := e.watch(e.acme, &errandv1.WatchTasksRequest{Filter: &errandv1.TaskFilter{States: []errandv1.TaskState{errandv1.TaskState_TASK_STATE_CANCELED}}})
	if got := receive(t, "what is open", w.told); got.GetTaskId() != old {
		t.Errorf("told %v", got)
	}
	fresh := e.submit(&errandv1.TaskSpec{Kind: "email", Labels: map[string]string{"a": "b"}}).GetTaskId()
	if got := receive(t, "a new one", w.told); got.GetTaskId() != fresh || got.GetState() != errandv1.TaskState_TASK_STATE_READY {
		t.Errorf("told %v", got)
	}
	if _, err := e.tasks(e.acme).CancelTask(t.Context(), &errandv1.CancelTaskRequest{TaskId: old}); err != nil {
		t.Fatal(err)
	}
	if got := receive(t, "the cancel", w.told); got.GetTaskId() != old || got.GetState() != errandv1.TaskState_TASK_STATE_CANCELED {
		t.Errorf("told %v", got)
	}
	if got := receive(t, "the cancel, and nothing else", ends.told); got.GetTaskId() != old {
		t.Errorf("told %v", got)
	}
	w.stop()
	if err := receive(t, "the end", w.ended); !errors.Is(err, context.Canceled) && connect.CodeOf(err) != connect.CodeCanceled {
		t.Error(err)
	}
}

// A stream's refusal comes in its end: the rules hold for it as for every call.
func TestBadWatches(t *testing.T) {
	e := start(t)
	for name, c := range map[string]struct {
		req   *errandv1.WatchTasksRequest
		field string
	}{
		"not a handle":   {&errandv1.WatchTasksRequest{TaskIds: []string{"x"}}, "task_id"},
		"an empty one":   {&errandv1.WatchTasksRequest{TaskIds: []string{""}}, "task_ids[0]"},
		"too many":       {&errandv1.WatchTasksRequest{TaskIds: make([]string, 1001)}, "task_ids"},
		"a NUL":          {&errandv1.WatchTasksRequest{Filter: &errandv1.TaskFilter{Kinds: []string{"a\x00"}}}, "filter.kinds[0]"},
		"no such state":  {&errandv1.WatchTasksRequest{Filter: &errandv1.TaskFilter{States: []errandv1.TaskState{99}}}, "filter.states[0]"},
		"state unstated": {&errandv1.WatchTasksRequest{Filter: &errandv1.TaskFilter{States: []errandv1.TaskState{0}}}, "filter.states[0]"},
	} {
		w := e.watch(e.acme, c.req)
		err := receive(t, "the refusal", w.ended)
		if d := detail(t, err); connect.CodeOf(err) != connect.CodeInvalidArgument || d.GetField() != c.field {
			t.Errorf("%s: %v, %v; want %s", name, err, d, c.field)
		}
	}
}
