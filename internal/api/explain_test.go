package api

import (
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/errandhq/errand/placement"
	errandv1 "github.com/errandhq/errand/proto/errand/v1"
	"github.com/errandhq/errand/scheduler"
)

// asked is a story of why tasks do not run.
type asked struct {
	*edge
	seen map[string]bool
}

func (a *asked) explain(req *errandv1.ExplainTaskRequest) *errandv1.ExplainTaskResponse {
	a.t.Helper()
	resp, err := a.tasks(a.acme).ExplainTask(a.t.Context(), req)
	if err != nil {
		a.t.Fatal(err)
	}
	return resp
}

// is waits until a task is explained by a reason, and returns the answer.
func (a *asked) is(id string, reason scheduler.Obstacle) *errandv1.ExplainTaskResponse {
	a.t.Helper()
	var got *errandv1.ExplainTaskResponse
	eventually(a.t, "the reason "+string(reason)+" of "+id, func() bool {
		got = a.explain(&errandv1.ExplainTaskRequest{Subject: &errandv1.ExplainTaskRequest_TaskId{TaskId: id}})
		return got.GetReason() == string(reason)
	})
	a.seen[string(reason)] = true
	if got.GetMessage() == "" {
		a.t.Errorf("%s is told without a word", reason)
	}
	return got
}

// would explains a task that is not submitted.
func (a *asked) would(spec *errandv1.TaskSpec, reason scheduler.Obstacle) *errandv1.ExplainTaskResponse {
	a.t.Helper()
	got := a.explain(&errandv1.ExplainTaskRequest{Subject: &errandv1.ExplainTaskRequest_Spec{Spec: spec}})
	if got.GetReason() != string(reason) {
		a.t.Errorf("a task that is not submitted: %v, want %s", got, reason)
	}
	a.seen[string(reason)] = true
	return got
}

// Each thing that may keep a task from running is told as the first that holds, on a live instance.
func TestEveryReasonIsExplained(t *testing.T) {
	a := &asked{start(t), map[string]bool{}}
	o, ctx := a.operator(), t.Context()
	submit := func(change func(*errandv1.TaskSpec)) string {
		t.Helper()
		s := &errandv1.TaskSpec{Kind: "email"}
		change(s)
		return a.submit(s).GetTaskId()
	}
	plain := func(*errandv1.TaskSpec) {}
	large := func(s *errandv1.TaskSpec) { s.Requirements = &errandv1.Requirements{CpuMilli: 9000} }

	// Times.
	later := submit(func(s *errandv1.TaskSpec) { s.Start = &errandv1.TaskSpec_Delay{Delay: durationpb.New(time.Hour)} })
	if got := a.is(later, scheduler.WhyNotDue); got.GetEstimatedStart() == nil || !strings.Contains(got.GetMessage(), "no worker of this kind") {
		t.Errorf("a task for later: %v", got)
	}
	// Workers.
	first := submit(plain)
	if got := a.is(first, scheduler.WhyNoWorker); got.GetSuggestion() != "connect a worker of this kind" || len(got.GetAttempts()) != 0 {
		t.Errorf("without a worker: %v", got)
	}
	r := described(1, "email")
	r.Kinds[0].Slots = 1
	w := a.connectAs(r)
	running := w.take()
	if got := a.is(first, scheduler.WhyRunning); !strings.Contains(got.GetMessage(), "attempt 1 runs since") || !strings.Contains(got.GetMessage(), "zone eu-a") ||
		len(got.GetAttempts()) != 1 || got.GetAttempts()[0].GetWorker() != nameOf(1) {
		t.Errorf("a running task: %v", got)
	}
	big := submit(large)
	if got := a.is(big, scheduler.WhyNeverFits); len(got.GetClosestWorkers()) != 1 || !slices.Contains(got.GetClosestWorkers()[0].GetLacks(), "wants 9000 milli CPU, 4000 of 4000 free") ||
		!strings.Contains(got.GetSuggestion(), "ask for no more than w has") {
		t.Errorf("a task that fits nowhere: %v", got)
	}
	strange := submit(func(s *errandv1.TaskSpec) {
		s.Selectors = []*errandv1.Selector{{Key: "disk", Operator: errandv1.SelectorOperator_SELECTOR_OPERATOR_IN, Values: []string{"tape"}}}
	})
	if got := a.is(strange, scheduler.WhyNoWorkerMatches); !slices.Contains(got.GetClosestWorkers()[0].GetLacks(), "label disk does not satisfy disk in tape") {
		t.Errorf("a task that no labels suit: %v", got)
	}
	// Room and order.
	next := submit(plain)
	if got := a.is(next, scheduler.WhyNoRoom); got.GetPosition() != 0 || !strings.Contains(got.GetSuggestion(), "wait until room is free on w") {
		t.Errorf("the next task: %v", got)
	}
	behind := submit(plain)
	if got := a.is(behind, scheduler.WhyBehind); got.GetPosition() != 1 {
		t.Errorf("the one after it: %v", got)
	}
	// Pauses come before all that workers lack.
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	_, err := o.PauseTenant(ctx, &errandv1.PauseTenantRequest{Name: "acme"})
	must(err)
	a.is(big, scheduler.WhyTenantPaused)
	_, err = o.ResumeTenant(ctx, &errandv1.ResumeTenantRequest{Name: "acme"})
	must(err)
	_, err = o.PauseKind(ctx, &errandv1.PauseKindRequest{Tenant: "acme", Name: "email"})
	must(err)
	a.is(next, scheduler.WhyKindPaused)
	_, err = o.ResumeKind(ctx, &errandv1.ResumeKindRequest{Tenant: "acme", Name: "email"})
	must(err)
	// Caps.
	_, err = o.UpdateTenant(ctx, &errandv1.UpdateTenantRequest{Name: "acme", MaxRunning: proto.Int64(1)})
	must(err)
	a.is(next, scheduler.WhyTenantAtCap)
	_, err = o.UpdateTenant(ctx, &errandv1.UpdateTenantRequest{Name: "acme", MaxRunning: proto.Int64(0)})
	must(err)
	a.is(next, scheduler.WhyNoRoom)
	// Retries and cancellation.
	w.finish(failed(running, &errandv1.AttemptFailure{Message: "smtp says no"}))
	second := w.take()
	if got := a.is(first, scheduler.WhyRetryLater); !strings.Contains(got.GetMessage(), "smtp says no") || len(got.GetAttempts()) != 1 || got.GetAttempts()[0].GetFailure() == nil {
		t.Errorf("a task that is tried again: %v", got)
	}
	_, err = a.tasks(a.acme).CancelTask(ctx, &errandv1.CancelTaskRequest{TaskId: next})
	must(err)
	a.is(next, scheduler.WhyStopping)
	w.finish(succeeded(second, nil))
	if got := a.is(next, scheduler.WhyEnded); len(got.GetAttempts()) != 1 || got.GetAttempts()[0].GetEndedAt() == nil {
		t.Errorf("a task that has ended: %v", got)
	}
	third := w.take()
	// Named limits: one attempt at once, then one start in 1000 s.
	_, err = o.PutLimit(ctx, &errandv1.PutLimitRequest{Limit: &errandv1.NamedLimit{Tenant: "acme", Name: "smtp", Concurrency: 1}})
	must(err)
	limited := func(s *errandv1.TaskSpec) { s.Limits = []*errandv1.Limit{{Name: "smtp"}} }
	w.finish(succeeded(third, nil))
	fourth := submit(limited)
	w.take()
	a.is(fourth, scheduler.WhyRunning)
	fifth := submit(limited)
	if got := a.is(fifth, scheduler.WhyLimitFull); !strings.Contains(got.GetMessage(), "limit smtp") {
		t.Errorf("behind a limit: %v", got)
	}
	a.would(&errandv1.TaskSpec{Kind: "email", Requirements: &errandv1.Requirements{Gpus: 3}}, scheduler.WhyNeverFits)
	a.connectAs(described(2, "email"))
	a.would(&errandv1.TaskSpec{Kind: "email"}, scheduler.WhyStarting)
	a.would(&errandv1.TaskSpec{Kind: "email", Start: &errandv1.TaskSpec_Delay{Delay: durationpb.New(time.Hour)}}, scheduler.WhyNotDue)
	for id := range byte(2) {
		_, err = o.CordonWorker(ctx, &errandv1.CordonWorkerRequest{Worker: nameOf(id + 1)})
		must(err)
	}
	a.is(submit(plain), scheduler.WhyWorkersDraining)

	for _, why := range scheduler.Obstacles {
		if elsewhere := []scheduler.Obstacle{ // each has a case of its own, here or in the stories of the core
			scheduler.WhyPastStartBy, scheduler.WhyTenantRate, scheduler.WhyLimitRate, scheduler.WhySuspect, scheduler.WhyRoomHeld,
			scheduler.WhyHeadroom, scheduler.WhyRegionNotAllowed, scheduler.WhyWaitingForParents,
		}; !a.seen[string(why)] && !slices.Contains(elsewhere, why) {
			t.Errorf("nothing was explained by %s", why)
		}
	}
}

// What one instance cannot do another may: the nearest refusal counts, and the word of the one that has the task.
func TestExplanationsOfSeveralInstances(t *testing.T) {
	here := scheduler.Hold{Refusal: placement.NoWorker, Change: placement.Connect, Suggestion: "connect"}
	owner := scheduler.Hold{
		Here: true, Refusal: placement.NeverFits, Change: placement.AskLess, Suggestion: "ask for less", Ahead: 3, Gate: scheduler.WhyLimitFull, Gated: "limit x",
		Closest: []scheduler.CloseWorker{{Name: "small", Rank: 2}},
	}
	third := scheduler.Hold{
		Refusal: placement.DoesNotFitNow, Change: placement.WaitForRoom, Suggestion: "wait", Closest: []scheduler.CloseWorker{{Name: "large", Rank: 0, Missing: 0.5}},
	}
	for _, order := range [][]scheduler.Hold{{here, owner, third}, {third, here, owner}, {owner, third, here}} {
		got := order[0]
		for i := range order[1:] {
			over := holdOf(holdMessage(&order[i+1])) // as it comes from a peer
			got.Merge(over)
		}
		if got.Obstacle() != scheduler.WhyLimitFull || got.Ahead != 3 || got.Refusal != placement.DoesNotFitNow || got.Suggestion != "wait" ||
			len(got.Closest) != 2 || got.Closest[0].Name != "large" {
			t.Errorf("merged: %+v", got)
		}
	}
	late := explained(&scheduler.Task{State: scheduler.Ready, StartBy: time.Unix(1, 0)}, &owner, time.Unix(2, 0))
	if late.GetReason() != string(scheduler.WhyPastStartBy) {
		t.Errorf("past its start_by: %v", late)
	}
	if got := placement.RefusalOf(99); got != placement.DoesNotFitNow {
		t.Errorf("a refusal of a newer version: %v", got)
	}
}

func TestTheReasonsAreInTheManual(t *testing.T) {
	manual, err := os.ReadFile("../../docs/api.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(manual), "## Why a task does not run")
	at := 0
	for _, why := range scheduler.Obstacles {
		next := strings.Index(section, "`"+string(why)+"`")
		if next < 0 {
			t.Errorf("%s is not in docs/api.md", why)
			continue
		}
		if next < at {
			t.Errorf("%s is not where its precedence puts it", why)
		}
		at = next
	}
}
