package devcluster

import (
	"context"
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// RedisOptions say what server is wanted.
type RedisOptions struct {
	// Dir is the folder that the server works in, made when missing.
	Dir string
	// Port is the TCP port on the loopback interface. 0 is a unix socket in Dir instead, whose path has at most SocketPathMax bytes.
	Port int
	// Args are added to the server's command line.
	Args []string
}

// Redis is a private Redis server that keeps nothing: after Stop or Kill it starts empty.
type Redis struct {
	opts  RedisOptions
	path  string
	child *child
}

// NewRedis prepares a server without starting it. ErrMissing says that Redis is not installed.
func NewRedis(opts RedisOptions) (*Redis, error) {
	path, err := find("redis-server")
	if err != nil {
		return nil, err
	}
	if opts.Dir, err = filepath.Abs(opts.Dir); err != nil {
		return nil, err
	}
	r := &Redis{opts: opts, path: path}
	if opts.Port == 0 && len(r.Addr()) > SocketPathMax {
		return nil, fmt.Errorf("%s is too long for a unix socket (%d bytes, at most %d): choose a shorter folder or a port",
			r.Addr(), len(r.Addr()), SocketPathMax)
	}
	return r, nil
}

// Addr is the server's address: host:port, or the path of its socket. go-redis takes either as Options.Addr.
func (r *Redis) Addr() string {
	if r.opts.Port == 0 {
		return filepath.Join(r.opts.Dir, "redis.sock")
	}
	return net.JoinHostPort("127.0.0.1", strconv.Itoa(r.opts.Port))
}

func (r *Redis) network() string {
	if r.opts.Port == 0 {
		return "unix"
	}
	return "tcp"
}

// URL is the server's address as a URL.
func (r *Redis) URL() string {
	if r.opts.Port == 0 {
		return (&url.URL{Scheme: "unix", Path: r.Addr()}).String()
	}
	return "redis://" + r.Addr()
}

// Start runs the server and returns when it is ready; after Stop or Kill it starts again, empty, at the same address.
func (r *Redis) Start(ctx context.Context) error {
	if r.child.running() {
		return fmt.Errorf("redis in %s runs already", r.opts.Dir)
	}
	if err := os.MkdirAll(r.opts.Dir, 0o700); err != nil {
		return err
	}
	args := []string{"--save", "", "--appendonly", "no"}
	if r.opts.Port == 0 {
		args = append(args, "--port", "0", "--unixsocket", r.Addr(), "--unixsocketperm", "700")
	} else {
		args = append(args, "--port", strconv.Itoa(r.opts.Port), "--bind", "127.0.0.1")
	}
	cmd := exec.Command(r.path, append(args, r.opts.Args...)...)
	cmd.Dir = r.opts.Dir
	c, err := launch(cmd, nil, syscall.SIGKILL) // it keeps nothing that it could lose
	if err != nil {
		return err
	}
	r.child = c
	return r.ready(ctx)
}

// ready waits until the server says that it takes connections. A connection would not do: it may reach another server at the
// same address.
func (r *Redis) ready(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, readyLimit)
	defer cancel()
	for !strings.Contains(r.child.log.String(), "eady to accept connections") {
		select {
		case <-r.child.done:
			return fmt.Errorf("redis in %s ended at once:\n%s", r.opts.Dir, r.child.log)
		case <-ctx.Done():
			r.child.kill()
			return fmt.Errorf("redis in %s is not ready: %w\n%s", r.opts.Dir, ctx.Err(), r.child.log)
		case <-time.After(readyPause):
		}
	}
	return nil
}

// Pid is the server's process, for those who measure or stop it; 0 before the first start.
func (r *Redis) Pid() int { return r.child.pid() }

// Done is closed when the server that the last Start started has ended, however it did.
func (r *Redis) Done() <-chan struct{} { return r.child.ended() }

// Stop ends the server in order.
func (r *Redis) Stop() { r.child.stop(syscall.SIGTERM) }

// Kill ends the server as a crash would.
func (r *Redis) Kill() { r.child.kill() }
