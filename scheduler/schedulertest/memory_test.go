package schedulertest

import (
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/errandhq/errand/scheduler"
	"github.com/errandhq/errand/scheduler/engine"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var _ engine.Store = (*Memory)(nil)

func TestMemoryStore(t *testing.T) {
	RunStoreSuite(t, func(t *testing.T) Fixture {
		m := NewMemory(time.Now)
		return Fixture{
			Store: m,
			Task: func(t *testing.T, ref scheduler.Ref) scheduler.Task {
				t.Helper()
				one, here := m.Task(ref)
				if !here {
					t.Fatalf("there is no %s", ref)
				}
				return one
			},
			Ledger: func(t *testing.T) (accepted, ended int64) {
				t.Helper()
				for _, b := range m.Balances(region) {
					if b.Accepted != b.Ended+b.Open {
						t.Errorf("unbalanced: %+v", b)
					}
					accepted, ended = accepted+b.Accepted, ended+b.Ended
				}
				return accepted, ended
			},
			ForgetSession: func(_ *testing.T, id scheduler.SessionID) { m.ForgetSession(region, id) },
		}
	})
}
