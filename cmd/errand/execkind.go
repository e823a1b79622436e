package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/errandhq/errand"
	"github.com/errandhq/errand/internal/sandbox"
)

// execSettings say what commands of kind exec may be given.
type execSettings struct {
	ExecInputs  []string `help:"Folders from which kind exec may read inputs." placeholder:"DIR"`
	ExecOutputs []string `help:"Folders into which kind exec may put outputs." placeholder:"DIR"`
	ExecNetwork bool     `help:"Let commands of kind exec that ask for it use the network."`
	ExecDir     string   `help:"Private folder for what commands make. Default errand-exec-UID in the system's temporary folder." placeholder:"DIR"`
}

// execKind runs commands in a sandbox.
type execKind struct{ runner *sandbox.Runner }

// newExecKind refuses to start where the sandbox cannot be set up: nothing is ever run bare.
func newExecKind(ctx context.Context, s *execSettings) (*execKind, error) {
	if err := sandbox.Check(ctx); err != nil {
		return nil, fmt.Errorf("kind exec: %w", err)
	}
	for _, folder := range append(append([]string{}, s.ExecInputs...), s.ExecOutputs...) {
		if info, err := os.Stat(folder); err != nil || !info.IsDir() {
			return nil, fmt.Errorf("%w: --exec-inputs, --exec-outputs: %s is not a folder", errUsage, folder)
		}
	}
	dir := s.ExecDir
	if dir == "" {
		dir = filepath.Join(os.TempDir(), fmt.Sprintf("errand-exec-%d", os.Getuid()))
	}
	runner, err := sandbox.NewRunner(dir, sandbox.Grants{Inputs: s.ExecInputs, Outputs: s.ExecOutputs, Network: s.ExecNetwork})
	if err != nil {
		return nil, fmt.Errorf("--exec-dir: %w", err)
	}
	return &execKind{runner}, nil
}

// execCall is the payload of kind exec.
type execCall struct {
	Command []string          `json:"command"`
	Env     map[string]string `json:"env"`
	Inputs  []execInput       `json:"inputs"`
	Outputs []execOutput      `json:"outputs"`
	Network bool              `json:"network"`
	Limits  execLimits        `json:"limits"`
}

// execInput is a file or folder of the worker's host, seen by the command.
type execInput struct {
	From string `json:"from"` // on the host
	To   string `json:"to"`   // in the sandbox, under /in/
}

// execOutput is a file that the command makes.
type execOutput struct {
	From string `json:"from"` // in the sandbox, under /out/
	To   string `json:"to"`   // on the host
}

type execLimits struct {
	CPUSeconds   float64 `json:"cpu_seconds"`
	WallSeconds  float64 `json:"wall_seconds"`
	MemoryBytes  int64   `json:"memory_bytes"`
	OutputBytes  int64   `json:"output_bytes"`
	ScratchBytes int64   `json:"scratch_bytes"`
	Processes    int64   `json:"processes"`
}

// execResult is the result of kind exec.
type execResult struct {
	ExitStatus  int        `json:"exit_status"`
	CPUSeconds  float64    `json:"cpu_seconds"`
	WallSeconds float64    `json:"wall_seconds"`
	MemoryBytes int64      `json:"memory_bytes"`
	Stdout      string     `json:"stdout"` // the last 4 KiB
	Stderr      string     `json:"stderr"` // the last 4 KiB
	Outputs     []execMade `json:"outputs"`
	Worker      string     `json:"worker"` // instance
}

type execMade struct {
	Path  string `json:"path"`
	Bytes int64  `json:"bytes"`
}

func (k *execKind) handle(ctx context.Context, a *errand.Attempt) (errand.Result, error) {
	command, err := execCommand(a.Payload)
	if err != nil {
		return errand.Result{}, errand.NonRetryable(errand.WithReason(err, "bad_payload"))
	}
	command.Env = withDevices(command.Env, a.GPUs)
	r, err := k.runner.Run(ctx, command)
	switch {
	case errors.Is(err, sandbox.ErrRefused):
		return errand.Result{}, errand.NonRetryable(errand.WithReason(err, "bad_payload"))
	case errors.Is(err, sandbox.ErrUnavailable):
		return errand.Result{}, errand.WithReason(err, "sandbox_unavailable")
	case errors.Is(err, sandbox.ErrNoOutput):
		return errand.Result{}, errand.WithReason(fmt.Errorf("%w%s", err, lastLines(&r)), "no_output")
	case err != nil:
		return errand.Result{}, err
	}
	if err := execFailure(&r); err != nil {
		return errand.Result{}, err
	}
	data, err := json.Marshal(execResultOf(&r, a.Worker))
	return errand.Result{Data: data, ContentType: "application/json"}, err
}

// execFailure is how a command that did not succeed is told: its cap, its signal or its status, and the last that it said.
func execFailure(r *sandbox.Result) error {
	switch {
	case r.OK():
		return nil
	case r.Cap != "":
		return errand.WithReason(fmt.Errorf("ended by its %s after %.1f s%s", strings.ReplaceAll(string(r.Cap), "_", " "),
			r.Usage.Wall.Seconds(), lastLines(r)), string(r.Cap))
	case r.Signal != "":
		return errand.WithReason(fmt.Errorf("ended by a signal: %s%s", r.Signal, lastLines(r)), "signal")
	default:
		return errand.WithReason(fmt.Errorf("exit status %d%s", r.Exit, lastLines(r)), "exit_status")
	}
}

// lastLines is what a person looks at first.
func lastLines(r *sandbox.Result) string {
	const linesMax = 10
	text := strings.TrimSpace(r.Stderr)
	if text == "" {
		text = strings.TrimSpace(r.Stdout)
	}
	if text == "" {
		return ""
	}
	lines := strings.Split(text, "\n")
	return ": " + strings.Join(lines[max(len(lines)-linesMax, 0):], "\n")
}

func execResultOf(r *sandbox.Result, worker string) execResult {
	out := execResult{
		ExitStatus: r.Exit, CPUSeconds: r.Usage.CPU.Seconds(), WallSeconds: r.Usage.Wall.Seconds(), MemoryBytes: r.Usage.Memory,
		Stdout: r.Stdout, Stderr: r.Stderr, Outputs: []execMade{}, Worker: worker,
	}
	for _, o := range r.Outputs {
		out.Outputs = append(out.Outputs, execMade{Path: o.Host, Bytes: o.Bytes})
	}
	return out
}

// execCommand reads a payload.
func execCommand(payload []byte) (sandbox.Command, error) {
	var call execCall
	decoder := json.NewDecoder(bytes.NewReader(payload))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&call); err != nil {
		return sandbox.Command{}, fmt.Errorf("the payload is not {command, env, inputs, outputs, network, limits}: %w", err)
	}
	if decoder.More() {
		return sandbox.Command{}, errors.New("the payload has something behind its object")
	}
	l := call.Limits
	cpu, cpuErr := seconds("cpu_seconds", l.CPUSeconds)
	wall, wallErr := seconds("wall_seconds", l.WallSeconds)
	c := sandbox.Command{
		Argv: call.Command, Env: call.Env, Network: call.Network,
		Limits: sandbox.Limits{CPU: cpu, Wall: wall, Memory: l.MemoryBytes, Output: l.OutputBytes, Scratch: l.ScratchBytes, Processes: l.Processes},
	}
	for _, m := range call.Inputs {
		c.Inputs = append(c.Inputs, sandbox.Mount{Host: m.From, Inside: m.To})
	}
	for _, m := range call.Outputs {
		c.Outputs = append(c.Outputs, sandbox.Mount{Host: m.To, Inside: m.From})
	}
	return c, errors.Join(cpuErr, wallErr)
}

func seconds(field string, s float64) (time.Duration, error) {
	if s < 0 || s > (24*time.Hour).Seconds() || math.IsNaN(s) {
		return 0, fmt.Errorf("limits.%s: %v is not between 0 and a day", field, s)
	}
	return time.Duration(s * float64(time.Second)), nil
}
