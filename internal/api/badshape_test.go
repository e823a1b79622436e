package api

import (
	"math"
	"strings"

	errandv1 "github.com/errandhq/errand/proto/errand/v1"
)

// badShapes are requirements, selectors and wishes that nothing could meet, or that mean nothing.
func badShapes() []badInput {
	const rpc = "TaskService/SubmitTask"
	var cases []badInput
	needs := func(name string, r *errandv1.Requirements, field string) {
		in := spec(func(s *errandv1.TaskSpec) { s.Requirements = r })
		if field == "" {
			cases = append(cases, badInput{name, rpc, in, "", ""})
			return
		}
		cases = append(cases, badInput{name, rpc, in, refusedField, "spec.requirements." + field})
	}
	regions := func(name string, names []string, field string) {
		in := spec(func(s *errandv1.TaskSpec) { s.AllowedRegions = names })
		if field == "" {
			cases = append(cases, badInput{name, rpc, in, "", ""})
			return
		}
		cases = append(cases, badInput{name, rpc, in, refusedField, "spec.allowed_regions" + field})
	}
	regions("this region", []string{region}, "")
	regions("a region that is not there", []string{region, "mars"}, "[1]")
	cases = append(cases, badInput{"a region twice", rpc, spec(func(s *errandv1.TaskSpec) { s.AllowedRegions = []string{region, region} }), refusedField, "spec.allowed_regions"})
	regions("a region with NUL", []string{"e\x00u"}, "[0]")
	needs("no requirements", &errandv1.Requirements{}, "")
	needs("less than no processor", &errandv1.Requirements{CpuMilli: -1}, "cpu_milli")
	needs("more processors than a number holds", &errandv1.Requirements{CpuMilli: math.MaxInt32}, "cpu_milli")
	needs("the most processors", &errandv1.Requirements{CpuMilli: 1024000}, "")
	needs("less than no memory", &errandv1.Requirements{MemoryMib: math.MinInt32}, "memory_mib")
	needs("too much memory", &errandv1.Requirements{MemoryMib: 16777217}, "memory_mib")
	needs("too many slots", &errandv1.Requirements{Slots: 1025}, "slots")
	needs("less than no slot", &errandv1.Requirements{Slots: -1}, "slots")
	needs("too many devices", &errandv1.Requirements{Gpus: 65}, "gpus")
	needs("more than one device as a share", &errandv1.Requirements{GpuMilli: 1001}, "gpu_milli")
	needs("a whole device as a share", &errandv1.Requirements{GpuMilli: 1000}, "")
	needs("devices and a share", &errandv1.Requirements{Gpus: 1, GpuMilli: 500}, "gpu_milli")

	selects := func(name string, s *errandv1.Selector, field string) {
		for where, in := range map[string]func(*errandv1.TaskSpec){
			"selectors[0].":            func(spec *errandv1.TaskSpec) { spec.Selectors = []*errandv1.Selector{s} },
			"preferences[0].selector.": func(spec *errandv1.TaskSpec) { spec.Preferences = []*errandv1.Preference{{Selector: s, Weight: 1}} },
		} {
			c := badInput{name, rpc, spec(in), refusedField, "spec." + where + field}
			if field == "" {
				c.reason, c.field = "", ""
			}
			cases = append(cases, c)
		}
	}
	const in, exists, greater = errandv1.SelectorOperator_SELECTOR_OPERATOR_IN, errandv1.SelectorOperator_SELECTOR_OPERATOR_EXISTS, errandv1.SelectorOperator_SELECTOR_OPERATOR_GREATER
	one := []string{"a"}
	selects("no operator", &errandv1.Selector{Key: "k", Values: one}, "operator")
	selects("an unknown operator", &errandv1.Selector{Key: "k", Operator: 99, Values: one}, "operator")
	selects("no key", &errandv1.Selector{Operator: in, Values: one}, "key")
	selects("a key with NUL", &errandv1.Selector{Key: "a\x00b", Operator: in, Values: one}, "key")
	selects("a long key", &errandv1.Selector{Key: strings.Repeat("k", 64), Operator: in, Values: one}, "key")
	selects("in nothing", &errandv1.Selector{Key: "k", Operator: in}, "values")
	selects("in too much", &errandv1.Selector{Key: "k", Operator: in, Values: make([]string, 33)}, "values")
	selects("exists with a value", &errandv1.Selector{Key: "k", Operator: exists, Values: one}, "values")
	selects("greater than a word", &errandv1.Selector{Key: "k", Operator: greater, Values: one}, "values")
	selects("greater than NaN", &errandv1.Selector{Key: "k", Operator: greater, Values: []string{"NaN"}}, "values")
	selects("greater than infinity", &errandv1.Selector{Key: "k", Operator: greater, Values: []string{"1e999"}}, "values")
	selects("greater than two", &errandv1.Selector{Key: "k", Operator: greater, Values: []string{"1", "2"}}, "values")
	selects("greater than a number", &errandv1.Selector{Key: "k", Operator: greater, Values: []string{"-1.5"}}, "")
	return append(cases,
		badInput{"a preference without a selector", rpc, spec(func(s *errandv1.TaskSpec) { s.Preferences = []*errandv1.Preference{{Weight: 1}} }), refusedField, "spec.preferences[0].selector"},
		badInput{"a weight of 0", rpc, spec(func(s *errandv1.TaskSpec) {
			s.Preferences = []*errandv1.Preference{{Selector: &errandv1.Selector{Key: "k", Operator: exists}}}
		}), refusedField, "spec.preferences[0].weight"},
		badInput{"near with NUL", rpc, spec(func(s *errandv1.TaskSpec) { s.Near = "\x00" }), refusedField, "spec.near"},
	)
}
