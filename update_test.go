package errand

import (
	"errors"
	"slices"
	"testing"
	"time"
)

// The mask names what is asked, and nothing else: zero fields stay as they are.
func TestWhatChangesAskFor(t *testing.T) {
	now := time.Now()
	for want, c := range map[string]Changes{
		"":                {RunNow: true},
		"tier":            {Tier: Urgent},
		"delay_tolerance": {DelayTolerance: time.Minute},
		"run_at":          {RunAt: now},
		"delay":           {Delay: time.Hour},
		"start_by":        {StartBy: now},
		"start_within":    {StartWithin: time.Hour},
		"labels":          {Labels: map[string]string{}},
	} {
		req := c.request("x")
		if got := req.GetUpdateMask().GetPaths(); c.check() != nil || (want != "" && !slices.Equal(got, []string{want})) || (want == "" && len(got) > 0) {
			t.Errorf("%+v asks for %v: %v", c, got, c.check())
		}
	}
	never := Changes{NeverLate: true}
	if req := never.request("x"); !slices.Equal(req.GetUpdateMask().GetPaths(), []string{"start_by"}) || req.GetChanges().GetUseless() != nil {
		t.Errorf("never useless: %v", req)
	}
	for _, c := range []Changes{
		{RunAt: now, Delay: 1},
		{StartBy: now, StartWithin: 1},
		{StartBy: now, NeverLate: true},
		{StartWithin: 1, NeverLate: true},
		{RunNow: true, RunAt: now},
		{RunNow: true, Delay: 1},
	} {
		if err := c.check(); !errors.Is(err, ErrInvalid) {
			t.Errorf("%+v: %v, want ErrInvalid", c, err)
		}
	}
}
