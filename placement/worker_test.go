package placement

import "testing"

func TestWorkerIDPrintsAsUUID(t *testing.T) {
	w := WorkerID{0x12, 0x34, 0x56, 0x78, 0x9a, 0xbc, 0xde, 0xf0, 1, 2, 3, 4, 5, 6, 7, 8}
	if got, want := w.String(), "12345678-9abc-def0-0102-030405060708"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	if !(WorkerID{}).IsZero() || w.IsZero() {
		t.Error("only the zero value names no worker")
	}
	if (WorkerID{1}).Compare(WorkerID{2}) >= 0 || w.Compare(w) != 0 || (WorkerID{2}).Compare(WorkerID{1, 9}) <= 0 {
		t.Error("workers are ordered by their bytes")
	}
}
