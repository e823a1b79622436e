package devcluster

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"time"
)

// ErrMissing means that a program is not installed.
var ErrMissing = errors.New("not installed: run `make bootstrap` (Debian, Ubuntu) or install it")

// find returns the path of a program, looking beyond PATH where distributions hide it.
func find(name string, elsewhere ...string) (string, error) {
	if path, err := exec.LookPath(name); err == nil {
		return path, nil
	}
	for _, pattern := range elsewhere {
		found, _ := filepath.Glob(filepath.Join(pattern, name)) // the pattern is ours
		slices.Sort(found)
		if len(found) > 0 {
			return found[len(found)-1], nil
		}
	}
	return "", fmt.Errorf("%s: %w", name, ErrMissing)
}

// unprivileged returns the user to run as: PostgreSQL refuses to be root. Nil means as we are.
func unprivileged() (*syscall.Credential, error) {
	if os.Getuid() != 0 {
		return nil, nil
	}
	for _, name := range []string{"postgres", "nobody"} {
		u, err := user.Lookup(name)
		if err != nil {
			continue
		}
		uid, err := strconv.ParseUint(u.Uid, 10, 32)
		if err != nil {
			return nil, err
		}
		gid, err := strconv.ParseUint(u.Gid, 10, 32)
		if err != nil {
			return nil, err
		}
		return &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}, nil
	}
	return nil, errors.New("running as root, and there is no user postgres or nobody to run PostgreSQL as")
}

// child is a running program.
type child struct {
	cmd  *exec.Cmd
	done chan struct{} // closed when it has ended
	log  *tail
}

// start runs a program that dies with this process.
func start(cmd *exec.Cmd, as *syscall.Credential) (*child, error) {
	c := &child{cmd: cmd, done: make(chan struct{}), log: &tail{}}
	cmd.Stdout, cmd.Stderr = c.log, c.log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGQUIT, Credential: as}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", cmd.Path, err)
	}
	go func() { // ends with the child
		_ = cmd.Wait()
		close(c.done)
	}()
	return c, nil
}

func (c *child) ended() bool {
	select {
	case <-c.done:
		return true
	default:
		return false
	}
}

// stop asks the program to end and kills it when it does not within the limit.
func (c *child) stop(sig syscall.Signal, limit time.Duration) {
	_ = c.cmd.Process.Signal(sig) // it may have ended by itself
	select {
	case <-c.done:
	case <-time.After(limit):
		c.kill()
	}
}

func (c *child) kill() {
	_ = syscall.Kill(-c.cmd.Process.Pid, syscall.SIGKILL) // it may have ended by itself
	<-c.done
}

// tail keeps the end of a program's output, for error messages.
type tail struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

const tailMax = 16 << 10

// Write keeps the latest output.
func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.buf.Write(p)
	if extra := t.buf.Len() - tailMax; extra > 0 {
		t.buf.Next(extra)
	}
	return len(p), nil
}

// String is the latest output.
func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.buf.String()
}
