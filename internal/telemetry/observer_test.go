package telemetry

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"

	"github.com/errandhq/errand/scheduler"
)

func observe(t testing.TB, tel *Telemetry, w io.Writer) *Observer {
	t.Helper()
	o, err := tel.Observer(NewLogger(w, slog.LevelInfo, Text))
	if err != nil {
		t.Fatal(err)
	}
	return o
}

func TestObserverCountsWhatHappens(t *testing.T) {
	tel := begin(t, Config{})
	o := observe(t, tel, io.Discard)
	o.Batch("claim", 40)
	o.Claims(38, 2)
	o.Rows("reclaimed", 7)
	o.StatementFailed("end", 1, io.ErrUnexpectedEOF)
	o.Submitted("answered", 3*time.Millisecond)
	o.Started(scheduler.Urgent, 20*time.Millisecond, -time.Second)
	o.Started(scheduler.Urgent, 2*time.Second, time.Second)
	o.Ended(scheduler.Standard, scheduler.Succeeded, time.Minute)
	o.Ended(scheduler.Standard, scheduler.State(77), -time.Minute)
	tel.Statement("claim tasks", 4*time.Millisecond, nil)
	tel.Statement("read task eu.0123", time.Millisecond, io.EOF)

	got := scrape(t, tel)
	for _, c := range []struct {
		want   float64
		name   string
		labels []string
	}{
		{1, "errand_batch_rows", []string{"write", "claim"}},
		{38, "errand_claims_total", []string{"outcome", "won"}},
		{2, "errand_claims_total", []string{"outcome", "lost"}},
		{7, "errand_rows_total", []string{"what", "reclaimed"}},
		{0, "errand_rows_total", []string{"what", "missing"}},
		{1, "errand_statement_failures_total", []string{"write", "end"}},
		{0, "errand_statement_failures_total", []string{"write", "insert"}},
		{1, "errand_submit_seconds", []string{"outcome", "answered"}},
		{1, "errand_wait_seconds", []string{"tier", "urgent", "outcome", "on_time"}},
		{1, "errand_wait_seconds", []string{"tier", "urgent", "outcome", "late"}},
		{1, "errand_late_seconds", []string{"tier", "urgent"}},
		{1, "errand_run_seconds", []string{"tier", "standard", "outcome", "succeeded"}},
		{1, "errand_run_seconds", []string{"tier", "standard", "outcome", "invalid"}},
		{1, "errand_store_seconds", []string{"statement", "claim_tasks"}},
		{1, "errand_store_seconds", []string{"statement", "read_task"}},
		{1, "errand_store_errors_total", []string{"statement", "read_task"}},
		{0, "errand_log_dropped_total", nil},
	} {
		if value := sample(t, got, c.name, c.labels...); value != c.want {
			t.Errorf("%s%v is %v, want %v", c.name, c.labels, value, c.want)
		}
	}
}

// B48: what users choose never becomes a label, so the number of series does not grow with use.
func TestSeriesDoNotGrowWithUse(t *testing.T) {
	tel := begin(t, Config{})
	o := observe(t, tel, io.Discard)
	use := func(from int) {
		for i := from; i < from+50_000; i++ {
			tier, user := scheduler.Tier(i%5), fmt.Sprintf("tenant-%d/kind-%d", i, i)
			o.Started(tier, time.Duration(i)*time.Millisecond, time.Duration(i%3)*time.Second)
			o.Ended(tier, scheduler.State(i%10), time.Duration(i)*time.Millisecond)
			o.Rows(user, 1)
			o.Batch(user, 1)
			o.Submitted(user, time.Second)
			o.StatementFailed(user, 1, errors.New(user))
			o.Event(user, "tenant", user)
			tel.Statement("read tenant "+user, time.Millisecond, errors.New(user))
			tel.Statement(user, time.Millisecond, nil)
		}
	}
	use(0)
	sets, series := count(scrape(t, tel))
	if sets >= 200 || series >= 2000 {
		t.Errorf("there are %d label sets and %d series, want less than 200 and 2000", sets, series)
	}
	use(50_000)
	if again, _ := count(scrape(t, tel)); again != sets {
		t.Errorf("there were %d label sets, and %d after as many tasks again", sets, again)
	}
}

// count returns how many label sets our own metrics have, and how many series those are for Prometheus.
func count(families map[string]*dto.MetricFamily) (sets, series int) {
	for name, f := range families {
		if !strings.HasPrefix(name, "errand_") {
			continue
		}
		sets += len(f.GetMetric())
		for _, m := range f.GetMetric() {
			series++
			if h := m.GetHistogram(); h != nil {
				series += len(h.GetBucket()) + 1
			}
		}
	}
	return sets, series
}

// What is called for every attempt must cost next to nothing.
func TestAttemptsAreObservedWithoutAllocation(t *testing.T) {
	tel := begin(t, Config{})
	o := observe(t, tel, io.Discard)
	n := testing.AllocsPerRun(1000, func() {
		o.Started(scheduler.Standard, time.Second, time.Second)
		o.Ended(scheduler.Standard, scheduler.Succeeded, time.Second)
		o.Submitted("answered", time.Second)
		o.Batch("claim", 100)
	})
	if n != 0 {
		t.Errorf("observing an attempt allocates %v times", n)
	}
}

func BenchmarkAttempt(b *testing.B) {
	tel, err := Start(b.Context(), Config{})
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = tel.Shutdown(b.Context()) }()
	o := observe(b, tel, io.Discard)
	b.ReportAllocs()
	for b.Loop() {
		o.Started(scheduler.Standard, time.Second, -time.Second)
		o.Ended(scheduler.Standard, scheduler.Succeeded, time.Second)
	}
}

func TestEventsAreLogged(t *testing.T) {
	tel, err := Start(t.Context(), Config{})
	if err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	o := observe(t, tel, &out)
	o.Event("worker lost", "attempts", 3)
	o.Note("session opened")
	for range 100 {
		o.StatementFailed("end", 5, io.ErrUnexpectedEOF)
	}
	if err := tel.Shutdown(t.Context()); err != nil { // writes what waits
		t.Fatal(err)
	}
	for _, want := range []string{`level=WARN msg="worker lost" attempts=3`, `level=INFO msg="session opened"`, "write=end tries=5"} {
		if n := strings.Count(out.String(), want); n != 1 {
			t.Errorf("%q is logged %d times, want once:\n%s", want, n, &out)
		}
	}
}

// stuck is a terminal that takes nothing until it is released.
type stuck struct {
	entered, release chan struct{}
	once             sync.Once
}

func (s *stuck) Write(p []byte) (int, error) {
	s.once.Do(func() { close(s.entered) })
	<-s.release
	return len(p), nil
}

// A scheduler must go on dispatching while its log takes nothing.
func TestStuckLogHoldsNobodyUp(t *testing.T) {
	tel, err := Start(t.Context(), Config{})
	if err != nil {
		t.Fatal(err)
	}
	log := &stuck{entered: make(chan struct{}), release: make(chan struct{})}
	o := observe(t, tel, log)
	o.Event("first")
	<-log.entered
	for range linesMax + 10 {
		o.Event("another")
	}
	if got := sample(t, scrape(t, tel), "errand_log_dropped_total"); got != 10 {
		t.Errorf("%v lines were dropped, want 10", got)
	}
	if err := tel.Shutdown(t.Context()); err != nil {
		t.Error(err)
	}
	close(log.release)
	<-tel.lines.stopped
}

// The fixed sets must be those of the source: a new name would be shown as other.
func TestNamesAreThoseOfTheSource(t *testing.T) {
	for _, c := range []struct {
		folder, pattern string
		known           []string
	}{
		{"../../scheduler/engine", `pipe\{name: "(\w+)"`, writes},
		{"../../scheduler/engine", `observe\.Rows\("(\w+)"`, rowKind},
		{"../../scheduler/engine", `answerTicket\(.*"(\w+)"\)`, submitOutcomes},
		{"../api", `return "(\w+)"\n`, admissionOutcomes},
		{"../api", `observer\.Admitted\("(\w+)"`, admissionOutcomes},
		{"../store", `rows\(ctx, \S+, "([a-z ]+?) ?"`, statementNames},
		{"../store", `s\.exec\(ctx, "([a-z ]+?) ?"`, statementNames},
	} {
		found := matches(t, c.folder, c.pattern)
		if len(found) == 0 {
			t.Errorf("%s: nothing looks like %s any more", c.folder, c.pattern)
		}
		for _, name := range found {
			if !slices.Contains(c.known, name) {
				t.Errorf("%s uses the name %q, which has no label here", c.folder, name)
			}
		}
	}
}

func matches(t *testing.T, folder, pattern string) []string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(folder, "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]bool{}
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range regexp.MustCompile(pattern).FindAllStringSubmatch(string(text), -1) {
			found[m[1]] = true
		}
	}
	return slices.Sorted(maps.Keys(found))
}
