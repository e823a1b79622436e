package graph

import (
	"fmt"
	"strings"
)

// Bounds of a graph.
const (
	TasksMax = 10_000
	EdgesMax = 100_000 // of one submission, those to existing tasks included
	BytesMax = 8 << 20 // of its tasks, together

	cycleShown = 10 // names of a cycle that its message spells out
)

// Task is one task of a graph that is to be checked.
type Task struct {
	Name    string
	After   []string // names of its parents within the graph
	Outside int      // how many parents it has that exist already
	Bytes   int      // its size
}

// Fault is what is wrong with a graph. The words are stable.
type Fault string

// The faults.
const (
	NoTasks         Fault = "no_tasks"
	TooManyTasks    Fault = "too_many_tasks"
	TooManyEdges    Fault = "too_many_edges"
	TooLarge        Fault = "too_large"
	NameTaken       Fault = "name_taken"       // two tasks have the name
	UnknownParent   Fault = "unknown_parent"   // no task of the graph has the name
	DuplicateParent Fault = "duplicate_parent" // named twice by one task
	Cycle           Fault = "cycle"            // tasks that wait for each other, or one for itself
)

// Error is the first fault of a graph.
type Error struct {
	Fault Fault
	Task  int      // the index of the task at fault; -1 for the graph as a whole
	After int      // the index in its After; -1 when it is not about a parent
	Names []string // the name at fault; of a cycle its tasks, each waiting for the next and the last for the first
}

// Error says what is wrong, for the one who submitted it.
func (e *Error) Error() string {
	name := ""
	if len(e.Names) > 0 {
		name = e.Names[0]
	}
	switch e.Fault {
	case NoTasks:
		return "a graph has at least one task"
	case TooManyTasks:
		return fmt.Sprintf("a graph has at most %d tasks", TasksMax)
	case TooManyEdges:
		return fmt.Sprintf("the tasks of a graph name at most %d parents together", EdgesMax)
	case TooLarge:
		return fmt.Sprintf("the tasks of a graph have at most %d bytes together", BytesMax)
	case NameTaken:
		return fmt.Sprintf("another task of the graph has the name %q", name)
	case UnknownParent:
		return fmt.Sprintf("no task of the graph has the name %q", name)
	case DuplicateParent:
		return fmt.Sprintf("the parent %q is named twice", name)
	default:
		return "tasks wait for each other: " + spell(e.Names)
	}
}

// spell prints a cycle: a long one in its beginning only.
func spell(names []string) string {
	if len(names) == 0 {
		return "a cycle"
	}
	shown := names[:min(len(names), cycleShown)]
	text := strings.Join(shown, " after ")
	if more := len(names) - len(shown); more > 0 {
		text += fmt.Sprintf(" after ... (%d more)", more)
	}
	return text + " after " + names[0]
}

// Links are the edges of a graph that was found right.
type Links struct {
	Parents  [][]int // of each task, by index, in the order in which it names them
	Children []bool  // whether a task has any
	Edges    int     // all, those to existing tasks included
}

// Check tells whether a graph may be stored. Its error is an [*Error]. Its cost is linear in tasks and edges.
func Check(tasks []Task) (Links, error) {
	if len(tasks) == 0 {
		return Links{}, &Error{Fault: NoTasks, Task: -1, After: -1}
	}
	if len(tasks) > TasksMax {
		return Links{}, &Error{Fault: TooManyTasks, Task: -1, After: -1}
	}
	byName := make(map[string]int, len(tasks))
	size := 0
	for i := range tasks {
		if _, taken := byName[tasks[i].Name]; taken {
			return Links{}, &Error{Fault: NameTaken, Task: i, After: -1, Names: []string{tasks[i].Name}}
		}
		byName[tasks[i].Name] = i
		if size += tasks[i].Bytes; size > BytesMax {
			return Links{}, &Error{Fault: TooLarge, Task: i, After: -1}
		}
	}
	links, err := link(tasks, byName)
	if err != nil {
		return Links{}, err
	}
	if cycle := findCycle(links.Parents); cycle != nil {
		names := make([]string, len(cycle))
		for i, t := range cycle {
			names[i] = tasks[t].Name
		}
		return Links{}, &Error{Fault: Cycle, Task: cycle[0], After: placeOf(links.Parents[cycle[0]], cycle[1%len(cycle)]), Names: names}
	}
	return links, nil
}

// link turns names into indices.
func link(tasks []Task, byName map[string]int) (Links, error) {
	links := Links{Parents: make([][]int, len(tasks)), Children: make([]bool, len(tasks))}
	seenBy := make([]int, len(tasks)) // the task, from 1, that last named this one
	for i := range tasks {
		if links.Edges += tasks[i].Outside + len(tasks[i].After); links.Edges > EdgesMax {
			return Links{}, &Error{Fault: TooManyEdges, Task: i, After: -1}
		}
		parents := make([]int, len(tasks[i].After))
		for j, name := range tasks[i].After {
			parent, known := byName[name]
			if !known {
				return Links{}, &Error{Fault: UnknownParent, Task: i, After: j, Names: []string{name}}
			}
			if seenBy[parent] == i+1 {
				return Links{}, &Error{Fault: DuplicateParent, Task: i, After: j, Names: []string{name}}
			}
			seenBy[parent], parents[j], links.Children[parent] = i+1, parent, true
		}
		links.Parents[i] = parents
	}
	return links, nil
}

func placeOf(list []int, want int) int {
	for i, one := range list {
		if one == want {
			return i
		}
	}
	return -1
}

// The colours of a search: not seen, on the way from the root of the search to here, and done with.
const (
	white = iota
	grey
	black
)

// findCycle returns the tasks of a cycle, each waiting for the next, or nil. It keeps its way in a slice: a chain of ten thousand
// tasks would be as many frames of a recursion.
func findCycle(parents [][]int) []int {
	colour := make([]uint8, len(parents))
	type step struct{ task, next int }
	var way []step
	for root := range parents {
		if colour[root] != white {
			continue
		}
		colour[root], way = grey, append(way[:0], step{task: root})
		for len(way) > 0 {
			at := &way[len(way)-1]
			if at.next == len(parents[at.task]) {
				colour[at.task], way = black, way[:len(way)-1]
				continue
			}
			parent := parents[at.task][at.next]
			at.next++
			switch colour[parent] {
			case white:
				colour[parent], way = grey, append(way, step{task: parent})
			case grey:
				var cycle []int
				for i := len(way) - 1; ; i-- {
					cycle = append(cycle, way[i].task)
					if way[i].task == parent {
						break
					}
				}
				for i, j := 0, len(cycle)-1; i < j; i, j = i+1, j-1 {
					cycle[i], cycle[j] = cycle[j], cycle[i]
				}
				return cycle
			}
		}
	}
	return nil
}
