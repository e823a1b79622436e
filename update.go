package errand

import (
	"context"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/fieldmaskpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	errandv1 "github.com/errandhq/errand/proto/errand/v1"
	"github.com/errandhq/errand/proto/errand/v1/errandv1connect"
)

// Changes says what of a waiting task shall be different. Zero fields stay as they are.
type Changes struct {
	Tier           Tier          // a delay tolerance that was the old tier's default becomes the new one's
	DelayTolerance time.Duration // how long it may wait once ready

	RunAt  time.Time     // not before; one that is past means at once
	Delay  time.Duration // the same from now; not together with RunAt
	RunNow bool          // at once, whatever was said before; not together with RunAt or Delay

	StartBy     time.Time     // useless if not started by then
	StartWithin time.Duration // the same from now; not together with StartBy
	NeverLate   bool          // never useless any more; not together with StartBy or StartWithin

	Labels map[string]string // take the place of all labels; an empty map that is not nil takes them away
}

// Update changes a task that waits, and returns it as it stands then. One that runs or has ended is not changed: the error is
// [ErrNotWaiting].
func (c *Client) Update(ctx context.Context, id string, changes Changes) (Task, error) {
	if err := changes.check(); err != nil {
		return Task{}, err
	}
	req := changes.request(id)
	resp, err := call(ctx, c, reading(), func(ctx context.Context, s errandv1connect.TaskServiceClient) (*errandv1.UpdateTaskResponse, error) {
		return s.UpdateTask(ctx, req)
	})
	if err != nil {
		return Task{}, err
	}
	return taskOf(resp.GetTask()), nil
}

// check refuses what the request could not say.
func (c *Changes) check() error {
	switch {
	case !c.RunAt.IsZero() && c.Delay != 0:
		return invalid("changes.run_at", "RunAt and Delay say the same: set one of them")
	case c.RunNow && (!c.RunAt.IsZero() || c.Delay != 0):
		return invalid("run_now", "not together with RunAt or Delay")
	case !c.StartBy.IsZero() && c.StartWithin != 0:
		return invalid("changes.start_by", "StartBy and StartWithin say the same: set one of them")
	case c.NeverLate && (!c.StartBy.IsZero() || c.StartWithin != 0):
		return invalid("changes.start_by", "NeverLate takes away what StartBy and StartWithin say")
	}
	return nil
}

func (c *Changes) request(id string) *errandv1.UpdateTaskRequest {
	m, mask := &errandv1.TaskChanges{Tier: errandv1.Tier(c.Tier), Labels: c.Labels}, &fieldmaskpb.FieldMask{}
	name := func(set bool, field string) bool {
		if set {
			mask.Paths = append(mask.Paths, field)
		}
		return set
	}
	name(c.Tier != 0, "tier")
	name(c.Labels != nil, "labels")
	if name(c.DelayTolerance != 0, "delay_tolerance") {
		m.DelayTolerance = durationpb.New(c.DelayTolerance)
	}
	if name(!c.RunAt.IsZero(), "run_at") {
		m.Start = &errandv1.TaskChanges_RunAt{RunAt: timestamppb.New(c.RunAt)}
	}
	if name(c.Delay != 0, "delay") {
		m.Start = &errandv1.TaskChanges_Delay{Delay: durationpb.New(c.Delay)}
	}
	if name(!c.StartBy.IsZero() || c.NeverLate, "start_by") && !c.NeverLate {
		m.Useless = &errandv1.TaskChanges_StartBy{StartBy: timestamppb.New(c.StartBy)}
	}
	if name(c.StartWithin != 0, "start_within") {
		m.Useless = &errandv1.TaskChanges_StartWithin{StartWithin: durationpb.New(c.StartWithin)}
	}
	return &errandv1.UpdateTaskRequest{TaskId: id, Changes: m, UpdateMask: mask, RunNow: c.RunNow}
}
