package schedulertest

import (
	"bytes"
	"context"
	"slices"

	"github.com/errandhq/errand/scheduler"
	"github.com/errandhq/errand/scheduler/graph"
)

// memoryEdge is an edge as the child has it.
type memoryEdge struct {
	parent  scheduler.Ref
	outcome scheduler.State // zero while it is open
}

// links are the edges of a [Memory].
type links struct {
	edges    map[scheduler.Ref][]*memoryEdge  // by child, in the order in which it names them
	children map[scheduler.Ref][]scheduler.ID // by parent, by ID
	graphs   map[memoryKey]memoryGraph        // by idempotency key
}

type memoryGraph struct {
	id    scheduler.ID
	print []byte
}

func newLinks() links {
	return links{
		edges: map[scheduler.Ref][]*memoryEdge{}, children: map[scheduler.Ref][]scheduler.ID{}, graphs: map[memoryKey]memoryGraph{},
	}
}

// InsertLinked stores tasks that have parents, or children within the same call.
func (m *Memory) InsertLinked(_ context.Context, in scheduler.InsertLinked) (scheduler.Linked, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	inside := map[scheduler.ID]bool{}
	for i := range in.Tasks {
		t := &in.Tasks[i]
		if err := storable(t.Ref, t.Tenant, t.Kind, t.ContentType, t.TraceParent, t.IdempotencyKey, t.UniqueKey); err != nil {
			return scheduler.Linked{}, err
		}
		inside[t.ID] = true
	}
	answer := scheduler.Linked{Tasks: make([]scheduler.Inserted, len(in.Tasks))}
	if in.Key != "" {
		key := memoryKey{in.Tasks[0].Tenant, in.Key}
		if g, stands := m.links.graphs[key]; stands && g.id != in.Graph {
			answer = scheduler.Linked{Verdict: scheduler.InsertDuplicate, Existing: scheduler.Ref{Region: in.Region, ID: g.id}}
			if !bytes.Equal(g.print, in.Fingerprint) {
				answer.Verdict = scheduler.InsertKeyReused
			}
			return answer, nil
		}
	}
	missing := map[int]scheduler.Ref{}
	for i := range in.Tasks {
		for _, p := range in.Tasks[i].Parents {
			row := m.tasks[p]
			if inside[p.ID] || row != nil && row.Tenant == in.Tasks[i].Tenant && p.Region == in.Region {
				continue
			}
			if !in.Graph.IsZero() {
				return scheduler.Linked{Verdict: scheduler.InsertNoParent, Existing: p, At: i}, nil
			}
			missing[i] = p
			break
		}
	}
	if in.Key != "" {
		m.links.graphs[memoryKey{in.Tasks[0].Tenant, in.Key}] = memoryGraph{in.Graph, in.Fingerprint}
	}
	for i := range in.Tasks {
		if p, gone := missing[i]; gone {
			answer.Tasks[i] = scheduler.Inserted{ID: in.Tasks[i].ID, Verdict: scheduler.InsertNoParent, Existing: p}
			continue
		}
		answer.Tasks[i] = m.link(in.Region, &in.Tasks[i], inside)
	}
	if !in.Graph.IsZero() {
		answer.Verdict = scheduler.InsertStored
	}
	return answer, nil
}

// link stores one task with its edges.
func (m *Memory) link(region string, t *scheduler.Task, inside map[scheduler.ID]bool) scheduler.Inserted {
	known := m.find(region, t.ID) != nil
	a := m.insert(region, t, false)
	if known || a.Verdict != scheduler.InsertStored {
		return a
	}
	child := scheduler.Ref{Region: region, ID: t.ID}
	for _, p := range t.Parents {
		m.links.edges[child] = append(m.links.edges[child], &memoryEdge{parent: p})
		m.links.children[p] = append(m.links.children[p], t.ID)
		slices.SortFunc(m.links.children[p], scheduler.ID.Compare)
		if row := m.tasks[p]; row != nil && !inside[p.ID] {
			m.put(row, row.Adopt(m.now()))
		}
	}
	return a
}

// CloseEdges marks the edges to pages of children of ended parents.
func (m *Memory) CloseEdges(_ context.Context, b scheduler.CloseEdges) ([]scheduler.Closed, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	answers := make([]scheduler.Closed, len(b.Parents))
	for i, p := range b.Parents {
		answers[i].ID = p.ID
		row := m.find(b.Region, p.ID)
		if row == nil || !row.State.Terminal() || row.WakeAt.IsZero() {
			continue
		}
		answers[i].Wake = row.WakeAt
		for _, child := range m.links.children[row.Ref] {
			if child.Compare(p.After) <= 0 || len(answers[i].Children) == b.Limit {
				continue
			}
			answers[i].Children = append(answers[i].Children, child)
			for _, e := range m.links.edges[scheduler.Ref{Region: b.Region, ID: child}] {
				if e.parent == row.Ref && e.outcome == 0 {
					e.outcome = row.State
				}
			}
		}
	}
	return answers, nil
}

// Release evaluates blocked tasks, and lets those go that need not wait.
func (m *Memory) Release(_ context.Context, b scheduler.ReleaseBatch) ([]scheduler.Released, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	answers := make([]scheduler.Released, len(b.IDs))
	for i, id := range b.IDs {
		answers[i] = scheduler.Released{ID: id, Verdict: scheduler.Missing}
		if row := m.find(b.Region, id); row != nil {
			answers[i] = m.release(row, b.Fresh)
		}
	}
	return answers, nil
}

func (m *Memory) release(row *scheduler.Task, fresh bool) scheduler.Released {
	var edges graph.Edges
	var bad *memoryEdge
	for _, e := range m.links.edges[row.Ref] {
		if p := m.tasks[e.parent]; fresh && e.outcome == 0 && p != nil && p.State.Terminal() {
			e.outcome = p.State
		}
		edges = edges.With(scheduler.OutcomeOf(e.outcome))
		if scheduler.OutcomeOf(e.outcome) == graph.Otherwise && bad == nil {
			bad = e
		}
	}
	var next scheduler.Task
	var refusal error
	switch verdict := graph.Evaluate(row.Spec.Condition, edges); {
	case row.State != scheduler.Blocked:
		refusal = scheduler.ErrNotBlocked
	case verdict == graph.Wait:
		if asleep, err := row.Wait(); fresh && err == nil {
			m.put(row, asleep)
		}
		refusal = scheduler.ErrSeenOther
	case verdict == graph.Impossible && row.Spec.Impossible.OrDefault() != graph.Run:
		next, refusal = row.Forsake(scheduler.ParentFailure(&row.Spec, bad.parent, bad.outcome), m.now())
	default:
		next, refusal = row.Release(m.now())
	}
	if refusal != nil {
		return scheduler.Released{ID: row.ID, Verdict: scheduler.Lost, State: row.State, Parent: row.Parent}
	}
	m.put(row, next)
	a := scheduler.Released{ID: row.ID, Verdict: scheduler.Won, State: row.State, Parent: row.Parent && row.State.Terminal()}
	if !row.State.Terminal() {
		a.Row = scheduler.TimedRow{ReadyRow: row.WaitingRow(), WakeAt: row.WakeAt}
	}
	return a
}

// Rest takes the wake times of ended parents away whose children have all been looked at.
func (m *Memory) Rest(_ context.Context, b scheduler.RestBatch) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, p := range b.Parents {
		if row := m.find(b.Region, p.ID); row != nil {
			if next, refusal := row.Rest(p.Wake); refusal == nil {
				m.put(row, next)
			}
		}
	}
	return nil
}
