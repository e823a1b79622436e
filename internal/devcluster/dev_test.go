package devcluster

import (
	"bufio"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/jackc/pgx/v5"
)

// A server whose folder is awkward and whose sockets are elsewhere; a database on it; its end; and data that are not whole.
func TestPostgresWithItsSocketElsewhere(t *testing.T) {
	dir := filepath.Join(filepath.Dir(folder(t)), `a, "b" % `+strings.Repeat("long", SocketPathMax/4))
	p := newPostgres(t, PostgresOptions{Dir: dir, SocketDir: filepath.Join(filepath.Dir(dir), `s" %`)})
	if p.Done() != nil || p.Pid() != 0 {
		t.Error("it has not been started, and has a process")
	}
	start(t, p)
	for range 2 { // the second time it is there
		if err := p.CreateDatabase(t.Context(), `odd "name`); err != nil {
			t.Fatal(err)
		}
	}
	conn, err := pgx.Connect(t.Context(), p.DSN(`odd "name`))
	if err != nil {
		t.Fatal(err)
	}
	_ = conn.Close(t.Context())
	p.Stop()
	<-p.Done()

	version := filepath.Join(p.data(), "PG_VERSION")
	for text, want := range map[string]string{"99\n": "install PostgreSQL 99", "9.6\n": "install PostgreSQL 9.6", "fifteen": "damaged"} {
		if err := os.WriteFile(version, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := p.Start(t.Context()); err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), dir) {
			t.Errorf("PG_VERSION is %q: %v; want %q", text, err, want)
		}
	}
}

// fakePostgres puts programs in the place of PostgreSQL's.
func fakePostgres(t *testing.T, version string) {
	t.Helper()
	dir := filepath.Dir(folder(t))
	for _, name := range []string{"initdb", "postgres"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("#!/bin/sh\necho 'postgres (PostgreSQL) "+version+"'\n"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("PATH", dir)
}

func TestPostgresThatCannotBeUsedIsNamed(t *testing.T) {
	for version, want := range map[string]string{
		"9.6.24": "version 9", "14.11 (Ubuntu 14.11-0ubuntu0.22.04.1)": "version 14", "nonsense": "PostgreSQL 15 or newer",
	} {
		t.Run(version, func(t *testing.T) {
			fakePostgres(t, version)
			p := newPostgres(t, PostgresOptions{Dir: folder(t)})
			if err := p.Start(t.Context()); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%v, want %q", err, want)
			}
		})
	}
	t.Run("none", func(t *testing.T) {
		t.Setenv("PATH", "")
		before := postgresFolders
		defer func() { postgresFolders = before }()
		postgresFolders = nil
		if _, err := NewPostgres(PostgresOptions{Dir: t.TempDir()}); !errors.Is(err, ErrMissing) {
			t.Errorf("PostgreSQL is not installed: %v", err)
		}
	})
}

func TestRedisInAnAwkwardFolder(t *testing.T) {
	r, err := NewRedis(RedisOptions{Dir: filepath.Join(filepath.Dir(folder(t)), `it's "a" 100 % folder`)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.Kill)
	start(t, r)
	if got := ask(t, r, "PING"); got != "+PONG" {
		t.Error(got)
	}
	if !strings.Contains(r.URL(), "100%20%25") {
		t.Errorf("%s is no URL", r.URL())
	}
	if err := syscall.Kill(r.Pid(), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	<-r.Done()
	start(t, r)
}

// A program is asked to end, and may be asked to hurry; it can be started again.
func TestProgram(t *testing.T) {
	in, out, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _, _ = in.Close(), out.Close() }()
	p := &Program{
		Path: "/bin/sh", Output: out, Env: []string{"WORD=hello"},
		Args: []string{"-c", `n=0; trap 'n=$((n+1)); echo asked $n; [ $n = 2 ] && exit' TERM; echo $WORD; while :; do :; done`},
	}
	lines := bufio.NewScanner(in)
	said := func(want string) {
		t.Helper()
		if !lines.Scan() || lines.Text() != want {
			t.Fatalf("it says %q (%v), want %q", lines.Text(), lines.Err(), want)
		}
	}
	for range 2 {
		start(t, p)
		said("hello")
		stopped := make(chan struct{})
		go func() {
			p.Stop()
			close(stopped)
		}()
		said("asked 1")
		p.Hurry()
		said("asked 2")
		<-stopped
		<-p.Done()
		p.Hurry() // nobody is there
		p.Stop()
	}
	start(t, p)
	said("hello")
	p.Kill()
	<-p.Done()
}

func TestStandIn(t *testing.T) {
	s := NewStandIn()
	start(t, s)
	defer s.Stop()
	if !strings.HasPrefix(s.URL(), "redis://127.0.0.1:") || s.Pid() != 0 || s.Done() != nil {
		t.Errorf("%s, pid %d", s.URL(), s.Pid())
	}
}
