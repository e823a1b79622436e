package scheduler

import (
	"reflect"
	"strings"
	"testing"
	"time"
)

func TestDefaultTimingHolds(t *testing.T) {
	if err := DefaultTiming().Validate(); err != nil {
		t.Error(err)
	}
}

// Every field is checked, and the error names it.
func TestTimingNamesTheFieldThatIsNotPositive(t *testing.T) {
	fields := reflect.TypeFor[Timing]()
	for i := range fields.NumField() {
		name := fields.Field(i).Name
		for _, bad := range []time.Duration{-1, 0} {
			timing := DefaultTiming()
			reflect.ValueOf(&timing).Elem().Field(i).SetInt(int64(bad))
			err := timing.Validate()
			if name == "ClockOffset" && bad == 0 {
				if err != nil {
					t.Errorf("machines without any clock offset are refused: %v", err)
				}
				continue
			}
			if err == nil || !strings.Contains(err.Error(), name) {
				t.Errorf("%s = %v: %v", name, bad, err)
			}
		}
	}
}

func TestTimingInequalities(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*Timing)
		field  string // empty when it holds
	}{
		"renewal at a third":        {func(t *Timing) { t.Renewal = t.SessionTTL / 3 }, ""},
		"renewal above a third":     {func(t *Timing) { t.Renewal = t.SessionTTL/3 + 1 }, "Renewal"},
		"margin too small":          {func(t *Timing) { t.Margin = t.ClockOffset + t.RenewalCall }, "Margin"},
		"margin just enough":        {func(t *Timing) { t.Margin = t.ClockOffset + t.RenewalCall + 1 }, ""},
		"margin eats the session":   {func(t *Timing) { t.Margin = t.SessionTTL - t.Renewal }, "Margin"},
		"grace below reconnect":     {func(t *Timing) { t.ReattachGrace = t.ReconnectCap + t.RenewalCall }, "ReattachGrace"},
		"heartbeat at a third":      {func(t *Timing) { t.Heartbeat = t.WorkerLease / 3 }, ""},
		"heartbeat above a third":   {func(t *Timing) { t.Heartbeat = t.WorkerLease/3 + 1 }, "Heartbeat"},
		"no time left to exclusive": {func(t *Timing) { t.ExclusiveStop = t.WorkerLease }, "ExclusiveStop"},
	} {
		t.Run(name, func(t *testing.T) {
			timing := DefaultTiming()
			c.change(&timing)
			err := timing.Validate()
			switch {
			case c.field == "" && err != nil:
				t.Error(err)
			case c.field != "" && (err == nil || !strings.HasPrefix(err.Error(), "timing: "+c.field+" ")):
				t.Errorf("%v, want an error that names %s", err, c.field)
			}
		})
	}
}
