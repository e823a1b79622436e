package sandbox

import (
	"errors"
	"fmt"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"
	"unicode/utf8"
)

// ErrRefused means that a command breaks a rule; the text names the field. It would be refused again.
var ErrRefused = errors.New("refused")

// Command is what to run.
type Command struct {
	Argv    []string          // the program, looked for in /usr/bin and /bin, and its arguments
	Env     map[string]string // all of the environment, beside PATH, HOME and LANG
	Inputs  []Mount           // files or folders, read-only
	Outputs []Mount           // files that it makes
	Network bool              // may use the host's network
	Limits  Limits
}

// Mount is a file on this host, and its place in the sandbox: under /in for inputs, under /out for outputs.
type Mount struct {
	Host   string
	Inside string
}

// Limits cap what a command and all its processes may use together. Zero means the default.
type Limits struct {
	CPU       time.Duration // default 10 min, at most 24 h
	Wall      time.Duration // default none of its own: the context's; at most 24 h
	Memory    int64         // resident bytes; default 1 GiB, at most 64 GiB
	Output    int64         // bytes of /out, and of what it prints; default 256 MiB, at most 64 GiB
	Scratch   int64         // bytes of /tmp, which is in memory; default 64 MiB, at most 4 GiB
	Processes int64         // and threads; default 64, at most 4,096
}

// Bounds of a command.
const (
	argvMax      = 256      // entries
	argBytesMax  = 64 << 10 // of all arguments and variables together
	mountsMax    = 64       // inputs, and outputs
	pathBytesMax = 4 << 10  // of one path
	gib          = 1 << 30
	dayMax       = 24 * time.Hour
)

// withDefaults fills in what is not said and refuses what is out of bounds.
func (l Limits) withDefaults() (Limits, error) {
	for _, one := range []struct {
		field         string
		value         *int64
		standard, max int64
	}{
		{"memory_bytes", &l.Memory, gib, 64 * gib},
		{"output_bytes", &l.Output, 256 << 20, 64 * gib},
		{"scratch_bytes", &l.Scratch, 64 << 20, 4 * gib},
		{"processes", &l.Processes, 64, 4096},
		{"cpu_seconds", (*int64)(&l.CPU), int64(10 * time.Minute), int64(dayMax)},
		{"wall_seconds", (*int64)(&l.Wall), int64(dayMax), int64(dayMax)},
	} {
		if *one.value < 0 || *one.value > one.max {
			return l, fmt.Errorf("%w: limits.%s: out of bounds", ErrRefused, one.field)
		}
		if *one.value == 0 {
			*one.value = one.standard
		}
	}
	return l, nil
}

// Grants are the folders of this host that commands may be given: inputs are read from the one sort, outputs put into the other.
type Grants struct {
	Inputs  []string
	Outputs []string
	Network bool
}

// check refuses a command that cannot run or asks for what is not granted, and returns it with paths resolved.
func (g Grants) check(c Command) (Command, error) {
	bad := func(field, why string) (Command, error) { return c, fmt.Errorf("%w: %s: %s", ErrRefused, field, why) }
	if len(c.Argv) == 0 || c.Argv[0] == "" || len(c.Argv) > argvMax {
		return bad("command", fmt.Sprintf("must have 1 to %d entries, the first a program", argvMax))
	}
	bytes := 0
	for i, arg := range c.Argv {
		if bytes += len(arg); !clean(arg) {
			return bad(fmt.Sprintf("command[%d]", i), "must be UTF-8 without NUL")
		}
	}
	for name, value := range c.Env {
		bytes += len(name) + len(value)
		if name == "" || strings.Contains(name, "=") || !clean(name) || !clean(value) {
			return bad(fmt.Sprintf("env: %q", name), "a name without =, and UTF-8 without NUL")
		}
	}
	if bytes > argBytesMax {
		return bad("command", "arguments and variables are longer than 64 KiB together")
	}
	if c.Network && !g.Network {
		return bad("network", "this worker does not grant it")
	}
	var err error
	if c.Limits, err = c.Limits.withDefaults(); err != nil {
		return c, err
	}
	if c.Inputs, err = mounts("inputs", c.Inputs, "/in/", func(host string) (string, error) { return granted(host, g.Inputs) }); err != nil {
		return c, err
	}
	c.Outputs, err = mounts("outputs", c.Outputs, "/out/", func(host string) (string, error) {
		dir, err := granted(filepath.Dir(host), g.Outputs)
		return filepath.Join(dir, filepath.Base(host)), err
	})
	return c, err
}

func mounts(field string, all []Mount, under string, resolve func(host string) (string, error)) ([]Mount, error) {
	if len(all) > mountsMax {
		return nil, fmt.Errorf("%w: %s: at most %d", ErrRefused, field, mountsMax)
	}
	out := slices.Clone(all)
	for i := range out {
		m, at := &out[i], fmt.Sprintf("%s[%d]", field, i)
		for _, p := range []string{m.Host, m.Inside} {
			if !clean(p) || len(p) > pathBytesMax || !path.IsAbs(p) || path.Clean(p) != p {
				return nil, fmt.Errorf("%w: %s: %q: a path is absolute, without . or .. in it, and UTF-8", ErrRefused, at, p)
			}
		}
		if !strings.HasPrefix(m.Inside, under) {
			return nil, fmt.Errorf("%w: %s: %q is not under %s in the sandbox", ErrRefused, at, m.Inside, under)
		}
		var err error
		if m.Host, err = resolve(m.Host); err != nil {
			return nil, fmt.Errorf("%w: %s: %w", ErrRefused, at, err)
		}
	}
	return out, nil
}

// granted resolves a path and tells whether it is in one of the folders.
func granted(host string, folders []string) (string, error) {
	real, err := filepath.EvalSymlinks(host)
	if err != nil {
		return "", err
	}
	for _, folder := range folders {
		base, err := filepath.EvalSymlinks(folder)
		if err != nil {
			continue // a folder that is not there grants nothing
		}
		if rel, err := filepath.Rel(base, real); err == nil && rel != ".." && !strings.HasPrefix(rel, "../") {
			return real, nil
		}
	}
	return "", fmt.Errorf("%s is in no folder that this worker grants", host)
}

func clean(s string) bool { return utf8.ValidString(s) && !strings.ContainsRune(s, 0) }
