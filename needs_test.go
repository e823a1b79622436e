package errand

import (
	"math"
	"reflect"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	errandv1 "github.com/errandhq/errand/proto/errand/v1"
)

// What a task needs comes back as it was said.
func TestNeedsGoThereAndBack(t *testing.T) {
	s := Spec{
		Kind: "k", Needs: Requirements{CPUMilli: 500, MemoryMiB: 2048, GPUMilli: 250, Slots: 2}, Near: "eu-a",
		Selectors: []Selector{
			{"disk", In, []string{"ssd", "nvme"}},
			{"gpu_model", NotIn, []string{"T4"}},
			{"net", Exists, nil},
			{"driver", Greater, []string{"535"}},
			{"age", Less, []string{"4"}},
		},
		Preferences: []Preference{{Selector{"rack", In, []string{"7"}}, 10}},
	}
	got := taskOf(&errandv1.Task{Spec: s.message()})
	if got.Needs != s.Needs || !reflect.DeepEqual(got.Selectors, s.Selectors) || !reflect.DeepEqual(got.Preferences, s.Preferences) || got.Near != s.Near {
		t.Errorf("%+v came back as %+v", s, got)
	}
	if field, why := s.checkNeeds(); field != "" {
		t.Errorf("%s: %s", field, why)
	}
	if m := (&Spec{Kind: "k"}).message(); !proto.Equal(m, &errandv1.TaskSpec{Kind: "k"}) {
		t.Errorf("a task that says nothing of its needs says %v", m)
	}
	if m := (&Requirements{CPUMilli: math.MaxInt, Slots: math.MinInt}).message(); m.GetCpuMilli() != math.MaxInt32 || m.GetSlots() != math.MinInt32 {
		t.Errorf("numbers that are too large became others: %v", m)
	}
}

// A task in a transaction does not pass the API: its rules hold all the same.
func TestNeedsOfATransactionAreChecked(t *testing.T) {
	selectors := func(s ...Selector) Spec { return Spec{Selectors: s} }
	prefers := func(weight int) Spec { return Spec{Preferences: []Preference{{Selector{"k", Exists, nil}, weight}}} }
	tests := map[string]Spec{
		"Needs.CPUMilli":          {Needs: Requirements{CPUMilli: -1}},
		"Needs.MemoryMiB":         {Needs: Requirements{MemoryMiB: capacityMemoryMax + 1}},
		"Needs.GPUs":              {Needs: Requirements{GPUs: 65}},
		"Needs.GPUMilli: 0 to":    {Needs: Requirements{GPUMilli: 1001}},
		"Needs.GPUMilli: not":     {Needs: Requirements{GPUMilli: 1, GPUs: 1}},
		"Needs.Slots":             {Needs: Requirements{Slots: 1025}},
		"Near":                    {Near: strings.Repeat("x", 256)},
		"Near: at most 255 bytes": {Near: "\x00"},
		"Selectors: at most":      selectors(make([]Selector, 17)...),
		"Preferences: at most":    {Preferences: make([]Preference, 17)},
		"Selectors: a key":        selectors(Selector{"", Exists, nil}),
		"k: its operator":         selectors(Selector{"k", 0, nil}),
		"k: 1 to 32":              selectors(Selector{"k", In, nil}),
		"k: 1 to 32 values":       selectors(Selector{"k", NotIn, make([]string, 33)}),
		"k: Exists":               selectors(Selector{"k", Exists, []string{"a"}}),
		"k: one value":            selectors(Selector{"k", Greater, []string{"NaN"}}),
		"k: one value, a finite":  selectors(Selector{"k", Less, []string{"1", "2"}}),
		"k: a value":              selectors(Selector{"k", In, []string{"\xff"}}),
		"a weight":                prefers(0),
		"Preferences: a weight":   prefers(101),
		"Preferences: k: its":     {Preferences: []Preference{{Selector{"k", 9, nil}, 1}}},
	}
	for want, s := range tests {
		s.Kind = "k"
		err := checkTx(TxScope{"eu", "acme"}, &s)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want an error with %q", err, want)
		}
	}
}
