package tokenbucket

import (
	"testing"
	"time"

	"github.com/errandhq/errand/internal/devcluster"
	"github.com/errandhq/errand/internal/testdb"
)

// openAhead opens buckets that need not ask every time.
func openAhead(t *testing.T, r *devcluster.Redis, instances int) (*Buckets, *clock) {
	t.Helper()
	b, err := Open(r.URL(), "eu", Options{CallMax: patience, Ahead: AheadFor})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = b.Close() })
	b.SetInstances(instances)
	return b, byHand(b)
}

var wide = Policy{Rate: 0.001, Burst: 100}

// Of plenty Redis is not asked, and near the limit it is; in the end not one task more was admitted.
func TestAhead(t *testing.T) {
	b, _ := openAhead(t, testdb.Redis(t), 1)
	for range 10 {
		wantGranted(t, b, "a", wide, 10, 10) // 90 are left by Redis; 80, 70, 60 without it
	}
	wantGranted(t, b, "a", wide, 10, 0)
	if s := b.Status(); s.Ahead != 3 || s.ByRedis != 8 || s.ByTwin != 0 {
		t.Errorf("%+v", s)
	}
}

// An answer of Redis is good for a short while only, and for the tenant that it was about.
func TestAheadForAWhile(t *testing.T) {
	b, c := openAhead(t, testdb.Redis(t), 1)
	for _, step := range []struct {
		tenant string
		pass   time.Duration
		ahead  uint64
	}{{"a", 0, 0}, {"a", AheadFor, 1}, {"b", 0, 1}, {"a", time.Microsecond, 1}, {"a", AheadFor, 2}, {"a", -time.Second, 2}} {
		c.at = c.at.Add(step.pass)
		wantGranted(t, b, step.tenant, wide, 1, 1)
		if s := b.Status(); s.Ahead != step.ahead {
			t.Errorf("%+v: %+v", step, s)
		}
	}
}

// Urgent tasks are asked for as long as there is no plenty of urgent tokens.
func TestAheadOfUrgentTasks(t *testing.T) {
	b, _ := openAhead(t, testdb.Redis(t), 1)
	p := Policy{Rate: 0.001, Burst: 100, UrgentRate: 0.001}
	for i, want := range []int{1, 0, 0} {
		if got := b.Admit(t.Context(), []Ask{{"a", p, 1, 1}})[0]; got.Granted != 1 || got.Urgent != want {
			t.Errorf("submit %d: %+v", i+1, got)
		}
	}
	wantGranted(t, b, "a", p, 1, 1)
	if s := b.Status(); s.Ahead != 1 || s.ByRedis != 3 {
		t.Errorf("%+v", s)
	}
}

// While one instance goes ahead, another one empties the bucket: what was too much is owed, at most half of a share, and paid.
func TestAheadOwes(t *testing.T) {
	r := testdb.Redis(t)
	one, _ := openAhead(t, r, 2)
	other, _ := openAhead(t, r, 2)
	wantGranted(t, one, "a", wide, 2, 2)
	wantGranted(t, other, "a", wide, 97, 97)
	wantGranted(t, other, "a", wide, 5, 1)
	total := 100
	for {
		got := admit(one, "a", wide, 4).Granted
		if total += got; got == 0 {
			break
		}
	}
	if s := one.Status(); s.Ahead == 0 || total > 125 {
		t.Errorf("%d were admitted of 100: %+v", total, s)
	}
	_, tokens, _ := stored(t, raw(t, r), "a")
	if owed := float64(100 - total); tokens < owed-0.1 || tokens > owed+0.1 {
		t.Errorf("%v tokens are stored after %d of 100", tokens, total)
	}
}
