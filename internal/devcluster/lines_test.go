package devcluster

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

const someLatency = `
store: {r1: 1, r2: 80}
distances:
  - {between: [r2, r1], ms: 80}
`

func TestLatencyIsRead(t *testing.T) {
	l, err := ParseLatency([]byte(someLatency), []string{"r1", "r2", "r3"})
	if err != nil {
		t.Fatal(err)
	}
	for pair, want := range map[[2]string]time.Duration{
		{"r1", TheStore}: time.Millisecond, {TheStore, "r2"}: 80 * time.Millisecond, {"r3", TheStore}: 0,
		{"r1", "r2"}: 80 * time.Millisecond, {"r2", "r1"}: 80 * time.Millisecond, {"r1", "r3"}: 0,
	} {
		if got := l.RoundTrip(PairOf(pair[0], pair[1])); got != want {
			t.Errorf("%v: %v, want %v", pair, got, want)
		}
	}
}

func TestLatencyThatCannotBe(t *testing.T) {
	for name, tt := range map[string]struct{ text, want string }{
		"an unknown key":          {"shop: {r1: 1}", "unknown field"},
		"no number":               {"store: {r1: near}", "near"},
		"a strange region":        {"store: {r9: 1}", `"r9"`},
		"less than nothing":       {"store: {r1: -1}", "not between"},
		"far beyond the moon":     {"store: {r1: 10001}", "not between"},
		"one end":                 {"distances: [{between: [r1], ms: 1}]", "two regions"},
		"a region and itself":     {"distances: [{between: [r1, r1], ms: 1}]", "two regions"},
		"a strange end":           {"distances: [{between: [r1, r9], ms: 1}]", `"r9"`},
		"a pair twice":            {"distances: [{between: [r1, r2], ms: 1}, {between: [r2, r1], ms: 2}]", "before"},
		"a distance that is none": {"distances: [{between: [r1, r2], ms: .nan}]", "not between"},
	} {
		if _, err := ParseLatency([]byte(tt.text), []string{"r1", "r2"}); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v; want %q", name, err, tt.want)
		}
	}
}

// What is said of a pair holds for all lines between the two, also for those that are laid later.
func TestLinesAreControlled(t *testing.T) {
	l, err := ParseLatency([]byte(someLatency), []string{"r1", "r2"})
	if err != nil {
		t.Fatal(err)
	}
	ls := NewLines(l)
	t.Cleanup(ls.Close)
	target := echo(t).Addr().String()
	lay := func(a, b string) {
		t.Helper()
		if _, err := ls.Between(a, b, LineEnds{Network: "tcp", Target: target}); err != nil {
			t.Fatal(err)
		}
	}
	lay("r1", "r2")
	lay("r1", TheStore)
	server := httptest.NewServer(ls.Handler())
	t.Cleanup(server.Close)
	ask := func(body string) (int, string) {
		t.Helper()
		resp, err := http.Post(server.URL+"/lines", "application/json", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		said, _ := io.ReadAll(resp.Body)
		return resp.StatusCode, string(said)
	}
	if code, said := ask(`{"between": ["r2", "r1"], "state": "cut", "factor": 10}`); code != http.StatusOK {
		t.Fatalf("%d %s", code, said)
	}
	lay("r2", "r1")
	resp, err := http.Get(server.URL + "/lines")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var got []LinkStatus
	if err := json.NewDecoder(resp.Body).Decode(&got); err != nil {
		t.Fatal(err)
	}
	want := []LinkStatus{
		{Between: [2]string{"r1", "r2"}, State: LineCut, MS: 800, Lines: 2},
		{Between: [2]string{"r1", TheStore}, State: LineOpen, MS: 1, Lines: 1},
	}
	if len(got) != 2 || got[0] != want[0] || got[1] != want[1] {
		t.Errorf("%+v\nwant %+v", got, want)
	}
	for _, line := range ls.links[PairOf("r1", "r2")].lines {
		if line.State() != LineCut || line.RoundTrip() != 800*time.Millisecond {
			t.Errorf("a line is %s, %v", line.State(), line.RoundTrip())
		}
	}
	if err := ls.SetAll("r1", false, Change{State: LineClosed}); err != nil {
		t.Fatal(err)
	}
	if now := ls.Status(); now[0].State != LineClosed || now[1].State != LineOpen {
		t.Errorf("all between regions: %+v", now)
	}
	for body, want := range map[string]string{
		`{"between": ["r1", "r9"], "state": "cut"}`:        "no line between r1 and r9",
		`{"between": ["r1"], "state": "cut"}`:              "two ends",
		`{"between": ["r1", "r2"], "state": "torn"}`:       "torn",
		`{"between": ["r1", "r2"], "factor": -1}`:          "factor",
		`{"between": ["r1", "r2"], "speed": 1}`:            "speed",
		`{"between": "` + strings.Repeat("x", 5000) + `"}`: "too large",
	} {
		if code, said := ask(body); code != http.StatusBadRequest || !strings.Contains(said, want) {
			t.Errorf("%.50s: %d %s; want %q", body, code, said, want)
		}
	}
}
