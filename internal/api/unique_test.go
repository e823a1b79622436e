package api

import (
	"context"
	"strconv"
	"sync"
	"testing"

	"connectrpc.com/connect"

	errandv1 "github.com/errandhq/errand/proto/errand/v1"
)

func TestUniqueKey(t *testing.T) {
	e := start(t)
	refuse := errandv1.UniquePolicy_UNIQUE_POLICY_REFUSE
	first := e.submit(&errandv1.TaskSpec{Kind: "email", UniqueKey: "u"})
	if got := e.get(first.GetTaskId()).GetSpec(); first.GetExisted() || got.GetUniqueKey() != "u" || got.GetUniquePolicy() != errandv1.UniquePolicy_UNIQUE_POLICY_JOIN {
		t.Errorf("the first: %v, shown as %v", first, got)
	}
	joined := e.submit(&errandv1.TaskSpec{Kind: "sms", UniqueKey: "u", IdempotencyKey: "k"})
	if joined.GetTaskId() != first.GetTaskId() || !joined.GetExisted() || joined.GetState() != errandv1.TaskState_TASK_STATE_READY {
		t.Errorf("while it is open: %v, want %s", joined, first.GetTaskId())
	}
	_, err := e.tasks(e.acme).SubmitTask(t.Context(), &errandv1.SubmitTaskRequest{Spec: &errandv1.TaskSpec{Kind: "email", UniqueKey: "u", UniquePolicy: refuse}})
	if connect.CodeOf(err) != connect.CodeAlreadyExists || detail(t, err).GetReason() != "UNIQUE_KEY_HELD" || detail(t, err).GetTaskId() != first.GetTaskId() {
		t.Errorf("refusing: %v", err)
	}
	batch, err := e.tasks(e.acme).SubmitTasks(t.Context(), &errandv1.SubmitTasksRequest{Specs: []*errandv1.TaskSpec{
		{Kind: "email", UniqueKey: "v"}, {Kind: "email", UniqueKey: "v"}, {Kind: "email", UniqueKey: "v", UniquePolicy: refuse}, {Kind: "email"},
	}})
	if err != nil {
		t.Fatal(err)
	}
	o := batch.GetOutcomes()
	if one := o[0].GetAccepted(); one == nil || one.GetExisted() || o[1].GetAccepted().GetTaskId() != one.GetTaskId() || !o[1].GetAccepted().GetExisted() ||
		o[2].GetError().GetDetail().GetReason() != "UNIQUE_KEY_HELD" || o[2].GetError().GetDetail().GetTaskId() != one.GetTaskId() || o[3].GetAccepted() == nil {
		t.Errorf("twice in a batch: %v", o)
	}
	foreign, err := e.tasks(e.globex).SubmitTask(t.Context(), &errandv1.SubmitTaskRequest{Spec: &errandv1.TaskSpec{Kind: "email", UniqueKey: "u", UniquePolicy: refuse}})
	if err != nil || foreign.GetExisted() {
		t.Errorf("another tenant's: %v, %v", foreign, err)
	}

	w := e.worker(e.acme, 1, "email")
	for range 3 { // in the order of their due
		w.finish(succeeded(w.take(), nil))
	}
	e.await(first.GetTaskId())
	if again := e.submit(&errandv1.TaskSpec{Kind: "email", UniqueKey: "u", IdempotencyKey: "k"}); again.GetExisted() || again.GetTaskId() == first.GetTaskId() {
		t.Errorf("after its end, with the idempotency key of one that joined: %v", again)
	}
}

// Many submit a few keys while tasks end: never are two open, and nobody is told of a fault of ours.
func TestUniqueKeysInAStorm(t *testing.T) {
	e := start(t)
	w := e.worker(e.acme, 4, "email")
	stop := make(chan struct{})
	var ends, all sync.WaitGroup
	ends.Go(func() {
		for {
			select {
			case a := <-w.assigned:
				w.finish(succeeded(a, nil))
			case <-stop:
				return
			}
		}
	})
	const clients, rounds, keys = 8, 25, 2
	stored := make([]map[string]bool, clients)
	for c := range clients {
		stored[c] = map[string]bool{}
		all.Go(func() {
			client := e.tasks(e.acme)
			for i := range rounds {
				spec := &errandv1.TaskSpec{Kind: "email", UniqueKey: strconv.Itoa(i % keys), UniquePolicy: errandv1.UniquePolicy(c % 3)}
				if i%5 == 0 {
					spec.IdempotencyKey = strconv.Itoa(c) + "-" + strconv.Itoa(i)
				}
				got, err := client.SubmitTask(context.Background(), &errandv1.SubmitTaskRequest{Spec: spec})
				switch {
				case err == nil && !got.GetExisted():
					stored[c][got.GetTaskId()] = true
				case err == nil:
				case spec.GetUniquePolicy() != errandv1.UniquePolicy_UNIQUE_POLICY_REFUSE || detail(t, err).GetReason() != "UNIQUE_KEY_HELD":
					t.Errorf("%v: %v", spec, err)
				}
			}
		})
	}
	all.Wait()
	total := map[string]bool{}
	for _, of := range stored {
		for id := range of {
			total[id] = true
			e.await(id)
		}
	}
	close(stop)
	ends.Wait()
	if len(total) < keys {
		t.Errorf("%d tasks were stored", len(total))
	}
	if n := e.sql(`SELECT count(*)::text FROM tasks`); n != strconv.Itoa(len(total)) {
		t.Errorf("%s tasks are stored, %d were answered as new", n, len(total))
	}
}
