package tokenbucket

import (
	"testing"

	"github.com/errandhq/errand/internal/testdb"
)

// B26: whoever lets Redis drop keys that are in use hears of it.
func TestEvicts(t *testing.T) {
	r := testdb.Redis(t)
	b, c := open(t, r), raw(t, r)
	for _, tt := range []struct{ memory, policy, want string }{
		{"0", "allkeys-lru", ""},
		{"100mb", "noeviction", ""},
		{"100mb", "allkeys-lru", "allkeys-lru"},
		{"100mb", "volatile-ttl", "volatile-ttl"}, // every bucket has a TTL
	} {
		for name, value := range map[string]string{"maxmemory": tt.memory, "maxmemory-policy": tt.policy} {
			if err := c.ConfigSet(t.Context(), name, value).Err(); err != nil {
				t.Fatal(err)
			}
		}
		if got := b.Evicts(t.Context()); got != tt.want {
			t.Errorf("with %s of memory and %s: %q, want %q", tt.memory, tt.policy, got, tt.want)
		}
	}
	r.Kill()
	if got := b.Evicts(t.Context()); got != "" {
		t.Errorf("without an answer: %q", got)
	}
}

// Without a Redis in the configuration the twin admits, with this instance's share.
func TestWithoutRedis(t *testing.T) {
	b, err := Open("", "eu", Options{})
	if err != nil {
		t.Fatal(err)
	}
	b.SetInstances(2)
	wantGranted(t, b, "a", slow, 20, 5)
	wantGranted(t, b, "a", slow, 20, 0)
	wantBy(t, b, 0, 2)
	if s := b.Status(); s.Open || s.Cause != nil {
		t.Errorf("nothing has failed: %+v", s)
	}
	if got := b.Evicts(t.Context()); got != "" {
		t.Errorf("nobody evicts: %q", got)
	}
	if err := b.Close(); err != nil {
		t.Error(err)
	}
}
