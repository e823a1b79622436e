package api

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"connectrpc.com/connect"
	"go.opentelemetry.io/otel/propagation"

	"github.com/errandhq/errand/internal/store"
	errandv1 "github.com/errandhq/errand/proto/errand/v1"
	"github.com/errandhq/errand/proto/errand/v1/errandv1connect"
	"github.com/errandhq/errand/scheduler"
	"github.com/errandhq/errand/scheduler/engine"
)

// Bounds of the task service.
const (
	submitWait     = 8 * time.Second // a submit is settled within this, or its outcome is unknown
	submitBytesMax = 8 << 20         // payloads of one batch, together
	attemptsShown  = 100
	cancelWait     = 8 * time.Second
	payloadRowsMax = 100     // rows of a page that carries payloads
	pageBytesMax   = 3 << 20 // payloads and results of a page, together: many clients read no more than 4 MiB at once
)

// taskService serves clients of one tenant.
type taskService struct {
	errandv1connect.UnimplementedTaskServiceHandler
	deployment
	scheduler Scheduler
	others    Others
	tasks     Tasks
	settings  Settings
	intake    *intake
	valid     *validator
}

func (s *taskService) SubmitTask(ctx context.Context, req *errandv1.SubmitTaskRequest) (*errandv1.SubmitTaskResponse, error) {
	const prefix = "spec."
	task, err := s.taskOf(req.GetSpec(), prefix, principal(ctx).Tenant)
	if err != nil {
		return nil, err
	}
	if err := setTimes(&task, req.GetSpec(), prefix, s.scheduler.StoreNow()); err != nil {
		return nil, err
	}
	task.TraceParent = traceParent(ctx)
	outcomes, err := s.submit(ctx, []scheduler.Task{task}, []*errandv1.TaskSpec{req.GetSpec()})
	if err != nil {
		return nil, err
	}
	return outcomeOf(&outcomes[0], req.GetSpec(), prefix)
}

// SubmitTasks refuses the whole batch when a spec breaks a rule; what depends on the clock, the scheduler or the store is
// answered task by task.
func (s *taskService) SubmitTasks(ctx context.Context, req *errandv1.SubmitTasksRequest) (*errandv1.SubmitTasksResponse, error) {
	all, err := s.tasksOf(ctx, req.GetSpecs())
	if err != nil {
		return nil, err
	}
	now := s.scheduler.StoreNow()
	answers := make([]*errandv1.SubmitOutcome, len(all))
	tasks, specs := make([]scheduler.Task, 0, len(all)), make([]*errandv1.TaskSpec, 0, len(all))
	at := make([]int, 0, len(all)) // where the i-th task stands in the request
	for i := range all {
		if err := setTimes(&all[i], req.GetSpecs()[i], specPath(i), now); err != nil {
			answers[i] = refused(err)
			continue
		}
		tasks, specs, at = append(tasks, all[i]), append(specs, req.GetSpecs()[i]), append(at, i)
	}
	if len(tasks) > 0 {
		outcomes, err := s.submit(ctx, tasks, specs)
		if err != nil {
			return nil, err
		}
		for i := range outcomes {
			accepted, err := outcomeOf(&outcomes[i], specs[i], specPath(at[i]))
			if err != nil {
				answers[at[i]] = refused(err)
				continue
			}
			answers[at[i]] = &errandv1.SubmitOutcome{Outcome: &errandv1.SubmitOutcome_Accepted{Accepted: accepted}}
		}
	}
	return &errandv1.SubmitTasksResponse{Outcomes: answers}, nil
}

// taskOf turns a spec into a new task, with what its kind says where the spec says nothing.
func (s *taskService) taskOf(spec *errandv1.TaskSpec, prefix, tenant string) (scheduler.Task, error) {
	if !s.scheduler.Settled() {
		return scheduler.Task{}, engine.ErrBusy
	}
	for i, name := range spec.GetAllowedRegions() {
		if !s.knows(name) {
			return scheduler.Task{}, invalid(prefix+"allowed_regions["+strconv.Itoa(i)+"]", "there is no such region: the task could never run")
		}
	}
	kind, _ := s.settings.Kind(tenant, spec.GetKind())
	return taskOf(spec, prefix, tenant, s.region, &kind.Defaults)
}

func specPath(i int) string { return "specs[" + strconv.Itoa(i) + "]." }

// tasksOf turns the specs of a batch into new tasks.
func (s *taskService) tasksOf(ctx context.Context, specs []*errandv1.TaskSpec) ([]scheduler.Task, error) {
	tenant, trace := principal(ctx).Tenant, traceParent(ctx)
	tasks := make([]scheduler.Task, len(specs))
	bytes := 0
	for i, spec := range specs {
		task, err := s.taskOf(spec, specPath(i), tenant)
		if err != nil {
			return nil, err
		}
		if bytes += len(task.Payload); bytes > submitBytesMax {
			return nil, invalid("specs", "the payloads of one batch must not exceed 8 MiB together")
		}
		task.TraceParent = trace
		tasks[i] = task
	}
	return tasks, nil
}

// submitted is what became of a submission.
type submitted struct {
	engine.SubmitOutcome
	demoted bool // it was to be stored as standard
}

// unstored tells whether a task was refused for how things are now: the same request may have been let in before.
func (o *submitted) unstored() bool {
	return errors.As(o.Err, new(*laterError)) || errors.Is(o.Err, engine.ErrInfeasible)
}

// submit stores the tasks that the intake admits, of one tenant, and answers all. It waits for the store's answer at most submitWait, so
// that a client hears of an unknown outcome while it still listens.
func (s *taskService) submit(ctx context.Context, tasks []scheduler.Task, specs []*errandv1.TaskSpec) ([]submitted, error) {
	ctx, cancel := context.WithTimeout(ctx, submitWait)
	defer cancel()
	verdicts, done := s.intake.admit(ctx, tasks[0].Tenant, tasks)
	stored := 0
	defer func() { done(stored) }()
	outcomes := make([]submitted, len(tasks))
	admitted, at := s.sort(tasks, specs, verdicts, outcomes)
	if len(admitted) > 0 {
		got, err := s.submitAll(ctx, admitted)
		if err != nil {
			return nil, err
		}
		for i := range got {
			outcomes[at(i)].SubmitOutcome = got[i]
			if isNew(&got[i]) {
				stored++
			}
		}
	}
	s.intake.known(ctx, tasks, outcomes)
	return outcomes, nil
}

// sort notes what the intake says, and returns the tasks that it admits and where each stands among all.
func (s *taskService) sort(tasks []scheduler.Task, specs []*errandv1.TaskSpec, verdicts []verdict, outcomes []submitted) ([]scheduler.Task, func(int) int) {
	if verdicts == nil {
		return tasks, func(i int) int { return i }
	}
	admitted, at := make([]scheduler.Task, 0, len(tasks)), make([]int, 0, len(tasks))
	for i := range verdicts {
		if outcomes[i].Err = verdicts[i].refused; outcomes[i].Err != nil {
			continue
		}
		if outcomes[i].demoted = verdicts[i].demote; outcomes[i].demoted {
			kind, _ := s.settings.Kind(tasks[i].Tenant, tasks[i].Kind)
			demote(&tasks[i], specs[i], &kind.Defaults)
		}
		admitted, at = append(admitted, tasks[i]), append(at, i)
	}
	return admitted, func(i int) int { return at[i] }
}

// isNew tells whether a task is stored by this submission, or may be.
func isNew(o *engine.SubmitOutcome) bool {
	return o.Err == nil && !o.Existed || errors.Is(o.Err, engine.ErrOutcomeUnknown)
}

func outcomeOf(o *submitted, spec *errandv1.TaskSpec, prefix string) (*errandv1.SubmitTaskResponse, error) {
	switch {
	case errors.Is(o.Err, engine.ErrOutcomeUnknown) || errors.Is(o.Err, engine.ErrKeyReused) || errors.Is(o.Err, engine.ErrKeyHeld):
		return nil, outsideOf(o.Err, o.Ref.String())
	case errors.Is(o.Err, engine.ErrNoParent):
		return nil, noParent(parentPlace(spec, o.Ref, prefix), o.Ref.String())
	case errors.Is(o.Err, engine.ErrInfeasible): // its text says why
		return nil, problem(connect.CodeFailedPrecondition, o.Err, &errandv1.ErrorDetail{Reason: reasonInfeasible})
	case o.Err != nil:
		return nil, outside(o.Err)
	}
	return &errandv1.SubmitTaskResponse{
		TaskId: o.Ref.String(), State: errandv1.TaskState(o.State), Existed: o.Existed, Demoted: o.demoted && !o.Existed,
		EstimatedStart: stamp(o.Estimate.Start), AtRisk: o.Estimate.Risk != scheduler.NoRisk, AtRiskReason: string(o.Estimate.Risk),
	}, nil
}

func refused(err error) *errandv1.SubmitOutcome {
	e := outside(err)
	return &errandv1.SubmitOutcome{Outcome: &errandv1.SubmitOutcome_Error{Error: &errandv1.SubmitError{
		Code: e.Code().String(), Message: e.Message(), Detail: detailOf(e),
	}}}
}

func (s *taskService) GetTask(ctx context.Context, req *errandv1.GetTaskRequest) (*errandv1.GetTaskResponse, error) {
	ref, err := refOf(req.GetTaskId())
	if err != nil {
		return nil, err
	}
	task, err := s.find(ctx, principal(ctx).Tenant, ref)
	if err != nil {
		return nil, err
	}
	m := taskMessage(&task, true)
	if req.GetOmitPayload() {
		m.Spec.Payload = nil
	}
	if err := s.showLinks(ctx, &task, m); err != nil {
		return nil, err
	}
	if req.GetIncludeAttempts() {
		records, err := s.tasks.TaskAttempts(ctx, ref, attemptsShown)
		if err != nil {
			return nil, err
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
		return scheduler.Task{}, outsideOf(errTaskNotFound, ref.String())
	}
	return task, err
}

func (s *taskService) ListTasks(ctx context.Context, req *errandv1.ListTasksRequest) (*errandv1.ListTasksResponse, error) {
	q := s.listQuery(principal(ctx).Tenant, req)
	pages := newPager("tasks", q.Region+"/"+q.Tenant, req.GetFilter())
	cursor, err := pages.cursor(req.GetPageToken())
	if err != nil {
		return nil, err
	}
	if q.Before, err = openTaskCursor(cursor); err != nil {
		return nil, err
	}
	page, err := s.tasks.ListTasks(ctx, q)
	if err != nil {
		return nil, err
	}
	resp := &errandv1.ListTasksResponse{}
	bytes := 0
	for i := range page.Tasks {
		t := &page.Tasks[i]
		if bytes += len(t.Payload) + len(t.Result); bytes > pageBytesMax && i > 0 {
			last := &page.Tasks[i-1]
			page.Next = &store.ListCursor{CreatedAt: last.CreatedAt, ID: last.ID}
			break
		}
		resp.Tasks = append(resp.Tasks, taskMessage(t, q.Payloads))
	}
	if page.Next != nil {
		resp.NextPageToken = pages.token(taskCursor(*page.Next))
	}
	return resp, nil
}

func (s *taskService) listQuery(tenant string, req *errandv1.ListTasksRequest) store.ListQuery {
	q := store.ListQuery{
		Region: s.region, Tenant: tenant, Kinds: req.GetFilter().GetKinds(), Labels: req.GetFilter().GetLabels(),
		Limit: pageSize(req.GetPageSize()), Payloads: req.GetIncludePayloads(),
	}
	if q.Payloads {
		q.Limit = min(q.Limit, payloadRowsMax)
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
	return q
}

func (s *taskService) CancelTask(ctx context.Context, req *errandv1.CancelTaskRequest) (*errandv1.CancelTaskResponse, error) {
	ref, err := refOf(req.GetTaskId())
	if err != nil {
		return nil, err
	}
	if !s.knows(ref.Region) || s.nameOf(ref.ID) != ref.Region {
		return nil, outsideOf(errTaskNotFound, req.GetTaskId())
	}
	bounded, cancel := context.WithTimeout(ctx, cancelWait)
	defer cancel()
	answers, err := s.scheduler.Cancel(bounded, ref.Region, principal(ctx).Tenant, req.GetReason(), []scheduler.ID{ref.ID})
	switch {
	case err != nil && bounded.Err() != nil && ctx.Err() == nil:
		return nil, fmt.Errorf("cancel %s: no answer within %v: %w", ref, cancelWait, scheduler.ErrUnavailable)
	case err != nil:
		return nil, err
	case answers[0].Verdict == scheduler.Missing:
		return nil, outsideOf(errTaskNotFound, req.GetTaskId())
	}
	a := answers[0]
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

// traceParent returns the caller's trace context in W3C form, empty for none.
func traceParent(ctx context.Context) string {
	carrier := propagation.MapCarrier{}
	propagation.TraceContext{}.Inject(ctx, carrier)
	return carrier["traceparent"]
}
