package scheduler

import (
	"slices"
	"testing"
	"time"
)

// rowsOf makes ready rows of one group, in one shard, in the order of their due.
func rowsOf(tenant, kind string, n int) []ReadyRow {
	rows := make([]ReadyRow, n)
	for i := range rows {
		rows[i] = ReadyRow{
			ID: ID{1, byte(i >> 8), byte(i), tenant[0], kind[0]}, State: Ready, Tenant: tenant, Kind: kind, Tier: Standard,
			Class: ClassOf(kind, &Spec{}), Due: epoch.Add(time.Duration(i) * time.Second),
		}
	}
	return rows
}

func groupOf(tenant, kind string) BufferKey { return groupKeyOf(&rowsOf(tenant, kind, 1)[0]) }

// refillOnce takes the whole list as what the store has, and answers one refill of one group.
func refillOnce(t *testing.T, w *world, store []ReadyRow, key BufferKey) (shown int) {
	t.Helper()
	if keys := w.core.Refills(w.now, 10); !slices.Equal(keys, []BufferKey{key}) {
		t.Fatalf("reads %v, want %v", keys, key)
	}
	per := w.core.RefillRows([]BufferKey{key}, 1)
	answer := Refilled{Keys: []BufferKey{key}, PerShard: per}
	answer.Rows = append(answer.Rows, store[:min(per, len(store))]...)
	w.core.Step(answer)
	return len(answer.Rows)
}

func drain(w *world) {
	for _, row := range w.core.waiting.rows {
		w.core.waiting.remove(row, w.now)
	}
}

// A group that drains fast is read in growing portions, one that drains slowly in small ones again.
func TestRefillsFollowTheDrain(t *testing.T) {
	w, store, key := newWorld(DefaultTiming(), nil), rowsOf("x", "k", 20_000), groupOf("x", "k")
	w.plan(Room{})
	w.core.Step(Stale{Key: key})
	var shown []int
	for range 10 {
		shown = append(shown, refillOnce(t, w, store, key))
		drain(w)
		w.now = w.now.Add(10 * time.Millisecond)
		w.plan(Room{})
	}
	if want := []int{33, 33, 65, 129, 257, 513, 1025, 2049, 4097, 4097}; !slices.Equal(shown, want) {
		t.Errorf("fast: %v rows, want %v", shown, want)
	}
	shown = nil
	for range 9 {
		w.now = w.now.Add(refillLate + time.Second)
		w.plan(Room{})
		shown = append(shown, refillOnce(t, w, store, key))
		drain(w)
	}
	if want := []int{4097, 2049, 1025, 513, 257, 129, 65, 33, 33}; !slices.Equal(shown, want) {
		t.Errorf("slow: %v rows, want %v", shown, want)
	}
}

// When all that a refill shows is being claimed here already, asking again at once would bring the same.
func TestRefillsThatBringNothingPause(t *testing.T) {
	w, store, key := newWorld(DefaultTiming(), nil), rowsOf("x", "k", 100), groupOf("x", "k")
	w.join(WorkerID{1}, "", map[string]int{"k": 1000})
	w.core.Step(Stale{Key: key})
	refillOnce(t, w, store[:50], key)
	w.plan(Room{Others: 1000}) // all of them are under way
	for _, want := range []time.Duration{5, 10, 20, 40, 80, 160, 250, 250} {
		if keys := w.core.Refills(w.now, 10); len(keys) != 1 {
			t.Fatalf("reads %v", keys)
		}
		w.core.Step(Refilled{Keys: []BufferKey{key}, Rows: store[:10], PerShard: 10})
		w.now = w.now.Add(want*time.Millisecond - 1)
		w.plan(Room{})
		if keys := w.core.Refills(w.now, 10); len(keys) != 0 {
			t.Errorf("reads again before %v ms have passed", int(want))
		}
		w.now = w.now.Add(1)
		w.plan(Room{})
	}
	if keys := w.core.Refills(w.now, 10); len(keys) != 1 {
		t.Fatal("does not read any more")
	}
	w.core.Step(Refilled{Keys: []BufferKey{key}, Rows: store[50:60], PerShard: 10}) // news: no pause
	w.plan(Room{Others: 1000})
	if keys := w.core.Refills(w.now, 10); len(keys) != 1 {
		t.Error("pauses after a refill that brought rows")
	}
}

// Groups are read in the order in which they ran low: a few that drain fast do not keep the others waiting.
func TestNoGroupWaitsBehindOneThatWasReadLater(t *testing.T) {
	w, kinds := newWorld(DefaultTiming(), nil), []string{"a", "b", "c", "d", "e"}
	for _, kind := range kinds {
		w.core.Step(Stale{Key: groupOf("x", kind)})
	}
	read := map[BufferKey]int{}
	for range 5 {
		keys := w.core.Refills(w.now, 2)
		for _, key := range keys {
			read[key]++
			i := slices.IndexFunc(kinds, func(kind string) bool { return groupOf("x", kind) == key })
			w.core.Step(Refilled{Keys: []BufferKey{key}, Rows: rowsOf("x", kinds[i], 3), PerShard: 3}) // there is more
		}
		drain(w)
	}
	for _, kind := range kinds {
		if read[groupOf("x", kind)] != 2 {
			t.Errorf("the group of kind %s was read %d times, want 2 of 10: %v", kind, read[groupOf("x", kind)], read)
		}
	}
}

func TestBuffersAreBounded(t *testing.T) {
	w := newWorld(DefaultTiming(), nil)
	w.core.Step(RowsReady{Rows: rowsOf("x", "k", 3*groupRowsMax)})
	if n := w.core.Counts().Buffered; n != groupRowsMax {
		t.Errorf("%d rows buffered, want %d", n, groupRowsMax)
	}
	w.plan(Room{Others: 1000}) // nobody serves the kind
	if n := w.core.Counts().Buffered; n != parkedRowsMax {
		t.Errorf("%d rows parked, want %d", n, parkedRowsMax)
	}
	w.check(t)
	w.core.Step(RowsReady{Rows: rowsOf("x", "k", 3*groupRowsMax)})
	if n := w.core.Counts().Buffered; n != parkedRowsMax {
		t.Errorf("%d rows parked after more came, want %d", n, parkedRowsMax)
	}
	w.join(WorkerID{1}, "", map[string]int{"k": 5})
	p := w.plan(Room{Others: 1000})
	for i, c := range p.Claims {
		if c.ID != rowsOf("x", "k", 5)[i].ID {
			t.Errorf("claim %d is not of the earliest due row", i)
		}
	}
	if keys := w.core.Refills(w.now, 10); len(p.Claims) != 5 || len(keys) != 0 {
		t.Errorf("%d claims, reads %v", len(p.Claims), keys)
	}
	drain(w)
	if keys := w.core.Refills(w.now, 10); len(keys) != 1 {
		t.Error("the rows that were let go are not read again")
	}
}

// A core forgets groups that hold nothing and miss nothing: memory does not grow with tenants that have come and gone.
func TestGroupsAreForgotten(t *testing.T) {
	w := newWorld(DefaultTiming(), nil)
	for _, kind := range []string{"a", "b", "c"} {
		rows := rowsOf("x", kind, 1)
		w.core.Step(RowsReady{Rows: rows})
		w.core.Step(RowsGone{IDs: []ID{rows[0].ID}})
		w.core.Step(Stale{Key: groupKeyOf(&rows[0])})
	}
	keys := w.core.Refills(w.now, 10)
	w.core.Step(Refilled{Keys: keys, PerShard: 10})
	if n := w.core.Counts().Groups; n != 0 {
		t.Errorf("%d groups are left", n)
	}
	w.core.Step(RefillFailed{Keys: keys}) // late: of groups that are gone
	w.check(t)
}

// An eager start would overtake rows that only the store holds.
func TestEagerStartsDoNotOvertakeTheStore(t *testing.T) {
	w, key := newWorld(DefaultTiming(), nil), groupOf("x", "k")
	w.join(WorkerID{1}, "", map[string]int{"k": 100})
	task := Task{Ref: Ref{ID: ID{9}}, Tenant: "y", Kind: "k", Tier: Standard, State: Ready}
	w.core.Step(Stale{Key: key})
	w.core.Refills(w.now, 10)
	w.core.Step(Refilled{Keys: []BufferKey{key}, Rows: rowsOf("x", "k", 3), PerShard: 3})
	w.plan(Room{Others: 10})
	if w.core.Counts().Buffered != 0 || w.core.Admit(&task, w.now) {
		t.Error("a new task starts before rows that wait in the store")
	}
	w.now = w.now.Add(time.Second)
	w.core.Refills(w.now, 10)
	w.core.Step(Refilled{Keys: []BufferKey{key}, PerShard: 3})
	if !w.core.Admit(&task, w.now) {
		t.Error("nothing waits any more, and a new task does not start")
	}
}

// A claim that was lost though the row is ready still: its group is read again, whatever decides its class.
func TestALostClaimOfAReadyRowIsReadAgain(t *testing.T) {
	w := newWorld(DefaultTiming(), nil)
	w.join(WorkerID{1}, "", map[string]int{"k": 1})
	row := rowsOf("x", "k", 1)[0]
	row.Class = ClassOf("k", &Spec{AllowedRegions: []string{"here"}})
	w.core.Step(RowsReady{Rows: []ReadyRow{row}})
	w.plan(Room{Others: 1})
	w.core.Advance(ClaimsAnswered{Answers: []Claimed{{ID: row.ID, Verdict: Lost, State: Ready}}})
	if keys := w.core.Refills(w.now, 10); !slices.Equal(keys, []BufferKey{groupKeyOf(&row)}) {
		t.Errorf("reads %v", keys)
	}
}

// A group that drains fast does not make a refill of many groups huge.
func TestRefillsOfManyGroupsAreBounded(t *testing.T) {
	w := newWorld(DefaultTiming(), nil)
	w.plan(Room{})
	for _, kind := range []string{"a", "b", "c", "d", "e"} {
		w.core.Step(Stale{Key: groupOf("x", kind)})
	}
	w.core.waiting.groups[groupOf("x", "c")].want = groupRowsMax
	for i, want := range []int{2, 2, 1} {
		keys := w.core.Refills(w.now, 50)
		if len(keys) != want || len(keys)*w.core.RefillRows(keys, 1) > refillRowsMax+len(keys) {
			t.Errorf("refill %d reads %d groups with %d rows each, want %d groups", i, len(keys), w.core.RefillRows(keys, 1), want)
		}
	}
}
