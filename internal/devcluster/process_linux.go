package devcluster

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
)

// dieWithParent has the kernel send the signal when the parent is gone, however it went.
func dieWithParent(attr *syscall.SysProcAttr, orphaned syscall.Signal) { attr.Pdeathsig = orphaned }

// children are the processes that a process has started and that still run. PostgreSQL's put themselves into groups of their own.
func children(pid int) []int {
	listed, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", pid, pid))
	if err != nil {
		return nil // gone, or a kernel without this file: they notice the end of their parent by themselves, a little later
	}
	var pids []int
	for _, field := range strings.Fields(string(listed)) {
		if child, err := strconv.Atoi(field); err == nil {
			pids = append(pids, child)
		}
	}
	return pids
}
