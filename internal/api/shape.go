package api

import (
	"math"
	"strconv"

	"github.com/errandhq/errand/placement"
	errandv1 "github.com/errandhq/errand/proto/errand/v1"
)

// shapeOf reads what a task needs of a worker, nil for a slot and nothing else. Where the task has no requirements its kind's count.
func shapeOf(spec *errandv1.TaskSpec, prefix string, kind *placement.Resources) (*placement.Shape, error) {
	s := placement.Shape{Resources: requirementsOf(spec.GetRequirements()), Near: spec.GetNear()}
	if s.Resources == (placement.Resources{}) && kind != nil {
		s.Resources = *kind
	}
	if err := checkRequirements(&s.Resources, prefix+"requirements."); err != nil {
		return nil, err
	}
	for i, m := range spec.GetSelectors() {
		one, err := selectorOf(m, prefix+"selectors["+strconv.Itoa(i)+"].")
		if err != nil {
			return nil, err
		}
		s.Selectors = append(s.Selectors, one)
	}
	for i, m := range spec.GetPreferences() {
		one, err := selectorOf(m.GetSelector(), prefix+"preferences["+strconv.Itoa(i)+"].selector.")
		if err != nil {
			return nil, err
		}
		s.Preferences = append(s.Preferences, placement.Preference{Selector: one, Weight: int(m.GetWeight())})
	}
	if s.Resources == (placement.Resources{}) && len(s.Selectors)+len(s.Preferences) == 0 && s.Near == "" {
		return nil, nil
	}
	return &s, nil
}

// requirementsOf reads amounts. One slot is the same as none named.
func requirementsOf(m *errandv1.Requirements) placement.Resources {
	r := placement.Resources{
		CPUMilli: int64(m.GetCpuMilli()), MemoryMiB: int64(m.GetMemoryMib()), Slots: int64(m.GetSlots()),
		GPUs: int64(m.GetGpus()), GPUMilli: int64(m.GetGpuMilli()),
	}
	if r.Slots == 1 {
		r.Slots = 0
	}
	return r
}

func checkRequirements(r *placement.Resources, prefix string) error {
	if r.GPUs > 0 && r.GPUMilli > 0 {
		return invalid(prefix+"gpu_milli", "not together with gpus: a share of one device, or whole devices")
	}
	return nil
}

func selectorOf(m *errandv1.Selector, prefix string) (placement.Selector, error) {
	s := placement.Selector{Key: m.GetKey(), Operator: placement.Operator(m.GetOperator()), Values: m.GetValues()}
	switch n := len(s.Values); s.Operator {
	case placement.In, placement.NotIn:
		if n == 0 {
			return s, invalid(prefix+"values", "must name at least one")
		}
	case placement.Exists:
		if n > 0 {
			return s, invalid(prefix+"values", "says nothing with EXISTS")
		}
	case placement.Greater, placement.Less:
		if n != 1 || !isNumber(s.Values[0]) {
			return s, invalid(prefix+"values", "must be one finite number")
		}
	}
	return s, nil
}

func isNumber(text string) bool {
	n, err := strconv.ParseFloat(text, 64)
	return err == nil && !math.IsNaN(n) && !math.IsInf(n, 0)
}

// requirementsMessage shows amounts, nil for none.
func requirementsMessage(r *placement.Resources) *errandv1.Requirements {
	if r == nil || *r == (placement.Resources{}) {
		return nil
	}
	return &errandv1.Requirements{
		CpuMilli: int32(r.CPUMilli), MemoryMib: int32(r.MemoryMiB), Slots: int32(r.Slots), Gpus: int32(r.GPUs), GpuMilli: int32(r.GPUMilli),
	}
}

// showShape shows what a task needs of a worker.
func showShape(m *errandv1.TaskSpec, s *placement.Shape) {
	if s == nil {
		return
	}
	m.Requirements, m.Near = requirementsMessage(&s.Resources), s.Near
	for i := range s.Selectors {
		m.Selectors = append(m.Selectors, selectorMessage(&s.Selectors[i]))
	}
	for i := range s.Preferences {
		p := &s.Preferences[i]
		m.Preferences = append(m.Preferences, &errandv1.Preference{Selector: selectorMessage(&p.Selector), Weight: int32(p.Weight)})
	}
}

func selectorMessage(s *placement.Selector) *errandv1.Selector {
	return &errandv1.Selector{Key: s.Key, Operator: errandv1.SelectorOperator(s.Operator), Values: s.Values}
}
