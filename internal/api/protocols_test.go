package api

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"connectrpc.com/connect"
	"connectrpc.com/grpcreflect"
	"google.golang.org/protobuf/types/known/emptypb"

	errandv1 "github.com/errandhq/errand/proto/errand/v1"
)

func TestOnePortSpeaksAllProtocols(t *testing.T) {
	e := start(t)
	for _, p := range protocols() {
		client := e.tasks(e.acme, p.options...)
		stored, err := client.SubmitTask(t.Context(), &errandv1.SubmitTaskRequest{Spec: &errandv1.TaskSpec{Kind: "email", Payload: []byte(p.name)}})
		if err != nil {
			t.Errorf("submit over %s: %v", p.name, err)
			continue
		}
		got, err := client.GetTask(t.Context(), &errandv1.GetTaskRequest{TaskId: stored.GetTaskId()})
		if err != nil || string(got.GetTask().GetSpec().GetPayload()) != p.name {
			t.Errorf("get over %s: %v, %v", p.name, got, err)
		}
		_, err = client.GetTask(t.Context(), &errandv1.GetTaskRequest{TaskId: "nonsense"})
		if connect.CodeOf(err) != connect.CodeInvalidArgument || detail(t, err).GetField() != "task_id" {
			t.Errorf("an error over %s: %v", p.name, err)
		}
	}
}

func TestPlainJSONOverHTTP1(t *testing.T) {
	e := start(t)
	stored := e.post("/errand.v1.TaskService/SubmitTask", e.acme, "application/json", []byte(`{"spec":{"kind":"email","payload":"aGk="}}`))
	var task struct{ TaskID, State string }
	if err := json.Unmarshal(stored.body, &task); err != nil || stored.status != 200 || !strings.HasPrefix(task.TaskID, region+".") {
		t.Fatalf("submit: %s %s", stored, stored.body)
	}
	got := e.post("/errand.v1.TaskService/GetTask", e.acme, "application/json", []byte(`{"taskId":"`+task.TaskID+`"}`))
	if got.status != 200 || !strings.Contains(strings.ReplaceAll(string(got.body), " ", ""), `"payload":"aGk="`) {
		t.Errorf("get: %s %s", got, got.body)
	}
	for body, text := range map[string]string{
		`{"spec":`:                 "",
		``:                         "an empty body is not JSON: send {}",
		`[]`:                       "",
		`{"spec":{"kind":7}}`:      "kind",
		`{"spec":{"payload":"*"}}`: "payload",
		`{"spec":{"maxAttempts":99999999999999999999}}`: "maxAttempts",
	} {
		got := e.post("/errand.v1.TaskService/SubmitTask", e.acme, "application/json", []byte(body))
		if got.code != "invalid_argument" || got.detail.GetReason() != reasonMalformed || !strings.Contains(got.text, text) {
			t.Errorf("%q answered %s", body, got)
		}
	}
	missing := post(t, http.DefaultClient, e.url+"/errand.v1.TaskService/GetTask?", e.acme, "text/plain", nil)
	if missing.status != http.StatusUnsupportedMediaType {
		t.Errorf("text answered %d", missing.status)
	}
}

func TestWorkOverConnectAndGRPC(t *testing.T) {
	e := start(t)
	for i, options := range [][]connect.ClientOption{nil, {connect.WithGRPC()}, {connect.WithGRPCWeb()}, {connect.WithProtoJSON()}} {
		kind := fmt.Sprintf("kind%d", i)
		w := e.workerWith(e.acme, byte(i+1), []string{kind}, options...)
		id := e.submit(&errandv1.TaskSpec{Kind: kind}).GetTaskId()
		if ack := w.finish(succeeded(w.take(), []byte("done"))); ack.GetAnswer() != errandv1.AckAnswer_ACK_ANSWER_RECORDED {
			t.Errorf("the ack is %v", ack)
		}
		if got := e.await(id); string(got.GetResult()) != "done" {
			t.Errorf("the task is %v", got)
		}
	}
}

func TestTraceContextReachesTheWorker(t *testing.T) {
	const parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	e := start(t)
	w := e.worker(e.acme, 1, "email")
	for given, want := range map[string]string{parent: parent[:35], "": "", "nonsense": ""} {
		client := e.tasks(e.acme, connect.WithInterceptors(connect.UnaryInterceptorFunc(func(next connect.UnaryFunc) connect.UnaryFunc {
			return func(ctx context.Context, req connect.AnyRequest) (connect.AnyResponse, error) {
				if given != "" {
					req.Header().Set("Traceparent", given)
				}
				return next(ctx, req)
			}
		})))
		if _, err := client.SubmitTask(t.Context(), &errandv1.SubmitTaskRequest{Spec: &errandv1.TaskSpec{Kind: "email"}}); err != nil {
			t.Fatal(err)
		}
		a := w.take()
		if got := a.GetTraceParent(); !strings.HasPrefix(got, want) || (want == "") != (got == "") {
			t.Errorf("the trace of %q is %q", given, got)
		}
		w.finish(succeeded(a, nil))
	}
}

func TestHealthAndReflection(t *testing.T) {
	healthy := true
	e := start(t, func(c *Config) {
		c.Ready = func() error {
			if healthy {
				return nil
			}
			return fmt.Errorf("no session")
		}
	})
	check := func(service string) string {
		return string(bytes.ReplaceAll(e.post("/grpc.health.v1.Health/Check", "", "application/json", []byte(`{"service":"`+service+`"}`)).body, []byte(" "), nil))
	}
	for _, service := range []string{"", "errand.v1.TaskService"} {
		if got := check(service); got != `{"status":"SERVING_STATUS_SERVING"}` {
			t.Errorf("the health of %q is %s", service, got)
		}
	}
	if got := check("other.Service"); !strings.Contains(got, "not_found") {
		t.Errorf("the health of another service: %s", got)
	}
	// gRPC's probes send an empty message; status 1, serving, is read as an unknown field here.
	probe := connect.NewClient[emptypb.Empty, emptypb.Empty](e.http, e.url+"/grpc.health.v1.Health/Check", connect.WithGRPC())
	if resp, err := probe.CallUnary(t.Context(), connect.NewRequest(&emptypb.Empty{})); err != nil {
		t.Error(err)
	} else if raw := resp.Msg.ProtoReflect().GetUnknown(); !bytes.Equal(raw, []byte{8, 1}) {
		t.Errorf("the health over gRPC is %v", raw)
	}
	if got := get(t, e.url+"/readyz"); got != 200 {
		t.Errorf("/readyz answered %d", got)
	}
	healthy = false
	if got := check(""); got != `{"status":"SERVING_STATUS_NOT_SERVING"}` {
		t.Errorf("the health of a broken instance is %s", got)
	}
	if ready, live := get(t, e.url+"/readyz"), get(t, e.url+"/livez"); ready != 503 || live != 200 {
		t.Errorf("a broken instance answers /readyz %d and /livez %d", ready, live)
	}

	stream := grpcreflect.NewClient(e.http, e.url, connect.WithGRPC()).NewStream(t.Context())
	defer stream.Close()
	names, err := stream.ListServices()
	if err != nil || len(names) != 4 {
		t.Fatalf("reflection lists %v, %v", names, err)
	}
	for _, name := range names {
		if _, err := stream.FileContainingSymbol(name); err != nil {
			t.Errorf("reflection does not know %s: %v", name, err)
		}
	}
}

func get(t *testing.T, url string) int {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	return resp.StatusCode
}
