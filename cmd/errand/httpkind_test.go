package main

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/errandhq/errand"
)

// call runs kind http on a payload, as a worker would.
func call(ctx context.Context, k *httpKind, payload string) (httpResult, error) {
	r, err := errand.Try(ctx, k.handle, &errand.Attempt{
		TaskID: "local.7", Number: 3, Payload: []byte(payload), EffectKey: "local.1", TraceParent: "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
	})
	var got httpResult
	if err == nil {
		err = json.Unmarshal(r.Data, &got)
	}
	if len(r.Data) > httpResultMax {
		err = errors.Join(err, fmt.Errorf("the result has %d bytes", len(r.Data)))
	}
	return got, err
}

func webhook(t *testing.T, h http.HandlerFunc) string {
	t.Helper()
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	return s.URL
}

func payload(t *testing.T, c httpCall) string {
	t.Helper()
	raw, err := json.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}

// The receiver can tell who calls, when, and for which effect, by what is documented alone.
func TestHTTPRequest(t *testing.T) {
	var got *http.Request
	var body []byte
	url := webhook(t, func(w http.ResponseWriter, r *http.Request) {
		got = r
		body, _ = io.ReadAll(r.Body)
		_, _ = io.WriteString(w, "thanks\xff")
	})
	k := newHTTPKind("s3cret", true)
	r, err := call(t.Context(), k, payload(t, httpCall{
		URL: url + "/x?y=1", Method: "PUT", Body: `{"amount":1}`,
		Headers: map[string]string{"X-Own": "v", "idempotency-key": "mine", "ERRAND-SIGNATURE": "forged", "errand-task": "forged"},
	}))
	if err != nil || r.Status != 200 || r.Body != "thanks?" || r.Truncated {
		t.Fatalf("%+v, %v", r, err)
	}
	for name, want := range map[string]string{
		"Idempotency-Key": "local.1", "Errand-Task": "local.7", "Errand-Attempt": "3", "X-Own": "v",
		"Traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
	} {
		if got.Header.Get(name) != want || len(got.Header.Values(name)) != 1 {
			t.Errorf("%s: %q, want %q once", name, got.Header.Values(name), want)
		}
	}
	if got.Method != http.MethodPut || got.URL.String() != "/x?y=1" || string(body) != `{"amount":1}` {
		t.Errorf("%s %s %s", got.Method, got.URL, body)
	}
	// An independent reading of the signature.
	at, signature, _ := strings.Cut(strings.TrimPrefix(got.Header.Get("Errand-Signature"), "t="), ",v1=")
	mac := hmac.New(sha256.New, []byte("s3cret"))
	mac.Write([]byte(at + "." + got.Header.Get("Idempotency-Key") + "."))
	mac.Write(body)
	sent, err := hex.DecodeString(signature)
	if err != nil || !hmac.Equal(sent, mac.Sum(nil)) {
		t.Errorf("the signature %q does not fit", got.Header.Get("Errand-Signature"))
	}
	if seconds, err := strconv.ParseInt(at, 10, 64); err != nil || time.Since(time.Unix(seconds, 0)).Abs() > time.Minute {
		t.Errorf("signed at %q", at)
	}
	if _, err := call(t.Context(), newHTTPKind("", true), payload(t, httpCall{URL: url, Headers: map[string]string{"Errand-Signature": "forged"}})); err != nil {
		t.Fatal(err)
	}
	if got.Header.Get("Errand-Signature") != "" || got.Method != http.MethodPost {
		t.Errorf("without a secret: signed %q, %s", got.Header.Get("Errand-Signature"), got.Method)
	}
}

// failureWords describes what a worker would report of an error.
func failureWords(err error) string {
	f := errand.FailureOf(err)
	words := []string{f.Reason}
	if f.NonRetryable {
		words = append(words, "for good")
	}
	if f.RetryAfter > 0 {
		words = append(words, "after "+f.RetryAfter.Round(time.Minute).String())
	}
	return strings.Join(words, " ")
}

func TestHTTPAnswers(t *testing.T) {
	tests := map[string]struct {
		status int
		after  string // Retry-After
		want   string // empty for a success
	}{
		"ok":                   {200, "", ""},
		"created":              {201, "", ""},
		"no content":           {204, "", ""},
		"found elsewhere":      {302, "", "http_302 for good"},
		"bad request":          {400, "60", "http_400 for good"},
		"gone":                 {410, "", "http_410 for good"},
		"request timeout":      {408, "", "http_408"},
		"too early":            {425, "", "http_425"},
		"too many":             {429, "120", "http_429 after 2m0s"},
		"too many, for ever":   {429, "99999999999999999999", "http_429"},
		"too many, for long":   {429, "99999999", "http_429 after 24h0m0s"},
		"too many, backwards":  {429, "-5", "http_429"},
		"too many, until":      {429, time.Now().Add(time.Hour).UTC().Format(http.TimeFormat), "http_429 after 1h0m0s"},
		"too many, until then": {429, time.Now().Add(-time.Hour).UTC().Format(http.TimeFormat), "http_429"},
		"broken":               {500, "", "http_500"},
		"unavailable":          {503, "180", "http_503 after 3m0s"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			calls := 0
			url := webhook(t, func(w http.ResponseWriter, r *http.Request) {
				calls++
				w.Header().Set("Location", "/elsewhere")
				if tt.after != "" {
					w.Header().Set("Retry-After", tt.after)
				}
				w.WriteHeader(tt.status)
				if tt.status != http.StatusNoContent {
					_, _ = io.WriteString(w, "for people")
				}
			})
			r, err := call(t.Context(), newHTTPKind("", true), payload(t, httpCall{URL: url}))
			switch {
			case calls != 1:
				t.Errorf("%d calls: redirects are not followed, and the scheduler tries again, not we", calls)
			case tt.want == "" && (err != nil || r.Status != tt.status):
				t.Errorf("%+v, %v", r, err)
			case tt.want != "" && (err == nil || failureWords(err) != tt.want || !strings.Contains(err.Error(), "for people")):
				t.Errorf("%v: %s, want %s", err, failureWords(err), tt.want)
			}
		})
	}
}

// A server that says that it is asked too much, and until when, presses the task's limit, if that is the one it can mean.
func TestHTTPBackpressure(t *testing.T) {
	api := errand.Limit{Name: "api", Key: "eu"}
	for name, tt := range map[string]struct {
		status     int
		retryAfter string
		limits     []errand.Limit
		want       string
	}{
		"too many requests":      {429, "120", []errand.Limit{api}, "api after 2m0s"},
		"unavailable":            {503, "120", []errand.Limit{api}, "api after 2m0s"},
		"for ever":               {503, "99999999999999999999", []errand.Limit{api}, ""},
		"for long":               {503, "9999999999", []errand.Limit{api}, "api after 24h0m0s"},
		"another error":          {500, "120", []errand.Limit{api}, ""},
		"it does not say when":   {429, "", []errand.Limit{api}, ""},
		"it says something else": {429, "-5", []errand.Limit{api}, ""},
		"no limit":               {429, "120", nil, ""},
		"two limits":             {429, "120", []errand.Limit{api, {Name: "web"}}, ""},
	} {
		url := webhook(t, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Retry-After", tt.retryAfter)
			w.WriteHeader(tt.status)
		})
		_, err := errand.Try(t.Context(), newHTTPKind("", true).handle, &errand.Attempt{
			TaskID: "local.7", Number: 3, Payload: []byte(payload(t, httpCall{URL: url})), EffectKey: "local.1", Limits: tt.limits,
		})
		f, got := errand.FailureOf(err), ""
		if f.Backpressure {
			got = f.Limit + " after " + f.RetryAfter.String()
		}
		if err == nil || got != tt.want {
			t.Errorf("%s: %v, backpressure of %q; want %q", name, err, got, tt.want)
		}
	}
}

func TestHTTPPayloads(t *testing.T) {
	for name, text := range map[string]string{
		"empty": "", "not JSON": "{", "an unknown field": `{"url":"http://h","urls":[]}`, "something behind": `{"url":"http://h"} {}`,
		"no URL": `{}`, "another scheme": `{"url":"file:///etc/passwd"}`, "no host": `{"url":"http:///x"}`, "not a URL": `{"url":"http://h:x"}`,
		"a bad method": `{"url":"http://h","method":"A B"}`, "a list": `[]`, "headers of another type": `{"url":"http://h","headers":[1]}`,
	} {
		if _, err := call(t.Context(), newHTTPKind("", true), text); err == nil || failureWords(err) != "bad_payload for good" {
			t.Errorf("%s: %v", name, err)
		}
	}
	for name, headers := range map[string]map[string]string{
		"a header with a line break": {"A": "b\r\nC: d"}, "a header name with a space": {"A B": "c"},
	} {
		if _, err := call(t.Context(), newHTTPKind("", true), payload(t, httpCall{URL: "http://127.0.0.1:1", Headers: headers})); err == nil || failureWords(err) != "bad_payload for good" {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A success stays one, however its answer looks.
func TestHTTPLargeAnswers(t *testing.T) {
	for name, tt := range map[string]struct {
		body      string
		truncated bool
	}{
		"at the limit":   {strings.Repeat("x", httpBodyMax), false},
		"over the limit": {strings.Repeat("x", httpBodyMax+1), true},
		"far over":       {strings.Repeat("x", 20<<20), true},
		"all escapes":    {strings.Repeat("\x01", httpBodyMax), true},
		"all quotes":     {strings.Repeat(`"`, httpBodyMax), true},
		"a page":         {strings.Repeat("<p>", httpBodyMax/3), false},
		"not UTF-8":      {strings.Repeat("\xff", httpBodyMax), false},
	} {
		url := webhook(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, tt.body) })
		r, err := call(t.Context(), newHTTPKind("", true), payload(t, httpCall{URL: url}))
		if err != nil || r.Truncated != tt.truncated || r.Body == "" || len(r.Body) > httpBodyMax {
			t.Errorf("%s: %d bytes, truncated %v, %v", name, len(r.Body), r.Truncated, err)
		}
	}
}

// A tenant must not reach what only the worker's host can: not by an address, not by a name, not by an address in disguise.
func TestHTTPPrivateAddresses(t *testing.T) {
	called := false
	url := webhook(t, func(http.ResponseWriter, *http.Request) { called = true })
	_, port, err := net.SplitHostPort(strings.TrimPrefix(url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	for _, host := range []string{
		"127.0.0.1", "localhost", "127.9.9.9", "[::1]", "[::ffff:127.0.0.1]", "0.0.0.0", "[::]", "2130706433", "0x7f.1", "127.1",
	} {
		_, err := call(t.Context(), newHTTPKind("", false), payload(t, httpCall{URL: "http://" + host + ":" + port}))
		if err == nil || called {
			t.Fatalf("%s was called: %v", host, err)
		}
		if resolves := !strings.Contains(err.Error(), "no such host") && failureWords(err) != "http_unreachable"; resolves && failureWords(err) != "address_refused for good" {
			t.Errorf("%s: %v", host, err)
		}
	}
	if _, err := call(t.Context(), newHTTPKind("", false), payload(t, httpCall{URL: "http://localhost:" + port})); failureWords(err) != "address_refused for good" {
		t.Errorf("localhost: %v", err)
	}
	if _, err := call(t.Context(), newHTTPKind("", true), payload(t, httpCall{URL: "http://localhost:" + port})); err != nil || !called {
		t.Errorf("it is allowed, and not called: %v", err)
	}
	for address, want := range map[string]bool{
		"8.8.8.8": true, "2606:4700::1111": true, "127.0.0.1": false, "10.1.2.3": false, "172.16.0.1": false, "192.168.1.1": false,
		"169.254.169.254": false, "fe80::1": false, "fe80::1%eth0": false, "fd00::1": false, "fc00::1": false, "::": false, "::1": false, "0.0.0.0": false,
		"0.1.2.3": false, "100.64.0.1": false, "100.100.100.200": false, "192.0.0.192": false, "198.18.0.1": false, "224.0.0.1": false, "ff02::1": false,
		"240.0.0.1": false, "255.255.255.255": false, "::ffff:10.0.0.1": false, "::ffff:8.8.8.8": true, "::10.0.0.1": false,
		"64:ff9b::a00:1": false, "64:ff9b:1::1": false, "2002:a00:1::1": false, "2001:0:1::1": false, "fec0::1": false,
	} {
		if got := public(netip.MustParseAddr(address)); got != want {
			t.Errorf("%s is public: %v, want %v", address, got, want)
		}
	}
}

// A call ends with the attempt, and says why.
func TestHTTPEndedContexts(t *testing.T) {
	arrived := make(chan struct{}, 2)
	release := make(chan struct{})
	url := webhook(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/body" {
			w.WriteHeader(http.StatusOK)
			_ = http.NewResponseController(w).Flush()
		}
		arrived <- struct{}{}
		<-release
	})
	defer close(release)
	for _, path := range []string{"/header", "/body"} {
		ctx, cancel := context.WithCancelCause(t.Context())
		go func() {
			<-arrived
			cancel(errand.ErrCanceled)
		}()
		_, err := call(ctx, newHTTPKind("", true), payload(t, httpCall{URL: url + path}))
		if !errors.Is(err, context.Canceled) && !errors.Is(err, errand.ErrCanceled) {
			t.Errorf("%s: %v, want one that tells of the cancel", path, err)
		}
	}
	ctx, cancel := context.WithTimeoutCause(t.Context(), 50*time.Millisecond, errand.ErrTimedOut)
	defer cancel()
	_, err := call(ctx, newHTTPKind("", true), payload(t, httpCall{URL: url}))
	if !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, errand.ErrTimedOut) {
		t.Errorf("%v, want one that tells of the timeout", err)
	}
	if _, err := call(t.Context(), newHTTPKind("", true), payload(t, httpCall{URL: "http://127.0.0.1:1"})); failureWords(err) != "http_unreachable" {
		t.Errorf("nobody there: %v", err)
	}
}
