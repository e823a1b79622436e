package main

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	errandv1 "github.com/errandhq/errand/proto/errand/v1"
)

// workersCmd looks at the workers of an instance.
type workersCmd struct {
	List  workersListCmd  `cmd:"" default:"withargs" help:"List the workers connected to the instance that answers."`
	Drain workersDrainCmd `cmd:"" help:"Give a worker no more work."`
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
	resp, err := admin.ListWorkers(ctx, &errandv1.ListWorkersRequest{})
	if err != nil {
		return rpcError(err)
	}
	values, rows := []workerView{}, [][]string{}
	for _, w := range resp.GetWorkers() {
		v := workerViewOf(w)
		values = append(values, v)
		rows = append(rows, []string{
			v.Worker, dash(v.Name), dash(v.Tenant), slotsText(v.Slots), strconv.FormatBool(v.Connected), strconv.FormatBool(v.Draining),
			short(w.GetSilent().AsDuration()),
		})
	}
	return c.print(values, []string{"WORKER", "NAME", "TENANT", "SLOTS", "CONNECTED", "DRAINING", "SILENT"}, rows)
}

// slotsText shows slots by kind, in order.
func slotsText(slots map[string]int) string {
	var parts []string
	for _, kind := range slices.Sorted(maps.Keys(slots)) {
		parts = append(parts, fmt.Sprintf("%s=%d", kind, slots[kind]))
	}
	return dash(strings.Join(parts, ","))
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
		return fmt.Errorf("%s: %w", c.Worker, rpcError(err))
	}
	return c.say(map[string]any{"worker": c.Worker, "draining": true}, "draining %s", c.Worker)
}
