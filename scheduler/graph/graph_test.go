package graph

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

func TestAGraphIsCheckedBeforeAnythingIsStored(t *testing.T) {
	many := make([]Task, TasksMax+1)
	wide := make([]Task, 2)
	for i := range many {
		many[i].Name = fmt.Sprint("t", i)
	}
	wide[0].Name, wide[1].Name, wide[1].Outside = "a", "b", EdgesMax+1
	for name, c := range map[string]struct {
		tasks []Task
		want  Error
		says  string
	}{
		"nothing":        {nil, Error{NoTasks, -1, -1, nil}, "a graph has at least one task"},
		"too many":       {many, Error{TooManyTasks, -1, -1, nil}, "a graph has at most 10000 tasks"},
		"too many edges": {wide, Error{TooManyEdges, 1, -1, nil}, "the tasks of a graph name at most 100000 parents together"},
		"too large": {
			[]Task{{Name: "a", Bytes: BytesMax}, {Name: "b", Bytes: 1}},
			Error{TooLarge, 1, -1, nil},
			"the tasks of a graph have at most 8388608 bytes together",
		},
		"a name twice": {
			[]Task{{Name: "a"}, {Name: "a"}}, Error{NameTaken, 1, -1, []string{"a"}}, `another task of the graph has the name "a"`,
		},
		"no such parent": {
			[]Task{{Name: "a"}, {Name: "b", After: []string{"a", "c"}}},
			Error{UnknownParent, 1, 1, []string{"c"}},
			`no task of the graph has the name "c"`,
		},
		"a parent twice": {
			[]Task{{Name: "a"}, {Name: "b", After: []string{"a", "a"}}},
			Error{DuplicateParent, 1, 1, []string{"a"}},
			`the parent "a" is named twice`,
		},
		"itself": {
			[]Task{{Name: "a", After: []string{"a"}}}, Error{Cycle, 0, 0, []string{"a"}}, "tasks wait for each other: a after a",
		},
		"each other": {
			[]Task{{Name: "x", After: []string{"c"}}, {Name: "a", After: []string{"b"}}, {Name: "b", After: []string{"c"}}, {Name: "c", After: []string{"a"}}},
			Error{Cycle, 3, 0, []string{"c", "a", "b"}},
			"tasks wait for each other: c after a after b after c",
		},
	} {
		_, err := Check(c.tasks)
		var got *Error
		if !errors.As(err, &got) || got.Fault != c.want.Fault || got.Task != c.want.Task || got.After != c.want.After || !slices.Equal(got.Names, c.want.Names) {
			t.Errorf("%s: %+v, want %+v", name, err, c.want)
			continue
		}
		if got.Error() != c.says {
			t.Errorf("%s: says %q, want %q", name, got, c.says)
		}
	}
}

// A diamond is no cycle, and neither is a lattice (field report B21).
func TestShapesThatAreNoCycles(t *testing.T) {
	diamond := []Task{{Name: "d", After: []string{"b", "c"}}, {Name: "b", After: []string{"a"}}, {Name: "c", After: []string{"a"}}, {Name: "a"}}
	links, err := Check(diamond)
	if err != nil || links.Edges != 4 || !slices.Equal(links.Children, []bool{false, true, true, true}) || !slices.Equal(links.Parents[0], []int{1, 2}) {
		t.Errorf("%+v, %v", links, err)
	}
	var lattice, chain []Task
	for layer := range 10 {
		for i := range 10 {
			task := Task{Name: fmt.Sprint(layer, ".", i)}
			for j := range 10 {
				if layer > 0 {
					task.After = append(task.After, fmt.Sprint(layer-1, ".", j))
				}
			}
			lattice = append(lattice, task)
		}
	}
	for i := range TasksMax {
		chain = append(chain, Task{Name: fmt.Sprint(i)})
		if i > 0 {
			chain[i].After = []string{fmt.Sprint(i - 1)}
		}
	}
	slices.Reverse(chain) // the search starts at the far end
	for name, tasks := range map[string][]Task{"lattice": lattice, "chain": chain} {
		if _, err := Check(tasks); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	chain[len(chain)-1].After = []string{fmt.Sprint(TasksMax - 1)}
	var bad *Error
	if _, err := Check(chain); !errors.As(err, &bad) || bad.Fault != Cycle || len(bad.Names) != TasksMax || len(bad.Error()) > 300 {
		t.Errorf("a ring of ten thousand: %v", err)
	}
}

// The search against a second opinion: a graph has a cycle exactly when taking away tasks without parents does not take away all.
func TestACycleIsFoundWhenThereIsOne(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 12).Draw(t, "tasks")
		tasks := make([]Task, n)
		for i := range tasks {
			tasks[i].Name = fmt.Sprint(i)
			for j := range n {
				if rapid.IntRange(0, 9).Draw(t, "edge") == 0 {
					tasks[i].After = append(tasks[i].After, fmt.Sprint(j))
				}
			}
		}
		left := map[string][]string{}
		for _, task := range tasks {
			left[task.Name] = task.After
		}
		for again := true; again; {
			again = false
			for name, after := range left {
				if !slices.ContainsFunc(after, func(p string) bool { _, here := left[p]; return here }) {
					delete(left, name)
					again = true
				}
			}
		}
		_, err := Check(tasks)
		if (err != nil) != (len(left) > 0) {
			t.Fatalf("found %v, left over %v", err, left)
		}
		var bad *Error
		if !errors.As(err, &bad) {
			return
		}
		for i, name := range bad.Names { // each waits for the next
			next := bad.Names[(i+1)%len(bad.Names)]
			if !slices.Contains(left[name], next) {
				t.Fatalf("%v: %s does not wait for %s", bad.Names, name, next)
			}
		}
		if tasks[bad.Task].Name != bad.Names[0] || tasks[bad.Task].After[bad.After] != bad.Names[1%len(bad.Names)] {
			t.Fatalf("%+v names another place", bad)
		}
	})
}

func TestEvaluate(t *testing.T) {
	for _, c := range []struct {
		edges                Edges
		all, finished, first Verdict
	}{
		{Edges{}, Release, Release, Release},
		{Edges{Open: true}, Wait, Wait, Wait},
		{Edges{Succeeded: true}, Release, Release, Release},
		{Edges{Otherwise: true}, Impossible, Release, Impossible},
		{Edges{Open: true, Succeeded: true}, Wait, Wait, Release},
		{Edges{Open: true, Otherwise: true}, Impossible, Wait, Wait},
		{Edges{Succeeded: true, Otherwise: true}, Impossible, Release, Release},
		{Edges{Open: true, Succeeded: true, Otherwise: true}, Impossible, Wait, Release},
	} {
		for condition, want := range map[Condition]Verdict{0: c.all, AllSucceeded: c.all, AllFinished: c.finished, AnySucceeded: c.first} {
			if got := Evaluate(condition, c.edges); got != want {
				t.Errorf("%+v when %v: %v, want %v", c.edges, condition, got, want)
			}
		}
	}
}

// Whoever evaluates after the last edge was closed is right, and nobody before was wrong: an answer other than to wait never changes,
// whatever edges are closed later, and with none open nobody waits.
func TestAnAnswerNeverChanges(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		condition := Condition(rapid.IntRange(0, 3).Draw(t, "condition"))
		outcomes := make([]Outcome, rapid.IntRange(1, 8).Draw(t, "edges"))
		sum := func() (e Edges) {
			for _, o := range outcomes {
				e = e.With(o)
			}
			return e
		}
		said := Evaluate(condition, sum())
		for _, i := range rapid.Permutation(indices(len(outcomes))).Draw(t, "order") {
			outcomes[i] = Outcome(rapid.IntRange(1, 2).Draw(t, "outcome"))
			now := Evaluate(condition, sum())
			if said != Wait && now != said {
				t.Fatalf("said %v, then %v: %v", said, now, outcomes)
			}
			said = now
		}
		if said == Wait {
			t.Fatalf("all have ended, and it waits: %v", outcomes)
		}
	})
}

func indices(n int) []int {
	all := make([]int, n)
	for i := range all {
		all[i] = i
	}
	return all
}
