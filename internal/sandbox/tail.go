package sandbox

import (
	"strings"
	"sync"
)

// tailMax is how much of what a command prints is kept: the last of it.
const tailMax = 4 << 10 // bytes

// tail keeps the end of a stream, and counts all of it. It takes everything: a command that prints much is ended by its cap.
type tail struct {
	mu    sync.Mutex
	last  []byte
	total int64
}

// Write keeps the end.
func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.total += int64(len(p))
	t.last = append(t.last, p[max(len(p)-tailMax, 0):]...)
	if extra := len(t.last) - tailMax; extra > 0 {
		t.last = append(t.last[:0], t.last[extra:]...)
	}
	return len(p), nil
}

func (t *tail) count() int64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.total
}

// String is the end as text: what is not UTF-8, and NUL, are shown as ?.
func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return strings.ReplaceAll(strings.ToValidUTF8(string(t.last), "?"), "\x00", "?")
}
