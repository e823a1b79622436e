package regions_test

import (
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/errandhq/errand/regions"
	"github.com/errandhq/errand/scheduler"
)

func TestTheNamedProfilesHold(t *testing.T) {
	for _, name := range []string{"local", "wan"} {
		p, err := regions.ProfileNamed(name)
		if err != nil {
			t.Fatal(err)
		}
		if err := p.Validate(); err != nil {
			t.Error(err)
		}
	}
	if _, err := regions.ProfileNamed("moon"); err == nil || !strings.Contains(err.Error(), "wan, local") {
		t.Errorf("an unknown profile: %v, want the names", err)
	}
}

// A scheduler that was given no profile uses the times of "wan".
func TestWANIsASchedulersDefault(t *testing.T) {
	p, d := regions.WAN(), scheduler.DefaultTiming()
	for name, both := range map[string][2]time.Duration{
		"SessionTTL":    {p.SessionTTL, d.SessionTTL},
		"Renewal":       {p.Renewal, d.Renewal},
		"RenewalCall":   {p.RenewalCall, d.RenewalCall},
		"Margin":        {p.Margin, d.Margin},
		"ClockOffset":   {p.ClockOffset, d.ClockOffset},
		"ReconnectCap":  {p.ReconnectCap, d.ReconnectCap},
		"ReattachGrace": {p.ReattachGrace, d.ReattachGrace},
	} {
		if both[0] != both[1] {
			t.Errorf("%s: the profile says %v, the scheduler %v", name, both[0], both[1])
		}
	}
}

// Each profile's times make a timing that a scheduler accepts: the two validators agree.
func TestASchedulerAcceptsTheProfiles(t *testing.T) {
	for _, p := range []regions.Profile{regions.Local(), regions.WAN()} {
		timing := scheduler.DefaultTiming()
		timing.SessionTTL, timing.Renewal, timing.RenewalCall = p.SessionTTL, p.Renewal, p.RenewalCall
		timing.Margin, timing.ClockOffset = p.Margin, p.ClockOffset
		timing.ReconnectCap, timing.ReattachGrace = p.ReconnectCap, p.ReattachGrace
		if err := timing.Validate(); err != nil {
			t.Errorf("%s: %v", p.Name, err)
		}
	}
}

// What names a region in a handle may name one in a topology, and nothing else.
func TestNamesAreThoseOfASchedulers(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		name := rapid.StringMatching(`[a-c0-1A-B.-]{0,4}|[a-z-]{61,65}`).Draw(t, "name")
		top := regions.Single(name)
		if err := top.Validate(); (err == nil) != scheduler.ValidName(name) {
			t.Fatalf("%q: the topology says %v, a scheduler %v", name, err, scheduler.ValidName(name))
		}
	})
}

func TestAProfileNamesWhatIsWrong(t *testing.T) {
	tests := map[string]func(*regions.Profile){
		"SessionTTL must be positive":           func(p *regions.Profile) { p.SessionTTL = 0 },
		"ShareHear must be positive":            func(p *regions.Profile) { p.ShareHear = -1 },
		"ClockOffset must not be negative":      func(p *regions.Profile) { p.ClockOffset = -1 },
		"Renewal must be at most":               func(p *regions.Profile) { p.Renewal = p.SessionTTL/3 + 1 },
		"Margin must be larger than":            func(p *regions.Profile) { p.Margin = p.ClockOffset + p.RenewalCall },
		"Margin must be smaller than":           func(p *regions.Profile) { p.Margin = p.SessionTTL - p.Renewal },
		"ReattachGrace must be larger than":     func(p *regions.Profile) { p.ReattachGrace = p.ReconnectCap + p.RenewalCall },
		"Suspect must be at least":              func(p *regions.Profile) { p.Suspect = p.SessionTTL - 1 },
		"Down must be larger than":              func(p *regions.Profile) { p.Down = p.SessionTTL + p.ReattachGrace },
		"Steady must be at least three times":   func(p *regions.Profile) { p.Steady = 3*p.Renewal - 1 },
		"Steady must be at most Down - Suspect": func(p *regions.Profile) { p.Steady = p.Down - p.Suspect + 1 },
		"ShareRead must be at most":             func(p *regions.Profile) { p.ShareRead = p.ShareHear },
		"ShareHear must be at most SessionTTL":  func(p *regions.Profile) { p.ShareHear = p.SessionTTL + 1 },
	}
	for want, change := range tests {
		t.Run(want, func(t *testing.T) {
			p := regions.WAN()
			change(&p)
			if err := p.Validate(); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("got %v, want %q", err, want)
			}
		})
	}
}

func TestDistancesFitTheProfile(t *testing.T) {
	far := func(ms int) *regions.Topology {
		return &regions.Topology{
			Version: 1, Primary: "a", Regions: []regions.Region{{Name: "a"}, {Name: "b"}},
			Distances: []regions.Distance{{Between: []string{"a", "b"}, RoundTripMS: ms}},
		}
	}
	local, wan := regions.Local(), regions.WAN()
	if err := wan.ValidateFor(far(300)); err != nil {
		t.Error(err)
	}
	if err := local.ValidateFor(far(1000)); err == nil || !strings.Contains(err.Error(), "RenewalCall") {
		t.Errorf("a round trip of 1 s with %q: %v", local.Name, err)
	}
	wan.RenewalCall, wan.Margin = 1200*time.Millisecond, 2*time.Second
	if err := wan.ValidateFor(far(1000)); err == nil || !strings.Contains(err.Error(), "RemoteStatement") {
		t.Errorf("a round trip of 1 s with statements of 2 s: %v", err)
	}
	wan.Down = 0
	if err := wan.ValidateFor(far(1)); err == nil {
		t.Error("a profile that does not hold fits")
	}
}
