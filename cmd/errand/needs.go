package main

import (
	"errors"
	"fmt"

	"github.com/errandhq/errand"
	errandv1 "github.com/errandhq/errand/proto/errand/v1"
)

// amountSettings are what an attempt takes of its worker; 0 is what is not said.
type amountSettings struct {
	CPU      processors `help:"Processors of its worker that an attempt takes, for instance 0.5." env:"-" placeholder:"N"`
	Memory   mebibytes  `help:"Memory, in MiB or with a unit: 512, 512Mi, 1.5Gi." env:"-" placeholder:"AMOUNT"`
	GPUs     int        `help:"Whole GPU devices." name:"gpus" env:"-" placeholder:"N"`
	GPUMilli int        `help:"A share of one GPU device, in thousandths; not together with --gpus." name:"gpu-milli" env:"-" placeholder:"N"`
	Slots    int        `help:"Slots of its worker, 1 if nothing is said." env:"-" placeholder:"N"`
}

func (a *amountSettings) requirements() errand.Requirements {
	return errand.Requirements{CPUMilli: int(a.CPU), MemoryMiB: int(a.Memory), GPUs: a.GPUs, GPUMilli: a.GPUMilli, Slots: a.Slots}
}

// check names the flag whose number is none.
func (a *amountSettings) check() error {
	for _, f := range []struct {
		name       string
		value, max int
	}{{"gpus", a.GPUs, 64}, {"gpu-milli", a.GPUMilli, 1000}, {"slots", a.Slots, 1024}} {
		if f.value < 0 || f.value > f.max {
			return fmt.Errorf("--%s: %d is not between 0 and %d", f.name, f.value, f.max)
		}
	}
	if a.GPUs > 0 && a.GPUMilli > 0 {
		return errors.New("--gpu-milli: not together with --gpus: a share of one device, or whole devices")
	}
	return nil
}

// message is nil when nothing is said.
func (a *amountSettings) message() *errandv1.Requirements {
	if *a == (amountSettings{}) {
		return nil
	}
	return &errandv1.Requirements{
		CpuMilli: int32(a.CPU), MemoryMib: int32(a.Memory), Gpus: int32(a.GPUs), GpuMilli: int32(a.GPUMilli), Slots: int32(a.Slots),
	}
}

// placeSettings say on which workers a task may run, and where it had better.
type placeSettings struct {
	Select []string `help:"A condition on the worker's labels that must hold; may be repeated. KEY=VALUE,... KEY!=VALUE,... KEY>NUMBER KEY<NUMBER, or KEY for a label that is there." sep:"none" env:"-" placeholder:"CONDITION"`
	Prefer []string `help:"A condition that is better met, and its weight of 1 to 100; may be repeated." sep:"none" env:"-" placeholder:"WEIGHT:CONDITION"`
	Near   string   `help:"A zone whose workers are preferred." env:"-" placeholder:"ZONE"`
}

// needSettings are all that a task may need of its worker.
type needSettings struct {
	amountSettings
	placeSettings
}

// into says it in a spec.
func (n *needSettings) into(spec *errand.Spec) (err error) {
	spec.Needs, spec.Near = n.requirements(), n.Near
	if spec.Selectors, err = eachOf(n.Select, selectorOf); err != nil {
		return fmt.Errorf("%w: --select: %w", errUsage, err)
	}
	if spec.Preferences, err = eachOf(n.Prefer, preferenceOf); err != nil {
		return fmt.Errorf("%w: --prefer: %w", errUsage, err)
	}
	return nil
}

// needLine is the part of a line of submit --many that says what its task needs.
type needLine struct {
	CPU      *processors `json:"cpu"`
	Memory   *mebibytes  `json:"memory"`
	GPUs     *int        `json:"gpus"`
	GPUMilli *int        `json:"gpu_milli"`
	Slots    *int        `json:"slots"`
	Select   []string    `json:"select"` // they take the place of those of the command line
	Prefer   []string    `json:"prefer"` // so do they
	Near     *string     `json:"near"`
}

// into sets what the line says. Devices take the place of a share of one, and the other way round.
func (l *needLine) into(spec *errand.Spec) (err error) {
	if l.GPUs != nil || l.GPUMilli != nil {
		spec.Needs.GPUs, spec.Needs.GPUMilli = 0, 0
	}
	set((*processors)(&spec.Needs.CPUMilli), l.CPU)
	set((*mebibytes)(&spec.Needs.MemoryMiB), l.Memory)
	set(&spec.Needs.GPUs, l.GPUs)
	set(&spec.Needs.GPUMilli, l.GPUMilli)
	set(&spec.Needs.Slots, l.Slots)
	set(&spec.Near, l.Near)
	if l.Select != nil {
		if spec.Selectors, err = eachOf(l.Select, selectorOf); err != nil {
			return fmt.Errorf("select: %w", err)
		}
	}
	if l.Prefer != nil {
		if spec.Preferences, err = eachOf(l.Prefer, preferenceOf); err != nil {
			return fmt.Errorf("prefer: %w", err)
		}
	}
	return nil
}

// needsView is what an attempt takes of its worker; null when the task says nothing.
type needsView struct {
	CPUMilli  int `json:"cpu_milli"`
	MemoryMiB int `json:"memory_mib"`
	GPUs      int `json:"gpus"`
	GPUMilli  int `json:"gpu_milli"`
	Slots     int `json:"slots"` // 0 for one
}

func needsViewOf(r errand.Requirements) *needsView {
	if r == (errand.Requirements{}) {
		return nil
	}
	return &needsView{r.CPUMilli, r.MemoryMiB, r.GPUs, r.GPUMilli, r.Slots}
}

func requirementsOf(m *errandv1.Requirements) errand.Requirements {
	return errand.Requirements{
		CPUMilli: int(m.GetCpuMilli()), MemoryMiB: int(m.GetMemoryMib()), GPUs: int(m.GetGpus()), GPUMilli: int(m.GetGpuMilli()), Slots: int(m.GetSlots()),
	}
}

// selectorView is a condition on a label; a preference has a weight.
type selectorView struct {
	Key      string   `json:"key"`
	Operator string   `json:"operator"` // in, not_in, exists, greater, less
	Values   []string `json:"values"`
	Weight   int      `json:"weight,omitempty"`
}

var operatorWords = map[errand.Operator]string{
	errand.In: "in", errand.NotIn: "not_in", errand.Exists: "exists", errand.Greater: "greater", errand.Less: "less",
}

func selectorViews(selectors []errand.Selector) []selectorView {
	views := []selectorView{}
	for _, s := range selectors {
		views = append(views, selectorView{s.Key, operatorWords[s.Operator], append([]string{}, s.Values...), 0})
	}
	return views
}

func preferenceViews(preferences []errand.Preference) []selectorView {
	views := []selectorView{}
	for _, p := range preferences {
		views = append(views, selectorView{p.Key, operatorWords[p.Operator], append([]string{}, p.Values...), p.Weight})
	}
	return views
}
