package regions

import (
	"fmt"
	"strings"
	"time"
)

// Profile holds the times after which regions think of each other's schedulers as gone, and how long they let others hear. All regions
// that share a store use the same.
//
// Those that a scheduler's timing has as well have the same names and meaning there; the profile "wan" is its default.
type Profile struct {
	Name string // what it is chosen by

	SessionTTL    time.Duration // how long a scheduler instance lives without renewing
	Renewal       time.Duration // how often it renews
	RenewalCall   time.Duration // the longest a renewal may take
	Margin        time.Duration // how much less than its TTL an instance trusts its session
	ClockOffset   time.Duration // the largest difference between two machines' rates over a TTL that is tolerated
	ReconnectCap  time.Duration // longest pause between a worker's tries to reconnect
	ReattachGrace time.Duration // after a session ended, how long its attempts wait for their workers to come back

	Suspect time.Duration // a region without a renewal for so long is suspect: nobody is adopted by it that has a better choice
	Down    time.Duration // without one for so long it is down, and adopted
	Steady  time.Duration // a region that was suspect or down is up again when it has been heard without a gap for so long

	RemoteStatement time.Duration // the longest a statement on another region's rows may take
	ShareRead       time.Duration // how often a region reads its shares of quotas
	ShareHear       time.Duration // a region that has not read them for so long has its floor only
}

// profiles are the named ones. Tests compare the first with the defaults of a scheduler.
var profiles = []Profile{
	{
		Name:       "wan",
		SessionTTL: 6 * time.Second, Renewal: 2 * time.Second, RenewalCall: time.Second,
		Margin: 1500 * time.Millisecond, ClockOffset: 250 * time.Millisecond,
		ReconnectCap: 2 * time.Second, ReattachGrace: 6 * time.Second,
		Suspect: 6 * time.Second, Down: 15 * time.Second, Steady: 9 * time.Second,
		RemoteStatement: 2 * time.Second, ShareRead: 2 * time.Second, ShareHear: 6 * time.Second,
	},
	{
		Name:       "local",
		SessionTTL: 3 * time.Second, Renewal: time.Second, RenewalCall: 400 * time.Millisecond,
		Margin: 800 * time.Millisecond, ClockOffset: 250 * time.Millisecond,
		ReconnectCap: time.Second, ReattachGrace: 3 * time.Second,
		Suspect: 3 * time.Second, Down: 8 * time.Second, Steady: 5 * time.Second,
		RemoteStatement: time.Second, ShareRead: time.Second, ShareHear: 3 * time.Second,
	},
}

// WAN is the profile for regions far from each other, round trips of some hundred milliseconds included; it is the default.
func WAN() Profile { return profiles[0] }

// Local is the profile for regions on one machine or near each other: half the times, for answers that come at once.
func Local() Profile { return profiles[1] }

// ProfileNamed returns the profile of a name, "local" or "wan".
func ProfileNamed(name string) (Profile, error) {
	var names []string
	for _, p := range profiles {
		if p.Name == name {
			return p, nil
		}
		names = append(names, p.Name)
	}
	return Profile{}, fmt.Errorf("profile: %q must be one of %s", name, strings.Join(names, ", "))
}

// ShareSettle is how long after it was written a division of a quota holds at every region: a region that has not heard of it by then has
// its floor, whatever the difference of their clocks.
func (p *Profile) ShareSettle() time.Duration { return p.ShareHear + 2*p.ClockOffset }

// Validate checks that the times are positive and that the inequalities hold on which takeover, adoption and shares rest. The error
// names the field.
func (p *Profile) Validate() error {
	if err := p.validatePositive(); err != nil {
		return err
	}
	var why string
	switch {
	case p.Renewal > p.SessionTTL/3:
		why = "Renewal must be at most a third of SessionTTL"
	case p.Margin <= p.ClockOffset+p.RenewalCall:
		why = "Margin must be larger than ClockOffset + RenewalCall"
	case p.Margin >= p.SessionTTL-p.Renewal:
		why = "Margin must be smaller than SessionTTL - Renewal"
	case p.ReattachGrace <= p.ReconnectCap+p.RenewalCall:
		why = "ReattachGrace must be larger than ReconnectCap + one round trip (RenewalCall)"
	case p.Suspect < p.SessionTTL:
		why = "Suspect must be at least SessionTTL: a session that holds is no reason to suspect a region"
	case p.Down <= p.SessionTTL+p.ReattachGrace:
		why = "Down must be larger than SessionTTL + ReattachGrace: a region's own workers come back first"
	case p.Steady < 3*p.Renewal:
		why = "Steady must be at least three times Renewal: less shows no steadiness"
	case p.Steady > p.Down-p.Suspect:
		why = "Steady must be at most Down - Suspect: else a region that has just returned could be adopted again within it"
	case p.ShareRead > p.ShareHear/3:
		why = "ShareRead must be at most a third of ShareHear"
	case p.ShareHear > p.SessionTTL:
		why = "ShareHear must be at most SessionTTL: ClockOffset is tolerated over that time only"
	default:
		return nil
	}
	return fmt.Errorf("profile %q: %s", p.Name, why)
}

// ValidateFor checks, besides, that what regions ask of each other can be answered over a topology's longest distance.
func (p *Profile) ValidateFor(t *Topology) error {
	if err := p.Validate(); err != nil {
		return err
	}
	longest := time.Duration(t.LongestMS()) * time.Millisecond
	switch {
	case p.RenewalCall <= longest:
		return fmt.Errorf("profile %q: RenewalCall %v must be longer than the longest round trip %v", p.Name, p.RenewalCall, longest)
	case p.RemoteStatement <= 2*longest:
		return fmt.Errorf("profile %q: RemoteStatement %v must be longer than two of the longest round trips (%v)", p.Name, p.RemoteStatement, longest)
	}
	return nil
}

func (p *Profile) validatePositive() error {
	for _, f := range []struct {
		name  string
		value time.Duration
	}{
		{"SessionTTL", p.SessionTTL},
		{"Renewal", p.Renewal},
		{"RenewalCall", p.RenewalCall},
		{"Margin", p.Margin},
		{"ReconnectCap", p.ReconnectCap},
		{"ReattachGrace", p.ReattachGrace},
		{"Suspect", p.Suspect},
		{"Down", p.Down},
		{"Steady", p.Steady},
		{"RemoteStatement", p.RemoteStatement},
		{"ShareRead", p.ShareRead},
		{"ShareHear", p.ShareHear},
	} {
		if f.value <= 0 {
			return fmt.Errorf("profile %q: %s must be positive, is %v", p.Name, f.name, f.value)
		}
	}
	if p.ClockOffset < 0 {
		return fmt.Errorf("profile %q: ClockOffset must not be negative, is %v", p.Name, p.ClockOffset)
	}
	return nil
}
