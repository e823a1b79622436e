package devcluster

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"go.uber.org/goleak"
)

// parentVariable makes this test binary a parent that starts a server in the folder it names, says so, and waits to be killed.
const parentVariable = "DEVCLUSTER_TEST_PARENT"

func TestMain(m *testing.M) {
	if dir := os.Getenv(parentVariable); dir != "" {
		os.Exit(parent(dir))
	}
	goleak.VerifyTestMain(m)
}

func parent(dir string) int {
	p, err := NewPostgres(PostgresOptions{Dir: dir})
	if err == nil {
		err = p.Start(context.Background())
	}
	if err != nil {
		_, _ = io.WriteString(os.Stdout, err.Error())
		return 1
	}
	_, _ = io.WriteString(os.Stdout, "started\n")
	_, _ = io.Copy(io.Discard, os.Stdin)
	return 0
}

// folder is short enough for a socket, and open to the user that PostgreSQL runs as.
func folder(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "devcluster-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o711); err != nil {
		t.Fatal(err)
	}
	return filepath.Join(dir, "pg")
}

func newPostgres(t *testing.T, opts PostgresOptions) *Postgres {
	t.Helper()
	p, err := NewPostgres(opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Kill)
	return p
}

func start(t *testing.T, s interface{ Start(context.Context) error }) {
	t.Helper()
	if err := s.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func connect(t *testing.T, p *Postgres) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), p.DSN("postgres"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(context.Background()) }) // its server is gone, mostly
	return conn
}

func count(t *testing.T, p *Postgres) (n int) {
	t.Helper()
	if err := connect(t, p).QueryRow(t.Context(), "SELECT count(*) FROM kept").Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

func TestPostgresKeepsItsData(t *testing.T) {
	port, err := FreePort()
	if err != nil {
		t.Fatal(err)
	}
	for name, opts := range map[string]PostgresOptions{
		"socket":  {Dir: folder(t)},
		"durable": {Dir: folder(t), Durable: true, Port: port},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPostgres(t, opts)
			start(t, p)
			before := p.DSN("postgres")
			conn := connect(t, p)
			if _, err := conn.Exec(t.Context(), "CREATE TABLE kept AS SELECT 1"); err != nil {
				t.Fatal(err)
			}
			var fsync string
			if err := conn.QueryRow(t.Context(), "SHOW fsync").Scan(&fsync); err != nil || (fsync == "on") != opts.Durable {
				t.Errorf("fsync is %q (%v), durable %v", fsync, err, opts.Durable)
			}

			p.Stop()
			start(t, p)
			if n := count(t, p); n != 1 {
				t.Errorf("%d rows after a stop", n)
			}
			p.Kill()
			p.Kill() // nothing to do
			start(t, p)
			if n := count(t, p); n != 1 {
				t.Errorf("%d rows after a kill", n)
			}
			if after := p.DSN("postgres"); after != before {
				t.Errorf("the address moved from %s to %s", before, after)
			}
		})
	}
}

func TestKillEndsSessionsInTheMiddleOfAStatement(t *testing.T) {
	p := newPostgres(t, PostgresOptions{Dir: folder(t)})
	start(t, p)
	conn := connect(t, p)
	ended := make(chan error, 1)
	go func() {
		_, err := conn.Exec(context.Background(), "DO $$ BEGIN LOOP END LOOP; END $$")
		ended <- err
	}()
	watch := connect(t, p)
	for busy := 0; busy == 0; {
		if err := watch.QueryRow(t.Context(), "SELECT count(*) FROM pg_stat_activity WHERE query LIKE 'DO %'").Scan(&busy); err != nil {
			t.Fatal(err)
		}
	}
	p.Kill()
	if err := <-ended; err == nil {
		t.Error("the statement went on to an end that it does not have")
	}
	start(t, p)
}

func TestDataHaveOneServer(t *testing.T) {
	dir := folder(t)
	start(t, newPostgres(t, PostgresOptions{Dir: dir}))
	second := newPostgres(t, PostgresOptions{Dir: dir})
	second.occupiedLimit = 0
	if err := second.Start(t.Context()); !errors.Is(err, errOccupied) {
		t.Errorf("a second server on the same data: %v", err)
	}
}

func TestServersDieWithTheirParent(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	dir := folder(t)
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), parentVariable+"="+dir)
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = in.Close() }()
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	said := make([]byte, len("started\n"))
	if _, err := io.ReadFull(out, said); err != nil || string(said) != "started\n" {
		t.Fatalf("the parent says %q: %v", said, err)
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()                                      // killed
	start(t, newPostgres(t, PostgresOptions{Dir: dir})) // possible only when the first server is gone
}

func TestAHalfMadeDatabaseIsMadeAgain(t *testing.T) {
	dir := folder(t)
	if err := os.MkdirAll(filepath.Join(dir, "data.new", "base"), 0o755); err != nil {
		t.Fatal(err)
	}
	start(t, newPostgres(t, PostgresOptions{Dir: dir}))
}

func TestDamagedDataAreNamed(t *testing.T) {
	dir := folder(t)
	if err := os.MkdirAll(filepath.Join(dir, "data"), 0o755); err != nil {
		t.Fatal(err)
	}
	err := newPostgres(t, PostgresOptions{Dir: dir}).Start(t.Context())
	if err == nil || !strings.Contains(err.Error(), dir) {
		t.Errorf("an empty data folder: %v", err)
	}
}

func TestRedisStartsAgainEmpty(t *testing.T) {
	port, err := FreePort()
	if err != nil {
		t.Fatal(err)
	}
	for name, opts := range map[string]RedisOptions{
		"socket": {Dir: folder(t)},
		"port":   {Dir: folder(t), Port: port},
	} {
		t.Run(name, func(t *testing.T) {
			r, err := NewRedis(opts)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(r.Kill)
			start(t, r)
			if got := ask(t, r, "SET kept 1"); got != "+OK" {
				t.Fatal(got)
			}
			for name, end := range map[string]func(){"stop": r.Stop, "kill": r.Kill} {
				end()
				if _, err := net.Dial(r.network(), r.Addr()); err == nil {
					t.Errorf("it takes connections after a %s", name)
				}
				start(t, r)
				if got := ask(t, r, "EXISTS kept"); got != ":0" {
					t.Errorf("after a %s: %s", name, got)
				}
			}
		})
	}
}

// ask sends a Redis command and returns the first line of the answer.
func ask(t *testing.T, r *Redis, command string) string {
	t.Helper()
	conn, err := net.Dial(r.network(), r.Addr())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	if _, err := io.WriteString(conn, command+"\r\n"); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(conn).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(line)
}

func TestWhatCannotStartSaysWhatToDo(t *testing.T) {
	long := "/" + strings.Repeat("long/", SocketPathMax/5+1)
	if _, err := NewPostgres(PostgresOptions{Dir: long}); err == nil || !strings.Contains(err.Error(), "shorter folder") {
		t.Errorf("a path too long for a socket: %v", err)
	}
	if _, err := NewRedis(RedisOptions{Dir: long}); err == nil || !strings.Contains(err.Error(), "shorter folder") {
		t.Errorf("a path too long for a socket: %v", err)
	}
	if _, err := NewPostgres(PostgresOptions{Dir: "/a,b"}); err == nil || !strings.Contains(err.Error(), "comma") {
		t.Errorf("a path with a comma: %v", err)
	}
	closed := filepath.Join(t.TempDir(), "closed")
	if err := os.Mkdir(closed, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := reachable(filepath.Join(closed, "pg"), 1); err == nil || !strings.Contains(err.Error(), closed) {
		t.Errorf("a folder that PostgreSQL's user cannot reach: %v", err)
	}
	t.Setenv("PATH", "")
	if _, err := NewRedis(RedisOptions{Dir: t.TempDir()}); !errors.Is(err, ErrMissing) || !strings.Contains(err.Error(), "make bootstrap") {
		t.Errorf("Redis is not installed: %v", err)
	}
}

func TestTheNewestOfSeveralVersionsIsFound(t *testing.T) {
	dir := t.TempDir()
	for _, version := range []string{"9", "15", "16"} {
		bin := filepath.Join(dir, version, "bin")
		if err := os.MkdirAll(bin, 0o755); err != nil {
			t.Fatal(err)
		}
		if version == "16" {
			continue // without the program
		}
		if err := os.WriteFile(filepath.Join(bin, "initdb"), nil, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("PATH", "")
	got, err := find("initdb", filepath.Join(dir, "*", "bin"))
	if want := filepath.Join(dir, "15", "bin", "initdb"); err != nil || got != want {
		t.Errorf("found %s (%v), want %s", got, err, want)
	}
}

func TestTailKeepsTheEnd(t *testing.T) {
	log := &tail{}
	for range 3 {
		_, _ = io.WriteString(log, strings.Repeat("x", tailBytesMax))
	}
	_, _ = io.WriteString(log, "the end")
	if got := log.String(); len(got) != tailBytesMax || !strings.HasSuffix(got, "xthe end") {
		t.Errorf("%d bytes, ending in %q", len(got), got[max(0, len(got)-10):])
	}
}
