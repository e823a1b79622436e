package api

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"strings"
	"sync"
	"testing"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/durationpb"

	errandv1 "github.com/errandhq/errand/proto/errand/v1"
	"github.com/errandhq/errand/scheduler"
)

// B35: one key is one task, whoever asks how often; another request under it is told so.
func TestIdempotencyKeys(t *testing.T) {
	e := start(t)
	keyed := func(payload string) *errandv1.SubmitTaskRequest {
		return &errandv1.SubmitTaskRequest{Spec: &errandv1.TaskSpec{
			Kind: "email", IdempotencyKey: "order-1", Payload: []byte(payload), Labels: map[string]string{"a": "1", "b": "2"},
		}}
	}
	const callers = 20
	var wait sync.WaitGroup
	answers := make([]*errandv1.SubmitTaskResponse, callers)
	errs := make([]error, callers)
	for i := range callers {
		wait.Go(func() { answers[i], errs[i] = e.tasks(e.acme).SubmitTask(t.Context(), keyed("one")) })
	}
	wait.Wait()
	first := 0
	for i := range callers {
		if errs[i] != nil || answers[i].GetTaskId() != answers[0].GetTaskId() {
			t.Fatalf("caller %d got %v, %v; caller 0 got %v", i, answers[i], errs[i], answers[0])
		}
		if !answers[i].GetExisted() {
			first++
		}
	}
	if got := e.sql(`SELECT count(*)::text FROM tasks`); got != "1" || first != 1 {
		t.Errorf("%s tasks stored by %d callers that were first", got, first)
	}
	id := answers[0].GetTaskId()

	reused := func(when string) {
		t.Helper()
		before := e.get(id)
		_, err := e.tasks(e.acme).SubmitTask(t.Context(), keyed("two"))
		if connect.CodeOf(err) != connect.CodeAlreadyExists || detail(t, err).GetReason() != "KEY_REUSED" {
			t.Errorf("another request %s: %v", when, err)
		}
		if after := e.get(id); after.GetState() != before.GetState() || string(after.GetSpec().GetPayload()) != "one" {
			t.Errorf("another request %s changed the task: %v", when, after)
		}
	}
	reused("while the task waits")
	w := e.worker(e.acme, 1, "email")
	a := w.take()
	reused("while it runs")
	w.finish(succeeded(a, nil))
	e.await(id)
	reused("after its end")
	if again, err := e.tasks(e.acme).SubmitTask(t.Context(), keyed("one")); err != nil || again.GetTaskId() != id || !again.GetExisted() ||
		again.GetState() != errandv1.TaskState_TASK_STATE_SUCCEEDED {
		t.Errorf("the same request after the end: %v, %v", again, err)
	}
	if other, err := e.tasks(e.globex).SubmitTask(t.Context(), keyed("two")); err != nil || other.GetTaskId() == id || other.GetExisted() {
		t.Errorf("the key of another tenant: %v, %v", other, err)
	}
	batch, err := e.tasks(e.acme).SubmitTasks(t.Context(), &errandv1.SubmitTasksRequest{Specs: []*errandv1.TaskSpec{
		keyed("one").GetSpec(), keyed("two").GetSpec(), {Kind: "email"},
	}})
	if err != nil {
		t.Fatal(err)
	}
	got := batch.GetOutcomes()
	if got[0].GetAccepted().GetTaskId() != id || got[1].GetError().GetDetail().GetReason() != "KEY_REUSED" || got[2].GetAccepted() == nil {
		t.Errorf("a batch with the key twice: %v", batch)
	}
	// The payload counts byte by byte: the same JSON in another order is another request.
	if _, err := e.tasks(e.acme).SubmitTask(t.Context(), &errandv1.SubmitTaskRequest{Spec: &errandv1.TaskSpec{
		Kind: "email", IdempotencyKey: "order-1", Payload: []byte("one"), Labels: map[string]string{"b": "2", "a": "1"},
	}}); err != nil {
		t.Errorf("labels have no order: %v", err)
	}
}

// B38: what goes in comes out, byte by byte, at every station.
func TestPayloadsAreOpaque(t *testing.T) {
	e := start(t)
	w := e.worker(e.acme, 1, "email")
	for _, payload := range [][]byte{
		[]byte(`{"id":3889108265204450030,"x":1e400,"y":0.1,"z":9007199254740993, "id":1}`), []byte("\x00\xff\xfe a\x00b"), {}, bytes.Repeat([]byte{0}, 5000),
	} {
		text := base64.StdEncoding.EncodeToString(payload)
		stored := e.post("/errand.v1.TaskService/SubmitTask", e.acme, "application/json",
			[]byte(`{"spec":{"kind":"email","payload":"`+text+`","contentType":"application/json"}}`))
		var answer struct{ TaskID string }
		if err := json.Unmarshal(stored.body, &answer); err != nil {
			t.Fatalf("%v: %s", err, stored)
		}
		a := w.take()
		if !bytes.Equal(a.GetPayload(), payload) {
			t.Errorf("the worker got %q, want %q", a.GetPayload(), payload)
		}
		w.finish(succeeded(a, a.GetPayload()))
		task := e.await(answer.TaskID)
		if !bytes.Equal(task.GetResult(), payload) || !bytes.Equal(task.GetSpec().GetPayload(), payload) {
			t.Errorf("the task has %q and %q, want %q", task.GetSpec().GetPayload(), task.GetResult(), payload)
		}
		listed := e.post("/errand.v1.TaskService/ListTasks", e.acme, "application/json", []byte(`{"pageSize":1,"includePayloads":true}`))
		var page struct {
			Tasks []struct {
				Spec   struct{ Payload []byte }
				Result []byte
			}
		}
		if err := json.Unmarshal(listed.body, &page); err != nil || len(page.Tasks) != 1 {
			t.Fatalf("%v: %s", err, listed.body)
		}
		if got := page.Tasks[0]; !bytes.Equal(got.Spec.Payload, payload) || !bytes.Equal(got.Result, payload) {
			t.Errorf("the list has %q and %q, want %q", got.Spec.Payload, got.Result, payload)
		}
	}
}

// B37: what a worker says is cleaned, never refused: finished work would look unfinished, and run again.
func TestWhatWorkersSayIsCleaned(t *testing.T) {
	e := start(t)
	w := e.worker(e.acme, 1, "email")
	one := int32(1)
	for _, c := range []struct {
		name    string
		end     func(*errandv1.Assignment) *errandv1.Finished
		state   errandv1.TaskState
		reason  string
		message string
	}{
		{"NUL in a message", func(a *errandv1.Assignment) *errandv1.Finished {
			return failed(a, &errandv1.AttemptFailure{Reason: "bro\x00ken", Message: "a\x00b"})
		}, errandv1.TaskState_TASK_STATE_FAILED, "broken", "ab"},
		{"10 MiB of message", func(a *errandv1.Assignment) *errandv1.Finished {
			return failed(a, &errandv1.AttemptFailure{Message: strings.Repeat("ä", 5<<20)})
		}, errandv1.TaskState_TASK_STATE_FAILED, "handler_error", strings.Repeat("ä", scheduler.FailureMessageMax/2)},
		{"too large a result", func(a *errandv1.Assignment) *errandv1.Finished {
			return succeeded(a, make([]byte, scheduler.ResultMax+1))
		}, errandv1.TaskState_TASK_STATE_FAILED, "bad_result", "the result is larger than 256 KiB"},
		{"the largest result", func(a *errandv1.Assignment) *errandv1.Finished {
			return succeeded(a, make([]byte, scheduler.ResultMax))
		}, errandv1.TaskState_TASK_STATE_SUCCEEDED, "", ""},
		{"NUL in a content type", func(a *errandv1.Assignment) *errandv1.Finished {
			f := succeeded(a, []byte("\x00"))
			f.GetSucceeded().ContentType = "text\x00/plain"
			return f
		}, errandv1.TaskState_TASK_STATE_SUCCEEDED, "", ""},
		{"completes later", func(a *errandv1.Assignment) *errandv1.Finished {
			return &errandv1.Finished{Token: a.GetToken(), Outcome: &errandv1.Finished_CompletesLater{CompletesLater: &errandv1.CompletesLater{}}}
		}, errandv1.TaskState_TASK_STATE_FAILED, "not_yet_available", "the handler answered completes_later, which is not available in this release"},
		{"an outcome of a later version", func(a *errandv1.Assignment) *errandv1.Finished {
			return &errandv1.Finished{Token: a.GetToken()}
		}, errandv1.TaskState_TASK_STATE_FAILED, "not_yet_available", "the handler answered an outcome that this scheduler does not know, which is not available in this release"},
	} {
		id := e.submit(&errandv1.TaskSpec{Kind: "email", MaxAttempts: &one}).GetTaskId()
		if ack := w.finish(c.end(w.take())); ack.GetAnswer() != errandv1.AckAnswer_ACK_ANSWER_RECORDED {
			t.Errorf("%s: the ack is %v", c.name, ack)
		}
		task := e.await(id)
		if task.GetState() != c.state || task.GetFailure().GetReason() != c.reason || task.GetFailure().GetMessage() != c.message {
			t.Errorf("%s: the task ended as %v with %.100v", c.name, task.GetState(), task.GetFailure())
		}
		if task.GetAttempt() != 1 {
			t.Errorf("%s: the task ran %d times", c.name, task.GetAttempt())
		}
	}
}

// B41: waits that a worker asks for are taken as the nearest allowed.
func TestWaitsThatWorkersAskFor(t *testing.T) {
	e := start(t)
	w := e.worker(e.acme, 1, "email")
	day := 24 * time.Hour
	for _, d := range []*durationpb.Duration{
		nil, durationpb.New(-time.Hour), durationpb.New(0), durationpb.New(1), durationpb.New(365 * day), {Seconds: maxDuration}, {Seconds: -maxDuration},
	} {
		for _, end := range []func(*errandv1.Assignment) *errandv1.Finished{
			func(a *errandv1.Assignment) *errandv1.Finished {
				return failed(a, &errandv1.AttemptFailure{RetryAfter: d})
			},
			func(a *errandv1.Assignment) *errandv1.Finished {
				return &errandv1.Finished{Token: a.GetToken(), Outcome: &errandv1.Finished_Snoozed{Snoozed: &errandv1.Snoozed{Delay: d}}}
			},
			func(a *errandv1.Assignment) *errandv1.Finished { return pushedBack(a, "api", d) },
		} {
			id := e.submit(&errandv1.TaskSpec{Kind: "email"}).GetTaskId()
			a := w.take()
			if ack := w.finish(end(a)); ack.GetAnswer() != errandv1.AckAnswer_ACK_ANSWER_RECORDED {
				t.Errorf("%v: the ack is %v", d, ack)
			}
			task := e.get(id)
			if wake := task.GetWakeAt(); d.AsDuration() > time.Hour && time.Until(wake.AsTime()) < 364*day {
				t.Errorf("%v: the task is %v, wakes at %v", d, task.GetState(), wake.AsTime())
			}
			if _, err := e.tasks(e.acme).CancelTask(t.Context(), &errandv1.CancelTaskRequest{TaskId: id}); err != nil {
				t.Error(err)
			}
			for more := true; more; { // one that was tried again at once
				select {
				case again := <-w.assigned:
					w.finish(succeeded(again, nil))
				default:
					more = false
				}
			}
		}
	}
}

// B39: many large tasks for one worker come in messages that everybody can read.
func TestLargeTasksAreCutIntoMessages(t *testing.T) {
	e := start(t)
	w := e.workerWith(e.acme, 1, []string{"email"}, connect.WithReadMaxBytes(4<<20))
	const tasks, each, size = 40, 20, 200 << 10
	want := map[string]bool{}
	for range tasks / each {
		req := &errandv1.SubmitTasksRequest{}
		for range each {
			req.Specs = append(req.Specs, &errandv1.TaskSpec{Kind: "email", Payload: make([]byte, size)})
		}
		resp, err := e.tasks(e.acme).SubmitTasks(t.Context(), req)
		if err != nil {
			t.Fatal(err)
		}
		for _, o := range resp.GetOutcomes() {
			want[o.GetAccepted().GetTaskId()] = true
		}
	}
	taken := make([]*errandv1.Assignment, tasks)
	for i := range taken { // all are accepted before the first is ended: an assignment may not stay unanswered for 5 s
		taken[i] = w.take()
		if len(taken[i].GetPayload()) != size {
			t.Fatalf("a payload of %d bytes", len(taken[i].GetPayload()))
		}
	}
	for _, a := range taken {
		w.finish(succeeded(a, nil))
	}
	for id := range want {
		e.await(id)
	}
	// A page of them is bounded too, and the pages together are whole.
	req := &errandv1.ListTasksRequest{PageSize: 500, IncludePayloads: true}
	client := e.tasks(e.acme, connect.WithReadMaxBytes(4<<20))
	for pages := 0; ; pages++ {
		resp, err := client.ListTasks(t.Context(), req)
		if err != nil {
			t.Fatal(err)
		}
		for _, task := range resp.GetTasks() {
			if !want[task.GetTaskId()] {
				t.Fatalf("%s is listed twice, or not ours", task.GetTaskId())
			}
			delete(want, task.GetTaskId())
		}
		if req.PageToken = resp.GetNextPageToken(); req.PageToken == "" {
			break
		}
	}
	if len(want) > 0 {
		t.Errorf("%d tasks are not listed", len(want))
	}
}
