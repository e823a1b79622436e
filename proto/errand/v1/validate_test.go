package errandv1_test

import (
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	"buf.build/go/protovalidate"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/fieldmaskpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	errandv1 "github.com/errandhq/errand/proto/errand/v1"
)

// A rule that does not compile would refuse every request at run time, and only then.
func TestEveryRuleCompiles(t *testing.T) {
	var messages []protoreflect.MessageDescriptor
	for file := range filesOfErrand() {
		for i := range file.Messages().Len() {
			messages = append(messages, file.Messages().Get(i))
		}
	}
	if len(messages) < 100 {
		t.Fatalf("found %d messages: the generated files are not all registered", len(messages))
	}
	if _, err := protovalidate.New(protovalidate.WithDisableLazy(), protovalidate.WithMessageDescriptors(messages...)); err != nil {
		t.Fatal(err)
	}
}

// submit is a good request, changed.
func submit(change func(*errandv1.TaskSpec)) *errandv1.SubmitTaskRequest {
	spec := &errandv1.TaskSpec{Kind: "email"}
	change(spec)
	return &errandv1.SubmitTaskRequest{Spec: spec}
}

func labels(n int) map[string]string {
	m := map[string]string{}
	for i := range n {
		m[strings.Repeat("k", i+1)] = strings.Repeat("v", 255)
	}
	return m
}

// taskID is a handle as the API prints it.
const taskID = "eu.00a1b2c3d4e5f6g7h8j9k0m1n2"

// workerID is a worker instance as the API prints it.
const workerID = "9b2c4f1e-8a3d-4c5b-9e7f-0a1b2c3d4e5f"

func TestRules(t *testing.T) {
	day := 24 * time.Hour
	cases := []struct {
		name  string
		in    proto.Message
		field string // the path of the offending field; empty for a good request
	}{
		{"least", submit(func(*errandv1.TaskSpec) {}), ""},
		{"no spec", &errandv1.SubmitTaskRequest{}, "spec"},
		{"no kind", submit(func(s *errandv1.TaskSpec) { s.Kind = "" }), "spec.kind"},
		{"longest kind", submit(func(s *errandv1.TaskSpec) { s.Kind = strings.Repeat("k", 63) }), ""},
		{"kind too long", submit(func(s *errandv1.TaskSpec) { s.Kind = strings.Repeat("k", 64) }), "spec.kind"},
		{"kind in capitals", submit(func(s *errandv1.TaskSpec) { s.Kind = "Email" }), "spec.kind"},
		{"kind begins with a digit", submit(func(s *errandv1.TaskSpec) { s.Kind = "1st" }), "spec.kind"},
		{"kind ends with a newline", submit(func(s *errandv1.TaskSpec) { s.Kind = "email\n" }), "spec.kind"},
		{"kind of all allowed", submit(func(s *errandv1.TaskSpec) { s.Kind = "a0._-z" }), ""},
		{"largest payload", submit(func(s *errandv1.TaskSpec) { s.Payload = make([]byte, 256<<10) }), ""},
		{"payload too large", submit(func(s *errandv1.TaskSpec) { s.Payload = make([]byte, 256<<10+1) }), "spec.payload"},
		{"most labels", submit(func(s *errandv1.TaskSpec) { s.Labels = labels(32) }), ""},
		{"too many labels", submit(func(s *errandv1.TaskSpec) { s.Labels = labels(33) }), "spec.labels"},
		{"empty label key", submit(func(s *errandv1.TaskSpec) { s.Labels = map[string]string{"": "x"} }), `spec.labels[""]`},
		{
			"label value too long",
			submit(func(s *errandv1.TaskSpec) { s.Labels = map[string]string{"k": strings.Repeat("é", 128)} }), `spec.labels["k"]`,
		},
		{"unknown tier", submit(func(s *errandv1.TaskSpec) { s.Tier = 9 }), "spec.tier"},
		{"negative tolerance", submit(func(s *errandv1.TaskSpec) { s.DelayTolerance = durationpb.New(-1) }), "spec.delay_tolerance"},
		{
			"run_at beyond what stores hold",
			submit(func(s *errandv1.TaskSpec) {
				s.Start = &errandv1.TaskSpec_RunAt{RunAt: &timestamppb.Timestamp{Seconds: math.MaxInt64}}
			}), "spec.run_at",
		},
		{
			"negative delay",
			submit(func(s *errandv1.TaskSpec) { s.Start = &errandv1.TaskSpec_Delay{Delay: durationpb.New(-time.Second)} }), "spec.delay",
		},
		{
			"useless at once",
			submit(func(s *errandv1.TaskSpec) { s.Useless = &errandv1.TaskSpec_StartWithin{StartWithin: durationpb.New(0)} }),
			"spec.start_within",
		},
		{
			"timeout too short",
			submit(func(s *errandv1.TaskSpec) { s.AttemptTimeout = durationpb.New(99 * time.Millisecond) }), "spec.attempt_timeout",
		},
		{"longest timeout", submit(func(s *errandv1.TaskSpec) { s.AttemptTimeout = durationpb.New(7 * day) }), ""},
		{"timeout too long", submit(func(s *errandv1.TaskSpec) { s.AttemptTimeout = durationpb.New(7*day + 1) }), "spec.attempt_timeout"},
		{"no attempts", submit(func(s *errandv1.TaskSpec) { s.MaxAttempts = proto.Int32(0) }), "spec.max_attempts"},
		{"too many attempts", submit(func(s *errandv1.TaskSpec) { s.MaxAttempts = proto.Int32(1001) }), "spec.max_attempts"},
		{"no losses", submit(func(s *errandv1.TaskSpec) { s.MaxWorkerLosses = proto.Int32(0) }), "spec.max_worker_losses"},
		{
			"multiplier is not a number",
			submit(func(s *errandv1.TaskSpec) { s.RetryPolicy = &errandv1.RetryPolicy{Multiplier: math.NaN()} }),
			"spec.retry_policy.multiplier",
		},
		{"default multiplier", submit(func(s *errandv1.TaskSpec) { s.RetryPolicy = &errandv1.RetryPolicy{} }), ""},
		{
			"shrinking backoff",
			submit(func(s *errandv1.TaskSpec) { s.RetryPolicy = &errandv1.RetryPolicy{Multiplier: 0.5} }),
			"spec.retry_policy.multiplier",
		},
		{"key too long", submit(func(s *errandv1.TaskSpec) { s.IdempotencyKey = strings.Repeat("k", 256) }), "spec.idempotency_key"},
		{"same parent twice", submit(func(s *errandv1.TaskSpec) { s.Parents = []string{taskID, taskID} }), "spec.parents"},
		{"nine limits", submit(func(s *errandv1.TaskSpec) {
			for range 9 {
				s.Limits = append(s.Limits, &errandv1.Limit{Name: "payments"})
			}
		}), "spec.limits"},
		{"empty batch", &errandv1.SubmitTasksRequest{}, "specs"},
		{"bad one in a batch", &errandv1.SubmitTasksRequest{Specs: []*errandv1.TaskSpec{{Kind: "email"}, {Kind: "!"}}}, "specs[1].kind"},
		{"batch too large", &errandv1.SubmitTasksRequest{Specs: make([]*errandv1.TaskSpec, 1001)}, "specs"},
		{"no task", &errandv1.GetTaskRequest{}, "task_id"},
		{"wait too long", &errandv1.WaitTaskRequest{TaskId: taskID, Timeout: durationpb.New(61 * time.Second)}, "timeout"},
		{"largest page", &errandv1.ListTasksRequest{PageSize: 500}, ""},
		{"page too large", &errandv1.ListTasksRequest{PageSize: 501}, "page_size"},
		{"negative page", &errandv1.ListTasksRequest{PageSize: -1}, "page_size"},
		{"state that no task has", &errandv1.ListTasksRequest{
			Filter: &errandv1.TaskFilter{States: []errandv1.TaskState{0}},
		}, "filter.states[0]"},
		{
			"mask of what cannot change",
			&errandv1.UpdateTaskRequest{TaskId: taskID, UpdateMask: &fieldmaskpb.FieldMask{Paths: []string{"kind"}}}, "update_mask",
		},
		{"explain nothing", &errandv1.ExplainTaskRequest{}, "subject"},
		{"complete without an outcome", &errandv1.CompleteTaskRequest{TaskId: taskID, Attempt: 1, Worker: workerID}, "outcome"},
		{"complete without a result", &errandv1.CompleteTaskRequest{
			TaskId: taskID, Attempt: 1, Worker: workerID,
			Outcome: &errandv1.CompleteTaskRequest_Succeeded{Succeeded: &errandv1.Result{}},
		}, ""},
		{"complete with too much", &errandv1.CompleteTaskRequest{
			TaskId: taskID, Attempt: 1, Worker: workerID,
			Outcome: &errandv1.CompleteTaskRequest_Succeeded{Succeeded: &errandv1.Result{Data: make([]byte, 256<<10+1)}},
		}, "succeeded"},
		{"register", &errandv1.Register{
			Protocol: 1, WorkerInstance: make([]byte, 16), Kinds: []*errandv1.KindSlots{{Kind: "email", Slots: 1}},
		}, ""},
		{"register no kinds", &errandv1.Register{Protocol: 1, WorkerInstance: make([]byte, 16)}, "kinds"},
		{"register a short instance", &errandv1.Register{Protocol: 1, WorkerInstance: make([]byte, 15)}, "worker_instance"},
		{"tenant's name ends in a dash", &errandv1.CreateTenantRequest{Name: "acme-"}, "name"},
		{"weight of nothing", &errandv1.CreateTenantRequest{Name: "acme", Weight: proto.Float64(0)}, "weight"},
		{"no scope", &errandv1.CreateKeyRequest{}, "scope"},
		{"schedule without a task", &errandv1.CreateScheduleRequest{
			Name: "nightly", Spec: &errandv1.ScheduleSpec{Expression: "@daily"},
		}, "spec.task"},
	}
	validator, err := protovalidate.New(protovalidate.WithFailFast())
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			if got := offender(t, validator, c.in); got != c.field {
				t.Errorf("the offending field is %q, want %q", got, c.field)
			}
		})
	}
}

// offender returns the path of the first field that breaks a rule, empty for none.
func offender(t *testing.T, validator protovalidate.Validator, in proto.Message) string {
	t.Helper()
	err := validator.Validate(in)
	var invalid *protovalidate.ValidationError
	switch {
	case err == nil:
		return ""
	case !errors.As(err, &invalid):
		t.Fatal(err)
	}
	return protovalidate.FieldPathString(invalid.Violations[0].Proto.GetField())
}
