package devcluster

import (
	"context"
	"os"
	"os/exec"
	"syscall"
)

// Program is any other child process: a worker, for instance. It may be started again after it has ended.
type Program struct {
	// Path and Args are what to run.
	Path string
	Args []string
	// Env is its whole environment, "NAME=VALUE" each.
	Env []string
	// Output gets what it writes. Nil throws it away.
	Output *os.File

	child *child
}

// Start runs the program and returns at once.
func (p *Program) Start(context.Context) error {
	cmd := exec.Command(p.Path, p.Args...)
	cmd.Env = p.Env
	if p.Output != nil {
		cmd.Stdout, cmd.Stderr = p.Output, p.Output
	}
	c, err := launch(cmd, nil, syscall.SIGKILL) // it may hold work that others shall get soon
	if err != nil {
		return err
	}
	p.child = c
	return nil
}

// Pid is the program's process; 0 before the first start.
func (p *Program) Pid() int { return p.child.pid() }

// Done is closed when what the last Start started has ended, however it did.
func (p *Program) Done() <-chan struct{} { return p.child.ended() }

// Stop asks the program to end (SIGTERM), and waits until it has.
func (p *Program) Stop() { p.child.stop(syscall.SIGTERM) }

// Hurry asks once more, while another goroutine is in Stop.
func (p *Program) Hurry() {
	if p.child.running() {
		_ = p.child.cmd.Process.Signal(syscall.SIGTERM) // it may have ended by itself
	}
}

// Kill ends the program at once.
func (p *Program) Kill() { p.child.kill() }
