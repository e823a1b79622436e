package api

import (
	"errors"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"

	"github.com/errandhq/errand/internal/store"
	"github.com/errandhq/errand/placement"
	errandv1 "github.com/errandhq/errand/proto/errand/v1"
	"github.com/errandhq/errand/scheduler"
	"github.com/errandhq/errand/scheduler/engine"
)

func TestFirstWordsOfAWorker(t *testing.T) {
	e := start(t)
	with := func(change func(*errandv1.Register)) *errandv1.WorkRequest {
		r := registration(1, "email")
		change(r)
		return &errandv1.WorkRequest{Register: r}
	}
	token := func(id []byte, attempt int64, region string) *errandv1.Token {
		return &errandv1.Token{Id: id, Attempt: attempt, Region: region}
	}
	for _, c := range []struct {
		name   string
		key    string
		first  *errandv1.WorkRequest
		reason string
		field  string
	}{
		{"no register", e.acme, &errandv1.WorkRequest{Drain: true}, "NOT_REGISTERED", ""},
		{"no instance", e.acme, with(func(r *errandv1.Register) { r.WorkerInstance = nil }), refusedField, "register.worker_instance"},
		{"short instance", e.acme, with(func(r *errandv1.Register) { r.WorkerInstance = make([]byte, 15) }), refusedField, "register.worker_instance"},
		{"no protocol", e.acme, with(func(r *errandv1.Register) { r.Protocol = 0 }), refusedField, "register.protocol"},
		{"no kinds", e.acme, with(func(r *errandv1.Register) { r.Kinds = nil }), refusedField, "register.kinds"},
		{"no slots", e.acme, with(func(r *errandv1.Register) { r.Kinds[0].Slots = 0 }), refusedField, "register.kinds[0].slots"},
		{"negative slots", e.acme, with(func(r *errandv1.Register) { r.Kinds[0].Slots = -1 }), refusedField, "register.kinds[0].slots"},
		{"too many slots", e.acme, with(func(r *errandv1.Register) { r.Kinds[0].Slots = 100_001 }), refusedField, "register.kinds[0].slots"},
		{"a kind twice", e.acme, with(func(r *errandv1.Register) { r.Kinds = append(r.Kinds, r.Kinds[0]) }), refusedField, "register.kinds[1].kind"},
		{"name with NUL", e.acme, with(func(r *errandv1.Register) { r.Name = "\x00" }), refusedField, "register.name"},
		{"label with NUL in its key", e.acme, with(func(r *errandv1.Register) { r.Labels = map[string]string{"k\x00": "v"} }), refusedField, "register.labels"},
		{"label with NUL in its value", e.acme, with(func(r *errandv1.Register) { r.Labels = map[string]string{"k": "\x00"} }), refusedField, "register.labels"},
		{"label without a key", e.acme, with(func(r *errandv1.Register) { r.Labels = map[string]string{"": "v"} }), refusedField, `register.labels[""]`},
		{"zone with NUL", e.acme, with(func(r *errandv1.Register) { r.Zone = "\x00" }), refusedField, "register.zone"},
		{"zone too long", e.acme, with(func(r *errandv1.Register) { r.Zone = strings.Repeat("z", 64) }), refusedField, "register.zone"},
		{"version too long", e.acme, with(func(r *errandv1.Register) { r.Version = strings.Repeat("v", 64) }), refusedField, "register.version"},
		{"shares of a device", e.acme, with(func(r *errandv1.Register) { r.Capacity = &errandv1.Requirements{GpuMilli: 500} }), refusedField, "register.capacity.gpu_milli"},
		{"negative memory", e.acme, with(func(r *errandv1.Register) { r.Capacity = &errandv1.Requirements{MemoryMib: -1} }), refusedField, "register.capacity.memory_mib"},
		{"too many devices", e.acme, with(func(r *errandv1.Register) { r.Capacity = &errandv1.Requirements{Gpus: 65} }), refusedField, "register.capacity.gpus"},
		{"marks with a revision below nothing", e.acme, with(func(r *errandv1.Register) { r.Marks = &errandv1.WorkerMarks{Revision: -1} }), refusedField, "register.marks.revision"},
		{"bad token", e.acme, with(func(r *errandv1.Register) { r.Holds = []*errandv1.Token{token(make([]byte, 16), 0, "")} }), refusedField, "register.holds[0].attempt"},
		{"another region's token", e.acme, with(func(r *errandv1.Register) { r.Holds = []*errandv1.Token{token(make([]byte, 16), 1, "us")} }), reasonNotYetAvailable, "register.holds[0].region"},
		{"a kind that the pool's key does not name", e.pool, with(func(r *errandv1.Register) { r.Kinds[0].Kind = "sms" }), refusedField, "register.kinds[0].kind"},
	} {
		w := e.dial(c.key)
		w.say(c.first)
		if _, d := w.refusal(); d.GetReason() != c.reason || d.GetField() != c.field {
			t.Errorf("%s: refused with %v, want %s %s", c.name, d, c.reason, c.field)
		}
	}
	silent := e.dial(e.acme)
	if err := silent.stream.CloseRequest(); err != nil {
		t.Fatal(err)
	}
	if _, d := silent.refusal(); d.GetReason() != "NOT_REGISTERED" {
		t.Errorf("a worker that says nothing: %v", d)
	}
	for name, later := range map[string]*errandv1.WorkRequest{
		"accepted[0]":              {Accepted: []*errandv1.Token{token(nil, 1, "")}},
		"finished[1].token":        {Finished: []*errandv1.Finished{{Token: token(make([]byte, 16), 1, "")}, {}}},
		"register.worker_instance": {Register: registration(2, "email")},
	} {
		w := e.worker(e.acme, 1, "email")
		w.say(later)
		if _, d := w.refusal(); d.GetField() != name {
			t.Errorf("a later word: refused with %v, want %s", d, name)
		}
	}
}

// Whoever reads a pool worker's instance in a task must not be able to take its place.
func TestATenantCannotTakeAPoolWorkersPlace(t *testing.T) {
	e := start(t)
	pool := e.worker(e.pool, 7, "email")
	thief := e.worker(e.globex, 7, "email")
	other := e.worker(e.acme, 7, "sms")
	id := e.submit(&errandv1.TaskSpec{Kind: "email"}).GetTaskId()
	a := pool.take()
	// The thief knows the token: it is of no use under another identity.
	if ack := thief.finish(succeeded(a, []byte("fake"))); ack.GetAnswer() != errandv1.AckAnswer_ACK_ANSWER_LOST {
		t.Errorf("a stolen token was answered %v", ack)
	}
	if ack := pool.finish(succeeded(a, []byte("real"))); ack.GetAnswer() != errandv1.AckAnswer_ACK_ANSWER_RECORDED {
		t.Errorf("the pool worker was answered %v", ack)
	}
	if task := e.await(id); string(task.GetResult()) != "real" {
		t.Errorf("the task is %v", task)
	}
	listed, err := e.operator().ListWorkers(t.Context(), &errandv1.ListWorkersRequest{})
	if err != nil || len(listed.GetWorkers()) != 3 {
		t.Fatalf("three workers of one instance's bytes: %v, %v", listed, err)
	}
	for _, w := range listed.GetWorkers() {
		if !w.GetConnected() {
			t.Errorf("%v has lost its connection", w)
		}
	}
	// The same tenant's worker comes back under the same identity.
	again := e.worker(e.acme, 7, "sms")
	if _, d := other.refusal(); d.GetReason() != "CONNECTION_REPLACED" {
		t.Errorf("the older connection ended with %v", d)
	}
	_ = again
}

func TestATenantsWorkerServesItsTenantOnly(t *testing.T) {
	e := start(t)
	mine := e.worker(e.globex, 1, "email")
	theirs := e.submit(&errandv1.TaskSpec{Kind: "email"})
	own := e.submitAs(e.globex)
	a := mine.take()
	if a.GetTenant() != "globex" {
		t.Fatalf("a task of %s for a worker of globex", a.GetTenant())
	}
	mine.finish(succeeded(a, nil))
	if task := e.get(theirs.GetTaskId()); task.GetState() != errandv1.TaskState_TASK_STATE_READY {
		t.Errorf("acme's task is %v", task.GetState())
	}
	_ = own
}

// A worker that has said everything gets the answers before the connection ends.
func TestTheLastAcksArrive(t *testing.T) {
	e := start(t)
	w := e.worker(e.acme, 1, "email")
	e.submit(&errandv1.TaskSpec{Kind: "email"})
	a := w.take()
	w.say(&errandv1.WorkRequest{Finished: []*errandv1.Finished{succeeded(a, nil)}})
	if err := w.stream.CloseRequest(); err != nil {
		t.Fatal(err)
	}
	if err := w.end(); !errors.Is(err, io.EOF) {
		t.Errorf("the connection ended with %v", err)
	}
	if ack := receive(t, "the ack", w.acks); ack.GetAnswer() != errandv1.AckAnswer_ACK_ANSWER_RECORDED {
		t.Errorf("the ack is %v", ack)
	}
	polite := e.worker(e.acme, 2, "email")
	polite.say(&errandv1.WorkRequest{Goodbye: true})
	if err := polite.end(); !errors.Is(err, io.EOF) {
		t.Errorf("after a goodbye the connection ended with %v", err)
	}
}

func TestADrainedWorkerIsTold(t *testing.T) {
	e := start(t)
	w := e.worker(e.pool, 3, "email")
	listed, err := e.operator().ListWorkers(t.Context(), &errandv1.ListWorkersRequest{})
	if err != nil || len(listed.GetWorkers()) != 1 {
		t.Fatal(listed, err)
	}
	if _, err := e.operator().DrainWorker(t.Context(), &errandv1.DrainWorkerRequest{Worker: listed.GetWorkers()[0].GetWorker()}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "a drained worker", func() bool {
		listed, err := e.operator().ListWorkers(t.Context(), &errandv1.ListWorkersRequest{})
		return err == nil && listed.GetWorkers()[0].GetDraining()
	})
	_ = w
}

// Everything for a worker fits into messages that it must take, in order.
func TestResponsesAreCutByBytes(t *testing.T) {
	s := &workerService{deployment: deployment{region: region}}
	words := &engine.ToWorker{
		Registered: &engine.Registered{Lease: time.Second}, HeartbeatAck: &engine.HeartbeatAck{Seq: 1}, Goodbye: true, Drain: true,
		Acks: make([]engine.Ack, 1000), Stops: make([]scheduler.Stop, 1000),
	}
	const assigned = 100
	for i := range assigned {
		words.Assign = append(words.Assign, scheduler.Start{
			Held: scheduler.Held{Token: scheduler.Token{Attempt: int64(i + 1)}}, Payload: make([]byte, scheduler.PayloadMax),
			Devices: placement.Devices(i),
		})
	}
	var all []*errandv1.WorkResponse
	next := int64(1)
	for m := range s.responses(words) {
		if size := proto.Size(m); size > assignBytesMax+scheduler.PayloadMax+200_000 {
			t.Errorf("message %d has %d bytes", len(all), size)
		}
		for _, a := range m.GetAssign() {
			if a.GetToken().GetAttempt() != next {
				t.Fatalf("assignment %d comes after %d", a.GetToken().GetAttempt(), next-1)
			}
			var devices placement.Devices
			for _, d := range a.GetGpuDevices() {
				devices |= 1 << d
			}
			if devices != placement.Devices(next-1) || devices.Len() != len(a.GetGpuDevices()) || !slices.IsSorted(a.GetGpuDevices()) {
				t.Errorf("assignment %d has the devices %v", next, a.GetGpuDevices())
			}
			next++
		}
		all = append(all, m)
	}
	first, last := all[0], all[len(all)-1]
	if next != assigned+1 || len(all) < 10 {
		t.Errorf("%d assignments in %d messages", next-1, len(all))
	}
	if first.GetRegistered() == nil || first.GetHeartbeatAck() == nil || len(first.GetAcks()) != 1000 || len(first.GetStops()) != 1000 || !first.GetDrain() {
		t.Error("answers are not in the first message")
	}
	for _, m := range all[:len(all)-1] {
		if m.GetGoodbye() {
			t.Error("a goodbye before the last message: nothing after it is read")
		}
	}
	if !last.GetGoodbye() {
		t.Error("the goodbye is missing")
	}
	n := 0
	for m := range s.responses(&engine.ToWorker{}) {
		n++
		if proto.Size(m) != 0 {
			t.Errorf("nothing to say became %v", m)
		}
	}
	if n != 1 {
		t.Errorf("nothing to say became %d messages", n)
	}
}

func TestWorkerIdentities(t *testing.T) {
	raw := instance(9)
	pool := Principal{Scope: store.ScopePool}
	acme, globex := Principal{Scope: store.ScopeTenant, Tenant: "acme"}, Principal{Scope: store.ScopeTenant, Tenant: "globex"}
	if got := workerID(pool, raw); got != scheduler.WorkerID(raw) {
		t.Errorf("a pool worker is %v", got)
	}
	if workerID(acme, raw) == workerID(globex, raw) || workerID(acme, raw) == workerID(pool, raw) {
		t.Error("two credentials share an identity")
	}
	rotated := acme
	rotated.KeyID = "key-2"
	if workerID(acme, raw) != workerID(rotated, raw) {
		t.Error("a new key of the same tenant is another identity: workers could not come back after a rotation")
	}
}

func TestPeersSpeak(t *testing.T) {
	e := start(t)
	for body, want := range map[string]string{
		`{"id":"AAAAAAAAAAAAAAAAAAAAAA==","worker":"AAAAAAAAAAAAAAAAAAAAAA==","region":"eu"}`: "",
		`{"id":"AAAAAAAAAAAAAAAAAAAAAA==","worker":"AAAAAAAAAAAAAAAAAAAAAA==","region":"us"}`: "", // its instances may run tasks of any region
		`{"id":"AAAA","worker":"AAAAAAAAAAAAAAAAAAAAAA=="}`:                                   "invalid_argument",
	} {
		if got := e.post("/errand.peer.v1.PeerService/Cancel", peerSecret, "application/json", []byte(body)); got.code != want {
			t.Errorf("%s: %s", body, got)
		}
	}
	peers := NewPeers(e.http, peerSecret)
	rows, err := peers.Lend(t.Context(), scheduler.Session{Address: e.url}, []scheduler.KindRoom{{Kind: "email", Slots: 1}}, 10, scheduler.Borrower{})
	if err != nil || len(rows) != 0 {
		t.Errorf("an idle instance lends %v, %v", rows, err)
	}
	e.submit(&errandv1.TaskSpec{Kind: "email"})
	if rows, err = peers.Lend(t.Context(), scheduler.Session{Address: e.url}, []scheduler.KindRoom{{Kind: "email", Slots: 1}}, 10, scheduler.Borrower{}); err != nil || len(rows) != 1 {
		t.Errorf("an instance without workers lends %v, %v", rows, err)
	}
	if err := peers.Starved(t.Context(), scheduler.Session{Address: e.url}, []string{"email"}); err != nil {
		t.Error(err)
	}
	if err := peers.Cancel(t.Context(), scheduler.Session{Address: e.url}, scheduler.Token{Attempt: 1}); err != nil {
		t.Error(err)
	}
	if _, err := peers.Lend(t.Context(), scheduler.Session{}, nil, 1, scheduler.Borrower{}); err == nil {
		t.Error("a peer without an address was asked")
	}
	wrong := NewPeers(e.http, "wrong")
	if err := wrong.Starved(t.Context(), scheduler.Session{Address: e.url}, []string{"email"}); connect.CodeOf(err) != connect.CodeUnauthenticated {
		t.Errorf("a wrong secret: %v", err)
	}
}
