package errand

import (
	"errors"
	"fmt"
	"strings"
	"time"
)

// markedError says what shall follow from an error.
type markedError struct {
	err        error
	reason     string
	final      bool
	retryAfter time.Duration
	snooze     time.Duration
	pressed    bool
	limit      string
}

func (m *markedError) Error() string { return m.err.Error() }
func (m *markedError) Unwrap() error { return m.err }

// NonRetryable marks an error after which the task is not tried again. Marks may be nested; no error stays none.
func NonRetryable(err error) error { return mark(err, markedError{final: true}) }

// RetryAfter marks an error after which the task is not tried again before the time is over.
func RetryAfter(err error, d time.Duration) error { return mark(err, markedError{retryAfter: d}) }

// WithReason gives an error a stable word that retry policies and programs can decide by: at most 63 bytes.
func WithReason(err error, reason string) error { return mark(err, markedError{reason: reason}) }

func mark(err error, m markedError) error {
	if err == nil {
		return nil
	}
	m.err = err
	return &m
}

// Snooze puts the task off; the attempt does not count. At least 1 ms, at most a year.
func Snooze(d time.Duration) error {
	return &markedError{err: fmt.Errorf("errand: put off by %v", d), snooze: max(d, time.Millisecond)}
}

// Backpressure says that what a named limit of the task guards asks for less: fewer tasks that carry the limit (with the same key) start
// from then on, and slowly more again. The task goes back to its place and is not tried before the time is over, at most a year; 0 leaves
// that to the limit's own pace. The attempt does not count. A limit that no operator has put slows nothing: then the task waits as its
// retry policy says.
func Backpressure(limit string, retryAfter time.Duration) error {
	limit = text(limit, reasonMax)
	return &markedError{err: fmt.Errorf("errand: the limit %q asks for less", limit), pressed: true, limit: limit, retryAfter: max(retryAfter, 0)}
}

// Failure is what a worker reports of a handler's error.
type Failure struct {
	Reason       string // a stable word, empty for the scheduler's default; cut at 63 bytes
	Message      string // cut at 4 KiB, without what cannot be stored
	NonRetryable bool
	RetryAfter   time.Duration // 0 for the retry policy's own pause
	Snooze       time.Duration // above 0 when the task is put off: then nothing else counts
	Backpressure bool          // the limit named by Limit asks for less: then nothing else counts but RetryAfter
	Limit        string        // cut at 63 bytes
}

// FailureOf tells what a worker reports of an error: for tests of handlers with [Try], and for middleware. Of marks of one sort
// the outermost counts. The failure of no error is empty.
func FailureOf(err error) Failure {
	if err == nil {
		return Failure{}
	}
	f := Failure{Message: messageOf(err)}
	for e := err; ; {
		var m *markedError
		if !errors.As(e, &m) {
			return f
		}
		f.NonRetryable = f.NonRetryable || m.final
		if f.Reason == "" {
			f.Reason = text(m.reason, reasonMax)
		}
		if f.RetryAfter == 0 {
			f.RetryAfter = max(m.retryAfter, 0)
		}
		if f.Snooze == 0 && !f.Backpressure {
			f.Snooze, f.Backpressure, f.Limit = m.snooze, m.pressed, m.limit
		}
		e = m.err
	}
}

// messageOf is an error's text, also of one whose Error method panics, as that of a nil pointer may.
func messageOf(err error) string { return text(fmt.Sprint(err), messageMax) }

// text is what protobuf and the store can carry of a text.
func text(s string, limit int) string {
	if len(s) > limit {
		s = s[:limit]
	}
	return strings.ReplaceAll(strings.ToValidUTF8(s, ""), "\x00", "")
}
