package engine_test

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/errandhq/errand/scheduler"
	"github.com/errandhq/errand/scheduler/engine"
)

// There is no picture before the store's clock is known: it would be of the year 1.
func TestAPictureHasATime(t *testing.T) {
	fresh := engine.New(engine.Config{Region: "eu", Timing: scheduler.DefaultTiming(), Rand: rand.New(rand.NewPCG(1, 2))})
	fresh.Turn(1, nil)
	if p := fresh.Status().Picture; p != nil {
		t.Errorf("before the session is open there is a picture of %v", p.At)
	}
	r := newRegion(t)
	a := r.instance(1)
	a.run(time.Second)
	if p := a.engine.Status().Picture; p == nil || p.At.Year() != 2026 {
		t.Errorf("the picture is %+v", p)
	}
}
