package sandbox

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"time"
)

// ErrUnavailable means that this machine cannot set the sandbox up; the text says what is missing.
var ErrUnavailable = errors.New("the sandbox is not available here")

// The programs that make the sandbox: namespaces, and limits inside of them.
const (
	bwrap   = "bwrap"
	prlimit = "/usr/bin/prlimit"
)

// Check tells whether commands can be run here: it runs one.
func Check(ctx context.Context) error {
	if _, err := exec.LookPath(bwrap); err != nil {
		return fmt.Errorf("%w: bubblewrap (bwrap) is not installed", ErrUnavailable)
	}
	if _, err := os.Stat(prlimit); err != nil {
		return fmt.Errorf("%w: %s (util-linux) is not installed", ErrUnavailable, prlimit)
	}
	ctx, cancel := context.WithTimeout(ctx, checkLimit)
	defer cancel()
	c, err := Grants{}.check(Command{Argv: []string{"true"}})
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "errand-check-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	out, err := exec.CommandContext(ctx, bwrap, arguments(&c, dir)...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("%w: %w: %s (may unprivileged users make user namespaces here?)", ErrUnavailable, err, bytes.TrimSpace(out))
	}
	return nil
}

const checkLimit = 10 * time.Second

// system is what every command sees of this host, read-only; what is not there is left out.
var system = []string{
	"/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/etc/alternatives", "/etc/ld.so.cache", "/etc/ssl", "/etc/ca-certificates",
	"/etc/fonts", "/etc/mime.types", "/etc/localtime",
}

// networked is what it sees besides when it may use the network.
var networked = []string{"/etc/resolv.conf", "/etc/hosts", "/etc/nsswitch.conf", "/etc/services"}

// arguments makes a command's sandbox. out is the host's folder for /out.
func arguments(c *Command, out string) []string {
	args := []string{
		"--unshare-all", "--unshare-user", "--die-with-parent", "--new-session", "--cap-drop", "ALL",
		"--uid", "65534", "--gid", "65534", "--hostname", "sandbox", "--clearenv",
		"--setenv", "PATH", "/usr/bin:/bin", "--setenv", "HOME", "/tmp", "--setenv", "LANG", "C.UTF-8",
	}
	seen := system
	if c.Network {
		args = append(args, "--share-net")
		seen = append(slices.Clone(system), networked...)
	}
	for _, p := range seen {
		if target, err := os.Readlink(p); err == nil && !strings.HasPrefix(target, "/") {
			args = append(args, "--symlink", target, p) // such as /bin, where it is usr/bin
			continue
		}
		args = append(args, "--ro-bind-try", p, p)
	}
	args = append(args, "--proc", "/proc", "--dev", "/dev", "--size", strconv.FormatInt(c.Limits.Scratch, 10), "--tmpfs", "/tmp",
		"--bind", out, "/out", "--dir", "/in")
	for _, m := range c.Inputs {
		args = append(args, "--ro-bind", m.Host, m.Inside)
	}
	for _, name := range slices.Sorted(maps.Keys(c.Env)) {
		args = append(args, "--setenv", name, c.Env[name])
	}
	args = append(args, "--remount-ro", "/", "--chdir", "/tmp", "--", prlimit)
	args = append(args, kernelLimits(&c.Limits)...)
	return append(append(args, "--"), c.Argv...)
}

// kernelLimits stand behind the watch, which looks only now and then and adds up what these cannot: they hold for each process.
func kernelLimits(l *Limits) []string {
	cpu := int64(l.CPU/time.Second) + 1
	return []string{
		fmt.Sprintf("--cpu=%d:%d", cpu, cpu+1), fmt.Sprintf("--as=%d", 4*l.Memory+2*gib), fmt.Sprintf("--fsize=%d", l.Output),
		fmt.Sprintf("--nproc=%d", l.Processes), "--nofile=1024", "--core=0",
	}
}
