package api

import (
	"context"
	"fmt"
	"time"

	errandv1 "github.com/errandhq/errand/proto/errand/v1"
	"github.com/errandhq/errand/scheduler"
)

// explainPeerAnswer is the longest that another instance is waited for: an answer without it is better than none.
const explainPeerAnswer = 250 * time.Millisecond

// ExplainTask says what keeps a task from running. The task is read first; then all instances of the region are asked, since each knows
// its own workers only.
func (s *taskService) ExplainTask(ctx context.Context, req *errandv1.ExplainTaskRequest) (*errandv1.ExplainTaskResponse, error) {
	if spec := req.GetSpec(); spec != nil {
		return s.explainSpec(ctx, spec)
	}
	ref, err := refOf(req.GetTaskId())
	if err != nil {
		return nil, err
	}
	task, err := s.find(ctx, principal(ctx).Tenant, ref)
	if err != nil {
		return nil, err
	}
	resp, err := s.explain(ctx, &task)
	if err != nil {
		return nil, err
	}
	resp.Attempts, err = s.history(ctx, &task)
	return resp, err
}

// explainSpec answers for a task that is not submitted.
func (s *taskService) explainSpec(ctx context.Context, spec *errandv1.TaskSpec) (*errandv1.ExplainTaskResponse, error) {
	const prefix = "spec."
	task, err := s.taskOf(spec, prefix, principal(ctx).Tenant)
	if err != nil {
		return nil, err
	}
	now := s.scheduler.StoreNow()
	if err := setTimes(&task, spec, prefix, now); err != nil {
		return nil, err
	}
	task.Region, task.State = s.region, scheduler.Ready
	task.ReadyAt, task.Due = now, now.Add(task.Tolerance)
	if !task.RunAt.IsZero() {
		task.State, task.WakeAt = scheduler.Scheduled, task.RunAt
		task.Due = task.RunAt.Add(task.Tolerance)
	}
	return s.explain(ctx, &task)
}

// explain says why a task is where it is.
func (s *taskService) explain(ctx context.Context, t *scheduler.Task) (*errandv1.ExplainTaskResponse, error) {
	switch {
	case t.State.Terminal():
		return &errandv1.ExplainTaskResponse{Reason: string(scheduler.WhyEnded), Message: endedWords(t)}, nil
	case t.State == scheduler.Blocked:
		return &errandv1.ExplainTaskResponse{
			Reason: string(scheduler.WhyWaitingForParents), Message: "parents of it have not ended yet",
			Suggestion: "none: it becomes ready when its parents allow it",
		}, nil
	}
	hold, silent, err := s.hold(ctx, t)
	if err != nil {
		return nil, err
	}
	resp := explained(t, &hold, s.scheduler.StoreNow())
	if silent > 0 {
		resp.Message += fmt.Sprintf("; %d other instances of the region did not answer, what their workers could do is not known", silent)
	}
	return resp, nil
}

// hold asks all instances of the region. silent is how many did not answer.
func (s *taskService) hold(ctx context.Context, t *scheduler.Task) (hold scheduler.Hold, silent int, err error) {
	row, token := t.WaitingRow(), scheduler.Token{}
	if t.State == scheduler.Running {
		token = t.Token()
	}
	if hold, err = s.scheduler.Explain(ctx, row, token); err != nil {
		return hold, 0, err
	}
	told := askOthers(ctx, s.scheduler, s.others, explainPeerAnswer, func(ctx context.Context, peer scheduler.Session) (*scheduler.Hold, error) {
		return s.others.Explain(ctx, peer, t)
	})
	for _, one := range told {
		if one == nil {
			silent++
			continue
		}
		hold.Merge(one)
	}
	return hold, silent, nil
}

// explained puts in words what keeps an open task from running.
func explained(t *scheduler.Task, h *scheduler.Hold, now time.Time) *errandv1.ExplainTaskResponse {
	if t.State == scheduler.Running {
		return explainedRunning(t, h)
	}
	if t.State == scheduler.Scheduled {
		resp := explainedScheduled(t)
		if why := h.Lasting(); why != "" {
			resp.Message += "; and then: " + why
			resp.ClosestWorkers, resp.Suggestion = closest(h), h.Suggestion
		}
		return resp
	}
	if !t.StartBy.IsZero() && !t.StartBy.After(now) {
		return &errandv1.ExplainTaskResponse{
			Reason: string(scheduler.WhyPastStartBy), Message: "its start_by " + clockWords(t.StartBy) + " has passed: it is about to expire",
		}
	}
	resp := &errandv1.ExplainTaskResponse{
		Reason: string(h.Obstacle()), Message: h.Words(), Position: int64(h.Ahead), EstimatedStart: stamp(h.Start),
		ClosestWorkers: closest(h), Suggestion: h.Cure(),
	}
	return resp
}

func explainedRunning(t *scheduler.Task, h *scheduler.Hold) *errandv1.ExplainTaskResponse {
	where := h.Place
	if where == "" {
		where = "on worker " + t.Worker.String() + ", which no instance that answered has connected"
	}
	resp := &errandv1.ExplainTaskResponse{
		Reason:  string(scheduler.WhyRunning),
		Message: fmt.Sprintf("attempt %d runs since %s %s", t.Attempt, clockWords(t.StartedAt), where),
	}
	if t.CancelRequested {
		resp.Reason, resp.Message = string(scheduler.WhyStopping), resp.Message+"; it was canceled, and its worker is told to stop"
	}
	return resp
}

func explainedScheduled(t *scheduler.Task) *errandv1.ExplainTaskResponse {
	resp := &errandv1.ExplainTaskResponse{Reason: string(scheduler.WhyNotDue), EstimatedStart: stamp(t.WakeAt)}
	resp.Message = "it is not to start before " + clockWords(t.WakeAt)
	resp.Suggestion = "wait, or let it run now: errand update --run-now " + t.Ref.String()
	if t.Attempt > 0 {
		resp.Reason = string(scheduler.WhyRetryLater)
		resp.Message = fmt.Sprintf("attempt %d %s; the next one is due at %s", t.Attempt, failureWords(t.Failure), clockWords(t.WakeAt))
	}
	if t.ID == (scheduler.ID{}) {
		resp.Suggestion = ""
	}
	return resp
}

func endedWords(t *scheduler.Task) string {
	words := fmt.Sprintf("%s at %s after %d attempts", t.State, clockWords(t.EndedAt), t.Attempt)
	if t.Failure != nil {
		words += ": " + failureWords(t.Failure)
	}
	return words
}

func failureWords(f *scheduler.Failure) string {
	if f == nil {
		return "has ended"
	}
	if f.Message == "" {
		return string(f.Reason)
	}
	return string(f.Reason) + ": " + f.Message
}

func clockWords(t time.Time) string { return t.UTC().Format(time.RFC3339) }

func closest(h *scheduler.Hold) []*errandv1.ClosestWorker {
	var all []*errandv1.ClosestWorker
	for _, w := range h.Closest {
		all = append(all, &errandv1.ClosestWorker{Worker: w.Worker.String(), Name: w.Name, Lacks: w.Lacks})
	}
	return all
}

// history lists the attempts of a task: those that did not simply succeed, and the latest one as the task's own row has it.
func (s *taskService) history(ctx context.Context, t *scheduler.Task) ([]*errandv1.Attempt, error) {
	if t.Attempt == 0 {
		return nil, nil
	}
	records, err := s.tasks.TaskAttempts(ctx, t.Ref, attemptsShown)
	if err != nil {
		return nil, err
	}
	var all []*errandv1.Attempt
	for i := range records {
		all = append(all, attemptMessage(&records[i]))
	}
	if n := len(all); n > 0 && all[n-1].Number >= t.Attempt {
		return all, nil
	}
	latest := &errandv1.Attempt{Number: t.Attempt, StartedAt: stamp(t.StartedAt), EndedAt: stamp(t.EndedAt)}
	if !t.Worker.IsZero() {
		latest.Worker = t.Worker.String()
	}
	if len(all) == attemptsShown {
		all = all[1:]
	}
	return append(all, latest), nil
}
