package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	tea "charm.land/bubbletea/v2"
	"github.com/charmbracelet/x/ansi"
	"github.com/cockroachdb/datadriven"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/errandhq/errand"
	"github.com/errandhq/errand/internal/store"
	errandv1 "github.com/errandhq/errand/proto/errand/v1"
)

// noon is when the pictures of these tests are drawn.
var noon = time.Date(2026, 12, 3, 12, 0, 0, 0, time.UTC)

func tierOf(tier errandv1.Tier, open, atHand, running int64, due, bound time.Duration) *errandv1.TierOverview {
	return &errandv1.TierOverview{
		Tier: tier, Open: open, AtHand: atHand, Running: running, OldestDue: timestamppb.New(noon.Add(due)), Bound: durationpb.New(bound),
	}
}

// aRegion has a flood, somebody who has to wait for it, somebody whose name is an attack, and many who are quiet.
func aRegion() *errandv1.Overview {
	const urgent, standard, deferrable = errandv1.Tier_TIER_URGENT, errandv1.Tier_TIER_STANDARD, errandv1.Tier_TIER_DEFERRABLE
	held := tierOf(deferrable, 1234567, 20000, 0, 23*time.Hour, 30*time.Hour)
	held.Held, held.Unserved = 12000, 7
	o := &errandv1.Overview{
		Region: "eu", At: timestamppb.New(noon), Instances: 2, InstancesSilent: 1, Workers: 4, TenantsLeftOut: 3,
		Tiers: []*errandv1.TierOverview{
			tierOf(urgent, 40, 12, 8, -3*time.Minute, 95*time.Second), tierOf(standard, 333, 300, 20, 12*time.Second, 4*time.Minute), held,
		},
		Tenants: []*errandv1.TenantOverview{
			{Tenant: "flood", Weight: 1, Fair: 0.25, Used: 0.613, Demoted: true, Tiers: []*errandv1.TierOverview{
				tierOf(urgent, 30, 2, 8, -200*time.Millisecond, 95*time.Second), held,
			}},
			{Tenant: "acme-photos-and-films-of-the-year", Weight: 3, Fair: 0.75, Used: 0.3, Tiers: []*errandv1.TierOverview{
				tierOf(standard, 300, 280, 20, 12*time.Second, 4*time.Minute),
			}},
			{Tenant: "\x1b[2J\x1b]0;mine\a\u202etxt\n", Weight: 0.125, Fair: 0.001, Used: 0, Tiers: []*errandv1.TierOverview{
				tierOf(urgent, 10, 10, 0, -3*time.Minute, time.Minute),
			}},
		},
		Kinds: []*errandv1.KindOverview{
			{Kind: "http", Slots: 32, Used: 8, AtHand: 2}, {Kind: "encode", Slots: 20, Used: 20, AtHand: 20280}, {Kind: "nobody", AtHand: 7},
		},
	}
	for i := range 20 {
		o.Tenants = append(o.Tenants, &errandv1.TenantOverview{Tenant: fmt.Sprintf("quiet-%02d", i), Weight: 1, Tiers: []*errandv1.TierOverview{
			{Tier: standard, Open: 1, Running: 1},
		}})
	}
	return o
}

func someWorkers() *topWorkers {
	kind := func(kind string, slots int32) *errandv1.Worker_KindCapacity {
		return &errandv1.Worker_KindCapacity{Kind: kind, Slots: slots}
	}
	return &topWorkers{more: true, list: []*errandv1.Worker{
		{
			Worker: "320cdbd0-486e-e9d2-10f0-2ce1649810c2", Name: "gpu\x1b[31m", Connected: true,
			Kinds: []*errandv1.Worker_KindCapacity{kind("encode", 10), kind("thumbnail", 100), kind("preview", 100)},
		},
		{
			Worker: "d1b30c9a-894d-5b5f-88cf-72ec3ef304ce", Tenant: "acme", Draining: true, Silent: durationpb.New(3 * time.Second),
			Kinds: []*errandv1.Worker_KindCapacity{kind("http", 16)},
		},
		{Worker: "ddf360a7-5412-c37d-c0c3-642af7e3891f", Name: "日本", Kinds: []*errandv1.Worker_KindCapacity{kind("http", 16)}},
	}}
}

// play is a model with a clock of its own, and counts how often it asks.
type play struct {
	model topModel
	asked int
	ended bool
}

func newPlay() *play {
	p := &play{}
	p.model = newTopModel(topAnswer{at: noon, overview: aRegion()}, 2*time.Second, func(bool) tea.Cmd {
		p.asked++
		return func() tea.Msg { return nil }
	})
	p.model.zone = time.UTC
	return p
}

func (p *play) tell(msg tea.Msg) tea.Cmd {
	next, cmd := p.model.Update(msg)
	p.model = next.(topModel)
	return cmd
}

func (p *play) press(t *testing.T, names ...string) {
	t.Helper()
	special := map[string]rune{
		"up": tea.KeyUp, "down": tea.KeyDown, "pgup": tea.KeyPgUp, "pgdown": tea.KeyPgDown, "home": tea.KeyHome, "end": tea.KeyEnd,
		"space": tea.KeySpace,
	}
	for _, name := range names {
		key := tea.KeyPressMsg{Code: special[name]}
		if key.Code == 0 {
			key = tea.KeyPressMsg{Code: []rune(name)[0], Text: name}
		}
		if key.String() != name {
			t.Fatalf("%q is %q", name, key.String())
		}
		p.ended = false
		if cmd := p.tell(key); cmd != nil && (name == "q") {
			_, p.ended = cmd().(tea.QuitMsg)
		}
	}
}

// What the screen shows, as a story: testdata/top.txt.
func TestTop(t *testing.T) {
	p := newPlay()
	clock := noon
	datadriven.RunTest(t, "testdata/top.txt", func(t *testing.T, d *datadriven.TestData) string {
		arg := func(name string) (value int) {
			d.ScanArgs(t, name, &value)
			return value
		}
		switch d.Cmd {
		case "size":
			p.tell(tea.WindowSizeMsg{Width: arg("width"), Height: arg("height")})
		case "press":
			for _, a := range d.CmdArgs {
				p.press(t, a.Key)
			}
		case "fails":
			p.tell(topAnswer{at: clock, err: errors.New(strings.TrimSpace(d.Input))})
			return ""
		case "answers":
			p.tell(topAnswer{at: clock, overview: aRegion(), workers: someWorkers()})
		case "passes":
			clock = clock.Add(time.Duration(arg("seconds")) * time.Second)
			p.tell(topClock(clock))
		case "once":
			o := aRegion()
			o.Tenants = o.Tenants[:5]
			return trimmed(pictureOf(o, arg("width"), time.UTC))
		default:
			d.Fatalf(t, "unknown command")
		}
		return trimmed(p.screen(t))
	})
}

// screen is what is shown. Whatever was written by others, it fits, and nothing in it can steer the terminal.
func (p *play) screen(t *testing.T) string {
	t.Helper()
	v := p.model.View()
	lines := strings.Split(v.Content, "\n")
	if len(lines) > p.model.height || !v.AltScreen {
		t.Errorf("%d lines on a screen of %d", len(lines), p.model.height)
	}
	for i, line := range lines {
		line = strings.TrimSuffix(strings.TrimPrefix(line, reverseOn), reverseOff)
		if ansi.StringWidth(line) > p.model.width || ansi.Strip(line) != line || escaped(line) != strings.ReplaceAll(line, `\`, `\\`) {
			t.Errorf("line %d of %d columns: %q", i, p.model.width, line)
		}
		lines[i] = strings.TrimRight(line, " ")
	}
	return strings.Join(lines, "\n")
}

// trimmed is a text that ends with one line break, as the script has it.
func trimmed(s string) string { return strings.TrimRight(s, "\n") + "\n" }

// Every order, both ways; what has no value comes last in both.
func TestTopSorts(t *testing.T) {
	o := aRegion()
	o.Tenants = o.Tenants[:4]
	tests := []struct {
		table topTable
		key   string
		want  string
		back  string
	}{
		{tenantsTable, "o", "flood acme escape quiet", "quiet escape acme flood"},
		{tenantsTable, "u", "flood acme escape quiet", "escape quiet acme flood"},
		{tenantsTable, "l", "escape flood acme quiet", "acme flood escape quiet"},
		{tenantsTable, "b", "flood acme escape quiet", "escape acme flood quiet"},
		{tenantsTable, "n", "escape acme flood quiet", "quiet flood acme escape"},
		{kindsTable, "o", "encode nobody http", "http nobody encode"},
		{kindsTable, "u", "encode http nobody", "nobody http encode"},
		{kindsTable, "n", "encode http nobody", "nobody http encode"},
		{workersTable, "o", "gpu d1b30c9a 日本", "d1b30c9a 日本 gpu"},
		{workersTable, "n", "d1b30c9a gpu 日本", "日本 gpu d1b30c9a"},
	}
	for _, tt := range tests {
		for reversed, want := range map[bool]string{false: tt.want, true: tt.back} {
			order := topOrder{tt.key, reversed}
			m := topModel{overview: o, workers: someWorkers(), table: tt.table}
			m.orders[tt.table] = order
			var got []string
			for _, row := range m.rows() {
				name, _, _ := strings.Cut(strings.Replace(row.name, "\x1b[2J", "escape\x1b", 1), "\x1b")
				name, _, _ = strings.Cut(name, "-")
				got = append(got, name)
			}
			if strings.Join(got, " ") != want {
				t.Errorf("table %d by %s, reversed %v: %v, want %s", tt.table, tt.key, reversed, got, want)
			}
			if order.words(tt.table) == "" {
				t.Errorf("table %d by %s: no words", tt.table, tt.key)
			}
		}
	}
}

// It asks once at a time, when the time has come, and not while it is paused.
func TestTopAsks(t *testing.T) {
	p := newPlay()
	steps := []struct {
		name  string
		does  func()
		asked int
	}{
		{"at the end of the first wait", func() { p.tell(topTurn{p.model.turn}) }, 1},
		{"not twice", func() { p.tell(topTurn{p.model.turn}) }, 1},
		{"not while the answer is awaited", func() { p.press(t, "w") }, 1},
		{"again when it came without the workers", func() { p.tell(topAnswer{at: noon, overview: aRegion()}) }, 2},
		{"not at once when it has all", func() { p.tell(topAnswer{at: noon, overview: aRegion(), workers: someWorkers()}) }, 2},
		{"after it failed, at the next turn", func() {
			p.tell(topTurn{p.model.turn})
			p.tell(topAnswer{at: noon, err: errors.New("no")})
			p.tell(topTurn{p.model.turn})
		}, 4},
		{"not while paused", func() {
			p.press(t, "space")
			p.tell(topAnswer{at: noon, overview: &errandv1.Overview{}, workers: &topWorkers{}})
			p.tell(topTurn{p.model.turn})
			p.press(t, "k", "w")
		}, 4},
		{"when it goes on", func() { p.press(t, "space") }, 5},
	}
	for _, s := range steps {
		if s.does(); p.asked != s.asked {
			t.Errorf("%s: asked %d times, want %d", s.name, p.asked, s.asked)
		}
	}
	if len(p.model.overview.GetTenants()) == 0 || len(p.model.workers.list) == 0 {
		t.Error("what is shown has changed during a pause")
	}
	p.tell(topAnswer{at: noon, overview: aRegion(), workers: someWorkers()})
	p.tell(topAnswer{at: noon, err: fmt.Errorf("asking: %w", context.DeadlineExceeded)})
	if !strings.Contains(p.screen(t), "no answer for 0s: it takes longer than 5s") {
		t.Errorf("no answer in time:\n%s", p.screen(t))
	}
	before := p.model.turn
	if p.press(t, "+"); p.model.interval != 5*time.Second || p.model.turn == before {
		t.Errorf("+: every %v; the wait that was begun still counts: %v", p.model.interval, p.model.turn == before)
	}
	p.press(t, "-", "-", "-", "-", "-")
	if p.model.interval != topIntervalMin {
		t.Errorf("-: every %v", p.model.interval)
	}
	if p.press(t, "?", "q"); !p.ended {
		t.Error("q does not end it")
	}
}

func TestTopNumbersAreShort(t *testing.T) {
	for n, want := range map[int64]string{0: "0", 99999: "99999", 123456: "123k", 12345678: "12M", 12345678901: "12G"} {
		if got := count(n); got != want {
			t.Errorf("%d: %q, want %q", n, got, want)
		}
	}
	for d, want := range map[time.Duration]string{
		0: "0s", 99 * time.Second: "99s", 101 * time.Second: "2m", 101 * time.Minute: "2h", 49 * time.Hour: "2d", 365 * 24 * time.Hour: "365d",
	} {
		if got := rough(d); got != want {
			t.Errorf("%v: %q, want %q", d, got, want)
		}
	}
	for part, want := range map[float64]string{0: "0%", 0.001: "<1%", 0.255: "26%", 1: "100%"} {
		if got := percent(part); got != want {
			t.Errorf("%v: %q, want %q", part, got, want)
		}
	}
	for w, want := range map[float64]string{1: "1", 0.125: "0.12", 2.5: "2.5", 1000: "1000"} {
		if got := weight(w); got != want {
			t.Errorf("%v: %q, want %q", w, got, want)
		}
	}
}

func TestTopRefusesBadFlags(t *testing.T) {
	for flag, value := range map[string]string{"--interval": "0.4s", "--tenants": "1001"} {
		if _, errs, code := output(t, "top", "--key", "k", flag, value); code != exitUsage || !strings.Contains(errs, flag) {
			t.Errorf("%s=%s: exit %d: %s", flag, value, code, errs)
		}
	}
}

// A deployment as an operator sees it: in words, as JSON, and who may not.
func TestTopOfADeployment(t *testing.T) {
	d := deploy(t)
	release := make(chan struct{})
	let := sync.OnceFunc(func() { close(release) })
	defer let()
	d.work(t, errand.WorkerConfig{Name: "anna"}, map[string]errand.Handler{
		"long": func(context.Context, *errand.Attempt) (errand.Result, error) {
			<-release
			return errand.Result{}, nil
		},
	})
	for range 3 {
		d.submit(t, errand.Spec{Kind: "long"})
		d.submit(t, errand.Spec{Kind: "nobodys", Tier: errand.Urgent, DelayTolerance: time.Hour})
	}
	admin := d.key(t, store.Key{Scope: store.ScopeAdmin})
	var v overviewView
	waitUntil(t, "the overview has all six", func() bool {
		out, errs, code := d.command(t, admin, "top", "-o", "json")
		if code != 0 || errs != "" {
			t.Fatalf("exit %d: %s%s", code, out, errs)
		}
		v = overviewView{}
		if err := json.Unmarshal([]byte(out), &v); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		return len(v.Tenants) == 1 && len(v.Tiers) == 3 && v.Tiers[0].Unserved == 3 && v.Tiers[1].Running == 3
	})
	if v.Region != "local" || v.At == nil || v.Instances != 1 || v.InstancesSilent != 0 || v.Workers != 1 || v.Tenants[0].Tenant != "acme" {
		t.Errorf("%+v", v)
	}
	out, errs, code := d.command(t, admin, "top", "--once")
	for _, want := range []string{"region local   20", "1 instance   1 worker", "TENANT", "acme ", "KIND", "urgent"} {
		if code != 0 || errs != "" || !strings.Contains(out, want) {
			t.Errorf("exit %d, want 0 and %q: %s%s", code, want, out, errs)
		}
	}
	if out, errs, code := d.command(t, d.cfg.Key, "top", "--once"); code != exitDenied || out != "" {
		t.Errorf("a tenant as operator: exit %d: %s%s", code, out, errs)
	}
	source := &topSource{tenants: 1}
	clientOf := clientSettings{URL: d.cfg.URLs[0], Key: admin}
	var err error
	if source.admin, err = clientOf.admin(); err != nil {
		t.Fatal(err)
	}
	if a := source.ask(t.Context(), true); a.err != nil || len(a.workers.list) != 1 || a.workers.list[0].GetName() != "anna" || a.workers.more {
		t.Errorf("with workers: %+v", a)
	}
	let()
	d.stop()
	if a := source.ask(t.Context(), false); !errors.Is(a.err, errand.ErrUnavailable) {
		t.Errorf("nobody there: %v", a.err)
	}
}

// On a terminal it goes on until q; a terminal that cannot draw gets one picture, in plain letters.
func TestTopOnATerminal(t *testing.T) {
	d := deploy(t)
	d.submit(t, errand.Spec{Kind: "nobodys"}) // from here on the instance has its session
	admin := d.key(t, store.Key{Scope: store.ScopeAdmin})
	for kind, live := range map[string]bool{"xterm-256color": true, "dumb": false} {
		cmd := exec.CommandContext(t.Context(), "script", "-qefc", `stty rows 24 cols 80; exec "$ERRAND_ITSELF" top`, os.DevNull)
		cmd.Env = append(os.Environ(), mainVariable+"=1", "ERRAND_ITSELF="+os.Args[0], "ERRAND_URL="+d.cfg.URLs[0], "ERRAND_KEY="+admin, "TERM="+kind, "NO_COLOR=1")
		keys, err := cmd.StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		shown, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		var said strings.Builder
		for piece := make([]byte, 4096); ; {
			n, err := shown.Read(piece)
			before := strings.Contains(said.String(), "q quit")
			said.Write(piece[:n])
			if !before && strings.Contains(said.String(), "q quit") {
				if _, err := keys.Write([]byte("q")); err != nil {
					t.Error(err)
				}
			}
			if err != nil {
				break
			}
		}
		if err := cmd.Wait(); err != nil {
			t.Errorf("%s: %v:\n%q", kind, err, said.String())
		}
		const leavesScreen = "\x1b[?1049l"
		if strings.Contains(said.String(), leavesScreen) != live || strings.Contains(said.String(), "\x1b") != live ||
			!strings.Contains(said.String(), "region local") || strings.Contains(said.String(), "\x1b[3") {
			t.Errorf("%s:\n%q", kind, said.String())
		}
	}
}
