//go:build unix

package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/errandhq/errand/internal/devcluster"
	"github.com/errandhq/errand/internal/sandbox"
)

// devPart is something beside the scheduler that errand dev keeps running.
type devPart interface {
	Start(ctx context.Context) error
	Pid() int              // 0 without a process of its own
	Done() <-chan struct{} // closed when it has ended
	Stop()
}

// When a part ends by itself.
const (
	devRestartsMax  = 5                      // in a row; then something is wrong that a start does not mend
	devRestartPause = 200 * time.Millisecond // times the number of ends
	devSteady       = 30 * time.Second       // after which earlier ends are forgotten
)

// keep starts a part again whenever it has ended, until ctx ends: one may kill what one likes and watch what becomes of the tasks. While
// its region's power is off it stays dead; nil has always power.
func (d *dev) keep(ctx context.Context, name string, p devPart, power *devPower) error {
	for ends := 1; ; ends++ {
		since := time.Now()
		select {
		case <-ctx.Done():
			return nil
		case <-p.Done():
		}
		off, err := power.wait(ctx)
		if err != nil {
			return nil //nolint:nilerr // the end that was asked for
		}
		if off || time.Since(since) > devSteady {
			ends = 1
		}
		if ends > devRestartsMax {
			return fmt.Errorf("%s ends again and again by itself: see what it says above", name)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(time.Duration(ends) * devRestartPause):
		}
		started, err := power.start(ctx, p)
		if err != nil {
			if ctx.Err() != nil {
				return nil
			}
			return fmt.Errorf("%s ended by itself and cannot be started again: %w", name, err)
		}
		if !started {
			continue
		}
		d.say("%s ended by itself and was started again (pid %d)", name, p.Pid())
	}
}

// devKind is a built-in kind that errand dev runs workers for.
type devKind struct {
	name string
	args []string // of errand worker, for this kind
}

// kinds are those kinds. On one's own machine, what only this machine can reach is what one wants to call; commands get one folder of
// it, and are not run at all where the sandbox cannot be set up.
func (d *dev) kinds(ctx context.Context) ([]devKind, error) {
	kinds := []devKind{{name: "http", args: []string{"--allow-private"}}}
	if d.Workers == 0 {
		return nil, nil
	}
	if err := sandbox.Check(ctx); err != nil {
		d.say("  %-24s no workers of kind exec: %v", "", err)
		return kinds, nil
	}
	files := d.folder.in(devFiles)
	if err := os.MkdirAll(files, 0o700); err != nil {
		return nil, err
	}
	return append(kinds, devKind{name: "exec", args: []string{
		"--exec-inputs", files, "--exec-outputs", files, "--exec-dir", d.folder.in("exec"),
	}}), nil
}

// devFiles is the folder that commands of kind exec may read from and write to.
const devFiles = "files"

// devWorker is a worker process: one that can be killed like those of a real deployment.
type devWorker struct {
	name string
	*devcluster.Program
}

// startWorkers starts the workers of all kinds; even with an error it returns those that it has started.
func (d *dev) startWorkers(ctx context.Context, kinds []devKind, place string, urls []string) ([]devWorker, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	var workers []devWorker
	for _, kind := range kinds {
		for number := range d.Workers {
			w := devWorker{name: fmt.Sprintf("%s-%s-%d", place, kind.name, number+1)}
			args := []string{
				"worker", "--kind", kind.name, "--url", strings.Join(urls, ","), "--name", w.name,
				"--drain-grace", d.DrainGrace.String(), "--log-level", d.LogLevel.String(), "--log-format", d.LogFormat,
			}
			w.Program = &devcluster.Program{Path: self, Args: append(args, kind.args...), Env: d.variables(keyVariable + "=" + d.env[poolKeyVariable]), Output: os.Stderr}
			if err := w.Start(ctx); err != nil {
				return workers, err
			}
			workers = append(workers, w)
			d.started("Worker", w, "kind "+kind.name+", named "+w.name)
		}
	}
	return workers, nil
}

// variables are this process's without settings of errand: what it starts is configured by its flags, and by a secret, which nobody
// shall see in a list of processes.
func (d *dev) variables(secret string) []string {
	variables := []string{secret}
	for _, v := range os.Environ() {
		if !strings.HasPrefix(v, "ERRAND_") {
			variables = append(variables, v)
		}
	}
	return variables
}

// stopWorkers lets them drain, all at once; another signal ends their patience.
func stopWorkers(workers []devWorker) {
	again := make(chan os.Signal, 1)
	signal.Notify(again, os.Interrupt, syscall.SIGTERM)
	defer signal.Stop(again)
	var stopping sync.WaitGroup
	for _, w := range workers {
		stopping.Go(w.Stop)
	}
	stopped := make(chan struct{})
	go func() {
		stopping.Wait()
		close(stopped)
	}()
	select {
	case <-stopped:
	case <-again:
		for _, w := range workers {
			w.Hurry()
		}
		<-stopped
	}
}
