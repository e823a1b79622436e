package errand

import (
	"context"
	"time"

	errandv1 "github.com/errandhq/errand/proto/errand/v1"
	"github.com/errandhq/errand/proto/errand/v1/errandv1connect"
)

// Explanation says why a task is where it is.
type Explanation struct {
	Reason   string    // the first thing that keeps it from running, a stable word; docs/api.md lists them
	Message  string    // the same for people
	Position int       // tasks before it, as far as known
	Start    time.Time // when it starts as things are; zero when nothing can be said
	Closest  []CloseWorker
	// Suggestion is the smallest change that would let it run, for people; empty when nothing is known to help.
	Suggestion string
	Attempts   []PastAttempt // of a task that was submitted: the latest 100 at most, oldest first; those before the latest that simply succeeded are not kept
}

// CloseWorker is a worker and what keeps the task from it.
type CloseWorker struct {
	Worker string // the instance
	Name   string
	Lacks  []string
}

// PastAttempt is an attempt of a task, also one that runs.
type PastAttempt struct {
	Number  int64
	Worker  string // empty when it never got to one
	Started time.Time
	Ended   time.Time // zero while it runs
	Reason  string    // why it did not succeed; empty when it did, or runs
	Message string
	Counted bool // against MaxAttempts
}

// Explain says why a task does not run, or what became of it.
func (c *Client) Explain(ctx context.Context, id string) (Explanation, error) {
	return c.explain(ctx, &errandv1.ExplainTaskRequest{Subject: &errandv1.ExplainTaskRequest_TaskId{TaskId: id}})
}

// ExplainSpec says whether a task would run if it were submitted now, and stores nothing.
func (c *Client) ExplainSpec(ctx context.Context, spec Spec) (Explanation, error) {
	if err := spec.check("spec"); err != nil {
		return Explanation{}, err
	}
	return c.explain(ctx, &errandv1.ExplainTaskRequest{Subject: &errandv1.ExplainTaskRequest_Spec{Spec: spec.message()}})
}

func (c *Client) explain(ctx context.Context, req *errandv1.ExplainTaskRequest) (Explanation, error) {
	m, err := call(ctx, c, reading(), func(ctx context.Context, s errandv1connect.TaskServiceClient) (*errandv1.ExplainTaskResponse, error) {
		return s.ExplainTask(ctx, req)
	})
	if err != nil {
		return Explanation{}, err
	}
	e := Explanation{
		Reason: m.GetReason(), Message: m.GetMessage(), Position: int(m.GetPosition()), Start: timeOf(m.GetEstimatedStart()), Suggestion: m.GetSuggestion(),
	}
	for _, w := range m.GetClosestWorkers() {
		e.Closest = append(e.Closest, CloseWorker{Worker: w.GetWorker(), Name: w.GetName(), Lacks: w.GetLacks()})
	}
	for _, a := range m.GetAttempts() {
		e.Attempts = append(e.Attempts, PastAttempt{
			Number: a.GetNumber(), Worker: a.GetWorker(), Started: timeOf(a.GetStartedAt()), Ended: timeOf(a.GetEndedAt()),
			Reason: a.GetFailure().GetReason(), Message: a.GetFailure().GetMessage(), Counted: a.GetCounted(),
		})
	}
	return e, nil
}
