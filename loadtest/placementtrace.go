package main

import (
	"encoding/binary"
	"encoding/csv"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/errandhq/errand/placement"
)

// trace is what a cluster has, and what it was asked for.
type trace struct {
	workload string
	workers  []placement.Worker
	tasks    []placement.Need
	milli    int64 // of all devices
}

// traceKind is the kind of all tasks of a trace. Slots are no limit: it has none.
const (
	traceKind  = "trace"
	traceSlots = 1 << 20
)

func readTrace(workers, tasks string) (*trace, error) {
	t := &trace{}
	err := readCSV(workers, func(row func(string) string) error {
		has, err := amounts(row, "cpu_milli", "memory_mib", "gpu")
		if err != nil {
			return err
		}
		t.milli += has[2] * placement.DeviceMilli
		t.workers = append(t.workers, placement.Worker{
			ID: traceWorker(len(t.workers)), Name: row("sn"), Slots: map[string]int{traceKind: traceSlots},
			Capacity: &placement.Resources{CPUMilli: has[0], MemoryMiB: has[1], GPUs: has[2]},
			Labels:   map[string]string{"model": row("model")},
		})
		return nil
	})
	if err != nil {
		return nil, err
	}
	shapes := map[string]*placement.Shape{}
	err = readCSV(tasks, func(row func(string) string) error {
		wants, err := amounts(row, "cpu_milli", "memory_mib", "num_gpu", "gpu_milli")
		if err != nil {
			return err
		}
		key := fmt.Sprint(wants, row("gpu_spec"))
		if shapes[key] == nil {
			shapes[key] = shapeOf(wants, row("gpu_spec"))
		}
		t.tasks = append(t.tasks, placement.Need{Kind: traceKind, Shape: shapes[key]})
		return nil
	})
	if err == nil && (t.milli == 0 || demand(t.tasks) == 0) {
		err = fmt.Errorf("%s, %s: no devices, or nobody asks for one", workers, tasks)
	}
	return t, err
}

func shapeOf(wants []int64, models string) *placement.Shape {
	s := &placement.Shape{Resources: placement.Resources{CPUMilli: wants[0], MemoryMiB: wants[1]}}
	if wants[2] == 1 && wants[3] < placement.DeviceMilli {
		s.GPUMilli = wants[3]
	} else {
		s.GPUs = wants[2]
	}
	if models != "" {
		s.Selectors = []placement.Selector{{Key: "model", Operator: placement.In, Values: strings.Split(models, "|")}}
	}
	return s
}

// traceWorker makes an identity of a number.
func traceWorker(n int) placement.WorkerID {
	var id placement.WorkerID
	binary.BigEndian.PutUint64(id[8:], uint64(n)+1)
	return id
}

// readCSV calls f for each row, with a way to get a column by its name; one that is not there is empty.
func readCSV(file string, f func(row func(string) string) error) error {
	in, err := os.Open(filepath.Clean(file))
	if err != nil {
		return err
	}
	defer func() { _ = in.Close() }() // it was only read
	rows, err := csv.NewReader(in).ReadAll()
	if err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	if len(rows) == 0 {
		return fmt.Errorf("%s: empty", file)
	}
	columns := map[string]int{}
	for i, name := range rows[0] {
		columns[name] = i
	}
	for i, row := range rows[1:] {
		err := f(func(name string) string {
			if at, here := columns[name]; here {
				return row[at]
			}
			return ""
		})
		if err != nil {
			return fmt.Errorf("%s, row %d: %w", file, i+2, err)
		}
	}
	return nil
}

func amounts(row func(string) string, names ...string) ([]int64, error) {
	var all []int64
	for _, name := range names {
		n, err := strconv.ParseInt(row(name), 10, 64)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		all = append(all, n)
	}
	return all, nil
}

// devices is what a task takes of devices, in thousandths of one.
func devices(n placement.Need) int64 { return n.Shape.GPUs*placement.DeviceMilli + n.Shape.GPUMilli }

func demand(tasks []placement.Need) int64 {
	sum := int64(0)
	for _, n := range tasks {
		sum += devices(n)
	}
	return sum
}

// arrivals lengthens the list of tasks by some drawn at random until they ask for a part of the devices, and shuffles it.
func (t *trace) arrivals(r *rand.Rand, percent int64) []placement.Need {
	list := append([]placement.Need(nil), t.tasks...)
	for sum := demand(list); sum < t.milli*percent/100; {
		n := t.tasks[r.IntN(len(t.tasks))]
		list, sum = append(list, n), sum+devices(n)
	}
	r.Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
	return list
}

// arrivalMarks are the arrived demands at which the allocation is read, in percent of all devices.
var arrivalMarks = []int64{90, 100, 110, 120, 130}

var everySlot = placement.Fill{Part: 1}

// fill lets tasks arrive that never end, and returns how much of the devices they have at each mark, in percent. What fits nowhere is
// dropped. If the tasks are known, the pool has seen all of them come and go before.
func (t *trace) fill(seed uint64, known bool) []float64 {
	p := placement.NewPool()
	for _, w := range t.workers {
		p.Join(w)
	}
	if known {
		for _, n := range t.tasks {
			if at, refusal := p.Place(n, everySlot); refusal == placement.Placed {
				p.Free(at, n)
			}
		}
	}
	last := arrivalMarks[len(arrivalMarks)-1]
	arrived, taken := int64(0), int64(0)
	var curve []float64
	for _, n := range t.arrivals(rand.New(rand.NewPCG(seed, 0)), last) {
		arrived += devices(n)
		if _, refusal := p.Place(n, everySlot); refusal == placement.Placed {
			taken += devices(n)
		}
		for len(curve) < len(arrivalMarks) && arrived >= t.milli*arrivalMarks[len(curve)]/100 {
			curve = append(curve, 100*float64(taken)/float64(t.milli))
		}
	}
	for len(curve) < len(arrivalMarks) { // a last task that asks for no device
		curve = append(curve, 100*float64(taken)/float64(t.milli))
	}
	return curve
}
