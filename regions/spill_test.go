package regions

import (
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

func judged(health Health, regions ...string) *Verdicts {
	var v Verdicts
	for _, r := range regions {
		v.Regions = append(v.Regions, Verdict{Region: r, Health: health})
	}
	return &v
}

// The instance is in eu; us is nearer than ap.
func TestSpill(t *testing.T) {
	up := judged(Up, "ap", "eu", "us")
	usDown := judged(Up, "ap", "eu", "us")
	usDown.Regions[2].Health = Down // eu adopts it
	euDrains := judged(Up, "ap", "eu", "us")
	euDrains.Regions[1].Health = Draining
	tests := map[string]struct {
		verdicts *Verdicts
		idle     int
		behind   []Behind
		want     string
	}{
		"nothing behind":      {up, 10, nil, "[]"},
		"nothing late":        {up, 10, []Behind{{Region: "us", Class: "x", Room: 9}}, "[]"},
		"nothing idle":        {up, 0, []Behind{{Region: "us", Class: "x", Overdue: 5, Room: 9}}, "[]"},
		"half of what idles":  {up, 10, []Behind{{Region: "us", Class: "x", Overdue: 50, Room: 9}}, "[{us x 5}]"},
		"rounded up":          {up, 1, []Behind{{Region: "us", Class: "x", Overdue: 50, Room: 9}}, "[{us x 1}]"},
		"a batch":             {up, 10_000, []Behind{{Region: "us", Class: "x", Overdue: 50_000, Room: 9000}}, "[{us x 100}]"},
		"what fits":           {up, 100, []Behind{{Region: "us", Class: "x", Overdue: 50, Room: 3}, {Region: "us", Class: "y", Overdue: 4}}, "[{us x 3}]"},
		"the nearest first":   {up, 10, []Behind{{Region: "ap", Class: "x", Overdue: 50, Room: 9}, {Region: "us", Class: "x", Overdue: 2, Room: 9}}, "[{us x 2} {ap x 3}]"},
		"overdue before near": {up, 10, []Behind{{Region: "ap", Class: "x", Overdue: 3, Room: 9}, {Region: "us", Class: "x", AtRisk: 50, Room: 9}}, "[{ap x 3} {us x 2}]"},
		"overdue and at risk": {up, 10, []Behind{{Region: "us", Class: "x", Overdue: 1, AtRisk: 2, Room: 9}, {Region: "us", Class: "y", Overdue: 1, Room: 9}}, "[{us x 3} {us y 1}]"},
		"one room":            {up, 20, []Behind{{Region: "us", Class: "x", Overdue: 3, Room: 4}, {Region: "ap", Class: "x", Overdue: 3, Room: 4}}, "[{us x 3} {ap x 1}]"},
		"the most first":      {up, 4, []Behind{{Region: "us", Class: "x", Overdue: 1, Room: 9}, {Region: "us", Class: "y", Overdue: 7, Room: 9}}, "[{us y 2}]"},
		"its own":             {up, 10, []Behind{{Region: "eu", Class: "x", Overdue: 5, Room: 9}}, "[]"},
		"not allowed":         {up, 10, []Behind{{Region: "us", Class: "x", Allowed: []string{"us", "ap"}, Overdue: 5, Room: 9}}, "[]"},
		"allowed":             {up, 10, []Behind{{Region: "us", Class: "x", Allowed: []string{"us", "eu"}, Overdue: 5, Room: 9}}, "[{us x 5}]"},
		"a stranger's":        {up, 10, []Behind{{Region: "mars", Class: "x", Overdue: 5, Room: 9}}, "[]"},
		"adopted":             {usDown, 10, []Behind{{Region: "us", Class: "x", Overdue: 5, Room: 9}}, "[]"},
		"while it drains":     {euDrains, 10, []Behind{{Region: "us", Class: "x", Overdue: 5, Room: 9}}, "[]"},
		"without a verdict":   {&Verdicts{}, 10, []Behind{{Region: "us", Class: "x", Overdue: 5, Room: 9}}, "[]"},
		"negative numbers":    {up, 10, []Behind{{Region: "us", Class: "x", Overdue: -5, AtRisk: -1, Room: 9}, {Region: "us", Class: "y", Overdue: 1, Room: -1}}, "[]"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			top := world()
			if got := fmt.Sprint(Spill(&top, tt.verdicts, "eu", tt.idle, tt.behind)); got != tt.want {
				t.Errorf("got %s, want %s", got, tt.want)
			}
		})
	}
}

func drawBehind(regions []string) *rapid.Generator[Behind] {
	return rapid.Custom(func(t *rapid.T) Behind {
		return Behind{
			Region:  rapid.SampledFrom(regions).Draw(t, "region"),
			Class:   rapid.SampledFrom([]string{"x", "y", "z"}).Draw(t, "class"),
			Overdue: rapid.IntRange(-1, 80).Draw(t, "overdue"),
			AtRisk:  rapid.IntRange(-1, 80).Draw(t, "at risk"),
		}
	})
}

// Each region tells of each class once, and its tasks are what they allow; what is taken is behind, allowed, fits and is within what idles.
func TestSpillKeepsItsBounds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		top := drawTopology(1).Draw(t, "topology")
		all := names(&top)
		v := judged(Up, all...)
		for i := range v.Regions {
			v.Regions[i].Health = Health(rapid.IntRange(0, 4).Draw(t, "health"))
		}
		key := func(b Behind) string { return b.Region + b.Class }
		behind := rapid.SliceOfNDistinct(drawBehind(all), 0, 3*len(all), key).Draw(t, "behind")
		rooms := map[string]int{}
		for _, class := range []string{"x", "y", "z"} {
			rooms[class] = rapid.IntRange(-1, 50).Draw(t, "room")
		}
		told := map[string]Behind{}
		for i := range behind {
			b := &behind[i]
			b.Room = rooms[b.Class]
			b.Allowed = rapid.SliceOfDistinct(rapid.SampledFrom(all), rapid.ID[string]).Draw(t, "allowed")
			told[key(*b)] = *b
		}
		idle := rapid.IntRange(-1, 300).Draw(t, "idle")
		takings := Spill(&top, v, "r0", idle, slices.Clone(behind))
		turned := shuffled(t, top)
		if len(behind) > 0 {
			again := Spill(&turned, v, "r0", idle, rapid.Permutation(behind).Draw(t, "order"))
			if !slices.Equal(takings, again) {
				t.Fatalf("%v or %v, by the order of what is told", takings, again)
			}
		}
		sum := 0
		for _, taking := range takings {
			b := told[taking.Region+taking.Class]
			if taking.Count <= 0 || taking.Count > max(0, b.Overdue)+max(0, b.AtRisk) || taking.Region == "r0" {
				t.Fatalf("%v of %+v", taking, b)
			}
			if len(b.Allowed) > 0 && !slices.Contains(b.Allowed, "r0") {
				t.Fatalf("%v, and only %v are allowed", taking, b.Allowed)
			}
			rooms[b.Class] -= taking.Count
			if rooms[b.Class] < 0 {
				t.Fatalf("%v do not fit", takings)
			}
			sum += taking.Count
		}
		if sum > SpillBatchMax || sum > (max(0, idle)+1)/2 {
			t.Fatalf("%d are taken with %d idle slots", sum, idle)
		}
		if sum > 0 && !v.Regions[0].Health.Serves() {
			t.Fatalf("a region that is %s takes %v", v.Regions[0].Health, takings)
		}
	})
}
