package main

import (
	"encoding/json"
	"fmt"
	"os"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/errandhq/errand"
)

func TestLinesOfSpecs(t *testing.T) {
	defaults := errand.Spec{Kind: "http", Payload: []byte("all"), Labels: map[string]string{"a": "1"}, Delay: time.Minute}
	with := func(change func(*errand.Spec)) errand.Spec {
		s := defaults
		change(&s)
		return s
	}
	tests := map[string]struct {
		line string
		want errand.Spec
		err  string
	}{
		"nothing":                   {line: `{}`, want: defaults},
		"a text":                    {line: `{"payload": "a\u0000\n"}`, want: with(func(s *errand.Spec) { s.Payload = []byte("a\x00\n") })},
		"JSON, byte by byte":        {line: `{"payload": {"id": 3889108265204450030,"x":1e400} }`, want: with(func(s *errand.Spec) { s.Payload = []byte(`{"id": 3889108265204450030,"x":1e400}`) })},
		"bytes":                     {line: `{"payload_base64": "/wA="}`, want: with(func(s *errand.Spec) { s.Payload = []byte("\xff\x00") })},
		"another label":             {line: `{"labels": {"b": "2"}}`, want: with(func(s *errand.Spec) { s.Labels = map[string]string{"a": "1", "b": "2"} })},
		"a time instead of a delay": {line: `{"run_at": "2030-01-02T03:04:05Z"}`, want: with(func(s *errand.Spec) { s.Delay, s.RunAt = 0, time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC) })},
		"a lot": {
			line: `{"kind": "k", "tier": "urgent", "delay": "2s", "start_within": "1h", "timeout": "90s", "max_attempts": 2, "idempotency_key": "i", "exclusive": true, "reject_if_infeasible": true}`,
			want: with(func(s *errand.Spec) {
				s.Kind, s.Tier, s.Delay, s.StartWithin, s.AttemptTimeout = "k", errand.Urgent, 2*time.Second, time.Hour, 90*time.Second
				s.MaxAttempts, s.IdempotencyKey, s.Exclusive, s.RejectInfeasible = 2, "i", true, true
			}),
		},
		"limits":                      {line: `{"limits": ["api", "api/a/b, c"]}`, want: with(func(s *errand.Spec) { s.Limits = []errand.Limit{{Name: "api"}, {Name: "api", Key: "a/b, c"}} })},
		"a limit without a name":      {line: `{"limits": ["/a"]}`, err: "limits: "},
		"a limit without its key":     {line: `{"limits": ["api/"]}`, err: "limits: "},
		"a limit that is no text":     {line: `{"limits": [5]}`, err: "limits"},
		"a field that does not exist": {line: `{"prioritee": 1}`, err: "prioritee"},
		"a tier that does not exist":  {line: `{"tier": "soon"}`, err: "soon"},
		"a number as a time":          {line: `{"delay": 5}`, err: "90s"},
		"two payloads":                {line: `{"payload": 1, "payload_base64": "eA=="}`, err: "payload_base64"},
		"two objects":                 {line: `{} {}`, err: "follows"},
		"no object":                   {line: `null`, err: "object"},
		"half an object":              {line: `{"kind": "k"`, err: "EOF"},
	}
	for name, tt := range tests {
		got, err := parseSpec([]byte(tt.line), &defaults)
		if tt.err != "" {
			if err == nil || !strings.Contains(err.Error(), tt.err) {
				t.Errorf("%s: %v, want an error with %q", name, err, tt.err)
			}
			continue
		}
		if err != nil || !reflect.DeepEqual(got, tt.want) {
			t.Errorf("%s: %+v, %v; want %+v", name, got, err, tt.want)
		}
	}
	if len(defaults.Labels) != 1 {
		t.Errorf("a line changed the defaults: %v", defaults.Labels)
	}
}

func TestBatchesOfLinesAreBounded(t *testing.T) {
	defaults := &errand.Spec{Kind: "k"}
	big := fmt.Sprintf(`{"payload": %q}`+"\n", strings.Repeat("x", 200<<10))
	tests := map[string]struct {
		text  string
		sizes []int
		bad   string
	}{
		"nothing":            {text: "", sizes: []int{0}},
		"empty lines":        {text: "\n\n{}\n\n{}", sizes: []int{2, 0}},
		"many small ones":    {text: strings.Repeat("{}\n", batchLinesMax+1), sizes: []int{batchLinesMax, 1, 0}},
		"some large ones":    {text: strings.Repeat(big, 22), sizes: []int{21, 1, 0}},
		"one that is longer": {text: "{}\n" + strings.Repeat("x", lineBytesMax+1), sizes: []int{1}, bad: "line 2: it is longer than 2 MiB"},
		"bad ones":           {text: "{}\n[]\n{}\nx\n", sizes: []int{2}, bad: "line 2: it is not a JSON object, line 4: it is not a JSON object"},
	}
	for name, tt := range tests {
		r := newSpecReader(strings.NewReader(tt.text), defaults)
		for i, want := range tt.sizes {
			b, bad, err := r.next()
			var told []string
			for _, l := range bad {
				told = append(told, fmt.Sprintf("line %d: %v", l.line, l.err))
			}
			if err != nil || len(b.specs) != want || strings.Join(told, ", ") != tt.bad {
				t.Errorf("%s, batch %d: %d specs, %v, %v; want %d, %q", name, i, len(b.specs), told, err, want, tt.bad)
			}
		}
	}
}

// Many tasks from a file: stored in batches, refused by line.
func TestSubmitMany(t *testing.T) {
	d := deploy(t)
	d.submit(t, errand.Spec{Kind: "nobody"}) // the instance has its session
	file := func(text string) string {
		f := tempFile(t)
		if _, err := f.WriteString(text); err != nil {
			t.Fatal(err)
		}
		return f.Name()
	}
	var keyed strings.Builder
	for i := range batchLinesMax + 5 {
		fmt.Fprintf(&keyed, `{"payload": {"n": %d}, "idempotency_key": "n-%d"}`+"\n", i, i)
	}
	all := file(keyed.String())
	steps := []struct {
		name string
		args []string
		code int
		want string
	}{
		{"all", []string{"submit", "nobody", "--many", all}, 0, "1005    0        0"},
		{"what would not start", []string{"submit", "nobody", "--many", file(`{"reject_if_infeasible": true}` + "\n{}\n")}, exitFailed, "line 1: "},
		{"all of it at risk", []string{"submit", "nobody", "--many", file("{}\n")}, 0, "AT RISK"},
		{"all again", []string{"submit", "nobody", "--many", all}, 0, "0       1005     0"},
		{"a key of another request", []string{"submit", "nobody", "--many", file(`{"payload": "x", "idempotency_key": "n-3"}` + "\n{}\n")}, exitFailed, "line 1: "},
		{"a bad line", []string{"submit", "--many", file(`{"kind": "nobody"}` + "\n" + `{"kind": 5}` + "\n")}, exitUsage, "line 2: "},
		{"a line that the scheduler refuses", []string{"submit", "--many", file("\n" + `{"kind": "nobody"}` + "\n\n" + `{"kind": "No Kind"}` + "\n")}, exitUsage, "line 4: kind"},
		{"a bad line of the second batch", []string{"submit", "nobody", "--many", file(keyed.String() + "nonsense\n")}, exitUsage, "tail -n +1001"},
	}
	for _, s := range steps {
		out, errs, code := d.command(t, d.cfg.Key, s.args...)
		if code != s.code || !strings.Contains(out+errs, s.want) {
			t.Errorf("%s: exit %d, want %d and %q:\n%s%s", s.name, code, s.code, s.want, out, errs)
		}
	}
	// Of the batches with a bad line nothing was stored: the first task, all, the second line of what would not start, what is at risk, and
	// the second line of the reused key.
	const stored = 1 + batchLinesMax + 5 + 3
	n := 0
	for _, err := range d.client.List(t.Context(), errand.Filter{}) {
		if err != nil {
			t.Fatal(err)
		}
		n++
	}
	if n != stored {
		t.Errorf("%d tasks are stored, want %d", n, stored)
	}
}

func TestSubmitManyFromStandardInputAsJSON(t *testing.T) {
	d := deploy(t)
	d.submit(t, errand.Spec{Kind: "nobody"})
	stdin := os.Stdin
	defer func() { os.Stdin = stdin }()
	os.Stdin = tempFile(t)
	if _, err := os.Stdin.WriteString("{}\n\n{}\n"); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stdin.Seek(0, 0); err != nil {
		t.Fatal(err)
	}
	out, errs, code := d.command(t, d.cfg.Key, "submit", "nobody", "--many", "-", "-o", "json")
	if code != 0 || errs != "" {
		t.Fatalf("exit %d: %s", code, errs)
	}
	lines := strings.Split(strings.TrimSpace(out), "\n")
	var last manyView
	if err := json.Unmarshal([]byte(lines[len(lines)-1]), &last); err != nil || len(lines) != 2 || last.Line != 3 || last.TaskID == "" || last.State != "ready" || last.AtRisk != "NO_WORKER" {
		t.Errorf("%v: %s", err, out)
	}
}

// A line's limits take the place of the command line's; none are none.
func TestLimitsOfALine(t *testing.T) {
	defaults := &errand.Spec{Kind: "k", Limits: []errand.Limit{{Name: "api"}}}
	for line, want := range map[string]string{`{}`: "api", `{"limits": ["mail/a"]}`: "mail/a", `{"limits": []}`: ""} {
		got, err := parseSpec([]byte(line), defaults)
		if text := strings.Join(limitTexts(got.Limits), " "); err != nil || text != want {
			t.Errorf("%s: %q, %v, want %q", line, text, err, want)
		}
	}
}
