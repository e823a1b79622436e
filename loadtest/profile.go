package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"runtime/pprof"
)

// profileSeconds is how much of a run is recorded.
const profileSeconds = 2

// profileScheduler records a CPU profile of the scheduler from now on; the answer waits for its end, and keeps the metrics too.
func (b *bench) profileScheduler(ctx context.Context) (wait func() error) {
	if b.Pprof == "" {
		return func() error { return nil }
	}
	done := make(chan error, 1)
	go func() {
		done <- fetch(ctx, fmt.Sprintf("%s/debug/pprof/profile?seconds=%d", b.metrics[0], profileSeconds), b.profileFile("scheduler"))
	}()
	return func() error {
		return errors.Join(<-done, fetch(ctx, b.metrics[0]+"/metrics", b.profileFile("scheduler")+".metrics"))
	}
}

func (b *bench) profileFile(process string) string {
	return filepath.Join(b.Pprof, fmt.Sprintf("%s-%d-%s.pprof", b.name, b.round, process))
}

func fetch(ctx context.Context, url, file string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s", url, resp.Status)
	}
	out, err := os.Create(filepath.Clean(file))
	if err != nil {
		return err
	}
	if _, err := io.Copy(out, resp.Body); err != nil {
		return err
	}
	return out.Close()
}

// startProfile records a CPU profile of this process until stop.
func startProfile(file string) (stop func(), err error) {
	out, err := os.Create(filepath.Clean(file))
	if err != nil {
		return nil, err
	}
	if err := pprof.StartCPUProfile(out); err != nil {
		return nil, err
	}
	return func() {
		pprof.StopCPUProfile()
		_ = out.Close() // a damaged profile is seen by who reads it
	}, nil
}
