package api

import (
	"context"
	"maps"
	"slices"
	"sync/atomic"
	"time"

	"connectrpc.com/connect"

	"github.com/errandhq/errand/internal/store"
	errandv1 "github.com/errandhq/errand/proto/errand/v1"
	"github.com/errandhq/errand/scheduler"
	"github.com/errandhq/errand/scheduler/engine"
)

// Bounds of watching. Changes are seen by looking at the store, at a steady pace: a watch costs the same however much happens.
const (
	watchEvery    = 500 * time.Millisecond
	watchLifeSign = 15 * time.Second
	watchOpenMax  = 10_000           // tasks followed by one watch
	watchesMax    = 500              // at once, of one scheduler
	watchPage     = 200              // tasks per read
	watchOverlap  = 10 * time.Second // a task is looked for so long after its creation: its transaction may end later than others
)

type watchStream = connect.ServerStream[errandv1.WatchTasksResponse]

// watch follows the open tasks of one caller.
type watch struct {
	*taskService
	tenant string
	filter *errandv1.TaskFilter
	states []scheduler.State // that are told; all when empty
	stream *watchStream
	open   map[scheduler.ID]scheduler.State // as told last
	done   map[scheduler.ID]time.Time       // ended lately: when they were created
	since  time.Time                        // from when on new tasks are looked for
	sent   time.Time
}

// watches counts them.
var watches atomic.Int64

// WatchTasks sends tasks as they stand after each change. One that names tasks ends with the last of them.
func (s *taskService) WatchTasks(ctx context.Context, req *errandv1.WatchTasksRequest, stream *watchStream) error {
	if err := s.valid.check(req, ""); err != nil {
		return err
	}
	if watches.Add(1) > watchesMax {
		watches.Add(-1)
		return engine.ErrBusy
	}
	defer watches.Add(-1)
	w := &watch{
		taskService: s, tenant: principal(ctx).Tenant, filter: req.GetFilter(), stream: stream,
		open: map[scheduler.ID]scheduler.State{}, done: map[scheduler.ID]time.Time{}, since: s.scheduler.StoreNow(), sent: time.Now(),
	}
	for _, state := range req.GetFilter().GetStates() {
		w.states = append(w.states, scheduler.State(state))
	}
	named := len(req.GetTaskIds()) > 0
	begin := w.beginAll
	if named {
		begin = func(ctx context.Context, tell bool) error { return w.beginNamed(ctx, req.GetTaskIds(), tell) }
	}
	if err := begin(ctx, req.GetIncludeCurrent()); err != nil {
		return err
	}
	tick := time.NewTicker(watchEvery)
	defer tick.Stop()
	for !named || len(w.open) > 0 {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
		if err := w.look(ctx, named); err != nil {
			return err
		}
	}
	return nil
}

// beginNamed takes tasks by their handles; each must be the caller's.
func (w *watch) beginNamed(ctx context.Context, ids []string, tell bool) error {
	for _, id := range ids {
		ref, err := refOf(id)
		if err != nil {
			return err
		}
		task, err := w.find(ctx, w.tenant, ref)
		if err != nil {
			return err
		}
		if !w.matches(&task) {
			continue
		}
		if err := w.add(&task, tell || task.State.Terminal()); err != nil { // of one that has ended nothing else will come
			return err
		}
	}
	return nil
}

// beginAll takes all open tasks that match.
func (w *watch) beginAll(ctx context.Context, tell bool) error {
	q := w.listQuery(w.tenant, &errandv1.ListTasksRequest{Filter: w.filter})
	q.States = []scheduler.State{scheduler.Scheduled, scheduler.Ready, scheduler.Running, scheduler.Blocked}
	return w.each(ctx, q, func(t *scheduler.Task) error { return w.add(t, tell) })
}

// each reads all pages of a list.
func (w *watch) each(ctx context.Context, q store.ListQuery, f func(*scheduler.Task) error) error {
	for q.Limit = watchPage; ; {
		page, err := w.tasks.ListTasks(ctx, q)
		if err != nil {
			return err
		}
		for i := range page.Tasks {
			if err := f(&page.Tasks[i]); err != nil {
				return err
			}
		}
		if q.Before = page.Next; page.Next == nil {
			return nil
		}
	}
}

func (w *watch) matches(t *scheduler.Task) bool {
	if kinds := w.filter.GetKinds(); len(kinds) > 0 && !slices.Contains(kinds, t.Kind) {
		return false
	}
	for name, value := range w.filter.GetLabels() {
		if got, has := t.Spec.Labels[name]; !has || got != value {
			return false
		}
	}
	after, before := w.filter.GetCreatedAfter(), w.filter.GetCreatedBefore()
	return (after == nil || !t.CreatedAt.Before(after.AsTime())) && (before == nil || t.CreatedAt.Before(before.AsTime()))
}

// add begins to follow a task.
func (w *watch) add(t *scheduler.Task, tell bool) error {
	if t.State.Terminal() {
		w.done[t.ID] = t.CreatedAt
	} else {
		if len(w.open) >= watchOpenMax {
			return problem(connect.CodeResourceExhausted, errTooManyOpen, &errandv1.ErrorDetail{Reason: "TOO_MANY_OPEN_TASKS", Field: "filter"})
		}
		w.open[t.ID] = t.State
	}
	if !tell {
		return nil
	}
	return w.tell(t)
}

func (w *watch) tell(t *scheduler.Task) error {
	if len(w.states) > 0 && !slices.Contains(w.states, t.State) {
		return nil
	}
	w.sent = time.Now()
	return w.stream.Send(&errandv1.WatchTasksResponse{Task: taskMessage(t, false)})
}

// look tells what has changed since the last look. While the store is away nothing is told; what has changed then is told later.
func (w *watch) look(ctx context.Context, named bool) error {
	if err := revoked(ctx); err != nil {
		return err
	}
	if err := w.changed(ctx); err != nil {
		return err
	}
	if !named {
		if err := w.created(ctx); err != nil {
			return err
		}
	}
	if time.Since(w.sent) < watchLifeSign {
		return nil
	}
	w.sent = time.Now()
	return w.stream.Send(&errandv1.WatchTasksResponse{})
}

// changed looks at the tasks that are followed.
func (w *watch) changed(ctx context.Context) error {
	const page = 1000
	ids := slices.SortedFunc(maps.Keys(w.open), scheduler.ID.Compare)
	for chunk := range slices.Chunk(ids, page) {
		states, err := w.tasks.TaskStates(ctx, w.region, chunk)
		if err != nil {
			return nil //nolint:nilerr // the store is away: the next look sees it
		}
		for _, id := range chunk {
			state, here := states[id]
			if here && state == w.open[id] {
				continue
			}
			task, err := w.tasks.Task(ctx, w.tenant, scheduler.Ref{Region: w.region, ID: id})
			if err != nil {
				if !here { // purged
					delete(w.open, id)
				}
				continue
			}
			w.open[id] = task.State
			if task.State.Terminal() {
				delete(w.open, id)
				w.done[id] = task.CreatedAt
			}
			if err := w.tell(&task); err != nil {
				return err
			}
		}
	}
	return nil
}

// created looks for new tasks.
func (w *watch) created(ctx context.Context) error {
	began := w.scheduler.StoreNow()
	q := w.listQuery(w.tenant, &errandv1.ListTasksRequest{Filter: w.filter})
	q.States = nil
	if from := w.since.Add(-watchOverlap); q.CreatedAfter.Before(from) {
		q.CreatedAfter = from
	}
	var fresh []scheduler.Task
	err := w.each(ctx, q, func(t *scheduler.Task) error {
		_, open := w.open[t.ID]
		if _, done := w.done[t.ID]; !open && !done && t.CreatedAt.After(w.since.Add(-watchOverlap)) {
			fresh = append(fresh, *t)
		}
		return nil
	})
	if err != nil {
		return nil //nolint:nilerr // the same
	}
	slices.Reverse(fresh) // the list has the newest first
	for i := range fresh {
		if err := w.add(&fresh[i], true); err != nil {
			return err
		}
	}
	w.since = began
	maps.DeleteFunc(w.done, func(_ scheduler.ID, created time.Time) bool { return created.Before(began.Add(-2 * watchOverlap)) })
	return nil
}
