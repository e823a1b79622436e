package main

import (
	"context"
	"fmt"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/errandhq/errand"
)

// graphsCmd measures what it costs to store graphs, and to let their tasks go.
type graphsCmd struct {
	JSON  string        `help:"Write the results to this file." placeholder:"FILE"`
	Slots int           `help:"Slots of the worker." default:"1000"`
	Chain int           `help:"Tasks of the chain." default:"10000"`
	For   time.Duration `help:"How long one shape may take." default:"10m"`
	Keep  bool          `help:"Keep the servers' logs."`
}

// graphShape is a graph to be measured.
type graphShape struct {
	name  string
	edges int
	build func() *errand.Graph
}

// graphRun is what one shape has shown.
type graphRun struct {
	Name             string  `json:"name"`
	Tasks            int     `json:"tasks"`
	Edges            int     `json:"edges"`
	SubmitSeconds    float64 `json:"submit_s"`
	ReleaseSeconds   float64 `json:"release_s"`
	SubmitUSPerEdge  float64 `json:"submit_us_per_edge"`
	ReleaseUSPerEdge float64 `json:"release_us_per_edge"`
	Repairs          float64 `json:"repairs"`
}

// shapes are those of the field reports (B22), and diamonds.
func (c *graphsCmd) shapes() []graphShape {
	const wide, layer, diamonds = 9_999, 200, 1_000
	spec := errand.Spec{Kind: "noop"}
	many := func(g *errand.Graph, prefix string, n int, after ...string) []string {
		names := make([]string, n)
		for i := range names {
			names[i] = prefix + strconv.Itoa(i)
			g.Add(names[i], spec, after...)
		}
		return names
	}
	return []graphShape{
		{"1 to 9,999", wide, func() *errand.Graph {
			g := &errand.Graph{}
			g.Add("root", spec)
			many(g, "leaf", wide, "root")
			return g
		}},
		{"9,999 to 1", wide, func() *errand.Graph {
			g := &errand.Graph{}
			g.Add("join", spec, many(g, "branch", wide)...)
			return g
		}},
		{"200 x 200", layer * layer, func() *errand.Graph {
			g := &errand.Graph{}
			many(g, "lower", layer, many(g, "upper", layer)...)
			return g
		}},
		{"chain", c.Chain - 1, func() *errand.Graph {
			g := &errand.Graph{}
			g.Add("0", spec)
			for i := 1; i < c.Chain; i++ {
				g.Add(strconv.Itoa(i), spec, strconv.Itoa(i-1))
			}
			return g
		}},
		{"1,000 diamonds", 4 * diamonds, func() *errand.Graph {
			g := &errand.Graph{}
			for i := range diamonds {
				top := many(g, fmt.Sprintf("top%d.", i), 1)
				g.Add(fmt.Sprintf("end%d", i), spec, many(g, fmt.Sprintf("side%d.", i), 2, top...)...)
			}
			return g
		}},
	}
}

// Run measures every shape on a database of its own.
func (c *graphsCmd) Run(ctx context.Context) error {
	if c.Slots < 1 || c.Chain < 2 || c.Chain > 10_000 {
		return fmt.Errorf("--slots is at least 1, --chain 2 to 10000")
	}
	return onServers(ctx, "graphs", c.Keep, c.measure)
}

func (c *graphsCmd) measure(ctx context.Context, cl *cluster) error {
	var runs []graphRun
	w := newTable("SHAPE", "TASKS", "EDGES", "SUBMIT", "US / EDGE", "RELEASE", "US / EDGE", "REPAIRS")
	for i, shape := range c.shapes() {
		if err := cl.fresh(ctx, fmt.Sprintf("graphs_%d", i), 1, 0); err != nil {
			return err
		}
		run, err := c.one(ctx, cl, &shape)
		if err != nil {
			return fmt.Errorf("%s: %w (logs in %s)", shape.name, err, cl.dir)
		}
		runs = append(runs, run)
		w.row(run.Name, strconv.Itoa(run.Tasks), strconv.Itoa(run.Edges), fmt.Sprintf("%.2f s", run.SubmitSeconds),
			fmt.Sprintf("%.0f", run.SubmitUSPerEdge), fmt.Sprintf("%.2f s", run.ReleaseSeconds), fmt.Sprintf("%.0f", run.ReleaseUSPerEdge),
			fmt.Sprintf("%.0f", run.Repairs))
	}
	w.flush()
	return writeJSON(c.JSON, map[string]any{"scenario": "graphs", "machine": machineFacts(ctx, cl), "commit": commit(), "shapes": runs})
}

// one stores a graph while no worker is there, and then lets a worker of many slots, which does nothing, run all of it.
func (c *graphsCmd) one(ctx context.Context, cl *cluster, shape *graphShape) (graphRun, error) {
	ctx, cancel := context.WithTimeout(ctx, c.For)
	defer cancel()
	client, err := errand.NewClient(errand.Config{URLs: cl.urls, Key: cl.tenant})
	if err != nil {
		return graphRun{}, err
	}
	g := shape.build()
	run := graphRun{Name: shape.name, Tasks: g.Len(), Edges: shape.edges}
	began := time.Now()
	if _, err := client.SubmitGraph(ctx, g); err != nil {
		return run, err
	}
	run.SubmitSeconds = time.Since(began).Seconds()

	var started atomic.Int64
	all := make(chan struct{})
	worker, err := errand.NewWorker(errand.WorkerConfig{Config: errand.Config{URLs: cl.urls, Key: cl.pool}})
	if err != nil {
		return run, err
	}
	worker.Handle("noop", c.Slots, func(context.Context, *errand.Attempt) (errand.Result, error) {
		if started.Add(1) == int64(run.Tasks) {
			close(all)
		}
		return errand.Result{}, nil
	})
	workerCtx, stop := context.WithCancel(ctx)
	served := make(chan error, 1)
	began = time.Now()
	go func() { served <- worker.Run(workerCtx) }()
	select {
	case <-all:
	case <-ctx.Done():
		err = fmt.Errorf("%d of %d tasks have started: %w", started.Load(), run.Tasks, ctx.Err())
	}
	run.ReleaseSeconds = time.Since(began).Seconds()
	stop()
	if workerErr := <-served; err == nil {
		err = workerErr
	}
	if err != nil {
		return run, err
	}
	run.SubmitUSPerEdge = round3(run.SubmitSeconds * 1e6 / float64(run.Edges))
	run.ReleaseUSPerEdge = round3(run.ReleaseSeconds * 1e6 / float64(run.Edges))
	run.Repairs, err = gauge(ctx, cl.metrics[0], "errand_rows_total", `what="repairs"`)
	return run, err
}
