package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/errandhq/errand"
)

// deployment is `errand dev` and worker processes of our own, which we can kill.
type deployment struct {
	errand  string
	dir     string // of errand dev; removed in the end
	dev     *exec.Cmd
	devSays *bytes.Buffer // to be read when it has ended, or is about to be killed
	devDone chan struct{}
	env     map[string]string // of dev.env
	workers []*worker
	client  *errand.Client
}

// worker is one process.
type worker struct {
	name     string
	instance string // as tasks name it
	cmd      *exec.Cmd
	done     chan struct{}
	killed   bool
}

// Times of starting and stopping.
const (
	startLimit = time.Minute
	stopLimit  = 20 * time.Second
	pollEvery  = 100 * time.Millisecond
)

func startDeployment(ctx context.Context, program string, workers int, in, out string) (*deployment, error) {
	program, err := filepath.Abs(program)
	if err != nil {
		return nil, err
	}
	if _, err := os.Stat(program); err != nil {
		return nil, fmt.Errorf("--errand: %w (make build makes it)", err)
	}
	dir, err := os.MkdirTemp("", "errand-demo-")
	if err != nil {
		return nil, err
	}
	if err := os.Chmod(dir, 0o755); err != nil { // the database server may run as another user
		return nil, err
	}
	d := &deployment{errand: program, dir: dir, devSays: &bytes.Buffer{}, env: map[string]string{}}
	if err := d.start(ctx, workers, in, out); err != nil {
		d.stop()
		return nil, err
	}
	return d, nil
}

func (d *deployment) start(ctx context.Context, workers int, in, out string) error {
	fmt.Println("starting PostgreSQL, Redis and a scheduler (errand dev)")
	d.dev = exec.Command(d.errand, "dev", "--dir", filepath.Join(d.dir, "dev"), "--workers", "0", "--listen", "127.0.0.1:0")
	d.dev.Stdout, d.dev.Stderr, d.dev.SysProcAttr = d.devSays, d.devSays, child()
	if err := d.dev.Start(); err != nil {
		return err
	}
	d.devDone = make(chan struct{})
	go func() {
		_ = d.dev.Wait() // it says why by itself
		close(d.devDone)
	}()
	if err := d.ready(ctx); err != nil {
		d.kill()
		return fmt.Errorf("%w\n%s", err, d.devSays)
	}
	var err error
	if d.client, err = errand.NewClient(errand.Config{URLs: []string{d.env["ERRAND_URL"]}, Key: d.env["ERRAND_KEY"]}); err != nil {
		return err
	}
	for n := range workers {
		w := &worker{name: fmt.Sprintf("worker-%d", n+1), done: make(chan struct{})}
		w.cmd = exec.Command(d.errand, "worker", "--kind", "exec", "--name", w.name, "--slots", "2", "--url", d.env["ERRAND_URL"],
			"--exec-inputs", in, "--exec-inputs", out, "--exec-outputs", out, "--log-level", "error")
		w.cmd.Env = append(os.Environ(), "ERRAND_KEY="+d.env["ERRAND_POOL_KEY"])
		w.cmd.Stderr, w.cmd.SysProcAttr = os.Stderr, child()
		if err := w.cmd.Start(); err != nil {
			return err
		}
		go func() {
			_ = w.cmd.Wait() // it is killed or stopped
			close(w.done)
		}()
		d.workers = append(d.workers, w)
	}
	return d.meet(ctx)
}

// child is a process in a group of its own, so that a Ctrl-C reaches it through us; when we are killed it goes too.
func child() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGTERM}
}

// ready waits until errand dev has left its file and a scheduler answers.
func (d *deployment) ready(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	file := filepath.Join(d.dir, "dev", "dev.env")
	for {
		if raw, err := os.ReadFile(filepath.Clean(file)); err == nil {
			for line := range strings.Lines(string(raw)) {
				if name, value, is := strings.Cut(strings.TrimSpace(line), "="); is {
					d.env[name] = value
				}
			}
			if _, err := d.admin(ctx, "workers"); err == nil {
				return nil
			}
		}
		select {
		case <-d.devDone:
			return errors.New("errand dev has ended")
		case <-ctx.Done():
			return fmt.Errorf("errand dev is not ready: %w", ctx.Err())
		case <-time.After(pollEvery):
		}
	}
}

// admin asks what an operator asks, as JSON.
func (d *deployment) admin(ctx context.Context, command string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, d.errand, command, "-o", "json", "--url", d.env["ERRAND_URL"], "--key", d.env["ERRAND_ADMIN_KEY"])
	return cmd.Output()
}

// meet learns which worker is which: a task names the instance that runs it.
func (d *deployment) meet(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	for {
		known := 0
		if raw, err := d.admin(ctx, "workers"); err == nil {
			var all []struct {
				Worker string `json:"worker"`
				Name   string `json:"name"`
			}
			if err := json.Unmarshal(raw, &all); err != nil {
				return fmt.Errorf("errand workers: %w", err)
			}
			for _, one := range all {
				for _, w := range d.workers {
					if w.name == one.Name {
						w.instance = one.Worker
						known++
					}
				}
			}
		}
		if known == len(d.workers) {
			fmt.Printf("%d workers are connected\n", known)
			return nil
		}
		for _, w := range d.workers {
			select {
			case <-w.done:
				return errors.New("a worker has ended: see what it says above")
			default:
			}
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%d of %d workers are connected: %w", known, len(d.workers), ctx.Err())
		case <-time.After(pollEvery):
		}
	}
}

// named is the name of an instance.
func (d *deployment) named(instance string) string {
	for _, w := range d.workers {
		if w.instance == instance {
			return w.name
		}
	}
	return instance
}

// stop ends everything in order.
func (d *deployment) stop() {
	var all sync.WaitGroup
	for _, w := range d.workers {
		all.Go(func() {
			_ = w.cmd.Process.Signal(syscall.SIGTERM) // it may be gone
			select {
			case <-w.done:
			case <-time.After(stopLimit):
				_ = w.cmd.Process.Kill()
				<-w.done
			}
		})
	}
	all.Wait()
	if d.devDone != nil {
		_ = d.dev.Process.Signal(syscall.SIGTERM) // it may be gone
		select {
		case <-d.devDone:
		case <-time.After(stopLimit):
			d.kill()
		}
	}
	_ = os.RemoveAll(d.dir) // in the temporary folder
}

// kill ends errand dev at once; what it has started goes with it.
func (d *deployment) kill() {
	_ = d.dev.Process.Kill() // it may be gone
	<-d.devDone
}
