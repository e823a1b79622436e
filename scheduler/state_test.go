package scheduler

import "testing"

func TestStates(t *testing.T) {
	for s, want := range map[State]struct {
		name                    string
		open, waiting, terminal bool
	}{
		0: {name: "invalid"}, 9: {name: "invalid"}, -1: {name: "invalid"},
		Scheduled: {"scheduled", true, true, false},
		Ready:     {"ready", true, true, false},
		Running:   {"running", true, false, false},
		Blocked:   {"blocked", true, true, false},
		Succeeded: {"succeeded", false, false, true},
		Failed:    {"failed", false, false, true},
		Canceled:  {"canceled", false, false, true},
		Expired:   {"expired", false, false, true},
	} {
		if s.String() != want.name || s.Open() != want.open || s.Waiting() != want.waiting || s.Terminal() != want.terminal {
			t.Errorf("%d: %s, open %v, waiting %v, terminal %v; want %+v", s, s, s.Open(), s.Waiting(), s.Terminal(), want)
		}
	}
}

func TestTiers(t *testing.T) {
	for tier, want := range map[Tier]string{0: "invalid", Urgent: "urgent", Standard: "standard", Deferrable: "deferrable", 4: "invalid"} {
		if tier.String() != want || tier.Valid() != (want != "invalid") {
			t.Errorf("%d: %s, valid %v; want %s", tier, tier, tier.Valid(), want)
		}
	}
}
