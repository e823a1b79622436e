package api

import (
	"fmt"
	"math"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	errandv1 "github.com/errandhq/errand/proto/errand/v1"
)

// badSettings are what operators may and may not set for tenants, kinds and limits, and how tasks may name limits.
func badSettings() []badInput {
	cases := append(badTenantNumbers(), badKindDefaults()...)
	cases = append(cases, badLimits()...)
	return append(cases, badSettingNames()...)
}

func badTenantNumbers() []badInput {
	var cases []badInput
	put := func(what string, in proto.Message, field string) {
		reason := refusedField
		if field == "" {
			reason = ""
		}
		rpc := "AdminService/" + strings.TrimSuffix(string(in.ProtoReflect().Descriptor().Name()), "Request")
		cases = append(cases, badInput{what, rpc, in, reason, field})
	}
	for i, rate := range []float64{-1, math.Inf(1), math.Inf(-1), math.NaN(), 1_000_001, math.MaxFloat64, 0, 0.001, 1_000_000} {
		fields := []string{"rate", "urgent_rate", "start_rate"}
		if i >= 6 {
			fields = []string{"", "", ""}
		}
		what := fmt.Sprintf("rate of %v", rate)
		put(what, &errandv1.UpdateTenantRequest{Name: "acme", Rate: &rate}, fields[0])
		put(what, &errandv1.UpdateTenantRequest{Name: "acme", UrgentRate: &rate}, fields[1])
		put(what, &errandv1.UpdateTenantRequest{Name: "acme", StartRate: &rate}, fields[2])
		if fields[0] != "" {
			put(what, &errandv1.CreateTenantRequest{Name: "umbrella", Rate: &rate}, fields[0])
		}
	}
	for n, field := range map[int32]string{-1: "burst", 0: "", 10_000_000: "", 10_000_001: "burst", math.MinInt32: "burst"} {
		put(fmt.Sprintf("burst of %d", n), &errandv1.UpdateTenantRequest{Name: "acme", Burst: &n}, field)
	}
	for n, bad := range map[int64]bool{-1: true, 0: false, 1: false, math.MaxInt64: false, math.MinInt64: true} {
		open, running := "", ""
		if bad {
			open, running = "max_open", "max_running"
		}
		put(fmt.Sprintf("max_open of %d", n), &errandv1.UpdateTenantRequest{Name: "acme", MaxOpen: &n}, open)
		put(fmt.Sprintf("max_running of %d", n), &errandv1.UpdateTenantRequest{Name: "acme", MaxRunning: &n}, running)
	}
	return cases
}

func badKindDefaults() []badInput {
	const rpc = "AdminService/PutKind"
	const day = 24 * time.Hour
	put := func(name string, d *errandv1.KindDefaults, field string) badInput {
		c := badInput{name, rpc, &errandv1.PutKindRequest{Kind: &errandv1.Kind{Tenant: "acme", Name: "email", Defaults: d}}, refusedField, "kind.defaults." + field}
		if field == "" {
			c.reason, c.field = "", ""
		}
		return c
	}
	number := func(n int32) *int32 { return &n }
	return []badInput{
		put("requirements", &errandv1.KindDefaults{Requirements: &errandv1.Requirements{CpuMilli: 1}}, ""),
		put("devices and a share of one", &errandv1.KindDefaults{Requirements: &errandv1.Requirements{Gpus: 1, GpuMilli: 1}}, "requirements.gpu_milli"),
		put("less than no memory", &errandv1.KindDefaults{Requirements: &errandv1.Requirements{MemoryMib: -1}}, "requirements.memory_mib"),
		put("empty requirements", &errandv1.KindDefaults{Requirements: &errandv1.Requirements{}}, ""),
		put("unknown tier", &errandv1.KindDefaults{Tier: 9}, "tier"),
		put("tolerance of 0", &errandv1.KindDefaults{Tier: 1, DelayTolerance: durationpb.New(0)}, "delay_tolerance"),
		put("tolerance of 1 ns", &errandv1.KindDefaults{Tier: 1, DelayTolerance: durationpb.New(1)}, ""),
		put("tolerance of a month and more", &errandv1.KindDefaults{DelayTolerance: durationpb.New(30*day + 1)}, "delay_tolerance"),
		put("tolerance too far", &errandv1.KindDefaults{DelayTolerance: &durationpb.Duration{Seconds: maxDuration}}, "delay_tolerance"),
		put("tolerance too short for standard", &errandv1.KindDefaults{DelayTolerance: durationpb.New(10*time.Second - 1)}, "delay_tolerance"),
		put("tolerance of the least", &errandv1.KindDefaults{DelayTolerance: durationpb.New(10 * time.Second)}, ""),
		put("tolerance too short for deferrable", &errandv1.KindDefaults{Tier: 3, DelayTolerance: durationpb.New(time.Minute)}, "delay_tolerance"),
		put("timeout of 0", &errandv1.KindDefaults{AttemptTimeout: durationpb.New(0)}, "attempt_timeout"),
		put("timeout of a week and more", &errandv1.KindDefaults{AttemptTimeout: durationpb.New(7*day + 1)}, "attempt_timeout"),
		put("no attempts", &errandv1.KindDefaults{MaxAttempts: number(0)}, "max_attempts"),
		put("1001 attempts", &errandv1.KindDefaults{MaxAttempts: number(1001)}, "max_attempts"),
		put("no losses", &errandv1.KindDefaults{MaxWorkerLosses: number(0)}, "max_worker_losses"),
		put("101 losses", &errandv1.KindDefaults{MaxWorkerLosses: number(101)}, "max_worker_losses"),
		put("multiplier that is not a number", &errandv1.KindDefaults{RetryPolicy: &errandv1.RetryPolicy{Multiplier: math.NaN()}}, "retry_policy.multiplier"),
		put("infinite multiplier", &errandv1.KindDefaults{RetryPolicy: &errandv1.RetryPolicy{Multiplier: math.Inf(1)}}, "retry_policy.multiplier"),
		put("reason with NUL", &errandv1.KindDefaults{RetryPolicy: &errandv1.RetryPolicy{NonRetryableReasons: []string{"\x00"}}}, "retry_policy.non_retryable_reasons[0]"),
		put("max_backoff below initial_backoff", &errandv1.KindDefaults{RetryPolicy: &errandv1.RetryPolicy{
			InitialBackoff: durationpb.New(time.Minute), MaxBackoff: durationpb.New(time.Second),
		}}, "retry_policy.max_backoff"),
		put("nothing", nil, ""),
	}
}

func badLimits() []badInput {
	put := func(name string, l *errandv1.NamedLimit, field string) badInput {
		l.Tenant, l.Name = "acme", "api"
		c := badInput{name, "AdminService/PutLimit", &errandv1.PutLimitRequest{Limit: l}, refusedField, "limit." + field}
		if field == "" {
			c.reason, c.field = "", ""
		}
		return c
	}
	global := put("global", &errandv1.NamedLimit{Global: true}, "global")
	global.reason = reasonNotYetAvailable
	cases := []badInput{
		global,
		put("concurrency of -1", &errandv1.NamedLimit{Concurrency: -1}, "concurrency"),
		put("concurrency of 0", &errandv1.NamedLimit{Concurrency: 0}, ""),
		put("most concurrency", &errandv1.NamedLimit{Concurrency: 10_000_000}, ""),
		put("more", &errandv1.NamedLimit{Concurrency: 10_000_001}, "concurrency"),
		put("most rate", &errandv1.NamedLimit{Rate: 1_000_000}, ""),
	}
	for _, rate := range []float64{-1, math.NaN(), math.Inf(1), math.Inf(-1), 1_000_001} {
		cases = append(cases, put(fmt.Sprintf("rate of %v", rate), &errandv1.NamedLimit{Rate: rate}, "rate"))
	}
	of := func(name string, field string, limits ...*errandv1.Limit) badInput {
		c := badInput{name, "TaskService/SubmitTask", spec(func(s *errandv1.TaskSpec) { s.Limits = limits }), refusedField, "spec." + field}
		if field == "" {
			c.reason, c.field = "", ""
		}
		return c
	}
	one := &errandv1.Limit{Name: "api", Key: "k"}
	return append(cases,
		of("a limit", "", one),
		of("a limit that nobody has set", "", &errandv1.Limit{Name: "unheard-of"}),
		of("two keys of a limit", "", one, &errandv1.Limit{Name: "api"}),
		of("the same limit twice", "limits[2]", one, &errandv1.Limit{Name: "api"}, one),
		of("a limit without a name", "limits[0].name", &errandv1.Limit{Key: "k"}),
		of("a limit with a bad name", "limits[0].name", &errandv1.Limit{Name: "a/b"}),
		of("a key with NUL", "limits[0].key", &errandv1.Limit{Name: "api", Key: "\x00"}),
		of("the longest key", "", &errandv1.Limit{Name: "api", Key: strings.Repeat("k", 255)}),
		of("a longer one", "limits[0].key", &errandv1.Limit{Name: "api", Key: strings.Repeat("k", 256)}),
		of("nine limits", "limits", one, one, one, one, one, one, one, one, one),
	)
}

// badSettingNames are names that are none, or that nobody has.
func badSettingNames() []badInput {
	cases := []badInput{
		{"no kind", "AdminService/PutKind", &errandv1.PutKindRequest{}, refusedField, "kind"},
		{"no limit", "AdminService/PutLimit", &errandv1.PutLimitRequest{}, refusedField, "limit"},
		{"a kind of nobody", "AdminService/PutKind", &errandv1.PutKindRequest{Kind: &errandv1.Kind{Tenant: "nobody", Name: "email"}}, "TENANT_NOT_FOUND", ""},
		{"a limit of nobody", "AdminService/PutLimit", &errandv1.PutLimitRequest{Limit: &errandv1.NamedLimit{Tenant: "nobody", Name: "api"}}, "TENANT_NOT_FOUND", ""},
		{"a bad kind", "AdminService/PutKind", &errandv1.PutKindRequest{Kind: &errandv1.Kind{Tenant: "acme", Name: "E mail"}}, refusedField, "kind.name"},
		{"a bad limit", "AdminService/PutLimit", &errandv1.PutLimitRequest{Limit: &errandv1.NamedLimit{Tenant: "acme", Name: "a/b"}}, refusedField, "limit.name"},
		{"a tenant with NUL", "AdminService/PutKind", &errandv1.PutKindRequest{Kind: &errandv1.Kind{Tenant: "\x00", Name: "email"}}, refusedField, "kind.tenant"},
		{"pause of a bad kind", "AdminService/PauseKind", &errandv1.PauseKindRequest{Tenant: "acme", Name: "E mail"}, refusedField, "name"},
		{"pause of a kind of nobody", "AdminService/PauseKind", &errandv1.PauseKindRequest{Tenant: "nobody", Name: "email"}, "TENANT_NOT_FOUND", ""},
		{"resume of nothing", "AdminService/ResumeKind", &errandv1.ResumeKindRequest{Tenant: "acme", Name: "nothing"}, "KIND_NOT_FOUND", ""},
		{"resume of a kind of nobody", "AdminService/ResumeKind", &errandv1.ResumeKindRequest{Tenant: "nobody", Name: "email"}, "TENANT_NOT_FOUND", ""},
		{"a kind that is not stored", "AdminService/GetKind", &errandv1.GetKindRequest{Tenant: "acme", Name: "nothing"}, "KIND_NOT_FOUND", ""},
		{"a kind of nobody's", "AdminService/GetKind", &errandv1.GetKindRequest{Tenant: "nobody", Name: "email"}, "TENANT_NOT_FOUND", ""},
		{"kinds of nobody", "AdminService/ListKinds", &errandv1.ListKindsRequest{Tenant: "nobody"}, "TENANT_NOT_FOUND", ""},
		{"a limit that is not stored", "AdminService/DeleteLimit", &errandv1.DeleteLimitRequest{Tenant: "acme", Name: "nothing"}, "LIMIT_NOT_FOUND", ""},
		{"a limit of nobody's", "AdminService/DeleteLimit", &errandv1.DeleteLimitRequest{Tenant: "nobody", Name: "api"}, "TENANT_NOT_FOUND", ""},
		{"limits of nobody", "AdminService/ListLimits", &errandv1.ListLimitsRequest{Tenant: "nobody"}, "TENANT_NOT_FOUND", ""},
	}
	for name, tenant := range map[string]struct{ tenant, reason, field string }{
		"nobody": {"nobody", "TENANT_NOT_FOUND", ""}, "no name": {"", refusedField, "name"}, "a name with NUL": {"\x00", refusedField, "name"},
		"a long name": {strings.Repeat("a", 64), refusedField, "name"},
	} {
		cases = append(cases,
			badInput{name, "AdminService/PauseTenant", &errandv1.PauseTenantRequest{Name: tenant.tenant}, tenant.reason, tenant.field},
			badInput{name, "AdminService/ResumeTenant", &errandv1.ResumeTenantRequest{Name: tenant.tenant}, tenant.reason, tenant.field},
			badInput{name, "AdminService/DeleteTenant", &errandv1.DeleteTenantRequest{Name: tenant.tenant}, tenant.reason, tenant.field})
	}
	for n, field := range map[int32]string{-1: "page_size", 501: "page_size", math.MaxInt32: "page_size"} {
		cases = append(cases,
			badInput{"page_size", "AdminService/ListKinds", &errandv1.ListKindsRequest{Tenant: "acme", PageSize: n}, refusedField, field},
			badInput{"page_size", "AdminService/ListLimits", &errandv1.ListLimitsRequest{Tenant: "acme", PageSize: n}, refusedField, field})
	}
	return cases
}
