package errand

import (
	"fmt"
	"maps"
	"os"
	"runtime"

	errandv1 "github.com/errandhq/errand/proto/errand/v1"
)

// Bounds of what a worker says of itself.
const (
	workerLabelsMax = 64
	labelKeyMax     = 63  // bytes
	labelValueMax   = 255 // bytes
	zoneMax         = 63  // bytes
)

// gpuModel is the label that tells which devices a worker has, unless its configuration says something else.
const gpuModel = "gpu_model"

// describe takes what the configuration says of the worker, and what it leaves to the machine.
func (w *Worker) describe() {
	w.labels = maps.Clone(w.cfg.Labels)
	if w.cfg.Capacity != nil {
		w.capacity = *w.cfg.Capacity
	} else {
		w.capacity = DetectCapacity()
	}
	if _, set := w.labels[gpuModel]; set || w.capacity.GPUs == 0 || len(w.labels) == workerLabelsMax {
		return
	}
	if model := (machine{os.DirFS("/"), runtime.GOMAXPROCS(0)}).deviceModel(); model != "" {
		if w.labels == nil {
			w.labels = map[string]string{}
		}
		w.labels[gpuModel] = model
	}
}

func checkLabels(labels map[string]string) error {
	if len(labels) > workerLabelsMax {
		return fmt.Errorf("%w: Labels: %d; at most %d are possible", ErrConfig, len(labels), workerLabelsMax)
	}
	for key, value := range labels {
		if key == "" || key != text(key, labelKeyMax) {
			return fmt.Errorf("%w: Labels: the key %q: 1 to %d bytes of UTF-8 without NUL", ErrConfig, key, labelKeyMax)
		}
		if value != text(value, labelValueMax) {
			return fmt.Errorf("%w: Labels: the value of %s: at most %d bytes of UTF-8 without NUL", ErrConfig, key, labelValueMax)
		}
	}
	return nil
}

// SetLabels replaces the worker's labels, gpu_model too; those that an operator has laid over them stay. It may be called at any time, from
// any goroutine. What runs goes on; new work is given by the new labels.
func (w *Worker) SetLabels(labels map[string]string) error {
	if err := checkLabels(labels); err != nil {
		return err
	}
	labels = maps.Clone(labels)
	w.change(func() { w.labels = labels })
	return nil
}

// SetCapacity replaces the worker's capacity. It may be called at any time, from any goroutine. What runs goes on, also above a smaller
// capacity: then nothing new comes until enough has ended.
func (w *Worker) SetCapacity(c Capacity) error {
	if err := c.check(); err != nil {
		return err
	}
	w.change(func() { w.capacity = c })
	return nil
}

// SetSlots changes how many tasks of a kind run at once: 1 to 100,000. The kind has a handler. It may be called at any time after Handle, from
// any goroutine. What runs goes on, also above a smaller number.
func (w *Worker) SetSlots(name string, slots int) error {
	if slots < 1 || slots > slotsMax {
		return fmt.Errorf("%w: SetSlots: kind %s: %d slots; 1 to %d are possible", ErrConfig, name, slots, slotsMax)
	}
	known := false
	w.change(func() {
		k := w.kinds[name]
		if known = k != nil; known {
			k.slots = slots
		}
	})
	if !known {
		return fmt.Errorf("%w: SetSlots: kind %q has no handler", ErrConfig, name)
	}
	return nil
}

// change says the whole again. What it holds is named and put into the outbox in one: an attempt that starts or ends between the two would
// look as if the worker had dropped it. Many changes at once are one message.
func (w *Worker) change(set func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	set()
	r := w.described()
	w.box.add(func(m *errandv1.WorkRequest) { m.Register = r })
}
