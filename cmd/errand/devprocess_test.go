package main

import (
	"bufio"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// folder is short enough for sockets, and open to the user that PostgreSQL runs as.
func folder(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "errand-dev-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o711); err != nil {
		t.Fatal(err)
	}
	return dir
}

// command is errand as a process of its own in a folder.
func command(dir string, args ...string) *exec.Cmd {
	self, err := os.Executable()
	if err != nil {
		panic(err)
	}
	cmd := exec.Command(self, args...)
	cmd.Dir = dir
	for _, v := range os.Environ() {
		if !strings.HasPrefix(v, "ERRAND_") {
			cmd.Env = append(cmd.Env, v)
		}
	}
	cmd.Env = append(cmd.Env, mainVariable+"=1")
	return cmd
}

// errandIn runs a command in a folder and returns what it said, and its exit code.
func errandIn(t *testing.T, dir string, args ...string) (said string, code int) {
	t.Helper()
	out, err := command(dir, args...).CombinedOutput()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	if exit != nil {
		code = exit.ExitCode()
	}
	return string(out), code
}

// devProcess is a running errand dev.
type devProcess struct {
	cmd  *exec.Cmd
	dir  string
	done chan struct{} // closed when it has ended

	mu    sync.Mutex
	said  strings.Builder
	heard chan struct{} // replaced with every line
}

// startDev runs errand dev in a folder until it is ready.
func startDev(t *testing.T, cmd *exec.Cmd) *devProcess {
	t.Helper()
	p := &devProcess{cmd: cmd, dir: cmd.Dir, done: make(chan struct{}), heard: make(chan struct{})}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stderr = cmd.Stdout
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); <-p.done })
	go func() {
		defer close(p.done)
		p.listen(out)
		_ = cmd.Wait() // its exit code is in the state
	}()
	p.waitFor(t, "Ctrl-C stops it all")
	return p
}

func (p *devProcess) listen(out io.Reader) {
	for lines := bufio.NewScanner(out); lines.Scan(); {
		p.mu.Lock()
		p.said.WriteString(lines.Text() + "\n")
		close(p.heard)
		p.heard = make(chan struct{})
		p.mu.Unlock()
	}
}

func (p *devProcess) text() (said string, more <-chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.said.String(), p.heard
}

// waitFor returns when it has said a word; it need not be the latest.
func (p *devProcess) waitFor(t *testing.T, word string) {
	t.Helper()
	limit := time.After(2 * patience)
	for {
		said, more := p.text()
		if strings.Contains(said, word) {
			return
		}
		select {
		case <-more:
		case <-p.done:
			if said, _ = p.text(); !strings.Contains(said, word) {
				t.Fatalf("it ended without %q:\n%s", word, said)
			}
		case <-limit:
			t.Fatalf("no %q in:\n%s", word, said)
		}
	}
}

// pid is the process that it has named on the line of a part, the latest one.
func (p *devProcess) pid(t *testing.T, part string) int {
	t.Helper()
	said, _ := p.text()
	found := regexp.MustCompile(`(?m)`+part+`.*pid (\d+)`).FindAllStringSubmatch(said, -1)
	if found == nil {
		t.Fatalf("no pid of %s in:\n%s", part, said)
	}
	pid, err := strconv.Atoi(found[len(found)-1][1])
	if err != nil {
		t.Fatal(err)
	}
	return pid
}

// end sends a signal, and checks the exit code and that nothing is left; -1 is a process that was killed.
func (p *devProcess) end(t *testing.T, sig syscall.Signal, want int) {
	t.Helper()
	if err := p.cmd.Process.Signal(sig); err != nil {
		t.Fatal(err)
	}
	select {
	case <-p.done:
	case <-time.After(2 * patience):
		said, _ := p.text()
		t.Fatalf("it does not end:\n%s", said)
	}
	if said, _ := p.text(); p.cmd.ProcessState.ExitCode() != want {
		t.Fatalf("exit %d, want %d:\n%s", p.cmd.ProcessState.ExitCode(), want, said)
	}
	if sig == syscall.SIGKILL {
		waitUntil(t, "children have gone", func() bool { return len(processesIn(p.dir)) == 0 })
	}
	if left := processesIn(p.dir); len(left) > 0 {
		t.Fatalf("these are left: %v", left)
	}
}

// processesIn are the processes whose working folder is a folder or below it: all that errand dev starts.
func processesIn(dir string) (pids []string) {
	links, _ := filepath.Glob("/proc/[0-9]*/cwd") // the pattern is a good one
	for _, link := range links {
		at, err := os.Readlink(link)
		if err == nil && (at == dir || strings.HasPrefix(at, dir+"/")) {
			pids = append(pids, filepath.Base(filepath.Dir(link)))
		}
	}
	return pids
}

func waitUntil(t *testing.T, what string, is func() bool) {
	t.Helper()
	limit := time.After(patience)
	for !is() {
		select {
		case <-limit:
			t.Fatalf("not within %v: %s", patience, what)
		case <-time.After(10 * time.Millisecond):
		}
	}
}
