package api

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/errandhq/errand/internal/store"
	peerv1 "github.com/errandhq/errand/proto/errand/peer/v1"
	errandv1 "github.com/errandhq/errand/proto/errand/v1"
)

// apiServices are all services of the port.
func apiServices() []protoreflect.ServiceDescriptor {
	var all []protoreflect.ServiceDescriptor
	for _, file := range []protoreflect.FileDescriptor{
		errandv1.File_errand_v1_task_service_proto, errandv1.File_errand_v1_schedule_service_proto,
		errandv1.File_errand_v1_worker_service_proto, errandv1.File_errand_v1_admin_service_proto, peerv1.File_errand_peer_v1_peer_proto,
	} {
		for i := range file.Services().Len() {
			all = append(all, file.Services().Get(i))
		}
	}
	return all
}

// rpcRow is a good request to an RPC, and what it answers those who may ask: "" is OK.
type rpcRow struct {
	body  string
	want  string
	other string // for another tenant's key, when that differs
}

const (
	later501   = "unimplemented"
	notFound   = "not_found"
	someToken  = `{"id":"AAAAAAAAAAAAAAAAAAAAAA==","attempt":"1"}`
	someWorker = "9b2c4f1e-8a3d-4c5b-9e7f-0a1b2c3d4e5f"
)

// rpcRows has a row for every RPC. TASK stands for a task of acme's.
var rpcRows = map[string]rpcRow{
	"TaskService.SubmitTask":   {body: `{"spec":{"kind":"email"}}`},
	"TaskService.SubmitTasks":  {body: `{"specs":[{"kind":"email"}]}`},
	"TaskService.SubmitGraph":  {body: `{"tasks":[{"name":"a","spec":{"kind":"email"}}]}`},
	"TaskService.GetGraph":     {body: `{"graphId":"TASK"}`, want: notFound}, // the task was submitted without one
	"TaskService.CancelGraph":  {body: `{"graphId":"TASK"}`, want: notFound},
	"TaskService.GetTask":      {body: `{"taskId":"TASK"}`, other: notFound},
	"TaskService.WaitTask":     {body: `{"taskId":"TASK","timeout":"0s"}`, other: notFound},
	"TaskService.ListTasks":    {body: `{}`},
	"TaskService.UpdateTask":   {body: `{"taskId":"TASK","runNow":true}`, other: notFound},
	"TaskService.CancelTask":   {body: `{"taskId":"TASK"}`, other: notFound},
	"TaskService.CancelTasks":  {body: `{"filter":{}}`, want: later501},
	"TaskService.RedriveTasks": {body: `{"taskIds":["TASK"]}`, want: later501},
	"TaskService.GetOperation": {body: `{"operationId":"op-1"}`, want: later501},
	"TaskService.ExplainTask":  {body: `{"taskId":"TASK"}`, other: notFound},
	"TaskService.WatchTasks":   {body: `{"taskIds":["eu.bad"]}`, want: "invalid_argument"}, // a good one waits
	"TaskService.CompleteTask": {body: `{"taskId":"TASK","attempt":"1","worker":"` + someWorker + `","succeeded":{}}`, want: later501},

	"ScheduleService.CreateSchedule":  {body: `{"name":"s","spec":{"expression":"@daily","task":{"kind":"email"}}}`, want: later501},
	"ScheduleService.UpdateSchedule":  {body: `{"name":"s","spec":{"expression":"@daily","task":{"kind":"email"}}}`, want: later501},
	"ScheduleService.GetSchedule":     {body: `{"name":"s"}`, want: later501},
	"ScheduleService.ListSchedules":   {body: `{}`, want: later501},
	"ScheduleService.DeleteSchedule":  {body: `{"name":"s"}`, want: later501},
	"ScheduleService.PauseSchedule":   {body: `{"name":"s"}`, want: later501},
	"ScheduleService.ResumeSchedule":  {body: `{"name":"s"}`, want: later501},
	"ScheduleService.TriggerSchedule": {body: `{"name":"s"}`, want: later501},
	"ScheduleService.PreviewSchedule": {body: `{"name":"s"}`, want: later501},

	"WorkerService.Work": {body: `{"register":{"protocol":1,"workerInstance":"AAAAAAAAAAAAAAAAAAAAAA==","kinds":[{"kind":"exec","slots":1}]}}`},
	"WorkerService.Poll": {
		body: `{"register":{"protocol":1,"workerInstance":"AAAAAAAAAAAAAAAAAAAAAA==","kinds":[{"kind":"email","slots":1}]},"wait":"0.010s"}`,
	},
	"WorkerService.Report":      {body: `{"workerInstance":"AAAAAAAAAAAAAAAAAAAAAA=="}`},
	"WorkerService.ReadParents": {body: `{"workerInstance":"AAAAAAAAAAAAAAAAAAAAAA==","token":` + someToken + `}`, want: "failed_precondition"},

	"AdminService.CreateTenant":   {body: `{"name":"tNUMBER"}`},
	"AdminService.UpdateTenant":   {body: `{"name":"acme","weight":2}`},
	"AdminService.GetTenant":      {body: `{"name":"acme"}`},
	"AdminService.ListTenants":    {body: `{}`},
	"AdminService.PauseTenant":    {body: `{"name":"acme"}`},
	"AdminService.ResumeTenant":   {body: `{"name":"acme"}`},
	"AdminService.DeleteTenant":   {body: `{"name":"none"}`, want: notFound},
	"AdminService.PutKind":        {body: `{"kind":{"tenant":"acme","name":"email"}}`},
	"AdminService.GetKind":        {body: `{"tenant":"acme","name":"email"}`},
	"AdminService.ListKinds":      {body: `{"tenant":"acme"}`},
	"AdminService.PauseKind":      {body: `{"tenant":"acme","name":"email"}`},
	"AdminService.ResumeKind":     {body: `{"tenant":"acme","name":"email"}`},
	"AdminService.CreateKey":      {body: `{"scope":"KEY_SCOPE_ADMIN"}`},
	"AdminService.ListKeys":       {body: `{}`},
	"AdminService.RevokeKey":      {body: `{"keyId":"none"}`, want: notFound},
	"AdminService.PutLimit":       {body: `{"limit":{"tenant":"acme","name":"api","concurrency":1}}`},
	"AdminService.DeleteLimit":    {body: `{"tenant":"acme","name":"api"}`},
	"AdminService.ListLimits":     {body: `{"tenant":"acme"}`},
	"AdminService.ListRegions":    {body: `{}`},
	"AdminService.DrainRegion":    {body: `{"name":"eu"}`, want: notFound},
	"AdminService.ResumeRegion":   {body: `{"name":"eu"}`, want: notFound},
	"AdminService.ListWorkers":    {body: `{}`},
	"AdminService.DrainWorker":    {body: `{"worker":"` + someWorker + `"}`, want: notFound},
	"AdminService.CordonWorker":   {body: `{"worker":"` + someWorker + `"}`, want: notFound},
	"AdminService.UncordonWorker": {body: `{"worker":"` + someWorker + `"}`, want: notFound},
	"AdminService.LabelWorker":    {body: `{"worker":"` + someWorker + `"}`, want: notFound},
	"AdminService.GetOverview":    {body: `{}`},
	"AdminService.Audit":          {body: `{}`},

	"PeerService.Overview":   {body: `{}`},
	"PeerService.Workers":    {body: `{"limit":1}`},
	"PeerService.MarkWorker": {body: `{"worker":"AAAAAAAAAAAAAAAAAAAAAA=="}`},
	"PeerService.Lend":       {body: `{}`},
	"PeerService.Cancel":     {body: `{"id":"AAAAAAAAAAAAAAAAAAAAAA==","worker":"AAAAAAAAAAAAAAAAAAAAAA=="}`},
	"PeerService.Watch":      {body: `{"ids":["short"]}`, want: "invalid_argument"}, // a good one waits
	"PeerService.Hint":       {body: `{}`},
	"PeerService.Explain":    {body: `{"row":{"id":"AAAAAAAAAAAAAAAAAAAAAA==","tenant":"acme","kind":"email","tier":2,"class":"12402484736694981736"}}`},
	"PeerService.Use":        {body: `{"session":"AAAAAAAAAAAAAAAAAAAAAA=="}`},
}

// allowed names the credentials that each service takes.
var allowed = map[string]string{
	"TaskService": "acme globex", "ScheduleService": "acme globex", "WorkerService": "acme globex pool", "AdminService": "admin",
	"PeerService": "peer",
}

func TestEveryRPCWithEveryCredential(t *testing.T) {
	e := start(t)
	credentials := []struct{ name, key string }{
		{"none", ""},
		{"wrong", "errand_wrong"},
		{"revoked", e.revokedKey()},
		{"peer", peerSecret},
		{"acme", e.acme},
		{"globex", e.globex},
		{"pool", e.pool},
		{"admin", e.admin},
	}
	number, unused := 0, map[string]bool{}
	for name := range rpcRows {
		unused[name] = true
	}
	for _, service := range apiServices() {
		for i := range service.Methods().Len() {
			method := service.Methods().Get(i)
			name := string(service.Name()) + "." + string(method.Name())
			row, known := rpcRows[name]
			if !known {
				t.Errorf("%s has no row: say what it answers to whom", name)
				continue
			}
			delete(unused, name)
			client := fromAddress(t, byte(number+1)) // failed logins are counted per address
			number++
			for _, c := range credentials {
				body := strings.NewReplacer("TASK", e.submit(&errandv1.TaskSpec{Kind: "email"}).GetTaskId(),
					"tNUMBER", fmt.Sprintf("t%d", number)).Replace(row.body)
				got := callJSON(t, e, client, method, c.key, body)
				want := expected(string(service.Name()), c.name, row)
				if got.code != want {
					t.Errorf("%s with the credential %q: %s, want %q", name, c.name, got, want)
				}
				if got.code != "" && got.detail.GetReason() == "" {
					t.Errorf("%s with the credential %q has no detail: %s", name, c.name, got)
				}
				if got.code == later501 && got.detail.GetReason() != reasonNotYetAvailable {
					t.Errorf("%s is not available, and says %s", name, got)
				}
			}
		}
	}
	for name := range unused {
		t.Errorf("there is no RPC %s", name)
	}
}

func expected(service, credential string, row rpcRow) string {
	takes := slices.Contains(strings.Fields(allowed[service]), credential)
	isKey := slices.Contains([]string{"acme", "globex", "pool", "admin"}, credential)
	switch {
	case takes && credential == "globex" && row.other != "":
		return row.other
	case takes:
		return row.want
	case isKey && service != "PeerService":
		return "permission_denied"
	default:
		return "unauthenticated"
	}
}

func (e *edge) revokedKey() string {
	e.t.Helper()
	secret, hash := NewSecret()
	k := store.Key{ID: NewKeyID(), Hash: hash, Scope: store.ScopeAdmin}
	if err := e.store.CreateKey(e.t.Context(), k); err != nil {
		e.t.Fatal(err)
	}
	if _, err := e.store.RevokeKey(e.t.Context(), k.ID); err != nil {
		e.t.Fatal(err)
	}
	e.logs.keepOut(secret)
	return secret
}

// callJSON calls any RPC with JSON, also streams: those with one message, in an envelope.
func callJSON(t *testing.T, e *edge, client *http.Client, method protoreflect.MethodDescriptor, key, body string) *answer {
	t.Helper()
	url := e.url + "/" + string(method.Parent().FullName()) + "/" + string(method.Name())
	if !method.IsStreamingServer() {
		return post(t, client, url, key, "application/json", []byte(body))
	}
	if method.IsStreamingClient() {
		client = e.http // both directions at once need HTTP/2
	}
	envelope := append([]byte{0}, binary.BigEndian.AppendUint32(nil, uint32(len(body)))...)
	got := post(t, client, url, key, "application/connect+json", append(envelope, body...))
	for raw := got.body; len(raw) >= 5; {
		size := binary.BigEndian.Uint32(raw[1:5])
		if last := raw[0]&2 != 0; last && bytes.Contains(raw[5:], []byte(`"error"`)) {
			inner := raw[5:]
			inner = bytes.TrimSuffix(bytes.TrimPrefix(inner, []byte(`{"error":`)), []byte(`}`))
			if at := bytes.Index(inner, []byte(`,"metadata"`)); at >= 0 {
				inner = inner[:at]
			}
			got.parse(t, inner)
		}
		raw = raw[5+size:]
	}
	return got
}
