package api

import (
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	errandv1 "github.com/errandhq/errand/proto/errand/v1"
	"github.com/errandhq/errand/scheduler"
)

func pushedBack(a *errandv1.Assignment, limit string, after *durationpb.Duration) *errandv1.Finished {
	return &errandv1.Finished{Token: a.GetToken(), Outcome: &errandv1.Finished_Backpressure{
		Backpressure: &errandv1.Backpressure{Limit: limit, RetryAfter: after},
	}}
}

// A worker is told which limits its task carries. Backpressure of one of them that is set puts the task back where it was, at once or
// after the time that was asked for; it never counts.
func TestBackpressure(t *testing.T) {
	e := start(t)
	w := e.worker(e.acme, 1, "email")
	_, err := e.operator().PutLimit(t.Context(), &errandv1.PutLimitRequest{Limit: &errandv1.NamedLimit{Tenant: "acme", Name: "api"}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := e.operator().PauseKind(t.Context(), &errandv1.PauseKindRequest{Tenant: "acme", Name: "last"}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "what is set to be known", func() bool { // limits are read after kinds
		_, known := e.shell.Catalog().Kind("acme", "last")
		return known
	})
	one := int32(1)
	id := e.submit(&errandv1.TaskSpec{Kind: "email", MaxAttempts: &one, Limits: []*errandv1.Limit{{Name: "api", Key: "k"}}}).GetTaskId()
	due := e.get(id).GetDue().AsTime()
	for range 2 {
		a := w.take()
		if limits := a.GetLimits(); len(limits) != 1 || limits[0].GetName() != "api" || limits[0].GetKey() != "k" {
			t.Fatalf("the worker is told of the limits %v", limits)
		}
		if ack := w.finish(pushedBack(a, "api", nil)); ack.GetAnswer() != errandv1.AckAnswer_ACK_ANSWER_RECORDED {
			t.Fatalf("the ack is %v", ack)
		}
	}
	w.finish(pushedBack(w.take(), "api", durationpb.New(time.Hour)))
	task := e.get(id)
	if wait := time.Until(task.GetWakeAt().AsTime()); task.GetState() != errandv1.TaskState_TASK_STATE_SCHEDULED || wait < 59*time.Minute || wait > time.Hour {
		t.Errorf("%v for %v", task.GetState(), wait)
	}
	if !task.GetDue().AsTime().Equal(due) || task.GetCountedAttempts() != 0 || task.GetAttempt() != 3 {
		t.Errorf("due %v in place of %v, %d of %d attempts count", task.GetDue().AsTime(), due, task.GetCountedAttempts(), task.GetAttempt())
	}
	if f := task.GetFailure(); f.GetReason() != "backpressure" || f.GetMessage() != "limit api" {
		t.Errorf("the failure is %v", f)
	}
}

// B37: a name that limits nothing, or is none, is cleaned and never refused: the task waits as after a failure, and nothing counts.
func TestBackpressureOfWhatIsNoLimit(t *testing.T) {
	e := start(t)
	w := e.worker(e.acme, 1, "email")
	one := int32(1)
	for name, want := range map[string]string{
		"": "limit ", "never_put": "limit never_put", "a\x00b": "limit ab", strings.Repeat("x", 5<<20): "limit " + strings.Repeat("x", scheduler.LimitNameMax),
	} {
		id := e.submit(&errandv1.TaskSpec{
			Kind: "email", MaxAttempts: &one, RetryPolicy: &errandv1.RetryPolicy{InitialBackoff: durationpb.New(time.Hour)},
		}).GetTaskId()
		if ack := w.finish(pushedBack(w.take(), name, durationpb.New(-time.Hour))); ack.GetAnswer() != errandv1.AckAnswer_ACK_ANSWER_RECORDED {
			t.Errorf("%.20q: the ack is %v", name, ack)
		}
		task := e.get(id)
		if task.GetState() != errandv1.TaskState_TASK_STATE_SCHEDULED || task.GetCountedAttempts() != 0 || task.GetFailure().GetMessage() != want {
			t.Errorf("%.20q: %v, %d attempts count, %v", name, task.GetState(), task.GetCountedAttempts(), task.GetFailure())
		}
	}
}

// A worker that has only HTTP/1.1 and JSON reads the limits of what it gets, and answers backpressure as any other does.
func TestBackpressureInPlainJSON(t *testing.T) {
	e := start(t)
	id := e.submit(&errandv1.TaskSpec{Kind: "email", Limits: []*errandv1.Limit{{Name: "api", Key: "k"}}}).GetTaskId()
	w := e.plain(e.acme, 1, 1)
	got, err := w.poll(t.Context(), "10s", 1)
	if err != nil || len(list(got, "assign")) != 1 {
		t.Fatalf("%v, %v", got, err)
	}
	a := list(got, "assign")[0]
	limits := list(a, "limits")
	if len(limits) != 1 || limits[0]["name"] != "api" || limits[0]["key"] != "k" {
		t.Fatalf("the limits are %v", limits)
	}
	got, err = w.call(t.Context(), "Report", map[string]any{"workerInstance": w.instance, "finished": []any{map[string]any{
		"token": a["token"], "backpressure": map[string]any{"limit": limits[0]["name"], "retryAfter": "3600s"},
	}}})
	if err != nil || len(list(got, "acks")) != 1 || list(got, "acks")[0]["answer"] != "ACK_ANSWER_RECORDED" {
		t.Fatalf("%v, %v", got, err)
	}
	task := e.get(id)
	if task.GetState() != errandv1.TaskState_TASK_STATE_SCHEDULED || task.GetCountedAttempts() != 0 || task.GetFailure().GetReason() != "backpressure" {
		t.Errorf("%v, %d attempts count, %v", task.GetState(), task.GetCountedAttempts(), task.GetFailure())
	}
}
