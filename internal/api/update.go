package api

import (
	"context"
	"errors"
	"slices"
	"time"

	errandv1 "github.com/errandhq/errand/proto/errand/v1"
	"github.com/errandhq/errand/scheduler"
)

// UpdateTask changes the task in the store, and then tells the scheduler of this process.
func (s *taskService) UpdateTask(ctx context.Context, req *errandv1.UpdateTaskRequest) (*errandv1.UpdateTaskResponse, error) {
	ref, err := refOf(req.GetTaskId())
	if err != nil {
		return nil, err
	}
	change, err := changeOf(req, s.scheduler.StoreNow())
	if err != nil {
		return nil, err
	}
	task, err := s.tasks.UpdateTask(ctx, principal(ctx).Tenant, ref, change)
	var bad *scheduler.BadChange
	switch {
	case errors.As(err, &bad):
		return nil, invalid(badField(bad.Field, req.GetChanges()), bad.Why)
	case errors.Is(err, scheduler.ErrNotFound):
		return nil, outsideOf(errTaskNotFound, ref.String())
	case err != nil:
		return nil, outsideOf(err, ref.String())
	}
	s.scheduler.Updated(task)
	return &errandv1.UpdateTaskResponse{Task: taskMessage(&task, true)}, nil
}

// badField is the path of what was asked: a moment may be given in two ways.
func badField(field string, c *errandv1.TaskChanges) string {
	switch {
	case field == "start_by" && c.GetStartWithin() != nil:
		field = "start_within"
	case field == "run_at" && c.GetDelay() != nil:
		field = "delay"
	}
	return "changes." + field
}

// changeOf reads what is asked. What update_mask names and changes leaves unset goes back to its default, as far as there is one.
func changeOf(req *errandv1.UpdateTaskRequest, now time.Time) (scheduler.Change, error) {
	const prefix = "changes."
	m, mask := req.GetChanges(), req.GetUpdateMask().GetPaths()
	if m == nil {
		m = &errandv1.TaskChanges{}
	}
	if err := onlyServed(m, prefix); err != nil {
		return scheduler.Change{}, err
	}
	counts := func(set bool, names ...string) bool {
		if len(mask) == 0 {
			return set
		}
		return slices.ContainsFunc(names, func(name string) bool { return slices.Contains(mask, name) })
	}
	start := counts(m.GetStart() != nil, "run_at", "delay")
	switch {
	case slices.Contains(mask, "preferences"):
		return scheduler.Change{}, later(prefix + "preferences")
	case req.GetRunNow() && start:
		return scheduler.Change{}, invalid("run_now", "not together with run_at or delay")
	case counts(false, "delay_tolerance") && m.GetDelayTolerance() == nil:
		return scheduler.Change{}, invalid(prefix+"delay_tolerance", "update_mask names it, and it is not set")
	}
	c := scheduler.Change{SetLabels: counts(len(m.GetLabels()) > 0, "labels")}
	if c.SetLabels {
		c.Labels = m.GetLabels()
	}
	if counts(m.GetTier() != 0, "tier") {
		tier := scheduler.Tier(m.GetTier())
		if tier == 0 {
			tier = scheduler.Standard
		}
		c.Tier = &tier
	}
	if counts(m.GetDelayTolerance() != nil, "delay_tolerance") {
		tolerance := m.GetDelayTolerance().AsDuration()
		c.Tolerance = &tolerance
	}
	if start || req.GetRunNow() {
		c.RunAt = new(time.Time)
		if start {
			*c.RunAt = startOf(m, now)
		}
	}
	if counts(m.GetUseless() != nil, "start_by", "start_within") {
		at := uselessFrom(m, now)
		c.StartBy = &at
	}
	if c.Tier == nil && c.Tolerance == nil && c.RunAt == nil && c.StartBy == nil && !c.SetLabels {
		return c, invalid("changes", "nothing is to be changed")
	}
	return c, nil
}

// startOf is when the task may start at the earliest; zero is at once.
func startOf(m *errandv1.TaskChanges, now time.Time) time.Time {
	switch start := m.GetStart().(type) {
	case *errandv1.TaskChanges_RunAt:
		return start.RunAt.AsTime()
	case *errandv1.TaskChanges_Delay:
		return now.Add(start.Delay.AsDuration())
	}
	return time.Time{}
}

// uselessFrom is when the task is useless if not started by then; zero is never.
func uselessFrom(m *errandv1.TaskChanges, now time.Time) time.Time {
	switch useless := m.GetUseless().(type) {
	case *errandv1.TaskChanges_StartBy:
		return useless.StartBy.AsTime()
	case *errandv1.TaskChanges_StartWithin:
		return now.Add(useless.StartWithin.AsDuration())
	}
	return time.Time{}
}
