package engine_test

import (
	"testing"
	"time"

	"github.com/errandhq/errand/scheduler"
	"github.com/errandhq/errand/scheduler/engine"
)

// A worker that hands work back gets none before its next heartbeat: without that pause the same task would go to and fro a hundred times
// a second.
func TestAWorkerThatRefusesIsNotAskedAgainAtOnce(t *testing.T) {
	r := newRegion(t)
	a := r.instance(1)
	token := a.start()
	a.silent, a.words = true, nil
	a.say(engine.FromWorker{Reports: []scheduler.Report{{Token: token, Outcome: scheduler.OutcomeHandedBack}}})
	a.run(time.Second)
	if got := r.task(token); got.State != scheduler.Ready || got.Counted != 0 {
		t.Fatalf("the task is %v, %d attempts count", got.State, got.Counted)
	}
	if again := a.assigned(); len(again) > 0 {
		t.Fatalf("offered again at once: %v", again)
	}
	a.beat()
	a.run(100 * time.Millisecond)
	if again := a.assigned(); len(again) != 1 || again[0].Token.Attempt != token.Attempt+1 {
		t.Errorf("after the heartbeat: %v, want one more attempt", again)
	}
}
