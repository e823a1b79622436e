package api

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	errandv1 "github.com/errandhq/errand/proto/errand/v1"
	"github.com/errandhq/errand/scheduler"
)

// plainWorker is a worker with nothing but HTTP/1.1 and JSON, written as one would write it in another language.
type plainWorker struct {
	t        testing.TB
	e        *edge
	key      string
	client   *http.Client
	instance []byte
	slots    int
	holds    []map[string]any // tokens of what it runs
}

func (e *edge) plain(key string, id byte, slots int) *plainWorker {
	transport := &http.Transport{} // HTTP/1.1: nothing else was asked for
	e.t.Cleanup(transport.CloseIdleConnections)
	return &plainWorker{t: e.t, e: e, key: key, client: &http.Client{Transport: transport}, instance: instance(id), slots: slots}
}

// call posts JSON and returns the answer, or an error when there was none.
func (w *plainWorker) call(ctx context.Context, method string, in map[string]any) (map[string]any, error) {
	raw, err := json.Marshal(in)
	if err != nil {
		w.t.Fatal(err)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, w.e.url+"/errand.v1.WorkerService/"+method, bytes.NewReader(raw))
	if err != nil {
		w.t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Authorization", "Bearer "+w.key)
	resp, err := w.client.Do(req)
	if err != nil {
		return nil, err
	}
	defer func() { _ = resp.Body.Close() }()
	raw, err = io.ReadAll(resp.Body)
	if err != nil {
		return nil, err
	}
	if resp.ProtoMajor != 1 {
		w.t.Errorf("the answer came over %s", resp.Proto)
	}
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s: %s", resp.Status, raw)
	}
	out := map[string]any{}
	return out, json.Unmarshal(raw, &out)
}

func (w *plainWorker) poll(ctx context.Context, wait string, most int) (map[string]any, error) {
	return w.call(ctx, "Poll", map[string]any{
		"register": map[string]any{
			"protocol": 1, "workerInstance": w.instance, "name": "curl", "kinds": []any{map[string]any{"kind": "email", "slots": w.slots}},
			"holds": w.holds,
		},
		"wait": wait, "maxAssignments": most,
	})
}

func list(m map[string]any, field string) []map[string]any {
	var out []map[string]any
	all, _ := m[field].([]any)
	for _, one := range all {
		out = append(out, one.(map[string]any))
	}
	return out
}

// A plain worker works, although its calls are cut off again and again: every task ends, and each end is recorded once.
func TestPollingWorker(t *testing.T) {
	const tasks = 300
	e := start(t)
	var specs []*errandv1.TaskSpec
	for i := range tasks {
		specs = append(specs, &errandv1.TaskSpec{Kind: "email", Payload: fmt.Appendf(nil, "task %d", i)})
	}
	resp, err := e.tasks(e.acme).SubmitTasks(t.Context(), &errandv1.SubmitTasksRequest{Specs: specs})
	if err != nil {
		t.Fatal(err)
	}
	w := e.plain(e.acme, 1, 20)
	cut := func() (context.Context, context.CancelFunc) {
		if rand.IntN(4) > 0 {
			return context.WithTimeout(t.Context(), 30*time.Second)
		}
		return context.WithTimeout(t.Context(), time.Duration(rand.IntN(4000))*time.Microsecond)
	}
	cuts, recorded := 0, 0
	for recorded < tasks {
		ctx, cancel := cut()
		got, err := w.poll(ctx, "5s", 20)
		cancel()
		if err != nil {
			cuts++
			continue
		}
		var finished []map[string]any
		for _, a := range list(got, "assign") {
			token := a["token"].(map[string]any)
			w.holds = append(w.holds, token)
			finished = append(finished, map[string]any{
				"token": token, "succeeded": map[string]any{"data": []byte(fmt.Sprintf("done %s", a["payload"]))},
			})
		}
		for len(finished) > 0 {
			ctx, cancel := cut()
			got, err := w.call(ctx, "Report", map[string]any{"workerInstance": w.instance, "finished": finished})
			cancel()
			if err != nil {
				cuts++
				continue // said again
			}
			for _, ack := range list(got, "acks") {
				if ack["answer"] != "ACK_ANSWER_RECORDED" {
					t.Errorf("an end was answered %v", ack)
				}
				recorded++
			}
			finished, w.holds = nil, nil
		}
	}
	if cuts == 0 {
		t.Error("no call was cut off: the test tests nothing")
	}
	for i, o := range resp.GetOutcomes() {
		task := e.get(o.GetAccepted().GetTaskId())
		if task.GetState() != errandv1.TaskState_TASK_STATE_SUCCEEDED || !strings.HasPrefix(string(task.GetResult()), "done ") {
			t.Errorf("task %d is %v, %q", i, task.GetState(), task.GetResult())
		}
	}
	t.Logf("%d calls were cut off", cuts)
}

// A poll waits for work, brings no more than was asked for, and leaves the rest to others at once.
func TestAPollWaits(t *testing.T) {
	e := start(t)
	w := e.plain(e.acme, 1, 100)
	polled := make(chan map[string]any, 1)
	go func() {
		got, err := w.poll(context.Background(), "30s", 2)
		if err != nil {
			t.Error(err)
		}
		polled <- got
	}()
	eventually(t, "the poll to wait", func() bool { return e.shell.Status().Workers == 1 })
	for range 5 {
		e.submit(&errandv1.TaskSpec{Kind: "email"})
	}
	got := receive(t, "the answer", polled)
	given := list(got, "assign")
	if len(given) == 0 || len(given) > 2 {
		t.Fatalf("%d assignments, want 1 or 2", len(given))
	}
	if got["registered"].(map[string]any)["lease"] == nil {
		t.Errorf("no terms: %v", got)
	}
	other := e.worker(e.acme, 2, "email")
	for range 5 - len(given) {
		other.finish(succeeded(other.take(), nil))
	}
	// What it does not name as held in its next polls was never received: after a while others get it.
	for done := 0; done < len(given); {
		if _, err := w.poll(t.Context(), "0.001s", 0); err != nil {
			t.Fatal(err)
		}
		select {
		case a := <-other.assigned:
			other.finish(succeeded(a, nil))
			done++
		case <-time.After(100 * time.Millisecond):
		}
	}
	began := time.Now()
	if got, err := w.poll(t.Context(), "0.2s", 1); err != nil || len(list(got, "assign")) != 0 || time.Since(began) < 200*time.Millisecond {
		t.Errorf("a poll without work: %v, %v after %v", got, err, time.Since(began))
	}
}

// Another poll of the same instance takes the place of one that waits.
func TestASecondPollTakesTheFirstsPlace(t *testing.T) {
	e := start(t)
	w := e.plain(e.acme, 1, 1)
	first := make(chan map[string]any, 1)
	go func() {
		got, err := w.poll(context.Background(), "60s", 1)
		if err != nil {
			t.Error(err)
		}
		first <- got
	}()
	eventually(t, "the poll to wait", func() bool { return e.shell.Status().Workers == 1 })
	second := make(chan map[string]any, 1)
	go func() {
		got, err := w.poll(context.Background(), "30s", 1)
		if err != nil {
			t.Error(err)
		}
		second <- got
	}()
	if got := receive(t, "the first poll's end", first); len(list(got, "assign")) != 0 {
		t.Errorf("the first poll got %v", got)
	}
	e.submit(&errandv1.TaskSpec{Kind: "email"})
	if got := receive(t, "the second poll's work", second); len(list(got, "assign")) != 1 {
		t.Errorf("the second poll got %v", got)
	}
}

// A cancel reaches a polling worker, and a report may come to a scheduler that never heard of its worker.
func TestWhatAPollingWorkerIsTold(t *testing.T) {
	e := start(t)
	w := e.plain(e.acme, 1, 10)
	id := e.submit(&errandv1.TaskSpec{Kind: "email"}).GetTaskId()
	got, err := w.poll(t.Context(), "10s", 1)
	if err != nil || len(list(got, "assign")) != 1 {
		t.Fatalf("%v, %v", got, err)
	}
	token := list(got, "assign")[0]["token"].(map[string]any)
	w.holds = append(w.holds, token)
	if _, err := e.tasks(e.acme).CancelTask(t.Context(), &errandv1.CancelTaskRequest{TaskId: id}); err != nil {
		t.Fatal(err)
	}
	for {
		got, err := w.poll(t.Context(), "5s", 1)
		if err != nil {
			t.Fatal(err)
		}
		if stops := list(got, "stops"); len(stops) > 0 {
			if stops[0]["cause"] != "STOP_CAUSE_CANCELED" {
				t.Errorf("stopped: %v", stops[0])
			}
			break
		}
	}
	reported, err := w.call(t.Context(), "Report", map[string]any{
		"workerInstance": w.instance, "finished": []any{map[string]any{"token": token, "stopped": map[string]any{}}},
	})
	if err != nil || len(list(reported, "acks")) != 1 {
		t.Fatalf("%v, %v", reported, err)
	}
	if task := e.await(id); task.GetState() != errandv1.TaskState_TASK_STATE_CANCELED {
		t.Errorf("the task is %v", task.GetState())
	}
	// A stranger's token changes nothing.
	lost, err := e.plain(e.acme, 9, 1).call(t.Context(), "Report", map[string]any{
		"workerInstance": instance(9), "finished": []any{map[string]any{"token": token, "succeeded": map[string]any{}}},
	})
	if err != nil || len(list(lost, "acks")) != 1 || list(lost, "acks")[0]["answer"] != "ACK_ANSWER_LOST" {
		t.Errorf("a stranger's report: %v, %v", lost, err)
	}
}

// Without heartbeats nobody could stop an exclusive task in time: it is not given out.
func TestAPollWithoutHeartbeatsGetsNothingExclusive(t *testing.T) {
	e := start(t)
	w := e.plain(e.acme, 1, 10)
	id := e.submit(&errandv1.TaskSpec{Kind: "email", Exclusive: true}).GetTaskId()
	if got, err := w.poll(t.Context(), "0.3s", 1); err != nil || len(list(got, "assign")) != 0 {
		t.Fatalf("%v, %v", got, err)
	}
	for {
		got, err := w.call(t.Context(), "Poll", map[string]any{
			"register": map[string]any{"protocol": 1, "workerInstance": w.instance, "kinds": []any{map[string]any{"kind": "email", "slots": 1}}},
			"wait":     "5s", "heartbeat": map[string]any{"seq": "7", "sentAt": "123"},
		})
		if err != nil {
			t.Fatal(err)
		}
		if a := list(got, "assign"); len(a) == 1 {
			ack, _ := got["heartbeatAck"].(map[string]any)
			if a[0]["exclusive"] != true || ack["sentAt"] != "123" || ack["exclusiveGrant"] == nil {
				t.Errorf("%v", got)
			}
			break
		}
	}
	if task := e.get(id); task.GetCountedAttempts() != 0 && task.GetState() != errandv1.TaskState_TASK_STATE_RUNNING {
		t.Errorf("the task is %v", task)
	}
}

func badPolls() []badInput {
	poll := func(change func(*errandv1.PollRequest)) *errandv1.PollRequest {
		p := &errandv1.PollRequest{Register: registration(1, "email"), Wait: durationpb.New(time.Millisecond)}
		change(p)
		return p
	}
	report := func(change func(*errandv1.ReportRequest)) *errandv1.ReportRequest {
		r := &errandv1.ReportRequest{WorkerInstance: instance(1)}
		change(r)
		return r
	}
	token := &errandv1.Token{Id: make([]byte, len(scheduler.ID{})), Attempt: 1}
	register := func(change func(*errandv1.Register)) *errandv1.PollRequest {
		return poll(func(p *errandv1.PollRequest) { change(p.Register) })
	}
	return []badInput{
		{"label with NUL in its key", "WorkerService/Poll", register(func(r *errandv1.Register) { r.Labels = map[string]string{"k\x00": "v"} }), refusedField, "register.labels"},
		{"label with NUL in its value", "WorkerService/Poll", register(func(r *errandv1.Register) { r.Labels = map[string]string{"k": "\x00"} }), refusedField, "register.labels"},
		{"label without a key", "WorkerService/Poll", register(func(r *errandv1.Register) { r.Labels = map[string]string{"": "v"} }), refusedField, `register.labels[""]`},
		{"zone with NUL", "WorkerService/Poll", register(func(r *errandv1.Register) { r.Zone = "\x00" }), refusedField, "register.zone"},
		{"zone too long", "WorkerService/Poll", register(func(r *errandv1.Register) { r.Zone = strings.Repeat("z", 64) }), refusedField, "register.zone"},
		{"version too long", "WorkerService/Poll", register(func(r *errandv1.Register) { r.Version = strings.Repeat("v", 64) }), refusedField, "register.version"},
		{"shares of a device", "WorkerService/Poll", register(func(r *errandv1.Register) { r.Capacity = &errandv1.Requirements{GpuMilli: 500} }), refusedField, "register.capacity.gpu_milli"},
		{"negative memory", "WorkerService/Poll", register(func(r *errandv1.Register) { r.Capacity = &errandv1.Requirements{MemoryMib: -1} }), refusedField, "register.capacity.memory_mib"},
		{"too many devices", "WorkerService/Poll", register(func(r *errandv1.Register) { r.Capacity = &errandv1.Requirements{Gpus: 65} }), refusedField, "register.capacity.gpus"},
		{"marks with a revision below nothing", "WorkerService/Poll", register(func(r *errandv1.Register) { r.Marks = &errandv1.WorkerMarks{Revision: -1} }), refusedField, "register.marks.revision"},
		{"no register", "WorkerService/Poll", poll(func(p *errandv1.PollRequest) { p.Register = nil }), refusedField, "register"},
		{"no instance", "WorkerService/Poll", poll(func(p *errandv1.PollRequest) { p.Register.WorkerInstance = nil }), refusedField, "register.worker_instance"},
		{"a kind twice", "WorkerService/Poll", poll(func(p *errandv1.PollRequest) { p.Register.Kinds = append(p.Register.Kinds, p.Register.Kinds[0]) }), refusedField, "register.kinds[1].kind"},
		{"waits too long", "WorkerService/Poll", poll(func(p *errandv1.PollRequest) { p.Wait = durationpb.New(61 * time.Second) }), refusedField, "wait"},
		{"waits less than nothing", "WorkerService/Poll", poll(func(p *errandv1.PollRequest) { p.Wait = durationpb.New(-1) }), refusedField, "wait"},
		{"too much at once", "WorkerService/Poll", poll(func(p *errandv1.PollRequest) { p.MaxAssignments = 1001 }), refusedField, "max_assignments"},
		{"less than nothing", "WorkerService/Poll", poll(func(p *errandv1.PollRequest) { p.MaxAssignments = -1 }), refusedField, "max_assignments"},
		{"another region's token", "WorkerService/Poll", poll(func(p *errandv1.PollRequest) {
			p.Register.Holds = []*errandv1.Token{{Id: token.GetId(), Attempt: 1, Region: "us"}}
		}), reasonNotYetAvailable, "register.holds[0].region"},
		{"no instance", "WorkerService/Report", report(func(r *errandv1.ReportRequest) { r.WorkerInstance = nil }), refusedField, "worker_instance"},
		{"a short token", "WorkerService/Report", report(func(r *errandv1.ReportRequest) {
			r.Finished = []*errandv1.Finished{{Token: &errandv1.Token{Id: []byte("x"), Attempt: 1}}}
		}), refusedField, "finished[0].token.id"},
		{"no attempt", "WorkerService/Report", report(func(r *errandv1.ReportRequest) { r.Accepted = []*errandv1.Token{{Id: token.GetId()}} }), refusedField, "accepted[0].attempt"},
		{"a checkpoint", "WorkerService/Report", report(func(r *errandv1.ReportRequest) {
			r.Checkpoints = []*errandv1.Checkpoint{{Token: token, Seq: 1}}
		}), reasonNotYetAvailable, "checkpoints"},
	}
}
