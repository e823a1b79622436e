package errand

import (
	"fmt"
	"io/fs"
	"os"
	"path"
	"regexp"
	"runtime"
	"strconv"
	"strings"

	errandv1 "github.com/errandhq/errand/proto/errand/v1"
)

// Capacity is what a worker has for its attempts, over all kinds together. A task that says what it needs goes only where that is free; one
// that says nothing takes a slot.
type Capacity struct {
	CPUMilli  int // thousandths of a processor; at most 1,024,000
	MemoryMiB int // at most 16,777,216
	GPUs      int // whole devices; at most 64
	Slots     int // attempts at once over all kinds; 0 is no bound but those of the kinds
}

// Bounds of a capacity.
const (
	capacityCPUMax    = 1_024_000
	capacityMemoryMax = 16_777_216
	capacityGPUsMax   = 64
	capacitySlotsMax  = 1024
)

// DetectCapacity returns what this process may use: processors and memory within the limits of its control group (on Linux), processors also
// within GOMAXPROCS, and the NVIDIA devices under /dev. What cannot be found out is 0, memory for instance on other systems.
func DetectCapacity() Capacity {
	m := machine{os.DirFS("/"), runtime.GOMAXPROCS(0)}
	return m.capacity()
}

// check names the field that is out of bounds.
func (c *Capacity) check() error {
	for _, f := range []struct {
		name       string
		value, max int
	}{
		{"CPUMilli", c.CPUMilli, capacityCPUMax},
		{"MemoryMiB", c.MemoryMiB, capacityMemoryMax},
		{"GPUs", c.GPUs, capacityGPUsMax},
		{"Slots", c.Slots, capacitySlotsMax},
	} {
		if f.value < 0 || f.value > f.max {
			return fmt.Errorf("%w: Capacity.%s: %d is not between 0 and %d", ErrConfig, f.name, f.value, f.max)
		}
	}
	return nil
}

func (c *Capacity) message() *errandv1.Requirements {
	return &errandv1.Requirements{CpuMilli: int32(c.CPUMilli), MemoryMib: int32(c.MemoryMiB), Gpus: int32(c.GPUs), Slots: int32(c.Slots)}
}

// machine is what a process sees of where it runs.
type machine struct {
	root       fs.FS
	processors int // that it uses at once
}

func (m machine) capacity() Capacity {
	c := Capacity{CPUMilli: m.processors * 1000, MemoryMiB: int(m.memory() >> 20), GPUs: m.devices()}
	for _, group := range m.groups("cpu") {
		if quota, known := m.quota(group); known {
			c.CPUMilli = min(c.CPUMilli, max(quota, 1))
		}
	}
	for _, group := range m.groups("memory") {
		for _, file := range []string{"memory.max", "memory.limit_in_bytes"} {
			if limit, known := m.number(path.Join(group, file)); known {
				c.MemoryMiB = min(c.MemoryMiB, int(limit>>20))
			}
		}
	}
	c.CPUMilli, c.MemoryMiB = min(c.CPUMilli, capacityCPUMax), min(c.MemoryMiB, capacityMemoryMax)
	return c
}

// memory is the machine's, in bytes.
func (m machine) memory() int64 {
	for line := range strings.Lines(m.text("proc/meminfo")) {
		if rest, found := strings.CutPrefix(line, "MemTotal:"); found {
			kib, err := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(rest), " kB"), 10, 64)
			if err == nil {
				return kib << 10
			}
		}
	}
	return 0
}

// groups lists the folders of the process's control group and of those around it: the least limit holds. In a container the group's own name
// may not be there; its limits then stand in the first folder.
func (m machine) groups(controller string) []string {
	const top = "sys/fs/cgroup"
	folders := []string{top, path.Join(top, controller)}
	for line := range strings.Lines(m.text("proc/self/cgroup")) {
		parts := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(parts) < 3 {
			continue
		}
		base := top // version 2
		if parts[1] != "" {
			if !strings.Contains(","+parts[1]+",", ","+controller+",") {
				continue
			}
			base = path.Join(top, controller)
		}
		for at := path.Clean("/" + parts[2]); at != "/"; at = path.Dir(at) {
			folders = append(folders, path.Join(base, at))
		}
	}
	return folders
}

// quota is a group's share of processors in thousandths.
func (m machine) quota(group string) (milli int, known bool) {
	if parts := strings.Fields(m.text(path.Join(group, "cpu.max"))); len(parts) == 2 { // version 2: quota and period, or "max"
		quota, err := strconv.ParseInt(parts[0], 10, 64)
		period, periodErr := strconv.ParseInt(parts[1], 10, 64)
		return share(quota, period), err == nil && periodErr == nil && quota > 0 && period > 0
	}
	quota, known := m.number(path.Join(group, "cpu.cfs_quota_us"))
	period, periodKnown := m.number(path.Join(group, "cpu.cfs_period_us"))
	return share(quota, period), known && periodKnown && quota > 0 && period > 0
}

func share(quota, period int64) int { return int(float64(quota) / float64(max(period, 1)) * 1000) }

var nvidiaDevice = regexp.MustCompile(`^nvidia[0-9]+$`)

func (m machine) devices() int {
	entries, err := fs.ReadDir(m.root, "dev")
	if err != nil {
		return 0 // not to be seen
	}
	n := 0
	for _, e := range entries {
		if nvidiaDevice.MatchString(e.Name()) {
			n++
		}
	}
	return min(n, capacityGPUsMax)
}

// deviceModel is what all devices are; empty when they differ, or nothing tells.
func (m machine) deviceModel() string {
	files, err := fs.Glob(m.root, "proc/driver/nvidia/gpus/*/information")
	if err != nil {
		return ""
	}
	model := ""
	for _, file := range files {
		for line := range strings.Lines(m.text(file)) {
			name, value, _ := strings.Cut(line, ":")
			if name = strings.TrimSpace(name); name != "Model" {
				continue
			}
			if value = strings.TrimSpace(value); model != "" && value != model {
				return ""
			}
			model = value
		}
	}
	return text(model, labelValueMax)
}

func (m machine) text(name string) string {
	raw, err := fs.ReadFile(m.root, name)
	if err != nil {
		return "" // another system, or not allowed to look: nothing is known
	}
	return string(raw)
}

func (m machine) number(name string) (n int64, known bool) {
	n, err := strconv.ParseInt(strings.TrimSpace(m.text(name)), 10, 64)
	return n, err == nil && n >= 0
}
