package main

import (
	"context"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// output runs a command and returns what it wrote to standard output and standard error, and its exit code.
func output(t *testing.T, args ...string) (out, errs string, code int) {
	t.Helper()
	stdout, stderr := os.Stdout, os.Stderr
	defer func() { os.Stdout, os.Stderr = stdout, stderr }()
	outFile, errFile := tempFile(t), tempFile(t)
	os.Stdout, os.Stderr = outFile, errFile
	code = run(context.Background(), args)
	return content(t, outFile), content(t, errFile), code
}

func tempFile(t *testing.T) *os.File {
	t.Helper()
	f, err := os.Create(filepath.Join(t.TempDir(), "out"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() })
	return f
}

func content(t *testing.T, f *os.File) string {
	t.Helper()
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		t.Fatal(err)
	}
	raw, err := io.ReadAll(f)
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}

func settingsFile(t *testing.T, text string) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "errand.yaml")
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}

const somewhere = "postgres://me:hunter2@127.0.0.1:1/errand"

// Flags come before variables, variables before the file, the file before the defaults.
func TestWhereSettingsComeFrom(t *testing.T) {
	file := settingsFile(t, "store: "+somewhere+"\nregion: from-file\nworker_lease: 20s\nsession-ttl: 9s\n")
	t.Setenv("ERRAND_REGION", "from-variable")
	t.Setenv("ERRAND_SESSION_TTL", "12s")
	out, errs, code := output(t, "serve", "--config", file, "--print-config", "--session-ttl", "15s")
	if code != 0 {
		t.Fatalf("exit %d: %s", code, errs)
	}
	for _, want := range []string{"region: from-variable", "session-ttl: 15s", "worker-lease: 20s", "heartbeat: 3s"} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q in:\n%s", want, out)
		}
	}
}

func TestPrintConfigHidesSecrets(t *testing.T) {
	out, errs, code := output(t, "serve", "--store", somewhere, "--peer-secret", "s3cret", "--redis", "redis://:pa55@127.0.0.1:1", "--print-config")
	if code != 0 {
		t.Fatalf("exit %d: %s", code, errs)
	}
	for _, secret := range []string{"hunter2", "s3cret", "pa55"} {
		if strings.Contains(out+errs, secret) {
			t.Errorf("%q is shown:\n%s", secret, out)
		}
	}
}

// What cannot work is refused before anything is started, and the message names the setting.
func TestSettingsThatCannotWork(t *testing.T) {
	tests := map[string]struct {
		args []string
		want string
	}{
		"a setting that does not exist":     {[]string{"serve", "--config", settingsFile(t, "store: x\nworker-leese: 20s\n")}, "worker-leese"},
		"a file that is not YAML":           {[]string{"serve", "--config", settingsFile(t, "a: [\n")}, "configuration file"},
		"no store":                          {[]string{"serve"}, "store"},
		"a region with a dot":               {[]string{"serve", "--store", somewhere, "--region", "eu.1"}, "--region"},
		"a heartbeat as long as the lease":  {[]string{"serve", "--store", somewhere, "--heartbeat", "10s"}, "Heartbeat"},
		"a margin that covers nothing":      {[]string{"serve", "--store", somewhere, "--session-margin", "1ms"}, "Margin"},
		"a renewal as long as the session":  {[]string{"serve", "--store", somewhere, "--session-renew", "6s"}, "Renewal"},
		"a grace shorter than a reconnect":  {[]string{"serve", "--store", somewhere, "--reattach-grace", "1s"}, "ReattachGrace"},
		"a negative time":                   {[]string{"serve", "--store", somewhere, "--worker-lease=-1s"}, "WorkerLease"},
		"a certificate without a key":       {[]string{"serve", "--store", somewhere, "--tls-cert", "x"}, "--tls-key"},
		"client certificates without TLS":   {[]string{"serve", "--store", somewhere, "--client-ca", "x"}, "--client-ca"},
		"a retention shorter than the keys": {[]string{"serve", "--store", somewhere, "--retention", "1h"}, "--retention"},
		"no slots":                          {[]string{"worker", "--kind", "http", "--key", "k", "--slots", "0"}, "--slots"},
		"a kind that is not built in":       {[]string{"worker", "--kind", "nope", "--key", "k"}, "kind"},
		"a tier that does not exist":        {[]string{"submit", "k", "--tier", "soon"}, "tier"},
		"a state that does not exist":       {[]string{"list", "--key", "k", "--state", "lost"}, "lost"},
		"a URL that is none":                {[]string{"list", "--key", "k", "--url", "localhost"}, "--url"},
		"no key":                            {[]string{"list"}, "ERRAND_KEY"},
		"no admin key":                      {[]string{"tenant", "list"}, "admin key"},
		"a change of a tenant to nothing":   {[]string{"tenant", "update", "acme", "--key", "k"}, "say what to change"},
		"a burst that is no number":         {[]string{"tenant", "update", "acme", "--key", "k", "--burst", "many"}, "--burst"},
		"a burst that no number can be":     {[]string{"tenant", "update", "acme", "--key", "k", "--burst", "99999999999"}, "--burst"},
		"a weight that is no number":        {[]string{"tenant", "create", "acme", "--key", "k", "--weight", "heavy"}, "--weight"},
		"a negative weight":                 {[]string{"tenant", "create", "acme", "--key", "k", "--weight", "-1"}, "--weight"},
		"a kind of no tenant":               {[]string{"kind", "put", "email", "--key", "k"}, "--tenant"},
		"a kind's tier that does not exist": {[]string{"kind", "put", "email", "--tenant", "acme", "--key", "k", "--tier", "soon"}, "--tier"},
		"a growth of nothing":               {[]string{"kind", "put", "email", "--tenant", "acme", "--key", "k", "--multiplier", "0"}, "--multiplier"},
		"a named limit of no tenant":        {[]string{"limit", "list", "--key", "k"}, "--tenant"},
		"a named limit that caps nothing":   {[]string{"limit", "put", "api", "--tenant", "acme", "--key", "k"}, "--concurrency"},
		"a task's limit without a name":     {[]string{"submit", "k", "--key", "k", "--limit", "/customer"}, "--limit"},
		"a task's limit without its key":    {[]string{"submit", "k", "--key", "k", "--limit", "api/"}, "--limit"},
		"a task without a kind":             {[]string{"submit", "--key", "k"}, "<kind>"},
		"many tasks with one key":           {[]string{"submit", "--many", "f", "--idempotency-key", "x"}, "--idempotency-key"},
		"waiting for many":                  {[]string{"submit", "--many", "f", "--wait"}, "--wait"},
		"standard input twice":              {[]string{"submit", "k", "-", "--many", "-"}, "standard input"},
		"a file that is not there":          {[]string{"submit", "--key", "k", "--many", "nowhere"}, "--many"},
		"a limit of nothing":                {[]string{"list", "--key", "k", "--limit", "0"}, "--limit"},
		"a time that is over already":       {[]string{"wait", "x", "--key", "k", "--timeout=-1s"}, "--timeout"},
		"a store's URL that is none":        {[]string{"key", "create", "admin", "--store", "nonsense"}, "postgres://"},
		"another scope straight to a store": {[]string{"key", "create", "pool", "--store", somewhere}, "--store"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Setenv("ERRAND_KEY", "")
			_, errs, code := output(t, tt.args...)
			if code != exitUsage || !strings.Contains(errs, tt.want) {
				t.Errorf("exit %d, want %d and a message with %q:\n%s", code, exitUsage, tt.want, errs)
			}
		})
	}
}

func TestVersion(t *testing.T) {
	out, _, code := output(t, "version")
	if code != 0 || !strings.HasPrefix(out, "errand ") {
		t.Errorf("exit %d: %q", code, out)
	}
}
