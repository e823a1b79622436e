package main

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// expect runs commands in a folder and looks at what they say.
func expect(t *testing.T, dir string, code int, want string, args ...string) string {
	t.Helper()
	said, got := errandIn(t, dir, args...)
	if got != code || !strings.Contains(said, want) {
		t.Fatalf("errand %s: exit %d, want %d and %q:\n%s", strings.Join(args, " "), got, code, want, said)
	}
	return said
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

// A day with errand dev: it is started, used, stopped, started again, its parts are killed, and then itself.
func TestDev(t *testing.T) {
	dir := filepath.Join(folder(t), "100 % mine")
	below := filepath.Join(dir, "a folder", "below")
	if err := os.MkdirAll(below, 0o755); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, devDir, devEnvName)

	p := startDev(t, command(dir, "dev"))
	if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o600 {
		t.Fatalf("%s: %v, %v; want it for its owner only", file, info, err)
	}
	first, err := readDevEnv(file)
	if err != nil {
		t.Fatal(err)
	}
	call := fmt.Sprintf(`{"url": "%s/livez", "method": "GET"}`, first[urlVariable])
	expect(t, below, 0, "succeeded", "submit", "http", call, "--wait", "--label", "when=first")
	expect(t, below, 0, devTenant, "tenant", "list")
	expect(t, below, 0, "dev-http-2", "workers")
	expect(t, dir, exitFailed, fmt.Sprintf("with pid %d", p.pid(t, "Scheduler")), "dev")

	p.end(t, syscall.SIGINT, 0)
	p.waitFor(t, "the data stay")
	expect(t, below, exitUnavailable, file, "list")

	p = startDev(t, command(dir, "dev"))
	if second, err := readDevEnv(file); err != nil || second.String() != first.String() {
		t.Fatalf("%v\nafter the second start:\n%s\nafter the first:\n%s", err, second, first)
	}
	expect(t, below, 0, "succeeded", "list", "--label", "when=first")
	for _, part := range []string{"PostgreSQL", "Redis", "Worker"} {
		if err := syscall.Kill(p.pid(t, part), syscall.SIGKILL); err != nil {
			t.Fatalf("kill %s: %v", part, err)
		}
	}
	for _, part := range []string{"PostgreSQL", "Redis", "worker dev-exec-2"} {
		p.waitFor(t, part+" ended by itself and was started again")
	}
	expect(t, below, 0, "succeeded", "submit", "http", call, "--wait", "--label", "when=second")

	p.end(t, syscall.SIGKILL, -1)
	p = startDev(t, command(dir, "dev", "--workers", "1"))
	if third, err := readDevEnv(file); err != nil || third.String() != first.String() {
		t.Fatalf("%v\nafter the third start:\n%s\nafter the first:\n%s", err, third, first)
	}
	expect(t, below, 0, "succeeded", "list", "--label", "when=second")
	expect(t, below, 0, "", "audit")
	p.end(t, syscall.SIGTERM, 0)
}

// A folder whose name is too long for sockets and full of what programs stumble over; without Redis; and then damaged.
func TestDevInAnAwkwardFolder(t *testing.T) {
	dir := filepath.Join(folder(t), `it's a "folder", with 100 % of everything: `+strings.Repeat("long ", 16))
	if err := os.Mkdir(dir, 0o711); err != nil {
		t.Fatal(err)
	}
	p := startDev(t, command(dir, "dev", "--workers", "0", "--listen", "127.0.0.1:0"))
	expect(t, dir, 0, "", "list")
	p.end(t, syscall.SIGTERM, 0)

	cmd := command(dir, "dev", "--workers", "0")
	cmd.Env = append(cmd.Env, "PATH=")
	p = startDev(t, cmd)
	p.waitFor(t, "redis-server is not installed")
	expect(t, dir, 0, "", "list")
	p.end(t, syscall.SIGTERM, 0)
	if short := shortPath(filepath.Join(dir, devDir)); exists(short) {
		t.Errorf("the folder for sockets is left: %s", short)
	}

	data := filepath.Join(dir, devDir, "postgres", "data")
	for _, damage := range []struct{ file, text, want string }{
		{"global/pg_control", "garbage", "move "},
		{"PG_VERSION", "99\n", "install PostgreSQL 99"},
		{"PG_VERSION", "garbage", "damaged"},
		{"PG_VERSION", "", "damaged"},
	} {
		if err := os.WriteFile(filepath.Join(data, damage.file), []byte(damage.text), 0o600); err != nil {
			t.Fatal(err)
		}
		expect(t, dir, exitFailed, damage.want, "dev")
	}
	if left := processesIn(dir); len(left) > 0 {
		t.Errorf("these are left: %v", left)
	}
}

// Root's own folders are closed to the user that PostgreSQL runs as. (Anybody else's PostgreSQL runs as itself: nothing is moved.)
func TestDevInAClosedFolder(t *testing.T) {
	dir := filepath.Join(folder(t), "closed")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	data := filepath.Join(dir, devDir, "postgres")
	for _, want := range []string{"", "succeeded"} { // before a task, and after
		p := startDev(t, command(dir, "dev", "--workers", "1"))
		if target, err := os.Readlink(data); (err == nil) != (os.Getuid() == 0) {
			t.Errorf("as user %d, the data are in %q: %v", os.Getuid(), target, err)
		} else if err == nil {
			t.Cleanup(func() { _ = os.RemoveAll(target) })
		}
		expect(t, dir, 0, want, "list")
		env, err := readDevEnv(filepath.Join(dir, devDir, devEnvName))
		if err != nil {
			t.Fatal(err)
		}
		expect(t, dir, 0, "succeeded", "submit", "http", fmt.Sprintf(`{"url": "%s/livez", "method": "GET"}`, env[urlVariable]), "--wait")
		p.end(t, syscall.SIGTERM, 0)
	}
	if err := os.RemoveAll(filepath.Join(dir, devDir)); err != nil { // as one throws everything away
		t.Fatal(err)
	}
	p := startDev(t, command(dir, "dev", "--workers", "0"))
	if said := expect(t, dir, 0, "", "list"); strings.Contains(said, "succeeded") {
		t.Errorf("tasks of a folder that was thrown away:\n%s", said)
	}
	p.end(t, syscall.SIGTERM, 0)
}

// What cannot work is refused before anything is started, and nothing is left of it.
func TestDevSettingsThatCannotWork(t *testing.T) {
	dir := folder(t)
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Join(dir, "odd", devLockName), 0o700); err != nil {
		t.Fatal(err)
	}
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = taken.Close() }()
	for name, tt := range map[string]struct {
		args []string
		want string
	}{
		"a file instead of a folder":   {[]string{"--dir", file}, file},
		"a folder below a file":        {[]string{"--dir", filepath.Join(file, "x")}, "choose another folder"},
		"somebody's folder":            {[]string{"--dir", dir}, "not those of errand dev"},
		"a lock that cannot be opened": {[]string{"--dir", filepath.Join(dir, "odd")}, devLockName},
		"an address in use":            {[]string{"--dir", filepath.Join(dir, "new"), "--listen", taken.Addr().String()}, "in use"},
		"no address":                   {[]string{"--dir", filepath.Join(dir, "new"), "--listen", "here"}, "--listen"},
		"fewer than no workers":        {[]string{"--workers", "-1"}, "workers"},
		"a drain without an end":       {[]string{"--drain-grace", "1h"}, "--drain-grace"},
	} {
		t.Run(name, func(t *testing.T) {
			expect(t, dir, exitUsage, tt.want, append([]string{"dev"}, tt.args...)...)
		})
	}
}

func TestWordsOfACommandLine(t *testing.T) {
	for word, want := range map[string]string{
		"bin/errand": "bin/errand", "": "''", "a b": "'a b'", "it's": `'it'\''s'`, "$(x)": "'$(x)'",
	} {
		if got := quoteShell(word); got != want {
			t.Errorf("%q: %s, want %s", word, got, want)
		}
	}
}
