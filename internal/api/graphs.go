package api

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"strconv"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/errandhq/errand/internal/store"
	errandv1 "github.com/errandhq/errand/proto/errand/v1"
	"github.com/errandhq/errand/scheduler"
	"github.com/errandhq/errand/scheduler/engine"
	"github.com/errandhq/errand/scheduler/graph"
)

// Bounds of graphs.
const (
	linkWait        = 25 * time.Second // a large graph takes seconds to store
	parentsShown    = 1000             // of a task, by GetTask
	graphEdgesPage  = 20_000           // parents of the tasks of one page, together
	cancelGraphWait = 25 * time.Second
	cancelPage      = 500
)

var (
	errParentNotFound = errors.New("there is no such parent")
	errGraphNotFound  = errors.New("there is no such graph")
)

// Links reads how tasks hang together. [store.Store] implements it.
type Links interface {
	CountLinks(ctx context.Context, ref scheduler.Ref) (store.LinkCounts, error)
	// ParentsOf returns the parents of tasks, of each at most limit.
	ParentsOf(ctx context.Context, region string, ids []scheduler.ID, limit int) (map[scheduler.ID][]scheduler.Ref, error)
	// Graph returns a page of a tenant's graph, or store.ErrNotFound.
	Graph(ctx context.Context, tenant string, graph scheduler.Ref, from, limit int) (store.GraphPage, error)
	// Parents returns parents of a running attempt, or scheduler.ErrLost.
	Parents(ctx context.Context, region string, token scheduler.Token, from, limit int) ([]store.ParentRow, error)
}

// parentsOf reads the handles of existing parents.
func parentsOf(handles []string, prefix, region string) ([]scheduler.Ref, error) {
	var parents []scheduler.Ref
	for i, text := range handles {
		field := prefix + "parents[" + strconv.Itoa(i) + "]"
		ref, err := scheduler.ParseRef(text)
		if err != nil {
			return nil, invalid(field, err.Error())
		}
		for _, known := range parents { // the same handle may be written in two ways
			if known == ref {
				return nil, invalid(field, "is named twice")
			}
		}
		if ref.Region != region && region != "" { // parents in other regions are not served yet, and look like none
			return nil, noParent(field, text)
		}
		parents = append(parents, ref)
	}
	return parents, nil
}

func noParent(field, handle string) error {
	err := outsideOf(errParentNotFound, handle)
	detail := detailOf(err)
	detail.Field = field
	return problem(err.Code(), errors.New(inField(field, errParentNotFound.Error()+": "+handle)), detail)
}

// parentPlace is where a spec names a parent.
func parentPlace(spec *errandv1.TaskSpec, parent scheduler.Ref, prefix string) string {
	for i, text := range spec.GetParents() {
		if ref, err := scheduler.ParseRef(text); err == nil && ref == parent {
			return prefix + "parents[" + strconv.Itoa(i) + "]"
		}
	}
	return prefix + "parents"
}

// submitAll stores tasks, those with parents by a way of their own.
func (s *taskService) submitAll(ctx context.Context, tasks []scheduler.Task) ([]engine.SubmitOutcome, error) {
	var plain, linked []scheduler.Task
	var plainAt, linkedAt []int
	for i := range tasks {
		if len(tasks[i].Parents) > 0 {
			linked, linkedAt = append(linked, tasks[i]), append(linkedAt, i)
		} else {
			plain, plainAt = append(plain, tasks[i]), append(plainAt, i)
		}
	}
	if len(linked) == 0 {
		return s.scheduler.Submit(ctx, tasks)
	}
	outcomes := make([]engine.SubmitOutcome, len(tasks))
	if len(plain) > 0 {
		got, err := s.scheduler.Submit(ctx, plain)
		if err != nil {
			return nil, err
		}
		for i := range got {
			outcomes[plainAt[i]] = got[i]
		}
	}
	answer, err := s.scheduler.Link(ctx, engine.LinkAsked{Tasks: linked})
	for i, at := range linkedAt {
		switch {
		case err != nil:
			outcomes[at].Err = err
		case answer.Err != nil:
			outcomes[at].Err = answer.Err
		default:
			outcomes[at] = answer.Outcomes[i]
		}
	}
	return outcomes, nil
}

// SubmitGraph stores a graph, all of it or nothing.
func (s *taskService) SubmitGraph(ctx context.Context, req *errandv1.SubmitGraphRequest) (*errandv1.SubmitGraphResponse, error) {
	tenant := principal(ctx).Tenant
	links, err := checkGraph(req.GetTasks())
	if err != nil {
		return nil, err
	}
	asked := engine.LinkAsked{Inside: links.Parents, Key: req.GetIdempotencyKey()}
	if asked.Key != "" {
		asked.Fingerprint = graphFingerprint(req)
	}
	if asked.Tasks, err = s.graphTasks(ctx, req.GetTasks()); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, linkWait)
	defer cancel()
	verdicts, done := s.intake.admit(ctx, tenant, asked.Tasks)
	stored := 0
	defer func() { done(stored) }()
	if err := s.admitGraph(req, asked.Tasks, verdicts); err != nil {
		if found := s.standingGraph(ctx, tenant, &asked); found != nil {
			return s.existing(ctx, tenant, *found)
		}
		return nil, err
	}
	answer, err := s.scheduler.Link(ctx, asked)
	switch {
	case err != nil:
		return nil, err
	case errors.Is(answer.Err, engine.ErrNoParent):
		m := req.GetTasks()[answer.At].GetSpec()
		return nil, noParent(parentPlace(m, answer.Parent, graphPath(answer.At)+"spec."), answer.Parent.String())
	case errors.Is(answer.Err, engine.ErrOutcomeUnknown), errors.Is(answer.Err, engine.ErrKeyReused):
		return nil, outsideOf(answer.Err, answer.Graph.String())
	case answer.Err != nil:
		return nil, answer.Err
	case answer.Existed:
		return s.existing(ctx, tenant, answer.Graph)
	}
	stored = len(asked.Tasks)
	resp := &errandv1.SubmitGraphResponse{GraphId: answer.Graph.String(), TaskIds: make(map[string]string, len(answer.Outcomes))}
	for i := range answer.Outcomes {
		resp.TaskIds[req.GetTasks()[i].GetName()] = answer.Outcomes[i].Ref.String()
	}
	return resp, nil
}

func graphPath(i int) string { return "tasks[" + strconv.Itoa(i) + "]." }

// checkGraph refuses what is no graph, with the field at fault.
func checkGraph(members []*errandv1.GraphTask) (graph.Links, error) {
	tasks := make([]graph.Task, len(members))
	for i, m := range members {
		tasks[i] = graph.Task{Name: m.GetName(), After: m.GetAfter(), Outside: len(m.GetSpec().GetParents()), Bytes: proto.Size(m.GetSpec())}
	}
	links, err := graph.Check(tasks)
	var bad *graph.Error
	if !errors.As(err, &bad) {
		return links, err
	}
	field := "tasks"
	switch {
	case bad.After >= 0:
		field = graphPath(bad.Task) + "after[" + strconv.Itoa(bad.After) + "]"
	case bad.Fault == graph.NameTaken:
		field = graphPath(bad.Task) + "name"
	}
	refusal := invalid(field, bad.Error())
	if bad.Fault == graph.Cycle {
		detail := detailOf(refusal)
		detail.Reason = reasonGraphCycle
		refusal = problem(refusal.Code(), errors.New(inField(field, bad.Error())), detail)
	}
	return links, refusal
}

// graphTasks turns the specs of a graph into new tasks.
func (s *taskService) graphTasks(ctx context.Context, members []*errandv1.GraphTask) ([]scheduler.Task, error) {
	tenant, trace, now := principal(ctx).Tenant, traceParent(ctx), s.scheduler.StoreNow()
	tasks := make([]scheduler.Task, len(members))
	for i, m := range members {
		prefix := graphPath(i) + "spec."
		switch {
		case m.GetSpec().GetIdempotencyKey() != "":
			return nil, invalid(prefix+"idempotency_key", "must be empty: the graph has one key for all")
		case m.GetSpec().GetUniqueKey() != "":
			return nil, invalid(prefix+"unique_key", "must be empty: a graph is stored whole, and no other task can stand for one of its tasks")
		}
		task, err := s.taskOf(m.GetSpec(), prefix, tenant)
		if err != nil {
			return nil, err
		}
		if err := setTimes(&task, m.GetSpec(), prefix, now); err != nil {
			return nil, err
		}
		task.TraceParent, task.Spec.Name = trace, m.GetName()
		tasks[i] = task
	}
	return tasks, nil
}

// admitGraph refuses a graph of which one task is refused, and makes standard what may not be urgent.
func (s *taskService) admitGraph(req *errandv1.SubmitGraphRequest, tasks []scheduler.Task, verdicts []verdict) error {
	for i := range verdicts {
		if verdicts[i].refused != nil {
			return verdicts[i].refused
		}
		if verdicts[i].demote {
			kind, _ := s.settings.Kind(tasks[i].Tenant, tasks[i].Kind)
			demote(&tasks[i], req.GetTasks()[i].GetSpec(), &kind.Defaults)
		}
	}
	return nil
}

// standingGraph is the graph that a refused submission's key stands for, nil when there is none: whoever asks again gets the answer.
func (s *taskService) standingGraph(ctx context.Context, tenant string, asked *engine.LinkAsked) *scheduler.Ref {
	if asked.Key == "" || s.intake.standing == nil {
		return nil
	}
	found, err := s.intake.standing.KeyedTasks(ctx, s.region, tenant, []string{asked.Key})
	one, stands := found[asked.Key]
	if err != nil || !stands || string(one.Fingerprint) != string(asked.Fingerprint) {
		return nil
	}
	return &one.Ref
}

// existing answers with a graph that stands.
func (s *taskService) existing(ctx context.Context, tenant string, ref scheduler.Ref) (*errandv1.SubmitGraphResponse, error) {
	resp := &errandv1.SubmitGraphResponse{GraphId: ref.String(), TaskIds: map[string]string{}, Existed: true}
	err := s.eachOfGraph(ctx, tenant, ref, func(tasks []scheduler.Task) error {
		for i := range tasks {
			resp.TaskIds[tasks[i].Spec.Name] = tasks[i].Ref.String()
		}
		return nil
	})
	return resp, err
}

func (s *taskService) eachOfGraph(ctx context.Context, tenant string, ref scheduler.Ref, f func([]scheduler.Task) error) error {
	for from := 0; ; {
		page, err := s.tasks.Graph(ctx, tenant, ref, from, cancelPage)
		if err != nil {
			return err
		}
		if err := f(page.Tasks); err != nil {
			return err
		}
		if from += page.Seen; int64(from) >= page.Size {
			return nil
		}
	}
}

// graphFingerprint hashes what was asked.
func graphFingerprint(req *errandv1.SubmitGraphRequest) []byte {
	raw, err := proto.MarshalOptions{Deterministic: true}.Marshal(req)
	if err != nil { // it was just decoded: it can be encoded
		return nil
	}
	sum := sha256.Sum256(raw)
	return sum[:]
}

// graphOf finds the graph of a handle: its own, or that of one of its tasks.
func (s *taskService) graphOf(ctx context.Context, handle string) (scheduler.Ref, error) {
	ref, err := scheduler.ParseRef(handle)
	if err != nil {
		return ref, invalid("graph_id", err.Error())
	}
	if !s.knows(ref.Region) {
		return ref, outsideOf(errGraphNotFound, handle)
	}
	task, err := s.tasks.Task(ctx, principal(ctx).Tenant, ref)
	if errors.Is(err, store.ErrNotFound) || err == nil && task.Spec.Graph == "" {
		return ref, outsideOf(errGraphNotFound, handle)
	}
	if err != nil {
		return ref, err
	}
	ref.ID, err = scheduler.ParseID(task.Spec.Graph)
	return ref, err
}

// GetGraph returns a page of a graph.
func (s *taskService) GetGraph(ctx context.Context, req *errandv1.GetGraphRequest) (*errandv1.GetGraphResponse, error) {
	ref, err := s.graphOf(ctx, req.GetGraphId())
	if err != nil {
		return nil, err
	}
	tenant := principal(ctx).Tenant
	pages := newPager("graph", tenant+"/"+ref.String(), nil)
	from, err := placeOf(pages, req.GetPageToken())
	if err != nil {
		return nil, err
	}
	page, err := s.tasks.Graph(ctx, tenant, ref, from, pageSize(req.GetPageSize()))
	if errors.Is(err, store.ErrNotFound) {
		return nil, outsideOf(errGraphNotFound, req.GetGraphId())
	}
	if err != nil {
		return nil, err
	}
	ids := make([]scheduler.ID, len(page.Tasks))
	for i := range page.Tasks {
		ids[i] = page.Tasks[i].ID
	}
	parents, err := s.tasks.ParentsOf(ctx, ref.Region, ids, graph.EdgesMax)
	if err != nil {
		return nil, err
	}
	resp := &errandv1.GetGraphResponse{GraphId: ref.String(), Size: page.Size}
	edges := 0
	for i := range page.Tasks {
		if edges += len(parents[page.Tasks[i].ID]); edges > graphEdgesPage && i > 0 {
			resp.NextPageToken = placeToken(pages, page.Place[i])
			return resp, nil
		}
		resp.Tasks = append(resp.Tasks, graphMember(&page.Tasks[i], parents[page.Tasks[i].ID]))
	}
	if next := from + page.Seen; int64(next) < page.Size {
		resp.NextPageToken = placeToken(pages, next)
	}
	return resp, nil
}

func graphMember(t *scheduler.Task, parents []scheduler.Ref) *errandv1.GraphMember {
	m := &errandv1.GraphMember{
		Name: t.Spec.Name, TaskId: t.Ref.String(), Kind: t.Kind, State: errandv1.TaskState(t.State), Failure: failureMessage(t.Failure),
		ParentCondition: errandv1.ParentCondition(t.Spec.Condition.OrDefault()),
	}
	for _, p := range parents {
		m.Parents = append(m.Parents, p.String())
	}
	return m
}

func placeToken(pages pager, place int) string {
	return pages.token(binary.BigEndian.AppendUint32(nil, uint32(place)))
}

// placeOf reads what placeToken wrote; 0 for nothing.
func placeOf(pages pager, token string) (int, error) {
	raw, err := pages.cursor(token)
	switch {
	case err != nil:
		return 0, err
	case raw == nil:
		return 0, nil
	case len(raw) != 4 || binary.BigEndian.Uint32(raw) > graph.EdgesMax:
		return 0, errPageToken()
	}
	return int(binary.BigEndian.Uint32(raw)), nil
}

// CancelGraph cancels the open tasks of a graph, page by page: those that were canceled stay so when it fails on its way.
func (s *taskService) CancelGraph(ctx context.Context, req *errandv1.CancelGraphRequest) (*errandv1.CancelGraphResponse, error) {
	ref, err := s.graphOf(ctx, req.GetGraphId())
	if err != nil {
		return nil, err
	}
	tenant := principal(ctx).Tenant
	ctx, cancel := context.WithTimeout(ctx, cancelGraphWait)
	defer cancel()
	resp := &errandv1.CancelGraphResponse{}
	err = s.eachOfGraph(ctx, tenant, ref, func(tasks []scheduler.Task) error {
		var ids []scheduler.ID
		for i := range tasks {
			switch {
			case tasks[i].State.Open():
				ids = append(ids, tasks[i].ID)
			case tasks[i].State == scheduler.Canceled:
				resp.Canceled++
			default:
				resp.Ended++
			}
		}
		if len(ids) == 0 {
			return nil
		}
		answers, err := s.scheduler.Cancel(ctx, ref.Region, tenant, req.GetReason(), ids)
		if err != nil {
			return fmt.Errorf("cancel graph %s: %w", ref, err)
		}
		for i := range answers {
			switch a := &answers[i]; {
			case a.State == scheduler.Canceled:
				resp.Canceled++
			case a.State == scheduler.Running:
				resp.Stopping++
			default:
				resp.Ended++
			}
		}
		return nil
	})
	return resp, err
}

// showLinks adds to a task how it hangs together with others.
func (s *taskService) showLinks(ctx context.Context, t *scheduler.Task, m *errandv1.Task) error {
	counts, err := s.tasks.CountLinks(ctx, t.Ref)
	if err != nil {
		return err
	}
	m.Parents, m.OpenParents, m.Children = counts.Parents, counts.OpenParents, counts.Children
	if counts.Parents == 0 {
		return nil
	}
	parents, err := s.tasks.ParentsOf(ctx, t.Region, []scheduler.ID{t.ID}, parentsShown)
	for _, p := range parents[t.ID] {
		m.Spec.Parents = append(m.Spec.Parents, p.String())
	}
	return err
}

// ReadParents returns parents of a running attempt, which only its worker can name.
func (s *workerService) ReadParents(ctx context.Context, req *errandv1.ReadParentsRequest) (*errandv1.ReadParentsResponse, error) {
	ears := &listener{workerService: s, who: principal(ctx), given: req.GetWorkerInstance()}
	ears.id = workerID(ears.who, ears.given)
	token, fault := ears.tokenOf(req.GetToken())
	if fault != nil {
		return nil, fault("token")
	}
	pages := newPager("parents", token.ID.String(), nil)
	from, err := placeOf(pages, req.GetPageToken())
	if err != nil {
		return nil, err
	}
	limit := pageSize(req.GetPageSize())
	got, err := s.tasks.Parents(ctx, s.nameOf(token.ID), token, from, limit)
	if err != nil {
		return nil, err
	}
	resp, bytes := &errandv1.ReadParentsResponse{}, 0
	for i := range got {
		t := &got[i].Task
		if bytes += len(t.Result); bytes > pageBytesMax && i > 0 {
			resp.NextPageToken = placeToken(pages, int(got[i].Place))
			return resp, nil
		}
		p := &errandv1.ParentResult{TaskId: t.Ref.String(), Name: t.Spec.Name, State: errandv1.TaskState(t.State)}
		if t.State == scheduler.Succeeded {
			p.Result = &errandv1.Result{Data: t.Result, ContentType: t.ResultType}
		} else {
			p.Failure = failureMessage(t.Failure)
		}
		resp.Parents = append(resp.Parents, p)
	}
	if len(got) == limit {
		resp.NextPageToken = placeToken(pages, int(got[limit-1].Place)+1)
	}
	return resp, nil
}
