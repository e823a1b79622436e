package api

import (
	"math"
	"reflect"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/errandhq/errand/placement"
	peerv1 "github.com/errandhq/errand/proto/errand/peer/v1"
	errandv1 "github.com/errandhq/errand/proto/errand/v1"
	"github.com/errandhq/errand/scheduler"
)

func lentTask() *scheduler.Task {
	return &scheduler.Task{
		Ref: scheduler.Ref{ID: scheduler.ID{1, 2}}, Attempt: 3, State: scheduler.Ready, Tenant: "acme", Kind: "encode", Tier: scheduler.Urgent,
		Due: time.Unix(5, 6).UTC(), StartBy: time.Unix(7, 0).UTC(), Suspect: true,
		Spec: scheduler.Spec{
			AllowedRegions: []string{"eu", "us"}, Limits: []scheduler.LimitKey{{Name: "payments", Key: "k"}},
			Shape: &placement.Shape{
				Resources: placement.Resources{CPUMilli: 500, MemoryMiB: 1024, Slots: 2, GPUMilli: 250}, Near: "b",
				Selectors:   []placement.Selector{{Key: "disk", Operator: placement.In, Values: []string{"ssd"}}, {Key: "fast", Operator: placement.Exists}},
				Preferences: []placement.Preference{{Selector: placement.Selector{Key: "n", Operator: placement.Greater, Values: []string{"1.5"}}, Weight: 7}},
			},
		},
	}
}

// A row that is lent arrives as it was, and one that is not fully understood does not arrive.
func TestLentRowsArriveWhole(t *testing.T) {
	row := lentTask().WaitingRow()
	m := lentMessage(&row)
	got, known := lentRow(sent(t, m))
	if !known || !reflect.DeepEqual(got, row) {
		t.Errorf("%v\n%+v\nwant\n%+v", known, got, row)
	}
	plain := scheduler.Task{Ref: scheduler.Ref{ID: scheduler.ID{1}}, State: scheduler.Ready, Tenant: "acme", Kind: "email", Due: time.Unix(5, 0).UTC()}
	row = plain.WaitingRow()
	if got, known = lentRow(sent(t, lentMessage(&row))); !known || !reflect.DeepEqual(got, row) {
		t.Errorf("%v\n%+v\nwant\n%+v", known, got, row)
	}
	for name, change := range map[string]func(*peerv1.Row){
		"from an older version, without its needs": func(m *peerv1.Row) { m.Needs = nil },
		"without its regions":                      func(m *peerv1.Row) { m.AllowedRegions = nil },
		"with something else in its class":         func(m *peerv1.Row) { m.Class++ },
		"with half an id":                          func(m *peerv1.Row) { m.Id = m.Id[:8] },
		"with a selector that means nothing":       func(m *peerv1.Row) { m.Needs.Selectors[0].Values = nil },
	} {
		changed := sent(t, m)
		change(changed)
		if _, known := lentRow(changed); known {
			t.Errorf("a row %s is taken", name)
		}
	}
}

// sent is a message as it arrives.
func sent[M proto.Message](t *testing.T, m M) M {
	t.Helper()
	raw, err := proto.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	arrived := m.ProtoReflect().New().Interface().(M)
	if err := proto.Unmarshal(raw, arrived); err != nil {
		t.Fatal(err)
	}
	return arrived
}

func TestOffersArriveWhole(t *testing.T) {
	for _, o := range []placement.Offer{
		{Slots: map[string]int{"encode": 2}},
		{
			Tenant: "acme", Slots: map[string]int{"encode": 2, "email": 1}, Free: &placement.Resources{CPUMilli: 1, MemoryMiB: 2, Slots: 3},
			Devices: []int{0, 250, 1000}, Suspect: true, Zone: "b", Labels: map[string]string{"disk": "ssd"},
		},
	} {
		if got, err := offerOf(sent(t, offerMessage(&o)), ""); err != nil || !reflect.DeepEqual(got, o) {
			t.Errorf("%+v, %v; want %+v", got, err, o)
		}
	}
}

// Offers beyond what a worker can have are refused.
func TestBadOffersAreRefused(t *testing.T) {
	e := start(t)
	good := func() *peerv1.Offer {
		return offerMessage(&placement.Offer{Slots: map[string]int{"encode": 1}, Free: &placement.Resources{}, Devices: []int{1000}})
	}
	many := make(map[string]string, 129)
	for i := range 129 {
		many[strings.Repeat("l", 1+i%60)+string(rune('a'+i/60))] = ""
	}
	for name, c := range map[string]struct {
		change func(*peerv1.Offer)
		want   string
	}{
		"a good one":             {func(*peerv1.Offer) {}, ""},
		"negative slots":         {func(o *peerv1.Offer) { o.Kinds[0].Slots = -1 }, "invalid_argument"},
		"a kind twice":           {func(o *peerv1.Offer) { o.Kinds = append(o.Kinds, o.Kinds[0]) }, "invalid_argument"},
		"too many kinds":         {func(o *peerv1.Offer) { o.Kinds = make([]*peerv1.KindRoom, 65) }, "invalid_argument"},
		"negative processors":    {func(o *peerv1.Offer) { o.Free.CpuMilli = -1 }, "invalid_argument"},
		"huge memory":            {func(o *peerv1.Offer) { o.Free.MemoryMib = math.MaxInt32 }, "invalid_argument"},
		"a negative device":      {func(o *peerv1.Offer) { o.Devices[0] = -1 }, "invalid_argument"},
		"more than a device":     {func(o *peerv1.Offer) { o.Devices[0] = 1001 }, "invalid_argument"},
		"too many devices":       {func(o *peerv1.Offer) { o.Devices = make([]int32, 65) }, "invalid_argument"},
		"a long tenant":          {func(o *peerv1.Offer) { o.Tenant = strings.Repeat("t", 64) }, "invalid_argument"},
		"a long zone":            {func(o *peerv1.Offer) { o.Zone = strings.Repeat("z", 64) }, "invalid_argument"},
		"a label without a name": {func(o *peerv1.Offer) { o.Labels = map[string]string{"": "x"} }, "invalid_argument"},
		"too many labels":        {func(o *peerv1.Offer) { o.Labels = many }, "invalid_argument"},
	} {
		o := good()
		c.change(o)
		if got := e.post("/errand.peer.v1.PeerService/Lend", peerSecret, "application/json", lendJSON(t, o)); got.code != c.want {
			t.Errorf("%s: %s", name, got)
		}
	}
	if got := e.post("/errand.peer.v1.PeerService/Lend", peerSecret, "application/json", lendJSON(t, make([]*peerv1.Offer, placement.OffersMax+1)...)); got.code != "invalid_argument" {
		t.Errorf("too many offers: %s", got)
	}
}

func lendJSON(t *testing.T, offers ...*peerv1.Offer) []byte {
	t.Helper()
	for i := range offers {
		if offers[i] == nil {
			offers[i] = &peerv1.Offer{}
		}
		for j, k := range offers[i].Kinds {
			if k == nil {
				offers[i].Kinds[j] = &peerv1.KindRoom{Kind: strings.Repeat("k", j%60+1)}
			}
		}
	}
	body, err := protojson.Marshal(&peerv1.LendRequest{Offers: offers, Limit: 1})
	if err != nil {
		t.Fatal(err)
	}
	return body
}

// A task that needs a GPU is lent to an instance that offers one, over the wire, and to no other.
func TestPeersLendWhatFits(t *testing.T) {
	e := start(t)
	e.submit(&errandv1.TaskSpec{Kind: "email", Requirements: &errandv1.Requirements{Gpus: 1}})
	peers := NewPeers(e.http, peerSecret)
	lend := func(offers ...placement.Offer) []scheduler.ReadyRow {
		t.Helper()
		rows, err := peers.Lend(t.Context(), scheduler.Session{Address: e.url}, []scheduler.KindRoom{{Kind: "email", Slots: 1}}, 10, scheduler.Borrower{Offers: offers})
		if err != nil {
			t.Fatal(err)
		}
		return rows
	}
	offer := placement.Offer{Slots: map[string]int{"email": 1}, Free: &placement.Resources{}}
	if rows := lend(); len(rows) != 0 {
		t.Errorf("an older version is lent %v", rows)
	}
	if rows := lend(offer); len(rows) != 0 {
		t.Errorf("who has no GPU is lent %v", rows)
	}
	offer.Devices = []int{1000}
	if rows := lend(offer); len(rows) != 1 || rows[0].Shape == nil || rows[0].Shape.GPUs != 1 {
		t.Errorf("who has one is lent %+v", rows)
	}
}
