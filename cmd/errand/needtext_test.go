package main

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"

	"github.com/errandhq/errand"
)

func TestConditionsOnLabels(t *testing.T) {
	tests := map[string]struct {
		want errand.Selector
		err  string
	}{
		"zone=a":      {want: errand.Selector{Key: "zone", Operator: errand.In, Values: []string{"a"}}},
		"zone=a,b":    {want: errand.Selector{Key: "zone", Operator: errand.In, Values: []string{"a", "b"}}},
		"zone!=a,b":   {want: errand.Selector{Key: "zone", Operator: errand.NotIn, Values: []string{"a", "b"}}},
		"zone=":       {want: errand.Selector{Key: "zone", Operator: errand.In, Values: []string{""}}},
		"gpu":         {want: errand.Selector{Key: "gpu", Operator: errand.Exists}},
		"mem>5":       {want: errand.Selector{Key: "mem", Operator: errand.Greater, Values: []string{"5"}}},
		"mem<-0.5":    {want: errand.Selector{Key: "mem", Operator: errand.Less, Values: []string{"-0.5"}}},
		"url=a=b!>c":  {want: errand.Selector{Key: "url", Operator: errand.In, Values: []string{"a=b!>c"}}},
		"a/b.c d=x:y": {want: errand.Selector{Key: "a/b.c d", Operator: errand.In, Values: []string{"x:y"}}},
		"!gpu":        {err: "KEY!=VALUE also holds"},
		"":            {err: "is not KEY=VALUE"},
		"=a":          {err: "is not KEY=VALUE"},
		" zone=a":     {err: "is not KEY=VALUE"},
		"zone!a":      {err: "after ! comes ="},
		"mem>=5":      {err: `"=5" is not a number`},
		"mem>":        {err: "is not a number"},
		"mem<NaN":     {err: "is not a number"},
		"mem<Inf":     {err: "is not a number"},
	}
	for text, tt := range tests {
		got, err := selectorOf(text)
		if tt.err != "" {
			if err == nil || !strings.Contains(err.Error(), tt.err) {
				t.Errorf("%q: %v, want an error with %q", text, err, tt.err)
			}
			continue
		}
		if err != nil || !reflect.DeepEqual(got, tt.want) || selectorText(&got) != text {
			t.Errorf("%q: %+v, %v; as text %q", text, got, err, selectorText(&got))
		}
	}
	for text, want := range map[string]string{
		"10:zone=eu": "", "100:a:b": "", "1:gpu": "", "zone=eu": "WEIGHT", "0:gpu": "WEIGHT", "101:gpu": "WEIGHT", ":gpu": "WEIGHT", "5:": "KEY=VALUE", "5:!gpu": "KEY!=VALUE",
	} {
		p, err := preferenceOf(text)
		if (err == nil) != (want == "") || (err != nil && !strings.Contains(err.Error(), want)) || (err == nil && preferenceText(&p) != text) {
			t.Errorf("%q: %+v, %v; want %q", text, p, err, want)
		}
	}
}

func TestAmounts(t *testing.T) {
	for text, want := range map[string]int{"0": 0, "0.5": 500, "2": 2000, "0.001": 1, "1024": 1024000, "0.29": 290, "0.0005": -1, "500m": -1, "-1": -1, "1025": -1, "NaN": -1, "": -1, "1e9": -1} {
		var p processors
		if err := p.UnmarshalText([]byte(text)); (err == nil) != (want >= 0) || (err == nil && int(p) != want) {
			t.Errorf("%q processors: %d, %v; want %d", text, p, err, want)
		}
	}
	for text, want := range map[string]int{
		"0": 0, "512": 512, "512Mi": 512, "16Gi": 16384, "1.5Gi": 1536, "16Ti": 16 << 20, "17Ti": -1, "0.5": -1, "1G": -1, "1GiMi": -1, "Gi": -1, "-1": -1, "1e400": -1, "Inf": -1, "": -1,
	} {
		var m mebibytes
		if err := m.UnmarshalText([]byte(text)); (err == nil) != (want >= 0) || (err == nil && int(m) != want) {
			t.Errorf("%q memory: %d, %v; want %d", text, m, err, want)
		}
	}
}

// Whatever is taken for a condition is shown as it was written, and nothing makes the reading fall over.
func FuzzConditions(f *testing.F) {
	for _, text := range []string{"zone=a,b", "zone!=a", "gpu", "!gpu", "mem>5", "mem<5", "10:zone=eu", "1.5Gi", "0.5", "\xff=\x00"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if s, err := selectorOf(text); err == nil && selectorText(&s) != text {
			t.Errorf("%q is shown as %q", text, selectorText(&s))
		}
		if p, err := preferenceOf(text); err == nil {
			again, err := preferenceOf(preferenceText(&p))
			if err != nil || !reflect.DeepEqual(p, again) {
				t.Errorf("%q is shown as %q, which is %+v, %v", text, preferenceText(&p), again, err)
			}
		}
		var l needLine
		var spec errand.Spec
		if json.Unmarshal([]byte(text), &l) == nil && l.into(&spec) == nil && (spec.Needs.CPUMilli < 0 || spec.Needs.MemoryMiB < 0) {
			t.Errorf("%q takes %+v", text, spec.Needs)
		}
	})
}

// What a line says of its task's needs goes before what the command line says, part by part.
func TestNeedsOfALine(t *testing.T) {
	defaults := errand.Spec{Kind: "k", Needs: errand.Requirements{CPUMilli: 100, GPUs: 2}, Near: "eu-a", Selectors: []errand.Selector{{Key: "a", Operator: errand.Exists}}}
	tests := map[string]struct{ want, err string }{
		`{}`: {want: "cpu 0.1 gpu 2|a||eu-a"},
		`{"cpu": 0.5, "memory": 512, "slots": 2}`:                       {want: "cpu 0.5 mem 512Mi gpu 2 slots 2|a||eu-a"},
		`{"cpu": "2", "memory": "1Gi"}`:                                 {want: "cpu 2 mem 1024Mi gpu 2|a||eu-a"},
		`{"gpu_milli": 250}`:                                            {want: "cpu 0.1 gpu 250m|a||eu-a"},
		`{"cpu": 0, "gpus": 0, "near": "", "select": [], "prefer": []}`: {want: "|||"},
		`{"select": ["b=1,2", "c>5"], "prefer": ["10:d", "5:e!=f"]}`:    {want: "cpu 0.1 gpu 2|b=1,2, c>5|10:d, 5:e!=f|eu-a"},
		`{"cpu": "5m"}`:        {err: "cpu"},
		`{"memory": true}`:     {err: "memory"},
		`{"select": ["!a"]}`:   {err: "select: "},
		`{"prefer": ["zone"]}`: {err: "prefer: "},
		`{"gpus": 1.5}`:        {err: "gpus"},
	}
	for line, tt := range tests {
		got, err := parseSpec([]byte(line), &defaults)
		if tt.err != "" {
			if err == nil || !strings.Contains(err.Error(), tt.err) {
				t.Errorf("%s: %v, want an error with %q", line, err, tt.err)
			}
			continue
		}
		text := strings.Join([]string{needsText(got.Needs), textsOf(got.Selectors, selectorText), textsOf(got.Preferences, preferenceText), got.Near}, "|")
		if err != nil || text != tt.want {
			t.Errorf("%s: %s, %v; want %s", line, text, err, tt.want)
		}
	}
}

// A task's needs go through all commands that take or show them.
func TestNeedsOnTheCommandLine(t *testing.T) {
	d := deploy(t)
	d.submit(t, errand.Spec{Kind: "nobody"})
	out, errs, code := d.command(t, d.cfg.Key, "submit", "nobody", "--cpu", "0.5", "--memory", "2Gi", "--gpu-milli", "250", "--slots", "2",
		"--select", "zone=a,b", "--select", "disk!=hdd", "--select", "gpu", "--select", "mem>5", "--prefer", "10:rack=7", "--near", "eu-a", "-o", "json")
	var stored struct {
		TaskID string `json:"task_id"`
	}
	if err := json.Unmarshal([]byte(out), &stored); err != nil || code != 0 {
		t.Fatalf("exit %d, %v: %s%s", code, err, out, errs)
	}
	for name, s := range map[string]struct {
		args []string
		code int
		want string
	}{
		"shown":               {[]string{"get", stored.TaskID}, 0, "cpu 0.5 mem 2048Mi gpu 250m slots 2"},
		"shown, the labels":   {[]string{"get", stored.TaskID}, 0, "zone=a,b, disk!=hdd, gpu, mem>5"},
		"shown, what is best": {[]string{"get", stored.TaskID}, 0, "10:rack=7"},
		"as JSON":             {[]string{"get", stored.TaskID, "-o", "json"}, 0, `"gpu_milli": 250`},
		"as JSON, the labels": {[]string{"get", stored.TaskID, "-o", "json"}, 0, `"operator": "not_in"`},
		"devices and a share": {[]string{"submit", "k", "--gpus", "1", "--gpu-milli", "5"}, exitUsage, "--gpu-milli: not together"},
		"too many devices":    {[]string{"submit", "k", "--gpus", "65"}, exitUsage, "--gpus: 65"},
		"too many slots":      {[]string{"submit", "k", "--slots", "1025"}, exitUsage, "--slots: 1025"},
		"less than no share":  {[]string{"submit", "k", "--gpu-milli=-1"}, exitUsage, "--gpu-milli: -1"},
		"no processors":       {[]string{"submit", "k", "--cpu", "500m"}, exitUsage, "--cpu: "},
		"no memory":           {[]string{"submit", "k", "--memory", "5G"}, exitUsage, "--memory: "},
		"no condition":        {[]string{"submit", "k", "--select", "!a"}, exitUsage, "--select: "},
		"no preference":       {[]string{"submit", "k", "--prefer", "a=b"}, exitUsage, "--prefer: "},
	} {
		out, errs, code := d.command(t, d.cfg.Key, s.args...)
		if code != s.code || !strings.Contains(out+errs, s.want) {
			t.Errorf("%s: exit %d, want %d and %q:\n%s%s", name, code, s.code, s.want, out, errs)
		}
	}
}
