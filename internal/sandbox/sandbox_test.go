package sandbox

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	if dir := os.Getenv("SANDBOX_TEST_HOST"); dir != "" { // the process that TestAKilledHostTakesAllAlong kills
		runForever(dir)
	}
	goleak.VerifyTestMain(m)
}

// fixture is a runner with one folder granted for inputs and one for outputs.
type fixture struct {
	*Runner
	in, out string
}

func fixed(t *testing.T) *fixture {
	t.Helper()
	if err := Check(t.Context()); err != nil {
		t.Fatalf("these tests need the sandbox, and nothing else shows that it holds: %v", err)
	}
	f := &fixture{in: t.TempDir(), out: t.TempDir()}
	var err error
	if f.Runner, err = NewRunner(filepath.Join(t.TempDir(), "runs"), Grants{Inputs: []string{f.in}, Outputs: []string{f.out}}); err != nil {
		t.Fatal(err)
	}
	return f
}

func (f *fixture) sh(t *testing.T, script string, change ...func(*Command)) Result {
	t.Helper()
	c := Command{Argv: []string{"sh", "-c", script}}
	for _, one := range change {
		one(&c)
	}
	r, err := f.Run(t.Context(), c)
	if err != nil {
		t.Fatalf("%s: %v (%+v)", script, err, r)
	}
	if left, _ := filepath.Glob(filepath.Join(f.dir, "run-*")); len(left) > 0 {
		t.Errorf("%v are left", left)
	}
	return r
}

func TestWhatACommandSees(t *testing.T) {
	f := fixed(t)
	secret := filepath.Join(os.TempDir(), fmt.Sprintf("errand-secret-%d", os.Getpid()))
	if err := os.WriteFile(secret, []byte("secret"), 0o644); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.Remove(secret) })
	t.Setenv("ERRAND_KEY", "secret")
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = listener.Close() }()
	_, port, _ := net.SplitHostPort(listener.Addr().String())

	for name, script := range map[string]string{
		"no other environment":     `[ "$(env | cut -d= -f1 | sort | tr '\n' ' ')" = "HOME LANG PATH PWD " ]`,
		"an ordinary user":         `[ "$(id -u)" = 65534 ]`,
		"no capabilities":          `grep -q "^CapEff:.*0000000000000000$" /proc/self/status && grep -q "^NoNewPrivs:.*1$" /proc/self/status`,
		"no passwords":             `! cat /etc/shadow && ! ls /root && ! ls /home`,
		"its own scratch":          `[ -z "$(ls -A /tmp)" ] && echo x > /tmp/x`,
		"no other scratch":         `! cat ` + secret,
		"a system it cannot write": `! touch /usr/x && ! touch /x && ! touch /etc/x && ! touch /in/x`,
		"no network":               `! bash -c "exec 3<>/dev/tcp/127.0.0.1/` + port + `"`,
		"its own processes":        `[ "$(ls /proc | grep -c '^[0-9]')" -lt 8 ]`,
		"no terminal":              `! bash -c "exec 3<>/dev/tty"`,
		"kernel's settings":        `! bash -c "echo 1 > /proc/sys/kernel/sysrq" && ! bash -c "echo b > /proc/sysrq-trigger"`,
		"no files of its host":     `[ "$(ls /proc/self/fd | wc -l)" -le 4 ]`,
		"no host's name":           `[ "$(uname -n)" = sandbox ]`,
	} {
		if r := f.sh(t, script); !r.OK() {
			t.Errorf("%s: %+v", name, r)
		}
	}
	r := f.sh(t, `echo "$A|$B"`, func(c *Command) { c.Env = map[string]string{"A": "one two", "B": "drei\nvier"} })
	if r.Stdout != "one two|drei\nvier\n" {
		t.Errorf("its environment is %q", r.Stdout)
	}
}

func TestHowACommandEnds(t *testing.T) {
	f := fixed(t)
	if r := f.sh(t, `echo out; echo err >&2; exit 3`); r.Exit != 3 || r.Signal != "" || r.Stdout != "out\n" || r.Stderr != "err\n" || r.OK() {
		t.Errorf("%+v", r)
	}
	if r := f.sh(t, `kill -SEGV $$`); r.Exit != -1 || r.Signal != syscall.SIGSEGV.String() {
		t.Errorf("%+v", r)
	}
	if r := f.sh(t, `head -c 100000 /dev/zero | tr '\0' x; echo; printf 'the\377end\0'`); len(r.Stdout) > tailMax || !strings.HasSuffix(r.Stdout, "x\nthe?end?") {
		t.Errorf("%d bytes that end with %q", len(r.Stdout), r.Stdout[max(len(r.Stdout)-20, 0):])
	}
	r, err := f.Run(t.Context(), Command{Argv: []string{"no-such-program"}})
	if err != nil || r.Exit == 0 || !strings.Contains(r.Stderr, "no-such-program") {
		t.Errorf("a program that is not there: %+v, %v", r, err)
	}
}

func TestCaps(t *testing.T) {
	f := fixed(t)
	for name, c := range map[string]struct {
		script string
		limits Limits
		want   Cap
	}{
		"time":           {`sleep 60`, Limits{Wall: 200 * time.Millisecond}, CapTime},
		"stubborn":       {`trap "" TERM; while :; do sleep 1; done`, Limits{Wall: 200 * time.Millisecond}, CapTime},
		"cpu":            {`while :; do :; done`, Limits{CPU: 300 * time.Millisecond}, CapCPU},
		"cpu in parts":   {`while :; do (i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done) & wait; done`, Limits{CPU: time.Second}, CapCPU},
		"memory":         {`tail /dev/zero`, Limits{Memory: 64 << 20}, CapMemory},
		"memory shared":  {`for i in 1 2 3 4; do (head -c 30000000 /dev/zero | tail -c 30000000 | (sleep 5; cat >/dev/null)) & done; wait`, Limits{Memory: 64 << 20}, CapMemory},
		"print":          {`yes`, Limits{Output: 1 << 20}, CapOutput},
		"one file":       {`exec head -c 100000000 /dev/zero > /out/x`, Limits{Output: 1 << 20}, CapOutput},
		"several files":  {`i=0; while :; do i=$((i+1)); head -c 500000 /dev/zero > /out/$i; sleep 0.02; done`, Limits{Output: 1 << 20}, CapOutput},
		"cpu, unwatched": {`exec prlimit --cpu=1:2 -- sh -c "while :; do :; done"`, Limits{}, CapCPU},
	} {
		t.Run(name, func(t *testing.T) {
			if r := f.sh(t, c.script, func(k *Command) { k.Limits = c.limits }); r.Cap != c.want || r.OK() {
				t.Errorf("%+v, want %s", r, c.want)
			}
		})
	}
	r := f.sh(t, `head -c 10000000 /dev/zero > /tmp/x || echo full`, func(c *Command) { c.Limits.Scratch = 1 << 20 })
	if r.Stdout != "full\n" {
		t.Errorf("scratch has no end: %+v", r)
	}
	// Many, but not without end: the kernel does not hold root back, and before the watch does, a real bomb has every process of this host.
	r = f.sh(t, `for i in $(seq 300); do sleep 8 & done 2>/dev/null; sleep 1; echo alive`, func(c *Command) { c.Limits.Processes = 20; c.Limits.Wall = 10 * time.Second })
	if r.Cap != CapProcesses && !(r.Exit != 0 && !strings.Contains(r.Stdout, "alive")) {
		t.Errorf("too many processes: %+v", r)
	}
	if r := f.sh(t, `i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done`); !r.OK() || r.Usage.CPU <= 0 || r.Usage.Wall <= 0 {
		t.Errorf("nothing was used: %+v", r.Usage)
	}
}

// When the attempt must stop, the command is asked first, and everything that it has started ends with it.
func TestStop(t *testing.T) {
	f := fixed(t)
	cause := errors.New("canceled by somebody")
	marker := fmt.Sprintf("31%d", os.Getpid())
	for name, script := range map[string]string{
		"polite":   `trap "exit 0" TERM; echo ready > /out/ready; while :; do sleep 0.05; done`,
		"stubborn": `trap "" TERM; (setsid sleep ` + marker + ` &) ; echo ready > /out/ready; while :; do sleep 0.05; done`,
	} {
		ctx, cancel := context.WithCancelCause(t.Context())
		go func() {
			for ctx.Err() == nil { // the command says when it has come that far
				if found, _ := filepath.Glob(filepath.Join(f.dir, "run-*", "out", "ready")); len(found) > 0 {
					cancel(cause)
				}
			}
		}()
		_, err := f.Run(ctx, Command{Argv: []string{"sh", "-c", script}})
		if !errors.Is(err, cause) {
			t.Errorf("%s: %v", name, err)
		}
		if out, _ := exec.Command("pgrep", "-f", "sleep "+marker).Output(); len(out) > 0 {
			t.Errorf("%s: process %s is left", name, out)
		}
	}
}

func TestFiles(t *testing.T) {
	f := fixed(t)
	odd := "a b\nü'\"$x"
	for name, content := range map[string]string{odd: "one", "two": "two"} {
		if err := os.WriteFile(filepath.Join(f.in, name), []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	files := func(c *Command) {
		c.Inputs = []Mount{{filepath.Join(f.in, odd), "/in/" + odd}, {f.in, "/in/all"}}
		c.Outputs = []Mount{{filepath.Join(f.out, odd), "/out/result"}, {filepath.Join(f.out, "second"), "/out/deep/second"}}
	}
	const script = `cat /in/a* /in/all/two > /out/result; mkdir /out/deep; echo second > /out/deep/second; ! touch /in/all/x`
	r := f.sh(t, script, files)
	got, err := os.ReadFile(filepath.Join(f.out, odd))
	if !r.OK() || err != nil || string(got) != "onetwo" || len(r.Outputs) != 2 || r.Outputs[1].Bytes != 7 {
		t.Errorf("%q, %v, %+v", got, err, r)
	}
	// What fails leaves what was there, and nothing else.
	r = f.sh(t, `echo half > /out/result; exit 1`, files)
	if got, _ := os.ReadFile(filepath.Join(f.out, odd)); string(got) != "onetwo" || r.OK() {
		t.Errorf("a command that failed has left %q", got)
	}
	for name, script := range map[string]string{
		"none":             `true`,
		"a link outside":   `ln -s /etc/passwd /out/result; mkdir /out/deep; echo x > /out/deep/second`,
		"a link of a part": `echo x > /out/result; ln -s /tmp /out/deep; echo x > /tmp/second`,
		"a folder":         `mkdir -p /out/result /out/deep; echo x > /out/deep/second`,
		"a pipe":           `mkfifo /out/result; mkdir /out/deep; echo x > /out/deep/second`,
	} {
		c := Command{Argv: []string{"sh", "-c", script}}
		files(&c)
		if r, err := f.Run(t.Context(), c); !errors.Is(err, ErrNoOutput) {
			t.Errorf("%s: %+v, %v", name, r, err)
		}
	}
	if left, _ := filepath.Glob(filepath.Join(f.out, ".errand-*")); len(left) > 0 {
		t.Errorf("%v are left", left)
	}
}

func TestRefused(t *testing.T) {
	f := fixed(t)
	outside := filepath.Join(t.TempDir(), "outside")
	if err := os.WriteFile(outside, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(outside, filepath.Join(f.in, "link")); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(filepath.Dir(outside), filepath.Join(f.out, "dir")); err != nil {
		t.Fatal(err)
	}
	in := func(host, inside string) Command {
		return Command{Argv: []string{"true"}, Inputs: []Mount{{host, inside}}}
	}
	out := func(host, inside string) Command {
		return Command{Argv: []string{"true"}, Outputs: []Mount{{host, inside}}}
	}
	for name, c := range map[string]Command{
		"nothing":              {},
		"an empty program":     {Argv: []string{""}},
		"NUL":                  {Argv: []string{"true", "a\x00b"}},
		"bad UTF-8":            {Argv: []string{"true", "\xff"}},
		"too many arguments":   {Argv: make([]string, argvMax+1)},
		"too long":             {Argv: []string{"echo", strings.Repeat("x", argBytesMax)}},
		"a variable with =":    {Argv: []string{"true"}, Env: map[string]string{"A=B": ""}},
		"a nameless variable":  {Argv: []string{"true"}, Env: map[string]string{"": ""}},
		"the network":          {Argv: []string{"true"}, Network: true},
		"negative memory":      {Argv: []string{"true"}, Limits: Limits{Memory: -1}},
		"endless CPU":          {Argv: []string{"true"}, Limits: Limits{CPU: 1 << 62}},
		"an input elsewhere":   in(outside, "/in/x"),
		"a link elsewhere":     in(filepath.Join(f.in, "link"), "/in/x"),
		"an input not there":   in(filepath.Join(f.in, "none"), "/in/x"),
		"dots":                 in(f.in+"/../"+filepath.Base(f.in), "/in/x"),
		"a relative path":      in("x", "/in/x"),
		"over the system":      in(f.in, "/usr"),
		"dots inside":          in(f.in, "/in/../usr"),
		"an output elsewhere":  out(outside, "/out/x"),
		"an output by a link":  out(filepath.Join(f.out, "dir", "x"), "/out/x"),
		"an output from /tmp":  out(filepath.Join(f.out, "x"), "/tmp/x"),
		"an output from above": out(filepath.Join(f.out, "x"), "/out/../etc/passwd"),
		"too many inputs":      {Argv: []string{"true"}, Inputs: make([]Mount, mountsMax+1)},
	} {
		if r, err := f.Run(t.Context(), c); !errors.Is(err, ErrRefused) {
			t.Errorf("%s: %+v, %v", name, r, err)
		}
	}
}

// runForever is a host that waits to be killed.
func runForever(dir string) {
	r, err := NewRunner(dir, Grants{})
	if err != nil {
		panic(err)
	}
	_, err = r.Run(context.Background(), Command{Argv: []string{"sh", "-c", "echo $$ > /out/ready; sleep " + os.Getenv("SANDBOX_TEST_SLEEP")}})
	panic(err)
}

// A host that is killed takes its commands along, and the next one takes away what it has left.
func TestAKilledHostTakesAllAlong(t *testing.T) {
	f := fixed(t)
	seconds := fmt.Sprintf("32%d", os.Getpid())
	host := exec.Command(os.Args[0])
	host.Env = append(os.Environ(), "SANDBOX_TEST_HOST="+f.dir, "SANDBOX_TEST_SLEEP="+seconds)
	stderr, err := host.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := host.Start(); err != nil {
		t.Fatal(err)
	}
	said := make(chan string, 1)
	go func() {
		line, _ := bufio.NewReader(stderr).ReadString('\n')
		said <- line
	}()
	for {
		if found, _ := filepath.Glob(filepath.Join(f.dir, "run-*", "out", "ready")); len(found) > 0 {
			break
		}
		select {
		case line := <-said:
			t.Fatalf("the host has ended: %s", line)
		default:
		}
	}
	if err := f.tidy(); err != nil {
		t.Fatal(err)
	}
	if left, _ := filepath.Glob(filepath.Join(f.dir, "run-*")); len(left) != 1 {
		t.Errorf("the folder of a living command was taken away: %v", left)
	}
	if err := host.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = host.Wait() // killed
	<-said
	deadline := time.Now().Add(5 * time.Second)
	for {
		out, _ := exec.Command("pgrep", "-f", "sleep "+seconds).Output()
		if len(out) == 0 {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("process %s outlives its host", out)
		}
	}
	if err := f.tidy(); err != nil {
		t.Fatal(err)
	}
	if left, _ := filepath.Glob(filepath.Join(f.dir, "run-*")); len(left) != 0 {
		t.Errorf("%v are left", left)
	}
}
