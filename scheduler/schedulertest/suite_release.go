package schedulertest

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/errandhq/errand/scheduler"
	"github.com/errandhq/errand/scheduler/graph"
)

// child makes a blocked task that waits for parents.
func child(parents []scheduler.Task, change ...func(*scheduler.Task)) scheduler.Task {
	t := task(change...)
	t.State, t.WakeAt = scheduler.Blocked, time.Now()
	for _, p := range parents {
		t.Parents = append(t.Parents, p.Ref)
	}
	return t
}

func (s *suite) link(t *testing.T, tasks ...scheduler.Task) []scheduler.Inserted {
	t.Helper()
	return must[scheduler.Linked](t)(s.Store.InsertLinked(ctx(), scheduler.InsertLinked{Region: region, Tasks: tasks})).Tasks
}

// graph makes tasks a graph: after names the parents of each by index.
func graphOf(after [][]int, tasks ...scheduler.Task) scheduler.InsertLinked {
	for i, parents := range after {
		for _, p := range parents {
			tasks[i].Parents = append(tasks[i].Parents, tasks[p].Ref)
			tasks[i].State, tasks[p].Parent = scheduler.Blocked, true
		}
		tasks[i].Spec.Graph = tasks[0].ID.String()
	}
	return scheduler.InsertLinked{Region: region, Tasks: tasks, Graph: tasks[0].ID}
}

// endAs ends a task that waits in the ready state.
func (s *suite) endAs(t *testing.T, one scheduler.Task, to scheduler.State) {
	t.Helper()
	if to == scheduler.Canceled {
		if a := s.cancel(t, one.Tenant, one.ID); a[0].State != scheduler.Canceled {
			t.Fatalf("cancel: %+v", a)
		}
		return
	}
	a := s.claim(t, s.session, scheduler.Claim{ID: one.ID, From: scheduler.Ready, Worker: s.worker})
	if a[0].Verdict != scheduler.Won {
		t.Fatalf("claim: %+v", a[0])
	}
	e := scheduler.Ending{Token: a[0].Start.Token, To: to}
	if to == scheduler.Failed {
		e.Failure = &scheduler.Failure{Reason: scheduler.ReasonHandlerError, Message: "broken"}
	}
	if got := s.end(t, e); got[0].Verdict != scheduler.Won {
		t.Fatalf("end: %+v", got[0])
	}
}

// steps are the writes that are still to do: what a scheduler finds by the wake times, in the order in which it does them.
// Each is done at once when it is asked for; stop ends the walk, as a death of the scheduler does.
func (s *suite) sweep(t *testing.T, stop func() bool) (won []scheduler.Released) {
	t.Helper()
	release := func(ids []scheduler.ID, fresh bool) {
		if len(ids) == 0 || stop() {
			return
		}
		for _, r := range must[[]scheduler.Released](t)(s.Store.Release(ctx(), scheduler.ReleaseBatch{Region: region, IDs: ids, Fresh: fresh})) {
			if r.Verdict == scheduler.Won {
				won = append(won, r)
			}
		}
	}
	shards := make([]uint8, 16)
	for i := range shards {
		shards[i] = uint8(i)
	}
	for range 50 {
		found := false
		for _, row := range must[[]scheduler.TimedRow](t)(s.Store.Timed(ctx(), scheduler.TimedQuery{Region: region, Shards: shards, Limit: 100})) {
			switch {
			case row.State == scheduler.Blocked:
				found = true
				release([]scheduler.ID{row.ID}, true)
			case row.State.Terminal():
				found = true
				const page = 2
				at := scheduler.ParentPage{ID: row.ID}
				var wake time.Time
				for more := true; more && !stop(); {
					c := must[[]scheduler.Closed](t)(s.Store.CloseEdges(ctx(), scheduler.CloseEdges{
						Region: region, Parents: []scheduler.ParentPage{at}, Limit: page,
					}))[0]
					if at.After.IsZero() {
						wake = c.Wake
					}
					release(c.Children, false)
					if more = len(c.Children) == page; more {
						at.After = c.Children[page-1]
					}
				}
				if !stop() {
					if err := s.Store.Rest(ctx(), scheduler.RestBatch{Region: region, Parents: []scheduler.SeenParent{{ID: row.ID, Wake: wake}}}); err != nil {
						t.Fatal(err)
					}
				}
			}
			if stop() {
				return won
			}
		}
		if !found {
			return won
		}
	}
	t.Error("there is always something left to release")
	return won
}

func never() bool { return false }

// What becomes of a child, by its condition and by how its parents have ended.
func aChildDoesWhatItsParentsAllow(t *testing.T, s *suite) {
	const ok, bad, gone, open = scheduler.Succeeded, scheduler.Failed, scheduler.Canceled, scheduler.Ready
	for _, c := range []struct {
		when    graph.Condition
		ifNot   graph.Policy
		parents []scheduler.State
		want    scheduler.State
	}{
		{0, 0, []scheduler.State{ok, ok}, scheduler.Ready},
		{0, 0, []scheduler.State{ok, open}, scheduler.Blocked},
		{0, 0, []scheduler.State{open, bad}, scheduler.Canceled},
		{0, graph.Run, []scheduler.State{ok, gone}, scheduler.Ready},
		{graph.AllFinished, 0, []scheduler.State{ok, bad, gone}, scheduler.Ready},
		{graph.AllFinished, 0, []scheduler.State{bad, open}, scheduler.Blocked},
		{graph.AnySucceeded, 0, []scheduler.State{open, ok}, scheduler.Ready},
		{graph.AnySucceeded, 0, []scheduler.State{open, bad}, scheduler.Blocked},
		{graph.AnySucceeded, 0, []scheduler.State{gone, bad}, scheduler.Canceled},
		{graph.AnySucceeded, graph.Run, []scheduler.State{gone, bad}, scheduler.Ready},
	} {
		var parents []scheduler.Task
		for range c.parents {
			parents = append(parents, task())
		}
		s.insert(t, parents...)
		one := child(parents, func(k *scheduler.Task) { k.Spec.Condition, k.Spec.Impossible = c.when, c.ifNot })
		s.link(t, one)
		if won := s.sweep(t, never); len(won) > 0 {
			t.Errorf("%+v: let go before its parents had ended: %+v", c, won)
		}
		for i, to := range c.parents {
			if to != open {
				s.endAs(t, parents[i], to)
			}
		}
		won := s.sweep(t, never)
		got := s.Task(t, one.Ref)
		if got.State != c.want || (len(won) == 1) != (c.want != scheduler.Blocked) || got.State == scheduler.Blocked && !got.WakeAt.IsZero() {
			t.Errorf("%+v: it is %s, wakes at %v, and was let go %d times", c, got.State, got.WakeAt, len(won))
		}
		if got.State == scheduler.Canceled && (got.Failure == nil || got.Failure.Reason != scheduler.ReasonParents ||
			!strings.Contains(got.Failure.Message, "it runs only when "+c.when.String())) {
			t.Errorf("%+v: canceled for %+v", c, got.Failure)
		}
		if got.State == scheduler.Ready && (got.ReadyAt.IsZero() || !got.Due.Equal(got.ReadyAt.Add(got.Tolerance))) {
			t.Errorf("%+v: ready since %v and due %v", c, got.ReadyAt, got.Due)
		}
		for _, p := range parents {
			if stands := s.Task(t, p.Ref); !stands.WakeAt.IsZero() || !stands.Parent {
				t.Errorf("%+v: when all is done its parent is %+v", c, stands)
			}
		}
	}
}

// A child that comes late: its parent has ended, in whatever way, is not there, or is somebody else's (field report B19).
func lateChildren(t *testing.T, s *suite) {
	done, failed, open := task(), task(), task()
	foreign := task(func(k *scheduler.Task) { k.Tenant = "globex" })
	s.insert(t, done, failed, open, foreign)
	s.endAs(t, done, scheduler.Succeeded)
	s.endAs(t, failed, scheduler.Failed)
	a, b := child([]scheduler.Task{done}), child([]scheduler.Task{failed})
	c, d := child([]scheduler.Task{open, task()}), child([]scheduler.Task{foreign})
	got := s.link(t, a, b, c, d)
	for i, want := range []scheduler.InsertVerdict{scheduler.InsertStored, scheduler.InsertStored, scheduler.InsertNoParent, scheduler.InsertNoParent} {
		if got[i].Verdict != want {
			t.Errorf("child %d: %+v, want %v", i, got[i], want)
		}
	}
	if got[2].Existing != c.Parents[1] || got[3].Existing != foreign.Ref {
		t.Errorf("the missing parents are %v and %v", got[2].Existing, got[3].Existing)
	}
	s.sweep(t, never)
	if x, y := s.Task(t, a.Ref), s.Task(t, b.Ref); x.State != scheduler.Ready || y.State != scheduler.Canceled {
		t.Errorf("of one that had succeeded it is %s, of one that had failed %s", x.State, y.State)
	}
	if x := s.Task(t, foreign.Ref); x.Parent {
		t.Error("another tenant's task was told of a child")
	}
	if accepted, ended := s.Ledger(t); accepted != 6 || ended != 3 {
		t.Errorf("ledger: accepted %d, ended %d", accepted, ended)
	}
}

// A chain below a task that fails: all end, each for its parent, with a reason (field report B20).
func endsAreHandedDown(t *testing.T, s *suite) {
	a, b, c := task(), task(), task()
	d := task(func(k *scheduler.Task) { k.Spec.Condition = graph.AllFinished })
	in := graphOf([][]int{{}, {0}, {1}, {2}}, a, b, c, d)
	if got := must[scheduler.Linked](t)(s.Store.InsertLinked(ctx(), in)); got.Verdict != scheduler.InsertStored || len(got.Tasks) != 4 {
		t.Fatalf("%+v", got)
	}
	if won := s.sweep(t, never); len(won) > 0 {
		t.Fatalf("let go: %+v", won)
	}
	s.endAs(t, in.Tasks[0], scheduler.Failed)
	s.sweep(t, never)
	for i, want := range []scheduler.State{scheduler.Failed, scheduler.Canceled, scheduler.Canceled, scheduler.Ready} {
		if got := s.Task(t, in.Tasks[i].Ref); got.State != want {
			t.Errorf("task %d is %s, want %s", i, got.State, want)
		}
	}
	if f := s.Task(t, c.Ref).Failure; f == nil || !strings.Contains(f.Message, b.Ref.String()+" was canceled") {
		t.Errorf("the last one was canceled for %+v", f)
	}
	if accepted, ended := s.Ledger(t); accepted != 4 || ended != 3 {
		t.Errorf("ledger: accepted %d, ended %d", accepted, ended)
	}
}

// Whoever lets children go may die between any two steps, at any one of them: somebody else goes on, and each goes once.
func aReleaseMayStopAnywhere(t *testing.T, s *suite) {
	for at := range 12 {
		parent, other := task(), task()
		s.insert(t, parent, other)
		var children []scheduler.Task
		for i := range 5 {
			from := []scheduler.Task{parent}
			if i == 4 {
				from = append(from, other)
			}
			children = append(children, child(from))
		}
		s.link(t, children...)
		s.endAs(t, parent, scheduler.Succeeded)
		n := 0
		dies := func() bool { n++; return n > at }
		won := append(s.sweep(t, dies), s.sweep(t, never)...)
		times := map[scheduler.ID]int{}
		for _, r := range won {
			times[r.ID]++
		}
		for i, c := range children {
			want, state := 1, scheduler.Ready
			if i == 4 {
				want, state = 0, scheduler.Blocked
			}
			if got := s.Task(t, c.Ref); times[c.ID] != want || got.State != state {
				t.Errorf("died after %d looks: child %d is %s and was let go %d times", at, i, got.State, times[c.ID])
			}
		}
		s.endAs(t, other, scheduler.Succeeded)
		if won := s.sweep(t, never); len(won) != 1 || won[0].ID != children[4].ID {
			t.Errorf("the last one: %+v", won)
		}
	}
}

func aGraphIsStoredWholeAndOnce(t *testing.T, s *suite) {
	in := graphOf([][]int{{}, {0}, {0}, {1, 2}}, task(), task(), task(), task())
	in.Key, in.Fingerprint = "nightly", []byte("one")
	for range 2 { // the second execution settles the first
		got := must[scheduler.Linked](t)(s.Store.InsertLinked(ctx(), in))
		if got.Verdict != scheduler.InsertStored {
			t.Fatalf("%+v", got)
		}
		for i, want := range []scheduler.State{scheduler.Ready, scheduler.Blocked, scheduler.Blocked, scheduler.Blocked} {
			if a := got.Tasks[i]; a.Verdict != scheduler.InsertStored || a.State != want {
				t.Errorf("task %d: %+v", i, a)
			}
		}
	}
	again := graphOf([][]int{{}}, task())
	again.Key, again.Fingerprint = "nightly", []byte("one")
	if got := must[scheduler.Linked](t)(s.Store.InsertLinked(ctx(), again)); got.Verdict != scheduler.InsertDuplicate || got.Existing.ID != in.Graph {
		t.Errorf("the same request again: %+v", got)
	}
	again.Fingerprint = []byte("two")
	if got := must[scheduler.Linked](t)(s.Store.InsertLinked(ctx(), again)); got.Verdict != scheduler.InsertKeyReused {
		t.Errorf("another request: %+v", got)
	}
	bad := graphOf([][]int{{}, {0}}, task(), task())
	bad.Tasks[1].Parents = append(bad.Tasks[1].Parents, task().Ref)
	if got := must[scheduler.Linked](t)(s.Store.InsertLinked(ctx(), bad)); got.Verdict != scheduler.InsertNoParent || got.At != 1 || got.Existing != bad.Tasks[1].Parents[1] {
		t.Errorf("a parent that is not there: %+v", got)
	}
	if accepted, _ := s.Ledger(t); accepted != 4 {
		t.Errorf("%d tasks are stored, want 4: all of a graph or none", accepted)
	}
	s.endAs(t, in.Tasks[0], scheduler.Succeeded)
	s.sweep(t, never)
	s.endAs(t, s.Task(t, in.Tasks[1].Ref), scheduler.Succeeded)
	s.endAs(t, s.Task(t, in.Tasks[2].Ref), scheduler.Succeeded)
	if won := s.sweep(t, never); len(won) != 1 || won[0].ID != in.Tasks[3].ID {
		t.Errorf("the diamond's end: %+v", won)
	}
}

// A parent ends while its child is being submitted, 500 times: the child is never stuck, and let go once (field report B19).
func parentsEndWhileTheChildComes(t *testing.T, s *suite) {
	const rounds, atOnce = 500, 50
	for round := 0; round < rounds; round += atOnce {
		parents, children := make([]scheduler.Task, atOnce), make([]scheduler.Task, atOnce)
		for i := range parents {
			parents[i] = task()
			children[i] = child(parents[i : i+1])
		}
		s.insert(t, parents...)
		var claims []scheduler.Claim
		for i := range parents {
			claims = append(claims, scheduler.Claim{ID: parents[i].ID, From: scheduler.Ready, Worker: s.worker})
		}
		tokens := s.claim(t, s.session, claims...)
		var all sync.WaitGroup
		start := make(chan struct{})
		for i := range parents {
			all.Go(func() {
				<-start
				_, err := s.Store.End(ctx(), scheduler.EndBatch{Region: region, Endings: []scheduler.Ending{{Token: tokens[i].Start.Token, To: scheduler.Succeeded}}})
				if err != nil {
					t.Error(err)
				}
			})
			all.Go(func() {
				<-start
				got, err := s.Store.InsertLinked(ctx(), scheduler.InsertLinked{Region: region, Tasks: children[i : i+1]})
				if err != nil || got.Tasks[0].Verdict != scheduler.InsertStored {
					t.Errorf("%+v, %v", got, err)
				}
			})
		}
		close(start)
		all.Wait()
		times := map[scheduler.ID]int{}
		for _, r := range s.sweep(t, never) {
			times[r.ID]++
		}
		for i := range children {
			if got := s.Task(t, children[i].Ref); got.State != scheduler.Ready || times[got.ID] != 1 {
				t.Fatalf("round %d: the child is %s, let go %d times", round+i, got.State, times[got.ID])
			}
		}
	}
}

// Parents end at the same time at two schedulers, each of which marks and evaluates by itself: the child goes once (field report B18).
func fanInAtTheSameTime(t *testing.T, s *suite) {
	const rounds, width = 60, 8
	for round := range rounds {
		parents := make([]scheduler.Task, width)
		for i := range parents {
			parents[i] = task()
		}
		s.insert(t, parents...)
		one := child(parents)
		s.link(t, one)
		s.sweep(t, never)
		var mu sync.Mutex
		var all sync.WaitGroup
		won := 0
		start := make(chan struct{})
		for i := range parents {
			claimed := s.claim(t, s.session, scheduler.Claim{ID: parents[i].ID, From: scheduler.Ready, Worker: s.worker})
			all.Go(func() {
				<-start
				if err := s.finish(claimed[0].Start.Token, func(scheduler.Released) {
					mu.Lock()
					defer mu.Unlock()
					won++
				}); err != nil {
					t.Error(err)
				}
			})
		}
		close(start)
		all.Wait()
		if got := s.Task(t, one.Ref); got.State != scheduler.Ready || won != 1 {
			t.Fatalf("round %d: the child is %s, let go %d times", round, got.State, won)
		}
		s.sweep(t, never)
	}
}

// finish ends an attempt and does the first steps of its release, as the scheduler that writes the end does.
func (s *suite) finish(token scheduler.Token, won func(scheduler.Released)) error {
	got, err := s.Store.End(ctx(), scheduler.EndBatch{Region: region, Endings: []scheduler.Ending{{Token: token, To: scheduler.Succeeded}}})
	if err != nil || got[0].Verdict != scheduler.Won || !got[0].Parent {
		return fmt.Errorf("end: %+v, %w", got, err)
	}
	closed, err := s.Store.CloseEdges(ctx(), scheduler.CloseEdges{Region: region, Parents: []scheduler.ParentPage{{ID: token.ID}}, Limit: 10})
	if err != nil {
		return err
	}
	released, err := s.Store.Release(ctx(), scheduler.ReleaseBatch{Region: region, IDs: closed[0].Children})
	for _, r := range released {
		if r.Verdict == scheduler.Won {
			won(r)
		}
	}
	return err
}

// What ends a blocked task by itself is told to its children like any other end, and no release opens it again.
func aBlockedTaskMayEndByItself(t *testing.T, s *suite) {
	root := task()
	s.insert(t, root)
	late := child([]scheduler.Task{root}, func(k *scheduler.Task) { k.StartBy = time.Now().Add(50 * time.Millisecond) })
	unwanted := child([]scheduler.Task{root})
	timed := child([]scheduler.Task{root}, func(k *scheduler.Task) { k.RunAt = time.Now().Add(time.Hour) })
	s.link(t, late, unwanted, timed)
	below := child([]scheduler.Task{late, unwanted}, func(k *scheduler.Task) { k.Spec.Condition = graph.AllFinished })
	s.link(t, below)
	s.sweep(t, func() bool { return false })
	for s.Task(t, late.Ref).State == scheduler.Blocked {
		must[[]scheduler.Moved](t)(s.Store.Expire(ctx(), scheduler.ExpireBatch{Region: region, IDs: []scheduler.ID{late.ID}}))
	}
	s.endAs(t, unwanted, scheduler.Canceled)
	s.sweep(t, never)
	s.endAs(t, root, scheduler.Succeeded)
	s.sweep(t, never)
	for i, c := range []struct {
		ref  scheduler.Ref
		want scheduler.State
	}{{late.Ref, scheduler.Expired}, {unwanted.Ref, scheduler.Canceled}, {below.Ref, scheduler.Ready}, {timed.Ref, scheduler.Scheduled}} {
		if got := s.Task(t, c.ref); got.State != c.want {
			t.Errorf("task %d is %s, want %s", i, got.State, c.want)
		}
	}
	if got := s.Task(t, timed.Ref); !got.WakeAt.Equal(got.RunAt) || !got.Due.Equal(got.RunAt.Add(got.Tolerance)) {
		t.Errorf("one that has to wait for its time too: %+v", got)
	}
}
