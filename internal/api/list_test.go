package api

import (
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"

	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	errandv1 "github.com/errandhq/errand/proto/errand/v1"
)

func findMessage(t *testing.T, name protoreflect.FullName) protoreflect.MessageDescriptor {
	t.Helper()
	found, err := protoregistry.GlobalFiles.FindDescriptorByName(name)
	if err != nil {
		t.Fatal(err)
	}
	return found.(protoreflect.MessageDescriptor)
}

// pages walks a list to its end and returns the tasks in the order seen; between is called after each page.
func (e *edge) pages(req *errandv1.ListTasksRequest, between func()) []*errandv1.Task {
	e.t.Helper()
	var all []*errandv1.Task
	for {
		resp, err := e.tasks(e.acme).ListTasks(e.t.Context(), req)
		if err != nil {
			e.t.Fatal(err)
		}
		if len(resp.GetTasks()) > int(req.GetPageSize()) {
			e.t.Fatalf("a page of %d, asked for %d", len(resp.GetTasks()), req.GetPageSize())
		}
		all = append(all, resp.GetTasks()...)
		if req.PageToken = resp.GetNextPageToken(); req.PageToken == "" {
			return all
		}
		between()
	}
}

func (e *edge) submitMany(n int, kind string) []string {
	e.t.Helper()
	req := &errandv1.SubmitTasksRequest{}
	for i := range n {
		req.Specs = append(req.Specs, &errandv1.TaskSpec{Kind: kind, Labels: map[string]string{"n": fmt.Sprint(i % 2)}})
	}
	resp, err := e.tasks(e.acme).SubmitTasks(e.t.Context(), req)
	if err != nil {
		e.t.Fatal(err)
	}
	var ids []string
	for _, o := range resp.GetOutcomes() {
		ids = append(ids, o.GetAccepted().GetTaskId())
	}
	return ids
}

func idsOf(tasks []*errandv1.Task) []string {
	var ids []string
	for _, task := range tasks {
		ids = append(ids, task.GetTaskId())
	}
	return ids
}

// B49: rows of the same moment are all reached, each once.
func TestPagesOfOneMoment(t *testing.T) {
	e := start(t)
	want := e.submitMany(17, "email")
	got := idsOf(e.pages(&errandv1.ListTasksRequest{PageSize: 5}, func() {}))
	slices.Sort(want)
	slices.Sort(got)
	if !slices.Equal(got, want) {
		t.Errorf("%d tasks in pages of 5, want 17", len(got))
	}
	for filter, n := range map[*errandv1.TaskFilter]int{
		{Labels: map[string]string{"n": "0"}}:                                9,
		{Labels: map[string]string{"n": "2"}}:                                0,
		{Kinds: []string{"email", "sms"}}:                                    17,
		{States: []errandv1.TaskState{errandv1.TaskState_TASK_STATE_READY}}:  17,
		{States: []errandv1.TaskState{errandv1.TaskState_TASK_STATE_FAILED}}: 0,
	} {
		if got := e.pages(&errandv1.ListTasksRequest{PageSize: 4, Filter: filter}, func() {}); len(got) != n {
			t.Errorf("%v lists %d, want %d", filter, len(got), n)
		}
	}
}

// While others write, nothing old is missed and nothing is seen twice. Every row that the filter looks at and refuses counts: the
// page's end must be where the page looked, not where another statement would have.
func TestPagesWhileOthersWrite(t *testing.T) {
	e := start(t)
	var old []string
	for range 6 {
		old = append(old, e.submitMany(1000, "email")...)
	}
	var writers sync.WaitGroup
	stop := make(chan struct{})
	for range 4 {
		writers.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				ids := e.submitMany(20, "noise")
				_, _ = e.tasks(e.acme).CancelTask(t.Context(), &errandv1.CancelTaskRequest{TaskId: ids[0]})
			}
		})
	}
	purge := func() { // retention takes finished rows away
		if _, err := e.past().Exec(t.Context(), `DELETE FROM tasks WHERE state = 7`); err != nil {
			t.Error(err)
		}
	}
	seen := map[string]int{}
	for _, id := range idsOf(e.pages(&errandv1.ListTasksRequest{PageSize: 300, Filter: &errandv1.TaskFilter{Kinds: []string{"email"}}}, purge)) {
		seen[id]++
	}
	close(stop)
	writers.Wait()
	for _, id := range old {
		if seen[id] != 1 {
			t.Fatalf("an old task was seen %d times", seen[id])
		}
	}
	if len(seen) != len(old) {
		t.Errorf("%d tasks seen, want %d", len(seen), len(old))
	}
}

// A token is good for its own tenant and filter only.
func TestTokensAreBound(t *testing.T) {
	e := start(t)
	e.submitMany(3, "email")
	e.submitAs(e.globex)
	first, err := e.tasks(e.acme).ListTasks(t.Context(), &errandv1.ListTasksRequest{PageSize: 1})
	if err != nil || first.GetNextPageToken() == "" {
		t.Fatal(first, err)
	}
	token := first.GetNextPageToken()
	if _, err := e.tasks(e.globex).ListTasks(t.Context(), &errandv1.ListTasksRequest{PageToken: token}); err == nil || detail(t, err).GetField() != "page_token" {
		t.Errorf("another tenant's token: %v", err)
	}
	changed := &errandv1.ListTasksRequest{PageToken: token, Filter: &errandv1.TaskFilter{Kinds: []string{"email"}}}
	if _, err := e.tasks(e.acme).ListTasks(t.Context(), changed); err == nil || detail(t, err).GetField() != "page_token" {
		t.Errorf("a token under another filter: %v", err)
	}
	if second, err := e.tasks(e.acme).ListTasks(t.Context(), &errandv1.ListTasksRequest{PageSize: 9, PageToken: token}); err != nil || len(second.GetTasks()) != 2 {
		t.Errorf("another page size: %v, %v", second, err)
	}
	resp, err := e.tasks(e.globex).ListTasks(t.Context(), &errandv1.ListTasksRequest{})
	if err != nil || len(resp.GetTasks()) != 1 {
		t.Errorf("the other tenant lists %v, %v", resp, err)
	}
}

func TestPagesOfOperators(t *testing.T) {
	e := start(t)
	tenants, keys, workers := map[string]bool{}, map[string]bool{}, map[string]bool{}
	for token := ""; ; {
		resp, err := e.operator().ListTenants(t.Context(), &errandv1.ListTenantsRequest{PageSize: 1, PageToken: token})
		if err != nil {
			t.Fatal(err)
		}
		for _, one := range resp.GetTenants() {
			tenants[one.GetName()] = true
		}
		if token = resp.GetNextPageToken(); token == "" {
			break
		}
	}
	if got := slices.Sorted(maps.Keys(tenants)); !slices.Equal(got, []string{"acme", "globex"}) {
		t.Errorf("the tenants are %v", got)
	}
	for token := ""; ; {
		resp, err := e.operator().ListKeys(t.Context(), &errandv1.ListKeysRequest{PageSize: 3, PageToken: token})
		if err != nil {
			t.Fatal(err)
		}
		for _, one := range resp.GetKeys() {
			keys[one.GetKeyId()] = true
		}
		if token = resp.GetNextPageToken(); token == "" {
			break
		}
	}
	if len(keys) != 4 {
		t.Errorf("%d keys, want 4", len(keys))
	}
	for i := range byte(5) {
		e.worker(e.pool, i+1, "email")
	}
	for token, pages := "", 0; ; pages++ {
		resp, err := e.operator().ListWorkers(t.Context(), &errandv1.ListWorkersRequest{PageSize: 2, PageToken: token})
		if err != nil || len(resp.GetWorkers()) > 2 || pages > 3 {
			t.Fatal(resp, err)
		}
		for _, one := range resp.GetWorkers() {
			workers[one.GetWorker()] = true
		}
		if token = resp.GetNextPageToken(); token == "" {
			break
		}
	}
	if len(workers) != 5 {
		t.Errorf("%d workers, want 5", len(workers))
	}
}

func TestKeysOfOperators(t *testing.T) {
	e := start(t)
	made, err := e.operator().CreateKey(t.Context(), &errandv1.CreateKeyRequest{Scope: errandv1.KeyScope_KEY_SCOPE_TENANT, Tenant: "acme", Note: "ci"})
	if err != nil {
		t.Fatal(err)
	}
	e.logs.keepOut(made.GetSecret())
	e.submitAs(made.GetSecret())
	if got := e.sql(`SELECT count(*)::text FROM api_keys k WHERE position($1 in k::text) > 0`, made.GetSecret()); got != "0" {
		t.Error("the secret is stored")
	}
	for range 2 { // again is the same
		revoked, err := e.operator().RevokeKey(t.Context(), &errandv1.RevokeKeyRequest{KeyId: made.GetKey().GetKeyId()})
		if err != nil || revoked.GetKey().GetRevokedAt() == nil {
			t.Fatal(revoked, err)
		}
	}
	listed, err := e.operator().ListKeys(t.Context(), &errandv1.ListKeysRequest{Tenant: "acme"})
	if err != nil || len(listed.GetKeys()) != 2 {
		t.Errorf("acme's keys are %v, %v", listed, err)
	}
	updated, err := e.operator().UpdateTenant(t.Context(), &errandv1.UpdateTenantRequest{Name: "acme", Weight: new(float64)})
	if err == nil {
		t.Errorf("a weight of 0 was taken: %v", updated)
	}
}
