package sandbox

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"time"
)

// Cap is a limit that ended a command.
type Cap string

// The caps.
const (
	CapCPU       Cap = "cpu_limit"
	CapMemory    Cap = "memory_limit"
	CapOutput    Cap = "output_limit"
	CapTime      Cap = "time_limit"
	CapProcesses Cap = "process_limit"
)

// Result is how a command ended.
type Result struct {
	Exit    int    // its exit status; -1 when a signal ended it
	Signal  string // such as "killed"; empty for none
	Cap     Cap    // the limit that it ran into; empty for none
	Usage   Usage
	Stdout  string // the last of what it printed, at most 4 KiB of each, as UTF-8
	Stderr  string
	Outputs []Output // in the order in which they were declared, when it succeeded
}

// OK tells whether it succeeded.
func (r *Result) OK() bool { return r.Exit == 0 && r.Cap == "" }

// Usage is what all its processes used together.
type Usage struct {
	CPU    time.Duration
	Wall   time.Duration
	Memory int64 // the most resident bytes that the watch has seen
}

// Output is a file that was moved into place.
type Output struct {
	Host  string
	Bytes int64
}

// Times of the end of a command.
const (
	termGrace = 2 * time.Second       // between SIGTERM and SIGKILL
	pipeGrace = time.Second           // for what it printed, once it has ended
	watchTick = 50 * time.Millisecond // between two looks at what it uses
)

// Runner runs commands within grants. It is safe for concurrent use.
type Runner struct {
	grants Grants
	dir    string // private, for folders of commands
}

// NewRunner prepares for running commands, and takes away what killed processes have left. dir is a folder for this use alone, made
// when missing; several runners may share it.
func NewRunner(dir string, g Grants) (*Runner, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	r := &Runner{grants: g, dir: dir}
	return r, errors.Join(keepFiles(), r.tidy())
}

// keepFiles keeps the files that this process was started with from the commands: Go closes its own, not those.
func keepFiles() error {
	open, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return err
	}
	for _, f := range open {
		if fd, err := strconv.Atoi(f.Name()); err == nil && fd > 2 {
			syscall.CloseOnExec(fd)
		}
	}
	return nil
}

// Run runs a command and waits for its end. It returns an error when the command could not run, ErrRefused when it must not; how it
// ended otherwise is in the result, and outputs are in place only when it succeeded. When ctx ends the command is told to stop,
// and killed soon after; its error is ctx's cause.
func (r *Runner) Run(ctx context.Context, c Command) (Result, error) {
	c, err := r.grants.check(c)
	if err != nil {
		return Result{}, err
	}
	place, err := r.newPlace()
	if err != nil {
		return Result{}, err
	}
	defer place.remove()
	result, err := run(ctx, &c, place.out)
	if err != nil || !result.OK() {
		return result, err
	}
	result.Outputs, err = deliver(place.out, c.Outputs)
	return result, err
}

// run runs a command to its end.
func run(ctx context.Context, c *Command, out string) (Result, error) {
	infoRead, infoWrite, err := os.Pipe()
	if err != nil {
		return Result{}, err
	}
	defer func() { _ = infoRead.Close() }()
	stdout, stderr := &tail{}, &tail{}
	cmd := exec.Command(bwrap, append([]string{"--info-fd", "3"}, arguments(c, out)...)...)
	cmd.Stdout, cmd.Stderr, cmd.ExtraFiles, cmd.WaitDelay = stdout, stderr, []*os.File{infoWrite}, pipeGrace
	cmd.Env = []string{}
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
	began := time.Now()
	err = cmd.Start()
	_ = infoWrite.Close() // the child has its own
	if err != nil {
		return Result{}, fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	ended := make(chan struct{})
	go func() {
		_ = cmd.Wait() // the state tells more
		close(ended)
	}()
	w := &watch{limits: c.Limits, out: out, printed: func() int64 { return stdout.count() + stderr.count() }, init: initPID(infoRead)}
	err = w.until(ctx, ended, began.Add(c.Limits.Wall), cmd.Process)
	result := Result{Cap: w.cap, Usage: w.usage, Stdout: stdout.String(), Stderr: stderr.String()}
	result.Usage.Wall = time.Since(began)
	result.Usage.CPU = max(result.Usage.CPU, cmd.ProcessState.UserTime()+cmd.ProcessState.SystemTime())
	result.Exit, result.Signal = ending(cmd.ProcessState)
	if w.init == 0 && result.Exit != 0 { // it has not come as far as the command
		return result, fmt.Errorf("%w: %s", ErrUnavailable, result.Stderr)
	}
	if result.Cap == "" && result.Signal == syscall.SIGXFSZ.String() {
		result.Cap = CapOutput
	}
	if result.Cap == "" && result.Signal == syscall.SIGXCPU.String() {
		result.Cap = CapCPU
	}
	return result, err
}

// initPID reads the process that is the first one in the sandbox; 0 when there is none.
func initPID(info io.Reader) int {
	var told struct {
		PID int `json:"child-pid"`
	}
	if json.NewDecoder(info).Decode(&told) != nil {
		return 0
	}
	return told.PID
}

// ending tells a status from a signal: bubblewrap reports the signal that ended a command as a shell does.
func ending(state *os.ProcessState) (exit int, signal string) {
	const shellSignal = 128
	if status, is := state.Sys().(syscall.WaitStatus); is && status.Signaled() {
		return -1, status.Signal().String()
	}
	if code := state.ExitCode(); code > shellSignal && code < shellSignal+65 {
		return -1, syscall.Signal(code - shellSignal).String()
	}
	return state.ExitCode(), ""
}

// deliver moves outputs into place.
func deliver(out string, outputs []Mount) ([]Output, error) {
	root, err := os.OpenRoot(out) // nothing in it leads out of it
	if err != nil {
		return nil, err
	}
	defer func() { _ = root.Close() }()
	var done []Output
	for _, m := range outputs {
		n, err := deliverOne(root, m)
		if err != nil {
			return nil, err
		}
		done = append(done, Output{Host: m.Host, Bytes: n})
	}
	return done, nil
}

// ErrNoOutput means that a command succeeded without making a declared output.
var ErrNoOutput = errors.New("the command succeeded without making the output")

func deliverOne(root *os.Root, m Mount) (int64, error) {
	name, err := filepath.Rel("/out", m.Inside)
	if err != nil {
		return 0, err
	}
	info, err := root.Lstat(name)
	if err != nil || !info.Mode().IsRegular() {
		return 0, fmt.Errorf("%w %s: it must be a regular file", ErrNoOutput, m.Inside)
	}
	from, err := root.Open(name)
	if err != nil {
		return 0, fmt.Errorf("%w %s: %w", ErrNoOutput, m.Inside, err)
	}
	defer func() { _ = from.Close() }()
	dir := filepath.Dir(m.Host)
	to, err := os.CreateTemp(dir, ".errand-*")
	if err != nil {
		return 0, err
	}
	defer func() { _ = os.Remove(to.Name()) }() // gone already when all went well
	n, err := io.Copy(to, from)
	err = errors.Join(err, to.Chmod(0o644), to.Sync(), to.Close())
	if err != nil {
		return 0, err
	}
	if err := os.Rename(to.Name(), m.Host); err != nil {
		return 0, err
	}
	folder, err := os.Open(dir)
	if err != nil {
		return 0, err
	}
	return n, errors.Join(folder.Sync(), folder.Close())
}
