package regions

import (
	"fmt"
	"reflect"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// amounts prints a division: what each region has, and in parentheses what it had when that was less.
func amounts(d *Division) string {
	text := fmt.Sprintf("%d of %d:", d.Version, d.Quota)
	for _, s := range d.Shares {
		text += fmt.Sprintf(" %s %d", s.Region, s.Amount)
		if s.Before < s.Amount {
			text += fmt.Sprintf("(%d)", s.Before)
		}
	}
	return text
}

func TestDivisionsFollowDemand(t *testing.T) {
	tests := []struct {
		quota      int64
		ap, eu, us int64
		want       string
	}{
		{300, 0, 0, 0, "ap 100 eu 100 us 100"},
		{300, 50, 50, 50, "ap 100 eu 100 us 100"},
		{300, 0, 10, 900, "ap 20 eu 20 us 260"}, // floors
		{300, 0, 900, 900, "ap 20 eu 140 us 140"},
		{300, 60, 900, 900, "ap 60 eu 120 us 120"}, // max-min
		{300, 60, 90, 90, "ap 80 eu 110 us 110"},   // what nobody wants, in equal parts
		{1, 0, 2, 3, "ap 0 eu 0 us 1"},             // smaller than the number of regions
		{1, 3, 3, 3, "ap 1 eu 0 us 0"},
		{2, 0, 7, 7, "ap 0 eu 1 us 1"},
		{5, 9, 9, 9, "ap 2 eu 2 us 1"},
		{0, 9, 9, 9, "ap 0 eu 0 us 0"},
		{-4, 9, 9, 9, "ap 0 eu 0 us 0"},
	}
	for _, tt := range tests {
		p := WAN()
		d := Divide(&p, &Division{Quota: -1}, tt.quota, []Demand{{"us", tt.us}, {"ap", tt.ap}, {"eu", tt.eu}}, epoch)
		got := ""
		for i, s := range d.Shares {
			if i > 0 {
				got += " "
			}
			got += fmt.Sprintf("%s %d", s.Region, s.Amount)
		}
		if got != tt.want {
			t.Errorf("%d among %d %d %d: %s, want %s", tt.quota, tt.ap, tt.eu, tt.us, got, tt.want)
		}
	}
}

// With the profile "local" a division settles 6.5 s after it was written.
func TestSharesShrinkAtOnceAndGrowLate(t *testing.T) {
	p := WAN()
	at := func(seconds float64) time.Time { return epoch.Add(time.Duration(seconds * float64(time.Second))) }
	first := Divide(&p, &Division{}, 300, []Demand{{"eu", 900}, {"us", 0}}, at(0))
	second := Divide(&p, &first, 300, []Demand{{"eu", 0}, {"us", 900}}, at(6.4))
	if !reflect.DeepEqual(first, second) {
		t.Errorf("replaced before it has settled: %s", amounts(&second))
	}
	second = Divide(&p, &first, 300, []Demand{{"eu", 0}, {"us", 900}}, at(6.5))
	if got := amounts(&second); got != "2 of 300: eu 30 us 270(30)" {
		t.Errorf("got %s", got)
	}
	if same := Divide(&p, &second, 300, []Demand{{"eu", 0}, {"us", 900}}, at(60)); !reflect.DeepEqual(same, second) {
		t.Errorf("the same demand makes %s", amounts(&same))
	}
	if early := Divide(&p, &second, 100, nil, at(3)); !reflect.DeepEqual(early, second) {
		t.Errorf("a time before it was written makes %s", amounts(&early))
	}
	third := Divide(&p, &second, 100, []Demand{{"eu", 900}, {"us", 900}}, at(7))
	if got := amounts(&third); got != "3 of 100: eu 50(30) us 50(30)" {
		t.Errorf("a smaller quota waits, or is given before others have shrunk: %s", got)
	}
	for _, tt := range []struct {
		since float64 // its writing
		read  float64
		want  int64
	}{
		{0, 0, 30},
		{6.4, 6, 30},
		{6.5, 6, 270},
		{12, 6, 270},
		{12.1, 6, 30}, // cut off
	} {
		r := Reading{At: at(6.5 + tt.read), Asked: time.Duration(tt.read * float64(time.Second)), Answered: time.Duration(tt.read * float64(time.Second))}
		if got := Usable(&p, &second, "us", r, time.Duration(tt.since*float64(time.Second))); got != tt.want {
			t.Errorf("%v s after the writing, read at %v s: %d, want %d", tt.since, tt.read, got, tt.want)
		}
	}
	if got := Usable(&p, &second, "mars", Reading{}, 0); got != 0 {
		t.Errorf("a region without a share may use %d", got)
	}
}

// An answer that was long under way is neither fresher nor further than it was.
func TestSharesReadSlowly(t *testing.T) {
	p := WAN()
	d := Division{Since: epoch, Shares: []Share{{Region: "eu", Amount: 100, Before: 10, Floor: 5}}}
	slow := Reading{At: epoch.Add(6 * time.Second), Asked: 0, Answered: 4 * time.Second}
	for local, want := range map[time.Duration]int64{
		4 * time.Second:                   10,
		4500 * time.Millisecond:           100,
		6*time.Second + 1*time.Nanosecond: 5,
	} {
		if got := Usable(&p, &d, "eu", slow, local); got != want {
			t.Errorf("at %v: %d, want %d", local, got, want)
		}
	}
}

func drawDemands(t *rapid.T, regions ...string) []Demand {
	var all []Demand
	for _, r := range regions {
		all = append(all, Demand{r, rapid.Int64Range(-1, 300).Draw(t, "demand of "+r)})
	}
	return all
}

// Max-min: the whole quota is given, nobody is below its floor, and who has less than it wants has no less than anybody else but for a unit.
func TestDivisionsAreMaxMin(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := WAN()
		quota := rapid.Int64Range(0, 500).Draw(t, "quota")
		demands := drawDemands(t, "a", "b", "c", "d")
		before := Divide(&p, &Division{Quota: -1}, quota, drawDemands(t, "a", "b", "c"), epoch)
		later := epoch.Add(time.Minute)
		d := Divide(&p, &before, quota, demands, later)
		twice := slices.Concat(demands, demands)
		if turned := Divide(&p, &before, quota, rapid.Permutation(twice).Draw(t, "order"), later); !reflect.DeepEqual(d, turned) {
			t.Fatalf("%s or %s, by the order of demands", amounts(&d), amounts(&turned))
		}
		sum := int64(0)
		for i, s := range d.Shares {
			sum += s.Amount
			if s.Amount < s.Floor {
				t.Fatalf("%s: %s is below its floor %d", amounts(&d), s.Region, s.Floor)
			}
			for _, other := range d.Shares {
				if s.Amount < demands[i].Amount && other.Amount > s.Amount+1 {
					t.Fatalf("%s: %s wants %d", amounts(&d), s.Region, demands[i].Amount)
				}
			}
		}
		if sum != quota {
			t.Fatalf("%s: together %d", amounts(&d), sum)
		}
	})
}

// hearing is a region that reads the division now and then, by a clock that is fast or slow, and may be cut off for a while.
type hearing struct {
	name   string
	rate   float64 // of its clock
	cut    time.Time
	asked  time.Time // the question that is under way; zero when there is none
	looked time.Time // when the store read for it
	coming Division
	heard  bool
	d      Division
	r      Reading
}

func (h *hearing) local(now time.Time) time.Duration {
	return time.Duration(float64(now.Sub(epoch)) * h.rate)
}

// step lets what is under way go on: a question reaches the store, or an answer the region.
func (h *hearing) step(t *rapid.T, now time.Time, stored Division) {
	if rapid.IntRange(0, 30).Draw(t, "cut") == 0 {
		h.cut = now.Add(time.Duration(rapid.IntRange(0, 30_000).Draw(t, "cut for ms")) * time.Millisecond)
	}
	if now.Before(h.cut) || rapid.IntRange(0, 2).Draw(t, "moves") == 0 {
		return
	}
	switch {
	case h.asked.IsZero():
		h.asked, h.looked = now, time.Time{}
	case h.looked.IsZero():
		h.looked, h.coming = now, stored
	default:
		h.d, h.heard = h.coming, true
		h.r = Reading{At: h.looked, Asked: h.local(h.asked), Answered: h.local(now)}
		h.asked = time.Time{}
	}
}

func (h *hearing) usable(p *Profile, now time.Time) int64 {
	if !h.heard {
		return 0
	}
	return Usable(p, &h.d, h.name, h.r, h.local(now))
}

// beyond is what a cut off region may use beyond its share in a division.
func (h *hearing) beyond(p *Profile, now time.Time, d *Division) int64 {
	if !h.heard || h.local(now)-h.r.Asked <= p.ShareHear {
		return 0
	}
	return max(0, h.d.Of(h.name).Floor-d.Of(h.name).Amount)
}

// checkBound plays regions that hear late, are cut off and return. set says what the quota and the regions are at each step.
func checkBound(t *rapid.T, set func(*rapid.T) (int64, []string)) {
	p := rapid.SampledFrom(profiles).Draw(t, "profile")
	drift := 0.9 * float64(p.ClockOffset) / float64(p.ShareHear)
	var regions []*hearing
	for _, name := range []string{"a", "b", "c"} {
		regions = append(regions, &hearing{name: name, rate: 1 + drift*rapid.SampledFrom([]float64{-1, 0, 1}).Draw(t, "clock")})
	}
	now := epoch
	var settled Division
	written := []Division{{}}
	for range 150 {
		now = now.Add(time.Duration(rapid.SampledFrom([]int{1, 10, 300, 700, 2500}).Draw(t, "ms")) * time.Millisecond)
		last := &written[len(written)-1]
		if rapid.IntRange(0, 2).Draw(t, "divide") == 0 {
			quota, among := set(t)
			if d := Divide(&p, last, quota, drawDemands(t, among...), now); d.Version != last.Version {
				written = append(written, d)
			}
		}
		last = &written[len(written)-1]
		for _, d := range written {
			if !now.Before(d.Since.Add(p.ShareHear + p.ClockOffset)) { // from here on a fast clock may say that it has settled
				settled = d
			}
		}
		sum, bound := int64(0), settled.Quota
		told := ""
		for _, h := range regions {
			h.step(t, now, *last)
			sum += h.usable(&p, now)
			bound += h.beyond(&p, now, &settled)
			told += fmt.Sprintf(" %s uses %d of [%s]", h.name, h.usable(&p, now), amounts(&h.d))
		}
		if sum > bound {
			t.Fatalf("%v: together %d, bound %d; settled [%s], newest [%s];%s", now.Sub(epoch), sum, bound, amounts(&settled), amounts(last), told)
		}
	}
}

// With one quota and the same regions the shares in use never exceed it, whoever hears what and when.
func TestSharesNeverExceedAQuota(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		checkBound(t, func(*rapid.T) (int64, []string) { return 100, []string{"a", "b", "c"} })
	})
}

// When quotas and regions change, what is used beyond is what cut off regions keep as floors, and nothing else.
func TestSharesExceedAQuotaByOldFloorsOnly(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		checkBound(t, func(t *rapid.T) (int64, []string) {
			n := rapid.IntRange(0, 3).Draw(t, "regions")
			return rapid.Int64Range(0, 200).Draw(t, "quota"), []string{"a", "b", "c"}[:n]
		})
	})
}

// Who hears has all of its share once it has settled: nothing of a quota is lost for good.
func TestSharesAreUsedWhole(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := WAN()
		var d Division
		now := epoch
		for range rapid.IntRange(1, 5).Draw(t, "divisions") {
			d = Divide(&p, &d, rapid.Int64Range(1, 200).Draw(t, "quota"), drawDemands(t, "a", "b", "c"), now)
			now = now.Add(time.Duration(rapid.IntRange(0, 9000).Draw(t, "ms")) * time.Millisecond)
		}
		sum := int64(0)
		for _, name := range []string{"a", "b", "c"} {
			sum += Usable(&p, &d, name, Reading{At: d.Since.Add(p.ShareSettle())}, 0)
		}
		if sum != d.Quota {
			t.Fatalf("%s: %d are used", amounts(&d), sum)
		}
	})
}
