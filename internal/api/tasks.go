package api

import (
	"context"
	"errors"
	"fmt"
	"time"

	"connectrpc.com/connect"

	"github.com/errandhq/errand/internal/store"
	errandv1 "github.com/errandhq/errand/proto/errand/v1"
	"github.com/errandhq/errand/proto/errand/v1/errandv1connect"
	"github.com/errandhq/errand/scheduler"
	"github.com/errandhq/errand/scheduler/engine"
)

// Bounds of the task service.
const (
	submitWait      = 8 * time.Second // a submit is settled within this, or its outcome is unknown
	submitBytesMax  = 8 << 20
	attemptsShown   = 100
	pageSizeDefault = 50
)

// taskService serves clients of one tenant.
type taskService struct {
	errandv1connect.UnimplementedTaskServiceHandler
	region    string
	scheduler Scheduler
	tasks     Tasks
}

func (s *taskService) SubmitTask(ctx context.Context, req *errandv1.SubmitTaskRequest) (*errandv1.SubmitTaskResponse, error) {
	p, err := allow(ctx, store.ScopeTenant)
	if err != nil {
		return nil, err
	}
	task, err := taskOf(req.GetSpec(), "spec.", p.Tenant, s.scheduler.StoreNow())
	if err != nil {
		return nil, err
	}
	task.TraceParent = traceParent(ctx)
	outcomes, err := s.submit(ctx, []scheduler.Task{task})
	if err != nil {
		return nil, outside(err)
	}
	accepted, refusal := outcomeOf(&outcomes[0])
	if refusal != nil {
		return nil, refusal
	}
	return accepted, nil
}

func (s *taskService) SubmitTasks(ctx context.Context, req *errandv1.SubmitTasksRequest) (*errandv1.SubmitTasksResponse, error) {
	p, err := allow(ctx, store.ScopeTenant)
	if err != nil {
		return nil, err
	}
	now, trace := s.scheduler.StoreNow(), traceParent(ctx)
	answers := make([]*errandv1.SubmitOutcome, len(req.GetSpecs()))
	tasks := make([]scheduler.Task, 0, len(answers))
	at := make([]int, 0, len(answers)) // where the i-th task stands in the request
	bytes := 0
	for i, spec := range req.GetSpecs() {
		task, err := taskOf(spec, fmt.Sprintf("specs[%d].", i), p.Tenant, now)
		if err != nil {
			answers[i] = refused(err)
			continue
		}
		if bytes += len(task.Payload); bytes > submitBytesMax {
			return nil, invalid("specs", "the payloads of one batch must not exceed 8 MiB together")
		}
		task.TraceParent = trace
		tasks, at = append(tasks, task), append(at, i)
	}
	if len(tasks) > 0 {
		outcomes, err := s.submit(ctx, tasks)
		if err != nil {
			return nil, outside(err)
		}
		for i := range outcomes {
			accepted, refusal := outcomeOf(&outcomes[i])
			if refusal != nil {
				answers[at[i]] = refused(refusal)
				continue
			}
			answers[at[i]] = &errandv1.SubmitOutcome{Outcome: &errandv1.SubmitOutcome_Accepted{Accepted: accepted}}
		}
	}
	return &errandv1.SubmitTasksResponse{Outcomes: answers}, nil
}

// submit waits for the store's answer at most submitWait, so that a client hears of an unknown outcome while it still listens.
func (s *taskService) submit(ctx context.Context, tasks []scheduler.Task) ([]engine.SubmitOutcome, error) {
	ctx, cancel := context.WithTimeout(ctx, submitWait)
	defer cancel()
	return s.scheduler.Submit(ctx, tasks)
}

func outcomeOf(o *engine.SubmitOutcome) (*errandv1.SubmitTaskResponse, *connect.Error) {
	if o.Err != nil {
		err := outside(o.Err)
		if errors.Is(o.Err, engine.ErrOutcomeUnknown) || errors.Is(o.Err, engine.ErrKeyReused) {
			err = about(err, o.Ref.String())
		}
		return nil, err
	}
	return &errandv1.SubmitTaskResponse{
		TaskId: o.Ref.String(), State: errandv1.TaskState(o.State), Existed: o.Existed,
	}, nil
}

func refused(err error) *errandv1.SubmitOutcome {
	e := outside(err)
	return &errandv1.SubmitOutcome{Outcome: &errandv1.SubmitOutcome_Error{Error: &errandv1.SubmitError{
		Code: e.Code().String(), Message: e.Message(), Detail: detailOf(e),
	}}}
}

func (s *taskService) GetTask(ctx context.Context, req *errandv1.GetTaskRequest) (*errandv1.GetTaskResponse, error) {
	p, err := allow(ctx, store.ScopeTenant)
	if err != nil {
		return nil, err
	}
	ref, err := refOf(req.GetTaskId())
	if err != nil {
		return nil, err
	}
	task, err := s.find(ctx, p.Tenant, ref)
	if err != nil {
		return nil, err
	}
	m := taskMessage(&task, true)
	if req.GetOmitPayload() {
		m.Spec.Payload = nil
	}
	if req.GetIncludeAttempts() {
		records, err := s.tasks.TaskAttempts(ctx, ref, attemptsShown)
		if err != nil {
			return nil, outside(err)
		}
		for i := range records {
			m.Attempts = append(m.Attempts, attemptMessage(&records[i]))
		}
	}
	return &errandv1.GetTaskResponse{Task: m}, nil
}

// find returns a tenant's task; another tenant's looks the same as none.
func (s *taskService) find(ctx context.Context, tenant string, ref scheduler.Ref) (scheduler.Task, error) {
	task, err := s.tasks.Task(ctx, tenant, ref)
	if errors.Is(err, store.ErrNotFound) {
		return scheduler.Task{}, about(outside(errTaskNotFound), ref.String())
	}
	if err != nil {
		return scheduler.Task{}, outside(err)
	}
	return task, nil
}

func (s *taskService) ListTasks(ctx context.Context, req *errandv1.ListTasksRequest) (*errandv1.ListTasksResponse, error) {
	p, err := allow(ctx, store.ScopeTenant)
	if err != nil {
		return nil, err
	}
	q := store.ListQuery{
		Region: s.region, Tenant: p.Tenant, Kinds: req.GetFilter().GetKinds(), Labels: req.GetFilter().GetLabels(),
		Limit: pageSize(req.GetPageSize()), Payloads: req.GetIncludePayloads(),
	}
	for _, state := range req.GetFilter().GetStates() {
		q.States = append(q.States, scheduler.State(state))
	}
	if t := req.GetFilter().GetCreatedAfter(); t != nil {
		q.CreatedAfter = t.AsTime()
	}
	if t := req.GetFilter().GetCreatedBefore(); t != nil {
		q.CreatedBefore = t.AsTime()
	}
	bound := pageBound(p.Tenant, req.GetFilter())
	if token := req.GetPageToken(); token != "" {
		cursor, err := openPageToken(token, bound)
		if err != nil {
			return nil, err
		}
		q.Before = &cursor
	}
	page, err := s.tasks.ListTasks(ctx, q)
	if err != nil {
		return nil, outside(err)
	}
	resp := &errandv1.ListTasksResponse{}
	for i := range page.Tasks {
		resp.Tasks = append(resp.Tasks, taskMessage(&page.Tasks[i], q.Payloads))
	}
	if page.Next != nil {
		resp.NextPageToken = pageToken(*page.Next, bound)
	}
	return resp, nil
}

func (s *taskService) CancelTask(ctx context.Context, req *errandv1.CancelTaskRequest) (*errandv1.CancelTaskResponse, error) {
	p, err := allow(ctx, store.ScopeTenant)
	if err != nil {
		return nil, err
	}
	ref, err := refOf(req.GetTaskId())
	if err != nil {
		return nil, err
	}
	if ref.Region != s.region {
		return nil, about(outside(errTaskNotFound), req.GetTaskId())
	}
	answers, err := s.scheduler.Cancel(ctx, p.Tenant, req.GetReason(), []scheduler.ID{ref.ID})
	if err != nil {
		return nil, outside(err)
	}
	a := answers[0]
	if a.Verdict == scheduler.Missing {
		return nil, about(outside(errTaskNotFound), req.GetTaskId())
	}
	return &errandv1.CancelTaskResponse{State: errandv1.TaskState(a.State), Accepted: a.Verdict == scheduler.Won}, nil
}

// refOf reads a handle from a request.
func refOf(taskID string) (scheduler.Ref, error) {
	ref, err := scheduler.ParseRef(taskID)
	if err != nil {
		return ref, invalid("task_id", err.Error())
	}
	return ref, nil
}

func pageSize(asked int32) int {
	if asked <= 0 {
		return pageSizeDefault
	}
	return int(asked)
}

func attemptMessage(a *store.AttemptRecord) *errandv1.Attempt {
	m := &errandv1.Attempt{
		Number: a.Number, StartedAt: stamp(a.StartedAt), EndedAt: stamp(a.EndedAt),
		Failure: failureMessage(&a.Failure), Counted: a.Counted,
	}
	if !a.Worker.IsZero() {
		m.Worker = a.Worker.String()
	}
	return m
}
