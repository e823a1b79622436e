package api

import (
	"context"
	"time"

	"github.com/errandhq/errand/fairness/tokenbucket"
	"github.com/errandhq/errand/internal/store"
	peerv1 "github.com/errandhq/errand/proto/errand/peer/v1"
	errandv1 "github.com/errandhq/errand/proto/errand/v1"
	"github.com/errandhq/errand/scheduler"
	"github.com/errandhq/errand/scheduler/engine"
)

// Scheduler is what the edge needs of the scheduler instance in this process. [engine.Shell] implements it.
type Scheduler interface {
	Submit(ctx context.Context, tasks []scheduler.Task) ([]engine.SubmitOutcome, error)
	// Link stores tasks that have parents, or are a graph.
	Link(ctx context.Context, in engine.LinkAsked) (engine.LinkAnswered, error)
	Cancel(ctx context.Context, region, tenant, message string, ids []scheduler.ID) ([]scheduler.CancelAnswer, error)
	// Explain says what keeps a waiting task from starting as far as this instance knows, or with a token where that attempt runs.
	Explain(ctx context.Context, row scheduler.ReadyRow, token scheduler.Token) (scheduler.Hold, error)
	// Updated tells of a waiting task that was changed in the store.
	Updated(t scheduler.Task)
	Watch(ids []scheduler.ID, ended chan<- scheduler.ID) (stop func())
	OpenStream() *engine.Stream
	Status() engine.Status
	StoreNow() time.Time
	// Settled tells whether it is known what operators have set. Until then no task can be given its kind's defaults.
	Settled() bool
}

// Peer is what other instances may ask of this one. [engine.Shell] implements it.
type Peer interface {
	Lend(ctx context.Context, room []scheduler.KindRoom, limit int, to scheduler.Borrower) ([]scheduler.ReadyRow, error)
	Watch(ids []scheduler.ID, ended chan<- scheduler.ID) (stop func())
	Post(inputs ...engine.Input)
}

// Others reaches the region's other instances. [Peers] implements it.
type Others interface {
	Overview(ctx context.Context, peer scheduler.Session) (*errandv1.Overview, error)
	Workers(ctx context.Context, peer scheduler.Session, req *peerv1.WorkersRequest) (*peerv1.WorkersResponse, error)
	MarkWorker(ctx context.Context, peer scheduler.Session, req *peerv1.MarkWorkerRequest) (*peerv1.MarkWorkerResponse, error)
	Explain(ctx context.Context, peer scheduler.Session, t *scheduler.Task) (*scheduler.Hold, error)
}

// Workers are the workers of this instance. [engine.Shell] implements it.
type Workers interface {
	Workers(ctx context.Context) ([]engine.WorkerInfo, error)
	// MarkWorker does what an operator wants of one. Its errors are engine.ErrNoWorker, engine.ErrWorkerGone and engine.ErrMarksFull.
	MarkWorker(ctx context.Context, id scheduler.WorkerID, change engine.MarkChange) (engine.WorkerInfo, error)
}

// Tasks reads tasks, and changes those that wait.
type Tasks interface {
	Links
	// Task returns a tenant's task, or store.ErrNotFound.
	Task(ctx context.Context, tenant string, ref scheduler.Ref) (scheduler.Task, error)
	// UpdateTask changes a waiting task of a tenant and returns it as it stands then. Its errors are scheduler.ErrNotFound, a
	// scheduler.BadChange, scheduler.ErrNotWaiting, ErrTooLate and ErrSeenOther.
	UpdateTask(ctx context.Context, tenant string, ref scheduler.Ref, c scheduler.Change) (scheduler.Task, error)
	// TaskAttempts returns the latest attempts that did not simply succeed, oldest first, at most limit.
	TaskAttempts(ctx context.Context, ref scheduler.Ref, limit int) ([]store.AttemptRecord, error)
	// ListTasks returns a page.
	ListTasks(ctx context.Context, q store.ListQuery) (store.ListPage, error)
	// TaskStates returns the states of tasks by ID; ones that are not there are missing. For waits: cheap.
	TaskStates(ctx context.Context, region string, ids []scheduler.ID) (map[scheduler.ID]scheduler.State, error)
}

// Keys keeps API keys.
type Keys interface {
	CreateKey(ctx context.Context, k store.Key) error
	// LookupKey returns the key with this hash, revoked or not, or store.ErrNotFound.
	LookupKey(ctx context.Context, hash []byte) (store.Key, error)
	ListKeys(ctx context.Context, tenant, after string, limit int) ([]store.Key, error)
	RevokeKey(ctx context.Context, id string) (store.Key, error)
}

// Tenants keeps tenants.
type Tenants interface {
	CreateTenant(ctx context.Context, t store.Tenant) (store.Tenant, error)
	UpdateTenant(ctx context.Context, c store.TenantChange) (store.Tenant, error)
	Tenant(ctx context.Context, name string) (store.Tenant, error)
	ListTenants(ctx context.Context, after string, limit int) ([]store.Tenant, error)
	// DeleteTenant removes a tenant; its error is a store.BusyTenantError while it has open tasks.
	DeleteTenant(ctx context.Context, name string) error
}

// Kinds keeps what is set for kinds. Writes return store.ErrNotFound when there is no such tenant; ResumeKind and Kind also when the
// kind is not stored.
type Kinds interface {
	PutKind(ctx context.Context, tenant, kind string, defaults *scheduler.KindDefaults) (scheduler.KindSettings, error)
	PauseKind(ctx context.Context, tenant, kind string) (scheduler.KindSettings, error)
	ResumeKind(ctx context.Context, tenant, kind string) (scheduler.KindSettings, error)
	Kind(ctx context.Context, tenant, kind string) (scheduler.KindSettings, error)
	ListKinds(ctx context.Context, tenant, after string, limit int) ([]scheduler.KindSettings, error)
}

// Limits keeps named limits.
type Limits interface {
	// PutLimit returns store.ErrNotFound when there is no such tenant.
	PutLimit(ctx context.Context, l scheduler.LimitSettings) (scheduler.LimitSettings, error)
	// DeleteLimit returns store.ErrNotFound when there is no such limit.
	DeleteLimit(ctx context.Context, tenant, name string) error
	ListLimits(ctx context.Context, tenant, after string, limit int) ([]scheduler.LimitSettings, error)
}

// Settings tells what operators have set, as this instance knows it: at most seconds old, and from memory.
type Settings interface {
	Kind(tenant, kind string) (scheduler.KindSettings, bool)
	Tenant(tenant string) (scheduler.TenantSettings, bool)
}

// nothingSet is the Settings of an edge that was given none.
type nothingSet struct{}

// Kind knows of none.
func (nothingSet) Kind(string, string) (scheduler.KindSettings, bool) {
	return scheduler.KindSettings{}, false
}

// Tenant knows of none.
func (nothingSet) Tenant(string) (scheduler.TenantSettings, bool) {
	return scheduler.TenantSettings{}, false
}

// Admission keeps the token buckets of tenants. [tokenbucket.Buckets] implements it.
type Admission interface {
	// Admit answers each ask, in order; it neither fails nor waits for long.
	Admit(ctx context.Context, asks []tokenbucket.Ask) []tokenbucket.Answer
}

// Standing tells what of a tenant's is in the store already.
type Standing interface {
	// CountOpenOf returns how many tasks of a tenant are open, in all regions.
	CountOpenOf(ctx context.Context, tenant string) (int64, error)
	// KeyedTasks returns what idempotency keys of a tenant stand for, by key; those that stand for nothing are missing.
	KeyedTasks(ctx context.Context, region, tenant string, keys []string) (map[string]store.KeyedTask, error)
}

// AdmissionObserver is told what becomes of submits at the intake. It must not wait.
type AdmissionObserver interface {
	// Admitted counts tasks by what became of them: one of admitted, demoted, existed, over_rate, over_urgent_rate, too_many_open.
	Admitted(outcome string, tasks int)
	// Asked tells how long the buckets took to answer.
	Asked(took time.Duration)
}

// unobserved observes nothing.
type unobserved struct{}

// Admitted is not counted.
func (unobserved) Admitted(string, int) {}

// Asked is not recorded.
func (unobserved) Asked(time.Duration) {}

// Auditor proves P2 and P3 on the live system.
type Auditor interface {
	Audit(ctx context.Context, region string) (store.Report, error)
}
