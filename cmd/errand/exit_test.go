package main

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strings"
	"testing"
)

// itself runs this test binary as errand, for what ends the process.
func itself(t *testing.T, args ...string) string {
	t.Helper()
	c := exec.CommandContext(t.Context(), os.Args[0], args...)
	c.Env = append(os.Environ(), mainVariable+"=1")
	out, err := c.CombinedOutput()
	if err != nil {
		t.Fatalf("errand %s: %v: %s", strings.Join(args, " "), err, out)
	}
	return string(out)
}

// Words and spaces only, so that a line may be broken anywhere.
func words(text string) string { return strings.Join(strings.Fields(text), " ") }

func TestExitCodesAreToldByTheHelp(t *testing.T) {
	shown := words(itself(t, "--help"))
	for _, c := range exitCodes {
		if line := fmt.Sprintf("%d %s", c.code, c.text); !strings.Contains(shown, line) {
			t.Errorf("no %q in:\n%s", line, shown)
		}
	}
	if shown := itself(t, "submit", "--help"); strings.Contains(shown, "Exit codes") || !strings.Contains(shown, "errand submit --many") {
		t.Errorf("the help of a command shows its examples and not the exit codes:\n%s", shown)
	}
}

// A command line that is wrong is answered with what could have been meant.
func TestMisspeltCommands(t *testing.T) {
	tests := map[string]struct {
		args []string
		want string
	}{
		"a command":                   {[]string{"sumbit", "x"}, `did you mean "submit"`},
		"a command's command":         {[]string{"tenant", "lisst"}, `did you mean "list"`},
		"a flag":                      {[]string{"submit", "x", "--wiat"}, `did you mean "--wait"`},
		"nothing at all":              {nil, "errand needs a command"},
		"half a command":              {[]string{"key"}, "errand key needs a command"},
		"where to read on":            {[]string{"key", "create", "pool", "--kimds", "x"}, "see errand key create --help"},
		"the commands that there are": {[]string{"tenant"}, "tenant update <name>"},
	}
	for name, tt := range tests {
		if out, errs, code := output(t, tt.args...); code != exitUsage || out != "" || !strings.Contains(errs, tt.want) {
			t.Errorf("%s: exit %d, want %d and %q:\n%s%s", name, code, exitUsage, tt.want, out, errs)
		}
	}
}

// What cannot be reached is named, and what can be done about it.
func TestNobodyThere(t *testing.T) {
	const nowhere = "http://127.0.0.1:1"
	tests := map[string]struct {
		args []string
		want []string
	}{
		"no scheduler": {
			[]string{"tenant", "list", "--key", "k", "--url", nowhere},
			[]string{"no scheduler answers at " + nowhere + ": connection refused", "errand serve", "--url"},
		},
		"no store to migrate": {[]string{"migrate", "--store", somewhere}, []string{"127.0.0.1:1", "refused", "is the database running"}},
		"no store to serve":   {[]string{"serve", "--store", somewhere, "--listen", "127.0.0.1:0"}, []string{"127.0.0.1:1", "refused", "is the database running"}},
	}
	for name, tt := range tests {
		_, errs, code := output(t, tt.args...)
		if code != exitUnavailable {
			t.Errorf("%s: exit %d, want %d: %s", name, code, exitUnavailable, errs)
		}
		for _, want := range tt.want {
			if !strings.Contains(errs, want) {
				t.Errorf("%s: no %q in: %s", name, want, errs)
			}
		}
		if strings.Contains(errs, "hunter2") {
			t.Errorf("%s: a password is shown: %s", name, errs)
		}
	}
}

func TestInterrupted(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if code := run(ctx, []string{"list", "--key", "k", "--url", "http://127.0.0.1:1"}); code != exitInterrupted {
		t.Errorf("exit %d, want %d", code, exitInterrupted)
	}
}

// The manual names every command, flag and exit code.
func TestTheManualIsComplete(t *testing.T) {
	raw, err := os.ReadFile("../../docs/cli.md")
	if err != nil {
		t.Fatal(err)
	}
	manual := words(string(raw))
	parser, err := newParser(t.Context(), &devEnvResolver{})
	if err != nil {
		t.Fatal(err)
	}
	for _, command := range parser.Model.Leaves(true) {
		if name := command.FullPath(); !strings.Contains(manual, name) {
			t.Errorf("%s is not in docs/cli.md", name)
		}
		for _, f := range command.Flags {
			if !f.Hidden && !strings.Contains(manual, "--"+f.Name) {
				t.Errorf("--%s of %s is not in docs/cli.md", f.Name, command.FullPath())
			}
		}
	}
	for _, c := range exitCodes {
		if line := fmt.Sprintf("| %d | %s |", c.code, c.text); !strings.Contains(manual, line) {
			t.Errorf("no line %q in docs/cli.md", line)
		}
	}
}

// What serve prints of its settings leaves none out.
func TestPrintConfigShowsEverySetting(t *testing.T) {
	out, errs, code := output(t, "serve", "--store", somewhere, "--print-config")
	if code != 0 {
		t.Fatalf("exit %d: %s", code, errs)
	}
	parser, err := newParser(t.Context(), &devEnvResolver{})
	if err != nil {
		t.Fatal(err)
	}
	for _, command := range parser.Model.Leaves(true) {
		if command.Name != "serve" {
			continue
		}
		for _, f := range command.Flags {
			if f.Name != "print-config" && !strings.Contains(out, "\n"+f.Name+": ") && !strings.HasPrefix(out, f.Name+": ") {
				t.Errorf("--%s is not in:\n%s", f.Name, out)
			}
		}
	}
}

// A submission that is interrupted says that the task may be stored, and how to find out.
func TestInterruptedSubmitTellsThatTheTaskMayBeStored(t *testing.T) {
	called, release := make(chan struct{}, 1), make(chan struct{})
	silent := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		called <- struct{}{}
		<-release
	}))
	defer silent.Close()
	defer close(release)
	ctx, interrupt := context.WithCancel(t.Context())
	go func() {
		<-called
		interrupt()
	}()
	c := submitCmd{Kind: "k", clientSettings: clientSettings{URL: silent.URL, Key: "some"}}
	err := c.Run(ctx)
	var said strings.Builder
	complain(&said, err, &surroundings{})
	if codeOf(err) != exitInterrupted || !strings.Contains(said.String(), "may be stored") || !strings.Contains(said.String(), "errand list") {
		t.Errorf("exit %d: %s", codeOf(err), said.String())
	}
}
