package scheduler

import (
	"errors"
	"reflect"
	"testing"
	"time"

	"pgregory.net/rapid"
)

var allStates = []State{Scheduled, Ready, Running, Blocked, Succeeded, Failed, Canceled, Expired}

// arrow is one way of a task's life, as the tables and the model take it.
type arrow struct {
	name string
	take func(Task, time.Time) (Task, error)
}

var arrows = []arrow{
	{"claim ready", func(t Task, now time.Time) (Task, error) {
		return t.Claim(Ready, t.Attempt, SessionID{7}, WorkerID{7}, now)
	}},
	{"claim scheduled", func(t Task, now time.Time) (Task, error) {
		return t.Claim(Scheduled, t.Attempt, SessionID{7}, WorkerID{7}, now)
	}},
	{"wake", func(t Task, now time.Time) (Task, error) { return t.Wake(t.Attempt, now) }},
	{"expire", func(t Task, now time.Time) (Task, error) { return t.Expire(now) }},
	{"cancel", func(t Task, now time.Time) (Task, error) { return t.Cancel("why", now) }},
	{"release", func(t Task, now time.Time) (Task, error) { return t.Release(now) }},
	{"forsake", func(t Task, now time.Time) (Task, error) { return t.Forsake(&Failure{Reason: ReasonParents}, now) }},
	{"attach", func(t Task, _ time.Time) (Task, error) { return t.Attach(t.Token(), SessionID{8}) }},
	{"succeed", endTo(Succeeded)},
	{"fail", endTo(Failed)},
	{"end canceled", endTo(Canceled)},
	{"give back", endTo(Ready)},
	{"retry", endTo(Scheduled)},
}

func endTo(to State) func(Task, time.Time) (Task, error) {
	return func(t Task, now time.Time) (Task, error) {
		return t.End(Ending{Token: t.Token(), To: to, Delay: time.Minute, Failure: &Failure{Reason: "why"}}, now)
	}
}

// taskIn is a task in some state whose times have all come: only the state decides.
func taskIn(s State) Task {
	t := Task{
		Ref: Ref{Region: "here", ID: ID{1, 2, 3}}, Tenant: "x", Kind: "k", Tier: Standard, State: s,
		Tolerance: time.Minute, Attempt: 2, Counted: 1, ReadyAt: epoch, Due: epoch.Add(time.Minute), CreatedAt: epoch,
	}
	switch {
	case s == Running:
		t.Session, t.Worker, t.StartedAt = SessionID{1}, WorkerID{1}, epoch
	case s == Scheduled:
		t.RunAt, t.WakeAt = epoch, epoch
	case s.Terminal():
		t.EndedAt = epoch
	}
	return t
}

// Every state, every arrow: what is not in this table is refused, and leaves the task as it was.
func TestEveryStateAndEveryArrow(t *testing.T) {
	allowed := map[string]map[State]State{
		"claim ready":     {Ready: Running},
		"claim scheduled": {Scheduled: Running},
		"wake":            {Scheduled: Ready},
		"expire":          {}, // without a start_by that has passed, from nowhere
		"cancel":          {Scheduled: Canceled, Ready: Canceled, Blocked: Canceled, Running: Running},
		"release":         {Blocked: Ready},
		"forsake":         {Blocked: Canceled},
		"attach":          {Running: Running},
		"succeed":         {Running: Succeeded},
		"fail":            {Running: Failed},
		"end canceled":    {Running: Canceled},
		"give back":       {Running: Ready},
		"retry":           {Running: Scheduled},
	}
	for _, a := range arrows {
		for _, from := range allStates {
			t.Run(a.name+" from "+from.String(), func(t *testing.T) {
				task := taskIn(from)
				got, err := a.take(task, epoch.Add(time.Hour))
				to, ok := allowed[a.name][from]
				switch {
				case ok && (err != nil || got.State != to):
					t.Errorf("%v, %v; want %v", got.State, err, to)
				case !ok && err == nil:
					t.Errorf("went to %v, want a refusal", got.State)
				case !ok && !reflect.DeepEqual(got, task):
					t.Errorf("refused, and the task has changed to %+v", got)
				}
			})
		}
	}
}

// FIELD-REPORTS B50: the deadline counts from the submission, and is looked at by every arrow that could start the task.
func TestStartByHasPassed(t *testing.T) {
	allowed := map[string]map[State]State{
		"expire":       {Scheduled: Expired, Ready: Expired, Blocked: Expired},
		"cancel":       {Scheduled: Canceled, Ready: Canceled, Blocked: Canceled, Running: Running},
		"forsake":      {Blocked: Canceled},
		"attach":       {Running: Running},
		"succeed":      {Running: Succeeded},
		"fail":         {Running: Failed},
		"end canceled": {Running: Canceled},
		"give back":    {Running: Ready}, // where it expires at once
		"retry":        {Running: Scheduled},
	}
	for _, a := range arrows {
		for _, from := range allStates {
			task := taskIn(from)
			task.StartBy = epoch.Add(time.Minute)
			got, err := a.take(task, task.StartBy)
			to, ok := allowed[a.name][from]
			if ok != (err == nil) || (ok && got.State != to) || (!ok && !reflect.DeepEqual(got, task)) {
				t.Errorf("%s from %v: %v, %v; allowed %v", a.name, from, got.State, err, ok)
			}
			if ok && got.State.Waiting() && !got.WakeAt.Equal(task.StartBy) {
				t.Errorf("%s: somebody must look again at %v, want %v", a.name, got.WakeAt, task.StartBy)
			}
		}
	}
}

func TestRefusalsOfAnArrowSayWhy(t *testing.T) {
	now := epoch.Add(time.Hour)
	later := func(t Task) Task { t.WakeAt = now.Add(1); return t }
	running := taskIn(Running)
	other := func(change func(*Ending)) Ending {
		e := Ending{Token: running.Token(), To: Succeeded}
		change(&e)
		return e
	}
	for name, c := range map[string]struct {
		err  error
		want error
	}{
		"claim, seen another attempt": {second(taskIn(Ready).Claim(Ready, 1, SessionID{}, WorkerID{}, now)), ErrSeenOther},
		"claim, seen another state":   {second(taskIn(Ready).Claim(Scheduled, 2, SessionID{}, WorkerID{}, now)), ErrSeenOther},
		"claim a blocked one":         {second(taskIn(Blocked).Claim(Blocked, 2, SessionID{}, WorkerID{}, now)), ErrNotWaiting},
		"claim a running one":         {second(running.Claim(Running, 2, SessionID{}, WorkerID{}, now)), ErrNotWaiting},
		"claim before its time":       {second(later(taskIn(Scheduled)).Claim(Scheduled, 2, SessionID{}, WorkerID{}, now)), ErrNotDue},
		"wake before its time":        {second(later(taskIn(Scheduled)).Wake(2, now)), ErrNotDue},
		"wake, seen another attempt":  {second(taskIn(Scheduled).Wake(1, now)), ErrSeenOther},
		"expire without start_by":     {second(taskIn(Ready).Expire(now)), ErrNotDue},
		"expire a running one":        {second(running.Expire(now)), ErrNotWaiting},
		"cancel an ended one":         {second(taskIn(Succeeded).Cancel("", now)), ErrEnded},
		"attach, another worker":      {second(running.Attach(Token{running.ID, 2, WorkerID{9}}, SessionID{})), ErrLost},
		"end, an older attempt":       {second(running.End(other(func(e *Ending) { e.Attempt = 1 }), now)), ErrLost},
		"end, another worker":         {second(running.End(other(func(e *Ending) { e.Worker = WorkerID{9} }), now)), ErrLost},
		"end, another session":        {second(running.End(other(func(e *Ending) { e.Session = SessionID{9} }), now)), ErrLost},
		"end as running":              {second(running.End(other(func(e *Ending) { e.To = Running }), now)), ErrNoSuchEnd},
		"end as blocked":              {second(running.End(other(func(e *Ending) { e.To = Blocked }), now)), ErrNoSuchEnd},
		"end as expired":              {second(running.End(other(func(e *Ending) { e.To = Expired }), now)), ErrNoSuchEnd},
		"end nowhere":                 {second(running.End(other(func(e *Ending) { e.To = 0 }), now)), ErrNoSuchEnd},
	} {
		if !errors.Is(c.err, c.want) {
			t.Errorf("%s: %v, want %v", name, c.err, c.want)
		}
	}
}

func second(_ Task, err error) error { return err }

// What each arrow writes besides the state.
func TestWhatArrowsWrite(t *testing.T) {
	now := epoch.Add(time.Hour)
	got, _ := taskIn(Scheduled).Claim(Scheduled, 2, SessionID{7}, WorkerID{7}, now)
	if got.Attempt != 3 || got.Token() != (Token{got.ID, 3, WorkerID{7}}) || got.Session != (SessionID{7}) || got.Counted != 1 ||
		!got.StartedAt.Equal(now) || !got.ReadyAt.Equal(now) || !got.Due.Equal(now.Add(time.Minute)) || !got.WakeAt.IsZero() {
		t.Errorf("claimed: %+v", got)
	}
	got, _ = taskIn(Ready).Claim(Ready, 2, SessionID{7}, WorkerID{7}, now)
	if !got.ReadyAt.Equal(epoch) || !got.Due.Equal(epoch.Add(time.Minute)) {
		t.Errorf("a ready task that is claimed keeps its times: %+v", got)
	}
	running := taskIn(Running)
	got, _ = running.Attach(running.Token(), SessionID{8})
	if got.Session != (SessionID{8}) || got.Token() != running.Token() {
		t.Errorf("attached: %+v", got)
	}
	got, _ = endTo(Ready)(taskIn(Running), now)
	if !got.Due.Equal(epoch.Add(time.Minute)) || got.Failure == nil || !got.EndedAt.IsZero() {
		t.Errorf("given back: %+v, want its due kept", got)
	}
	got, _ = endTo(Scheduled)(taskIn(Running), now)
	if !got.RunAt.Equal(now.Add(time.Minute)) || !got.Due.Equal(now.Add(2*time.Minute)) || !got.WakeAt.Equal(got.RunAt) {
		t.Errorf("tried again: %+v, want a new due", got)
	}
	got, _ = running.End(Ending{Token: running.Token(), To: Succeeded, Result: []byte("r"), ResultType: "t"}, now)
	if string(got.Result) != "r" || got.ResultType != "t" || got.Failure != nil || !got.EndedAt.Equal(now) || got.Worker != (WorkerID{1}) {
		t.Errorf("succeeded: %+v", got)
	}
	got, _ = taskIn(Running).Cancel("", now)
	if !got.CancelRequested || !got.EndedAt.IsZero() {
		t.Errorf("a running task that shall be canceled: %+v", got)
	}
}

// FIELD-REPORTS B32: after a wish to cancel nothing waits again, and what has really happened stands.
func TestEveryEndObeysTheWishToCancel(t *testing.T) {
	for to, want := range map[State]State{
		Ready: Canceled, Scheduled: Canceled, Canceled: Canceled, Succeeded: Succeeded, Failed: Failed,
	} {
		task := taskIn(Running)
		task.CancelRequested = true
		if got, err := endTo(to)(task, epoch); err != nil || got.State != want {
			t.Errorf("ended as %v: %v, %v; want %v", to, got.State, err, want)
		}
	}
}

// The lifecycle under any arrows: an end is final, the attempt number never goes back and never counts less than the budget,
// and the store's CHECK constraints hold.
func TestAnyLife(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		live(t, rapid.SliceOfN(rapid.Byte(), 1, 60).Draw(t, "arrows"))
	})
}

func FuzzLifecycle(f *testing.F) {
	f.Add([]byte{0, 10, 1, 8})
	f.Add([]byte{4, 0, 4, 9, 0})
	f.Fuzz(func(t *testing.T, steps []byte) { live(t, steps) })
}

// live takes a task through the arrows that the bytes name. The first byte says what kind of task it is.
func live(t failing, steps []byte) {
	if len(steps) == 0 {
		return
	}
	task, now := taskIn([]State{Scheduled, Ready, Blocked}[steps[0]%3]), epoch
	task.Attempt, task.Counted = 0, 0
	if steps[0]&0x80 != 0 {
		task.StartBy = epoch.Add(time.Duration(steps[0]&0x3f) * time.Minute)
		if task.WakeAt.IsZero() || task.StartBy.Before(task.WakeAt) {
			task.WakeAt = task.StartBy
		}
	}
	for _, step := range steps[1:] {
		now = now.Add(time.Duration(step>>4) * 10 * time.Second)
		before := task
		var err error
		if n := int(step & 0x0f); n < len(arrows) {
			task, err = arrows[n].take(task, now)
		} else {
			e := Ending{Token: task.Token(), To: State(step >> 4), Counted: n&1 != 0, SoleSuspect: n == 15, Suspect: n > 12, Delay: time.Second}
			task, err = task.End(e, now)
		}
		if err != nil && !reflect.DeepEqual(task, before) {
			t.Errorf("a refused arrow changed the task: %v\n%+v\n%+v", err, before, task)
		}
		checkTask(t, &before, &task)
	}
}

// checkTask holds what the schema's CHECK constraints hold, and what may not go back.
func checkTask(t failing, before, task *Task) {
	t.Helper()
	for what, ok := range map[string]bool{
		"an end never changes again":             !before.State.Terminal() || reflect.DeepEqual(before, task),
		"the attempt never goes back":            task.Attempt >= before.Attempt && task.Attempt <= before.Attempt+1,
		"0 <= losses <= counted <= attempt":      0 <= task.WorkerLosses && task.WorkerLosses <= task.Counted && int64(task.Counted) <= task.Attempt,
		"scheduled has a wake time and a run_at": task.State != Scheduled || (!task.WakeAt.IsZero() && !task.RunAt.IsZero()),
		"ready since some time":                  task.State != Ready || !task.ReadyAt.IsZero(),
		"running under a token, asleep": task.State != Running ||
			(!task.Session.IsZero() && !task.Worker.IsZero() && !task.StartedAt.IsZero() && task.Attempt > 0 && task.WakeAt.IsZero()),
		"ended exactly when terminal":            task.State.Terminal() == !task.EndedAt.IsZero(),
		"an end sleeps":                          !task.State.Terminal() || task.WakeAt.IsZero(),
		"a result only of success":               task.Result == nil || task.State == Succeeded,
		"who shall be canceled does not wait":    !task.CancelRequested || !task.State.Waiting(),
		"who waits with a start_by is looked at": !task.State.Waiting() || task.StartBy.IsZero() || !task.WakeAt.IsZero(),
	} {
		if !ok {
			t.Errorf("%s:\n%+v\n%+v", what, *before, *task)
		}
	}
}
