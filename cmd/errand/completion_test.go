package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

func TestSuggestions(t *testing.T) {
	parser, err := newParser(t.Context(), &devEnvResolver{})
	if err != nil {
		t.Fatal(err)
	}
	tests := map[string]struct {
		words []string
		want  string // what is suggested, with spaces between; a + at its end stands for more
	}{
		"a command":                           {[]string{"sub"}, "submit"},
		"the commands of a command":           {[]string{"tenant", ""}, "create update list get pause resume delete"},
		"a flag":                              {[]string{"submit", "--idem"}, "--idempotency-key"},
		"a flag after an argument":            {[]string{"submit", "echo", "--idem"}, "--idempotency-key"},
		"a flag of every command":             {[]string{"submit", "--conf"}, "--config"},
		"a flag after a flag's value":         {[]string{"submit", "--tier", "urgent", "--exc"}, "--exclusive"},
		"a flag after one without":            {[]string{"submit", "--wait", "--exc"}, "--exclusive"},
		"a flag's value":                      {[]string{"submit", "--tier", ""}, "urgent standard deferrable"},
		"a value of a flag without a default": {[]string{"update", "x", "--tier", ""}, "urgent standard deferrable"},
		"a short flag's value":                {[]string{"get", "x", "-o", "j"}, "json"},
		"a joined value":                      {[]string{"submit", "--tier=d"}, "--tier=deferrable"},
		"a joined value in bash":              {[]string{"submit", "--tier", "=", "d"}, "--tier=deferrable"},
		"the same just begun":                 {[]string{"submit", "--tier", "="}, "--tier=urgent --tier=standard --tier=deferrable"},
		"an argument":                         {[]string{"key", "create", "p"}, "pool"},
		"nothing for a second one":            {[]string{"key", "create", "pool", ""}, ""},
		"a flag of a default command":         {[]string{"workers", "--out"}, "--output"},
		"a flag of top":                       {[]string{"top", "--int"}, "--interval"},
		"no flag after --":                    {[]string{"submit", "--", "--ti"}, ""},
		"a value that nobody can know":        {[]string{"get", "--url", ""}, ""},
		"a flag that is none":                 {[]string{"get", "--nothing=x"}, ""},
		"a command that is none":              {[]string{"nothing", ""}, ""},
		"an empty line":                       {nil, "dev serve worker+"},
	}
	for name, tt := range tests {
		var got []string
		for _, s := range suggest(parser.Model, tt.words) {
			got = append(got, s.word)
		}
		text := strings.Join(got, " ")
		if want, more := strings.CutSuffix(tt.want, "+"); text != tt.want && (!more || !strings.HasPrefix(text, want)) {
			t.Errorf("%s: %q, want %q", name, text, tt.want)
		}
	}
}

// A real bash with the script, and errand itself to ask.
func TestBashCompletes(t *testing.T) {
	dir := t.TempDir()
	program := fmt.Sprintf("#!/bin/sh\n%s=1 exec '%s' \"$@\"\n", mainVariable, os.Args[0])
	if err := os.WriteFile(filepath.Join(dir, "errand"), []byte(program), 0o700); err != nil { //nolint:gosec // a program
		t.Fatal(err)
	}
	for line, want := range map[string]string{
		`errand sub`:               "submit",
		`errand submit --idem`:     "--idempotency-key",
		`errand submit --tier = u`: "urgent",
		`errand tenant ''`:         "create update list get pause resume delete",
	} {
		script := `source <(errand completion bash)
COMP_WORDS=(` + line + `)
COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
_errand errand
echo "${COMPREPLY[*]}"`
		c := exec.CommandContext(t.Context(), "bash", "--norc", "-c", script)
		c.Env = append(os.Environ(), "PATH="+dir+":"+os.Getenv("PATH"), "COMP_WORDBREAKS= =")
		out, err := c.CombinedOutput()
		if err != nil || strings.TrimSpace(string(out)) != want {
			t.Errorf("%s: %q, want %q (%v)", line, out, want, err)
		}
	}
}
