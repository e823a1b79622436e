package main

import (
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// layOut writes a dev.env for a folder.
func layOut(t *testing.T, dir string, env devEnv) (file string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Join(dir, devDir), 0o700); err != nil {
		t.Fatal(err)
	}
	file = filepath.Join(dir, devDir, devEnvName)
	if err := env.write(file); err != nil {
		t.Fatal(err)
	}
	return file
}

// lookForDevEnv undoes what TestMain has set, for one test.
func lookForDevEnv(t *testing.T) {
	t.Helper()
	t.Setenv(devEnvVariable, "")
	if err := os.Unsetenv(devEnvVariable); err != nil {
		t.Fatal(err)
	}
}

// doorman is a server that refuses everybody and remembers with which key they came.
func doorman(t *testing.T) (url string, came func() string) {
	t.Helper()
	var last string
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		last = strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")
		w.WriteHeader(http.StatusUnauthorized)
	}))
	s.Config.Protocols = new(http.Protocols)
	s.Config.Protocols.SetHTTP1(true)
	s.Config.Protocols.SetUnencryptedHTTP2(true)
	s.Start()
	t.Cleanup(s.Close)
	return s.URL, func() string { defer func() { last = "" }(); return last }
}

// Which key goes where: each command takes its own from dev.env, what is said otherwise wins, and no key goes to strangers.
func TestWhoGetsWhichKey(t *testing.T) {
	dev, atDev := doorman(t)
	other, atOther := doorman(t)
	dir := t.TempDir()
	layOut(t, dir, devEnv{urlVariable: dev, keyVariable: "tenants", adminKeyVariable: "admins", poolKeyVariable: "pools"})
	below := filepath.Join(dir, "a", "b")
	if err := os.MkdirAll(below, 0o755); err != nil {
		t.Fatal(err)
	}
	settings := filepath.Join(dir, "errand.yaml")
	if err := os.WriteFile(settings, []byte("url: "+other+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, tt := range map[string]struct {
		args      []string
		variables map[string]string
		dev       string // the key that came to errand dev
		other     string
	}{
		"a tenant's command":                     {args: []string{"list"}, dev: "tenants"},
		"an operator's command":                  {args: []string{"tenant", "list"}, dev: "admins"},
		"an operator's command of kinds":         {args: []string{"kind", "list", "--tenant", "acme"}, dev: "admins"},
		"an operator's command of limits":        {args: []string{"limit", "list", "--tenant", "acme"}, dev: "admins"},
		"a key as a flag":                        {args: []string{"list", "--key", "mine"}, dev: "mine"},
		"a key as a variable":                    {args: []string{"list"}, variables: map[string]string{keyVariable: "mine"}, dev: "mine"},
		"another URL as a flag":                  {args: []string{"list", "--url", other}},
		"another URL as a variable":              {args: []string{"list"}, variables: map[string]string{urlVariable: other}},
		"the same URL":                           {args: []string{"list", "--url", dev}, dev: "tenants"},
		"everything said":                        {args: []string{"list", "--url", other, "--key", "mine"}, other: "mine"},
		"a configuration file":                   {args: []string{"list", "--config", settings, "--key", "mine"}, other: "mine"},
		"a configuration file alone":             {args: []string{"list", "--config", settings}},
		"an operator's command after sourcing":   {args: []string{"workers"}, variables: map[string]string{urlVariable: dev, keyVariable: "tenants", adminKeyVariable: "admins"}, dev: "admins"},
		"the file by name":                       {args: []string{"list"}, variables: map[string]string{devEnvVariable: filepath.Join(dir, devDir, devEnvName)}, dev: "tenants"},
		"nothing looked for":                     {args: []string{"list"}, variables: map[string]string{devEnvVariable: ""}},
		"an operator's command with another URL": {args: []string{"workers", "--url", other}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Chdir(below)
			lookForDevEnv(t)
			t.Setenv(keyVariable, "")
			for variable, value := range tt.variables {
				t.Setenv(variable, value)
			}
			_, errs, code := output(t, tt.args...)
			if d, o := atDev(), atOther(); d != tt.dev || o != tt.other {
				t.Errorf("errand dev saw %q, want %q; the other one %q, want %q; exit %d: %s", d, tt.dev, o, tt.other, code, errs)
			}
		})
	}
}

// In a folder that many can write to, a file of somebody else would be a trap.
func TestAnothersDevEnvIsPassedOver(t *testing.T) {
	above := t.TempDir()
	layOut(t, above, devEnv{keyVariable: "mine"})
	shared := filepath.Join(above, "shared")
	if err := os.Chmod(layOut(t, shared, devEnv{keyVariable: "theirs"}), 0o666); err != nil {
		t.Fatal(err)
	}
	if file, env, err := findDevEnv(shared); err != nil || env[keyVariable] != "mine" {
		t.Errorf("found %s with key %q: %v", file, env[keyVariable], err)
	}
}

func TestADamagedDevEnvIsNamed(t *testing.T) {
	dir := t.TempDir()
	file := layOut(t, dir, devEnv{})
	if err := os.WriteFile(file, []byte("# fine\n\nERRAND_KEY=a=b\nnonsense\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Chdir(dir)
	lookForDevEnv(t)
	t.Setenv(keyVariable, "")
	if _, errs, code := output(t, "list"); code != exitUsage || !strings.Contains(errs, file) || !strings.Contains(errs, "line 4") {
		t.Errorf("exit %d: %s", code, errs)
	}
}

func TestDevEnvIsReadAsItWasWritten(t *testing.T) {
	want := devEnv{urlVariable: "http://127.0.0.1:7070", keyVariable: "a=b", adminKeyVariable: "c", poolKeyVariable: "d"}
	file := layOut(t, t.TempDir(), want)
	got, err := readDevEnv(file)
	if err != nil || got.String() != want.String() || len(got) != len(want) {
		t.Errorf("%v, %v; want %v", got, err, want)
	}
}
