package testdb

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

func TestMain(m *testing.M) {
	Main(m, func(ctx context.Context, dsn string) error {
		conn, err := pgx.Connect(ctx, dsn)
		if err != nil {
			return err
		}
		defer func() { _ = conn.Close(ctx) }()
		_, err = conn.Exec(ctx, "CREATE TABLE prepared AS SELECT 1")
		return err
	})
}

func query(t *testing.T, dsn, sql string) string {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), dsn)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close(context.Background()) }()
	var answer string
	if err := conn.QueryRow(t.Context(), sql).Scan(&answer); err != nil {
		t.Fatal(err)
	}
	return answer
}

func TestEachTestHasItsOwnCopyOfTheTemplate(t *testing.T) {
	first, second := New(t, ReadCommitted), New(t, Serializable)
	const add = "INSERT INTO prepared VALUES (2) RETURNING 'ok'"
	const count = "SELECT count(*)::text FROM prepared"
	query(t, first, add)
	if got := query(t, first, count); got != "2" {
		t.Errorf("%s rows where one was added to one", got)
	}
	if got := query(t, second, count); got != "1" {
		t.Errorf("%s rows in another test's database", got)
	}
	const isolation = "SHOW transaction_isolation"
	if got := query(t, first, isolation); got != string(ReadCommitted) {
		t.Errorf("isolation is %q", got)
	}
	if got := query(t, second, isolation); got != string(Serializable) {
		t.Errorf("isolation is %q", got)
	}
}

func TestADatabaseEndsWithItsTest(t *testing.T) {
	var left *pgx.Conn
	t.Run("inner", func(t *testing.T) {
		var err error
		if left, err = pgx.Connect(t.Context(), New(t, ReadCommitted)); err != nil {
			t.Fatal(err)
		}
	})
	if err := left.Ping(t.Context()); err == nil {
		t.Error("the database is still there")
	}
	_ = left.Close(context.Background()) // cut off already
}

func TestRedisAnswersUnderALongTestName(t *testing.T) {
	t.Run("a name that would make the path of a socket in the folder of the test far too long to be one, whatever the system", func(t *testing.T) {
		r := Redis(t)
		r.Stop()
		if err := r.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
	})
}

func TestSweepRemovesWhatNobodyHolds(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"abandoned", "held", "young"} {
		if err := os.Mkdir(filepath.Join(dir, folderPrefix+name), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Mkdir(filepath.Join(dir, "foreign"), 0o700); err != nil {
		t.Fatal(err)
	}
	lock, err := tryLock(filepath.Join(dir, folderPrefix+"held"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = lock.Close() }()
	now := time.Now()
	if err := os.Chtimes(filepath.Join(dir, folderPrefix+"young"), now, now.Add(time.Hour)); err != nil {
		t.Fatal(err)
	}

	sweep(dir, now.Add(time.Minute))

	for name, stays := range map[string]bool{folderPrefix + "abandoned": false, folderPrefix + "held": true, folderPrefix + "young": true, "foreign": true} {
		if _, err := os.Stat(filepath.Join(dir, name)); (err == nil) != stays {
			t.Errorf("%s: stays %v, want %v", name, err == nil, stays)
		}
	}
}

func TestAGivenServerIsUsedAndLeftAlone(t *testing.T) {
	t.Setenv(urlVariable, current.server.DSN("postgres"))
	s, err := start(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	query(t, s.DSN("postgres"), "SELECT 'ok'")
	s.Stop()
	query(t, s.DSN(current.template()), "SELECT 'ok'")

	t.Setenv(urlVariable, "host=localhost")
	if _, err := start(t.Context()); err == nil {
		t.Error("what is not a URL was taken for one")
	}
}
