package scheduler

import (
	"encoding/json"
	"testing"
	"time"
)

func TestSpecDefaults(t *testing.T) {
	for _, s := range []Spec{{}, {MaxAttempts: -1, MaxWorkerLosses: -1, AttemptTimeout: -1}} {
		if s.Attempts() != 5 || s.WorkerLosses() != 3 || s.Timeout() != time.Hour {
			t.Errorf("%+v: %d attempts, %d losses, %v", s, s.Attempts(), s.WorkerLosses(), s.Timeout())
		}
	}
	s := Spec{MaxAttempts: 1, MaxWorkerLosses: 2, AttemptTimeout: time.Second}
	if s.Attempts() != 1 || s.WorkerLosses() != 2 || s.Timeout() != time.Second {
		t.Errorf("%+v: %d attempts, %d losses, %v", s, s.Attempts(), s.WorkerLosses(), s.Timeout())
	}
}

func TestTolerances(t *testing.T) {
	for tier, want := range map[Tier][2]time.Duration{
		Urgent: {time.Second, 0}, Standard: {time.Minute, 10 * time.Second}, Deferrable: {24 * time.Hour, 10 * time.Minute},
	} {
		if got := [2]time.Duration{DefaultTolerance(tier), LeastTolerance(tier)}; got != want {
			t.Errorf("%v: default and least %v, want %v", tier, got, want)
		}
	}
}

// The stored form of a spec is read by other versions.
func TestSpecAsStored(t *testing.T) {
	if text, err := json.Marshal(Spec{}); err != nil || string(text) != "{}" {
		t.Errorf("a spec without anything set is stored as %s, %v", text, err)
	}
	var s Spec
	text := `{"attempt_timeout":1000000000,"max_attempts":2,"retry":{"max":5,"unknown":1},"allowed_regions":["here"],"later":{"a":1}}`
	if err := json.Unmarshal([]byte(text), &s); err != nil {
		t.Fatal(err)
	}
	if s.AttemptTimeout != time.Second || s.MaxAttempts != 2 || s.Retry.Max != 5 || len(s.AllowedRegions) != 1 {
		t.Errorf("read as %+v", s)
	}
}

func TestClasses(t *testing.T) {
	class := func(kind string, regions ...string) Class { return ClassOf(kind, &Spec{AllowedRegions: regions}) }
	if class("encode", "eu", "us") != class("encode", "us", "eu") {
		t.Error("the order of the regions makes another class")
	}
	different := map[string]Class{
		"encode": class("encode"), "encode in eu": class("encode", "eu"), "encode in eu, us": class("encode", "eu", "us"),
		"encode in euus": class("encode", "euus"), "encodeeu": class("encodeeu"), "nothing": class(""), "in nothing": class("", ""),
	}
	seen := map[Class]string{}
	for name, c := range different {
		if other, here := seen[c]; here {
			t.Errorf("%q and %q are one class", name, other)
		}
		seen[c] = name
	}
	// The store's index holds the hash: it may never change for rows that wait.
	if got := class("encode").Hash(); got != storedHashOfEncode {
		t.Errorf("the hash of kind encode is %d, rows are stored under %d", got, storedHashOfEncode)
	}
}

// storedHashOfEncode is what version 0 stores.
const storedHashOfEncode = int16(-31279)
