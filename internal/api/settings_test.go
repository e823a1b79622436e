package api

import (
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/errandhq/errand/internal/store"
	errandv1 "github.com/errandhq/errand/proto/errand/v1"
	"github.com/errandhq/errand/scheduler"
)

func TestATenantIsShownAsItIsSet(t *testing.T) {
	e := start(t)
	o, ctx := e.operator(), t.Context()
	created, err := o.CreateTenant(ctx, &errandv1.CreateTenantRequest{
		Name: "initech", HomeRegion: "us", Weight: proto.Float64(2), Rate: proto.Float64(3), Burst: proto.Int32(4), UrgentRate: proto.Float64(5),
		MaxOpen: proto.Int64(6), MaxRunning: proto.Int64(7), StartRate: proto.Float64(8), RefuseUrgent: proto.Bool(true),
	})
	if err != nil {
		t.Fatal(err)
	}
	want := &errandv1.Tenant{
		Name: "initech", HomeRegion: "us", Weight: 2, Rate: 3, Burst: 4, UrgentRate: 5, MaxOpen: 6, MaxRunning: 7, StartRate: 8, RefuseUrgent: true,
		CreatedAt: created.GetTenant().GetCreatedAt(),
	}
	same := func(step string, got *errandv1.Tenant, err error) {
		t.Helper()
		if err != nil || !proto.Equal(got, want) {
			t.Errorf("%s: %v, %v, want %v", step, got, err, want)
		}
	}
	same("created", created.GetTenant(), nil)
	updated, err := o.UpdateTenant(ctx, &errandv1.UpdateTenantRequest{
		Name: "initech", Weight: proto.Float64(9), Burst: proto.Int32(0), RefuseUrgent: proto.Bool(false), StartRate: proto.Float64(0),
	})
	want.Weight, want.Burst, want.RefuseUrgent, want.StartRate = 9, 0, false, 0
	same("updated", updated.GetTenant(), err)
	paused, err := o.PauseTenant(ctx, &errandv1.PauseTenantRequest{Name: "initech"})
	want.Paused = true
	same("paused", paused.GetTenant(), err)
	updated, err = o.UpdateTenant(ctx, &errandv1.UpdateTenantRequest{Name: "initech", Rate: proto.Float64(1)})
	want.Rate = 1
	same("updated while paused", updated.GetTenant(), err)
	resumed, err := o.ResumeTenant(ctx, &errandv1.ResumeTenantRequest{Name: "initech"})
	want.Paused = false
	same("resumed", resumed.GetTenant(), err)
	got, err := o.GetTenant(ctx, &errandv1.GetTenantRequest{Name: "initech"})
	same("read", got.GetTenant(), err)
}

// A tenant's key is good for nothing once the tenant is deleted; with open tasks it is not.
func TestDeleteTenant(t *testing.T) {
	e := start(t)
	o, ctx := e.operator(), t.Context()
	id := e.submit(&errandv1.TaskSpec{Kind: "email"}).GetTaskId()
	e.submit(&errandv1.TaskSpec{Kind: "email", Tier: errandv1.Tier_TIER_DEFERRABLE})
	_, err := o.DeleteTenant(ctx, &errandv1.DeleteTenantRequest{Name: "acme"})
	if connect.CodeOf(err) != connect.CodeFailedPrecondition || detail(t, err).GetReason() != "TENANT_HAS_TASKS" ||
		!strings.Contains(err.Error(), "1 standard, 1 deferrable") {
		t.Errorf("with open tasks: %v", err)
	}
	e.get(id)
	if got := e.post("/errand.v1.TaskService/ListTasks", e.globex, "application/json", []byte(`{}`)); got.code != "" {
		t.Fatalf("a key before it is revoked: %s", got) // from now on this instance remembers it
	}
	if _, err := o.DeleteTenant(ctx, &errandv1.DeleteTenantRequest{Name: "globex"}); err != nil {
		t.Fatal(err)
	}
	keys, err := o.ListKeys(ctx, &errandv1.ListKeysRequest{Tenant: "globex"})
	if err != nil || len(keys.GetKeys()) != 1 || keys.GetKeys()[0].GetRevokedAt() == nil {
		t.Errorf("its keys are %v, %v", keys, err)
	}
	if got := e.post("/errand.v1.TaskService/ListTasks", e.globex, "application/json", []byte(`{}`)); got.code != "unauthenticated" {
		t.Errorf("its key got %s", got)
	}
	if _, err := o.GetTenant(ctx, &errandv1.GetTenantRequest{Name: "globex"}); connect.CodeOf(err) != connect.CodeNotFound {
		t.Errorf("it is still there: %v", err)
	}
}

func TestKindsAreSetPausedAndListed(t *testing.T) {
	e := start(t)
	o, ctx := e.operator(), t.Context()
	want := &errandv1.Kind{Tenant: "acme", Name: "email", Defaults: &errandv1.KindDefaults{
		Tier: errandv1.Tier_TIER_DEFERRABLE, DelayTolerance: durationpb.New(time.Hour), AttemptTimeout: durationpb.New(time.Minute),
		MaxAttempts: proto.Int32(2), MaxWorkerLosses: proto.Int32(1), RetryPolicy: &errandv1.RetryPolicy{
			InitialBackoff: durationpb.New(time.Second), MaxBackoff: durationpb.New(time.Minute), Multiplier: 3, NonRetryableReasons: []string{"bad"},
		},
	}}
	same := func(step string, got *errandv1.Kind, err error) {
		t.Helper()
		if err != nil || !proto.Equal(got, want) {
			t.Errorf("%s: %v, %v, want %v", step, got, err, want)
		}
	}
	put, err := o.PutKind(ctx, &errandv1.PutKindRequest{Kind: want})
	same("put", put.GetKind(), err)
	paused, err := o.PauseKind(ctx, &errandv1.PauseKindRequest{Tenant: "acme", Name: "email"})
	want.Paused = true
	same("paused", paused.GetKind(), err)
	want.Defaults = &errandv1.KindDefaults{MaxAttempts: proto.Int32(7)}
	put, err = o.PutKind(ctx, &errandv1.PutKindRequest{Kind: &errandv1.Kind{Tenant: "acme", Name: "email", Defaults: want.GetDefaults()}})
	same("put while paused", put.GetKind(), err)
	got, err := o.GetKind(ctx, &errandv1.GetKindRequest{Tenant: "acme", Name: "email"})
	same("read", got.GetKind(), err)
	resumed, err := o.ResumeKind(ctx, &errandv1.ResumeKindRequest{Tenant: "acme", Name: "email"})
	want.Paused = false
	same("resumed", resumed.GetKind(), err)
	for _, name := range []string{"a", "z"} {
		if _, err := o.PauseKind(ctx, &errandv1.PauseKindRequest{Tenant: "acme", Name: name}); err != nil {
			t.Fatal(err)
		}
	}
	var names []string
	for req := (&errandv1.ListKindsRequest{Tenant: "acme", PageSize: 2}); ; {
		page, err := o.ListKinds(ctx, req)
		if err != nil {
			t.Fatal(err)
		}
		for _, k := range page.GetKinds() {
			names = append(names, k.GetName())
		}
		if req.PageToken = page.GetNextPageToken(); req.PageToken == "" {
			break
		}
		if _, err := o.ListKinds(ctx, &errandv1.ListKindsRequest{Tenant: "globex", PageToken: req.GetPageToken()}); connect.CodeOf(err) != connect.CodeInvalidArgument {
			t.Errorf("a page of another tenant's list: %v", err)
		}
	}
	if got := strings.Join(names, " "); got != "a email z" {
		t.Errorf("listed %s", got)
	}
}

func TestLimitsAreSetListedAndDeleted(t *testing.T) {
	e := start(t)
	o, ctx := e.operator(), t.Context()
	for _, want := range []*errandv1.NamedLimit{
		{Tenant: "acme", Name: "api", Concurrency: 3, Rate: 0.5},
		{Tenant: "acme", Name: "api", Rate: 7},
		{Tenant: "acme", Name: "mail", Concurrency: 1},
		{Tenant: "globex", Name: "api", Concurrency: 9},
	} {
		got, err := o.PutLimit(ctx, &errandv1.PutLimitRequest{Limit: want})
		if err != nil || !proto.Equal(got.GetLimit(), want) {
			t.Errorf("put %v, %v, want %v", got, err, want)
		}
	}
	if _, err := o.DeleteLimit(ctx, &errandv1.DeleteLimitRequest{Tenant: "acme", Name: "mail"}); err != nil {
		t.Fatal(err)
	}
	got, err := o.ListLimits(ctx, &errandv1.ListLimitsRequest{Tenant: "acme"})
	if err != nil || len(got.GetLimits()) != 1 || got.GetLimits()[0].GetRate() != 7 || got.GetLimits()[0].GetConcurrency() != 0 {
		t.Errorf("listed %v, %v", got, err)
	}
	page, err := o.ListLimits(ctx, &errandv1.ListLimitsRequest{Tenant: "acme", PageSize: 1})
	if err != nil || page.GetNextPageToken() == "" {
		t.Fatalf("a full page: %v, %v", page, err)
	}
	if _, err := o.DeleteLimit(ctx, &errandv1.DeleteLimitRequest{Tenant: "acme", Name: "mail"}); connect.CodeOf(err) != connect.CodeNotFound {
		t.Errorf("deleted twice: %v", err)
	}
}

// oneKind is what operators have set: for acme's kind email.
type oneKind struct {
	atomic.Pointer[scheduler.KindDefaults]
}

func (k *oneKind) Kind(tenant, kind string) (scheduler.KindSettings, bool) {
	if tenant != "acme" || kind != "email" {
		return scheduler.KindSettings{}, false
	}
	return scheduler.KindSettings{Tenant: tenant, Kind: kind, Defaults: *k.Load()}, true
}

func (k *oneKind) Tenant(string) (scheduler.TenantSettings, bool) {
	return scheduler.TenantSettings{}, false
}

// What a spec leaves open is as its kind says, one by one and in batches; what it says counts; a key stays good when the kind changes.
func TestKindDefaultsFillWhatASpecLeavesOpen(t *testing.T) {
	var email oneKind
	email.Store(&scheduler.KindDefaults{
		Tier: scheduler.Deferrable, Tolerance: time.Hour, AttemptTimeout: time.Minute, MaxAttempts: 2, MaxWorkerLosses: 1,
		Retry: scheduler.RetryPolicy{Initial: 2 * time.Hour, NonRetryable: []scheduler.Reason{"bad"}},
	})
	e := start(t, func(c *Config) { c.Settings = &email })
	show := func(spec *errandv1.TaskSpec) *errandv1.TaskSpec {
		t.Helper()
		return e.get(e.submit(spec).GetTaskId()).GetSpec()
	}
	want := &errandv1.TaskSpec{
		Kind: "email", Tier: errandv1.Tier_TIER_DEFERRABLE, DelayTolerance: durationpb.New(time.Hour), AttemptTimeout: durationpb.New(time.Minute),
		MaxAttempts: proto.Int32(2), MaxWorkerLosses: proto.Int32(1),
		RetryPolicy: &errandv1.RetryPolicy{InitialBackoff: durationpb.New(2 * time.Hour), NonRetryableReasons: []string{"bad"}},
	}
	for name, spec := range map[string]*errandv1.TaskSpec{
		"nothing said":    {Kind: "email"},
		"an empty policy": {Kind: "email", RetryPolicy: &errandv1.RetryPolicy{}},
		"the kind's tier": {Kind: "email", Tier: errandv1.Tier_TIER_DEFERRABLE},
	} {
		if got := show(spec); !proto.Equal(got, want) {
			t.Errorf("%s: %v, want %v", name, got, want)
		}
	}
	batch, err := e.tasks(e.acme).SubmitTasks(t.Context(), &errandv1.SubmitTasksRequest{Specs: []*errandv1.TaskSpec{{Kind: "email"}}})
	if err != nil {
		t.Fatal(err)
	}
	if got := e.get(batch.GetOutcomes()[0].GetAccepted().GetTaskId()).GetSpec(); !proto.Equal(got, want) {
		t.Errorf("in a batch: %v, want %v", got, want)
	}
	// The kind's tolerance is for its own tier, and its longest backoff for its own policy.
	other := show(&errandv1.TaskSpec{
		Kind: "email", Tier: errandv1.Tier_TIER_STANDARD, MaxAttempts: proto.Int32(9), AttemptTimeout: durationpb.New(time.Second),
		RetryPolicy: &errandv1.RetryPolicy{MaxBackoff: durationpb.New(time.Minute)},
	})
	if other.GetTier() != errandv1.Tier_TIER_STANDARD || other.GetDelayTolerance().AsDuration() != time.Minute || other.GetMaxAttempts() != 9 ||
		other.GetMaxWorkerLosses() != 1 || other.GetAttemptTimeout().AsDuration() != time.Second ||
		other.GetRetryPolicy().GetInitialBackoff() != nil || other.GetRetryPolicy().GetMaxBackoff().AsDuration() != time.Minute {
		t.Errorf("what a spec says does not count: %v", other)
	}
	least, err := e.tasks(e.acme).SubmitTask(t.Context(), &errandv1.SubmitTaskRequest{Spec: &errandv1.TaskSpec{
		Kind: "email", DelayTolerance: durationpb.New(time.Minute),
	}})
	if err == nil || detail(t, err).GetField() != "spec.delay_tolerance" {
		t.Errorf("a tolerance below the least of the kind's tier: %v, %v", least, err)
	}
	if got := show(&errandv1.TaskSpec{Kind: "sms"}); got.GetTier() != errandv1.Tier_TIER_STANDARD || got.GetMaxAttempts() != 5 {
		t.Errorf("another kind: %v", got)
	}
	first := e.submit(&errandv1.TaskSpec{Kind: "email", IdempotencyKey: "k"})
	email.Store(&scheduler.KindDefaults{MaxAttempts: 77})
	if again := e.submit(&errandv1.TaskSpec{Kind: "email", IdempotencyKey: "k"}); again.GetTaskId() != first.GetTaskId() || !again.GetExisted() {
		t.Errorf("the same request after a change of the kind: %v, first %v", again, first)
	}
}

// Limits are kept sorted, so that tasks with the same limits are of one class, and shown so.
func TestLimitsOfATask(t *testing.T) {
	e := start(t)
	limits := []*errandv1.Limit{{Name: "mail"}, {Name: "api", Key: "b"}, {Name: "api", Key: "a"}, {Name: "api"}}
	got := e.get(e.submit(&errandv1.TaskSpec{Kind: "email", Limits: limits}).GetTaskId()).GetSpec().GetLimits()
	var text []string
	for _, l := range got {
		text = append(text, l.GetName()+"/"+l.GetKey())
	}
	if s := strings.Join(text, " "); s != "api/ api/a api/b mail/" {
		t.Errorf("shown as %s", s)
	}
	ready, err := e.store.ListTasks(t.Context(), store.ListQuery{Region: region, Tenant: "acme", Limit: 10})
	if err != nil || len(ready.Tasks) != 1 || len(ready.Tasks[0].Spec.Limits) != 4 {
		t.Errorf("stored: %+v, %v", ready, err)
	}
	w := e.worker(e.acme, 1, "email")
	w.finish(succeeded(w.take(), nil))
}

// unsettled is a scheduler that has not read yet what operators have set.
type unsettled struct{ Scheduler }

func (unsettled) Settled() bool { return false }

// A task that comes before it is known what is set for its kind is not stored without it: the client is told to come again.
func TestNoSubmitBeforeTheSettingsAreKnown(t *testing.T) {
	e := start(t, func(c *Config) { c.Scheduler = unsettled{c.Scheduler} })
	_, one := e.tasks(e.acme).SubmitTask(t.Context(), &errandv1.SubmitTaskRequest{Spec: &errandv1.TaskSpec{Kind: "email"}})
	_, many := e.tasks(e.acme).SubmitTasks(t.Context(), &errandv1.SubmitTasksRequest{Specs: []*errandv1.TaskSpec{{Kind: "email"}}})
	for what, err := range map[string]error{"one": one, "many": many} {
		if connect.CodeOf(err) != connect.CodeUnavailable || detail(t, err).GetReason() != "BUSY" {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// A key that is revoked at an instance is good for nothing there any more, whatever was remembered of it.
func TestARevokedKeyEndsAtOnceWhereItIsRevoked(t *testing.T) {
	e := start(t)
	made, err := e.operator().CreateKey(t.Context(), &errandv1.CreateKeyRequest{Scope: errandv1.KeyScope_KEY_SCOPE_TENANT, Tenant: "acme"})
	if err != nil {
		t.Fatal(err)
	}
	list := func() string {
		return e.post("/errand.v1.TaskService/ListTasks", made.GetSecret(), "application/json", []byte(`{}`)).code
	}
	if got := list(); got != "" {
		t.Fatalf("before: %s", got)
	}
	if _, err := e.operator().RevokeKey(t.Context(), &errandv1.RevokeKeyRequest{KeyId: made.GetKey().GetKeyId()}); err != nil {
		t.Fatal(err)
	}
	if got := list(); got != "unauthenticated" {
		t.Errorf("after: %s", got)
	}
	if got := e.post("/errand.v1.TaskService/ListTasks", e.acme, "application/json", []byte(`{}`)).code; got != "" {
		t.Errorf("another key of the tenant: %s", got)
	}
}
