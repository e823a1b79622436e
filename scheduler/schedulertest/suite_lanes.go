package schedulertest

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/errandhq/errand/scheduler"
)

func attachTakesOver(t *testing.T, s *suite) {
	one := s.running(t, func(k *scheduler.Task) { k.Spec.MaxAttempts = 9 })
	attach := func(by scheduler.SessionID, token scheduler.Token) scheduler.Attached {
		t.Helper()
		return must[[]scheduler.Attached](t)(s.Store.Attach(ctx(), scheduler.AttachBatch{Region: region, Session: by, Tokens: []scheduler.Token{token}}))[0]
	}
	// A session that is not open says nothing against the token: whoever asked must not take it for lost.
	_, err := s.Store.Attach(ctx(), scheduler.AttachBatch{Region: region, Session: s.other, Tokens: []scheduler.Token{one.Token()}})
	if !errors.Is(err, scheduler.ErrUnavailable) {
		t.Errorf("by a session that is not open: %v, want an error", err)
	}
	same(t, s.Task(t, one.Ref), one)
	s.open(t, s.other, time.Minute)
	for range 2 {
		a := attach(s.other, one.Token())
		if a.Verdict != scheduler.Won || a.Held.Token != one.Token() || a.Held.Session != s.other || a.Held.Spec.Attempts() != 9 || a.Held.Kind != "encode" {
			t.Errorf("%+v, want won", a)
		}
	}
	want, _ := one.Attach(one.Token(), s.other)
	same(t, s.Task(t, one.Ref), want)
	stale := one.Token()
	stale.Attempt++
	if a := attach(s.session, stale); a.Verdict != scheduler.Lost || a.State != scheduler.Running {
		t.Errorf("another token: %+v, want lost", a)
	}
	if a := attach(s.session, scheduler.Token{ID: newID(1), Attempt: 1}); a.Verdict != scheduler.Missing {
		t.Errorf("no row: %+v, want missing", a)
	}
	must[[]scheduler.Ended](t)(s.Store.End(ctx(), scheduler.EndBatch{Region: region, Endings: []scheduler.Ending{{Token: one.Token(), To: scheduler.Succeeded}}}))
	if a := attach(s.session, one.Token()); a.Verdict != scheduler.Lost || a.State != scheduler.Succeeded || !a.Latest {
		t.Errorf("one that has ended: %+v, want lost, and how it ended", a)
	}
	if a := attach(s.session, stale); a.Verdict != scheduler.Lost || a.Latest {
		t.Errorf("another token of one that has ended: %+v, want lost", a)
	}
}

func wakeAndExpireAskTheStoresClock(t *testing.T, s *suite) {
	past, future := time.Now().Add(-time.Minute), time.Now().Add(time.Hour)
	scheduled := func(runAt, startBy time.Time) scheduler.Task {
		return task(func(k *scheduler.Task) { k.State, k.RunAt, k.StartBy = scheduler.Scheduled, runAt, startBy })
	}
	tasks := map[string]scheduler.Task{
		"due":               scheduled(past, time.Time{}),
		"not due":           scheduled(future, time.Time{}),
		"due, start_by":     scheduled(past, future),
		"due, useless":      scheduled(past, past.Add(time.Second)),
		"ready":             task(),
		"ready, useless":    task(func(k *scheduler.Task) { k.StartBy = past }),
		"ready, not yet so": task(func(k *scheduler.Task) { k.StartBy = future }),
	}
	for name, one := range tasks {
		t.Run(name, func(t *testing.T) {
			s.insert(t, one)
			before := s.Task(t, one.Ref)
			want, refusal := before.Wake(0, time.Now())
			for range 2 {
				a := must[[]scheduler.Moved](t)(s.Store.Wake(ctx(), scheduler.WakeBatch{Region: region, Rows: []scheduler.Seen{{ID: one.ID}}}))[0]
				// A row that is ready as seen stands as asked, whoever made it so.
				if won := a.Verdict == scheduler.Won; won != (refusal == nil || before.State == scheduler.Ready) {
					t.Errorf("wake: %+v, the lifecycle says %v", a, refusal)
				}
			}
			same(t, s.Task(t, one.Ref), want)
			before = s.Task(t, one.Ref)
			want, refusal = before.Expire(time.Now())
			for range 2 {
				a := must[[]scheduler.Moved](t)(s.Store.Expire(ctx(), scheduler.ExpireBatch{Region: region, IDs: []scheduler.ID{one.ID}}))
				wantVerdict := scheduler.Won
				if refusal != nil {
					wantVerdict = scheduler.Lost
				}
				expect(t, "expire", verdicts(a, moveVerdict), wantVerdict)
			}
			same(t, s.Task(t, one.Ref), want)
		})
	}
}

func lanesShowWhatIsReady(t *testing.T, s *suite) {
	tiers := []scheduler.Tier{scheduler.Urgent, scheduler.Standard, scheduler.Deferrable}
	for i, tenant := range []string{"globex", "acme", "acme"} {
		for range 3 {
			s.insert(t, task(func(k *scheduler.Task) { k.Tenant, k.Tier = tenant, tiers[i] }))
		}
	}
	s.running(t)
	s.insert(t, task(func(k *scheduler.Task) { k.State, k.RunAt = scheduler.Scheduled, time.Now().Add(time.Hour) }))
	keys := must[[]scheduler.BufferKey](t)(s.Store.Discover(ctx(), scheduler.DiscoverQuery{Region: region, Shard: 3, Limit: 10}))
	one := task()
	class := one.Class().Hash()
	want := []scheduler.BufferKey{
		{Tenant: "acme", Tier: scheduler.Standard, Class: class},
		{Tenant: "acme", Tier: scheduler.Deferrable, Class: class},
		{Tenant: "globex", Tier: scheduler.Urgent, Class: class},
	}
	if !slices.Equal(keys, want) {
		t.Errorf("groups %v, want %v", keys, want)
	}
	q := scheduler.RefillQuery{Region: region, PerShard: 2}
	for _, shard := range []uint8{2, 3} {
		for _, key := range want[1:] {
			q.Slices = append(q.Slices, scheduler.RefillSlice{Key: key, Shard: shard})
		}
	}
	rows := must[[]scheduler.ReadyRow](t)(s.Store.Refill(ctx(), q))
	if len(rows) != 4 {
		t.Fatalf("%d rows, want the first 2 of each of 2 groups", len(rows))
	}
	last := rows[1]
	q.Slices = []scheduler.RefillSlice{{Key: want[1], Shard: 3, After: scheduler.Position{Due: last.Due, ID: last.ID}}}
	if rest := must[[]scheduler.ReadyRow](t)(s.Store.Refill(ctx(), q)); len(rest) != 1 || rest[0].ID == rows[0].ID || rest[0].ID == last.ID {
		t.Errorf("after the second row: %v, want the third", rest)
	}
	q.Slices[0].After = scheduler.Position{Due: last.Due}
	if rest := must[[]scheduler.ReadyRow](t)(s.Store.Refill(ctx(), q)); len(rest) < 2 || (rest[0].ID != last.ID && rest[1].ID != last.ID) {
		t.Errorf("before the second row: %v, want the second and the third", rest)
	}
	for _, r := range rows {
		if r.State != scheduler.Ready || r.Kind != "encode" || r.Class != one.Class() || r.Due.IsZero() || r.ID.Shard() != 3 {
			t.Errorf("row %+v", r)
		}
	}
	if other := must[[]scheduler.BufferKey](t)(s.Store.Discover(ctx(), scheduler.DiscoverQuery{Region: region, Shard: 4, Limit: 10})); len(other) != 0 {
		t.Errorf("another lane shows %v", other)
	}
}

func discoverGoesInSlices(t *testing.T, s *suite) {
	const groups = 7
	for i := range groups {
		s.insert(t, task(func(k *scheduler.Task) { k.Tenant = string(rune('a'+i)) + "-tenant" }))
	}
	var all []scheduler.BufferKey
	q := scheduler.DiscoverQuery{Region: region, Shard: 3, Limit: 3}
	for {
		keys := must[[]scheduler.BufferKey](t)(s.Store.Discover(ctx(), q))
		all = append(all, keys...)
		if len(keys) < q.Limit {
			break
		}
		q.After = &keys[len(keys)-1]
	}
	if len(all) != groups {
		t.Errorf("%d groups in slices of 3, want %d", len(all), groups)
	}
}

func timedShowsWhatComesNext(t *testing.T, s *suite) {
	in := func(d time.Duration) scheduler.Task {
		return task(func(k *scheduler.Task) { k.State, k.RunAt = scheduler.Scheduled, time.Now().Add(d) })
	}
	late, soon, far := in(-time.Second), in(2*time.Second), in(time.Hour)
	useless := task(func(k *scheduler.Task) { k.StartBy = time.Now().Add(time.Second) })
	s.insert(t, far, soon, late, useless, task())
	rows := must[[]scheduler.TimedRow](t)(s.Store.Timed(ctx(), scheduler.TimedQuery{Region: region, Shards: []uint8{3}, Horizon: 10 * time.Second, Limit: 10}))
	var ids []scheduler.ID
	for _, r := range rows {
		ids = append(ids, r.ID)
	}
	if !slices.Equal(ids, []scheduler.ID{late.ID, useless.ID, soon.ID}) {
		t.Errorf("%d rows %+v, want the late one, the one that will be useless, the one that comes soon", len(rows), rows)
	}
	if rows := must[[]scheduler.TimedRow](t)(s.Store.Timed(ctx(), scheduler.TimedQuery{Region: region, Shards: []uint8{3}, Horizon: 10 * time.Second, Limit: 1})); len(rows) != 1 || rows[0].ID != late.ID {
		t.Errorf("limited to one: %+v", rows)
	}
}

func runningShowsASessionsRows(t *testing.T, s *suite) {
	var want []scheduler.ID
	for range 5 {
		want = append(want, s.running(t).ID)
	}
	slices.SortFunc(want, scheduler.ID.Compare)
	var got []scheduler.ID
	q := scheduler.RunningQuery{Region: region, Session: s.session, Limit: 2}
	for {
		rows := must[[]scheduler.Held](t)(s.Store.Running(ctx(), q))
		for _, r := range rows {
			got = append(got, r.ID)
			if r.Session != s.session || r.Worker != s.worker || r.Attempt != 1 || r.Kind != "encode" || r.StartedAt.IsZero() {
				t.Errorf("row %+v", r)
			}
		}
		if len(rows) < q.Limit {
			break
		}
		q.After = rows[len(rows)-1].ID
	}
	if !slices.Equal(got, want) {
		t.Errorf("rows %v, want %v", got, want)
	}
}

// B01: recovery is driven by the running rows, whatever has become of the session's own row.
func orphansAreFoundByTheirRows(t *testing.T, s *suite) {
	one := s.running(t)
	orphans := func(grace time.Duration, shards ...uint8) []scheduler.Held {
		t.Helper()
		return must[[]scheduler.Held](t)(s.Store.Orphans(ctx(), scheduler.OrphanQuery{Region: region, Shards: shards, Grace: grace, Limit: 10}))
	}
	if got := orphans(0, 3); len(got) != 0 {
		t.Errorf("of a live session: %+v", got)
	}
	s.open(t, s.session, -time.Minute)
	if got := orphans(0, 3); len(got) != 0 {
		t.Errorf("of a session that expired and was not ended: %+v", got)
	}
	if err := s.Store.EndSession(ctx(), region, s.session); err != nil {
		t.Fatal(err)
	}
	if got := orphans(time.Hour, 3); len(got) != 0 {
		t.Errorf("within the grace: %+v", got)
	}
	if got := orphans(-time.Second, 2); len(got) != 0 {
		t.Errorf("of another lane: %+v", got)
	}
	got := orphans(-time.Second, 2, 3)
	if len(got) != 1 || got[0].Token != one.Token() || got[0].Session != s.session {
		t.Fatalf("after the grace: %+v, want %s", got, one.Ref)
	}
	s.ForgetSession(t, s.session)
	if got := orphans(time.Hour, 3); len(got) != 1 {
		t.Errorf("with the session's row gone: %+v, want it at once", got)
	}
	e := scheduler.Reclaimed(&got[0])
	expect(t, "reclaimed", verdicts(s.end(t, e), endVerdict), scheduler.Won)
	if back := s.Task(t, one.Ref); back.State != scheduler.Ready || back.Counted != 1 {
		t.Errorf("%v, counted %d; want ready and 1", back.State, back.Counted)
	}
}
