package schedulertest

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/errandhq/errand/scheduler"
)

// Memory is a store in memory. It moves tasks by the methods of [scheduler.Task], so it refuses what the lifecycle refuses,
// and answers like the SQL store in every other respect. It is safe for concurrent use; the same calls at the same times of
// its clock give the same answers in the same order.
type Memory struct {
	clock func() time.Time

	mu       sync.Mutex
	tasks    map[scheduler.Ref]*scheduler.Task
	rows     []*scheduler.Task // in the order in which they were stored
	keys     map[memoryKey]scheduler.Ref
	held     map[memoryKey]scheduler.Ref // unique keys of open tasks
	past     map[scheduler.Ref][]PastAttempt
	sessions map[memorySession]*scheduler.Session
	ledger   map[ledgerLine]*Balance
	links    links
	settings scheduler.Settings
	watch    func(before, after *scheduler.Task)
}

type memoryKey struct{ tenant, key string }

type memorySession struct {
	region string
	id     scheduler.SessionID
}

type ledgerLine struct {
	region, tenant string
	tier           scheduler.Tier
}

// Balance compares what the ledger counted with the rows, for one tenant and tier of a region.
type Balance struct {
	Tenant                string
	Tier                  scheduler.Tier
	Accepted, Ended, Open int64 // Open is counted from the rows
}

// PastAttempt is an attempt that did not simply succeed.
type PastAttempt struct {
	Number    int64
	Worker    scheduler.WorkerID
	StartedAt time.Time
	EndedAt   time.Time
	Failure   scheduler.Failure
	Counted   bool
}

// NewMemory returns an empty store. clock is the store's clock, which has the last word on every time; it is kept to
// microseconds, as a database does.
func NewMemory(clock func() time.Time) *Memory {
	return &Memory{
		clock:    clock,
		tasks:    map[scheduler.Ref]*scheduler.Task{},
		keys:     map[memoryKey]scheduler.Ref{},
		held:     map[memoryKey]scheduler.Ref{},
		past:     map[scheduler.Ref][]PastAttempt{},
		sessions: map[memorySession]*scheduler.Session{},
		ledger:   map[ledgerLine]*Balance{},
		links:    newLinks(),
	}
}

// Watch has f called for every change of a row, while the change is made: f must not call the store. before is nil for a row
// that was not there.
func (m *Memory) Watch(f func(before, after *scheduler.Task)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.watch = f
}

// Task returns a task as it stands, and false when there is none.
func (m *Memory) Task(ref scheduler.Ref) (scheduler.Task, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	t := m.tasks[ref]
	if t == nil {
		return scheduler.Task{}, false
	}
	return *t, true
}

// Tasks returns all tasks of a region in the order in which they were stored.
func (m *Memory) Tasks(region string) []scheduler.Task {
	m.mu.Lock()
	defer m.mu.Unlock()
	var all []scheduler.Task
	for _, t := range m.rows {
		if t.Region == region {
			all = append(all, *t)
		}
	}
	return all
}

// Attempts returns a task's attempts that did not simply succeed, the first one first.
func (m *Memory) Attempts(ref scheduler.Ref) []PastAttempt {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.past[ref])
}

// Balances compares the ledger of a region with its rows, by tenant and tier.
func (m *Memory) Balances(region string) []Balance {
	m.mu.Lock()
	defer m.mu.Unlock()
	open := map[ledgerLine]int64{}
	for _, t := range m.rows {
		if t.State.Open() {
			open[ledgerLine{t.Region, t.Tenant, t.Tier}]++
		}
	}
	var all []Balance
	for line, counted := range m.ledger {
		if line.region == region {
			b := *counted
			b.Open = open[line]
			all = append(all, b)
		}
	}
	slices.SortFunc(all, func(a, b Balance) int { return cmp.Or(cmp.Compare(a.Tenant, b.Tenant), cmp.Compare(a.Tier, b.Tier)) })
	return all
}

// ForgetSession deletes a session's row, as an operator or a restored backup might.
func (m *Memory) ForgetSession(region string, id scheduler.SessionID) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.sessions, memorySession{region, id})
}

func (m *Memory) now() time.Time { return m.clock().UTC().Truncate(time.Microsecond) }

// sessionOpen tells whether nobody has ended a session. It does not matter whether it has expired.
func (m *Memory) sessionOpen(region string, id scheduler.SessionID) bool {
	s := m.sessions[memorySession{region, id}]
	return s != nil && s.EndedAt.IsZero()
}

func (m *Memory) find(region string, id scheduler.ID) *scheduler.Task {
	return m.tasks[scheduler.Ref{Region: region, ID: id}]
}

func (m *Memory) line(t *scheduler.Task) *Balance {
	line := ledgerLine{t.Region, t.Tenant, t.Tier}
	if m.ledger[line] == nil {
		m.ledger[line] = &Balance{Tenant: t.Tenant, Tier: t.Tier}
	}
	return m.ledger[line]
}

// put replaces a row by what became of it, and counts an end.
func (m *Memory) put(row *scheduler.Task, next scheduler.Task) {
	before := *row
	*row = next
	if before.State.Open() && next.State.Terminal() {
		m.line(row).Ended++
		delete(m.held, memoryKey{row.Tenant, row.UniqueKey})
	}
	if m.watch != nil {
		m.watch(&before, row)
	}
}

// storable refuses texts that a database cannot hold.
func storable(what scheduler.Ref, texts ...string) error {
	for _, text := range texts {
		if strings.ContainsRune(text, 0) || !utf8.ValidString(text) {
			return fmt.Errorf("%s: a text with a NUL or that is not UTF-8: %w", what, scheduler.ErrRefused)
		}
	}
	return nil
}
