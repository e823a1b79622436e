package main

import (
	"bytes"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"github.com/errandhq/errand"
)

func TestTimeSpansAreShort(t *testing.T) {
	for d, want := range map[time.Duration]string{
		0:                              "0s",
		1234 * time.Microsecond:        "1.2ms",
		123456 * time.Microsecond:      "123ms",
		1234 * time.Millisecond:        "1.2s",
		59600 * time.Millisecond:       "1m",
		90 * time.Second:               "1m30s",
		30 * time.Minute:               "30m",
		3*time.Hour + 5*time.Minute:    "3h5m",
		47*time.Hour + 59*time.Minute:  "47h59m",
		100*time.Hour + 59*time.Minute: "4d",
		time.Hour + 59*time.Minute + 59*time.Second: "2h0m",
	} {
		if got := short(d); got != want {
			t.Errorf("%v: %q, want %q", d, got, want)
		}
	}
}

func TestTimesAreShownTwice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		now := time.Now()
		for want, at := range map[string]time.Time{
			"(5m ago)": now.Add(-5 * time.Minute), "(in 2h0m)": now.Add(2 * time.Hour), "-": {},
			now.Local().Format("15:04:05"): now,
		} {
			if got := moment(at); !strings.Contains(got, want) {
				t.Errorf("%v: %q, want %q in it", at, got, want)
			}
		}
	})
}

// What others wrote cannot change the terminal, and is cut between characters.
func TestPrintable(t *testing.T) {
	if got := printable([]byte("a\x1b[31m\x00\xffé\u009b2J\n")); got != "a [31m ?é 2J " {
		t.Errorf("%q", got)
	}
	long := printable([]byte(strings.Repeat("x", printableMax-1) + strings.Repeat("é", 100)))
	if !utf8.ValidString(long) || !strings.HasSuffix(long, "x...") {
		t.Errorf("%q", long)
	}
}

// Bytes go through JSON unharmed: as text where they are text, else as base64.
func TestPayloadsInJSON(t *testing.T) {
	v := viewOf(&errand.Task{State: errand.Succeeded, Payload: []byte("\xff"), Result: []byte(`{"id":9007199254740993}`)})
	if v.Payload != nil || string(v.PayloadBase64) != "\xff" || *v.Result != `{"id":9007199254740993}` || v.ResultBase64 != nil {
		t.Errorf("%+v", v)
	}
	if v.StartedAt != nil || v.Labels == nil {
		t.Errorf("a time that is not known is null, and labels are never: %+v", v)
	}
}

func TestProgressLine(t *testing.T) {
	var b bytes.Buffer
	p := &progress{w: &b, width: func() int { return 8 }}
	p.clear()
	p.show("running, attempt 2")
	p.show("é")
	p.clear()
	p.clear()
	if want := "\r\x1b[Krunning\r\x1b[Ké\r\x1b[K"; b.String() != want {
		t.Errorf("%q, want %q", b.String(), want)
	}
	var none *progress // without a terminal
	none.show("x")
	none.clear()
}

func TestProgressOfAWait(t *testing.T) {
	w := &waiting{of: 3, ended: 1, began: time.Now()}
	got := w.text(&errand.Task{ID: "local.x", State: errand.Scheduled, Attempt: 2, Reason: "timeout"})
	if want := "1 of 3 ended; local.x scheduled, attempt 2, last ended with timeout, 0s"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}
