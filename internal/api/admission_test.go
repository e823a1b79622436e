package api

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/errandhq/errand/fairness/tokenbucket"
	"github.com/errandhq/errand/internal/testdb"
	errandv1 "github.com/errandhq/errand/proto/errand/v1"
	"github.com/errandhq/errand/scheduler"
)

// acmeSet is what operators have set for acme and its kind email; nothing for anybody else.
type acmeSet struct {
	mu     sync.Mutex
	tenant scheduler.TenantSettings
	email  scheduler.KindDefaults
}

func acmeHas(t scheduler.TenantSettings) *acmeSet {
	t.Tenant = "acme"
	return &acmeSet{tenant: t}
}

func (s *acmeSet) set(change func(*scheduler.TenantSettings)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change(&s.tenant)
}

func (s *acmeSet) Tenant(name string) (scheduler.TenantSettings, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.tenant, name == "acme"
}

func (s *acmeSet) Kind(tenant, kind string) (scheduler.KindSettings, bool) {
	if tenant != "acme" || kind != "email" {
		return scheduler.KindSettings{}, false
	}
	return scheduler.KindSettings{Tenant: tenant, Kind: kind, Defaults: s.email}, true
}

// allow are buckets with as much as a test says, for all tenants together.
type allow struct {
	mu            sync.Mutex
	tasks, urgent int
	asks          []tokenbucket.Ask
}

// The waits that allow answers with.
const (
	untilOne    = 700 * time.Millisecond
	untilUrgent = 1300 * time.Millisecond
)

func (a *allow) Admit(_ context.Context, asks []tokenbucket.Ask) []tokenbucket.Answer {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.asks = append(a.asks, asks...)
	answers := make([]tokenbucket.Answer, len(asks))
	for i, ask := range asks {
		got := &answers[i]
		got.Granted = min(ask.Tasks, a.tasks)
		got.Urgent = min(ask.Urgent, got.Granted, a.urgent)
		a.tasks, a.urgent = a.tasks-got.Granted, a.urgent-got.Urgent
		if got.Granted < ask.Tasks {
			got.RetryAfter = untilOne
		}
		if got.Urgent < min(ask.Urgent, got.Granted) {
			got.UrgentAfter = untilUrgent
		}
	}
	return answers
}

func (a *allow) give(tasks, urgent int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.tasks, a.urgent = tasks, urgent
}

// told counts what the intake tells.
type told struct {
	mu    sync.Mutex
	tasks map[string]int
	asked int
}

func (o *told) Admitted(outcome string, n int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.tasks == nil {
		o.tasks = map[string]int{}
	}
	o.tasks[outcome] += n
}

func (o *told) Asked(time.Duration) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.asked++
}

// with admits by these buckets and settings.
func with(buckets Admission, set Settings, o AdmissionObserver) func(*Config) {
	return func(c *Config) {
		c.Admission, c.Settings, c.Admitted = buckets, set, o
	}
}

func (e *edge) try(key string, spec *errandv1.TaskSpec) (*errandv1.SubmitTaskResponse, error) {
	return e.tasks(key).SubmitTask(e.t.Context(), &errandv1.SubmitTaskRequest{Spec: spec})
}

// wantRefused compares a refusal's code, reason and time.
func wantRefused(t *testing.T, err error, reason string, after time.Duration) {
	t.Helper()
	if err == nil {
		t.Errorf("admitted, want %s", reason)
		return
	}
	if d := detail(t, err); connect.CodeOf(err) != connect.CodeResourceExhausted || d.GetReason() != reason || d.GetRetryAfter().AsDuration() != after {
		t.Errorf("%v, %v; want %s and %v", err, d, reason, after)
	}
}

func TestOverTheRate(t *testing.T) {
	buckets, counts := &allow{tasks: 1}, &told{}
	e := start(t, with(buckets, acmeHas(scheduler.TenantSettings{Rate: 10, Burst: 7}), counts))
	e.submit(&errandv1.TaskSpec{Kind: "email"})
	before := e.rowCounts()
	_, err := e.try(e.acme, &errandv1.TaskSpec{Kind: "email", IdempotencyKey: "new"})
	wantRefused(t, err, "OVER_RATE", untilOne)
	if !strings.Contains(err.Error(), "try again in 700ms") {
		t.Errorf("people are not told when: %v", err)
	}
	if got := e.rowCounts(); got != before {
		t.Errorf("a refused submit left %s, before %s", got, before)
	}
	if got, err := e.try(e.globex, &errandv1.TaskSpec{Kind: "email"}); err != nil {
		t.Errorf("a tenant without a rate: %v, %v", got, err)
	}
	want := tokenbucket.Ask{Tenant: "acme", Policy: tokenbucket.Policy{Rate: 10, Burst: 7}, Tasks: 1}
	if len(buckets.asks) != 2 || buckets.asks[0] != want {
		t.Errorf("asked %+v, want twice %+v", buckets.asks, want)
	}
	if got := fmt.Sprint(counts.tasks, counts.asked); got != "map[admitted:2 over_rate:1] 2" {
		t.Errorf("told %s", got)
	}
}

// Of a batch the first tasks are stored, and each of the others knows when its turn would be.
func TestABatchOverTheRate(t *testing.T) {
	buckets := &allow{tasks: 2}
	e := start(t, with(buckets, acmeHas(scheduler.TenantSettings{Rate: 10}), nil))
	past := durationpb.New(time.Nanosecond)
	batch, err := e.tasks(e.acme).SubmitTasks(t.Context(), &errandv1.SubmitTasksRequest{Specs: []*errandv1.TaskSpec{
		{Kind: "email"},
		{Kind: "email", Start: &errandv1.TaskSpec_Delay{Delay: durationpb.New(time.Hour)}, Useless: &errandv1.TaskSpec_StartWithin{StartWithin: past}},
		{Kind: "email"},
		{Kind: "email"},
		{Kind: "email"},
	}})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, o := range batch.GetOutcomes() {
		text := "stored"
		if e := o.GetError(); e != nil {
			text = fmt.Sprint(e.GetCode(), " ", e.GetDetail().GetReason(), " ", e.GetDetail().GetRetryAfter().AsDuration())
		}
		got = append(got, text)
	}
	want := "stored, invalid_argument INVALID_FIELD 0s, stored, resource_exhausted OVER_RATE 700ms, resource_exhausted OVER_RATE 800ms"
	if text := strings.Join(got, ", "); text != want {
		t.Errorf("%s\nwant %s", text, want)
	}
	if n := e.sql(`SELECT count(*)::text FROM tasks`); n != "2" {
		t.Errorf("%s tasks are stored", n)
	}
}

// P5: who sends a request again gets its answer at any rate, also when it was demoted; another request under the key is told so.
func TestResentOverTheRate(t *testing.T) {
	buckets, counts := &allow{tasks: 1}, &told{}
	acme := acmeHas(scheduler.TenantSettings{Rate: 10, UrgentRate: 1, MaxOpen: 1})
	e := start(t, with(buckets, acme, counts))
	keyed := func() *errandv1.TaskSpec {
		return &errandv1.TaskSpec{Kind: "email", IdempotencyKey: "k", Tier: errandv1.Tier_TIER_URGENT}
	}
	first := e.submit(keyed())
	if !first.GetDemoted() || first.GetExisted() {
		t.Fatalf("the first: %v", first)
	}
	again := func(when string) {
		t.Helper()
		got, err := e.try(e.acme, keyed())
		if err != nil || got.GetTaskId() != first.GetTaskId() || !got.GetExisted() || got.GetDemoted() || got.GetState() != first.GetState() {
			t.Errorf("the same again %s: %v, %v", when, got, err)
		}
	}
	again("with as many open tasks as there may be")
	acme.set(func(t *scheduler.TenantSettings) { t.MaxOpen = 0 })
	again("over the rate")
	buckets.give(1, 0)
	again("within the rate, over the urgent one")
	buckets.give(1, 1)
	again("within both")
	other := keyed()
	other.Payload = []byte("other")
	buckets.give(0, 0)
	if _, err := e.try(e.acme, other); err == nil || detail(t, err).GetReason() != "KEY_REUSED" || detail(t, err).GetTaskId() != first.GetTaskId() {
		t.Errorf("another request under the key: %v", err)
	}
	batch, err := e.tasks(e.acme).SubmitTasks(t.Context(), &errandv1.SubmitTasksRequest{Specs: []*errandv1.TaskSpec{{Kind: "email"}, keyed(), other}})
	if err != nil {
		t.Fatal(err)
	}
	o := batch.GetOutcomes()
	if o[0].GetError().GetDetail().GetReason() != "OVER_RATE" || o[1].GetAccepted().GetTaskId() != first.GetTaskId() || o[2].GetError().GetDetail().GetReason() != "KEY_REUSED" {
		t.Errorf("in a batch: %v", o)
	}
	if counts.tasks["existed"] != 5 {
		t.Errorf("told %v", counts.tasks)
	}
}

// A task that is demoted is what it would be as a standard one: tier, tolerance, due. What it says of its start stays.
func TestDemotion(t *testing.T) {
	acme := acmeHas(scheduler.TenantSettings{UrgentRate: 1})
	acme.email = scheduler.KindDefaults{Tolerance: 20 * time.Minute} // for the kind's tier, standard
	e := start(t, with(&allow{tasks: 1000}, acme, nil))
	for name, c := range map[string]struct {
		spec *errandv1.TaskSpec
		want time.Duration
	}{
		"nothing said":                          {&errandv1.TaskSpec{Kind: "sms"}, time.Minute},
		"with the kind's tolerance":             {&errandv1.TaskSpec{Kind: "email"}, 20 * time.Minute},
		"with one that is too short for it now": {&errandv1.TaskSpec{Kind: "email", DelayTolerance: durationpb.New(2 * time.Second)}, 10 * time.Second},
		"with one of its own":                   {&errandv1.TaskSpec{Kind: "email", DelayTolerance: durationpb.New(time.Hour)}, time.Hour},
	} {
		c.spec.Tier = errandv1.Tier_TIER_URGENT
		c.spec.Useless = &errandv1.TaskSpec_StartWithin{StartWithin: durationpb.New(5 * time.Minute)}
		got := e.submit(c.spec)
		task := e.get(got.GetTaskId())
		wait := task.GetDue().AsTime().Sub(task.GetReadyAt().AsTime())
		if !got.GetDemoted() || task.GetSpec().GetTier() != errandv1.Tier_TIER_STANDARD || wait != c.want || task.GetSpec().GetDelayTolerance().AsDuration() != c.want {
			t.Errorf("%s: %v, %v, due %v after it was ready, want %v", name, got, task.GetSpec(), wait, c.want)
		}
		if left := task.GetSpec().GetStartBy().AsTime().Sub(task.GetCreatedAt().AsTime()); left < 4*time.Minute || left > 6*time.Minute {
			t.Errorf("%s: useless %v after it came, want 5m", name, left)
		}
	}
	for name, spec := range map[string]*errandv1.TaskSpec{"standard": {Kind: "email"}, "deferrable": {Kind: "email", Tier: errandv1.Tier_TIER_DEFERRABLE}} {
		got := e.submit(spec)
		if tier := e.get(got.GetTaskId()).GetSpec().GetTier(); got.GetDemoted() || spec.GetTier() != 0 && tier != spec.GetTier() {
			t.Errorf("a %s task is stored as %v: %v", name, tier, got)
		}
	}
}

// A kind whose tasks are urgent by default is demoted like any other urgent task.
func TestDemotionOfAnUrgentKind(t *testing.T) {
	acme := acmeHas(scheduler.TenantSettings{UrgentRate: 1})
	acme.email = scheduler.KindDefaults{Tier: scheduler.Urgent, Tolerance: 3 * time.Second}
	e := start(t, with(&allow{tasks: 1000, urgent: 1}, acme, nil))
	for i, want := range []struct {
		demoted   bool
		tier      errandv1.Tier
		tolerance time.Duration
	}{{false, errandv1.Tier_TIER_URGENT, 3 * time.Second}, {true, errandv1.Tier_TIER_STANDARD, time.Minute}} {
		got := e.submit(&errandv1.TaskSpec{Kind: "email"})
		spec := e.get(got.GetTaskId()).GetSpec()
		if got.GetDemoted() != want.demoted || spec.GetTier() != want.tier || spec.GetDelayTolerance().AsDuration() != want.tolerance {
			t.Errorf("submit %d: %v, %v; want %+v", i+1, got, spec, want)
		}
	}
}

// In a batch the first urgent tasks stay urgent; the others are demoted, or refused where the tenant wants that.
func TestUrgentTasksOfABatch(t *testing.T) {
	buckets, counts := &allow{}, &told{}
	acme := acmeHas(scheduler.TenantSettings{Rate: 10, UrgentRate: 1})
	e := start(t, with(buckets, acme, counts))
	submit := func() string {
		t.Helper()
		buckets.give(5, 1)
		urgent := func() *errandv1.TaskSpec { return &errandv1.TaskSpec{Kind: "email", Tier: errandv1.Tier_TIER_URGENT} }
		batch, err := e.tasks(e.acme).SubmitTasks(t.Context(), &errandv1.SubmitTasksRequest{Specs: []*errandv1.TaskSpec{
			{Kind: "email"}, urgent(), urgent(), {Kind: "email"}, urgent(), urgent(),
		}})
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, o := range batch.GetOutcomes() {
			if one := o.GetAccepted(); one != nil {
				tier := scheduler.Tier(e.get(one.GetTaskId()).GetSpec().GetTier())
				if one.GetDemoted() {
					got = append(got, "demoted to "+tier.String())
					continue
				}
				got = append(got, tier.String())
				continue
			}
			d := o.GetError().GetDetail()
			got = append(got, fmt.Sprint(d.GetReason(), " ", d.GetRetryAfter().AsDuration()))
		}
		return strings.Join(got, ", ")
	}
	if got, want := submit(), "standard, urgent, demoted to standard, standard, demoted to standard, OVER_RATE 700ms"; got != want {
		t.Errorf("%s\nwant %s", got, want)
	}
	acme.set(func(t *scheduler.TenantSettings) { t.RefuseUrgent = true })
	if got, want := submit(), "standard, urgent, OVER_URGENT_RATE 1.3s, standard, OVER_URGENT_RATE 1.3s, OVER_RATE 700ms"; got != want {
		t.Errorf("%s\nwant %s", got, want)
	}
	if got, want := fmt.Sprint(counts.tasks), "map[admitted:6 demoted:2 over_rate:2 over_urgent_rate:2]"; got != want {
		t.Errorf("told %s, want %s", got, want)
	}
}

// The cap on open tasks holds over batches and single submits, from before this instance was there, and lets in again what has ended.
func TestMaxOpen(t *testing.T) {
	acme := acmeHas(scheduler.TenantSettings{MaxOpen: 5})
	first := start(t)
	for range 3 {
		first.submit(&errandv1.TaskSpec{Kind: "email"})
	}
	counts := &told{}
	e := startOver(t, first.dsn, with(&allow{}, acme, counts))
	e.acme, e.globex = first.acme, first.globex
	batch, err := e.tasks(e.acme).SubmitTasks(t.Context(), &errandv1.SubmitTasksRequest{Specs: []*errandv1.TaskSpec{
		{Kind: "email"}, {Kind: "email"}, {Kind: "email"},
	}})
	if err != nil {
		t.Fatal(err)
	}
	o := batch.GetOutcomes()
	if o[0].GetAccepted() == nil || o[1].GetAccepted() == nil || o[2].GetError().GetDetail().GetReason() != "TOO_MANY_OPEN" {
		t.Errorf("a batch of 3 with room for 2: %v", o)
	}
	_, err = e.try(e.acme, &errandv1.TaskSpec{Kind: "email"})
	wantRefused(t, err, "TOO_MANY_OPEN", openRetryAfter)
	if _, err := e.try(e.globex, &errandv1.TaskSpec{Kind: "email"}); err != nil {
		t.Errorf("a tenant without a cap: %v", err)
	}
	w := e.worker(e.acme, 1, "email")
	a := w.take()
	w.finish(succeeded(a, nil))
	eventually(t, "room after an end", func() bool {
		_, err := e.try(e.acme, &errandv1.TaskSpec{Kind: "email"})
		return err == nil
	})
	acme.set(func(t *scheduler.TenantSettings) { t.MaxOpen = 0 })
	e.submit(&errandv1.TaskSpec{Kind: "email"})
	if counts.tasks["too_many_open"] < 2 || counts.asked != 0 {
		t.Errorf("told %v, %d questions about tokens", counts.tasks, counts.asked)
	}
}

// Real buckets: tenants do not take each other's tokens, and when Redis dies, its twin goes on where it was.
func TestAdmissionByRedis(t *testing.T) {
	r := testdb.Redis(t)
	buckets, err := tokenbucket.Open(r.URL(), region, tokenbucket.Options{CallMax: patience})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = buckets.Close() })
	const slow, burst = 0.001, 6 // nothing comes back while the test runs
	both := bothHave{scheduler.TenantSettings{Rate: slow, Burst: burst}}
	e := start(t, with(buckets, both, nil))
	submit := func(key string, n int) (stored int) {
		t.Helper()
		specs := make([]*errandv1.TaskSpec, n)
		for i := range specs {
			specs[i] = &errandv1.TaskSpec{Kind: "email"}
		}
		batch, err := e.tasks(key).SubmitTasks(t.Context(), &errandv1.SubmitTasksRequest{Specs: specs})
		if err != nil {
			t.Fatal(err)
		}
		for i, o := range batch.GetOutcomes() {
			if o.GetAccepted() != nil {
				stored++
				continue
			}
			// In the order of the batch, a token for each.
			least := time.Duration(float64(i-stored) / slow * float64(time.Second))
			if after := o.GetError().GetDetail().GetRetryAfter().AsDuration(); after < least || o.GetError().GetDetail().GetReason() != "OVER_RATE" {
				t.Errorf("%v, want at least %v", o.GetError(), least)
			}
		}
		return stored
	}
	if n := submit(e.acme, burst-2); n != burst-2 {
		t.Errorf("%d of acme's first tasks are stored", n)
	}
	if n := submit(e.globex, burst+3); n != burst {
		t.Errorf("%d of globex's tasks are stored, want %d", n, burst)
	}
	r.Kill()
	if n := submit(e.acme, burst); n != 2 {
		t.Errorf("%d tasks are stored after Redis died, want the 2 that were left", n)
	}
	if n := submit(e.globex, 1); n != 0 {
		t.Errorf("%d of globex's tasks are stored after Redis died, want none", n)
	}
	if s := buckets.Status(); s.ByRedis != 2 || s.ByTwin != 2 {
		t.Errorf("%+v", s)
	}
}

// bothHave are the same settings for everybody.
type bothHave struct{ set scheduler.TenantSettings }

func (b bothHave) Tenant(string) (scheduler.TenantSettings, bool) { return b.set, true }

func (bothHave) Kind(string, string) (scheduler.KindSettings, bool) {
	return scheduler.KindSettings{}, false
}
