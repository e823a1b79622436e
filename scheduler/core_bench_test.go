package scheduler

import (
	"encoding/binary"
	"testing"
	"time"
)

// benchCore is a core with room for 10,000 attempts of each of four kinds on ten workers.
func benchCore() *Core {
	c := NewCore(SessionID{1}, DefaultTiming(), func() float64 { return 0.5 })
	w := &world{core: c}
	for n := range byte(10) {
		w.join(WorkerID{n + 1}, "", map[string]int{"k0": 1000, "k1": 1000, "k2": 1000, "k3": 1000})
	}
	c.Plan(epoch, Room{})
	return c
}

// benchID spreads IDs over sixteen shards, as an instance that serves all lanes does.
func benchID(n int) ID {
	id := ID{byte(n % 16)}
	binary.BigEndian.PutUint64(id[1:], uint64(n))
	return id
}

var benchRoom = Room{Urgent: BatchRowsUrgentMax, Others: BatchRowsMax}

// BenchmarkEagerTask is the whole way of a task that starts at once: admitted, stored, assigned, accepted, reported, ended, in
// batches of 200 as a busy engine makes them. One operation is one task.
func BenchmarkEagerTask(b *testing.B) {
	const batch = 200
	c, now, n := benchCore(), epoch, 0
	b.ReportAllocs()
	for b.Loop() { // one task each; a batch at a time
		if n++; n%batch == 0 {
			now = now.Add(time.Millisecond)
			eagerBatch(b, c, n-batch, batch, now)
		}
	}
}

func eagerBatch(b *testing.B, c *Core, first, n int, now time.Time) {
	tasks := make([]Task, n)
	for i := range tasks {
		tasks[i] = Task{
			Ref: Ref{Region: "here", ID: benchID(first + i)}, Tenant: "x", Kind: "k0", Tier: Standard, State: Ready,
			ReadyAt: now, Due: now.Add(time.Minute),
		}
		if !c.Admit(&tasks[i], now) {
			b.Fatal("not admitted")
		}
	}
	for i := range tasks {
		tasks[i].StartedAt = now
		c.Advance(StartStored{Task: tasks[i]})
	}
	runBatch(b, c, c.Plan(now, benchRoom), now)
}

// runBatch takes what a plan assigns through the rest of its way.
func runBatch(b *testing.B, c *Core, p Plan, now time.Time) {
	n := len(p.Assign)
	tokens, reports := make([]Token, n), make([]Report, n)
	for i := range p.Assign {
		tokens[i] = p.Assign[i].Token
		reports[i] = Report{Token: tokens[i], Outcome: OutcomeSucceeded}
	}
	c.Step(Accepted{Tokens: tokens})
	c.Step(Reported{Reports: reports})
	p = c.Plan(now, Room{})
	if len(p.Endings) != n {
		b.Fatalf("%d endings, want %d", len(p.Endings), n)
	}
	answers := make([]Ended, n)
	for i, e := range p.Endings {
		answers[i] = Ended{ID: e.ID, Verdict: Won, State: Succeeded, Attempt: e.Attempt}
	}
	c.Advance(EndingsAnswered{Endings: p.Endings, Answers: answers})
}

// BenchmarkTaskFromBacklog is the whole way of a task that waits among 100,000 rows of ten tenants and four classes: buffered,
// claimed, won, assigned, accepted, reported, ended, in batches of 1,000. One operation is one task.
func BenchmarkTaskFromBacklog(b *testing.B) {
	const backlog, batch = 100_000, BatchRowsMax
	c, now, rows := benchCore(), epoch, 0
	classes := [4]Class{}
	kinds := [4]string{"k0", "k1", "k2", "k3"}
	for i, kind := range kinds {
		classes[i] = ClassOf(kind, &Spec{})
	}
	more := func(n int) {
		fresh := make([]ReadyRow, n)
		for i := range fresh {
			fresh[i] = ReadyRow{
				ID: benchID(rows), State: Ready, Tenant: string(rune('a' + rows/4%10)), Kind: kinds[rows%4], Tier: Standard,
				Class: classes[rows%4], Due: epoch.Add(time.Duration(rows*7919%backlog) * time.Microsecond),
			}
			rows++
		}
		c.Step(RowsReady{Rows: fresh})
	}
	more(backlog)
	if n := c.Counts().Buffered; n != backlog {
		b.Fatalf("%d rows buffered", n)
	}
	n := 0
	b.ReportAllocs()
	for b.Loop() {
		if n++; n%batch == 0 {
			now = now.Add(time.Millisecond)
			more(batch)
			claimBatch(b, c, batch, now)
		}
	}
}

func claimBatch(b *testing.B, c *Core, batch int, now time.Time) {
	p := c.Plan(now, benchRoom)
	if len(p.Claims) != batch {
		b.Fatalf("%d claims, want %d", len(p.Claims), batch)
	}
	answers := make([]Claimed, batch)
	for i, claim := range p.Claims {
		a := c.attempts.byID[claim.ID]
		held := a.Held
		held.StartedAt = now
		answers[i] = Claimed{ID: claim.ID, Verdict: Won, State: Running, Start: Start{Held: held}}
	}
	c.Advance(ClaimsAnswered{Answers: answers})
	runBatch(b, c, c.Plan(now, Room{}), now)
}
