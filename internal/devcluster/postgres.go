package devcluster

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
)

// Postgres is a private PostgreSQL server.
type Postgres struct {
	dir     string
	durable bool
	port    int
	as      *syscall.Credential
	bin     string
	child   *child
}

const (
	readyLimit = 30 * time.Second
	readyPause = 20 * time.Millisecond
	stopLimit  = 20 * time.Second
)

// NewPostgres prepares a server whose data live in dir, which is made when missing; it can be started again later. Without
// durable it does not wait for the disk: good for tests, useless for benchmarks and for anything that matters.
func NewPostgres(dir string, durable bool) (*Postgres, error) {
	initdb, err := find("initdb", "/usr/lib/postgresql/*/bin")
	if err != nil {
		return nil, err
	}
	as, err := unprivileged()
	if err != nil {
		return nil, err
	}
	p := &Postgres{dir: dir, durable: durable, as: as, bin: filepath.Dir(initdb)}
	if _, err := os.Stat(filepath.Join(p.data(), "PG_VERSION")); err == nil {
		return p, nil
	} else if !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	if err := os.MkdirAll(p.data(), 0o755); err != nil {
		return nil, err
	}
	if as != nil {
		for _, folder := range []string{dir, p.data()} {
			if err := os.Chown(folder, int(as.Uid), int(as.Gid)); err != nil {
				return nil, err
			}
		}
	}
	cmd := exec.Command(initdb, "-D", p.data(), "-U", "errand", "--auth=trust", "--encoding=UTF8", "--locale=C", "--no-sync")
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: as}
	cmd.Dir = p.data()
	if out, err := cmd.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("initdb in %s: %w\n%s", p.data(), err, out)
	}
	return p, nil
}

func (p *Postgres) data() string { return filepath.Join(p.dir, "data") }

// Start runs the server and returns when it answers. After a Stop or a Kill it starts again on the same data and port.
func (p *Postgres) Start(ctx context.Context) error {
	if p.port == 0 {
		port, err := freePort()
		if err != nil {
			return err
		}
		p.port = port
	}
	if err := os.Remove(filepath.Join(p.data(), "postmaster.pid")); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	args := []string{
		"-D", p.data(), "-p", strconv.Itoa(p.port), "-c", "listen_addresses=127.0.0.1", "-c", "unix_socket_directories=",
		"-c", "max_connections=300", "-c", "shared_buffers=256MB", "-c", "max_wal_size=4GB", "-c", "log_min_messages=warning",
	}
	if !p.durable {
		args = append(args, "-c", "fsync=off", "-c", "synchronous_commit=off", "-c", "full_page_writes=off")
	}
	cmd := exec.Command(filepath.Join(p.bin, "postgres"), args...)
	cmd.Dir = p.data()
	c, err := start(cmd, p.as)
	if err != nil {
		return err
	}
	p.child = c
	ctx, cancel := context.WithTimeout(ctx, readyLimit)
	defer cancel()
	for {
		if err = ping(ctx, p.DSN("postgres")); err == nil {
			return nil
		}
		select {
		case <-c.done:
			return fmt.Errorf("postgres in %s ended at once:\n%s", p.data(), c.log)
		case <-ctx.Done():
			c.kill()
			return fmt.Errorf("postgres in %s does not answer: %w\n%s", p.data(), err, c.log)
		case <-time.After(readyPause):
		}
	}
}

// DSN is the URL of a database on the server.
func (p *Postgres) DSN(database string) string {
	return fmt.Sprintf("postgres://errand@127.0.0.1:%d/%s?sslmode=disable", p.port, database)
}

// Pid is the server's process, for those who measure it.
func (p *Postgres) Pid() int { return p.child.cmd.Process.Pid }

// Stop ends the server in order.
func (p *Postgres) Stop() {
	if p.child != nil && !p.child.ended() {
		p.child.stop(syscall.SIGINT, stopLimit)
	}
}

// Kill ends the server as a crash would.
func (p *Postgres) Kill() {
	if p.child != nil && !p.child.ended() {
		p.child.kill()
	}
}

func ping(ctx context.Context, dsn string) error {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	conn, err := pgx.Connect(ctx, dsn)
	if err != nil {
		return err
	}
	return conn.Close(ctx)
}

// freePort asks the system for a port that nobody uses now.
func freePort() (int, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	defer func() { _ = l.Close() }() // it never carried anything
	return l.Addr().(*net.TCPAddr).Port, nil
}

// FreePort asks the system for a port of the loopback interface that nobody uses now.
func FreePort() (int, error) { return freePort() }
