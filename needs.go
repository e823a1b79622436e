package errand

import (
	"math"
	"strconv"
	"unicode/utf8"

	errandv1 "github.com/errandhq/errand/proto/errand/v1"
)

// Requirements is what one attempt takes of its worker for as long as it runs. A zero field takes nothing of that, but a slot is always
// taken. The zero value means what an operator has set for the kind, then a slot.
type Requirements struct {
	CPUMilli  int // thousandths of a processor; at most 1,024,000
	MemoryMiB int // at most 16,777,216
	GPUs      int // whole devices; at most 64. Which they are says [Attempt].GPUs
	GPUMilli  int // a share of one device, in thousandths; at most 1000, not together with GPUs
	Slots     int // of the kind's and of the worker's; default 1, at most 1024
}

// Operator compares a worker's label with the values of a [Selector].
type Operator int

// The operators. A label that is missing satisfies NotIn only.
const (
	In      Operator = 1 // the label is one of the values
	NotIn   Operator = 2 // it is none of them
	Exists  Operator = 3 // there is one; no values
	Greater Operator = 4 // it is a number above the only value
	Less    Operator = 5 // it is a number below the only value
)

// Selector is a condition on a worker's label.
type Selector struct {
	Key      string // 1 to 63 bytes
	Operator Operator
	Values   []string // at most 32 of at most 255 bytes
}

// Preference makes workers for which its selector holds more likely.
type Preference struct {
	Selector
	Weight int // 1 to 100, against other preferences
}

// Bounds of what a task may need; those of amounts are a worker's, see [Capacity].
const (
	needGPUMilliMax  = 1000
	selectorsMax     = 16 // and as many preferences
	selectorValueMax = 255
	selectorListMax  = 32 // values
	weightMax        = 100
	nearMax          = 255 // bytes
)

// message is nil when nothing is asked for: then the kind's counts.
func (r *Requirements) message() *errandv1.Requirements {
	if *r == (Requirements{}) {
		return nil
	}
	return &errandv1.Requirements{
		CpuMilli: amount(r.CPUMilli), MemoryMib: amount(r.MemoryMiB), Gpus: amount(r.GPUs), GpuMilli: amount(r.GPUMilli), Slots: amount(r.Slots),
	}
}

// amount keeps a number that the message cannot hold out of bounds, for the scheduler to refuse it.
func amount(n int) int32 { return int32(max(min(n, math.MaxInt32), math.MinInt32)) }

func requirementsOf(m *errandv1.Requirements) Requirements {
	return Requirements{
		CPUMilli: int(m.GetCpuMilli()), MemoryMiB: int(m.GetMemoryMib()), GPUs: int(m.GetGpus()), GPUMilli: int(m.GetGpuMilli()), Slots: int(m.GetSlots()),
	}
}

func (s *Selector) message() *errandv1.Selector {
	return &errandv1.Selector{Key: s.Key, Operator: errandv1.SelectorOperator(amount(int(s.Operator))), Values: s.Values}
}

func selectorOf(m *errandv1.Selector) Selector {
	return Selector{Key: m.GetKey(), Operator: Operator(m.GetOperator()), Values: m.GetValues()}
}

// needsInto says what the task needs of a worker.
func (s *Spec) needsInto(m *errandv1.TaskSpec) {
	m.Requirements, m.Near = s.Needs.message(), s.Near
	for i := range s.Selectors {
		m.Selectors = append(m.Selectors, s.Selectors[i].message())
	}
	for i := range s.Preferences {
		p := &s.Preferences[i]
		m.Preferences = append(m.Preferences, &errandv1.Preference{Selector: p.message(), Weight: amount(p.Weight)})
	}
}

// needsOf reads what a task needs of a worker.
func (t *Task) needsOf(m *errandv1.TaskSpec) {
	t.Needs, t.Near = requirementsOf(m.GetRequirements()), m.GetNear()
	for _, s := range m.GetSelectors() {
		t.Selectors = append(t.Selectors, selectorOf(s))
	}
	for _, p := range m.GetPreferences() {
		t.Preferences = append(t.Preferences, Preference{Selector: selectorOf(p.GetSelector()), Weight: int(p.GetWeight())})
	}
}

// checkNeeds has the rules of the API, for tasks that do not pass it.
func (s *Spec) checkNeeds() (field, why string) {
	for _, a := range []struct {
		field      string
		value, max int
	}{
		{"Needs.CPUMilli", s.Needs.CPUMilli, capacityCPUMax},
		{"Needs.MemoryMiB", s.Needs.MemoryMiB, capacityMemoryMax},
		{"Needs.GPUs", s.Needs.GPUs, capacityGPUsMax},
		{"Needs.GPUMilli", s.Needs.GPUMilli, needGPUMilliMax},
		{"Needs.Slots", s.Needs.Slots, capacitySlotsMax},
	} {
		if a.value < 0 || a.value > a.max {
			return a.field, "0 to " + strconv.Itoa(a.max)
		}
	}
	switch {
	case s.Needs.GPUs > 0 && s.Needs.GPUMilli > 0:
		return "Needs.GPUMilli", "not together with GPUs: a share of one device, or whole devices"
	case len(s.Selectors) > selectorsMax:
		return "Selectors", "at most 16"
	case len(s.Preferences) > selectorsMax:
		return "Preferences", "at most 16"
	case !storable(s.Near, nearMax):
		return "Near", "at most 255 bytes of UTF-8 without NUL"
	}
	for i := range s.Selectors {
		if why := s.Selectors[i].check(); why != "" {
			return "Selectors", why
		}
	}
	for i := range s.Preferences {
		if why := s.Preferences[i].check(); why != "" {
			return "Preferences", why
		}
		if w := s.Preferences[i].Weight; w < 1 || w > weightMax {
			return "Preferences", "a weight is 1 to 100"
		}
	}
	return "", ""
}

func (s *Selector) check() (why string) {
	if s.Key == "" || !storable(s.Key, labelKeyMax) {
		return "a key has 1 to 63 bytes of UTF-8 without NUL"
	}
	for _, v := range s.Values {
		if !storable(v, selectorValueMax) {
			return s.Key + ": a value has at most 255 bytes of UTF-8 without NUL"
		}
	}
	switch n := len(s.Values); s.Operator {
	case In, NotIn:
		if n == 0 || n > selectorListMax {
			return s.Key + ": 1 to 32 values are possible"
		}
	case Exists:
		if n > 0 {
			return s.Key + ": Exists has no values"
		}
	case Greater, Less:
		if n != 1 || !finite(s.Values[0]) {
			return s.Key + ": one value, a finite number, is possible"
		}
	default:
		return s.Key + ": its operator is unknown"
	}
	return ""
}

func finite(text string) bool {
	n, err := strconv.ParseFloat(text, 64)
	return err == nil && !math.IsNaN(n) && !math.IsInf(n, 0)
}

// storable tells whether every store can hold a text.
func storable(text string, bytesMax int) bool {
	if len(text) > bytesMax || !utf8.ValidString(text) {
		return false
	}
	for i := range len(text) {
		if text[i] == 0 {
			return false
		}
	}
	return true
}

// storedShape is what a task needs of a worker as the store keeps it. Its text is part of the task's class: field for field it is what
// schedulers write.
type storedShape struct {
	CPUMilli    int                `json:"cpu_milli,omitempty"`
	MemoryMiB   int                `json:"memory_mib,omitempty"`
	Slots       int                `json:"slots,omitempty"`
	GPUs        int                `json:"gpus,omitempty"`
	GPUMilli    int                `json:"gpu_milli,omitempty"`
	Selectors   []storedSelector   `json:"selectors,omitempty"`
	Preferences []storedPreference `json:"preferences,omitempty"`
	Near        string             `json:"near,omitempty"`
}

type storedSelector struct {
	Key      string   `json:"key"`
	Operator Operator `json:"operator"`
	Values   []string `json:"values,omitempty"`
}

type storedPreference struct {
	storedSelector
	Weight int `json:"weight"`
}

// shape is nil for a slot and nothing else. One slot is the same as none named.
func (s *Spec) shape() *storedShape {
	needs := s.Needs
	if needs.Slots == 1 {
		needs.Slots = 0
	}
	if needs == (Requirements{}) && len(s.Selectors)+len(s.Preferences) == 0 && s.Near == "" {
		return nil
	}
	shape := &storedShape{
		CPUMilli: needs.CPUMilli, MemoryMiB: needs.MemoryMiB, Slots: needs.Slots, GPUs: needs.GPUs, GPUMilli: needs.GPUMilli, Near: s.Near,
	}
	for _, one := range s.Selectors {
		shape.Selectors = append(shape.Selectors, storedSelector(one))
	}
	for _, p := range s.Preferences {
		shape.Preferences = append(shape.Preferences, storedPreference{storedSelector(p.Selector), p.Weight})
	}
	return shape
}
