package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
)

// placementCmd measures the choice of workers alone, on a trace of a GPU cluster: without servers, store or network.
type placementCmd struct {
	Workers string `name:"nodes" help:"The workers, as of cluster-trace-gpu-v2023: openb_node_list_gpu_node.csv." required:"" placeholder:"CSV"`
	Tasks   string `name:"pods" help:"The tasks, as of the same trace: openb_pod_list_default.csv or another." required:"" placeholder:"CSV"`
	Seeds   string `help:"Orders of arrival, from-to." default:"42-51"`
	Known   bool   `help:"Compare with a run that is shown the trace's tasks before the first arrives."`
	Sizes   []int  `help:"Numbers of workers of the speed runs; 0 for none." default:"1000,10000,50000"`
	Rounds  int    `help:"Speed runs of each size; the median counts." default:"3"`
	JSON    string `help:"Write the results to this file." placeholder:"FILE"`
	SVG     string `name:"svg" help:"Draw the allocation by arrival into this file." placeholder:"FILE"`
	Pprof   string `help:"Keep a CPU profile of the speed runs in this file." placeholder:"FILE"`
}

// Run measures.
func (c *placementCmd) Run(ctx context.Context) error {
	if c.Rounds < 1 {
		return errors.New("--rounds is at least 1")
	}
	seeds, err := c.seeds()
	if err != nil {
		return err
	}
	t, err := readTrace(c.Workers, c.Tasks)
	if err != nil {
		return err
	}
	t.workload = strings.TrimSuffix(strings.TrimPrefix(filepath.Base(c.Tasks), "openb_pod_list_"), ".csv")
	learned, err := c.allocate(ctx, t, seeds, false)
	if err != nil {
		return err
	}
	var known [][]float64
	if c.Known {
		if known, err = c.allocate(ctx, t, seeds, true); err != nil {
			return err
		}
	}
	speeds, err := c.speeds(ctx, t)
	if err != nil {
		return err
	}
	return c.report(t, learned, known, speeds)
}

// seedsMax bounds the runs.
const seedsMax = 1000

func (c *placementCmd) seeds() ([]uint64, error) {
	first, last, several := strings.Cut(c.Seeds, "-")
	if !several {
		last = first
	}
	from, err := strconv.ParseUint(first, 10, 32)
	if err != nil {
		return nil, fmt.Errorf("--seeds: %w", err)
	}
	to, err := strconv.ParseUint(last, 10, 32)
	if err != nil {
		return nil, fmt.Errorf("--seeds: %w", err)
	}
	if to < from || to-from >= seedsMax {
		return nil, fmt.Errorf("--seeds: from-to, at most %d", seedsMax)
	}
	var all []uint64
	for s := from; s <= to; s++ {
		all = append(all, s)
	}
	return all, nil
}

// allocate fills the cluster once for each seed, as many at once as there are processors.
func (c *placementCmd) allocate(ctx context.Context, t *trace, seeds []uint64, known bool) ([][]float64, error) {
	curves := make([][]float64, len(seeds))
	turns := make(chan int, len(seeds))
	for i := range seeds {
		turns <- i
	}
	close(turns)
	bar := progress(len(seeds), "arrivals")
	var all sync.WaitGroup
	for range min(runtime.NumCPU(), len(seeds)) {
		all.Go(func() {
			for i := range turns {
				if ctx.Err() != nil {
					return
				}
				curves[i] = t.fill(seeds[i], known)
				_ = bar.Add(1) // it draws only
			}
		})
	}
	all.Wait()
	_ = bar.Finish()
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	return curves, nil
}

func (c *placementCmd) speeds(ctx context.Context, t *trace) ([]sizeSpeed, error) {
	var out []sizeSpeed
	stop := func() error { return nil }
	if c.Pprof != "" {
		var err error
		if stop, err = profileInto(c.Pprof); err != nil {
			return nil, err
		}
	}
	for _, size := range c.Sizes {
		if size <= 0 {
			continue
		}
		one := sizeSpeed{Workers: size}
		for round := range c.Rounds {
			if ctx.Err() != nil {
				return nil, errors.Join(ctx.Err(), stop())
			}
			one.Rounds = append(one.Rounds, t.speed(size, uint64(round)+1))
		}
		out = append(out, one)
	}
	return out, stop()
}

// machineAlone is what there is to say of the machine when no server was started.
func machineAlone() map[string]any {
	facts := map[string]any{"go": machine(), "cpu": firstValue("/proc/cpuinfo", "model name"), "memory": firstValue("/proc/meminfo", "MemTotal")}
	if raw, err := os.ReadFile("/proc/loadavg"); err == nil {
		facts["load_at_end"] = strings.TrimSpace(string(raw))
	}
	return facts
}
