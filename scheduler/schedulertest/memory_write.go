package schedulertest

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/errandhq/errand/scheduler"
)

// Claim turns waiting tasks into running attempts of a session that is not ended.
func (m *Memory) Claim(_ context.Context, b scheduler.ClaimBatch) ([]scheduler.Claimed, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	open, now := m.sessionOpen(b.Region, b.Session), m.now()
	answers := make([]scheduler.Claimed, len(b.Claims))
	for i, c := range b.Claims {
		row := m.find(b.Region, c.ID)
		if row == nil {
			answers[i] = scheduler.Claimed{ID: c.ID, Verdict: scheduler.Missing}
			continue
		}
		if next, refusal := row.Claim(c.From, c.Seen, b.Session, c.Worker, now); refusal == nil && open {
			m.put(row, next)
		}
		answers[i] = scheduler.Claimed{ID: c.ID, Verdict: scheduler.Lost, State: row.State}
		stands := scheduler.Token{ID: c.ID, Attempt: c.Seen + 1, Worker: c.Worker}
		if row.State == scheduler.Running && row.Session == b.Session && row.Token() == stands {
			answers[i].Verdict, answers[i].Start = scheduler.Won, startOf(row)
		}
	}
	return answers, nil
}

// delayMax is the farthest a retry or a snooze may put a task off.
const delayMax = 10 * 365 * 24 * time.Hour

// End closes attempts.
func (m *Memory) End(_ context.Context, b scheduler.EndBatch) ([]scheduler.Ended, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for i := range b.Endings {
		e := &b.Endings[i]
		texts := []string{e.ResultType}
		if e.Failure != nil {
			texts = append(texts, string(e.Failure.Reason), e.Failure.Message)
		}
		if err := storable(scheduler.Ref{Region: b.Region, ID: e.ID}, texts...); err != nil {
			return nil, err
		}
	}
	answers := make([]scheduler.Ended, len(b.Endings))
	for i := range b.Endings {
		answers[i] = m.end(b.Region, b.Endings[i])
	}
	return answers, nil
}

func (m *Memory) end(region string, e scheduler.Ending) scheduler.Ended {
	row, now := m.find(region, e.ID), m.now()
	if row == nil {
		return scheduler.Ended{ID: e.ID, Verdict: scheduler.Missing}
	}
	e.Delay = min(e.Delay, delayMax).Truncate(time.Microsecond)
	next, refusal := row.End(e, now)
	if refusal == nil {
		if next.State != scheduler.Succeeded {
			m.keep(row, &e, now)
		}
		next.Result = slices.Clone(next.Result)
		m.put(row, next)
		return scheduler.Ended{ID: e.ID, Verdict: scheduler.Won, State: row.State, Attempt: row.Attempt, Parent: row.Parent}
	}
	a := scheduler.Ended{ID: e.ID, Verdict: scheduler.Lost, State: row.State, Attempt: row.Attempt, Parent: row.Parent}
	same := row.Token() == e.Token && row.State != scheduler.Running
	if same && (row.State == e.To || (e.To.Waiting() && row.State != scheduler.Succeeded)) {
		a.Verdict = scheduler.Won // by an earlier execution
	}
	return a
}

// keep writes an attempt into its task's history.
func (m *Memory) keep(row *scheduler.Task, e *scheduler.Ending, now time.Time) {
	one := PastAttempt{Number: row.Attempt, Worker: row.Worker, StartedAt: row.StartedAt, EndedAt: now, Counted: e.Counted}
	if e.Failure != nil {
		one.Failure = *e.Failure
	}
	m.past[row.Ref] = append(m.past[row.Ref], one)
}

// Attach takes running attempts over for a session. It fails when nothing but the end of that session is against it.
func (m *Memory) Attach(_ context.Context, b scheduler.AttachBatch) ([]scheduler.Attached, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	open := m.sessionOpen(b.Region, b.Session)
	answers := make([]scheduler.Attached, len(b.Tokens))
	for i, token := range b.Tokens {
		row := m.find(b.Region, token.ID)
		if row == nil {
			answers[i] = scheduler.Attached{ID: token.ID, Verdict: scheduler.Missing}
			continue
		}
		answers[i] = scheduler.Attached{ID: token.ID, Verdict: scheduler.Lost, State: row.State, Latest: row.Token() == token}
		next, refusal := row.Attach(token, b.Session)
		switch {
		case refusal != nil:
		case !open: // the token is good: who asks will know soon that its session is over
			return nil, fmt.Errorf("attach: session %s has ended: %w", b.Session, scheduler.ErrUnavailable)
		default:
			m.put(row, next)
			answers[i].Verdict, answers[i].Held, answers[i].Latest = scheduler.Won, heldOf(row), false
		}
	}
	return answers, nil
}

// Cancel writes the wish to cancel tasks of a tenant.
func (m *Memory) Cancel(_ context.Context, b scheduler.CancelBatch) ([]scheduler.CancelAnswer, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := m.now()
	answers := make([]scheduler.CancelAnswer, len(b.IDs))
	for i, id := range b.IDs {
		row := m.find(b.Region, id)
		if row == nil || row.Tenant != b.Tenant {
			answers[i] = scheduler.CancelAnswer{ID: id, Verdict: scheduler.Missing}
			continue
		}
		if next, refusal := row.Cancel(b.Message, now); refusal == nil {
			m.put(row, next)
		}
		answers[i] = scheduler.CancelAnswer{ID: id, Verdict: scheduler.Won, State: row.State, Token: row.Token(), Session: row.Session, Parent: row.Parent}
		if row.State.Terminal() && row.State != scheduler.Canceled {
			answers[i].Verdict = scheduler.Lost
		}
	}
	return answers, nil
}

// Wake makes scheduled tasks ready whose time has come.
func (m *Memory) Wake(_ context.Context, b scheduler.WakeBatch) ([]scheduler.Moved, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := m.now()
	answers := make([]scheduler.Moved, len(b.Rows))
	for i, seen := range b.Rows {
		row := m.find(b.Region, seen.ID)
		if row == nil {
			answers[i] = scheduler.Moved{ID: seen.ID, Verdict: scheduler.Missing}
			continue
		}
		if next, refusal := row.Wake(seen.Attempt, now); refusal == nil {
			m.put(row, next)
		}
		answers[i] = moved(row, row.State == scheduler.Ready && row.Attempt == seen.Attempt)
	}
	return answers, nil
}

// Expire ends waiting tasks whose start_by has passed.
func (m *Memory) Expire(_ context.Context, b scheduler.ExpireBatch) ([]scheduler.Moved, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := m.now()
	answers := make([]scheduler.Moved, len(b.IDs))
	for i, id := range b.IDs {
		row := m.find(b.Region, id)
		if row == nil {
			answers[i] = scheduler.Moved{ID: id, Verdict: scheduler.Missing}
			continue
		}
		if next, refusal := row.Expire(now); refusal == nil {
			m.put(row, next)
		}
		answers[i] = moved(row, row.State == scheduler.Expired)
	}
	return answers, nil
}

// UpdateTask changes a waiting task of a tenant and returns it as it stands then.
func (m *Memory) UpdateTask(_ context.Context, tenant string, ref scheduler.Ref, c scheduler.Change) (scheduler.Task, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	row := m.tasks[ref]
	if row == nil || row.Tenant != tenant {
		return scheduler.Task{}, scheduler.ErrNotFound
	}
	for k, v := range c.Labels {
		if err := storable(ref, k, v); err != nil {
			return scheduler.Task{}, err
		}
	}
	next, err := row.Update(c.Stored(), m.now())
	if err != nil {
		return scheduler.Task{}, err
	}
	m.line(row).Accepted--
	m.line(&next).Accepted++
	m.put(row, next)
	return *row, nil
}

func moved(row *scheduler.Task, stands bool) scheduler.Moved {
	a := scheduler.Moved{ID: row.ID, Verdict: scheduler.Lost, State: row.State, Due: row.Due, Parent: row.Parent}
	if stands {
		a.Verdict = scheduler.Won
	}
	return a
}

func heldOf(t *scheduler.Task) scheduler.Held {
	return scheduler.Held{
		Token: t.Token(), Session: t.Session, Tenant: t.Tenant, Kind: t.Kind, Tier: t.Tier, Spec: t.Spec,
		Counted: t.Counted, WorkerLosses: t.WorkerLosses, Suspect: t.Suspect, CancelRequested: t.CancelRequested,
		StartedAt: t.StartedAt, ReadyAt: t.ReadyAt, Due: t.Due,
	}
}

func startOf(t *scheduler.Task) scheduler.Start {
	s := scheduler.Start{
		Held: heldOf(t), PayloadSize: len(t.Payload), ContentType: t.ContentType, EffectKey: t.EffectKey, TraceParent: t.TraceParent,
	}
	if len(t.Payload) > 0 && len(t.Payload) <= scheduler.InlinePayloadMax {
		s.Payload = slices.Clone(t.Payload)
	}
	return s
}
