package devcluster

import (
	"bytes"
	"sync"
)

// tail keeps the end of a program's output, for error messages.
type tail struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

const tailBytesMax = 16 << 10

// Write keeps the latest output and never fails.
func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.buf.Write(p)
	if extra := t.buf.Len() - tailBytesMax; extra > 0 {
		t.buf.Next(extra)
	}
	return len(p), nil
}

// String is the latest output.
func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.buf.String()
}
