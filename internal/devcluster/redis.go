package devcluster

import (
	"context"
	"fmt"
	"net"
	"os/exec"
	"strconv"
	"syscall"
	"time"
)

// Redis is a private Redis server without persistence.
type Redis struct {
	dir   string
	port  int
	child *child
}

// NewRedis prepares a server with dir as its working folder.
func NewRedis(dir string) (*Redis, error) {
	if _, err := find("redis-server"); err != nil {
		return nil, err
	}
	port, err := freePort()
	if err != nil {
		return nil, err
	}
	return &Redis{dir: dir, port: port}, nil
}

// Addr is host and port of the server.
func (r *Redis) Addr() string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(r.port)) }

// Start runs the server and returns when it answers; after a Stop or a Kill it starts again, empty, on the same port.
func (r *Redis) Start(ctx context.Context) error {
	path, err := find("redis-server")
	if err != nil {
		return err
	}
	cmd := exec.Command(path, "--port", strconv.Itoa(r.port), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no")
	cmd.Dir = r.dir
	c, err := start(cmd, nil)
	if err != nil {
		return err
	}
	r.child = c
	ctx, cancel := context.WithTimeout(ctx, readyLimit)
	defer cancel()
	var dialer net.Dialer
	for {
		conn, err := dialer.DialContext(ctx, "tcp", r.Addr())
		if err == nil {
			return conn.Close()
		}
		select {
		case <-c.done:
			return fmt.Errorf("redis-server ended at once:\n%s", c.log)
		case <-ctx.Done():
			c.kill()
			return fmt.Errorf("redis-server does not answer: %w\n%s", err, c.log)
		case <-time.After(readyPause):
		}
	}
}

// Stop ends the server in order.
func (r *Redis) Stop() {
	if r.child != nil && !r.child.ended() {
		r.child.stop(syscall.SIGTERM, stopLimit)
	}
}

// Kill ends the server as a crash would.
func (r *Redis) Kill() {
	if r.child != nil && !r.child.ended() {
		r.child.kill()
	}
}
