package errand

import (
	"context"
	"fmt"
	"iter"
	"net/http"
	"sync/atomic"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/durationpb"

	errandv1 "github.com/errandhq/errand/proto/errand/v1"
	"github.com/errandhq/errand/proto/errand/v1/errandv1connect"
)

// Bounds of the client.
const (
	// BatchMax is the most tasks of one SubmitMany.
	BatchMax = 1000

	waitSlice    = 30 * time.Second // one long poll of a wait
	waitMargin   = time.Second      // how long before a deadline the last answer shall be there
	listPageSize = 200
)

// Client submits tasks and asks about them. It is safe for concurrent use.
type Client struct {
	services []errandv1connect.TaskServiceClient
	current  atomic.Int64 // the scheduler that answered last
}

// NewClient returns a client. It does not connect before the first call.
func NewClient(cfg Config) (*Client, error) {
	if err := cfg.check(); err != nil {
		return nil, err
	}
	c := &Client{}
	hc := cfg.client()
	for _, url := range cfg.URLs {
		c.services = append(c.services, errandv1connect.NewTaskServiceClient(hc, url, clientOptions(cfg.Key)...))
	}
	return c, nil
}

func clientOptions(key string) []connect.ClientOption {
	return []connect.ClientOption{
		connect.WithInterceptors(&authorize{key}),
		connect.WithSendCompression(""), connect.WithAcceptCompression("gzip", nil, nil),
	}
}

// authorize sends the key with every call.
type authorize struct{ key string }

func (a *authorize) WrapUnary(next connect.UnaryFunc) connect.UnaryFunc {
	return func(ctx context.Context, req connect.AnyRequest) (connect.AnyResponse, error) {
		a.set(req.Header())
		return next(ctx, req)
	}
}

func (a *authorize) WrapStreamingClient(next connect.StreamingClientFunc) connect.StreamingClientFunc {
	return func(ctx context.Context, spec connect.Spec) connect.StreamingClientConn {
		conn := next(ctx, spec)
		a.set(conn.RequestHeader())
		return conn
	}
}

func (a *authorize) WrapStreamingHandler(next connect.StreamingHandlerFunc) connect.StreamingHandlerFunc {
	return next
}

func (a *authorize) set(h http.Header) { h.Set("Authorization", "Bearer "+a.key) }

// Submitted says that a task is durable.
type Submitted struct {
	ID      string // the task that stands for the submission
	State   State
	Existed bool // its idempotency key stood for this task already, or this open task holds its unique key: nothing new was stored
	Demoted bool // it was urgent and is stored as standard, being beyond the tenant's urgent rate
	// EstimatedStart is when it will start as things are; zero when nothing can be said. It is a guess.
	EstimatedStart time.Time
	AtRisk         string // why it may not start in time, such as NO_WORKER, PAUSED, AFTER_DUE or AFTER_START_BY; empty when it is not at risk
}

// Submit stores a task and returns when it is durable. Errors are of type *[Error]; ErrOutcomeUnknown means that the task may
// be stored: submit it again with an idempotency key, or look at Error.TaskID later. ErrOverLimit is not tried again by itself: whoever
// makes the tasks should make fewer of them, and not before Error.RetryAfter is over.
func (c *Client) Submit(ctx context.Context, spec Spec) (Submitted, error) {
	if err := spec.check("spec"); err != nil {
		return Submitted{}, err
	}
	req := &errandv1.SubmitTaskRequest{Spec: spec.message()}
	resp, err := call(ctx, c, storing(spec.IdempotencyKey != ""), func(ctx context.Context, s errandv1connect.TaskServiceClient) (*errandv1.SubmitTaskResponse, error) {
		return s.SubmitTask(ctx, req)
	})
	if err != nil {
		return Submitted{}, err
	}
	return submittedOf(resp), nil
}

func submittedOf(m *errandv1.SubmitTaskResponse) Submitted {
	return Submitted{
		ID: m.GetTaskId(), State: State(m.GetState()), Existed: m.GetExisted(), Demoted: m.GetDemoted(),
		EstimatedStart: timeOf(m.GetEstimatedStart()), AtRisk: m.GetAtRiskReason(),
	}
}

// Outcome is what became of one task of a batch: it is durable, or Err says why not.
type Outcome struct {
	Submitted
	Err error
}

// SubmitMany stores many tasks, at most BatchMax, and returns one outcome each, in order. The error is about the call as a
// whole. The batch is sent again by itself only when every task has an idempotency key.
func (c *Client) SubmitMany(ctx context.Context, specs []Spec) ([]Outcome, error) {
	req := &errandv1.SubmitTasksRequest{Specs: make([]*errandv1.TaskSpec, len(specs))}
	keyed := true
	for i := range specs {
		if err := specs[i].check(fmt.Sprintf("specs[%d]", i)); err != nil {
			return nil, err
		}
		req.Specs[i] = specs[i].message()
		keyed = keyed && specs[i].IdempotencyKey != ""
	}
	resp, err := call(ctx, c, storing(keyed), func(ctx context.Context, s errandv1connect.TaskServiceClient) (*errandv1.SubmitTasksResponse, error) {
		return s.SubmitTasks(ctx, req)
	})
	if err != nil {
		return nil, err
	}
	if len(resp.GetOutcomes()) != len(specs) {
		return nil, errorOf(fmt.Errorf("a scheduler answered %d outcomes for %d tasks", len(resp.GetOutcomes()), len(specs)))
	}
	outcomes := make([]Outcome, len(specs))
	for i, o := range resp.GetOutcomes() {
		if e := o.GetError(); e != nil {
			outcomes[i].Err = errorOfItem(e)
			continue
		}
		outcomes[i].Submitted = submittedOf(o.GetAccepted())
	}
	return outcomes, nil
}

// Get returns a task as it stands.
func (c *Client) Get(ctx context.Context, id string) (Task, error) {
	resp, err := call(ctx, c, reading(), func(ctx context.Context, s errandv1connect.TaskServiceClient) (*errandv1.GetTaskResponse, error) {
		return s.GetTask(ctx, &errandv1.GetTaskRequest{TaskId: id})
	})
	if err != nil {
		return Task{}, err
	}
	return taskOf(resp.GetTask()), nil
}

// Wait returns the task when it has ended. When the context ends before, it returns the context's error and the task as it
// stood last, if it was seen at all.
func (c *Client) Wait(ctx context.Context, id string) (Task, error) {
	var last Task
	for {
		slice := waitSlice
		if deadline, has := ctx.Deadline(); has {
			left := time.Until(deadline)
			slice = max(min(slice, left-min(left/4, waitMargin)), 0)
		}
		how := effort{repeatable: true, limit: slice + callTimeLimit}
		resp, err := call(ctx, c, how, func(ctx context.Context, s errandv1connect.TaskServiceClient) (*errandv1.WaitTaskResponse, error) {
			return s.WaitTask(ctx, &errandv1.WaitTaskRequest{TaskId: id, Timeout: durationpb.New(slice)})
		})
		if err != nil {
			return last, err
		}
		last = taskOf(resp.GetTask())
		if resp.GetEnded() {
			return last, nil
		}
		if err := ctx.Err(); err != nil {
			return last, fmt.Errorf("errand: %s is %v: %w", id, last.State, err)
		}
	}
}

// Filter says which tasks are meant; empty parts match everything.
type Filter struct {
	States        []State
	Kinds         []string
	Labels        map[string]string
	CreatedAfter  time.Time
	CreatedBefore time.Time
}

func (f *Filter) message() *errandv1.TaskFilter {
	m := &errandv1.TaskFilter{Kinds: f.Kinds, Labels: f.Labels, CreatedAfter: stamp(f.CreatedAfter), CreatedBefore: stamp(f.CreatedBefore)}
	for _, s := range f.States {
		m.States = append(m.States, errandv1.TaskState(s))
	}
	return m
}

// List walks the tasks that a filter matches, newest first, without payloads and results. It ends with an error when a page
// cannot be had.
func (c *Client) List(ctx context.Context, f Filter) iter.Seq2[Task, error] {
	filter := f.message()
	return func(yield func(Task, error) bool) {
		req := &errandv1.ListTasksRequest{Filter: filter, PageSize: listPageSize}
		for {
			resp, err := call(ctx, c, reading(), func(ctx context.Context, s errandv1connect.TaskServiceClient) (*errandv1.ListTasksResponse, error) {
				return s.ListTasks(ctx, req)
			})
			if err != nil {
				yield(Task{}, err)
				return
			}
			for _, m := range resp.GetTasks() {
				if !yield(taskOf(m), nil) {
					return
				}
			}
			if req.PageToken = resp.GetNextPageToken(); req.PageToken == "" {
				return
			}
		}
	}
}

// CancelAnswer says what a cancel did.
type CancelAnswer struct {
	State    State // Canceled, Running (its worker is being told), or the end it had reached before
	Accepted bool  // false when it had ended before: nothing was changed
}

// Cancel asks to cancel a task.
func (c *Client) Cancel(ctx context.Context, id, reason string) (CancelAnswer, error) {
	resp, err := call(ctx, c, reading(), func(ctx context.Context, s errandv1connect.TaskServiceClient) (*errandv1.CancelTaskResponse, error) {
		return s.CancelTask(ctx, &errandv1.CancelTaskRequest{TaskId: id, Reason: reason})
	})
	if err != nil {
		return CancelAnswer{}, err
	}
	return CancelAnswer{State: State(resp.GetState()), Accepted: resp.GetAccepted()}, nil
}

// Watch tells tasks as they stand after each change, from now on, until ctx ends: those that a filter matches, or only the named
// ones, and then it ends with the last of them. With current the open ones are told first as they stand. Quick changes may be told
// as one; payloads and results are left out. An error ends it; what has changed meanwhile is not told by the next one.
func (c *Client) Watch(ctx context.Context, f Filter, ids []string, current bool) iter.Seq2[Task, error] {
	req := &errandv1.WatchTasksRequest{Filter: f.message(), TaskIds: ids, IncludeCurrent: current}
	return func(yield func(Task, error) bool) {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		at := int(c.current.Load())
		stream, err := c.services[at%len(c.services)].WatchTasks(ctx, req)
		if err != nil {
			yield(Task{}, errorOf(err).interruptedBy(ctx))
			return
		}
		defer func() { _ = stream.Close() }() // it has ended, or is not wanted any more
		for stream.Receive() {
			if m := stream.Msg().GetTask(); m != nil && !yield(taskOf(m), nil) {
				return
			}
		}
		if err := stream.Err(); err != nil {
			yield(Task{}, errorOf(err).interruptedBy(ctx))
		}
	}
}
