// Package testdb gives tests databases: one private PostgreSQL per test binary, and a fresh database per test, copied from a
// template in which the schema was made once.
//
//	func TestMain(m *testing.M) { testdb.Main(m, migrate) }
//
//	func TestX(t *testing.T) { url := testdb.New(t, testdb.ReadCommitted) ... }
//
// A missing PostgreSQL or Redis fails the tests; it never skips them. With ERRAND_TEST_POSTGRES_URL the databases are made on that
// server instead, by a user that may make databases.
package testdb

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"os"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"
	"go.uber.org/goleak"
)

// Isolation is a database's default transaction isolation.
type Isolation string

// The isolations that tests run under.
const (
	ReadCommitted Isolation = "read committed"
	Serializable  Isolation = "serializable"
)

// server is where the databases are made.
type server interface {
	// DSN is the URL of a database.
	DSN(database string) string
	Stop()
}

// databases are those of one test binary.
type databases struct {
	server server
	prefix string // of every name: runs that share a server do not meet
	made   atomic.Int64
}

// made by Main, read by New.
var current *databases

// Main runs the tests of a package with a server, and then looks for leaked goroutines; it does not return. prepare makes the
// schema in the template; nil leaves it empty. Call it from TestMain.
func Main(m *testing.M, prepare func(ctx context.Context, dsn string) error) {
	code, err := run(m, prepare)
	if err == nil && code == 0 {
		err = goleak.Find()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "testdb:", err)
		code = 1
	}
	os.Exit(code)
}

func run(m *testing.M, prepare func(ctx context.Context, dsn string) error) (int, error) {
	ctx := context.Background()
	s, err := start(ctx)
	if err != nil {
		return 1, err
	}
	defer s.Stop()
	d := &databases{server: s, prefix: "errand_test_" + random()}
	if err := d.admin(ctx, "CREATE DATABASE "+d.template()); err != nil {
		return 1, err
	}
	defer func() { _ = d.admin(ctx, "DROP DATABASE "+d.template()) }() // a template that stays harms nobody
	if prepare != nil {
		if err := prepare(ctx, s.DSN(d.template())); err != nil {
			return 1, fmt.Errorf("prepare the template: %w", err)
		}
	}
	current = d
	return m.Run(), nil
}

func (d *databases) template() string { return d.prefix + "_template" }

// admin runs a statement that concerns whole databases.
func (d *databases) admin(ctx context.Context, sql string) error {
	conn, err := pgx.Connect(ctx, d.server.DSN("postgres"))
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close(ctx) }() // nothing hangs on it
	if _, err := conn.Exec(ctx, sql); err != nil {
		return fmt.Errorf("%s: %w", sql, err)
	}
	return nil
}

// New makes a database for one test and returns its URL. It is dropped when the test ends, whoever is still connected.
func New(t testing.TB, isolation Isolation) string {
	t.Helper()
	if current == nil {
		t.Fatal("testdb.New needs a TestMain that calls testdb.Main")
	}
	d := current
	ctx := context.Background()
	name := fmt.Sprintf("%s_%d", d.prefix, d.made.Add(1))
	// Copying files takes half as long as the default, writing the copy into the log.
	if err := d.admin(ctx, "CREATE DATABASE "+name+" TEMPLATE "+d.template()+" STRATEGY file_copy"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.admin(ctx, "DROP DATABASE "+name+" WITH (FORCE)"); err != nil {
			t.Error(err)
		}
	})
	if err := d.admin(ctx, fmt.Sprintf("ALTER DATABASE %s SET default_transaction_isolation = '%s'", name, isolation)); err != nil {
		t.Fatal(err)
	}
	return d.server.DSN(name)
}

// random is a short name that no other run has.
func random() string {
	var b [6]byte
	_, _ = rand.Read(b[:]) // never fails
	return strings.ToLower(hex.EncodeToString(b[:]))
}
