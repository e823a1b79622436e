// Package testdb gives tests databases: one private PostgreSQL per test binary, and a fresh database per test, copied from a
// template on which the schema was made once. A missing PostgreSQL fails the tests; it never skips them.
package testdb

import (
	"context"
	"fmt"
	"os"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/errandhq/errand/internal/devcluster"
)

// Isolation is a database's default transaction isolation.
type Isolation string

// The isolations that tests run under.
const (
	ReadCommitted Isolation = "read committed"
	Serializable  Isolation = "serializable"
)

const template = "errand_template"

var (
	server *devcluster.Postgres
	count  atomic.Int64
)

// Main runs a package's tests with a server; prepare makes the schema in the template database. Call it from TestMain.
func Main(m *testing.M, prepare func(ctx context.Context, dsn string) error) {
	code, err := run(m, prepare)
	if err != nil {
		fmt.Fprintln(os.Stderr, "testdb:", err)
		code = 1
	}
	os.Exit(code)
}

func run(m *testing.M, prepare func(ctx context.Context, dsn string) error) (int, error) {
	ctx := context.Background()
	dir, err := os.MkdirTemp("", "errand-testdb-")
	if err != nil {
		return 1, err
	}
	defer func() { _ = os.RemoveAll(dir) }() // a leftover blocks nobody
	if err := os.Chmod(dir, 0o755); err != nil {
		return 1, err
	}
	if server, err = devcluster.NewPostgres(dir, false); err != nil {
		return 1, err
	}
	if err := server.Start(ctx); err != nil {
		return 1, err
	}
	defer server.Stop()
	if err := admin(ctx, "CREATE DATABASE "+template); err != nil {
		return 1, err
	}
	if prepare != nil {
		if err := prepare(ctx, server.DSN(template)); err != nil {
			return 1, fmt.Errorf("prepare the template: %w", err)
		}
	}
	return m.Run(), nil
}

// New makes a database for one test and returns its URL. It is dropped when the test ends.
func New(t testing.TB, isolation Isolation) string {
	t.Helper()
	ctx := context.Background()
	name := fmt.Sprintf("t%d", count.Add(1))
	for _, sql := range []string{
		"CREATE DATABASE " + name + " TEMPLATE " + template,
		"ALTER DATABASE " + name + " SET default_transaction_isolation = '" + string(isolation) + "'",
	} {
		if err := admin(ctx, sql); err != nil {
			t.Fatalf("%s: %v", strings.Fields(sql)[0], err)
		}
	}
	t.Cleanup(func() {
		if err := admin(ctx, "DROP DATABASE "+name+" WITH (FORCE)"); err != nil {
			t.Errorf("drop %s: %v", name, err)
		}
	})
	return server.DSN(name)
}

func admin(ctx context.Context, sql string) error {
	conn, err := pgx.Connect(ctx, server.DSN("postgres"))
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close(ctx) }()
	_, err = conn.Exec(ctx, sql)
	return err
}

// Redis runs a private Redis for one test.
func Redis(t testing.TB) *devcluster.Redis {
	t.Helper()
	r, err := devcluster.NewRedis(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Start(context.Background()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.Stop)
	return r
}
