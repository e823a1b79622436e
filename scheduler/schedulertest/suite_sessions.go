package schedulertest

import (
	"slices"
	"testing"
	"time"

	"github.com/errandhq/errand/scheduler"
)

func ids(r scheduler.Renewal) []scheduler.SessionID {
	var all []scheduler.SessionID
	for _, one := range r.Sessions {
		all = append(all, one.ID)
	}
	return all
}

// B06: a store that was away for everybody kills nobody; only an end by somebody is an end.
func sessionsReviveUntilEnded(t *testing.T, s *suite) {
	s.open(t, s.session, -time.Minute)
	r := must[scheduler.Renewal](t)(s.Store.RenewSession(ctx(), scheduler.Session{Region: region, ID: s.session}, time.Minute))
	if r := must[scheduler.Renewal](t)(s.Store.RenewSession(ctx(), scheduler.Session{Region: region, ID: s.session, Idle: true}, time.Minute)); !r.Sessions[0].Idle {
		t.Errorf("idle: %+v, want it to be said", r)
	}
	if r := must[scheduler.Renewal](t)(s.Store.RenewSession(ctx(), scheduler.Session{Region: region, ID: s.session}, time.Minute)); r.Sessions[0].Idle {
		t.Errorf("not idle any more: %+v", r)
	}
	if !r.Alive || r.Now.IsZero() || !slices.Equal(ids(r), []scheduler.SessionID{s.session}) || !r.Sessions[0].ExpiresAt.After(r.Now) {
		t.Errorf("long expired: %+v, want it alive again", r)
	}
	if err := s.Store.EndSession(ctx(), region, s.session); err != nil {
		t.Fatal(err)
	}
	if r := must[scheduler.Renewal](t)(s.Store.RenewSession(ctx(), scheduler.Session{Region: region, ID: s.session}, time.Minute)); r.Alive || len(r.Sessions) != 0 {
		t.Errorf("ended: %+v, want dead and not listed", r)
	}
	if r := s.open(t, s.session, time.Minute); r.Alive {
		t.Errorf("opened again under the same id: %+v, want dead", r)
	}
	if r := must[scheduler.Renewal](t)(s.Store.RenewSession(ctx(), scheduler.Session{Region: region, ID: s.other}, time.Minute)); r.Alive {
		t.Errorf("never opened: %+v, want dead", r)
	}
	if err := s.Store.EndSession(ctx(), region, s.session); err != nil {
		t.Errorf("ending twice: %v", err)
	}
}

func onlyALiveSessionEndsOthers(t *testing.T, s *suite) {
	live := scheduler.SessionID{0xD4}
	s.open(t, s.other, -time.Minute)
	s.open(t, live, time.Minute)
	s.open(t, s.session, -time.Minute)
	if ended := must[[]scheduler.SessionID](t)(s.Store.EndExpired(ctx(), region, s.session)); len(ended) != 0 {
		t.Errorf("an expired session ended %v", ended)
	}
	s.open(t, s.session, time.Minute)
	if ended := must[[]scheduler.SessionID](t)(s.Store.EndExpired(ctx(), region, s.session)); !slices.Equal(ended, []scheduler.SessionID{s.other}) {
		t.Errorf("ended %v, want the expired one only", ended)
	}
	r := must[scheduler.Renewal](t)(s.Store.RenewSession(ctx(), scheduler.Session{Region: region, ID: s.session}, time.Minute))
	if !slices.Equal(ids(r), []scheduler.SessionID{s.session, live}) {
		t.Errorf("listed %v, want the two that are open, in order", ids(r))
	}
}
