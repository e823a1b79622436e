package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/goccy/go-yaml"

	"github.com/errandhq/errand"
)

// graphCmd submits, shows and cancels graphs.
type graphCmd struct {
	Submit graphSubmitCmd `cmd:"" help:"Submit the tasks of a file, with what each waits for."`
	Show   graphShowCmd   `cmd:"" help:"Show a graph as a tree, with states."`
	Cancel graphCancelCmd `cmd:"" help:"Cancel the open tasks of a graph."`
}

// graphFileMax bounds a graph's file: its tasks have at most 8 MiB together.
const graphFileMax = 16 << 20

type graphSubmitCmd struct {
	File           string `arg:"" help:"YAML or JSON file; - reads standard input."`
	IdempotencyKey string `help:"Submissions with the same key are stored once; takes the place of the file's." env:"-"`
	clientSettings
	outputSettings
}

// Help follows the arguments and flags.
func (*graphSubmitCmd) Help() string {
	return `A file looks like this; a task has the fields of a line of errand submit --many, and its own:

    idempotency_key: nightly-2026-12-03
    tasks:
      - {name: fetch, kind: http, payload: {url: "https://example.com/"}}
      - {name: encode, kind: encode, after: [fetch]}
      - {name: report, kind: report, after: [fetch, encode], when: all_finished}

when: all_succeeded (the default), all_finished or any_succeeded. otherwise: cancel (the default) or run. parents: handles of tasks that
exist. All tasks are stored or none.`
}

var (
	conditions = map[string]errand.Condition{
		"": 0, "all_succeeded": errand.AllSucceeded, "all_finished": errand.AllFinished, "any_succeeded": errand.AnySucceeded,
	}
	policies = map[string]errand.IfNot{"": 0, "cancel": errand.CancelIt, "run": errand.RunAnyway}
)

// Run submits the file.
func (c *graphSubmitCmd) Run(ctx context.Context) error {
	client, err := c.client()
	if err != nil {
		return err
	}
	raw, err := readGraphFile(c.File)
	if err != nil {
		return err
	}
	g, err := parseGraph(raw)
	if err != nil {
		return fmt.Errorf("%w: %s: %w", errUsage, c.File, err)
	}
	if c.IdempotencyKey != "" {
		g.IdempotencyKey = c.IdempotencyKey
	}
	got, err := client.SubmitGraph(ctx, g)
	if err != nil {
		return err
	}
	if c.Output == "json" {
		return printJSON(os.Stdout, map[string]any{"graph_id": got.ID, "task_ids": got.Tasks, "existed": got.Existed})
	}
	note := ""
	if got.Existed {
		note = ", which was there already"
	}
	fmt.Printf("%s: %d tasks%s\n", got.ID, len(got.Tasks), note)
	return nil
}

func readGraphFile(name string) ([]byte, error) {
	in := io.Reader(os.Stdin)
	if name != "-" {
		f, err := os.Open(name)
		if err != nil {
			return nil, fmt.Errorf("%w: %w", errUsage, err)
		}
		defer func() { _ = f.Close() }() // it was only read
		in = f
	}
	raw, err := io.ReadAll(io.LimitReader(in, graphFileMax+1))
	if err == nil && len(raw) > graphFileMax {
		err = fmt.Errorf("%w: %s is larger than %d MiB", errUsage, name, graphFileMax>>20)
	}
	return raw, err
}

// parseGraph reads a graph's file. A task is a line of submit --many with a few fields more.
func parseGraph(raw []byte) (*errand.Graph, error) {
	text, err := yaml.YAMLToJSON(raw)
	if err != nil {
		return nil, err
	}
	var file struct {
		IdempotencyKey string                       `json:"idempotency_key"`
		Tasks          []map[string]json.RawMessage `json:"tasks"`
	}
	d := json.NewDecoder(strings.NewReader(string(text)))
	d.DisallowUnknownFields()
	if err := d.Decode(&file); err != nil {
		return nil, errors.New(strings.TrimPrefix(err.Error(), "json: "))
	}
	g := &errand.Graph{IdempotencyKey: file.IdempotencyKey}
	for i, fields := range file.Tasks {
		if err := addGraphTask(g, fields); err != nil {
			return nil, fmt.Errorf("task %d: %w", i+1, err)
		}
	}
	return g, nil
}

func addGraphTask(g *errand.Graph, fields map[string]json.RawMessage) error {
	var own struct {
		Name, When, Otherwise string
		After, Parents        []string
	}
	for name, to := range map[string]any{
		"name": &own.Name, "when": &own.When, "otherwise": &own.Otherwise, "after": &own.After, "parents": &own.Parents,
	} {
		if raw, here := fields[name]; here {
			if err := json.Unmarshal(raw, to); err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
			delete(fields, name)
		}
	}
	rest, err := json.Marshal(fields)
	if err != nil {
		return err
	}
	spec, err := parseSpec(rest, &errand.Spec{})
	if err != nil {
		return err
	}
	var known bool
	if spec.When, known = conditions[own.When]; !known {
		return fmt.Errorf("when: %q is not all_succeeded, all_finished or any_succeeded", own.When)
	}
	if spec.IfNot, known = policies[own.Otherwise]; !known {
		return fmt.Errorf("otherwise: %q is not cancel or run", own.Otherwise)
	}
	spec.Parents = own.Parents
	g.Add(own.Name, spec, own.After...)
	return nil
}

type graphShowCmd struct {
	ID     string `arg:"" help:"The graph's handle, or that of one of its tasks."`
	Output string `short:"o" help:"How to print: ${enum}." enum:"tree,dot,json" default:"tree" env:"-"`
	clientSettings
}

// Run shows it.
func (c *graphShowCmd) Run(ctx context.Context) error {
	client, err := c.client()
	if err != nil {
		return err
	}
	g, err := client.Graph(ctx, c.ID)
	if err != nil {
		return err
	}
	switch c.Output {
	case "json":
		return printJSON(os.Stdout, graphViewOf(&g))
	case "dot":
		return writeDot(os.Stdout, &g)
	default:
		return writeTree(os.Stdout, &g)
	}
}

type graphCancelCmd struct {
	ID     string `arg:"" help:"The graph's handle, or that of one of its tasks."`
	Reason string `help:"Why, for people." env:"-"`
	clientSettings
	outputSettings
}

// Run cancels it.
func (c *graphCancelCmd) Run(ctx context.Context) error {
	client, err := c.client()
	if err != nil {
		return err
	}
	got, err := client.CancelGraph(ctx, c.ID, c.Reason)
	if err != nil {
		return err
	}
	view := map[string]int{"canceled": got.Canceled, "stopping": got.Stopping, "ended": got.Ended}
	return c.say(view, "%d canceled, %d told to stop, %d had ended\n", got.Canceled, got.Stopping, got.Ended)
}

// graphView is the shape of graph show -o json.
type graphView struct {
	GraphID string          `json:"graph_id"`
	Size    int             `json:"size"`
	States  map[string]int  `json:"states"`
	Tasks   []graphTaskView `json:"tasks"`
}

type graphTaskView struct {
	Name    string   `json:"name"`
	TaskID  string   `json:"task_id"`
	Kind    string   `json:"kind"`
	State   string   `json:"state"`
	Reason  string   `json:"reason"`
	Message string   `json:"message"`
	Parents []string `json:"parents"`
	When    string   `json:"when"`
}

func graphViewOf(g *errand.GraphState) graphView {
	v := graphView{GraphID: g.ID, Size: g.Size, States: map[string]int{}, Tasks: []graphTaskView{}}
	for i := range g.Tasks {
		t := &g.Tasks[i]
		v.States[t.State.String()]++
		parents := t.Parents
		if parents == nil {
			parents = []string{}
		}
		v.Tasks = append(v.Tasks, graphTaskView{t.Name, t.ID, t.Kind, t.State.String(), t.Reason, t.Message, parents, conditionName(t.When)})
	}
	return v
}

func conditionName(c errand.Condition) string {
	for name, one := range conditions {
		if one == c {
			return name
		}
	}
	return ""
}

// treeLines is how a graph is laid out as a tree: each task once, below its first parent, and where else it is waited for by name only.
type treeLines struct {
	g        *errand.GraphState
	byID     map[string]int
	children map[int][]int
}

// writeTree prints each task below its first parent that is in the graph; its other parents stand beside it.
func writeTree(out io.Writer, g *errand.GraphState) error {
	t := treeLines{g: g, byID: map[string]int{}, children: map[int][]int{}}
	for i := range g.Tasks {
		t.byID[g.Tasks[i].ID] = i
	}
	var roots []int
	for i := range g.Tasks {
		if first := t.first(i); first >= 0 {
			t.children[first] = append(t.children[first], i)
		} else {
			roots = append(roots, i)
		}
	}
	if _, err := fmt.Fprintln(out, headline(g)); err != nil {
		return err
	}
	// A chain of ten thousand would be as many frames: the way is kept in a slice.
	type step struct {
		task, depth int
	}
	var way []step
	push := func(tasks []int, depth int) {
		for _, i := range slices.Backward(tasks) {
			way = append(way, step{i, depth})
		}
	}
	push(roots, 0)
	for len(way) > 0 {
		at := way[len(way)-1]
		way = way[:len(way)-1]
		if _, err := fmt.Fprintln(out, t.line(at.task, at.depth)); err != nil {
			return err
		}
		push(t.children[at.task], at.depth+1)
	}
	return nil
}

// first is the first parent that is in the graph, -1 for none.
func (t *treeLines) first(i int) int {
	for _, p := range t.g.Tasks[i].Parents {
		if at, here := t.byID[p]; here {
			return at
		}
	}
	return -1
}

// depthMax is how deep a tree is indented; a chain goes on below itself.
const depthMax = 20

func (t *treeLines) line(i, depth int) string {
	task := &t.g.Tasks[i]
	text := strings.Repeat("  ", min(depth, depthMax)) + fmt.Sprintf("%s  %s  %s  %s", task.Name, task.State, task.Kind, task.ID)
	var others []string
	for _, p := range task.Parents {
		at, here := t.byID[p]
		switch {
		case !here:
			others = append(others, p)
		case at != t.first(i):
			others = append(others, t.g.Tasks[at].Name)
		}
	}
	const othersMax = 5
	if more := len(others) - othersMax; more > 0 {
		others = append(others[:othersMax], fmt.Sprintf("%d more", more))
	}
	if len(others) > 0 {
		text += "  also after " + strings.Join(others, ", ")
	}
	if task.Reason != "" {
		text += "  " + strings.TrimSuffix(task.Reason+": "+task.Message, ": ")
	}
	return text
}

// headline counts a graph's tasks by state.
func headline(g *errand.GraphState) string {
	counts := map[errand.State]int{}
	for i := range g.Tasks {
		counts[g.Tasks[i].State]++
	}
	var parts []string
	for s := errand.State(1); s <= errand.Expired; s++ {
		if counts[s] > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", counts[s], s))
		}
	}
	if gone := g.Size - len(g.Tasks); gone > 0 {
		parts = append(parts, fmt.Sprintf("%d deleted", gone))
	}
	return fmt.Sprintf("%s  %d tasks: %s", g.ID, g.Size, strings.Join(parts, ", "))
}

var dotColors = map[errand.State]string{
	errand.Running: "lightblue", errand.Succeeded: "palegreen", errand.Failed: "salmon", errand.Canceled: "lightgray", errand.Expired: "lightgray",
	errand.Ready: "lightyellow",
}

// writeDot prints a graph for Graphviz.
func writeDot(out io.Writer, g *errand.GraphState) error {
	var b strings.Builder
	names := map[string]string{}
	b.WriteString("digraph errand {\n  rankdir=LR;\n  node [shape=box, style=filled, fillcolor=white];\n")
	for i := range g.Tasks {
		t := &g.Tasks[i]
		names[t.ID] = t.Name
		fmt.Fprintf(&b, "  %q [label=%q", t.Name, t.Name+"\n"+t.State.String())
		if color := dotColors[t.State]; color != "" {
			fmt.Fprintf(&b, ", fillcolor=%s", color)
		}
		b.WriteString("];\n")
	}
	for i := range g.Tasks {
		for _, p := range g.Tasks[i].Parents {
			from, here := names[p]
			if !here {
				from = p
			}
			fmt.Fprintf(&b, "  %q -> %q;\n", from, g.Tasks[i].Name)
		}
	}
	b.WriteString("}\n")
	_, err := io.WriteString(out, b.String())
	return err
}
