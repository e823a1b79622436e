package main

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/errandhq/errand"
)

func TestExecKind(t *testing.T) {
	in, out := t.TempDir(), t.TempDir()
	k, err := newExecKind(t.Context(), &execSettings{ExecInputs: []string{in}, ExecOutputs: []string{out}, ExecDir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(in, "a b"), []byte("hello"), 0o644); err != nil {
		t.Fatal(err)
	}
	run := func(payload string) (errand.Result, error) {
		payload = strings.NewReplacer("IN", in, "OUT", out).Replace(payload)
		return k.handle(t.Context(), &errand.Attempt{TaskID: "eu.1", Payload: []byte(payload), Worker: "w1"})
	}

	got, err := run(`{"command": ["sh", "-c", "cat /in/x > /out/y; echo said"], "inputs": [{"from": "IN/a b", "to": "/in/x"}],
		"outputs": [{"from": "/out/y", "to": "OUT/c d"}], "limits": {"cpu_seconds": 5, "wall_seconds": 10}}`)
	if err != nil {
		t.Fatal(err)
	}
	var result execResult
	if err := json.Unmarshal(got.Data, &result); err != nil {
		t.Fatal(err)
	}
	made, _ := os.ReadFile(filepath.Join(out, "c d"))
	if string(made) != "hello" || result.Stdout != "said\n" || result.Worker != "w1" || len(result.Outputs) != 1 || result.Outputs[0].Bytes != 5 {
		t.Errorf("%q, %+v", made, result)
	}

	for want, gpus := range map[string][]int{"[] []\n": nil, "[0,2] [0,2]\n": {0, 2}} {
		call := `{"command": ["sh", "-c", "echo [${ERRAND_GPUS-unset}] [${CUDA_VISIBLE_DEVICES-unset}]"], "env": {"CUDA_VISIBLE_DEVICES": "7"}}`
		got, err := k.handle(t.Context(), &errand.Attempt{TaskID: "eu.1", Payload: []byte(call), GPUs: gpus})
		var result execResult
		if err != nil || json.Unmarshal(got.Data, &result) != nil || result.Stdout != want {
			t.Errorf("devices %v: %q, %v; want %q", gpus, result.Stdout, err, want)
		}
	}

	for name, c := range map[string]struct {
		payload, reason, text string
		final                 bool
	}{
		"status":        {`{"command": ["sh", "-c", "echo why >&2; exit 4"]}`, "exit_status", "exit status 4: why", false},
		"signal":        {`{"command": ["sh", "-c", "kill -9 $$"]}`, "signal", "killed", false},
		"time":          {`{"command": ["sleep", "60"], "limits": {"wall_seconds": 0.1}}`, "time_limit", "time limit", false},
		"no output":     {`{"command": ["true"], "outputs": [{"from": "/out/y", "to": "OUT/z"}]}`, "no_output", "/out/y", false},
		"not granted":   {`{"command": ["true"], "inputs": [{"from": "/etc/passwd", "to": "/in/x"}]}`, "bad_payload", "inputs[0]", true},
		"the network":   {`{"command": ["true"], "network": true}`, "bad_payload", "network", true},
		"no command":    {`{}`, "bad_payload", "command", true},
		"unknown field": {`{"command": ["true"], "shell": true}`, "bad_payload", "shell", true},
		"not JSON":      {`true`, "bad_payload", "payload", true},
		"two objects":   {`{"command": ["true"]} {}`, "bad_payload", "behind", true},
		"negative":      {`{"command": ["true"], "limits": {"cpu_seconds": -1}}`, "bad_payload", "cpu_seconds", true},
		"endless":       {`{"command": ["true"], "limits": {"wall_seconds": 1e300}}`, "bad_payload", "wall_seconds", true},
		"huge":          {`{"command": ["true"], "limits": {"memory_bytes": 99999999999999}}`, "bad_payload", "memory_bytes", true},
	} {
		_, err := run(c.payload)
		f := errand.FailureOf(err)
		if f.Reason != c.reason || !strings.Contains(f.Message, c.text) || f.NonRetryable != c.final {
			t.Errorf("%s: %+v, want %s with %q, final %v", name, f, c.reason, c.text, c.final)
		}
	}
	if _, err := newExecKind(t.Context(), &execSettings{ExecInputs: []string{filepath.Join(in, "a b")}}); !errors.Is(err, errUsage) {
		t.Errorf("a file is no folder: %v", err)
	}
}
