package devcluster

import (
	"errors"
	"fmt"
	"net"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"syscall"
	"time"
)

// ErrMissing means that a program is not installed.
var ErrMissing = errors.New("not installed: run `make bootstrap` (Debian, Ubuntu), or install it and put it on the PATH")

// Limits of waiting for a server.
const (
	readyLimit    = 30 * time.Second       // a start that takes longer has failed
	readyPause    = 10 * time.Millisecond  // between two looks whether it is ready
	occupiedLimit = 10 * time.Second       // for an earlier server on the same data to end
	occupiedPause = 100 * time.Millisecond // between two tries
	stopLimit     = 20 * time.Second       // an end in order that takes longer becomes a kill
	pipeLimit     = 2 * time.Second        // for output that outlives the program, held open by its own children
)

// SocketPathMax is the longest path of a unix socket that every system accepts, in bytes.
const SocketPathMax = 103

// find returns the path of a program: on the PATH, or in the newest of the folders where distributions hide it.
func find(name string, elsewhere ...string) (string, error) {
	if path, err := exec.LookPath(name); err == nil {
		return path, nil
	}
	for _, pattern := range elsewhere {
		found, err := filepath.Glob(filepath.Join(pattern, name))
		if err != nil {
			return "", err
		}
		if len(found) > 0 {
			return slices.MaxFunc(found, func(a, b string) int { return version(a) - version(b) }), nil
		}
	}
	return "", fmt.Errorf("%s is %w", name, ErrMissing)
}

// version is the first whole folder name of a path that is a number: 15 for /usr/lib/postgresql/15/bin/initdb; 0 without one.
func version(path string) int {
	for dir := path; dir != filepath.Dir(dir); dir = filepath.Dir(dir) {
		if n, err := strconv.Atoi(filepath.Base(dir)); err == nil {
			return n
		}
	}
	return 0
}

// child is a running program.
type child struct {
	cmd  *exec.Cmd
	done chan struct{} // closed when it has ended
	err  error         // how it ended; read it after done
	log  *tail
}

// launch runs a program that gets the signal orphaned when this process dies. Output that goes nowhere yet goes to its log.
func launch(cmd *exec.Cmd, as *syscall.Credential, orphaned syscall.Signal) (*child, error) {
	c := &child{cmd: cmd, done: make(chan struct{}), log: &tail{}}
	if cmd.Stdout == nil {
		cmd.Stdout = c.log
	}
	if cmd.Stderr == nil {
		cmd.Stderr = c.log
	}
	cmd.WaitDelay = pipeLimit
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Setpgid:    true, // Ctrl-C reaches the parent, which then ends its children in order
		Credential: as,
	}
	dieWithParent(cmd.SysProcAttr, orphaned)
	started := make(chan error)
	go func() { // ends with the child
		// The kernel takes the thread that starts a child for its parent, so that thread has to live as long as the child does.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		started <- err
		if err == nil {
			c.err = cmd.Wait()
			close(c.done)
		}
	}()
	if err := <-started; err != nil {
		return nil, fmt.Errorf("start %s: %w", cmd.Path, err)
	}
	return c, nil
}

// pid is the program's process; 0 before the first start.
func (c *child) pid() int {
	if c == nil {
		return 0
	}
	return c.cmd.Process.Pid
}

// ended is closed when the program has ended; it is nil, and never ready, before the first start.
func (c *child) ended() <-chan struct{} {
	if c == nil {
		return nil
	}
	return c.done
}

// running tells whether the program was started and has not ended.
func (c *child) running() bool {
	if c == nil {
		return false
	}
	select {
	case <-c.done:
		return false
	default:
		return true
	}
}

// stop asks the program to end, and kills it when it does not within stopLimit.
func (c *child) stop(ask syscall.Signal) {
	if !c.running() {
		return
	}
	_ = c.cmd.Process.Signal(ask) // it may have ended by itself
	limit := time.NewTimer(stopLimit)
	defer limit.Stop()
	select {
	case <-c.done:
	case <-limit.C:
		c.kill()
	}
}

// kill ends the program at once, with all processes that it has started.
func (c *child) kill() {
	if !c.running() {
		return
	}
	family := append([]int{c.cmd.Process.Pid}, children(c.cmd.Process.Pid)...)
	for _, pid := range family {
		_ = syscall.Kill(pid, syscall.SIGKILL) // it may have ended by itself
	}
	<-c.done
}

// FreePort asks the system for a TCP port of the loopback interface that nobody uses now. Somebody may take it before the caller does.
func FreePort() (int, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	return l.Addr().(*net.TCPAddr).Port, l.Close()
}
