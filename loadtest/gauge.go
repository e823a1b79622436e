package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// discoverGauge is what the last full search for waiting tasks took, by the scheduler's own account.
const discoverGauge = "errand_discover_cycle_seconds"

const (
	gaugeEvery    = 100 * time.Millisecond
	discoverLimit = time.Minute
)

// discoverCycle waits for two searches and returns what the second took: the first after a start goes on without pauses.
func (c *cluster) discoverCycle(ctx context.Context) (float64, error) {
	var values []float64
	var failed error
	done, err := until(ctx, discoverLimit, func() bool {
		now, err := gauge(ctx, c.metrics[0], discoverGauge)
		if err != nil {
			failed = err
			return true
		}
		if now > 0 && (len(values) == 0 || values[len(values)-1] != now) {
			values = append(values, now)
		}
		return len(values) == 2
	})
	switch {
	case err != nil || failed != nil:
		return 0, errors.Join(err, failed)
	case !done:
		return 0, fmt.Errorf("%s: no two searches for waiting tasks within %v", discoverGauge, discoverLimit)
	}
	return values[1], nil
}

// gauge reads a metric that has one series, or the one with a label.
func gauge(ctx context.Context, url, name string, label ...string) (float64, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url+"/metrics", nil)
	if err != nil {
		return 0, err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, err
	}
	defer func() { _ = resp.Body.Close() }()
	lines := bufio.NewScanner(resp.Body)
	for lines.Scan() {
		fields := strings.Fields(lines.Text())
		if len(fields) > 1 && (fields[0] == name || strings.HasPrefix(fields[0], name+"{")) && strings.Contains(fields[0], strings.Join(label, ",")) {
			return strconv.ParseFloat(fields[len(fields)-1], 64)
		}
	}
	return 0, errors.Join(lines.Err(), fmt.Errorf("%s has no metric %s", url, name))
}

// peakMiB is the most memory that a process has had, by the kernel's account; 0 when it is gone.
func peakMiB(pid int) float64 {
	kib, _, _ := strings.Cut(firstValue(fmt.Sprintf("/proc/%d/status", pid), "VmHWM"), " ")
	return round3(float64(number(kib)) / 1024)
}
