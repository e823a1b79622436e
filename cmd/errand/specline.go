package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"strings"
	"time"

	"github.com/errandhq/errand"
)

// Bounds of what submit --many sends at once.
const (
	lineBytesMax  = 2 << 20 // of one line: the largest payload, escaped
	batchLinesMax = errand.BatchMax
	batchBytesMax = 4 << 20 // of payloads
)

// specLine is a line of submit --many: the names are those of the flags.
type specLine struct {
	Kind            *string           `json:"kind"`
	Payload         json.RawMessage   `json:"payload"` // a string stands for its text, anything else for its JSON, byte by byte
	PayloadBase64   []byte            `json:"payload_base64"`
	ContentType     *string           `json:"content_type"`
	Labels          map[string]string `json:"labels"`
	Tier            *string           `json:"tier"`
	DelayTolerance  *span             `json:"delay_tolerance"`
	RunAt           time.Time         `json:"run_at"`
	Delay           *span             `json:"delay"`
	StartBy         time.Time         `json:"start_by"`
	StartWithin     *span             `json:"start_within"`
	Feasible        *bool             `json:"reject_if_infeasible"`
	Timeout         *span             `json:"timeout"`
	MaxAttempts     *int              `json:"max_attempts"`
	MaxWorkerLosses *int              `json:"max_worker_losses"`
	IdempotencyKey  string            `json:"idempotency_key"`
	UniqueKey       *string           `json:"unique_key"`
	RefuseHeld      *bool             `json:"refuse_held"`
	Exclusive       *bool             `json:"exclusive"`
	Limits          []string          `json:"limits"` // NAME or NAME/KEY; they take the place of those of the command line
	needLine
}

// span is a duration that is written as text: "90s", "1h30m".
type span time.Duration

// UnmarshalJSON reads it.
func (s *span) UnmarshalJSON(raw []byte) error {
	var text string
	if err := json.Unmarshal(raw, &text); err != nil {
		return fmt.Errorf(`%s is not a time span like "90s" or "1h30m"`, raw)
	}
	d, err := time.ParseDuration(text)
	*s = span(d)
	return err
}

// parseSpec reads a line; what it does not say stays as the defaults say.
func parseSpec(line []byte, defaults *errand.Spec) (errand.Spec, error) {
	var l specLine
	if !bytes.HasPrefix(line, []byte("{")) {
		return errand.Spec{}, errors.New("it is not a JSON object")
	}
	d := json.NewDecoder(bytes.NewReader(line))
	d.DisallowUnknownFields()
	if err := d.Decode(&l); err != nil {
		return errand.Spec{}, errors.New(strings.TrimPrefix(err.Error(), "json: "))
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return errand.Spec{}, errors.New("something follows the JSON object")
	}
	spec := *defaults
	if err := l.payloadInto(&spec); err != nil {
		return spec, err
	}
	if l.Tier != nil {
		tier, known := tiers[*l.Tier]
		if !known {
			return spec, fmt.Errorf("tier: %q is not urgent, standard or deferrable", *l.Tier)
		}
		spec.Tier = tier
	}
	if l.Limits != nil {
		limits, err := limitsOf(l.Limits)
		if err != nil {
			return spec, fmt.Errorf("limits: %w", err)
		}
		spec.Limits = limits
	}
	if err := l.into(&spec); err != nil {
		return spec, err
	}
	l.timesInto(&spec)
	set(&spec.Kind, l.Kind)
	set(&spec.ContentType, l.ContentType)
	set(&spec.RejectInfeasible, l.Feasible)
	set(&spec.MaxAttempts, l.MaxAttempts)
	set(&spec.MaxWorkerLosses, l.MaxWorkerLosses)
	set(&spec.Exclusive, l.Exclusive)
	set(&spec.UniqueKey, l.UniqueKey)
	set(&spec.RefuseHeld, l.RefuseHeld)
	spec.RefuseHeld = spec.RefuseHeld && spec.UniqueKey != "" // the command line's is for the lines that have a key
	if len(l.Labels) > 0 {
		spec.Labels = maps.Clone(defaults.Labels)
		if spec.Labels == nil {
			spec.Labels = map[string]string{}
		}
		maps.Copy(spec.Labels, l.Labels)
	}
	spec.IdempotencyKey = l.IdempotencyKey
	if spec.Kind == "" {
		return spec, errors.New("kind: missing")
	}
	return spec, nil
}

func set[T any](to, value *T) {
	if value != nil {
		*to = *value
	}
}

func (l *specLine) payloadInto(spec *errand.Spec) error {
	switch {
	case l.Payload != nil && l.PayloadBase64 != nil:
		return errors.New("payload and payload_base64 say the same: set one of them")
	case l.PayloadBase64 != nil:
		spec.Payload = l.PayloadBase64
	case bytes.HasPrefix(l.Payload, []byte(`"`)):
		var text string
		if err := json.Unmarshal(l.Payload, &text); err != nil {
			return fmt.Errorf("payload: %w", err)
		}
		spec.Payload = []byte(text)
	case l.Payload != nil:
		spec.Payload = l.Payload
	}
	return nil
}

// timesInto sets what a line says of times; one way to say it takes the other's place.
func (l *specLine) timesInto(spec *errand.Spec) {
	set((*span)(&spec.DelayTolerance), l.DelayTolerance)
	set((*span)(&spec.AttemptTimeout), l.Timeout)
	if l.Delay != nil || !l.RunAt.IsZero() {
		spec.Delay, spec.RunAt = 0, l.RunAt
		set((*span)(&spec.Delay), l.Delay)
	}
	if l.StartWithin != nil || !l.StartBy.IsZero() {
		spec.StartWithin, spec.StartBy = 0, l.StartBy
		set((*span)(&spec.StartWithin), l.StartWithin)
	}
}

// specBatch is what is sent at once.
type specBatch struct {
	specs []errand.Spec
	lines []int // the line of each
	first int   // the first line that was read for it, and the last
	last  int
}

// specReader reads batches of lines.
type specReader struct {
	scan     *bufio.Scanner
	defaults *errand.Spec
	line     int
}

func newSpecReader(r io.Reader, defaults *errand.Spec) *specReader {
	scan := bufio.NewScanner(r)
	scan.Buffer(make([]byte, 0, 64<<10), lineBytesMax)
	return &specReader{scan: scan, defaults: defaults}
}

// lineError is what is wrong with a line.
type lineError struct {
	line int
	err  error
}

// next reads a batch, empty at the end. Bad lines are collected, so that all of a batch are told at once.
func (r *specReader) next() (specBatch, []lineError, error) {
	b := specBatch{first: r.line + 1}
	var bad []lineError
	for size := 0; r.line+1-b.first < batchLinesMax && size < batchBytesMax && r.scan.Scan(); {
		r.line++
		text := bytes.TrimSpace(r.scan.Bytes())
		if len(text) == 0 {
			continue
		}
		spec, err := parseSpec(bytes.Clone(text), r.defaults)
		if err != nil {
			bad = append(bad, lineError{r.line, err})
			continue
		}
		size += len(spec.Payload)
		b.specs, b.lines = append(b.specs, spec), append(b.lines, r.line)
	}
	b.last = r.line
	if err := r.scan.Err(); errors.Is(err, bufio.ErrTooLong) {
		bad = append(bad, lineError{r.line + 1, fmt.Errorf("it is longer than %d MiB", lineBytesMax>>20)})
	} else if err != nil {
		return b, bad, err
	}
	return b, bad, nil
}
