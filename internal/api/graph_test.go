package api

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"connectrpc.com/connect"

	errandv1 "github.com/errandhq/errand/proto/errand/v1"
	"github.com/errandhq/errand/proto/errand/v1/errandv1connect"
)

func member(name string, after ...string) *errandv1.GraphTask {
	return &errandv1.GraphTask{Name: name, Spec: &errandv1.TaskSpec{Kind: "email", Payload: []byte(name)}, After: after}
}

func graphReq(key string, members ...*errandv1.GraphTask) *errandv1.SubmitGraphRequest {
	return &errandv1.SubmitGraphRequest{Tasks: members, IdempotencyKey: key}
}

// badGraphs are graphs that are none, and parents that are not there: nothing is stored.
func badGraphs(e *edge) []badInput {
	const rpc = "TaskService/SubmitGraph"
	open, foreign := e.submitAs(e.acme), e.submitAs(e.globex)
	changed := func(change func(*errandv1.GraphTask)) *errandv1.SubmitGraphRequest {
		m := member("b", "a")
		change(m)
		return graphReq("", member("a"), m)
	}
	parents := func(handles ...string) *errandv1.SubmitTaskRequest {
		return &errandv1.SubmitTaskRequest{Spec: &errandv1.TaskSpec{Kind: "email", Parents: handles}}
	}
	unknown := "eu.0c0t4f0sccrexqmrdc39afv9k4"
	many := make([]*errandv1.GraphTask, 10_001)
	for i := range many {
		many[i] = member(fmt.Sprint(i))
	}
	heavy := make([]*errandv1.GraphTask, 40)
	for i := range heavy {
		heavy[i] = member(fmt.Sprint(i))
		heavy[i].Spec.Payload = make([]byte, 250<<10)
	}
	const none = "PARENT_NOT_FOUND"
	return []badInput{
		{"no tasks", rpc, graphReq(""), refusedField, "tasks"},
		{"too many tasks", rpc, graphReq("", many...), refusedField, "tasks"},
		{"too large", rpc, graphReq("", heavy...), refusedField, "tasks"},
		{"no name", rpc, graphReq("", member("")), refusedField, "tasks[0].name"},
		{"a name twice", rpc, graphReq("", member("a"), member("a")), refusedField, "tasks[1].name"},
		{"no such name", rpc, graphReq("", member("a", "b")), refusedField, "tasks[0].after[0]"},
		{"a name twice in after", rpc, graphReq("", member("a"), member("b", "a", "a")), refusedField, "tasks[1].after[1]"},
		{"after itself", rpc, graphReq("", member("a", "a")), "GRAPH_CYCLE", "tasks[0].after[0]"},
		{"after each other", rpc, graphReq("", member("a", "b"), member("b", "a")), "GRAPH_CYCLE", "tasks[0].after[0]"},
		{"a bad spec", rpc, changed(func(m *errandv1.GraphTask) { m.Spec.Kind = "!" }), refusedField, "tasks[1].spec.kind"},
		{"a key of its own", rpc, changed(func(m *errandv1.GraphTask) { m.Spec.IdempotencyKey = "k" }), refusedField, "tasks[1].spec.idempotency_key"},
		{"a unique key", rpc, changed(func(m *errandv1.GraphTask) { m.Spec.UniqueKey = "k" }), refusedField, "tasks[1].spec.unique_key"},
		{"NUL in a name", rpc, graphReq("", member("a\x00")), refusedField, "tasks[0].name"},
		{"a parent that is not there", rpc, changed(func(m *errandv1.GraphTask) { m.Spec.Parents = []string{open, unknown} }), none, "tasks[1].spec.parents[1]"},
		{"another tenant's", rpc, changed(func(m *errandv1.GraphTask) { m.Spec.Parents = []string{foreign} }), none, "tasks[1].spec.parents[0]"},
		{"no handle", rpc, changed(func(m *errandv1.GraphTask) { m.Spec.Parents = []string{"x"} }), refusedField, "tasks[1].spec.parents[0]"},
		{"a task's parent that is not there", "TaskService/SubmitTask", parents(open, unknown), none, "spec.parents[1]"},
		{"another tenant's", "TaskService/SubmitTask", parents(foreign), none, "spec.parents[0]"},
		{"of another region", "TaskService/SubmitTask", parents("us" + strings.TrimPrefix(open, "eu")), none, "spec.parents[0]"},
		{"twice", "TaskService/SubmitTask", parents(open, open), refusedField, "spec.parents"},
		{"twice, written in two ways", "TaskService/SubmitTask", parents(open, "eu"+strings.ToUpper(strings.TrimPrefix(open, "eu"))), refusedField, "spec.parents[1]"},
		{"no handle", "TaskService/GetGraph", &errandv1.GetGraphRequest{GraphId: "x"}, refusedField, "graph_id"},
		{"a page of too many", "TaskService/GetGraph", &errandv1.GetGraphRequest{GraphId: open, PageSize: 501}, refusedField, "page_size"},
		{"no graph", "TaskService/GetGraph", &errandv1.GetGraphRequest{GraphId: open}, "GRAPH_NOT_FOUND", ""},
		{"no handle", "TaskService/CancelGraph", &errandv1.CancelGraphRequest{GraphId: "x"}, refusedField, "graph_id"},
		{"another tenant's", "TaskService/CancelGraph", &errandv1.CancelGraphRequest{GraphId: foreign}, "GRAPH_NOT_FOUND", ""},
		{"no token", "WorkerService/ReadParents", &errandv1.ReadParentsRequest{WorkerInstance: make([]byte, 16)}, refusedField, "token"},
		{"a short token", "WorkerService/ReadParents", &errandv1.ReadParentsRequest{
			WorkerInstance: make([]byte, 16), Token: &errandv1.Token{Id: []byte("x"), Attempt: 1},
		}, refusedField, "token.id"},
	}
}

// A diamond from end to end: each task starts when its parents have ended, and reads what they have come to.
func TestGraph(t *testing.T) {
	e := start(t)
	c := e.tasks(e.acme)
	req := graphReq("nightly", member("d", "b", "c"), member("a"), member("b", "a"), member("c", "a"))
	resp, err := c.SubmitGraph(t.Context(), req)
	if err != nil || len(resp.GetTaskIds()) != 4 || resp.GetExisted() {
		t.Fatal(resp, err)
	}
	again, err := c.SubmitGraph(t.Context(), req)
	if err != nil || !again.GetExisted() || again.GetGraphId() != resp.GetGraphId() || fmt.Sprint(again.GetTaskIds()) != fmt.Sprint(resp.GetTaskIds()) {
		t.Fatal(again, err)
	}
	req.Tasks = req.Tasks[:2]
	req.Tasks[0].After = nil
	if _, err := c.SubmitGraph(t.Context(), req); detail(t, err).GetReason() != "KEY_REUSED" {
		t.Error(err)
	}
	ids := resp.GetTaskIds()
	if d := e.get(ids["d"]); d.GetState() != errandv1.TaskState_TASK_STATE_BLOCKED || d.GetParents() != 2 || d.GetOpenParents() != 2 ||
		d.GetGraphId() != resp.GetGraphId() || d.GetGraphName() != "d" || len(d.GetSpec().GetParents()) != 2 || d.GetSpec().GetParents()[0] != ids["b"] {
		t.Errorf("the end of the diamond is %v", d)
	}
	if a := e.get(ids["a"]); a.GetChildren() != 2 {
		t.Errorf("the beginning of the diamond is %v", a)
	}
	w := e.worker(e.acme, 1, "email")
	worker := errandv1connect.NewWorkerServiceClient(e.http, e.url, connect.WithInterceptors(bearerOf(e.acme)))
	for i := range 4 {
		a := w.take()
		name := string(a.GetPayload())
		got, err := worker.ReadParents(t.Context(), &errandv1.ReadParentsRequest{Token: a.GetToken(), WorkerInstance: instance(1), PageSize: 1})
		if err != nil {
			t.Fatal(err)
		}
		switch i {
		case 0:
			if name != "a" || len(got.GetParents()) != 0 {
				t.Fatalf("the first is %s with %v", name, got)
			}
		case 3:
			next, err := worker.ReadParents(t.Context(), &errandv1.ReadParentsRequest{
				Token: a.GetToken(), WorkerInstance: instance(1), PageSize: 1, PageToken: got.GetNextPageToken(),
			})
			if err != nil || name != "d" || got.GetParents()[0].GetName() != "b" || next.GetParents()[0].GetName() != "c" ||
				string(next.GetParents()[0].GetResult().GetData()) != "did c" || next.GetParents()[0].GetState() != errandv1.TaskState_TASK_STATE_SUCCEEDED {
				t.Fatalf("the last is %s, after %v and %v, %v", name, got, next, err)
			}
			if _, err := worker.ReadParents(t.Context(), &errandv1.ReadParentsRequest{Token: a.GetToken(), WorkerInstance: instance(2)}); detail(t, err).GetReason() != "TOKEN_LOST" {
				t.Errorf("another worker asks for them: %v", err)
			}
		}
		if d := e.get(ids["d"]); i < 3 && d.GetState() != errandv1.TaskState_TASK_STATE_BLOCKED {
			t.Fatalf("while %s runs, d is %v", name, d.GetState())
		}
		w.finish(succeeded(a, []byte("did "+name)))
	}
	if d := e.await(ids["d"]); d.GetState() != errandv1.TaskState_TASK_STATE_SUCCEEDED || d.GetOpenParents() != 0 {
		t.Error(d)
	}
	var names []string
	for token := ""; ; {
		page, err := c.GetGraph(t.Context(), &errandv1.GetGraphRequest{GraphId: ids["b"], PageSize: 3, PageToken: token})
		if err != nil || page.GetSize() != 4 || page.GetGraphId() != resp.GetGraphId() {
			t.Fatal(page, err)
		}
		for _, m := range page.GetTasks() {
			names = append(names, fmt.Sprint(m.GetName(), " after ", len(m.GetParents()), " ", m.GetState().Number()))
		}
		if token = page.GetNextPageToken(); token == "" {
			break
		}
	}
	if got := strings.Join(names, ", "); got != "d after 2 5, a after 0 5, b after 1 5, c after 1 5" {
		t.Errorf("the graph shows %q", got)
	}
	if _, err := e.tasks(e.globex).GetGraph(t.Context(), &errandv1.GetGraphRequest{GraphId: resp.GetGraphId()}); detail(t, err).GetReason() != "GRAPH_NOT_FOUND" {
		t.Errorf("another tenant sees it: %v", err)
	}
}

// What is canceled takes with it what needs it; what is late finds that its parent has ended.
func TestCancelGraphAndLateChildren(t *testing.T) {
	e := start(t)
	c := e.tasks(e.acme)
	cleanup := member("cleanup", "b")
	cleanup.Spec.ParentCondition = errandv1.ParentCondition_PARENT_CONDITION_ALL_FINISHED
	resp, err := c.SubmitGraph(t.Context(), graphReq("", member("a"), member("b", "a"), cleanup))
	if err != nil {
		t.Fatal(err)
	}
	late := e.submit(&errandv1.TaskSpec{Kind: "email", Parents: []string{resp.GetTaskIds()["b"]}}).GetTaskId()
	lates, err := c.SubmitTasks(t.Context(), &errandv1.SubmitTasksRequest{Specs: []*errandv1.TaskSpec{
		{Kind: "sms"},
		{Kind: "email", Parents: []string{resp.GetTaskIds()["cleanup"]}, ImpossiblePolicy: errandv1.ImpossiblePolicy_IMPOSSIBLE_POLICY_RUN},
		{Kind: "email", Parents: []string{"eu.0c0t4f0sccrexqmrdc39afv9k4"}},
	}})
	if err != nil || lates.GetOutcomes()[1].GetAccepted().GetState() != errandv1.TaskState_TASK_STATE_BLOCKED ||
		lates.GetOutcomes()[2].GetError().GetDetail().GetReason() != "PARENT_NOT_FOUND" || lates.GetOutcomes()[2].GetError().GetDetail().GetField() != "specs[2].parents[0]" {
		t.Fatal(lates, err)
	}
	got, err := c.CancelGraph(t.Context(), &errandv1.CancelGraphRequest{GraphId: resp.GetGraphId(), Reason: "not needed"})
	if err != nil || got.GetCanceled() != 3 {
		t.Fatal(got, err)
	}
	if task := e.await(late); task.GetState() != errandv1.TaskState_TASK_STATE_CANCELED || task.GetFailure().GetReason() != "parents" ||
		!strings.Contains(task.GetFailure().GetMessage(), resp.GetTaskIds()["b"]+" was canceled") {
		t.Errorf("the child of a canceled task is %v", task)
	}
	w := e.worker(e.acme, 1, "email")
	w.finish(succeeded(w.take(), nil))
	if task := e.await(lates.GetOutcomes()[1].GetAccepted().GetTaskId()); task.GetState() != errandv1.TaskState_TASK_STATE_SUCCEEDED {
		t.Errorf("one that runs anyway is %v", task)
	}
	after := e.submit(&errandv1.TaskSpec{Kind: "email", Parents: []string{late}}).GetTaskId()
	if task := e.await(after); task.GetState() != errandv1.TaskState_TASK_STATE_CANCELED {
		t.Errorf("the child of one that was canceled before is %v", task)
	}
	ok := e.submit(&errandv1.TaskSpec{Kind: "email", Parents: []string{lates.GetOutcomes()[1].GetAccepted().GetTaskId()}}).GetTaskId()
	w.finish(succeeded(w.take(), nil))
	if task := e.await(ok); task.GetState() != errandv1.TaskState_TASK_STATE_SUCCEEDED {
		t.Errorf("the child of one that had succeeded is %v", task)
	}
	again, err := c.CancelGraph(context.Background(), &errandv1.CancelGraphRequest{GraphId: resp.GetGraphId()})
	if err != nil || again.GetCanceled() != 3 {
		t.Error(again, err)
	}
}
