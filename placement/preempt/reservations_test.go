package preempt

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/errandhq/errand/placement"
)

var start = time.Date(2026, 12, 3, 9, 0, 0, 0, time.UTC)

func TestReservationsEnd(t *testing.T) {
	p := Preemptor{Kind: "encode", Tier: high}
	choice := Choice{Verdict: Preempt, Worker: id(1)}
	kept := func(then func(*Reservations)) *Reservations {
		r := NewReservations()
		if !r.May(task(1), start) || !r.Keep(task(1), p, choice, start) {
			t.Fatal("no reservation")
		}
		then(r)
		return r
	}
	late := start.Add(ReservationTime)
	for name, c := range map[string]struct {
		then  func(*Reservations)
		at    time.Time
		has   bool
		again bool
	}{
		"kept":                {func(*Reservations) {}, start, true, false},
		"just before it ends": {func(r *Reservations) { r.Lapse(late.Add(-1)) }, late, true, false},
		"lapsed":              {func(r *Reservations) { r.Lapse(late) }, late, false, false},
		"rested":              {func(r *Reservations) { r.Lapse(late) }, late.Add(PreemptAgain), false, true},
		"almost rested":       {func(r *Reservations) { r.Lapse(late) }, late.Add(PreemptAgain - 1), false, false},
		"started":             {func(r *Reservations) { r.End(task(1)) }, start, false, true},
		"another's end":       {func(r *Reservations) { r.End(task(2)) }, start, true, false},
		"the worker left":     {func(r *Reservations) { r.Leave(id(1)) }, start, false, true},
		"another worker left": {func(r *Reservations) { r.Leave(id(2)) }, start, true, false},
	} {
		t.Run(name, func(t *testing.T) {
			r := kept(c.then)
			if _, has := r.Of(task(1)); has != c.has || (len(r.On(id(1))) == 1) != c.has {
				t.Errorf("has one: %v, want %v", has, c.has)
			}
			if again := r.May(task(1), c.at); again != c.again {
				t.Errorf("may preempt: %v, want %v", again, c.again)
			}
		})
	}
}

// Nothing is kept for what fits now or never, and what is remembered is bounded and forgotten.
func TestReservationsAreBounded(t *testing.T) {
	r := NewReservations()
	for _, v := range []Verdict{NeverFits, NothingToGo, FitsNow} {
		if r.Keep(task(1), Preemptor{}, Choice{Verdict: v}, start) {
			t.Errorf("room is kept for what %v", v)
		}
	}
	now, made := start, 0
	for n := range 2 * preemptRestsMax {
		if n%ReservationsMax == 0 {
			now = now.Add(time.Nanosecond)
			r.Lapse(now.Add(ReservationTime))
		}
		if r.Keep(task(n), Preemptor{}, Choice{Verdict: Preempt, Worker: id(1)}, now) {
			made++
		}
	}
	if made != preemptRestsMax || len(r.kept)+len(r.rests) > preemptRestsMax {
		t.Errorf("%d reservations made, %d kept, %d remembered", made, len(r.kept), len(r.rests))
	}
	r.Lapse(now.Add(ReservationTime))
	r.Lapse(now.Add(ReservationTime + PreemptAgain))
	if len(r.kept)+len(r.rests) != 0 {
		t.Errorf("%d kept and %d remembered after all is over", len(r.kept), len(r.rests))
	}
}

// world is a scheduler in small: tasks in line, workers, and second after second the rules of preemption as the core is to follow them.
type world struct {
	now       time.Time
	workers   []Held
	line      []*worldTask
	running   map[[16]byte]*worldTask
	kept      *Reservations
	evictions int
	deaf      bool // attempts that are told to stop go on
	byTask    map[[16]byte]int
}

type worldTask struct {
	Running
	worker int
	takes  int // seconds it still needs
	leaves int // seconds it still takes to stop
	never  bool
}

func newWorld(workers ...Held) *world {
	return &world{now: start, workers: workers, running: map[[16]byte]*worldTask{}, kept: NewReservations(), byTask: map[[16]byte]int{}}
}

func (w *world) submit(n int, tier uint8, uses placement.Resources, takes int) *worldTask {
	t := &worldTask{Running: Running{Task: task(n), Kind: "encode", Tier: tier, Uses: uses, Preemptible: true}, takes: takes}
	w.line = append(w.line, t)
	return t
}

// held is the workers as the choice sees them.
func (w *world) held() []Held {
	held := slices.Clone(w.workers)
	for i := range held {
		held[i].Kept = w.kept.On(held[i].Worker)
		for _, t := range w.running {
			if t.worker == i {
				held[i].Running = append(held[i].Running, t.Running)
			}
		}
	}
	return held
}

// second is one round: attempts end, reservations lapse, and everybody in line is asked once, higher tiers first.
func (w *world) second() error {
	w.now = w.now.Add(time.Second)
	w.endings()
	w.kept.Lapse(w.now)
	slices.SortStableFunc(w.line, func(a, b *worldTask) int { return int(a.Tier) - int(b.Tier) })
	var waiting []*worldTask
	for _, t := range w.line {
		started, err := w.ask(t)
		if err != nil {
			return err
		}
		if !started {
			waiting = append(waiting, t)
		}
	}
	w.line = waiting
	return w.overfull()
}

func (w *world) endings() {
	for id, t := range w.running {
		t.takes--
		t.Work += time.Second
		if t.Leaving && !w.deaf {
			t.leaves--
		}
		switch {
		case t.takes <= 0:
			delete(w.running, id)
		case t.Leaving && t.leaves <= 0: // with its checkpoint
			delete(w.running, id)
			t.Leaving, t.Work = false, 0
			w.line = append(w.line, t)
		}
	}
}

// ask is what the core does for a task in line: start it on its reservation or anywhere, or make room for it.
func (w *world) ask(t *worldTask) (started bool, err error) {
	p := Preemptor{Kind: t.Kind, Need: t.Uses, Tier: t.Tier}
	held := w.held()
	if mine, ok := w.kept.Of(t.Task); ok { // its own reservation is no obstacle to it
		i := slices.IndexFunc(held, func(h Held) bool { return h.Worker == mine.Worker })
		own := held[i]
		own.Kept = slices.DeleteFunc(own.Kept, func(k Reservation) bool { return k.Task == t.Task })
		if c := Victims(p, []Held{own}); c.Verdict == FitsNow {
			w.start(t, i, c)
			return true, nil
		}
		return false, nil
	}
	c := Victims(p, held)
	i := slices.IndexFunc(held, func(h Held) bool { return h.Worker == c.Worker })
	t.never = c.Verdict == NeverFits
	if c.Verdict == FitsNow {
		w.start(t, i, c)
		return true, nil
	}
	if !w.kept.May(t.Task, w.now) || !w.kept.Keep(t.Task, p, c, w.now) {
		return false, nil
	}
	for _, v := range c.Victims {
		if err := w.evict(t, w.running[v]); err != nil {
			return false, err
		}
	}
	return false, nil
}

func (w *world) start(t *worldTask, worker int, c Choice) {
	w.kept.End(t.Task)
	t.worker, t.Devices = worker, c.Devices
	w.running[t.Task] = t
}

func (w *world) evict(by, victim *worldTask) error {
	if victim.Tier <= by.Tier || victim.Leaving || victim.Preemptions >= PreemptionsMax {
		return fmt.Errorf("%v evicts %+v", by.Task, victim.Running)
	}
	victim.Leaving, victim.leaves = true, 3
	victim.Preemptions++
	w.evictions++
	w.byTask[by.Task]++
	return nil
}

func (w *world) overfull() error {
	for i, h := range w.workers {
		var used, cpu int64
		for _, t := range w.running {
			if t.worker == i {
				used, cpu = used+slots(t.Uses), cpu+t.Uses.CPUMilli
			}
		}
		if used > int64(h.Slots["encode"]) || cpu > h.Capacity.CPUMilli {
			return fmt.Errorf("worker %d has %d attempts with %d", i, used, cpu)
		}
	}
	return nil
}

// B33: what never fits makes nobody stop and holds up nobody behind it.
func TestUselessPreemptionB33(t *testing.T) {
	w := newWorld(Held{Worker: id(1), Slots: map[string]int{"encode": 9}, Capacity: &placement.Resources{CPUMilli: 3}})
	small := w.submit(1, low, placement.Resources{CPUMilli: 1}, 10000)
	round := func() {
		t.Helper()
		if err := w.second(); err != nil {
			t.Fatal(err)
		}
	}
	round()
	four := w.submit(4, high, placement.Resources{CPUMilli: 4}, 10000)
	w.submit(3, high, placement.Resources{CPUMilli: 3}, 10000)
	for range 5 * 60 {
		round()
	}
	if _, ok := w.running[task(3)]; !ok {
		t.Error("the task of size 3 does not run")
	}
	if w.evictions != 1 || w.byTask[task(3)] != 1 || small.Preemptions != 1 {
		t.Errorf("evictions by task: %v", w.byTask)
	}
	if !four.never || !slices.Contains(w.line, four) {
		t.Error("nobody says that the task of size 4 never fits")
	}
}

// Who does not stop is not followed by others: a preemptor that gets no room makes nobody stop for a while.
func TestDeafVictimsAreNotFollowedByOthers(t *testing.T) {
	w := newWorld(Held{Worker: id(1), Slots: map[string]int{"encode": 5}, Capacity: &placement.Resources{}})
	w.deaf = true
	for n := range 5 {
		w.submit(n, low, placement.Resources{}, 10000)
	}
	if err := w.second(); err != nil {
		t.Fatal(err)
	}
	w.submit(9, high, placement.Resources{Slots: 2}, 10)
	for range int((ReservationTime + PreemptAgain) / time.Second) {
		if err := w.second(); err != nil {
			t.Fatal(err)
		}
	}
	if w.evictions != 2 {
		t.Errorf("%d were told to stop for one task that needs 2 slots", w.evictions)
	}
}

// Nobody takes freed room before the preemptor, however many wait.
func TestFreedRoomIsThePreemptors(t *testing.T) {
	w := newWorld(Held{Worker: id(1), Slots: map[string]int{"encode": 2}, Capacity: &placement.Resources{}})
	w.submit(1, low, placement.Resources{}, 10000)
	w.submit(2, low, placement.Resources{}, 2) // its end leaves one slot free, which is promised
	for range 2 {
		if err := w.second(); err != nil {
			t.Fatal(err)
		}
		if len(w.byTask) == 0 {
			w.submit(9, high, placement.Resources{Slots: 2}, 10)
			for n := range 5 {
				w.submit(20+n, middle, placement.Resources{}, 10000)
			}
		}
	}
	for range 4 {
		if err := w.second(); err != nil {
			t.Fatal(err)
		}
	}
	if _, ok := w.running[task(9)]; !ok || w.byTask[task(9)] == 0 {
		t.Errorf("the preemptor does not run; evictions %v", w.byTask)
	}
}

// Preemptions end, whatever comes back: everybody who fits on an empty worker runs to the end, and nobody was made to stop too often.
func TestNoLoopOfPreemptions(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := newWorld()
		for n := range rapid.IntRange(1, 3).Draw(t, "workers") {
			w.workers = append(w.workers, Held{
				Worker: id(byte(n + 1)), Slots: map[string]int{"encode": rapid.IntRange(1, 4).Draw(t, "slots")},
				Capacity: &placement.Resources{CPUMilli: rapid.Int64Range(1, 8).Draw(t, "cpu")},
			})
		}
		var tasks []*worldTask
		left := rapid.IntRange(1, 25).Draw(t, "tasks")
		work := 0
		for n := 0; n < left || len(w.running) > 0 || len(w.line) > 0; {
			for range rapid.IntRange(0, 3).Draw(t, "submits") {
				if n < left {
					takes := rapid.IntRange(1, 40).Draw(t, "takes")
					tier := uint8(rapid.IntRange(high, low).Draw(t, "tier"))
					tasks = append(tasks, w.submit(n, tier, placement.Resources{CPUMilli: rapid.Int64Range(0, 9).Draw(t, "needs")}, takes))
					work += takes
					n++
				}
			}
			if err := w.second(); err != nil {
				t.Fatal(err)
			}
			if n == left && !slices.ContainsFunc(w.line, func(t *worldTask) bool { return !t.never }) && len(w.running) == 0 {
				break
			}
			if limit := start.Add(time.Duration(work+left*60+100) * time.Second); w.now.After(limit) {
				t.Fatalf("%d run and %d wait after %v", len(w.running), len(w.line), w.now.Sub(start))
			}
		}
		for _, done := range tasks {
			if done.Preemptions > PreemptionsMax || done.Tier == high && done.Preemptions > 0 {
				t.Fatalf("%v of tier %d was preempted %d times", done.Task, done.Tier, done.Preemptions)
			}
		}
		if w.evictions > PreemptionsMax*len(tasks) {
			t.Fatalf("%d evictions of %d tasks", w.evictions, len(tasks))
		}
	})
}
