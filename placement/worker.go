package placement

import (
	"bytes"
	"encoding/hex"
)

// WorkerID is one run of a worker process.
type WorkerID [16]byte

// IsZero tells whether the value names no worker.
func (w WorkerID) IsZero() bool { return w == WorkerID{} }

// Compare orders workers by their bytes.
func (w WorkerID) Compare(other WorkerID) int { return bytes.Compare(w[:], other[:]) }

// String prints the instance in the usual UUID form.
func (w WorkerID) String() string {
	h := hex.EncodeToString(w[:])
	return h[:8] + "-" + h[8:12] + "-" + h[12:16] + "-" + h[16:20] + "-" + h[20:]
}
