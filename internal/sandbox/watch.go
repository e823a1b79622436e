package sandbox

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// watch looks at a command while it runs, and ends it at a cap.
type watch struct {
	limits  Limits
	out     string
	printed func() int64
	init    int // the first process in the sandbox, as this host numbers it

	usage Usage
	cap   Cap
}

// until waits for the end. At a cap, or when ctx or the time ends, it asks the command to stop and then kills everything.
func (w *watch) until(ctx context.Context, ended <-chan struct{}, by time.Time, bwrap *os.Process) error {
	tick := time.NewTicker(watchTick)
	defer tick.Stop()
	wall := time.NewTimer(time.Until(by))
	defer wall.Stop()
	for {
		select {
		case <-ended:
			return nil
		case <-ctx.Done():
			w.stop(ended, bwrap, termGrace)
			return context.Cause(ctx)
		case <-wall.C:
			w.cap = CapTime
			w.stop(ended, bwrap, termGrace)
			return nil
		case <-tick.C:
			if w.cap = w.look(); w.cap != "" {
				w.stop(ended, bwrap, 0)
				return nil
			}
		}
	}
}

// stop asks, waits for the grace, and kills. With its first process everything in the sandbox ends.
func (w *watch) stop(ended <-chan struct{}, bwrap *os.Process, grace time.Duration) {
	if grace > 0 {
		for _, pid := range children(w.init) {
			_ = syscall.Kill(pid, syscall.SIGTERM) // it may be gone
		}
		timer := time.NewTimer(grace)
		defer timer.Stop()
		select {
		case <-ended:
			return
		case <-timer.C:
		}
	}
	if w.init > 0 {
		_ = syscall.Kill(w.init, syscall.SIGKILL) // the same
	}
	_ = bwrap.Kill() // the same
	<-ended
}

// look adds up what is used, and names the cap that it exceeds.
func (w *watch) look() Cap {
	var memory int64
	var cpu time.Duration
	all := family(w.init)
	for _, pid := range all {
		used, resident := usageOf(pid)
		cpu += used
		memory += resident
	}
	w.usage.CPU, w.usage.Memory = max(w.usage.CPU, cpu), max(w.usage.Memory, memory)
	switch {
	case cpu > w.limits.CPU:
		return CapCPU
	case memory > w.limits.Memory:
		return CapMemory
	case int64(len(all)) > w.limits.Processes+ownProcesses:
		return CapProcesses
	case w.printed() > w.limits.Output || w.written() > w.limits.Output:
		return CapOutput
	default:
		return ""
	}
}

// written is what /out holds. Files that come and go meanwhile count or not.
func (w *watch) written() int64 {
	var sum int64
	_ = filepath.WalkDir(w.out, func(_ string, d fs.DirEntry, err error) error {
		if err != nil {
			return nil //nolint:nilerr // it is gone
		}
		if info, err := d.Info(); err == nil && info.Mode().IsRegular() {
			sum += info.Size()
		}
		if sum > w.limits.Output {
			return filepath.SkipAll
		}
		return nil
	})
	return sum
}

// family lists a process and all below it.
func family(pid int) []int {
	if pid == 0 {
		return nil
	}
	all := []int{pid}
	for i := 0; i < len(all) && len(all) < familyMax; i++ {
		all = append(all, children(all[i])...)
	}
	return all
}

// ownProcesses are those in a family that make the sandbox.
const ownProcesses = 2

// familyMax bounds a look; there are no more than a command's processes.
const familyMax = 8192

// children lists the processes that a process has started, by whichever of its threads.
func children(pid int) []int {
	lists, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	if err != nil || pid == 0 {
		return nil
	}
	var out []int
	for _, list := range lists {
		raw, err := os.ReadFile(filepath.Clean(list))
		if err != nil {
			continue // the thread has ended
		}
		for _, field := range strings.Fields(string(raw)) {
			if n, err := strconv.Atoi(field); err == nil {
				out = append(out, n)
			}
		}
	}
	return out
}

// usageOf reads the CPU time of a process and of those below it that have ended, and its resident bytes; nothing of one that is gone.
func usageOf(pid int) (cpu time.Duration, resident int64) {
	const ticksPerSecond = 100 // of /proc, on every Linux
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, 0
	}
	_, rest, _ := strings.Cut(string(raw), ") ") // the name before may contain anything
	fields := strings.Fields(rest)
	if len(fields) < 22 {
		return 0, 0
	}
	number := func(i int) int64 {
		n, _ := strconv.ParseInt(fields[i], 10, 64) // the kernel writes numbers
		return n
	}
	ticks := number(11) + number(12) + number(13) + number(14) // utime, stime, cutime, cstime: fields 14 to 17 of proc(5)
	return time.Duration(ticks) * time.Second / ticksPerSecond, number(21) * int64(os.Getpagesize())
}
