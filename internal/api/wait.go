package api

import (
	"context"
	"time"

	errandv1 "github.com/errandhq/errand/proto/errand/v1"
	"github.com/errandhq/errand/scheduler"
)

// Bounds of a wait.
const (
	waitDefault   = 30 * time.Second
	waitMax       = 60 * time.Second      // as the rule in the .proto file says
	waitPollFirst = 25 * time.Millisecond // a task that ends elsewhere is seen by looking at the store
	waitPollMax   = time.Second
)

// WaitTask hears of an end at this instance at once, and of one elsewhere by looking from time to time.
func (s *taskService) WaitTask(ctx context.Context, req *errandv1.WaitTaskRequest) (*errandv1.WaitTaskResponse, error) {
	ref, err := refOf(req.GetTaskId())
	if err != nil {
		return nil, err
	}
	limit := waitDefault
	if req.GetTimeout() != nil {
		limit = req.GetTimeout().AsDuration()
	}
	ended := make(chan scheduler.ID, 1)
	stop := s.scheduler.Watch([]scheduler.ID{ref.ID}, ended)
	defer stop()

	task, err := s.find(ctx, principal(ctx).Tenant, ref)
	if err != nil {
		return nil, err
	}
	if !task.State.Terminal() && limit > 0 {
		if task, err = s.await(ctx, task, limit, ended); err != nil {
			return nil, err
		}
	}
	return &errandv1.WaitTaskResponse{Task: taskMessage(&task, true), Ended: task.State.Terminal()}, nil
}

func (s *taskService) await(ctx context.Context, task scheduler.Task, limit time.Duration, ended <-chan scheduler.ID) (scheduler.Task, error) {
	timeout := time.NewTimer(limit)
	defer timeout.Stop()
	pause := waitPollFirst
	poll := time.NewTimer(pause)
	defer poll.Stop()
	for {
		select {
		case <-ended:
			return s.find(ctx, task.Tenant, task.Ref)
		case <-timeout.C:
			return s.find(ctx, task.Tenant, task.Ref)
		case <-ctx.Done():
			return task, ctx.Err()
		case <-poll.C:
			if err := revoked(ctx); err != nil {
				return task, err
			}
			states, err := s.tasks.TaskStates(ctx, task.Region, []scheduler.ID{task.ID})
			if err == nil && states[task.ID].Terminal() {
				return s.find(ctx, task.Tenant, task.Ref)
			}
			pause = min(pause*2, waitPollMax)
			poll.Reset(pause)
		}
	}
}
