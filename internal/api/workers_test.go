package api

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	peerv1 "github.com/errandhq/errand/proto/errand/peer/v1"
	errandv1 "github.com/errandhq/errand/proto/errand/v1"
	"github.com/errandhq/errand/proto/errand/v1/errandv1connect"
	"github.com/errandhq/errand/scheduler"
)

// described is a register that says everything.
func described(id byte, kinds ...string) *errandv1.Register {
	r := registration(id, kinds...)
	r.Version, r.Zone, r.Labels = "1.2.3", "eu-a", map[string]string{"disk": "ssd", "arch": "arm"}
	r.Capacity = &errandv1.Requirements{CpuMilli: 4000, MemoryMib: 8192, Gpus: 2, Slots: 16}
	return r
}

// connectAs connects a worker that says everything of itself.
func (e *edge) connectAs(r *errandv1.Register) *fakeWorker {
	e.t.Helper()
	w := e.dial(e.pool)
	w.say(&errandv1.WorkRequest{Register: r, Heartbeat: &errandv1.Heartbeat{}})
	receive(e.t, "the answer to register", w.registered)
	return w
}

func (e *edge) listed(id byte) *errandv1.Worker {
	e.t.Helper()
	resp, err := e.operator().ListWorkers(e.t.Context(), &errandv1.ListWorkersRequest{})
	if err != nil {
		e.t.Fatal(err)
	}
	for _, w := range resp.GetWorkers() {
		if w.GetWorker() == scheduler.WorkerID(instance(id)).String() {
			return w
		}
	}
	return nil
}

func nameOf(id byte) string { return scheduler.WorkerID(instance(id)).String() }

// What a worker says of itself is shown, over both ways to connect.
func TestAWorkerIsShownAsItRegistered(t *testing.T) {
	e := start(t)
	stream := e.connectAs(described(1, "email"))
	e.submit(&errandv1.TaskSpec{Kind: "email"})
	stream.take()
	client := errandv1connect.NewWorkerServiceClient(e.http, e.url, connect.WithInterceptors(bearerOf(e.pool)))
	if _, err := client.Poll(t.Context(), &errandv1.PollRequest{Register: described(2, "email"), Wait: durationpb.New(time.Millisecond)}); err != nil {
		t.Fatal(err)
	}
	for id := byte(1); id <= 2; id++ {
		w, said := e.listed(id), described(id, "email")
		if w == nil || w.GetVersion() != "1.2.3" || w.GetZone() != "eu-a" || !maps.Equal(w.GetLabels(), said.GetLabels()) || !proto.Equal(w.GetCapacity(), said.GetCapacity()) {
			t.Errorf("worker %d is shown as %v", id, w)
		}
	}
	if w := e.listed(1); w.GetRunning() != 1 || w.GetCordoned() || w.GetDraining() {
		t.Errorf("the worker is shown as %v", w)
	}
}

// A cordon keeps new work away and nothing else, and the labels are the operator's over the worker's own.
func TestCordonAndLabels(t *testing.T) {
	e := start(t)
	admin := e.operator()
	w := e.connectAs(described(1, "email"))
	first := e.submit(&errandv1.TaskSpec{Kind: "email"})
	running := w.take()

	cordoned, err := admin.CordonWorker(t.Context(), &errandv1.CordonWorkerRequest{Worker: nameOf(1)})
	if err != nil || !cordoned.GetWorker().GetCordoned() || cordoned.GetWorker().GetDraining() || cordoned.GetWorker().GetRunning() != 1 {
		t.Fatalf("cordoned: %v, %v", cordoned, err)
	}
	if m := receive(t, "marks", w.marks); m.GetRevision() != 1 || !m.GetCordoned() {
		t.Errorf("the worker was told %v", m)
	}
	waits := e.submit(&errandv1.TaskSpec{Kind: "email"})
	w.finish(succeeded(running, nil))
	e.await(first.GetTaskId())
	if got := e.get(waits.GetTaskId()); got.GetState() != errandv1.TaskState_TASK_STATE_READY {
		t.Errorf("a task is %v, and the only worker is cordoned", got.GetState())
	}

	labeled, err := admin.LabelWorker(t.Context(), &errandv1.LabelWorkerRequest{
		Worker: nameOf(1), Set: map[string]string{"disk": "worn", "canary": "yes"}, Remove: []string{"arch"},
	})
	want := map[string]string{"disk": "worn", "canary": "yes"}
	if err != nil || !maps.Equal(labeled.GetWorker().GetLabels(), want) || !labeled.GetWorker().GetCordoned() {
		t.Fatalf("labeled: %v, %v", labeled, err)
	}
	marks := receive(t, "marks", w.marks)

	uncordoned, err := admin.UncordonWorker(t.Context(), &errandv1.UncordonWorkerRequest{Worker: nameOf(1)})
	if err != nil || uncordoned.GetWorker().GetCordoned() {
		t.Fatalf("uncordoned: %v, %v", uncordoned, err)
	}
	w.finish(succeeded(w.take(), nil))
	e.await(waits.GetTaskId())

	// Another instance, or this one after a restart, has it from the worker itself.
	other := startOver(t, e.dsn)
	other.admin, other.pool = e.admin, e.pool
	r := described(1, "email")
	r.Marks = marks
	other.connectAs(r)
	if got := other.listed(1); !got.GetCordoned() || !maps.Equal(got.GetLabels(), want) {
		t.Errorf("another instance shows the worker as %v", got)
	}
}

// Bytes that are no UTF-8 are refused by the field's name, wherever they stand.
func TestLabelsThatAreNoText(t *testing.T) {
	e := start(t)
	const mark = "~~~~"
	for name, c := range map[string]struct {
		rpc, key, field string
		in              proto.Message
	}{
		"a polling worker's label": {"WorkerService/Poll", e.pool, "register.labels", &errandv1.PollRequest{Register: &errandv1.Register{
			Protocol: 1, WorkerInstance: instance(1), Kinds: registration(1, "email").GetKinds(), Labels: map[string]string{mark: "v"},
		}}},
		"a polling worker's zone": {"WorkerService/Poll", e.pool, "register.zone", &errandv1.PollRequest{Register: &errandv1.Register{
			Protocol: 1, WorkerInstance: instance(1), Kinds: registration(1, "email").GetKinds(), Zone: mark,
		}}},
		"an operator's label": {"AdminService/LabelWorker", e.admin, "set", &errandv1.LabelWorkerRequest{Worker: nameOf(1), Set: map[string]string{"k": mark}}},
		"an operator's key":   {"AdminService/LabelWorker", e.admin, "remove", &errandv1.LabelWorkerRequest{Worker: nameOf(1), Remove: []string{mark}}},
	} {
		raw, err := proto.Marshal(c.in)
		if err != nil {
			t.Fatal(err)
		}
		got := e.post("/errand.v1."+c.rpc, c.key, "application/proto", bytes.Replace(raw, []byte(mark), []byte("\xff\xfe\xff\xfe"), 1))
		if got.code != "invalid_argument" || !strings.HasPrefix(got.detail.GetField(), c.field) {
			t.Errorf("%s: %s", name, got)
		}
	}
}

// A register on an open connection replaces what the worker said. What it runs stays, also above a smaller capacity.
func TestAWorkerChangesWhileItRuns(t *testing.T) {
	e := start(t)
	w := e.connectAs(described(1, "email"))
	var ids []string
	var running []*errandv1.Assignment
	for range 2 {
		ids = append(ids, e.submit(&errandv1.TaskSpec{Kind: "email"}).GetTaskId())
		running = append(running, w.take())
	}
	r := registration(1, "email")
	r.Kinds[0].Slots, r.Labels, r.Capacity = 1, map[string]string{"disk": "worn"}, &errandv1.Requirements{CpuMilli: 100}
	r.Holds = []*errandv1.Token{running[0].GetToken(), running[1].GetToken()}
	w.say(&errandv1.WorkRequest{Register: r})
	receive(t, "the answer to register", w.registered)
	got := e.listed(1)
	if got.GetRunning() != 2 || got.GetKinds()[0].GetSlots() != 1 || got.GetZone() != "" || !maps.Equal(got.GetLabels(), r.GetLabels()) || !proto.Equal(got.GetCapacity(), r.GetCapacity()) {
		t.Errorf("the worker is shown as %v", got)
	}
	waits := e.submit(&errandv1.TaskSpec{Kind: "email"}).GetTaskId()
	w.finish(succeeded(running[0], nil))
	if got := e.get(waits); got.GetState() != errandv1.TaskState_TASK_STATE_READY {
		t.Errorf("a task is %v, and the worker runs more than it has", got.GetState())
	}
	w.finish(succeeded(running[1], nil))
	w.finish(succeeded(w.take(), nil))
	for _, id := range append(ids, waits) {
		e.await(id)
	}

	r.Capacity.GpuMilli = 1
	w.say(&errandv1.WorkRequest{Register: r})
	if err := w.end(); detail(t, err).GetField() != "register.capacity.gpu_milli" {
		t.Errorf("a bad change: %v", err)
	}
}

// More labels than a register could repeat are refused, and change nothing.
func TestLabelsAreBounded(t *testing.T) {
	e := start(t)
	w := e.connectAs(described(1, "email"))
	for _, from := range []int{0, 40} {
		set := map[string]string{}
		for i := from; i < from+40; i++ {
			set[fmt.Sprint("k", i)] = "v"
		}
		_, err := e.operator().LabelWorker(t.Context(), &errandv1.LabelWorkerRequest{Worker: nameOf(1), Set: set})
		if (err != nil) != (from > 0) || (err != nil && detail(t, err).GetField() != "set") {
			t.Errorf("labels from %d: %v", from, err)
		}
	}
	if got := e.listed(1).GetLabels(); len(got) != 42 {
		t.Errorf("the worker has %d labels", len(got))
	}
	if m := receive(t, "marks", w.marks); len(m.GetLabels()) != 40 {
		t.Errorf("the worker was told %v", m)
	}
}

// A polling worker hears of it in the poll that waits, and says it again where it polls next. One that does not say it again is not
// answered at once for ever.
func TestAPollBringsMarks(t *testing.T) {
	e := start(t)
	client := errandv1connect.NewWorkerServiceClient(e.http, e.url, connect.WithInterceptors(bearerOf(e.pool)))
	polled := make(chan *errandv1.PollResponse, 1)
	go func() {
		resp, _ := client.Poll(t.Context(), &errandv1.PollRequest{Register: described(1, "email"), Wait: durationpb.New(patience)})
		polled <- resp
	}()
	eventually(t, "the worker", func() bool { return e.listed(1).GetConnected() })
	if _, err := e.operator().CordonWorker(t.Context(), &errandv1.CordonWorkerRequest{Worker: nameOf(1)}); err != nil {
		t.Fatal(err)
	}
	marks := receive(t, "the end of the poll", polled).GetMarks()
	if !marks.GetCordoned() {
		t.Fatalf("the poll brought %v", marks)
	}
	began := time.Now()
	again, err := client.Poll(t.Context(), &errandv1.PollRequest{Register: described(1, "email"), Wait: durationpb.New(50 * time.Millisecond)})
	if err != nil || !again.GetMarks().GetCordoned() || time.Since(began) < 50*time.Millisecond {
		t.Errorf("a poll without the marks: %v, %v after %v", again, err, time.Since(began))
	}
	other := startOver(t, e.dsn)
	other.admin, other.pool = e.admin, e.pool
	client = errandv1connect.NewWorkerServiceClient(other.http, other.url, connect.WithInterceptors(bearerOf(e.pool)))
	r := described(1, "email")
	r.Marks = marks
	if _, err := client.Poll(t.Context(), &errandv1.PollRequest{Register: r, Wait: durationpb.New(time.Millisecond)}); err != nil || !other.listed(1).GetCordoned() {
		t.Errorf("another instance shows %v, %v", other.listed(1), err)
	}
	_, err = other.operator().UncordonWorker(t.Context(), &errandv1.UncordonWorkerRequest{Worker: nameOf(1)})
	if detail(t, err).GetReason() != "WORKER_NOT_CONNECTED" {
		t.Errorf("a worker that cannot be told: %v", err)
	}
}

// reaching finds the only other instance, which the instances of these tests do not tell each other.
type reaching struct {
	*Peers
	url *string
}

func (r reaching) Workers(ctx context.Context, peer scheduler.Session, req *peerv1.WorkersRequest) (*peerv1.WorkersResponse, error) {
	peer.Address = *r.url
	return r.Peers.Workers(ctx, peer, req)
}

func (r reaching) MarkWorker(ctx context.Context, peer scheduler.Session, req *peerv1.MarkWorkerRequest) (*peerv1.MarkWorkerResponse, error) {
	peer.Address = *r.url
	return r.Peers.MarkWorker(ctx, peer, req)
}

// The list is the region's, and an operator need not know which instance has a worker. An instance that does not answer is told from one that
// has no such worker.
func TestWorkersOfTheRegion(t *testing.T) {
	peers := reaching{NewPeers(http2Client(t), peerSecret), new(string)}
	first := start(t, func(c *Config) { c.Others = peers })
	second := startOver(t, first.dsn)
	second.admin, second.pool = first.admin, first.pool
	eventually(t, "the other instance", func() bool { return len(first.shell.Status().Others) == 1 })
	first.connectAs(described(1, "email"))
	w := second.connectAs(described(2, "email"))
	first.connectAs(described(3, "email"))

	list := func(req *errandv1.ListWorkersRequest) (ids []byte, resp *errandv1.ListWorkersResponse) {
		t.Helper()
		resp, err := first.operator().ListWorkers(t.Context(), req)
		if err != nil {
			t.Fatal(err)
		}
		for _, one := range resp.GetWorkers() {
			id, _ := workerNamed(one.GetWorker())
			ids = append(ids, id[15])
		}
		return ids, resp
	}
	if ids, resp := list(&errandv1.ListWorkersRequest{}); !slices.Equal(ids, []byte{1, 3}) || resp.GetInstancesSilent() != 1 {
		t.Errorf("while the other instance cannot be reached: %v, %d silent", ids, resp.GetInstancesSilent())
	}
	_, err := first.operator().CordonWorker(t.Context(), &errandv1.CordonWorkerRequest{Worker: nameOf(2)})
	if detail(t, err).GetReason() != "INSTANCE_SILENT" {
		t.Errorf("a worker that may be the silent instance's: %v", err)
	}

	*peers.url = second.url
	if ids, resp := list(&errandv1.ListWorkersRequest{}); !slices.Equal(ids, []byte{1, 2, 3}) || resp.GetInstancesSilent() != 0 {
		t.Errorf("the region has %v, %d silent", ids, resp.GetInstancesSilent())
	}
	ids, resp := list(&errandv1.ListWorkersRequest{PageSize: 2})
	rest, last := list(&errandv1.ListWorkersRequest{PageSize: 2, PageToken: resp.GetNextPageToken()})
	if !slices.Equal(ids, []byte{1, 2}) || !slices.Equal(rest, []byte{3}) || last.GetNextPageToken() != "" {
		t.Errorf("in pages: %v, then %v and %q", ids, rest, last.GetNextPageToken())
	}
	cordoned, err := first.operator().CordonWorker(t.Context(), &errandv1.CordonWorkerRequest{Worker: nameOf(2)})
	if err != nil || !cordoned.GetWorker().GetCordoned() || !second.listed(2).GetCordoned() || !receive(t, "marks", w.marks).GetCordoned() {
		t.Errorf("cordoned at the other instance: %v, %v", cordoned, err)
	}
	if _, err := first.operator().DrainWorker(t.Context(), &errandv1.DrainWorkerRequest{Worker: nameOf(2)}); err != nil || !second.listed(2).GetDraining() {
		t.Errorf("drained at the other instance: %v, %v", second.listed(2), err)
	}
	_, err = first.operator().CordonWorker(t.Context(), &errandv1.CordonWorkerRequest{Worker: someWorker})
	if detail(t, err).GetReason() != "WORKER_NOT_FOUND" {
		t.Errorf("a worker that nobody has: %v", err)
	}
}

// A page that an instance has cut ends the joined one: what follows may be missing there.
func TestPagesOfWorkersAreJoined(t *testing.T) {
	page := func(more bool, ids ...byte) *peerv1.WorkersResponse {
		p := &peerv1.WorkersResponse{More: more}
		for _, id := range ids {
			p.Workers = append(p.Workers, &errandv1.Worker{Worker: nameOf(id), Connected: more})
		}
		return p
	}
	for name, c := range map[string]struct {
		pages []*peerv1.WorkersResponse
		limit int
		want  string
	}{
		"nobody":            {[]*peerv1.WorkersResponse{page(false)}, 3, "[] false"},
		"two in order":      {[]*peerv1.WorkersResponse{page(false, 2, 4), page(false, 1, 3)}, 9, "[1 2 3 4] false"},
		"more than a page":  {[]*peerv1.WorkersResponse{page(false, 2, 4), page(false, 1, 3)}, 3, "[1 2 3] true"},
		"one was cut":       {[]*peerv1.WorkersResponse{page(true, 1, 2), page(false, 3, 4)}, 9, "[1 2] true"},
		"both were cut":     {[]*peerv1.WorkersResponse{page(true, 1, 3), page(true, 2, 4)}, 9, "[1 2 3] true"},
		"known twice":       {[]*peerv1.WorkersResponse{page(false, 1, 2), page(true, 2)}, 9, "[1 2*] true"},
		"exactly one page":  {[]*peerv1.WorkersResponse{page(false, 1, 2)}, 2, "[1 2] false"},
		"a peer has no one": {[]*peerv1.WorkersResponse{page(false, 1, 2), page(false)}, 2, "[1 2] false"},
	} {
		joined, more := joinWorkers(c.pages, c.limit)
		var ids []string
		for _, w := range joined {
			id, _ := workerNamed(w.GetWorker())
			text := fmt.Sprint(id[15])
			if name == "known twice" && w.GetConnected() {
				text += "*"
			}
			ids = append(ids, text)
		}
		if got := fmt.Sprint(ids, more); got != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
	}
}
