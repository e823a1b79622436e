package regions

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

var epoch = time.Date(2026, 12, 3, 0, 0, 0, 0, time.UTC)

func healths(v *Verdicts) string {
	var all []string
	for _, r := range v.Regions {
		all = append(all, r.Region+" "+r.Health.String())
	}
	return strings.Join(all, ", ")
}

// story judges one region every second by the age that its heartbeat has, and tells when its health changed.
func story(p *Profile, seconds int, at func(second int) Heartbeat) string {
	var v Verdicts
	var told []string
	last := ""
	for s := range seconds {
		b := at(s)
		b.Region = "eu"
		v = Judge(p, &v, []Heartbeat{b}, epoch.Add(time.Duration(s)*time.Second))
		if now := v.Regions[0].Health.String(); now != last {
			told = append(told, fmt.Sprintf("%d %s", s, now))
			last = now
		}
	}
	return strings.Join(told, ", ")
}

// With the profile "local": suspect 6 s, down 15 s, steady 9 s.
func TestVerdictsOfOneRegion(t *testing.T) {
	age := func(seconds int) Heartbeat { return Heartbeat{Heard: true, Age: time.Duration(seconds) * time.Second} }
	tests := map[string]struct {
		at   func(s int) Heartbeat
		want string
	}{
		"steady":              {func(int) Heartbeat { return age(1) }, "0 up"},
		"dies":                {func(s int) Heartbeat { return age(s) }, "0 up, 9 suspect, 15 down"},
		"died long ago":       {func(s int) Heartbeat { return age(s + 60) }, "0 down"},
		"never there":         {func(int) Heartbeat { return Heartbeat{} }, "0 suspect, 15 down"},
		"comes late":          {func(s int) Heartbeat { return Heartbeat{Heard: s >= 4} }, "0 suspect, 4 up"},
		"comes very late":     {func(s int) Heartbeat { return Heartbeat{Heard: s >= 40} }, "0 suspect, 15 down, 40 up"},
		"dies later":          {func(s int) Heartbeat { return age(max(0, s-100)) }, "0 up, 106 suspect, 115 down"},
		"a hiccup":            {func(s int) Heartbeat { return age(max(0, s-100) % 8) }, "0 up, 106 suspect"}, // 8 s between renewals is no steadiness
		"returns":             {func(s int) Heartbeat { return age(max(0, min(s, 120)-100) * btoi(s < 120)) }, "0 up, 106 suspect, 115 down, 129 up"},
		"renewals of 2 s":     {func(s int) Heartbeat { return age(s % 2) }, "0 up"},
		"a clock before ours": {func(int) Heartbeat { return age(-3) }, "0 up"},
		"drained and resumed": {func(s int) Heartbeat {
			return Heartbeat{Heard: true, Drain: s >= 20 && s < 60, Running: max(0, 30-s)}
		}, "0 up, 20 draining, 30 drained, 60 up"},
		"a late claim while drained": {func(s int) Heartbeat {
			return Heartbeat{Heard: true, Drain: true, Running: btoi(s == 5)}
		}, "0 drained, 5 draining, 6 drained"},
		"dies while it drains": {func(s int) Heartbeat {
			return Heartbeat{Heard: true, Age: time.Duration(s) * time.Second, Drain: s < 60, Running: 1}
		}, "0 draining, 60 down"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			p := WAN()
			if got := story(&p, 200, tt.at); got != tt.want {
				t.Errorf("got  %s\nwant %s", got, tt.want)
			}
		})
	}
}

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}

func TestVerdictsDoNotGoBack(t *testing.T) {
	p := WAN()
	v := Judge(&p, &Verdicts{}, []Heartbeat{{Region: "eu", Heard: true}}, epoch)
	if early := Judge(&p, &v, []Heartbeat{{Region: "eu", Heard: true, Age: time.Hour}}, epoch.Add(-time.Second)); !reflect.DeepEqual(early, v) {
		t.Errorf("a time before the last judgment changes %s to %s", healths(&v), healths(&early))
	}
	if v.Version != 1 {
		t.Errorf("version %d after one judgment", v.Version)
	}
	v = Judge(&p, &v, []Heartbeat{{Region: "us", Heard: true}}, epoch)
	if _, there := v.Of("eu"); there || v.Version != 2 {
		t.Errorf("after eu left the topology: %s, version %d", healths(&v), v.Version)
	}
}

func TestALongPauseBetweenJudgmentsShowsNoSteadiness(t *testing.T) {
	p := WAN()
	beat := func(age time.Duration) []Heartbeat { return []Heartbeat{{Region: "eu", Heard: true, Age: age}} }
	v := Judge(&p, &Verdicts{}, beat(time.Minute), epoch)
	for i, at := range []time.Duration{time.Minute, 2 * time.Minute, 3 * time.Minute} {
		if v = Judge(&p, &v, beat(0), epoch.Add(at)); v.Regions[0].Health != Down {
			t.Errorf("judgment %d: %s, though nobody looked in between", i, healths(&v))
		}
	}
}

func TestHealthsHaveWords(t *testing.T) {
	for h, want := range map[Health]string{Up: "up", Suspect: "suspect", Down: "down", Draining: "draining", Drained: "drained", 9: "unknown"} {
		if h.String() != want {
			t.Errorf("%d is %q, want %q", h, h, want)
		}
	}
}

func drawBeat(region string) *rapid.Generator[Heartbeat] {
	return rapid.Custom(func(t *rapid.T) Heartbeat {
		return Heartbeat{
			Region:  region,
			Heard:   rapid.Bool().Draw(t, "heard"),
			Age:     time.Duration(rapid.IntRange(-1, 20).Draw(t, "age")) * time.Second,
			Drain:   rapid.IntRange(0, 4).Draw(t, "drain") == 0,
			Running: rapid.IntRange(0, 1).Draw(t, "running"),
		}
	})
}

func TestVerdictsDoNotDependOnTheOrderOfHeartbeats(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := WAN()
		var v, turned Verdicts
		now := epoch
		for range rapid.IntRange(1, 20).Draw(t, "judgments") {
			now = now.Add(time.Duration(rapid.IntRange(0, 10).Draw(t, "seconds")) * time.Second)
			var beats []Heartbeat
			for _, region := range []string{"eu", "us", "ap", "eu"} {
				beats = append(beats, drawBeat(region).Draw(t, region))
			}
			v = Judge(&p, &v, beats, now)
			turned = Judge(&p, &turned, rapid.Permutation(beats).Draw(t, "order"), now)
			if !reflect.DeepEqual(v, turned) {
				t.Fatalf("%s or %s, by the order of the heartbeats", healths(&v), healths(&turned))
			}
		}
	})
}

// flapping is a region that renews for some time and is silent for some time, as it likes. Its heartbeats are what the store would tell.
type flapping struct {
	region string
	last   time.Time
	silent bool
	until  time.Time
}

func (f *flapping) beat(t *rapid.T, now time.Time) Heartbeat {
	if !now.Before(f.until) {
		f.silent = !f.silent
		f.until = now.Add(time.Duration(rapid.IntRange(0, 25_000).Draw(t, "ms")) * time.Millisecond)
	}
	if !f.silent {
		f.last = now.Add(-time.Duration(rapid.IntRange(0, 2000).Draw(t, "renewed before")) * time.Millisecond)
	}
	return Heartbeat{Region: f.region, Heard: true, Age: now.Sub(f.last)}
}

// However regions flap, what changes by one of them is at least Steady apart: that it is adopted or returned, and that it may adopt.
func TestFlappingIsDamped(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := rapid.SampledFrom(profiles).Draw(t, "profile")
		now := epoch
		var v Verdicts
		all := []*flapping{{region: "ap"}, {region: "eu"}, {region: "us"}}
		for _, f := range all {
			f.last = now
		}
		type turn struct {
			is bool
			at time.Time
		}
		turns := map[string]turn{}
		turned := func(what string, is bool) {
			last, known := turns[what]
			if known && last.is != is && now.Sub(last.at) < p.Steady {
				t.Fatalf("%s: %v again after %v", what, is, now.Sub(last.at))
			}
			if !known {
				turns[what] = turn{is, now.Add(-p.Steady)}
			} else if last.is != is {
				turns[what] = turn{is, now}
			}
		}
		for range 200 {
			now = now.Add(time.Duration(rapid.IntRange(200, 2000).Draw(t, "look after")) * time.Millisecond)
			var beats []Heartbeat
			for _, f := range all {
				beats = append(beats, f.beat(t, now))
			}
			v = Judge(&p, &v, beats, now)
			for i, r := range v.Regions {
				turned(r.Region+" adopted", r.Health == Down)
				turned(r.Region+" up", r.Health == Up)
				if age := beats[i].Age; age >= p.Down && r.Health != Down {
					t.Fatalf("%s with age %v", healths(&v), age)
				}
			}
		}
	})
}

// One region flaps and the others do not change: no adoption changes twice within Steady.
func TestOneFlappingRegionMovesAdoptionsRarely(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := WAN()
		top := drawTopology(2).Draw(t, "topology")
		states := rapid.SliceOfN(rapid.SampledFrom([]time.Duration{0, 8 * time.Second, time.Minute}), len(top.Regions), len(top.Regions)).Draw(t, "others")
		f := &flapping{region: "r0", last: epoch}
		now := epoch
		var v Verdicts
		was := map[string]string{}
		moved := map[string]time.Time{}
		for look := range 120 {
			now = now.Add(time.Duration(rapid.IntRange(200, 2000).Draw(t, "look after")) * time.Millisecond)
			beats := []Heartbeat{f.beat(t, now)}
			for i, r := range top.Regions[1:] {
				beats = append(beats, Heartbeat{Region: r.Name, Heard: true, Age: states[i]})
			}
			v = Judge(&p, &v, beats, now)
			is := map[string]string{}
			for _, a := range Adopters(&top, &v) {
				is[a.Region] = a.Adopter
			}
			for _, r := range names(&top) {
				if is[r] == was[r] || look == 0 {
					continue
				}
				if last, before := moved[r]; before && now.Sub(last) < p.Steady {
					t.Fatalf("%s goes from %q to %q %v after the last time (%s)", r, was[r], is[r], now.Sub(last), healths(&v))
				}
				moved[r] = now
			}
			was = is
		}
	})
}

func TestAdopters(t *testing.T) {
	top := world()
	tests := []struct{ healths, want string }{
		{"up up up", ""},
		{"suspect suspect suspect", ""},
		{"up down up", "eu->us"},
		{"up down suspect", "eu->ap"}, // up before near
		{"down down suspect", "ap->us eu->us"},
		{"down up down", "ap->eu us->eu"}, // no chain: us is the nearest to ap
		{"down down down", ""},
		{"draining up up", "ap->us"},
		{"drained draining up", "ap->us eu->us"},
		{"drained draining down", ""},
	}
	words := []string{"up", "suspect", "down", "draining", "drained"}
	for _, tt := range tests {
		t.Run(tt.healths, func(t *testing.T) {
			var v Verdicts
			for i, word := range strings.Fields(tt.healths) {
				v.Regions = append(v.Regions, Verdict{Region: names(&top)[i], Health: Health(slices.Index(words, word))})
			}
			adoptions := Adopters(&top, &v)
			var got []string
			for _, a := range adoptions {
				got = append(got, a.Region+"->"+a.Adopter)
			}
			if strings.Join(got, " ") != tt.want {
				t.Errorf("got %v, want %s", got, tt.want)
			}
			if tt.healths == "down up down" {
				if served := Served("eu", &v, adoptions); !slices.Equal(served, []string{"eu", "ap", "us"}) {
					t.Errorf("eu serves %v", served)
				}
				if served := Served("us", &v, adoptions); served != nil {
					t.Errorf("us is down and serves %v", served)
				}
			}
		})
	}
}

// P3: as long as one region serves, each region's lanes are served, by one region, which serves itself.
func TestEveryRegionIsServedByOneThatServes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		top := drawTopology(1).Draw(t, "topology")
		var v Verdicts
		live := false
		for _, r := range names(&top) {
			h := Health(rapid.IntRange(0, 4).Draw(t, r))
			live = live || h.Serves()
			v.Regions = append(v.Regions, Verdict{Region: r, Health: h})
		}
		adoptions := Adopters(&top, &v)
		turned := shuffled(t, top)
		if !slices.Equal(adoptions, Adopters(&turned, &v)) {
			t.Fatal("adoption depends on the order of the file")
		}
		served := map[string]int{}
		for _, r := range names(&top) {
			for _, s := range Served(r, &v, adoptions) {
				served[s]++
			}
		}
		for _, a := range adoptions {
			if adopter, _ := v.Of(a.Adopter); !adopter.Health.Serves() {
				t.Fatalf("%s is %s and adopts", a.Adopter, adopter.Health)
			}
		}
		for _, r := range names(&top) {
			if served[r] != btoi(live) {
				t.Fatalf("%s is served by %d regions (%s)", r, served[r], healths(&v))
			}
		}
	})
}
