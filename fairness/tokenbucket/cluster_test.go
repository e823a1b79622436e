package tokenbucket

import (
	"fmt"
	"net"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/errandhq/errand/internal/devcluster"
)

// freePort returns a port that nobody listens on now.
func freePort(t *testing.T) int {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = listener.Close() }()
	return listener.Addr().(*net.TCPAddr).Port
}

// cluster starts a Redis Cluster of two servers, each with half of the slots, and returns clients of each and its URL.
func cluster(t *testing.T) (servers []*redis.Client, url string) {
	t.Helper()
	var ports, buses []int
	for i := range 2 {
		ports, buses = append(ports, freePort(t)), append(buses, freePort(t))
		r, err := devcluster.NewRedis(devcluster.RedisOptions{
			Dir: t.TempDir(), Port: ports[i],
			Args: []string{"--cluster-enabled", "yes", "--cluster-port", strconv.Itoa(buses[i])},
		})
		if err != nil {
			t.Fatal(err)
		}
		if err := r.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(r.Kill)
		servers = append(servers, raw(t, r))
	}
	for i, slots := range [][2]int{{0, 8191}, {8192, 16383}} {
		if err := servers[i].ClusterAddSlotsRange(t.Context(), slots[0], slots[1]).Err(); err != nil {
			t.Fatal(err)
		}
	}
	if err := servers[0].Do(t.Context(), "CLUSTER", "MEET", "127.0.0.1", ports[1], buses[1]).Err(); err != nil {
		t.Fatal(err)
	}
	again := time.NewTicker(20 * time.Millisecond)
	defer again.Stop()
	end := time.After(limit)
	for _, s := range servers {
		for !strings.Contains(s.ClusterInfo(t.Context()).Val(), "cluster_state:ok") {
			select {
			case <-again.C:
			case <-end:
				t.Fatal("the cluster does not come up")
			}
		}
	}
	return servers, fmt.Sprintf("redis://127.0.0.1:%d?addr=127.0.0.1:%d", ports[0], ports[1])
}

// On a cluster, tenants are spread over the servers, in one call, also when the servers do not know the script (B27).
func TestCluster(t *testing.T) {
	servers, url := cluster(t)
	b, err := Open(url, "eu", Options{CallMax: patience})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = b.Close() })
	const tenants = 50
	var asks []Ask
	for i := range tenants {
		asks = append(asks, Ask{Tenant: fmt.Sprint("tenant-", i), Policy: slow, Tasks: 6})
	}
	for _, want := range []int{6, 4, 0} {
		for i, got := range b.Admit(t.Context(), asks) {
			if got.Granted != want {
				t.Errorf("%d granted to tenant %d, want %d", got.Granted, i, want)
			}
		}
		for _, s := range servers {
			if err := s.ScriptFlush(t.Context()).Err(); err != nil {
				t.Fatal(err)
			}
		}
	}
	wantBy(t, b, 3*tenants, 0)
	var keys int64
	for i, s := range servers {
		n := s.DBSize(t.Context()).Val()
		if n == 0 {
			t.Errorf("no tenant is on server %d", i)
		}
		keys += n
	}
	if keys != tenants {
		t.Errorf("%d keys for %d tenants", keys, tenants)
	}
}

func TestABadClusterURLIsRefused(t *testing.T) {
	if _, err := Open("localhost:6379?addr=localhost:6380", "eu", Options{}); err == nil {
		t.Error("a URL without a scheme was taken")
	}
}
