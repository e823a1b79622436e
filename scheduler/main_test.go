package scheduler

import (
	"flag"
	"os"
	"testing"
)

// TestMain runs more histories than rapid does by itself: some faults show once in thousands.
func TestMain(m *testing.M) {
	flag.Parse()
	if checks := flag.Lookup("rapid.checks"); checks != nil && checks.Value.String() == checks.DefValue && !testing.Short() {
		_ = checks.Value.Set("1000") // a number is good
	}
	os.Exit(m.Run())
}
