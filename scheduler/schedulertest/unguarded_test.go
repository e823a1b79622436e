package schedulertest

import (
	"context"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/errandhq/errand/scheduler"
	"github.com/errandhq/errand/scheduler/engine"
)

// unguarded is a store in memory that lacks one guard of one write: what the guard would have refused is done first.
type unguarded struct {
	*Memory
	force func(m *Memory, request any) // request points to the arguments, which it may change
}

func (u unguarded) forced(request any) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.force(u.Memory, request)
}

func (u unguarded) Insert(ctx context.Context, in scheduler.Insert) ([]scheduler.Inserted, error) {
	u.forced(&in)
	return u.Memory.Insert(ctx, in)
}

func (u unguarded) Claim(ctx context.Context, b scheduler.ClaimBatch) ([]scheduler.Claimed, error) {
	b.Claims = slices.Clone(b.Claims)
	u.forced(&b)
	return u.Memory.Claim(ctx, b)
}

func (u unguarded) End(ctx context.Context, b scheduler.EndBatch) ([]scheduler.Ended, error) {
	b.Endings = slices.Clone(b.Endings)
	u.forced(&b)
	return u.Memory.End(ctx, b)
}

func (u unguarded) Attach(ctx context.Context, b scheduler.AttachBatch) ([]scheduler.Attached, error) {
	u.forced(&b)
	return u.Memory.Attach(ctx, b)
}

func (u unguarded) Cancel(ctx context.Context, b scheduler.CancelBatch) ([]scheduler.CancelAnswer, error) {
	u.forced(&b)
	return u.Memory.Cancel(ctx, b)
}

func (u unguarded) Wake(ctx context.Context, b scheduler.WakeBatch) ([]scheduler.Moved, error) {
	u.forced(&b)
	return u.Memory.Wake(ctx, b)
}

func (u unguarded) Expire(ctx context.Context, b scheduler.ExpireBatch) ([]scheduler.Moved, error) {
	u.forced(&b)
	return u.Memory.Expire(ctx, b)
}

// onClaims changes a claim before it is made.
func onClaims(f func(m *Memory, b *scheduler.ClaimBatch, c *scheduler.Claim, row *scheduler.Task)) func(*Memory, any) {
	return func(m *Memory, request any) {
		if b, ok := request.(*scheduler.ClaimBatch); ok {
			for i := range b.Claims {
				if row := m.find(b.Region, b.Claims[i].ID); row != nil {
					f(m, b, &b.Claims[i], row)
				}
			}
		}
	}
}

// onEndings changes an ending before it is made.
func onEndings(f func(e *scheduler.Ending, row *scheduler.Task)) func(*Memory, any) {
	return func(m *Memory, request any) {
		if b, ok := request.(*scheduler.EndBatch); ok {
			for i := range b.Endings {
				if row := m.find(b.Region, b.Endings[i].ID); row != nil {
					f(&b.Endings[i], row)
				}
			}
		}
	}
}

// claimed makes a claim of a row as if one thing about it were otherwise.
func claimed(m *Memory, b *scheduler.ClaimBatch, c *scheduler.Claim, row *scheduler.Task, pretend func(*scheduler.Task)) {
	as := *row
	pretend(&as)
	next, refusal := as.Claim(c.From, c.Seen, b.Session, c.Worker, m.now())
	if refusal == nil && m.sessionOpen(b.Region, b.Session) {
		next.StartBy, next.CancelRequested = row.StartBy, row.CancelRequested
		m.put(row, next)
	}
}

// guards are the guards of the writes, and how each is removed.
var guards = []struct {
	write, guard string
	remove       func(m *Memory, request any)
}{
	{"end", "the token's attempt and worker", onEndings(func(e *scheduler.Ending, row *scheduler.Task) {
		if row.State == scheduler.Running {
			e.Token = row.Token()
		}
	})},
	{"end by a scheduler", "its session", onEndings(func(e *scheduler.Ending, _ *scheduler.Task) {
		e.Session = scheduler.SessionID{}
	})},
	{"end", "the row runs still", func(m *Memory, request any) {
		onEndings(func(e *scheduler.Ending, row *scheduler.Task) {
			if row.State != scheduler.Running && row.Token() == e.Token && row.State != e.To {
				as := *row
				as.State = scheduler.Running
				if next, refusal := as.End(*e, m.now()); refusal == nil && !e.Session.IsZero() {
					m.put(row, next)
				}
			}
		})(m, request)
	}},
	{"claim", "the attempt that was seen", onClaims(func(_ *Memory, _ *scheduler.ClaimBatch, c *scheduler.Claim, row *scheduler.Task) {
		if row.State == c.From {
			c.Seen = row.Attempt
		}
	})},
	{"claim", "the row waits still", onClaims(func(m *Memory, b *scheduler.ClaimBatch, c *scheduler.Claim, row *scheduler.Task) {
		if row.State == scheduler.Running && row.Attempt > c.Seen {
			next := *row
			next.Attempt, next.Worker, next.Session, next.StartedAt = row.Attempt+1, c.Worker, b.Session, m.now()
			m.put(row, next)
		}
	})},
	{"claim", "its session has not ended", onClaims(func(m *Memory, b *scheduler.ClaimBatch, c *scheduler.Claim, row *scheduler.Task) {
		if next, refusal := row.Claim(c.From, c.Seen, b.Session, c.Worker, m.now()); refusal == nil {
			m.put(row, next)
		}
	})},
	{"claim", "start_by", onClaims(func(m *Memory, b *scheduler.ClaimBatch, c *scheduler.Claim, row *scheduler.Task) {
		claimed(m, b, c, row, func(t *scheduler.Task) { t.StartBy = time.Time{} })
	})},
	{"claim of a scheduled row", "its wake time", onClaims(func(m *Memory, b *scheduler.ClaimBatch, c *scheduler.Claim, row *scheduler.Task) {
		claimed(m, b, c, row, func(t *scheduler.Task) { t.WakeAt = time.Time{} })
	})},
	{"insert", "the id is new", func(m *Memory, request any) {
		if in, ok := request.(*scheduler.Insert); ok {
			for i := range in.Tasks {
				if row := m.find(in.Region, in.Tasks[i].ID); row != nil {
					m.put(row, *newRow(in.Region, &in.Tasks[i], m.now()))
				}
			}
		}
	}},
	{"insert with a key", "the key is new", func(m *Memory, request any) {
		if _, ok := request.(*scheduler.Insert); ok {
			clear(m.keys)
		}
	}},
	{"insert of an eager start", "its session has not ended", onEager(func(m *Memory, t *scheduler.Task) bool {
		return t.StartBy.IsZero() || t.StartBy.After(m.now())
	})},
	{"insert of an eager start", "start_by", onEager(func(m *Memory, t *scheduler.Task) bool {
		return m.sessionOpen(t.Region, t.Session)
	})},
	{"attach", "the token's attempt and worker", func(m *Memory, request any) {
		if b, ok := request.(*scheduler.AttachBatch); ok {
			for _, token := range b.Tokens {
				row := m.find(b.Region, token.ID)
				if row == nil || !m.sessionOpen(b.Region, b.Session) {
					continue
				}
				if next, refusal := row.Attach(row.Token(), b.Session); refusal == nil {
					m.put(row, next)
				}
			}
		}
	}},
	{"attach", "its session has not ended", func(m *Memory, request any) {
		if b, ok := request.(*scheduler.AttachBatch); ok {
			for _, token := range b.Tokens {
				row := m.find(b.Region, token.ID)
				if row == nil {
					continue
				}
				if next, refusal := row.Attach(token, b.Session); refusal == nil {
					m.put(row, next)
				}
			}
		}
	}},
	{"cancel", "the task is open", func(m *Memory, request any) {
		if b, ok := request.(*scheduler.CancelBatch); ok {
			for _, id := range b.IDs {
				if row := m.find(b.Region, id); row != nil && row.State.Terminal() {
					next := *row
					next.State = scheduler.Canceled
					m.put(row, next)
				}
			}
		}
	}},
	{"wake", "its time has come", func(m *Memory, request any) {
		if b, ok := request.(*scheduler.WakeBatch); ok {
			for _, seen := range b.Rows {
				if row := m.find(b.Region, seen.ID); row != nil {
					as := *row
					as.WakeAt = time.Time{}
					if next, refusal := as.Wake(seen.Attempt, m.now()); refusal == nil {
						m.put(row, next)
					}
				}
			}
		}
	}},
	{"expire", "start_by has passed", func(m *Memory, request any) {
		if b, ok := request.(*scheduler.ExpireBatch); ok {
			for _, id := range b.IDs {
				if row := m.find(b.Region, id); row != nil {
					if next, refusal := row.Expire(row.StartBy); refusal == nil {
						m.put(row, next)
					}
				}
			}
		}
	}},
	{"expire", "the task waits", func(m *Memory, request any) {
		if b, ok := request.(*scheduler.ExpireBatch); ok {
			for _, id := range b.IDs {
				if row := m.find(b.Region, id); row != nil && row.State == scheduler.Running {
					as := *row
					as.State = scheduler.Ready
					if next, refusal := as.Expire(m.now()); refusal == nil {
						m.put(row, next)
					}
				}
			}
		}
	}},
}

// onEager stores eager starts that a guard would have refused, unless another guard does.
func onEager(otherwise func(m *Memory, t *scheduler.Task) bool) func(*Memory, any) {
	return func(m *Memory, request any) {
		in, ok := request.(*scheduler.Insert)
		if !ok {
			return
		}
		for i := range in.Tasks {
			t := &in.Tasks[i]
			_, known := m.keys[memoryKey{t.Tenant, t.IdempotencyKey}]
			if t.State != scheduler.Running || m.find(in.Region, t.ID) != nil || known || !otherwise(m, t) {
				continue
			}
			row := newRow(in.Region, t, m.now())
			m.tasks[row.Ref] = row
			m.rows = append(m.rows, row)
			if t.IdempotencyKey != "" {
				m.keys[memoryKey{t.Tenant, t.IdempotencyKey}] = row.Ref
			}
			m.line(row).Accepted++
			m.watch(nil, row)
		}
	}
}

// Each guard of each write is needed, and the simulation would notice if it were gone.
func TestSimulationFindsAMissingGuard(t *testing.T) {
	for _, g := range guards {
		t.Run(strings.ReplaceAll(g.write+" without "+g.guard, " ", "_"), func(t *testing.T) {
			found := firstViolation(func(m *Memory) engine.Store { return unguarded{m, g.remove} })
			if found == nil {
				t.Fatalf("%d histories, and nobody noticed", historiesDefault)
			}
			t.Logf("seed %d: %s", found.Seed, found.Violations[0])
		})
	}
}

// firstViolation plays the histories of a run until one finds something, and returns the one with the smallest seed.
func firstViolation(store func(*Memory) engine.Store) *History {
	var mu sync.Mutex
	var first *History
	play(1, historiesDefault, func(seed uint64) {
		mu.Lock()
		enough := first != nil && first.Seed < seed
		mu.Unlock()
		if enough {
			return
		}
		h := Simulation{Seed: seed, Store: store}.Run()
		mu.Lock()
		defer mu.Unlock()
		if len(h.Violations) > 0 && (first == nil || h.Seed < first.Seed) {
			first = &h
		}
	})
	return first
}

// The same seed gives the same history, to the byte; a history does not depend on being written down.
func TestSimulationReplaysExactly(t *testing.T) {
	for seed := range uint64(12) {
		first := Simulation{Seed: seed + 1, Traced: true}.Run()
		second := Simulation{Seed: seed + 1, Traced: true}.Run()
		if first.Trace != second.Trace {
			t.Errorf("seed %d: two histories, different from line %q on", seed+1, firstDifference(first.Trace, second.Trace))
		}
		untold := Simulation{Seed: seed + 1}.Run()
		if untold.Statements != first.Statements || untold.Turns != first.Turns || untold.Took != first.Took {
			t.Errorf("seed %d: %s when written down, %s when not", seed+1, summary(&first), summary(&untold))
		}
	}
}

func firstDifference(a, b string) string {
	other := strings.Split(b, "\n")
	for i, line := range strings.Split(a, "\n") {
		if i >= len(other) || line != other[i] {
			return line
		}
	}
	return "the end"
}
