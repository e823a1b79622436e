package store

import (
	"encoding/json"
	"fmt"
	"reflect"
	"time"

	"github.com/errandhq/errand/scheduler"
)

// This file turns values into what the database holds, and back.

func uuids[T ~[16]byte](ids []T) [][16]byte {
	out := make([][16]byte, len(ids))
	for i, id := range ids {
		out[i] = id
	}
	return out
}

// optionalID is NULL for zero.
func optionalID[T ~[16]byte](id T) *[16]byte {
	raw := [16]byte(id)
	if raw == ([16]byte{}) {
		return nil
	}
	return &raw
}

func idOf[T ~[16]byte](raw *[16]byte) T {
	if raw == nil {
		return T{}
	}
	return T(*raw)
}

func timeOf(t *time.Time) time.Time {
	if t == nil {
		return time.Time{}
	}
	return t.UTC()
}

// optionalText is NULL for empty.
func optionalText(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}

func textOf(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}

// optionalSpec is empty when nothing is set: most tasks store none.
func optionalSpec(s *scheduler.Spec) (string, error) {
	if s == nil || reflect.ValueOf(s).Elem().IsZero() {
		return "", nil
	}
	raw, err := json.Marshal(s)
	if err != nil {
		return "", fmt.Errorf("%w: spec: %w", scheduler.ErrRefused, err)
	}
	return string(raw), nil
}

// specOf reads a stored spec. One that a human broke means the defaults: a bad row must not stop the others.
func specOf(raw []byte) scheduler.Spec {
	var s scheduler.Spec
	if len(raw) > 0 {
		if err := json.Unmarshal(raw, &s); err != nil {
			return scheduler.Spec{}
		}
	}
	return s
}

func optionalFailure(f *scheduler.Failure) *string {
	if f == nil {
		return nil
	}
	raw, err := json.Marshal(f)
	if err != nil { // two texts can always be encoded
		return nil
	}
	text := string(raw)
	return &text
}

func failureOf(raw []byte) *scheduler.Failure {
	if len(raw) == 0 {
		return nil
	}
	var f scheduler.Failure
	if err := json.Unmarshal(raw, &f); err != nil {
		return nil
	}
	return &f
}
