package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"

	errandv1 "github.com/errandhq/errand/proto/errand/v1"
)

// workersCmd looks at the workers of the region, and at what they get.
type workersCmd struct {
	List     workersListCmd     `cmd:"" default:"withargs" help:"List the region's workers."`
	Label    workersLabelCmd    `cmd:"" help:"Lay labels over a worker's own."`
	Cordon   workersCordonCmd   `cmd:"" help:"Give a worker no more work until it is uncordoned."`
	Uncordon workersUncordonCmd `cmd:"" help:"Give a worker work again."`
	Drain    workersDrainCmd    `cmd:"" help:"Give a worker no more work, for good."`
}

type workersListCmd struct {
	clientSettings
	outputSettings
}

// Run lists them.
func (c *workersListCmd) Run(ctx context.Context) error {
	admin, err := c.admin()
	if err != nil {
		return err
	}
	values, rows := []workerView{}, [][]string{}
	for req := (&errandv1.ListWorkersRequest{PageSize: listPageMax}); ; {
		resp, err := admin.ListWorkers(ctx, req)
		if err != nil {
			return rpcError(err)
		}
		for _, w := range resp.GetWorkers() {
			values, rows = append(values, workerViewOf(w)), append(rows, workerRow(w))
		}
		if req.PageToken = resp.GetNextPageToken(); req.PageToken == "" {
			if n := resp.GetInstancesSilent(); n > 0 {
				fmt.Fprintf(os.Stderr, "errand: schedulers that did not answer: %d; their workers are missing\n", n)
			}
			return c.print(values, workerHeader, rows)
		}
	}
}

var workerHeader = []string{"WORKER", "NAME", "TENANT", "ZONE", "SLOTS", "RUNNING", "CAPACITY", "STATE", "SILENT", "LABELS"}

func workerRow(w *errandv1.Worker) []string {
	v := workerViewOf(w)
	return []string{
		v.Worker, dash(v.Name), dash(v.Tenant), dash(v.Zone), slotsText(v.Slots), strconv.Itoa(v.Running), v.Capacity.text(), v.state(),
		short(w.GetSilent().AsDuration()), labelsText(v.Labels),
	}
}

// state is what matters most of whether it gets work.
func (v *workerView) state() string {
	switch {
	case !v.Connected:
		return "away"
	case v.Draining:
		return "draining"
	case v.Cordoned:
		return "cordoned"
	default:
		return "connected"
	}
}

// slotsText shows slots by kind, in order.
func slotsText(slots map[string]int) string {
	var parts []string
	for _, kind := range slices.Sorted(maps.Keys(slots)) {
		parts = append(parts, fmt.Sprintf("%s=%d", kind, slots[kind]))
	}
	return dash(strings.Join(parts, ","))
}

func labelsText(labels map[string]string) string {
	var parts []string
	for _, key := range slices.Sorted(maps.Keys(labels)) {
		parts = append(parts, key+"="+labels[key])
	}
	return dash(strings.Join(parts, ","))
}

// text shows what a worker has, without what is none.
func (c *capacityView) text() string {
	if c == nil {
		return "-"
	}
	parts := []string{fmt.Sprintf("cpu %s", number(float64(c.CPUMilli)/1000)), fmt.Sprintf("mem %dMi", c.MemoryMiB)}
	if c.GPUs > 0 {
		parts = append(parts, fmt.Sprintf("gpu %d", c.GPUs))
	}
	if c.Slots > 0 {
		parts = append(parts, fmt.Sprintf("slots %d", c.Slots))
	}
	return strings.Join(parts, " ")
}

type workersLabelCmd struct {
	Worker string            `arg:"" help:"The worker instance."`
	Set    map[string]string `help:"KEY=VALUE to set, may be repeated." env:"-"`
	Remove []string          `help:"Keys of labels to take away, also of the worker's own." env:"-" placeholder:"KEY,..."`
	clientSettings
	outputSettings
}

// Help follows the arguments and flags.
func (*workersLabelCmd) Help() string {
	return `What runs there goes on. The labels end with the worker's process, and outlive schedulers.

    errand workers label 320cdbd0-486e-e9d2-10f0-2ce1649810c2 --set disk=worn --remove canary`
}

// Validate refuses a command that would change nothing.
func (c *workersLabelCmd) Validate() error {
	if len(c.Set)+len(c.Remove) == 0 {
		return errors.New("name labels to --set or to --remove")
	}
	return nil
}

// Run labels it.
func (c *workersLabelCmd) Run(ctx context.Context) error {
	admin, err := c.admin()
	if err != nil {
		return err
	}
	resp, err := admin.LabelWorker(ctx, &errandv1.LabelWorkerRequest{Worker: c.Worker, Set: c.Set, Remove: c.Remove})
	return c.worker(c.Worker, resp.GetWorker(), err)
}

type workersCordonCmd struct {
	Worker string `arg:"" help:"The worker instance."`
	clientSettings
	outputSettings
}

// Run cordons it.
func (c *workersCordonCmd) Run(ctx context.Context) error {
	admin, err := c.admin()
	if err != nil {
		return err
	}
	resp, err := admin.CordonWorker(ctx, &errandv1.CordonWorkerRequest{Worker: c.Worker})
	return c.worker(c.Worker, resp.GetWorker(), err)
}

type workersUncordonCmd struct {
	Worker string `arg:"" help:"The worker instance."`
	clientSettings
	outputSettings
}

// Run ends the cordon.
func (c *workersUncordonCmd) Run(ctx context.Context) error {
	admin, err := c.admin()
	if err != nil {
		return err
	}
	resp, err := admin.UncordonWorker(ctx, &errandv1.UncordonWorkerRequest{Worker: c.Worker})
	return c.worker(c.Worker, resp.GetWorker(), err)
}

// worker shows a worker that an operator's call has answered, or says what became of the call.
func (o *outputSettings) worker(name string, w *errandv1.Worker, err error) error {
	if err != nil {
		return about(name, err)
	}
	return o.print(workerViewOf(w), workerHeader, [][]string{workerRow(w)})
}

type workersDrainCmd struct {
	Worker string `arg:"" help:"The worker instance."`
	clientSettings
	outputSettings
}

// Run drains it.
func (c *workersDrainCmd) Run(ctx context.Context) error {
	admin, err := c.admin()
	if err != nil {
		return err
	}
	if _, err := admin.DrainWorker(ctx, &errandv1.DrainWorkerRequest{Worker: c.Worker}); err != nil {
		return about(c.Worker, err)
	}
	return c.say(map[string]any{"worker": c.Worker, "draining": true}, "draining %s", c.Worker)
}
