package main

import (
	"strings"
	"time"
	"unicode/utf8"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/errandhq/errand"
	errandv1 "github.com/errandhq/errand/proto/errand/v1"
)

// The shapes of -o json. Names and meanings never change; new fields may come. What is not known is null.

// taskView is a task. Payload and result are text when they are valid UTF-8; otherwise they are null, and base64 under the
// other name.
type taskView struct {
	TaskID          string            `json:"task_id"`
	Kind            string            `json:"kind"`
	Tenant          string            `json:"tenant"`
	State           string            `json:"state"`
	Tier            string            `json:"tier"`
	Attempt         int64             `json:"attempt"`
	CountedAttempts int               `json:"counted_attempts"`
	Labels          map[string]string `json:"labels"`
	Limits          []string          `json:"limits"` // as --limit takes them
	Payload         *string           `json:"payload"`
	PayloadBase64   []byte            `json:"payload_base64,omitempty"`
	Result          *string           `json:"result"`
	ResultBase64    []byte            `json:"result_base64,omitempty"`
	ResultType      string            `json:"result_type"`
	Reason          string            `json:"reason"`
	Message         string            `json:"message"`
	EffectKey       string            `json:"effect_key"`
	Worker          string            `json:"worker"`
	CancelRequested bool              `json:"cancel_requested"`
	CreatedAt       *time.Time        `json:"created_at"`
	ReadyAt         *time.Time        `json:"ready_at"`
	Due             *time.Time        `json:"due"`
	StartedAt       *time.Time        `json:"started_at"`
	EndedAt         *time.Time        `json:"ended_at"`
	Needs           *needsView        `json:"needs"`
	Selectors       []selectorView    `json:"selectors"`
	Preferences     []selectorView    `json:"preferences"`
	Near            string            `json:"near"`
}

func viewOf(t *errand.Task) taskView {
	v := summaryOf(t)
	v.Payload, v.PayloadBase64 = textOrBytes(t.Payload)
	if t.State == errand.Succeeded {
		v.Result, v.ResultBase64 = textOrBytes(t.Result)
	}
	return v
}

// summaryOf is a task as lists show it: without payload and result.
func summaryOf(t *errand.Task) taskView {
	labels := t.Labels
	if labels == nil {
		labels = map[string]string{}
	}
	return taskView{
		TaskID: t.ID, Kind: t.Kind, Tenant: t.Tenant, State: t.State.String(), Tier: tierWord(t.Tier), Attempt: t.Attempt,
		CountedAttempts: t.CountedAttempts, Labels: labels, ResultType: t.ResultType, Reason: t.Reason, Message: t.Message,
		Limits: limitTexts(t.Limits), EffectKey: t.EffectKey, Worker: t.Worker, CancelRequested: t.CancelRequested, CreatedAt: known(t.CreatedAt),
		ReadyAt: known(t.ReadyAt), Due: known(t.Due), StartedAt: known(t.StartedAt), EndedAt: known(t.EndedAt),
		Needs: needsViewOf(t.Needs), Selectors: selectorViews(t.Selectors), Preferences: preferenceViews(t.Preferences), Near: t.Near,
	}
}

func textOrBytes(b []byte) (text *string, binary []byte) {
	if !utf8.Valid(b) {
		return nil, b
	}
	s := string(b)
	return &s, nil
}

// known is nil for a time that is not known.
func known(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	return &t
}

func stampOf(t *timestamppb.Timestamp) *time.Time {
	if t == nil {
		return nil
	}
	return known(t.AsTime())
}

func tierWord(t errand.Tier) string {
	for word, tier := range tiers {
		if tier == t {
			return word
		}
	}
	return ""
}

// submittedView answers a submit.
type submittedView struct {
	TaskID         string     `json:"task_id"`
	State          string     `json:"state"`
	Existed        bool       `json:"existed"`
	Demoted        bool       `json:"demoted"`
	EstimatedStart *time.Time `json:"estimated_start"`
	AtRisk         string     `json:"at_risk"` // why; empty when it is not
}

// canceledView answers a cancel.
type canceledView struct {
	TaskID   string `json:"task_id"`
	State    string `json:"state"`
	Accepted bool   `json:"accepted"`
}

// createdKeyView is the only one that ever shows a secret.
type createdKeyView struct {
	KeyID  string `json:"key_id"`
	Secret string `json:"secret"`
}

type keyView struct {
	KeyID     string     `json:"key_id"`
	Scope     string     `json:"scope"`
	Tenant    string     `json:"tenant"`
	Kinds     []string   `json:"kinds"`
	Note      string     `json:"note"`
	CreatedAt *time.Time `json:"created_at"`
	RevokedAt *time.Time `json:"revoked_at"`
}

func keyViewOf(k *errandv1.Key) keyView {
	return keyView{
		k.GetKeyId(), wordOf(k.GetScope().String(), "KEY_SCOPE_"), k.GetTenant(), append([]string{}, k.GetKinds()...), k.GetNote(),
		stampOf(k.GetCreatedAt()), stampOf(k.GetRevokedAt()),
	}
}

type workerView struct {
	Worker        string         `json:"worker"`
	Name          string         `json:"name"`
	Tenant        string         `json:"tenant"`
	Slots         map[string]int `json:"slots"` // by kind
	Connected     bool           `json:"connected"`
	Draining      bool           `json:"draining"`
	SilentSeconds float64        `json:"silent_seconds"`

	Cordoned bool              `json:"cordoned"`
	Running  int               `json:"running"`
	Zone     string            `json:"zone"`
	Labels   map[string]string `json:"labels"`
	Capacity *capacityView     `json:"capacity"`
	Version  string            `json:"version"`
}

// capacityView is what a worker has over all kinds; null when it does not say.
type capacityView struct {
	CPUMilli  int32 `json:"cpu_milli"`
	MemoryMiB int32 `json:"memory_mib"`
	GPUs      int32 `json:"gpus"`
	Slots     int32 `json:"slots"` // 0 for no bound but those of the kinds
}

func workerViewOf(w *errandv1.Worker) workerView {
	slots := map[string]int{}
	for _, k := range w.GetKinds() {
		slots[k.GetKind()] = int(k.GetSlots())
	}
	v := workerView{
		Worker: w.GetWorker(), Name: w.GetName(), Tenant: w.GetTenant(), Slots: slots, Connected: w.GetConnected(), Draining: w.GetDraining(),
		SilentSeconds: w.GetSilent().AsDuration().Seconds(), Cordoned: w.GetCordoned(), Running: int(w.GetRunning()), Zone: w.GetZone(),
		Labels: w.GetLabels(), Version: w.GetVersion(),
	}
	if v.Labels == nil {
		v.Labels = map[string]string{}
	}
	if c := w.GetCapacity(); c != nil {
		v.Capacity = &capacityView{c.GetCpuMilli(), c.GetMemoryMib(), c.GetGpus(), c.GetSlots()}
	}
	return v
}

type auditView struct {
	OK       bool          `json:"ok"`
	Balances []balanceView `json:"balances"`
	Findings []findingView `json:"findings"`
}

type balanceView struct {
	Tenant   string `json:"tenant"`
	Tier     string `json:"tier"`
	Accepted int64  `json:"accepted"`
	Ended    int64  `json:"ended"`
	Open     int64  `json:"open"`
}

type findingView struct {
	Reason        string `json:"reason"`
	Rows          int64  `json:"rows"`
	ExampleTaskID string `json:"example_task_id"`
	Message       string `json:"message"`
}

func auditViewOf(r *errandv1.AuditResponse) auditView {
	v := auditView{OK: len(r.GetFindings()) == 0, Balances: []balanceView{}, Findings: []findingView{}}
	for _, b := range r.GetBalances() {
		v.Balances = append(v.Balances, balanceView{
			b.GetTenant(), wordOf(b.GetTier().String(), "TIER_"), b.GetAccepted(), b.GetEnded(), b.GetOpen(),
		})
	}
	for _, f := range r.GetFindings() {
		v.Findings = append(v.Findings, findingView{f.GetReason(), f.GetRows(), f.GetExampleTaskId(), f.GetMessage()})
	}
	return v
}

// wordOf is an enum's value in small letters.
func wordOf(name, prefix string) string { return strings.ToLower(strings.TrimPrefix(name, prefix)) }
