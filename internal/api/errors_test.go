package api

import (
	"context"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"connectrpc.com/connect"

	"github.com/errandhq/errand/internal/store"
	errandv1 "github.com/errandhq/errand/proto/errand/v1"
	"github.com/errandhq/errand/scheduler"
	"github.com/errandhq/errand/scheduler/engine"
)

// inner are the packages whose errors reach the edge, by the names under which errors.go imports them.
var inner = map[string]string{"scheduler": "../../scheduler", "engine": "../../scheduler/engine", "store": "../store"}

// parsed returns the syntax of a folder's files, without tests.
func parsed(t *testing.T, dir string) []*ast.File {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var files []*ast.File
	for _, entry := range entries {
		name := entry.Name()
		if !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), filepath.Join(dir, name), nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, file)
	}
	return files
}

// sentinels lists the exported error variables of a package.
func sentinels(t *testing.T, dir string) []string {
	t.Helper()
	var found []string
	for _, file := range parsed(t, dir) {
		for _, decl := range file.Decls {
			general, is := decl.(*ast.GenDecl)
			if !is || general.Tok != token.VAR {
				continue
			}
			for _, spec := range general.Specs {
				for _, name := range spec.(*ast.ValueSpec).Names {
					if strings.HasPrefix(name.Name, "Err") {
						found = append(found, name.Name)
					}
				}
			}
		}
	}
	return found
}

// causes lists what stands in the table's cause column.
func causes(t *testing.T) map[string]bool {
	t.Helper()
	found := map[string]bool{}
	for _, file := range parsed(t, ".") {
		ast.Inspect(file, func(n ast.Node) bool {
			pair, is := n.(*ast.KeyValueExpr)
			if !is {
				return true
			}
			if key, named := pair.Key.(*ast.Ident); !named || key.Name != "cause" {
				return true
			}
			switch value := pair.Value.(type) {
			case *ast.SelectorExpr:
				found[value.X.(*ast.Ident).Name+"."+value.Sel.Name] = true
			case *ast.Ident:
				found[value.Name] = true
			}
			return true
		})
	}
	return found
}

func TestEverySentinelHasARow(t *testing.T) {
	rows := causes(t)
	total := 0
	for name, dir := range inner {
		for _, sentinel := range sentinels(t, dir) {
			total++
			if !rows[name+"."+sentinel] {
				t.Errorf("%s.%s has no row in errors.go: clients would see an internal error", name, sentinel)
			}
		}
	}
	if total < 15 {
		t.Errorf("found %d sentinels: the test does not see them all", total)
	}
}

func TestReasonsAreStableWords(t *testing.T) {
	for _, r := range table {
		word := strings.Trim(r.reason, "ABCDEFGHIJKLMNOPQRSTUVWXYZ_")
		if r.reason == "" || word != "" {
			t.Errorf("the reason %q of %v is not in UPPER_SNAKE", r.reason, r.cause)
		}
		got := outside(fmt.Errorf("doing this: %w: %w", r.cause, errors.New("password=hunter2")))
		if got.Code() != r.code || detailOf(got).GetReason() != r.reason {
			t.Errorf("%v looks like %v %v", r.cause, got.Code(), detailOf(got))
		}
		if strings.Contains(got.Message(), "hunter2") {
			t.Errorf("%v shows its cause: %s", r.cause, got.Message())
		}
		if !errors.Is(got, r.cause) {
			t.Errorf("%v has lost its cause: the log could not tell it", r.cause)
		}
	}
}

// leaking fails every call with a text that must not leave.
type leaking struct {
	Scheduler
	Tasks
	Keys
	Tenants
	Kinds
	Limits
	Auditor
	err error
}

func (l *leaking) Submit(context.Context, []scheduler.Task) ([]engine.SubmitOutcome, error) {
	return nil, l.err
}

func (l *leaking) Cancel(context.Context, string, string, string, []scheduler.ID) ([]scheduler.CancelAnswer, error) {
	return nil, l.err
}

func (l *leaking) Task(context.Context, string, scheduler.Ref) (scheduler.Task, error) {
	return scheduler.Task{}, l.err
}

func (l *leaking) ListTasks(context.Context, store.ListQuery) (store.ListPage, error) {
	return store.ListPage{}, l.err
}

func (l *leaking) CreateTenant(context.Context, store.Tenant) (store.Tenant, error) {
	return store.Tenant{}, l.err
}

func (l *leaking) Tenant(context.Context, string) (store.Tenant, error) { return store.Tenant{}, l.err }

func (l *leaking) ListTenants(context.Context, string, int) ([]store.Tenant, error) {
	return nil, l.err
}

func (l *leaking) UpdateTenant(context.Context, store.TenantChange) (store.Tenant, error) {
	return store.Tenant{}, l.err
}

func (l *leaking) DeleteTenant(context.Context, string) error { return l.err }

func (l *leaking) PutKind(context.Context, string, string, *scheduler.KindDefaults) (scheduler.KindSettings, error) {
	return scheduler.KindSettings{}, l.err
}

func (l *leaking) PauseKind(context.Context, string, string) (scheduler.KindSettings, error) {
	return scheduler.KindSettings{}, l.err
}

func (l *leaking) ResumeKind(context.Context, string, string) (scheduler.KindSettings, error) {
	return scheduler.KindSettings{}, l.err
}

func (l *leaking) Kind(context.Context, string, string) (scheduler.KindSettings, error) {
	return scheduler.KindSettings{}, l.err
}

func (l *leaking) ListKinds(context.Context, string, string, int) ([]scheduler.KindSettings, error) {
	return nil, l.err
}

func (l *leaking) PutLimit(context.Context, scheduler.LimitSettings) (scheduler.LimitSettings, error) {
	return scheduler.LimitSettings{}, l.err
}

func (l *leaking) DeleteLimit(context.Context, string, string) error { return l.err }

func (l *leaking) ListLimits(context.Context, string, string, int) ([]scheduler.LimitSettings, error) {
	return nil, l.err
}

func (l *leaking) CreateKey(context.Context, store.Key) error { return l.err }

func (l *leaking) ListKeys(context.Context, string, string, int) ([]store.Key, error) {
	return nil, l.err
}

func (l *leaking) RevokeKey(context.Context, string) (store.Key, error) { return store.Key{}, l.err }

func (l *leaking) Audit(context.Context, string) (store.Report, error) { return store.Report{}, l.err }

// panicking has a bug.
type panicking struct{ Tasks }

func (panicking) Task(context.Context, string, scheduler.Ref) (scheduler.Task, error) {
	panic("postgres://errand:hunter2@db/errand")
}

const someTask = "eu.0000000000000000000000000g"

func TestNoInternalTextLeaves(t *testing.T) {
	secret := "postgres://errand:hunter2@db.internal/errand"
	for _, cause := range []error{errors.New(secret), fmt.Errorf("%s: %w", secret, scheduler.ErrUnavailable), fmt.Errorf("%s: %w", secret, scheduler.ErrRefused)} {
		e := start(t, func(c *Config) {
			l := &leaking{Scheduler: c.Scheduler, Tasks: c.Tasks, Keys: c.Keys, Tenants: c.Tenants, Kinds: c.Kinds, Limits: c.Limits, Auditor: c.Auditor, err: cause}
			c.Scheduler, c.Tasks, c.Keys, c.Tenants, c.Kinds, c.Limits, c.Auditor = l, l, l, l, l, l, l
		})
		calls := map[string]struct{ key, body string }{
			"TaskService/SubmitTask":    {e.acme, `{"spec":{"kind":"email"}}`},
			"TaskService/SubmitTasks":   {e.acme, `{"specs":[{"kind":"email"}]}`},
			"TaskService/GetTask":       {e.acme, `{"taskId":"` + someTask + `"}`},
			"TaskService/WaitTask":      {e.acme, `{"taskId":"` + someTask + `"}`},
			"TaskService/ListTasks":     {e.acme, `{}`},
			"TaskService/CancelTask":    {e.acme, `{"taskId":"` + someTask + `"}`},
			"AdminService/CreateTenant": {e.admin, `{"name":"initech"}`},
			"AdminService/GetTenant":    {e.admin, `{"name":"acme"}`},
			"AdminService/UpdateTenant": {e.admin, `{"name":"acme"}`},
			"AdminService/ListTenants":  {e.admin, `{}`},
			"AdminService/PauseTenant":  {e.admin, `{"name":"acme"}`},
			"AdminService/ResumeTenant": {e.admin, `{"name":"acme"}`},
			"AdminService/DeleteTenant": {e.admin, `{"name":"acme"}`},
			"AdminService/PutKind":      {e.admin, `{"kind":{"tenant":"acme","name":"email"}}`},
			"AdminService/GetKind":      {e.admin, `{"tenant":"acme","name":"email"}`},
			"AdminService/ListKinds":    {e.admin, `{"tenant":"acme"}`},
			"AdminService/PauseKind":    {e.admin, `{"tenant":"acme","name":"email"}`},
			"AdminService/ResumeKind":   {e.admin, `{"tenant":"acme","name":"email"}`},
			"AdminService/PutLimit":     {e.admin, `{"limit":{"tenant":"acme","name":"api"}}`},
			"AdminService/DeleteLimit":  {e.admin, `{"tenant":"acme","name":"api"}`},
			"AdminService/ListLimits":   {e.admin, `{"tenant":"acme"}`},
			"AdminService/CreateKey":    {e.admin, `{"scope":"KEY_SCOPE_ADMIN"}`},
			"AdminService/ListKeys":     {e.admin, `{}`},
			"AdminService/RevokeKey":    {e.admin, `{"keyId":"key-1"}`},
			"AdminService/Audit":        {e.admin, `{}`},
		}
		for rpc, call := range calls {
			got := e.post("/errand.v1."+rpc, call.key, "application/json", []byte(call.body))
			if got.status == 200 || got.detail.GetReason() == "" {
				t.Errorf("%s of a broken store: %s", rpc, got)
			}
			if strings.Contains(string(got.body), "hunter2") {
				t.Errorf("%s shows internal text: %s", rpc, got.body)
			}
		}
		for _, protocol := range protocols() {
			_, err := e.tasks(e.acme, protocol.options...).GetTask(t.Context(), &errandv1.GetTaskRequest{TaskId: someTask})
			if err == nil || strings.Contains(fmt.Sprintf("%+v %v", err, detail(t, err)), "hunter2") {
				t.Errorf("%s shows internal text: %v", protocol.name, err)
			}
		}
		if errors.Is(cause, scheduler.ErrUnavailable) || !errors.Is(cause, scheduler.ErrRefused) {
			if !strings.Contains(e.logs.String(), "hunter2") {
				t.Errorf("the cause %v is not in the log either: nobody could find it", cause)
			}
		}
	}
}

func TestAPanicEndsOneCall(t *testing.T) {
	e := start(t, func(c *Config) { c.Tasks = panicking{c.Tasks} })
	got := e.post("/errand.v1.TaskService/GetTask", e.acme, "application/json", []byte(`{"taskId":"`+someTask+`"}`))
	if got.code != "internal" || got.detail.GetReason() != reasonInternal || strings.Contains(string(got.body), "hunter2") {
		t.Errorf("a panic answered %s", got.body)
	}
	if !strings.Contains(e.logs.String(), "a call panicked") {
		t.Error("the panic is not in the log")
	}
	e.submit(&errandv1.TaskSpec{Kind: "email"})
}

func TestSecretsAreComparedInConstantTime(t *testing.T) {
	found := []string{}
	for _, file := range parsed(t, ".") {
		for _, decl := range file.Decls {
			f, is := decl.(*ast.FuncDecl)
			if !is {
				continue
			}
			ast.Inspect(f, func(n ast.Node) bool {
				if call, is := n.(*ast.SelectorExpr); is && call.Sel.Name == "ConstantTimeCompare" {
					found = append(found, f.Name.Name)
				}
				return true
			})
		}
	}
	slices.Sort(found)
	if want := []string{"ask", "peersOnly"}; !slices.Equal(found, want) {
		t.Errorf("secrets are compared in constant time in %v, want %v", found, want)
	}
}

// protocol is one way to call.
type protocol struct {
	name    string
	options []connect.ClientOption
}

func protocols() []protocol {
	return []protocol{
		{"Connect", nil},
		{"Connect with JSON", []connect.ClientOption{connect.WithProtoJSON()}},
		{"Connect with GET", []connect.ClientOption{connect.WithHTTPGet()}},
		{"gRPC", []connect.ClientOption{connect.WithGRPC()}},
		{"gRPC-Web", []connect.ClientOption{connect.WithGRPCWeb()}},
	}
}

// A client's author finds every reason in the manual.
func TestEveryReasonIsInTheManual(t *testing.T) {
	manual, err := os.ReadFile("../../docs/api.md")
	if err != nil {
		t.Fatal(err)
	}
	reasons := []string{
		reasonInvalidField, reasonMalformed, reasonNotYetAvailable, reasonUnauthenticated, reasonForbidden, reasonTooManyFailures,
		reasonInternal, "TOO_MANY_OPEN_TASKS",
	}
	for _, r := range table {
		reasons = append(reasons, r.reason)
	}
	for _, reason := range reasons {
		if !strings.Contains(string(manual), "`"+reason+"`") {
			t.Errorf("docs/api.md does not tell of %s", reason)
		}
	}
}
