package errand

import (
	"errors"
	"strings"
	"testing"
	"testing/fstest"
)

func TestCapacityOfAMachine(t *testing.T) {
	files := func(pairs ...string) fstest.MapFS {
		m := fstest.MapFS{"proc/meminfo": {Data: []byte("MemTotal:       16384000 kB\nMemFree:        1 kB\n")}}
		for i := 0; i < len(pairs); i += 2 {
			m[pairs[i]] = &fstest.MapFile{Data: []byte(pairs[i+1])}
		}
		return m
	}
	const group, device = "sys/fs/cgroup/work/errand/", "proc/driver/nvidia/gpus/0000:0"
	for name, c := range map[string]struct {
		root  fstest.MapFS
		want  Capacity
		model string
	}{
		"nothing to be seen":   {fstest.MapFS{}, Capacity{CPUMilli: 8000}, ""},
		"no limits":            {files("proc/self/cgroup", "0::/work/errand\n", group+"cpu.max", "max 100000", group+"memory.max", "max\n"), Capacity{8000, 16000, 0, 0}, ""},
		"limits":               {files("proc/self/cgroup", "0::/work/errand\n", group+"cpu.max", "150000 100000\n", group+"memory.max", "1073741824\n"), Capacity{1500, 1024, 0, 0}, ""},
		"limits further up":    {files("proc/self/cgroup", "0::/work/errand\n", group+"cpu.max", "max 100000", "sys/fs/cgroup/work/memory.max", "1073741824"), Capacity{8000, 1024, 0, 0}, ""},
		"more than there is":   {files("proc/self/cgroup", "0::/\n", "sys/fs/cgroup/cpu.max", "9900000 100000", "sys/fs/cgroup/memory.max", "107374182400"), Capacity{8000, 16000, 0, 0}, ""},
		"a container":          {files("proc/self/cgroup", "0::/not/there\n", "sys/fs/cgroup/cpu.max", "50000 100000", "sys/fs/cgroup/memory.max", "536870912"), Capacity{500, 512, 0, 0}, ""},
		"version 1":            {files("proc/self/cgroup", "4:memory:/d\n3:cpu,cpuacct:/d\n", "sys/fs/cgroup/cpu/d/cpu.cfs_quota_us", "200000", "sys/fs/cgroup/cpu/d/cpu.cfs_period_us", "100000", "sys/fs/cgroup/memory/d/memory.limit_in_bytes", "2147483648"), Capacity{2000, 2048, 0, 0}, ""},
		"version 1, no quota":  {files("proc/self/cgroup", "3:cpu,cpuacct:/\n", "sys/fs/cgroup/cpu/cpu.cfs_quota_us", "-1", "sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000", "sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712"), Capacity{8000, 16000, 0, 0}, ""},
		"nonsense":             {files("proc/self/cgroup", "x\n::\n0::/../..\n", "sys/fs/cgroup/cpu.max", "0 0", "sys/fs/cgroup/memory.max", "-5"), Capacity{8000, 16000, 0, 0}, ""},
		"devices":              {files("dev/nvidia0", "", "dev/nvidia11", "", "dev/nvidiactl", "", "dev/nvidia-uvm", "", device+"1/information", "Model: \t\t NVIDIA A100\nIRQ: 3\n", device+"2/information", "Model:  NVIDIA A100\n"), Capacity{8000, 16000, 2, 0}, "NVIDIA A100"},
		"devices of two sorts": {files("dev/nvidia0", "", "dev/nvidia1", "", device+"1/information", "Model: A\n", device+"2/information", "Model: B\n"), Capacity{8000, 16000, 2, 0}, ""},
	} {
		m := machine{c.root, 8}
		if got := m.capacity(); got != c.want || m.deviceModel() != c.model {
			t.Errorf("%s: %+v %q, want %+v %q", name, got, m.deviceModel(), c.want, c.model)
		}
	}
	if c := DetectCapacity(); c.check() != nil || c.CPUMilli == 0 {
		t.Errorf("here: %+v, %v", c, c.check())
	}
}

func TestADescriptionThatNoSchedulerTakesIsRefused(t *testing.T) {
	for field, change := range map[string]func(*WorkerConfig){
		"Capacity.CPUMilli":  func(c *WorkerConfig) { c.Capacity = &Capacity{CPUMilli: -1} },
		"Capacity.MemoryMiB": func(c *WorkerConfig) { c.Capacity = &Capacity{MemoryMiB: capacityMemoryMax + 1} },
		"Capacity.GPUs":      func(c *WorkerConfig) { c.Capacity = &Capacity{GPUs: 65} },
		"Capacity.Slots":     func(c *WorkerConfig) { c.Capacity = &Capacity{Slots: 1025} },
		"Labels: the key":    func(c *WorkerConfig) { c.Labels = map[string]string{"": "v"} },
		"the key \"k\\x00\"": func(c *WorkerConfig) { c.Labels = map[string]string{"k\x00": "v"} },
		"the value of k":     func(c *WorkerConfig) { c.Labels = map[string]string{"k": "\xff"} },
		"Zone":               func(c *WorkerConfig) { c.Zone = strings.Repeat("z", 64) },
	} {
		cfg := WorkerConfig{Config: Config{URLs: []string{"http://localhost"}, Key: "k"}}
		change(&cfg)
		if _, err := NewWorker(cfg); !errors.Is(err, ErrConfig) || !strings.Contains(err.Error(), field) {
			t.Errorf("%s: %v", field, err)
		}
	}
}
