package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/errandhq/errand/internal/devcluster"
)

// controlOf asks the regions' socket.
func controlOf(t *testing.T, path, url, body string) string {
	t.Helper()
	client := &http.Client{Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", path)
		},
	}}
	method := http.MethodGet
	if body != "" {
		method = http.MethodPost
	}
	req, err := http.NewRequestWithContext(t.Context(), method, url, bytes.NewReader([]byte(body)))
	if err != nil {
		t.Fatal(err)
	}
	resp, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	said, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK {
		t.Fatalf("%s %s: %d %s, %v", url, body, resp.StatusCode, said, err)
	}
	return string(said)
}

// Two regions with two schedulers each, one of them far away: each answers at its own address, commands find the key for all of them,
// a region can be killed and started again, and the second start has the same addresses.
func TestDevWithRegions(t *testing.T) {
	dir := folder(t)
	latency := filepath.Join(dir, "latency.yaml")
	if err := os.WriteFile(latency, []byte("store: {far: 20}\ndistances: [{between: [far, near], ms: 30}]\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	args := []string{"dev", "--regions", "2", "--region-names", "near,far", "--schedulers", "2", "--workers", "1", "--latency", latency}
	p := startDev(t, command(dir, args...))
	env, err := readDevEnv(filepath.Join(dir, devDir, devEnvName))
	if err != nil {
		t.Fatal(err)
	}
	for _, region := range []string{"near", "far"} {
		urls := strings.Split(env[regionURLVariable(region)], ",")
		if len(urls) != 2 {
			t.Fatalf("%s: %q, want two schedulers", region, urls)
		}
		for _, url := range urls {
			call := fmt.Sprintf(`{"url": "%s/livez", "method": "GET"}`, url)
			if said := expect(t, dir, 0, "succeeded", "submit", "http", call, "--wait", "--url", url); !strings.Contains(said, region+".") {
				t.Errorf("the task is not of region %s:\n%s", region, said)
			}
		}
	}

	socket := filepath.Join(dir, devDir, devControlName)
	var lines []devcluster.LinkStatus
	if err := json.Unmarshal([]byte(controlOf(t, socket, "http://errand/lines", "")), &lines); err != nil {
		t.Fatal(err)
	}
	want := []devcluster.LinkStatus{
		{Between: [2]string{"far", "near"}, State: devcluster.LineOpen, MS: 30, Lines: 4},
		{Between: [2]string{"far", devcluster.TheStore}, State: devcluster.LineOpen, MS: 20, Lines: 1},
		{Between: [2]string{"near", devcluster.TheStore}, State: devcluster.LineOpen, MS: 0, Lines: 1},
	}
	if fmt.Sprint(lines) != fmt.Sprint(want) {
		t.Errorf("lines: %v\nwant %v", lines, want)
	}

	controlOf(t, socket, "http://errand/regions", `{"region": "far", "state": "killed"}`)
	far := strings.Split(env[regionURLVariable("far")], ",")[0]
	expect(t, dir, exitUnavailable, far, "list", "--url", far)
	controlOf(t, socket, "http://errand/regions", `{"region": "far", "state": "running"}`)
	p.waitFor(t, "scheduler far-1 ended by itself and was started again")
	p.waitFor(t, "worker far-http-1 ended by itself and was started again")
	p.end(t, syscall.SIGINT, 0)

	p = startDev(t, command(dir, args...))
	if again, err := readDevEnv(filepath.Join(dir, devDir, devEnvName)); err != nil || again.String() != env.String() {
		t.Fatalf("%v\nafter the second start:\n%s\nafter the first:\n%s", err, again, env)
	}
	p.end(t, syscall.SIGTERM, 0)
	expect(t, dir, exitUsage, "tasks of region far", "dev", "--region-names", "near")
}

func TestDevRegionsThatCannotBe(t *testing.T) {
	dir := folder(t)
	for name, text := range map[string]string{"strange": "store: {r9: 1}", "far": "distances: [{between: [r1, r2], ms: 5000}]", "good": "{}"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for name, tt := range map[string]struct {
		args []string
		want string
	}{
		"no region":              {[]string{"--regions", "0"}, "--regions"},
		"too many":               {[]string{"--regions", "17"}, "--regions"},
		"no scheduler":           {[]string{"--schedulers", "0"}, "--schedulers"},
		"a name too few":         {[]string{"--regions", "3", "--region-names", "a,b"}, "--region-names"},
		"a name twice":           {[]string{"--region-names", "a,a"}, "twice"},
		"no name":                {[]string{"--region-names", "a,B"}, `"B"`},
		"a region named store":   {[]string{"--region-names", "a,store"}, `"store"`},
		"no file":                {[]string{"--regions", "2", "--latency", filepath.Join(dir, "none")}, "--latency"},
		"a strange region":       {[]string{"--regions", "2", "--latency", filepath.Join(dir, "strange")}, `"r9"`},
		"no CockroachDB":         {[]string{"--store", "cockroach"}, "cockroach is not on the PATH"},
		"another store":          {[]string{"--store", "paper"}, "--store"},
		"farther than times say": {[]string{"--regions", "2", "--latency", filepath.Join(dir, "far")}, "longest round trip"},
	} {
		t.Run(name, func(t *testing.T) {
			expect(t, dir, exitUsage, tt.want, append([]string{"dev"}, tt.args...)...)
		})
	}
}

func TestTopologyTextIsRead(t *testing.T) {
	names := []string{"true", "r-2", "c"}
	l := devcluster.Latency{Distances: []devcluster.Distance{{Between: []string{"c", "true"}, MS: 1.2}}}
	want := topologyOf(names, l)
	got, err := parseTopology([]byte(devTopologyText(&want)))
	if err != nil || fmt.Sprint(*got) != fmt.Sprint(want) || got.RoundTripMS("true", "c") != 2 || got.RoundTripMS("r-2", "c") != 0 {
		t.Errorf("%v, %v\nwant %v", got, err, want)
	}
}
