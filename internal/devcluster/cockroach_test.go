package devcluster

import (
	"errors"
	"strings"
	"testing"
)

// What cannot be run here is at least started with the right words.
func TestCockroachCommandLines(t *testing.T) {
	c := &Cockroach{dir: "/data", servers: []*CockroachServer{
		{Region: "eu", Addr: "127.0.0.1:1001", http: "127.0.0.1:1002"}, {Region: "us", Addr: "127.0.0.1:2001", http: "127.0.0.1:2002"},
	}}
	want := "start --insecure --store=/data/us --listen-addr=127.0.0.1:2001 --http-addr=127.0.0.1:2002 --locality=region=us,zone=a " +
		"--join=127.0.0.1:1001,127.0.0.1:2001 --cache=128MiB --max-sql-memory=128MiB --log=sinks: {stderr: {filter: ERROR}}"
	if got := strings.Join(c.startArgs(c.servers[1]), " "); got != want {
		t.Errorf("start:\n%s\nwant\n%s", got, want)
	}
	if got := strings.Join(c.initArgs(), " "); got != "init --insecure --host=127.0.0.1:1001" {
		t.Errorf("init: %s", got)
	}
	if got := c.servers[0].DSN("errand"); got != "postgres://root@127.0.0.1:1001/errand?sslmode=disable" {
		t.Errorf("the URL: %s", got)
	}
	if !initialized("ERROR: cluster has already been initialized\n") || initialized("ERROR: cannot dial server") {
		t.Error("what init says was not understood")
	}
}

func TestCockroachThatIsMissingIsNamed(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	if _, err := NewCockroach(CockroachOptions{Dir: t.TempDir(), Regions: []string{"eu"}}); !errors.Is(err, ErrNoCockroach) || !strings.Contains(err.Error(), "cockroach") {
		t.Errorf("%v", err)
	}
}
