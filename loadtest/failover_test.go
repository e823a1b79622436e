package main

import (
	"testing"
	"time"
)

// Waits are put where their tasks were wanted, those that never ran count as long as they have waited, and a restart elsewhere is one of the
// region's own tasks, in another region, while the fault holds.
func TestFailoverWaits(t *testing.T) {
	at := failoverTimes{fault: time.Unix(100, 0), mended: time.Unix(200, 0), judged: time.Unix(300, 0)}
	moment := func(s int64) time.Time { return time.Unix(s, 0) }
	l := &clients{accepted: map[string]time.Time{
		"r1.A": moment(50), "r2.B": moment(90), "r2.C": moment(150), "r2.D": moment(210), "r1.E": moment(290),
	}}
	starts := map[string]started{
		"r1.A": {first: moment(51)},
		"r2.B": {first: moment(91), elsewhere: moment(117)}, // ran, and again elsewhere
		"r2.C": {first: moment(160), elsewhere: moment(160)},
		"r2.D": {first: moment(212), elsewhere: moment(212)}, // after the fault
	}
	var r failoverResult
	r.takeWaits(l, starts, at)
	if r.P99Before != 1000 || r.P99During != 10_000 || r.P99After != 10_000 || r.Longest != 10_000 {
		t.Errorf("%v, %v, %v, %v", r.P99Before, r.P99During, r.P99After, r.Longest)
	}
	if r.Elsewhere == nil || *r.Elsewhere != 17 {
		t.Errorf("elsewhere: %v", r.elsewhere())
	}
}

// A move is between two accounts, and a region's id begins with its name.
func TestFailoverMoves(t *testing.T) {
	for range 1000 {
		if m := drawMove(); m.From == m.To || m.From < 0 || m.To < 0 || m.From >= accounts || m.To >= accounts || m.Amount < 1 {
			t.Fatalf("%+v", m)
		}
	}
	if got := homeOf("r2.ABC"); got != "r2" {
		t.Errorf("%q", got)
	}
}
