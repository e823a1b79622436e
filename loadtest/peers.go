package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os/exec"
	"path/filepath"
	"strconv"
	"time"
)

// buildPeers builds the program that runs the peers; it is a module of its own, so that nobody who uses Errand has to load them.
func buildPeers(ctx context.Context, c *cluster) error {
	c.peers = filepath.Join(c.dir, "peers")
	build := exec.CommandContext(ctx, "go", "build", "-o", c.peers, ".")
	build.Dir = filepath.Join("loadtest", "peers")
	if out, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("build the peers: %w\n%s", err, out)
	}
	return nil
}

// peer measures another scheduler of tasks, in a process of its own.
func peer(name, mode string) func(ctx context.Context, b *bench) (measured, error) {
	return func(ctx context.Context, b *bench) (measured, error) {
		ctx, cancel := context.WithTimeout(ctx, within)
		defer cancel()
		database := fmt.Sprintf("%s_%d", b.name, b.round)
		if err := b.sql(ctx, "postgres", "CREATE DATABASE "+database); err != nil {
			return measured{}, err
		}
		meter, err := startMeter(ctx, b.cluster, nil)
		if err != nil {
			return measured{}, err
		}
		cmd := exec.CommandContext(ctx, b.peers, name, "--dsn", b.postgres.DSN(database), "--redis", b.redis.URL(), "--mode", mode,
			"--tasks", strconv.Itoa(b.Tasks), "--batch", strconv.Itoa(b.Batch), "--bytes", strconv.Itoa(b.Bytes), "--warm-ups", strconv.Itoa(warmUps),
			"--outstanding", strconv.Itoa(outstandingOf(b.Slots))) // the closed loop of Errand has as many
		out, err := cmd.Output()
		if err != nil {
			return measured{}, fmt.Errorf("%w: %s", err, stderrOf(err))
		}
		var result struct {
			Seconds float64 `json:"seconds"`
		}
		if err := json.Unmarshal(out, &result); err != nil {
			return measured{}, fmt.Errorf("%q: %w", out, err)
		}
		got, err := meter.stop(ctx, b.Tasks, time.Duration(result.Seconds*float64(time.Second)))
		got.CPU["peer"] = float64((cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()).Microseconds()) / float64(b.Tasks)
		if err != nil {
			return measured{}, err
		}
		return got, b.sql(ctx, "postgres", "DROP DATABASE "+database+" WITH (FORCE)")
	}
}
