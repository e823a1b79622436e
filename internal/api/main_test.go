package api

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"connectrpc.com/connect"
	"github.com/jackc/pgx/v5"
	"google.golang.org/protobuf/proto"

	"github.com/errandhq/errand/internal/store"
	"github.com/errandhq/errand/internal/testdb"
	errandv1 "github.com/errandhq/errand/proto/errand/v1"
	"github.com/errandhq/errand/proto/errand/v1/errandv1connect"
	"github.com/errandhq/errand/scheduler"
	"github.com/errandhq/errand/scheduler/engine"
)

func TestMain(m *testing.M) {
	testdb.Main(m, func(ctx context.Context, dsn string) error {
		_, err := store.Migrate(ctx, dsn, slog.New(slog.DiscardHandler))
		return err
	})
}

const (
	region     = "eu"
	patience   = 20 * time.Second // for what must happen; a test that runs into it has failed
	peerSecret = "the-deployments-secret"
)

// edge is a whole scheduler instance behind a real port: store, engine, edge.
type edge struct {
	t      testing.TB
	dsn    string
	url    string
	store  *store.Store
	shell  *engine.Shell
	logs   *logs
	conn   *pgx.Conn
	http   *http.Client // HTTP/2
	admin  string       // secrets
	acme   string
	globex string
	pool   string // for the kinds email and exec
}

// logs collects what an edge logs, and fails the test when a secret is among it.
type logs struct {
	mu      sync.Mutex
	text    bytes.Buffer
	secrets []string
}

func (l *logs) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *logs) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

func (l *logs) keepOut(secret string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.secrets = append(l.secrets, secret)
}

// start runs an instance over a fresh database.
func start(t testing.TB, change ...func(*Config)) *edge {
	t.Helper()
	e := startOver(t, testdb.New(t, testdb.ReadCommitted), change...)
	for _, tenant := range []string{"acme", "globex"} {
		if _, err := e.store.CreateTenant(t.Context(), store.Tenant{Name: tenant, HomeRegion: region, Weight: 1}); err != nil {
			t.Fatal(err)
		}
	}
	e.admin = e.key(store.Key{Scope: store.ScopeAdmin})
	e.acme = e.key(store.Key{Scope: store.ScopeTenant, Tenant: "acme"})
	e.globex = e.key(store.Key{Scope: store.ScopeTenant, Tenant: "globex"})
	e.pool = e.key(store.Key{Scope: store.ScopePool, Kinds: []string{"email", "exec"}})
	return e
}

// startOver runs one more instance over a database.
func startOver(t testing.TB, dsn string, change ...func(*Config)) *edge {
	t.Helper()
	e := &edge{t: t, dsn: dsn, logs: &logs{secrets: []string{peerSecret}}}
	var err error
	if e.store, err = store.Open(t.Context(), store.Config{URL: dsn}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(e.store.Close)
	eng := engine.New(engine.Config{
		Region: region, Timing: scheduler.DefaultTiming(), Rand: rand.New(rand.NewPCG(rand.Uint64(), rand.Uint64())),
	})
	e.shell = engine.NewShell(eng, e.store, nil, nil)
	ctx, stop := context.WithCancel(context.Background())
	ran := make(chan error, 1)
	go func() { ran <- e.shell.Run(ctx, 5*time.Second) }()
	t.Cleanup(func() { stop(); <-ran })

	cfg := Config{
		Region: region, PeerSecret: peerSecret, Scheduler: e.shell, Peer: e.shell, Workers: e.shell, Tasks: e.store, Tenants: e.store,
		Kinds: e.store, Limits: e.store, Places: e.store, Keys: e.store, Auditor: e.store, Standing: e.store, Ready: func() error { return nil },
		Log: slog.New(slog.NewJSONHandler(e.logs, &slog.HandlerOptions{Level: slog.LevelDebug})),
	}
	for _, c := range change {
		c(&cfg)
	}
	handler, err := Handler(cfg)
	if err != nil {
		t.Fatal(err)
	}
	e.url = serve(t, handler).URL
	e.http = http2Client(t)
	eventually(t, "a session", func() bool { return e.shell.Status().Trusted && e.shell.Settled() })
	t.Cleanup(func() {
		for _, secret := range e.logs.secrets {
			if strings.Contains(e.logs.String(), secret) {
				t.Errorf("a secret is in the log: %s", e.logs)
			}
		}
	})
	return e
}

func serve(t testing.TB, handler http.Handler) *httptest.Server {
	t.Helper()
	s := httptest.NewUnstartedServer(handler)
	s.Config.Protocols = new(http.Protocols)
	s.Config.Protocols.SetHTTP1(true)
	s.Config.Protocols.SetUnencryptedHTTP2(true)
	s.Start()
	t.Cleanup(s.Close)
	t.Cleanup(s.CloseClientConnections) // before Close, which waits for open streams
	return s
}

func http2Client(t testing.TB) *http.Client {
	protocols := new(http.Protocols)
	protocols.SetUnencryptedHTTP2(true)
	transport := &http.Transport{Protocols: protocols}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport}
}

// eventually waits for something that no event tells of.
func eventually(t testing.TB, what string, happened func() bool) {
	t.Helper()
	deadline := time.NewTimer(patience)
	defer deadline.Stop()
	look := time.NewTicker(5 * time.Millisecond)
	defer look.Stop()
	for !happened() {
		select {
		case <-deadline.C:
			t.Fatalf("waited %v in vain for %s", patience, what)
		case <-look.C:
		}
	}
}

// key stores a key and returns its secret.
func (e *edge) key(k store.Key) string {
	e.t.Helper()
	secret, hash := NewSecret()
	k.ID, k.Hash = NewKeyID(), hash
	if err := e.store.CreateKey(e.t.Context(), k); err != nil {
		e.t.Fatal(err)
	}
	e.logs.keepOut(secret)
	return secret
}

// past is a connection past the store.
func (e *edge) past() *pgx.Conn {
	e.t.Helper()
	if e.conn == nil {
		conn, err := pgx.Connect(e.t.Context(), e.dsn)
		if err != nil {
			e.t.Fatal(err)
		}
		e.t.Cleanup(func() { conn.Close(context.Background()) })
		e.conn = conn
	}
	return e.conn
}

// sql runs a statement past the store and returns its one value as text.
func (e *edge) sql(query string, args ...any) string {
	e.t.Helper()
	var text *string
	if err := e.past().QueryRow(e.t.Context(), query, args...).Scan(&text); err != nil {
		e.t.Fatalf("%s: %v", query, err)
	}
	if text == nil {
		return ""
	}
	return *text
}

// rowCounts counts the rows of everything that a request could store.
func (e *edge) rowCounts() string {
	e.t.Helper()
	return e.sql(`SELECT format('tasks %s keys %s ledger %s tenants %s api keys %s', (SELECT count(*) FROM tasks),
		(SELECT count(*) FROM idempotency_keys), (SELECT sum(accepted) FROM ledger), (SELECT count(*) FROM tenants), (SELECT count(*) FROM api_keys))
		|| format(' kinds %s limits %s', (SELECT count(*) FROM kinds), (SELECT count(*) FROM limits))`)
}

// bearerOf sends a key with every call.
type bearerOf string

func (b bearerOf) WrapUnary(next connect.UnaryFunc) connect.UnaryFunc {
	return func(ctx context.Context, req connect.AnyRequest) (connect.AnyResponse, error) {
		req.Header().Set("Authorization", "Bearer "+string(b))
		return next(ctx, req)
	}
}

func (b bearerOf) WrapStreamingClient(next connect.StreamingClientFunc) connect.StreamingClientFunc {
	return func(ctx context.Context, spec connect.Spec) connect.StreamingClientConn {
		conn := next(ctx, spec)
		conn.RequestHeader().Set("Authorization", "Bearer "+string(b))
		return conn
	}
}

func (b bearerOf) WrapStreamingHandler(next connect.StreamingHandlerFunc) connect.StreamingHandlerFunc {
	return next
}

func (e *edge) tasks(key string, options ...connect.ClientOption) errandv1connect.TaskServiceClient {
	return errandv1connect.NewTaskServiceClient(e.http, e.url, append(options, connect.WithInterceptors(bearerOf(key)))...)
}

func (e *edge) operator() errandv1connect.AdminServiceClient {
	return errandv1connect.NewAdminServiceClient(e.http, e.url, connect.WithInterceptors(bearerOf(e.admin)))
}

// submit stores a task of acme's.
func (e *edge) submit(spec *errandv1.TaskSpec) *errandv1.SubmitTaskResponse {
	e.t.Helper()
	resp, err := e.tasks(e.acme).SubmitTask(e.t.Context(), &errandv1.SubmitTaskRequest{Spec: spec})
	if err != nil {
		e.t.Fatal(err)
	}
	return resp
}

func (e *edge) get(taskID string) *errandv1.Task {
	e.t.Helper()
	resp, err := e.tasks(e.acme).GetTask(e.t.Context(), &errandv1.GetTaskRequest{TaskId: taskID, IncludeAttempts: true})
	if err != nil {
		e.t.Fatal(err)
	}
	return resp.GetTask()
}

// await waits until the task has ended.
func (e *edge) await(taskID string) *errandv1.Task {
	e.t.Helper()
	resp, err := e.tasks(e.acme).WaitTask(e.t.Context(), &errandv1.WaitTaskRequest{TaskId: taskID})
	if err != nil || !resp.GetEnded() {
		e.t.Fatalf("wait for %s: %v, %v", taskID, resp, err)
	}
	return resp.GetTask()
}

// answer is what a call over plain HTTP got.
type answer struct {
	status int
	code   string // Connect's name of the code; empty for OK
	text   string
	detail *errandv1.ErrorDetail
	body   []byte
}

// String is for failures of tests.
func (a *answer) String() string {
	return fmt.Sprintf("%d %s %s %q %q", a.status, a.code, a.detail.GetReason(), a.detail.GetField(), a.text)
}

// post makes a call as curl would, over HTTP/1.1.
func (e *edge) post(procedure, key, contentType string, body []byte) *answer {
	e.t.Helper()
	return post(e.t, http.DefaultClient, e.url+procedure, key, contentType, body)
}

func post(t testing.TB, client *http.Client, url, key, contentType string, body []byte) *answer {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", contentType)
	if key != "" {
		req.Header.Set("Authorization", "Bearer "+key)
	}
	resp, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	a := &answer{status: resp.StatusCode}
	if a.body, err = io.ReadAll(resp.Body); err != nil {
		t.Fatal(err)
	}
	if a.status != http.StatusOK && strings.HasPrefix(resp.Header.Get("Content-Type"), "application/json") {
		a.parse(t, a.body)
	}
	return a
}

// parse reads a Connect error.
func (a *answer) parse(t testing.TB, raw []byte) {
	t.Helper()
	var wire struct {
		Code    string
		Message string
		Details []struct{ Type, Value string }
	}
	if err := json.Unmarshal(raw, &wire); err != nil {
		t.Fatalf("an error is not JSON: %d %q", a.status, raw)
	}
	a.code, a.text = wire.Code, wire.Message
	for _, d := range wire.Details {
		if d.Type != "errand.v1.ErrorDetail" {
			continue
		}
		value, err := base64.RawStdEncoding.DecodeString(d.Value)
		if err != nil {
			t.Fatal(err)
		}
		a.detail = &errandv1.ErrorDetail{}
		if err := proto.Unmarshal(value, a.detail); err != nil {
			t.Fatal(err)
		}
	}
}

// fromAddress is a client whose calls come from an address of its own, for what is counted per address.
func fromAddress(t testing.TB, last byte) *http.Client {
	dialer := &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 7, last)}}
	transport := &http.Transport{DialContext: dialer.DialContext}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport}
}

func detail(t testing.TB, err error) *errandv1.ErrorDetail {
	t.Helper()
	ce, is := err.(*connect.Error) //nolint:errorlint // clients get exactly this type
	if !is {
		t.Fatalf("not an error of a call: %v", err)
	}
	return detailOf(ce)
}
