package api

import (
	"reflect"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/dynamicpb"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	errandv1 "github.com/errandhq/errand/proto/errand/v1"
	"github.com/errandhq/errand/scheduler"
)

// something returns a value of a field that is not its default.
func something(m protoreflect.Message, field protoreflect.FieldDescriptor) protoreflect.Value {
	switch {
	case field.IsMap():
		value := m.NewField(field)
		value.Map().Set(protoreflect.ValueOfString("k").MapKey(), protoreflect.ValueOfString("v"))
		return value
	case field.IsList():
		value := m.NewField(field)
		if field.Message() != nil {
			value.List().Append(value.List().NewElement())
		} else {
			value.List().Append(protoreflect.ValueOfString("one"))
		}
		return value
	case field.Message() != nil:
		switch field.Message().FullName() {
		case "google.protobuf.Duration":
			return protoreflect.ValueOfMessage(durationpb.New(time.Hour).ProtoReflect())
		case "google.protobuf.Timestamp":
			return protoreflect.ValueOfMessage(timestamppb.New(time.Now().Add(time.Hour)).ProtoReflect())
		default:
			value := m.NewField(field)
			inner := field.Message().Fields().Get(0)
			value.Message().Set(inner, something(value.Message(), inner))
			return value
		}
	}
	switch field.Kind() {
	case protoreflect.BoolKind:
		return protoreflect.ValueOfBool(true)
	case protoreflect.EnumKind:
		return protoreflect.ValueOfEnum(1)
	case protoreflect.Int32Kind:
		return protoreflect.ValueOfInt32(1)
	case protoreflect.Int64Kind:
		return protoreflect.ValueOfInt64(1)
	case protoreflect.DoubleKind:
		return protoreflect.ValueOfFloat64(1)
	case protoreflect.BytesKind:
		return protoreflect.ValueOfBytes([]byte("x"))
	default:
		return protoreflect.ValueOfString("one")
	}
}

// A field that is neither read nor refused would be a promise broken in silence.
func TestEveryFieldOfATaskIsServedOrRefused(t *testing.T) {
	now := time.Now()
	turned := func(spec *errandv1.TaskSpec) (scheduler.Task, error) {
		task, err := taskOf(spec, "spec.", "acme", "eu", &scheduler.KindDefaults{})
		if err == nil {
			err = setTimes(&task, spec, "spec.", now)
		}
		return task, err
	}
	plain, err := turned(&errandv1.TaskSpec{})
	if err != nil {
		t.Fatal(err)
	}
	fields := (&errandv1.TaskSpec{}).ProtoReflect().Descriptor().Fields()
	for i := range fields.Len() {
		field := fields.Get(i)
		spec := &errandv1.TaskSpec{}
		spec.ProtoReflect().Set(field, something(spec.ProtoReflect(), field))
		if field.Name() == "unique_policy" { // its first value is the default, and it needs the key
			spec.UniqueKey, spec.UniquePolicy = "u", errandv1.UniquePolicy_UNIQUE_POLICY_REFUSE
			if task, err := turned(spec); err != nil || !task.Spec.RefuseHeld {
				t.Errorf("%s: %+v, %v", field.Name(), task.Spec, err)
			}
			continue
		}
		if field.Name() == "parents" { // handles
			spec.Parents = []string{scheduler.Ref{Region: "eu", ID: scheduler.ID{1}}.String()}
		}
		task, err := turned(spec)
		switch {
		case served["errand.v1.TaskSpec"][field.Name()] && err != nil:
			t.Errorf("%s is served, and refused: %v", field.Name(), err)
		case served["errand.v1.TaskSpec"][field.Name()] && reflect.DeepEqual(task, plain):
			t.Errorf("%s is named as served, and changes nothing", field.Name())
		case !served["errand.v1.TaskSpec"][field.Name()] && (err == nil || detail(t, err).GetField() != "spec."+string(field.Name())):
			t.Errorf("%s is not served, and answered with %v", field.Name(), err)
		}
	}
}

func TestEmptyRequirementsAskForNothing(t *testing.T) {
	if _, err := taskOf(&errandv1.TaskSpec{Kind: "email", Requirements: &errandv1.Requirements{}}, "", "acme", "eu", &scheduler.KindDefaults{}); err != nil {
		t.Error(err)
	}
}

// What is set for a kind or a limit is stored and shown, or refused.
func TestEveryFieldOfASettingIsServedOrRefused(t *testing.T) {
	e := start(t)
	for _, c := range []struct {
		rpc  string
		path []protoreflect.Name
		in   proto.Message
	}{
		{"PutKind", []protoreflect.Name{"kind", "defaults"}, &errandv1.PutKindRequest{Kind: &errandv1.Kind{
			Tenant: "acme", Name: "email", Defaults: &errandv1.KindDefaults{},
		}}},
		{"PutLimit", []protoreflect.Name{"limit"}, &errandv1.PutLimitRequest{Limit: &errandv1.NamedLimit{Tenant: "acme", Name: "api"}}},
	} {
		inside := func(m protoreflect.Message) protoreflect.Message {
			for _, name := range c.path {
				m = m.Mutable(m.Descriptor().Fields().ByName(name)).Message()
			}
			return m
		}
		descriptor := inside(c.in.ProtoReflect()).Descriptor()
		for i := range descriptor.Fields().Len() {
			field := descriptor.Fields().Get(i)
			if field.Name() == "tenant" || field.Name() == "name" {
				continue
			}
			req := proto.Clone(c.in)
			asked := inside(req.ProtoReflect())
			asked.Set(field, something(asked, field))
			raw, err := proto.Marshal(req)
			if err != nil {
				t.Fatal(err)
			}
			got := e.post("/errand.v1.AdminService/"+c.rpc, e.admin, "application/proto", raw)
			full := string(c.path[0]) + "."
			if len(c.path) > 1 {
				full += string(c.path[1]) + "."
			}
			full += string(field.Name())
			if !served[descriptor.FullName()][field.Name()] {
				if got.code != later501 || got.detail.GetReason() != reasonNotYetAvailable || got.detail.GetField() != full {
					t.Errorf("%s is not served, and answered with %s", full, got)
				}
				continue
			}
			answer := findMessage(t, "errand.v1."+protoreflect.FullName(c.rpc)+"Response")
			shown := dynamicpb.NewMessage(answer)
			if err := proto.Unmarshal(got.body, shown); err != nil || got.code != "" {
				t.Fatal(full, got, err)
			}
			if back := inside(shown).Get(inside(shown).Descriptor().Fields().ByName(field.Name())); !back.Equal(asked.Get(field)) && !field.IsList() && field.Message() == nil {
				t.Errorf("%s was stored as %v", full, back)
			}
			if !inside(shown).Has(inside(shown).Descriptor().Fields().ByName(field.Name())) {
				t.Errorf("%s is served, and not shown", full)
			}
		}
	}
}

// servedRequests are the fields that the handlers of served RPCs read. A new field makes this test fail: serve it, or name it in
// later.go, and then here.
var servedRequests = map[protoreflect.FullName][]protoreflect.Name{
	"errand.v1.SubmitTaskRequest":     {"spec"},
	"errand.v1.SubmitTasksRequest":    {"specs"},
	"errand.v1.SubmitGraphRequest":    {"tasks", "idempotency_key"},
	"errand.v1.GraphTask":             {"name", "spec", "after"},
	"errand.v1.GetGraphRequest":       {"graph_id", "page_size", "page_token"},
	"errand.v1.CancelGraphRequest":    {"graph_id", "reason"},
	"errand.v1.ReadParentsRequest":    {"token", "worker_instance", "page_size", "page_token"},
	"errand.v1.GetTaskRequest":        {"task_id", "include_attempts", "omit_payload"},
	"errand.v1.WaitTaskRequest":       {"task_id", "timeout"},
	"errand.v1.ListTasksRequest":      {"filter", "page_size", "page_token", "include_payloads"},
	"errand.v1.TaskFilter":            {"states", "kinds", "labels", "created_after", "created_before"},
	"errand.v1.ListRegionsRequest":    {"page_size", "page_token"},
	"errand.v1.DrainRegionRequest":    {"name"},
	"errand.v1.ResumeRegionRequest":   {"name"},
	"errand.v1.ExplainTaskRequest":    {"task_id", "spec"},
	"errand.v1.UpdateTaskRequest":     {"task_id", "changes", "update_mask", "run_now"},
	"errand.v1.CancelTaskRequest":     {"task_id", "reason"},
	"errand.v1.WatchTasksRequest":     {"filter", "task_ids", "include_current"},
	"errand.v1.PollRequest":           {"register", "wait", "max_assignments", "heartbeat"},
	"errand.v1.ReportRequest":         {"worker_instance", "finished", "accepted", "progress", "checkpoints", "heartbeat"},
	"errand.v1.RetryPolicy":           {"initial_backoff", "max_backoff", "multiplier", "non_retryable_reasons"},
	"errand.v1.ListTenantsRequest":    {"page_size", "page_token"},
	"errand.v1.GetTenantRequest":      {"name"},
	"errand.v1.CreateKeyRequest":      {"scope", "tenant", "kinds", "note"},
	"errand.v1.ListKeysRequest":       {"tenant", "page_size", "page_token"},
	"errand.v1.RevokeKeyRequest":      {"key_id"},
	"errand.v1.ListWorkersRequest":    {"page_size", "page_token"},
	"errand.v1.DrainWorkerRequest":    {"worker"},
	"errand.v1.CordonWorkerRequest":   {"worker"},
	"errand.v1.UncordonWorkerRequest": {"worker"},
	"errand.v1.LabelWorkerRequest":    {"worker", "set", "remove"},
	"errand.v1.WorkerMarks":           {"revision", "cordoned", "draining", "labels", "removed"},
	"errand.v1.GetOverviewRequest":    {"tenants"},
	"errand.v1.AuditRequest":          {"region"},
	"errand.v1.Token":                 {"id", "attempt", "region"},
	"errand.v1.Result":                {"data", "content_type"},
	"errand.v1.CreateTenantRequest": {
		"name", "home_region", "weight", "rate", "burst", "urgent_rate", "max_open", "max_running", "start_rate", "refuse_urgent",
	},
	"errand.v1.UpdateTenantRequest": {
		"name", "weight", "rate", "burst", "urgent_rate", "max_open", "max_running", "start_rate", "refuse_urgent",
	},
	"errand.v1.PauseTenantRequest":  {"name"},
	"errand.v1.ResumeTenantRequest": {"name"},
	"errand.v1.DeleteTenantRequest": {"name"},
	"errand.v1.PutKindRequest":      {"kind"},
	"errand.v1.Kind":                {"tenant", "name", "paused", "defaults"}, // paused is not read: its comment says so
	"errand.v1.KindDefaults":        nil,                                      // by later.go
	"errand.v1.GetKindRequest":      {"tenant", "name"},
	"errand.v1.ListKindsRequest":    {"tenant", "page_size", "page_token"},
	"errand.v1.PauseKindRequest":    {"tenant", "name"},
	"errand.v1.ResumeKindRequest":   {"tenant", "name"},
	"errand.v1.PutLimitRequest":     {"limit"},
	"errand.v1.NamedLimit":          nil, // by later.go
	"errand.v1.DeleteLimitRequest":  {"tenant", "name"},
	"errand.v1.ListLimitsRequest":   {"tenant", "page_size", "page_token"},
	"errand.v1.Limit":               {"name", "key"},
	// What the comments in the .proto files say is not used or not kept in this release is not read.
	"errand.v1.WorkRequest":    {"register", "accepted", "finished", "heartbeat", "drain", "goodbye", "progress", "checkpoints"},
	"errand.v1.Register":       {"protocol", "worker_instance", "name", "version", "kinds", "holds", "labels", "zone", "capacity", "marks"},
	"errand.v1.Heartbeat":      {"seq", "sent_at", "running"},
	"errand.v1.Finished":       {"token", "succeeded", "failed", "stopped", "handed_back", "snoozed", "completes_later", "backpressure"},
	"errand.v1.AttemptFailure": {"reason", "message", "non_retryable", "retry_after", "details"},
}

func TestEveryFieldOfAServedRequestIsKnown(t *testing.T) {
	for _, service := range apiServices() {
		for i := range service.Methods().Len() {
			method := service.Methods().Get(i)
			name := string(service.Name()) + "." + string(method.Name())
			if _, known := servedRequests[method.Input().FullName()]; !known && rpcRows[name].want != later501 && service.Name() != "PeerService" {
				t.Errorf("%s is served, and its request is not in this test", name)
			}
		}
	}
	for name, want := range servedRequests {
		if want == nil {
			continue
		}
		descriptor := findMessage(t, name)
		for i := range descriptor.Fields().Len() {
			field := descriptor.Fields().Get(i).Name()
			known := false
			for _, w := range want {
				known = known || w == field
			}
			if !known {
				t.Errorf("%s.%s is new: serve it or refuse it", name, field)
			}
		}
	}
}
