package errand

import (
	"context"
	"errors"
	"fmt"

	errandv1 "github.com/errandhq/errand/proto/errand/v1"
	"github.com/errandhq/errand/proto/errand/v1/errandv1connect"
)

// Condition says when a task with parents may run.
type Condition int

// The conditions.
const (
	AllSucceeded Condition = 1 // the default
	AllFinished  Condition = 2 // however they ended
	AnySucceeded Condition = 3 // one is enough; the others may run still
)

// IfNot says what becomes of a task whose parents cannot meet its condition any more.
type IfNot int

// What may become of it.
const (
	CancelIt  IfNot = 1 // the default: it is canceled with a reason, and its own children see that as any other end
	RunAnyway IfNot = 2
)

func (s *Spec) parentsInto(m *errandv1.TaskSpec) {
	m.Parents = s.Parents
	m.ParentCondition, m.ImpossiblePolicy = errandv1.ParentCondition(s.When), errandv1.ImpossiblePolicy(s.IfNot)
}

// Graph is a set of tasks some of which wait for others. The zero value is empty; it is stored whole or not at all.
//
//	var g errand.Graph
//	g.Add("fetch", errand.Spec{Kind: "fetch"})
//	g.Add("encode", errand.Spec{Kind: "encode"}, "fetch")
//	g.Add("publish", errand.Spec{Kind: "publish"}, "fetch", "encode")
type Graph struct {
	// IdempotencyKey makes the submission happen once, however often it is sent; empty for none.
	IdempotencyKey string

	tasks []*errandv1.GraphTask
	err   error
}

// Add puts a task into the graph. It waits for the tasks of the names in after, which may be added later; Spec.When says when it may
// run, and Spec.Parents may name tasks that exist. A name has 1 to 63 bytes and is one task's. The spec's own IdempotencyKey and
// UniqueKey must be empty.
func (g *Graph) Add(name string, spec Spec, after ...string) {
	if err := spec.check(fmt.Sprintf("tasks[%d].spec", len(g.tasks))); err != nil && g.err == nil {
		g.err = err
	}
	g.tasks = append(g.tasks, &errandv1.GraphTask{Name: name, Spec: spec.message(), After: after})
}

// Len is how many tasks the graph has.
func (g *Graph) Len() int { return len(g.tasks) }

// SubmittedGraph says that a graph is durable.
type SubmittedGraph struct {
	ID      string            // the graph's handle
	Tasks   map[string]string // the tasks' handles, by name
	Existed bool              // its idempotency key stood for this graph already: nothing new was stored
}

// SubmitGraph stores a graph and returns when all of it is durable; after an error nothing is, unless it is ErrOutcomeUnknown. Tasks
// that wait for each other are refused with the cycle's names, a parent that is not there with its field.
func (c *Client) SubmitGraph(ctx context.Context, g *Graph) (SubmittedGraph, error) {
	if g.err != nil {
		return SubmittedGraph{}, g.err
	}
	req := &errandv1.SubmitGraphRequest{Tasks: g.tasks, IdempotencyKey: g.IdempotencyKey}
	resp, err := call(ctx, c, storing(g.IdempotencyKey != ""), func(ctx context.Context, s errandv1connect.TaskServiceClient) (*errandv1.SubmitGraphResponse, error) {
		return s.SubmitGraph(ctx, req)
	})
	if err != nil {
		return SubmittedGraph{}, err
	}
	return SubmittedGraph{ID: resp.GetGraphId(), Tasks: resp.GetTaskIds(), Existed: resp.GetExisted()}, nil
}

// GraphTask is a task of a graph as it stands.
type GraphTask struct {
	Name    string
	ID      string
	Kind    string
	State   State
	Reason  string   // why it did not succeed
	Message string   // the same, for people
	Parents []string // handles, in the order in which it names them
	When    Condition
}

// GraphState is a graph as it stands.
type GraphState struct {
	ID    string
	Size  int         // tasks that it was submitted with
	Tasks []GraphTask // in the order of the submission; those whose retention has passed are missing
}

// Graph returns a graph as it stands; id is its handle, or that of one of its tasks. It is read in pages: tasks may go on meanwhile.
func (c *Client) Graph(ctx context.Context, id string) (GraphState, error) {
	const pageSize = 500
	var g GraphState
	for token := ""; ; {
		req := &errandv1.GetGraphRequest{GraphId: id, PageSize: pageSize, PageToken: token}
		resp, err := call(ctx, c, reading(), func(ctx context.Context, s errandv1connect.TaskServiceClient) (*errandv1.GetGraphResponse, error) {
			return s.GetGraph(ctx, req)
		})
		if err != nil {
			return g, err
		}
		g.ID, g.Size = resp.GetGraphId(), int(resp.GetSize())
		for _, t := range resp.GetTasks() {
			g.Tasks = append(g.Tasks, GraphTask{
				Name: t.GetName(), ID: t.GetTaskId(), Kind: t.GetKind(), State: State(t.GetState()),
				Reason: t.GetFailure().GetReason(), Message: t.GetFailure().GetMessage(), Parents: t.GetParents(), When: Condition(t.GetParentCondition()),
			})
		}
		if token = resp.GetNextPageToken(); token == "" {
			return g, nil
		}
	}
}

// CanceledGraph says what became of a graph's tasks.
type CanceledGraph struct {
	Canceled int // by this call or before
	Stopping int // they run, and their workers are told
	Ended    int // they had ended otherwise
}

// CancelGraph asks to cancel every open task of a graph; id is its handle, or that of one of its tasks.
func (c *Client) CancelGraph(ctx context.Context, id, reason string) (CanceledGraph, error) {
	req := &errandv1.CancelGraphRequest{GraphId: id, Reason: reason}
	resp, err := call(ctx, c, storing(true), func(ctx context.Context, s errandv1connect.TaskServiceClient) (*errandv1.CancelGraphResponse, error) {
		return s.CancelGraph(ctx, req)
	})
	if err != nil {
		return CanceledGraph{}, err
	}
	return CanceledGraph{int(resp.GetCanceled()), int(resp.GetStopping()), int(resp.GetEnded())}, nil
}

// ParentResult is a parent as its child sees it.
type ParentResult struct {
	TaskID  string
	Name    string // in the graph; empty when it was not submitted with one
	State   State
	Result  Result // of one that succeeded
	Reason  string // why it did not
	Message string
}

// ParentResults reads what the task's parents have come to, in the order in which the task names them; none without parents. One that
// runs still (When: AnySucceeded) is shown as it stands. The error is ErrLost when the attempt is not this worker's any more.
func (a *Attempt) ParentResults(ctx context.Context) ([]ParentResult, error) {
	if a.parents == nil { // a test that made the attempt itself
		return nil, nil
	}
	return a.parents(ctx)
}

// readParents asks one scheduler after the other: any of the region can answer.
func (w *Worker) readParents(ctx context.Context, id attemptID) ([]ParentResult, error) {
	var failed error
	for _, service := range w.services {
		got, err := w.readParentsFrom(ctx, service, id)
		if err == nil {
			return got, nil
		}
		e := errorOf(err)
		if failed = e; e.Reason == "TOKEN_LOST" {
			return nil, fmt.Errorf("%w: %w", ErrLost, e)
		}
	}
	if failed == nil {
		failed = errors.New("errand: no scheduler to ask for parents")
	}
	return nil, failed
}

func (w *Worker) readParentsFrom(ctx context.Context, service errandv1connect.WorkerServiceClient, id attemptID) ([]ParentResult, error) {
	const pageSize = 500
	var all []ParentResult
	for token := ""; ; {
		resp, err := service.ReadParents(ctx, &errandv1.ReadParentsRequest{
			Token: id.token(), WorkerInstance: w.id[:], PageSize: pageSize, PageToken: token,
		})
		if err != nil {
			return nil, err
		}
		for _, p := range resp.GetParents() {
			all = append(all, ParentResult{
				TaskID: p.GetTaskId(), Name: p.GetName(), State: State(p.GetState()),
				Result: Result{Data: p.GetResult().GetData(), ContentType: p.GetResult().GetContentType()},
				Reason: p.GetFailure().GetReason(), Message: p.GetFailure().GetMessage(),
			})
		}
		if token = resp.GetNextPageToken(); token == "" {
			return all, nil
		}
	}
}
