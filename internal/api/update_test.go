package api

import (
	"testing"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/fieldmaskpb"

	errandv1 "github.com/errandhq/errand/proto/errand/v1"
	"github.com/errandhq/errand/scheduler"
)

func (e *edge) update(req *errandv1.UpdateTaskRequest) *errandv1.Task {
	e.t.Helper()
	resp, err := e.tasks(e.acme).UpdateTask(e.t.Context(), req)
	if err != nil {
		e.t.Fatal(err)
	}
	return resp.GetTask()
}

func TestUpdateTask(t *testing.T) {
	e := start(t)
	id := e.submit(&errandv1.TaskSpec{
		Kind: "email", Payload: []byte("p"), Labels: map[string]string{"a": "b"}, Start: &errandv1.TaskSpec_Delay{Delay: durationpb.New(time.Hour)},
	}).GetTaskId()
	got := e.update(&errandv1.UpdateTaskRequest{TaskId: id, Changes: &errandv1.TaskChanges{
		Tier: errandv1.Tier_TIER_URGENT, Start: &errandv1.TaskChanges_Delay{Delay: durationpb.New(2 * time.Hour)},
		Useless: &errandv1.TaskChanges_StartWithin{StartWithin: durationpb.New(3 * time.Hour)},
	}})
	if s := got.GetSpec(); s.GetTier() != errandv1.Tier_TIER_URGENT || s.GetDelayTolerance().AsDuration() != time.Second || s.GetLabels()["a"] != "b" ||
		string(s.GetPayload()) != "p" || time.Until(s.GetRunAt().AsTime()) < 90*time.Minute || time.Until(s.GetStartBy().AsTime()) < 150*time.Minute {
		t.Errorf("changed: %v", got)
	}
	// What the mask names and changes leaves unset goes back to its default; what it does not name does not count.
	got = e.update(&errandv1.UpdateTaskRequest{
		TaskId: id, Changes: &errandv1.TaskChanges{Tier: errandv1.Tier_TIER_DEFERRABLE},
		UpdateMask: &fieldmaskpb.FieldMask{Paths: []string{"start_by", "labels"}},
	})
	if s := got.GetSpec(); s.GetTier() != errandv1.Tier_TIER_URGENT || s.GetStartBy() != nil || len(s.GetLabels()) != 0 {
		t.Errorf("by the mask: %v", got)
	}
	w := e.worker(e.acme, 1, "email")
	if got = e.update(&errandv1.UpdateTaskRequest{TaskId: id, RunNow: true}); got.GetState() != errandv1.TaskState_TASK_STATE_READY || got.GetSpec().GetStart() != nil {
		t.Errorf("at once: %v", got)
	}
	a := w.take()
	_, err := e.tasks(e.acme).UpdateTask(t.Context(), &errandv1.UpdateTaskRequest{TaskId: id, RunNow: true})
	if d := detail(t, err); connect.CodeOf(err) != connect.CodeFailedPrecondition || d.GetReason() != "TASK_NOT_WAITING" || d.GetTaskId() != id {
		t.Errorf("while it runs: %v", err)
	}
	w.finish(succeeded(a, nil))
	e.await(id)
	audit, err := e.operator().Audit(t.Context(), &errandv1.AuditRequest{})
	if err != nil || len(audit.GetFindings()) != 0 {
		t.Errorf("the audit: %v, %v", audit, err)
	}
}

// A task that nobody told the scheduler of is found all the same when it was made ready past it.
func TestAChangePastTheSchedulerIsFound(t *testing.T) {
	e := start(t)
	w := e.worker(e.acme, 1, "email")
	id := e.submit(&errandv1.TaskSpec{Kind: "email", Start: &errandv1.TaskSpec_Delay{Delay: durationpb.New(time.Hour)}}).GetTaskId()
	ref, err := scheduler.ParseRef(id)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := e.store.UpdateTask(t.Context(), "acme", ref, scheduler.Change{RunAt: &time.Time{}}); err != nil {
		t.Fatal(err)
	}
	w.finish(succeeded(w.take(), nil))
	e.await(id)
}
