package api

import (
	"bytes"
	"fmt"
	"math"
	"net/http"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/fieldmaskpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/errandhq/errand/internal/store"
	errandv1 "github.com/errandhq/errand/proto/errand/v1"
	"github.com/errandhq/errand/scheduler"
)

// badInput is a request that must be refused, and how. Without a reason it is good, and stored.
type badInput struct {
	name   string
	rpc    string
	in     proto.Message
	reason string
	field  string
}

func spec(change func(*errandv1.TaskSpec)) proto.Message {
	s := &errandv1.TaskSpec{Kind: "email"}
	change(s)
	return &errandv1.SubmitTaskRequest{Spec: s}
}

func runAt(at *timestamppb.Timestamp) proto.Message {
	return spec(func(s *errandv1.TaskSpec) { s.Start = &errandv1.TaskSpec_RunAt{RunAt: at} })
}

func startBy(at *timestamppb.Timestamp) proto.Message {
	return spec(func(s *errandv1.TaskSpec) { s.Useless = &errandv1.TaskSpec_StartBy{StartBy: at} })
}

func delayed(d *durationpb.Duration) proto.Message {
	return spec(func(s *errandv1.TaskSpec) { s.Start = &errandv1.TaskSpec_Delay{Delay: d} })
}

func within(d *durationpb.Duration) proto.Message {
	return spec(func(s *errandv1.TaskSpec) { s.Useless = &errandv1.TaskSpec_StartWithin{StartWithin: d} })
}

func year(y int) *timestamppb.Timestamp {
	return timestamppb.New(time.Date(y, 12, 31, 0, 0, 0, 0, time.UTC))
}

func manyLabels(n, valueLen int) map[string]string {
	labels := map[string]string{}
	for i := range n {
		labels[fmt.Sprintf("key-%d", i)] = strings.Repeat("v", valueLen)
	}
	return labels
}

const (
	refusedField = reasonInvalidField
	maxDuration  = 315_576_000_000 // seconds, the most that a protobuf duration may hold
)

// badTimes are B40: what is far, infinite or backwards.
func badTimes() []badInput {
	const rpc = "TaskService/SubmitTask"
	return []badInput{
		{"run_at of the year 2100", rpc, runAt(year(2100)), "", ""},
		{"run_at where 64 bits of nanoseconds end", rpc, runAt(timestamppb.New(time.Unix(0, math.MaxInt64).Add(time.Second))), "", ""},
		{"run_at of the year 2300", rpc, runAt(year(2300)), "", ""},
		{"run_at at the last moment", rpc, runAt(&timestamppb.Timestamp{Seconds: timeMax}), "", ""},
		{"run_at a second later", rpc, runAt(&timestamppb.Timestamp{Seconds: timeMax + 1}), refusedField, "spec.run_at"},
		{"run_at of the year 9999", rpc, runAt(year(9999)), refusedField, "spec.run_at"},
		{"run_at of the year 10000", rpc, runAt(year(10000)), refusedField, "spec.run_at"},
		{"run_at as far as integers go", rpc, runAt(&timestamppb.Timestamp{Seconds: math.MaxInt64}), refusedField, "spec.run_at"},
		{"run_at as far back", rpc, runAt(&timestamppb.Timestamp{Seconds: math.MinInt64}), refusedField, "spec.run_at"},
		{"run_at of 1969", rpc, runAt(year(1969)), refusedField, "spec.run_at"},
		{"run_at of zero", rpc, runAt(&timestamppb.Timestamp{}), "", ""}, // past: at once
		{"run_at with bad nanoseconds", rpc, runAt(&timestamppb.Timestamp{Seconds: 4e9, Nanos: -1}), "", ""},
		{"delay of -1 ns", rpc, delayed(durationpb.New(-1)), refusedField, "spec.delay"},
		{"delay of 0", rpc, delayed(durationpb.New(0)), "", ""},
		{"delay of 25 days", rpc, delayed(durationpb.New(25 * 24 * time.Hour)), "", ""},
		{"delay of 10 years", rpc, delayed(&durationpb.Duration{Seconds: 315360000}), "", ""},
		{"delay of 10 years and a second", rpc, delayed(&durationpb.Duration{Seconds: 315360001}), refusedField, "spec.delay"},
		{"delay of 300 years", rpc, delayed(&durationpb.Duration{Seconds: 300 * 31536000}), refusedField, "spec.delay"},
		{"delay as far as durations go", rpc, delayed(&durationpb.Duration{Seconds: maxDuration}), refusedField, "spec.delay"},
		{"start_by that is past", rpc, startBy(timestamppb.New(time.Now().Add(-time.Minute))), refusedField, "spec.start_by"},
		{"start_by of zero", rpc, startBy(&timestamppb.Timestamp{}), refusedField, "spec.start_by"},
		{"start_by of the year 9998", rpc, startBy(&timestamppb.Timestamp{Seconds: timeMax}), "", ""},
		{"start_by of the year 10000", rpc, startBy(year(10000)), refusedField, "spec.start_by"},
		{"start_within of 0", rpc, within(durationpb.New(0)), refusedField, "spec.start_within"},
		{"start_within of -1 s", rpc, within(durationpb.New(-time.Second)), refusedField, "spec.start_within"},
		{"start_within of 11 years", rpc, within(&durationpb.Duration{Seconds: 11 * 31536000}), refusedField, "spec.start_within"},
		{"start_by before run_at", rpc, spec(func(s *errandv1.TaskSpec) {
			s.Start = &errandv1.TaskSpec_RunAt{RunAt: year(2101)}
			s.Useless = &errandv1.TaskSpec_StartBy{StartBy: year(2100)}
		}), refusedField, "spec.start_by"},
		{"start_within shorter than delay", rpc, spec(func(s *errandv1.TaskSpec) {
			s.Start = &errandv1.TaskSpec_Delay{Delay: durationpb.New(time.Minute)}
			s.Useless = &errandv1.TaskSpec_StartWithin{StartWithin: durationpb.New(time.Minute)}
		}), refusedField, "spec.start_within"},
	}
}

// badNumbers are B41: -1, 0, 1, the most and one more of every number.
func badNumbers() []badInput {
	const submit, list = "TaskService/SubmitTask", "TaskService/ListTasks"
	var cases []badInput
	add := func(name, rpc string, in proto.Message, field string) {
		reason := refusedField
		if field == "" {
			reason = ""
		}
		cases = append(cases, badInput{name, rpc, in, reason, field})
	}
	attempts := func(n int32) proto.Message { return spec(func(s *errandv1.TaskSpec) { s.MaxAttempts = &n }) }
	losses := func(n int32) proto.Message { return spec(func(s *errandv1.TaskSpec) { s.MaxWorkerLosses = &n }) }
	timeout := func(d time.Duration) proto.Message {
		return spec(func(s *errandv1.TaskSpec) { s.AttemptTimeout = durationpb.New(d) })
	}
	tolerance := func(tier errandv1.Tier, d time.Duration) proto.Message {
		return spec(func(s *errandv1.TaskSpec) { s.Tier, s.DelayTolerance = tier, durationpb.New(d) })
	}
	retry := func(p *errandv1.RetryPolicy) proto.Message {
		return spec(func(s *errandv1.TaskSpec) { s.RetryPolicy = p })
	}
	const day = 24 * time.Hour
	for n, field := range map[int32]string{-1: "spec.max_attempts", 0: "spec.max_attempts", 1: "", 1000: "", 1001: "spec.max_attempts", math.MinInt32: "spec.max_attempts"} {
		add(fmt.Sprintf("max_attempts of %d", n), submit, attempts(n), field)
	}
	for n, field := range map[int32]string{-1: "spec.max_worker_losses", 0: "spec.max_worker_losses", 1: "", 100: "", 101: "spec.max_worker_losses"} {
		add(fmt.Sprintf("max_worker_losses of %d", n), submit, losses(n), field)
	}
	for d, field := range map[time.Duration]string{
		-1: "spec.attempt_timeout", 0: "spec.attempt_timeout", 1: "spec.attempt_timeout", 100 * time.Millisecond: "", 7 * day: "",
		7*day + 1: "spec.attempt_timeout", math.MaxInt64: "spec.attempt_timeout",
	} {
		add(fmt.Sprintf("attempt_timeout of %v", d), submit, timeout(d), field)
	}
	for _, c := range []struct {
		tier errandv1.Tier
		d    time.Duration
		ok   bool
	}{
		{1, -1, false},
		{1, 0, true},
		{1, 1, true},
		{1, 30 * day, true},
		{1, 30*day + 1, false},
		{2, 0, false},
		{2, 10*time.Second - 1, false},
		{2, 10 * time.Second, true},
		{0, 10*time.Second - 1, false},
		{0, 10 * time.Second, true},
		{3, 10*time.Minute - 1, false},
		{3, 10 * time.Minute, true},
		{3, 30 * day, true},
		{3, 30*day + 1, false},
	} {
		field := "spec.delay_tolerance"
		if c.ok {
			field = ""
		}
		add(fmt.Sprintf("delay_tolerance of %v in tier %d", c.d, c.tier), submit, tolerance(c.tier, c.d), field)
	}
	for m, field := range map[float64]string{
		-1: "spec.retry_policy.multiplier", 0: "", 0.5: "spec.retry_policy.multiplier", 1: "", 100: "", 100.5: "spec.retry_policy.multiplier",
		math.Inf(1): "spec.retry_policy.multiplier", math.Inf(-1): "spec.retry_policy.multiplier",
	} {
		add(fmt.Sprintf("multiplier of %v", m), submit, retry(&errandv1.RetryPolicy{Multiplier: m}), field)
	}
	add("multiplier that is not a number", submit, retry(&errandv1.RetryPolicy{Multiplier: math.NaN()}), "spec.retry_policy.multiplier")
	add("initial_backoff of 0", submit, retry(&errandv1.RetryPolicy{InitialBackoff: durationpb.New(0)}), "spec.retry_policy.initial_backoff")
	add("initial_backoff of 2 days", submit, retry(&errandv1.RetryPolicy{InitialBackoff: durationpb.New(2 * day)}), "spec.retry_policy.initial_backoff")
	add("max_backoff of 31 days", submit, retry(&errandv1.RetryPolicy{MaxBackoff: durationpb.New(31 * day)}), "spec.retry_policy.max_backoff")
	add("max_backoff below initial_backoff", submit, retry(&errandv1.RetryPolicy{
		InitialBackoff: durationpb.New(time.Minute), MaxBackoff: durationpb.New(time.Second),
	}), "spec.retry_policy.max_backoff")
	for n, field := range map[int32]string{-1: "page_size", 0: "", 1: "", 500: "", 501: "page_size", math.MaxInt32: "page_size", math.MinInt32: "page_size"} {
		add(fmt.Sprintf("page_size of %d", n), list, &errandv1.ListTasksRequest{PageSize: n}, field)
		add(fmt.Sprintf("tenants' page_size of %d", n), "AdminService/ListTenants", &errandv1.ListTenantsRequest{PageSize: n}, field)
		add(fmt.Sprintf("keys' page_size of %d", n), "AdminService/ListKeys", &errandv1.ListKeysRequest{PageSize: n}, field)
		add(fmt.Sprintf("workers' page_size of %d", n), "AdminService/ListWorkers", &errandv1.ListWorkersRequest{PageSize: n}, field)
	}
	for w, field := range map[float64]string{
		-1: "weight", 0: "weight", 0.009: "weight", 0.01: "", 1: "", 1000: "", 1001: "weight", math.Inf(1): "weight",
	} {
		add(fmt.Sprintf("weight of %v", w), "AdminService/UpdateTenant", &errandv1.UpdateTenantRequest{Name: "acme", Weight: &w}, field)
	}
	add("weight that is not a number", "AdminService/UpdateTenant",
		&errandv1.UpdateTenantRequest{Name: "acme", Weight: proto.Float64(math.NaN())}, "weight")
	return cases
}

// badTexts are names, sizes, and what no store can hold.
func badTexts() []badInput {
	const submit, many = "TaskService/SubmitTask", "TaskService/SubmitTasks"
	text := func(change func(*errandv1.TaskSpec), field string) badInput {
		return badInput{"text of " + field, submit, spec(change), refusedField, field}
	}
	big := func(n int) proto.Message {
		return spec(func(s *errandv1.TaskSpec) { s.Payload = make([]byte, n) })
	}
	batch := func(n, size int) proto.Message {
		m := &errandv1.SubmitTasksRequest{}
		for range n {
			m.Specs = append(m.Specs, &errandv1.TaskSpec{Kind: "email", Payload: make([]byte, size)})
		}
		return m
	}
	return []badInput{
		{"no spec", submit, &errandv1.SubmitTaskRequest{}, refusedField, "spec"},
		{"no kind", submit, spec(func(s *errandv1.TaskSpec) { s.Kind = "" }), refusedField, "spec.kind"},
		{"unknown tier", submit, spec(func(s *errandv1.TaskSpec) { s.Tier = 99 }), refusedField, "spec.tier"},
		text(func(s *errandv1.TaskSpec) { s.Kind = "e\x00" }, "spec.kind"),
		text(func(s *errandv1.TaskSpec) { s.ContentType = "a\x00" }, "spec.content_type"),
		text(func(s *errandv1.TaskSpec) { s.IdempotencyKey = "\x00" }, "spec.idempotency_key"),
		text(func(s *errandv1.TaskSpec) { s.Labels = map[string]string{"a\x00": ""} }, "spec.labels"),
		text(func(s *errandv1.TaskSpec) { s.Labels = map[string]string{"a": "\x00"} }, "spec.labels"),
		text(func(s *errandv1.TaskSpec) {
			s.RetryPolicy = &errandv1.RetryPolicy{NonRetryableReasons: []string{"ok", "\x00"}}
		}, "spec.retry_policy.non_retryable_reasons[1]"),
		{"NUL in a payload", submit, spec(func(s *errandv1.TaskSpec) { s.Payload = []byte("a\x00b") }), "", ""},
		{"most labels", submit, spec(func(s *errandv1.TaskSpec) { s.Labels = manyLabels(32, 255) }), "", ""},
		{"too many labels", submit, spec(func(s *errandv1.TaskSpec) { s.Labels = manyLabels(33, 1) }), refusedField, "spec.labels"},
		{"label too long", submit, spec(func(s *errandv1.TaskSpec) { s.Labels = map[string]string{"k": strings.Repeat("v", 256)} }), refusedField, `spec.labels["k"]`},
		{"key of the most bytes", submit, spec(func(s *errandv1.TaskSpec) { s.IdempotencyKey = strings.Repeat("k", 255) }), "", ""},
		{"key too long", submit, spec(func(s *errandv1.TaskSpec) { s.IdempotencyKey = strings.Repeat("k", 256) }), refusedField, "spec.idempotency_key"},
		{"payload one below", submit, big(scheduler.PayloadMax - 1), "", ""},
		{"largest payload", submit, big(scheduler.PayloadMax), "", ""},
		{"payload one above", submit, big(scheduler.PayloadMax + 1), refusedField, "spec.payload"},
		{"empty batch", many, &errandv1.SubmitTasksRequest{}, refusedField, "specs"},
		{"batch of 1001", many, batch(1001, 0), refusedField, "specs"},
		{"batch of 8 MiB", many, batch(32, 256<<10), "", ""},
		{"batch of more", many, batch(33, 256<<10), refusedField, "specs"},
		{"one bad in a batch", many, &errandv1.SubmitTasksRequest{Specs: []*errandv1.TaskSpec{{Kind: "email"}, {Kind: "!"}}}, refusedField, "specs[1].kind"},
		{"one against a rule of two fields", many, &errandv1.SubmitTasksRequest{Specs: []*errandv1.TaskSpec{
			{Kind: "email"}, {Kind: "email", DelayTolerance: durationpb.New(time.Second)},
		}}, refusedField, "specs[1].delay_tolerance"},
		{"one not served in a batch", many, &errandv1.SubmitTasksRequest{Specs: []*errandv1.TaskSpec{
			{Kind: "email"}, {Kind: "email", Preemptible: true},
		}}, reasonNotYetAvailable, "specs[1].preemptible"},
		text(func(s *errandv1.TaskSpec) { s.UniqueKey = "\x00" }, "spec.unique_key"),
		{"unique key that is empty", submit, spec(func(s *errandv1.TaskSpec) { s.UniqueKey = "" }), "", ""},
		{"unique key of the most bytes", submit, spec(func(s *errandv1.TaskSpec) { s.UniqueKey = strings.Repeat("k", 255) }), "", ""},
		{"unique key too long", submit, spec(func(s *errandv1.TaskSpec) { s.UniqueKey = strings.Repeat("k", 256) }), refusedField, "spec.unique_key"},
		{"unique policy without a key", submit, spec(func(s *errandv1.TaskSpec) { s.UniquePolicy = 1 }), refusedField, "spec.unique_policy"},
		{"unknown unique policy", submit, spec(func(s *errandv1.TaskSpec) { s.UniqueKey, s.UniquePolicy = "u", 9 }), refusedField, "spec.unique_policy"},
	}
}

// badNames are handles, names and tokens that lead nowhere.
func badNames(e *edge) []badInput {
	foreign := e.submitAs(e.globex)
	handles := []struct{ name, id, reason, field string }{
		{"no handle", "", refusedField, "task_id"},
		{"handle without a region", "0000000000000000000000000g", refusedField, "task_id"},
		{"handle of a bad region", "EU.0000000000000000000000000g", refusedField, "task_id"},
		{"handle too short", "eu.000", refusedField, "task_id"},
		{"handle with stray bits", "eu.0000000000000000000000000z", refusedField, "task_id"},
		{"handle with a letter that is none", "eu.000000000000000000000000ug", refusedField, "task_id"},
		{"handle too long", strings.Repeat("e", 91), refusedField, "task_id"},
		{"handle with NUL", "eu.\x00", refusedField, "task_id"},
		{"handle of nothing", someTask, "TASK_NOT_FOUND", ""},
		{"handle of another region", "us.0000000000000000000000000g", "TASK_NOT_FOUND", ""},
		{"handle of another tenant", foreign, "TASK_NOT_FOUND", ""},
	}
	var cases []badInput
	for _, h := range handles {
		cases = append(cases,
			badInput{h.name, "TaskService/GetTask", &errandv1.GetTaskRequest{TaskId: h.id}, h.reason, h.field},
			badInput{h.name, "TaskService/ExplainTask", &errandv1.ExplainTaskRequest{Subject: &errandv1.ExplainTaskRequest_TaskId{TaskId: h.id}}, h.reason, h.field},
			badInput{h.name, "TaskService/WaitTask", &errandv1.WaitTaskRequest{TaskId: h.id}, h.reason, h.field},
			badInput{h.name, "TaskService/UpdateTask", &errandv1.UpdateTaskRequest{TaskId: h.id, RunNow: true}, h.reason, h.field},
			badInput{h.name, "TaskService/CancelTask", &errandv1.CancelTaskRequest{TaskId: h.id}, h.reason, h.field})
	}
	cases = append(cases,
		badInput{"a page of -1 regions", "AdminService/ListRegions", &errandv1.ListRegionsRequest{PageSize: -1}, refusedField, "page_size"},
		badInput{"a drain of no region", "AdminService/DrainRegion", &errandv1.DrainRegionRequest{}, refusedField, "name"},
		badInput{"a drain of a region that is not there", "AdminService/DrainRegion", &errandv1.DrainRegionRequest{Name: "mars"}, "REGION_NOT_FOUND", ""},
		badInput{"a region with a long name", "AdminService/ResumeRegion", &errandv1.ResumeRegionRequest{Name: strings.Repeat("r", 64)}, refusedField, "name"},
		badInput{"a resume of a region that is not there", "AdminService/ResumeRegion", &errandv1.ResumeRegionRequest{Name: "mars"}, "REGION_NOT_FOUND", ""},
		badInput{"nothing to explain", "TaskService/ExplainTask", &errandv1.ExplainTaskRequest{}, refusedField, "subject"},
		badInput{"a spec to explain without a kind", "TaskService/ExplainTask", &errandv1.ExplainTaskRequest{Subject: &errandv1.ExplainTaskRequest_Spec{Spec: &errandv1.TaskSpec{}}}, refusedField, "spec.kind"},
		badInput{"wait of -1 s", "TaskService/WaitTask", &errandv1.WaitTaskRequest{TaskId: someTask, Timeout: durationpb.New(-time.Second)}, refusedField, "timeout"},
		badInput{"wait of 61 s", "TaskService/WaitTask", &errandv1.WaitTaskRequest{TaskId: someTask, Timeout: durationpb.New(61 * time.Second)}, refusedField, "timeout"},
		badInput{"reason with NUL", "TaskService/CancelTask", &errandv1.CancelTaskRequest{TaskId: someTask, Reason: "\x00"}, refusedField, "reason"},
		badInput{"reason too long", "TaskService/CancelTask", &errandv1.CancelTaskRequest{TaskId: someTask, Reason: strings.Repeat("r", 1025)}, refusedField, "reason"},
	)
	for name, filter := range map[string]struct {
		f     *errandv1.TaskFilter
		field string
	}{
		"state that no task has": {&errandv1.TaskFilter{States: []errandv1.TaskState{0}}, "filter.states[0]"},
		"unknown state":          {&errandv1.TaskFilter{States: []errandv1.TaskState{99}}, "filter.states[0]"},
		"nine states":            {&errandv1.TaskFilter{States: make([]errandv1.TaskState, 9)}, "filter.states"},
		"empty kind":             {&errandv1.TaskFilter{Kinds: []string{""}}, "filter.kinds[0]"},
		"kind with NUL":          {&errandv1.TaskFilter{Kinds: []string{"\x00"}}, "filter.kinds[0]"},
		"33 kinds":               {&errandv1.TaskFilter{Kinds: strings.Split(strings.Repeat("k,", 32)+"k", ",")}, "filter.kinds"},
		"nine labels":            {&errandv1.TaskFilter{Labels: manyLabels(9, 1)}, "filter.labels"},
		"since infinity":         {&errandv1.TaskFilter{CreatedAfter: &timestamppb.Timestamp{Seconds: math.MaxInt64}}, "filter.created_after"},
		"before the epoch":       {&errandv1.TaskFilter{CreatedBefore: &timestamppb.Timestamp{Seconds: -1}}, "filter.created_before"},
	} {
		cases = append(cases, badInput{name, "TaskService/ListTasks", &errandv1.ListTasksRequest{Filter: filter.f}, refusedField, filter.field})
	}
	for name, token := range map[string]string{
		"not a token": "nonsense!", "short token": "AAAA", "long token": strings.Repeat("A", 1024), "longer token": strings.Repeat("A", 1025),
		"token with NUL":       "\x00",
		"another tenant's":     newPager("tasks", region+"/globex", nil).token(taskCursor(store.ListCursor{CreatedAt: time.Now()})),
		"another list's":       newPager("keys", "acme", nil).token([]byte("key-1")),
		"a cursor cut off":     newPager("tasks", region+"/acme", (*errandv1.TaskFilter)(nil)).token([]byte("abc")),
		"a cursor of no time":  newPager("tasks", region+"/acme", (*errandv1.TaskFilter)(nil)).token(bytes.Repeat([]byte{0xff}, taskCursorLen)),
		"a cursor of too late": newPager("tasks", region+"/acme", (*errandv1.TaskFilter)(nil)).token(taskCursor(store.ListCursor{CreatedAt: time.Unix(timeMax+1, 0)})),
	} {
		cases = append(cases, badInput{name, "TaskService/ListTasks", &errandv1.ListTasksRequest{PageToken: token}, refusedField, "page_token"})
	}
	for name, token := range map[string]string{"not a token": "nonsense!", "another list's": newPager("tenants", "x", nil).token([]byte("acme"))} {
		cases = append(cases,
			badInput{name, "AdminService/ListTenants", &errandv1.ListTenantsRequest{PageToken: token}, refusedField, "page_token"},
			badInput{name, "AdminService/ListKeys", &errandv1.ListKeysRequest{PageToken: token}, refusedField, "page_token"},
			badInput{name, "AdminService/ListKinds", &errandv1.ListKindsRequest{Tenant: "acme", PageToken: token}, refusedField, "page_token"},
			badInput{name, "AdminService/ListLimits", &errandv1.ListLimitsRequest{Tenant: "acme", PageToken: token}, refusedField, "page_token"},
			badInput{name, "AdminService/ListWorkers", &errandv1.ListWorkersRequest{PageToken: token}, refusedField, "page_token"})
	}
	return cases
}

// badOperators are mistakes of operators.
func badOperators() []badInput {
	const tenant, key, label = "AdminService/CreateTenant", "AdminService/CreateKey", "AdminService/LabelWorker"
	labels := func(key, value string) proto.Message {
		return &errandv1.LabelWorkerRequest{Worker: someWorker, Set: map[string]string{key: value}}
	}
	return []badInput{
		{"no name", tenant, &errandv1.CreateTenantRequest{}, refusedField, "name"},
		{"name with NUL", tenant, &errandv1.CreateTenantRequest{Name: "a\x00"}, refusedField, "name"},
		{"name in capitals", tenant, &errandv1.CreateTenantRequest{Name: "Acme"}, refusedField, "name"},
		{"name too long", tenant, &errandv1.CreateTenantRequest{Name: strings.Repeat("a", 64)}, refusedField, "name"},
		{"bad home", tenant, &errandv1.CreateTenantRequest{Name: "initech", HomeRegion: "EU!"}, refusedField, "home_region"},
		{"taken name", tenant, &errandv1.CreateTenantRequest{Name: "acme"}, "TENANT_EXISTS", ""},
		{"unknown tenant", "AdminService/UpdateTenant", &errandv1.UpdateTenantRequest{Name: "initech"}, "TENANT_NOT_FOUND", ""},
		{"unknown tenant", "AdminService/GetTenant", &errandv1.GetTenantRequest{Name: "initech"}, "TENANT_NOT_FOUND", ""},
		{"no scope", key, &errandv1.CreateKeyRequest{}, refusedField, "scope"},
		{"unknown scope", key, &errandv1.CreateKeyRequest{Scope: 9}, refusedField, "scope"},
		{"tenant's key without a tenant", key, &errandv1.CreateKeyRequest{Scope: 1}, refusedField, "tenant"},
		{"tenant's key of nobody", key, &errandv1.CreateKeyRequest{Scope: 1, Tenant: "initech"}, "TENANT_NOT_FOUND", ""},
		{"tenant's key with kinds", key, &errandv1.CreateKeyRequest{Scope: 1, Tenant: "acme", Kinds: []string{"email"}}, refusedField, "kinds"},
		{"pool key without kinds", key, &errandv1.CreateKeyRequest{Scope: 2}, refusedField, "kinds"},
		{"pool key with a tenant", key, &errandv1.CreateKeyRequest{Scope: 2, Tenant: "acme", Kinds: []string{"email"}}, refusedField, "tenant"},
		{"pool key with a bad kind", key, &errandv1.CreateKeyRequest{Scope: 2, Kinds: []string{"email", "*"}}, refusedField, "kinds[1]"},
		{"admin key with a tenant", key, &errandv1.CreateKeyRequest{Scope: 3, Tenant: "acme"}, refusedField, "tenant"},
		{"note with NUL", key, &errandv1.CreateKeyRequest{Scope: 3, Note: "\x00"}, refusedField, "note"},
		{"note too long", key, &errandv1.CreateKeyRequest{Scope: 3, Note: strings.Repeat("n", 256)}, refusedField, "note"},
		{"no key", "AdminService/RevokeKey", &errandv1.RevokeKeyRequest{}, refusedField, "key_id"},
		{"unknown key", "AdminService/RevokeKey", &errandv1.RevokeKeyRequest{KeyId: "key-0"}, "KEY_NOT_FOUND", ""},
		{"no worker", "AdminService/DrainWorker", &errandv1.DrainWorkerRequest{}, refusedField, "worker"},
		{"unknown worker", "AdminService/DrainWorker", &errandv1.DrainWorkerRequest{Worker: someWorker}, "WORKER_NOT_FOUND", ""},
		{"no worker", "AdminService/CordonWorker", &errandv1.CordonWorkerRequest{}, refusedField, "worker"},
		{"unknown worker", "AdminService/CordonWorker", &errandv1.CordonWorkerRequest{Worker: someWorker}, "WORKER_NOT_FOUND", ""},
		{"no uuid", "AdminService/UncordonWorker", &errandv1.UncordonWorkerRequest{Worker: "w1"}, refusedField, "worker"},
		{"unknown worker", "AdminService/LabelWorker", &errandv1.LabelWorkerRequest{Worker: someWorker}, "WORKER_NOT_FOUND", ""},
		{"label without a key", label, labels("", "x"), refusedField, `set[""]`},
		{"label with a long key", label, labels(strings.Repeat("k", 64), "x"), refusedField, `set["` + strings.Repeat("k", 64) + `"]`},
		{"label with a long value", label, labels("k", strings.Repeat("v", 256)), refusedField, `set["k"]`},
		{"label with NUL in its key", label, labels("k\x00", "x"), refusedField, "set"},
		{"label with NUL in its value", label, labels("k", "\x00"), refusedField, "set"},
		{"key to remove with NUL", label, &errandv1.LabelWorkerRequest{Worker: someWorker, Remove: []string{"k\x00"}}, refusedField, "remove[0]"},
		{
			"set and removed", label, &errandv1.LabelWorkerRequest{Worker: someWorker, Set: map[string]string{"k": "v"}, Remove: []string{"j", "k"}},
			refusedField, "remove[1]",
		},
		{"negative tenants", "AdminService/GetOverview", &errandv1.GetOverviewRequest{Tenants: -1}, refusedField, "tenants"},
		{"too many tenants", "AdminService/GetOverview", &errandv1.GetOverviewRequest{Tenants: 1001}, refusedField, "tenants"},
		{"region too long", "AdminService/Audit", &errandv1.AuditRequest{Region: strings.Repeat("r", 64)}, refusedField, "region"},
		{"region with NUL", "AdminService/Audit", &errandv1.AuditRequest{Region: "\x00"}, refusedField, "region"},
	}
}

func (e *edge) submitAs(key string) string {
	e.t.Helper()
	resp, err := e.tasks(key).SubmitTask(e.t.Context(), &errandv1.SubmitTaskRequest{Spec: &errandv1.TaskSpec{Kind: "email"}})
	if err != nil {
		e.t.Fatal(err)
	}
	return resp.GetTaskId()
}

var codeOfReason = map[string]string{
	refusedField: "invalid_argument", reasonNotYetAvailable: "unimplemented", reasonMalformed: "invalid_argument",
	"TASK_NOT_WAITING": "failed_precondition", "TASK_NOT_FOUND": "not_found", "TENANT_NOT_FOUND": "not_found", "KEY_NOT_FOUND": "not_found", "WORKER_NOT_FOUND": "not_found", "REGION_NOT_FOUND": "not_found",
	"TENANT_EXISTS": "already_exists", "KIND_NOT_FOUND": "not_found", "LIMIT_NOT_FOUND": "not_found",
	"PARENT_NOT_FOUND": "not_found", "GRAPH_NOT_FOUND": "not_found", reasonGraphCycle: "invalid_argument",
}

// streams have tests of bad input of their own.
var streams = map[string]bool{"WorkerService.Work": true, "TaskService.WatchTasks": true}

func TestBadInput(t *testing.T) {
	e := start(t)
	cases := append(badTimes(), append(badNumbers(), badShapes()...)...)
	cases = append(cases, badTexts()...)
	cases = append(cases, badNames(e)...)
	cases = append(cases, badOperators()...)
	cases = append(cases, badSettings()...)
	cases = append(cases, badPolls()...)
	cases = append(cases, badGraphs(e)...)
	cases = append(cases, badChanges(e)...)
	covered := map[string]bool{}
	for _, c := range cases {
		covered[strings.ReplaceAll(c.rpc, "/", ".")] = true
		key := e.acme
		if strings.HasPrefix(c.rpc, "Admin") {
			key = e.admin
		}
		raw, err := proto.Marshal(c.in)
		if err != nil {
			t.Fatal(err)
		}
		before := e.rowCounts()
		got := e.post("/errand.v1."+c.rpc, key, "application/proto", raw)
		if got.code != codeOfReason[c.reason] || got.detail.GetReason() != c.reason || got.detail.GetField() != c.field {
			t.Errorf("%s: %s: got %s, want %s %q", c.rpc, c.name, got, c.reason, c.field)
		}
		if after := e.rowCounts(); c.reason != "" && after != before {
			t.Errorf("%s: %s: was refused, and stored something: %s, before %s", c.rpc, c.name, after, before)
		}
	}
	for name, row := range rpcRows {
		if row.want != later501 && !strings.HasPrefix(name, "Peer") && !streams[name] && !covered[name] {
			t.Errorf("%s is served, and has no case of bad input", name)
		}
	}
	// What was accepted for a far time does not run, and keeps nobody else waiting.
	w := e.worker(e.acme, 1, "sms")
	id := e.submit(&errandv1.TaskSpec{Kind: "sms"}).GetTaskId()
	w.finish(succeeded(w.take(), nil))
	e.await(id)
	if got := e.sql(`SELECT count(*)::text FROM tasks WHERE run_at > now() + INTERVAL '1 hour' AND state <> 1`); got != "0" {
		t.Errorf("%s tasks of a far time are not waiting for it", got)
	}
	for _, column := range []string{"run_at", "start_by", "wake_at", "due"} {
		if _, err := e.past().Exec(t.Context(), "UPDATE tasks SET "+column+" = 'infinity'"); err == nil {
			t.Errorf("the store takes infinity for %s: one such row breaks every list", column)
		}
	}
}

// Text that is not UTF-8 cannot be sent by Go's library: the bytes are written by hand.
func TestTextThatIsNotUTF8(t *testing.T) {
	e := start(t)
	const bad = "\xff\xfe"
	put := func(m proto.Message) []byte {
		raw, err := proto.Marshal(m)
		if err != nil {
			t.Fatal(err)
		}
		return bytes.ReplaceAll(raw, []byte("~~"), []byte(bad))
	}
	one := func(s *errandv1.TaskSpec) proto.Message { return &errandv1.SubmitTaskRequest{Spec: s} }
	before := e.rowCounts()
	for _, c := range []struct {
		rpc   string
		in    proto.Message
		field string
	}{
		{"SubmitTask", one(&errandv1.TaskSpec{Kind: "~~"}), "spec.kind"},
		{"SubmitTask", one(&errandv1.TaskSpec{Kind: "email", Labels: map[string]string{"k": "~~"}}), "spec.labels"},
		{"SubmitTask", one(&errandv1.TaskSpec{Kind: "email", RetryPolicy: &errandv1.RetryPolicy{NonRetryableReasons: []string{"a", "~~"}}}), "spec.retry_policy.non_retryable_reasons[1]"},
		{"SubmitTasks", &errandv1.SubmitTasksRequest{Specs: []*errandv1.TaskSpec{{Kind: "a"}, {Kind: "b", IdempotencyKey: "~~"}}}, "specs[1].idempotency_key"},
		{"GetTask", &errandv1.GetTaskRequest{TaskId: "~~"}, "task_id"},
		{"ListTasks", &errandv1.ListTasksRequest{Filter: &errandv1.TaskFilter{Kinds: []string{"~~"}}}, "filter.kinds[0]"},
	} {
		got := e.post("/errand.v1.TaskService/"+c.rpc, e.acme, "application/proto", put(c.in))
		if got.code != "invalid_argument" || got.detail.GetReason() != reasonMalformed || got.detail.GetField() != c.field {
			t.Errorf("%s: %s, want %s", c.rpc, got, c.field)
		}
	}
	got := e.post("/errand.v1.TaskService/GetTask", e.acme, "application/json", []byte(`{"taskId":"`+bad+`"}`))
	if got.code != "invalid_argument" || got.detail.GetReason() != reasonMalformed {
		t.Errorf("JSON: %s", got)
	}
	garbage := e.post("/errand.v1.TaskService/GetTask", e.acme, "application/proto", []byte("\xff\xff\xff"))
	if garbage.code != "invalid_argument" || garbage.detail.GetReason() != reasonMalformed {
		t.Errorf("garbage: %s", garbage)
	}
	if after := e.rowCounts(); after != before {
		t.Errorf("something was stored: %s, before %s", after, before)
	}
}

func TestMessagesAreBounded(t *testing.T) {
	e := start(t)
	got := e.post("/errand.v1.TaskService/SubmitTask", e.acme, "application/proto", make([]byte, readBytesMax+1))
	if got.status != http.StatusTooManyRequests || got.code != "resource_exhausted" {
		t.Errorf("a message of more than %d bytes: %s", readBytesMax, got)
	}
	got = e.post("/grpc.health.v1.Health/Check", "", "application/proto", make([]byte, probeBytesMax+1))
	if got.code != "resource_exhausted" {
		t.Errorf("a probe of more than %d bytes: %s", probeBytesMax, got)
	}
}

// badChanges are what a waiting task cannot take. Tasks of the kind fax run nowhere.
func badChanges(e *edge) []badInput {
	const rpc = "TaskService/UpdateTask"
	waiting := e.submit(&errandv1.TaskSpec{Kind: "fax", Start: &errandv1.TaskSpec_Delay{Delay: durationpb.New(time.Hour)}}).GetTaskId()
	ended := e.submit(&errandv1.TaskSpec{Kind: "fax"}).GetTaskId()
	if _, err := e.tasks(e.acme).CancelTask(e.t.Context(), &errandv1.CancelTaskRequest{TaskId: ended}); err != nil {
		e.t.Fatal(err)
	}
	change := func(c *errandv1.TaskChanges, mask ...string) proto.Message {
		return &errandv1.UpdateTaskRequest{TaskId: waiting, Changes: c, UpdateMask: &fieldmaskpb.FieldMask{Paths: mask}}
	}
	within := func(d time.Duration) *errandv1.TaskChanges {
		return &errandv1.TaskChanges{Useless: &errandv1.TaskChanges_StartWithin{StartWithin: durationpb.New(d)}}
	}
	startBy := func(at *timestamppb.Timestamp) *errandv1.TaskChanges {
		return &errandv1.TaskChanges{Useless: &errandv1.TaskChanges_StartBy{StartBy: at}}
	}
	runAt := func(at *timestamppb.Timestamp) *errandv1.TaskChanges {
		return &errandv1.TaskChanges{Start: &errandv1.TaskChanges_RunAt{RunAt: at}}
	}
	tolerance := func(tier errandv1.Tier, d time.Duration) *errandv1.TaskChanges {
		return &errandv1.TaskChanges{Tier: tier, DelayTolerance: durationpb.New(d)}
	}
	return []badInput{
		{"nothing", rpc, change(nil), refusedField, "changes"},
		{"nothing, named by the mask", rpc, change(nil, "delay_tolerance"), refusedField, "changes.delay_tolerance"},
		{"a field that there is not", rpc, change(&errandv1.TaskChanges{Tier: 1}, "kind"), refusedField, "update_mask"},
		{"preferences", rpc, change(&errandv1.TaskChanges{Preferences: []*errandv1.Preference{{Weight: 1, Selector: &errandv1.Selector{Key: "a", Operator: 1, Values: []string{"b"}}}}}), reasonNotYetAvailable, "changes.preferences"},
		{"preferences by the mask", rpc, change(nil, "preferences"), reasonNotYetAvailable, "changes.preferences"},
		{"unknown tier", rpc, change(&errandv1.TaskChanges{Tier: 9}), refusedField, "changes.tier"},
		{"too little tolerance", rpc, change(tolerance(0, 10*time.Second-1)), refusedField, "changes.delay_tolerance"},
		{"too little for another tier", rpc, change(tolerance(3, time.Minute)), refusedField, "changes.delay_tolerance"},
		{"too much tolerance", rpc, change(tolerance(0, 31*24*time.Hour)), refusedField, "changes.delay_tolerance"},
		{"start_by that is past", rpc, change(startBy(timestamppb.New(time.Now().Add(-time.Minute)))), refusedField, "changes.start_by"},
		{"start_by of zero", rpc, change(startBy(&timestamppb.Timestamp{})), refusedField, "changes.start_by"},
		{"start_by of the year 10000", rpc, change(startBy(year(10000))), refusedField, "changes.start_by"},
		{"start_within of 0", rpc, change(within(0)), refusedField, "changes.start_within"},
		{"start_within before run_at", rpc, change(within(time.Minute)), refusedField, "changes.start_within"},
		{"run_at of 1969", rpc, change(runAt(year(1969))), refusedField, "changes.run_at"},
		{"run_at of the year 9999", rpc, change(runAt(year(9999))), refusedField, "changes.run_at"},
		{"label with NUL", rpc, change(&errandv1.TaskChanges{Labels: map[string]string{"a": "\x00"}}), refusedField, "changes.labels"},
		{"too many labels", rpc, change(&errandv1.TaskChanges{Labels: manyLabels(33, 1)}), refusedField, "changes.labels"},
		{"now and later", rpc, &errandv1.UpdateTaskRequest{TaskId: waiting, RunNow: true, Changes: runAt(year(2100))}, refusedField, "run_now"},
		{"now and later by the mask", rpc, &errandv1.UpdateTaskRequest{TaskId: waiting, RunNow: true, UpdateMask: &fieldmaskpb.FieldMask{Paths: []string{"delay"}}}, refusedField, "run_now"},
		{"one that has ended", rpc, &errandv1.UpdateTaskRequest{TaskId: ended, RunNow: true}, "TASK_NOT_WAITING", ""},
		{"run_at at the last moment", rpc, change(runAt(&timestamppb.Timestamp{Seconds: timeMax})), "", ""},
		{"the most tolerance", rpc, change(tolerance(3, 30*24*time.Hour)), "", ""},
	}
}
