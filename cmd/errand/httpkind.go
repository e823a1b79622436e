package main

import (
	"bytes"
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
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/errandhq/errand"
)

// Bounds of kind http.
const (
	httpBodyMax      = 200 << 10 // of an answer; what is longer is cut
	httpResultMax    = 256 << 10 // of the result, as for every kind
	httpRetryMax     = 24 * time.Hour
	httpDialLimit    = 10 * time.Second
	httpSignatureKey = "Errand-Signature"
)

// httpCall is the payload of kind http.
type httpCall struct {
	URL     string            `json:"url"`
	Method  string            `json:"method"` // default POST
	Headers map[string]string `json:"headers"`
	Body    string            `json:"body"`
}

// httpResult is what a call returned.
type httpResult struct {
	Status    int    `json:"status"`
	Body      string `json:"body"` // bytes that are not UTF-8 are shown as ?
	Truncated bool   `json:"truncated,omitempty"`
}

// httpKind calls URLs. The effect key goes along as the idempotency key: the same for every attempt and every redrive.
type httpKind struct {
	client *http.Client
	secret []byte
}

var errPrivate = errors.New("the address is not a public one: this worker does not call it")

// notPublic are the address ranges that look like public ones and are not: carriers' and providers' own networks, those for
// measuring, reserved ones, and those of IPv6 in which an IPv4 address of any kind may be hidden.
var notPublic = []netip.Prefix{
	netip.MustParsePrefix("0.0.0.0/8"), netip.MustParsePrefix("100.64.0.0/10"), netip.MustParsePrefix("192.0.0.0/24"),
	netip.MustParsePrefix("198.18.0.0/15"), netip.MustParsePrefix("240.0.0.0/4"), netip.MustParsePrefix("::/96"),
	netip.MustParsePrefix("64:ff9b::/96"), netip.MustParsePrefix("64:ff9b:1::/48"), netip.MustParsePrefix("2001::/32"),
	netip.MustParsePrefix("2002::/16"), netip.MustParsePrefix("fec0::/10"),
}

// public tells whether an address may be called for a tenant.
func public(ip netip.Addr) bool {
	ip = ip.Unmap()
	return ip.IsGlobalUnicast() && !ip.IsPrivate() &&
		!slices.ContainsFunc(notPublic, func(p netip.Prefix) bool { return p.Contains(ip.WithZone("")) })
}

func newHTTPKind(secret string, allowPrivate bool) *httpKind {
	dialer := &net.Dialer{Timeout: httpDialLimit}
	if !allowPrivate {
		// Checked on the address that is dialed, after names are resolved: a tenant must not reach what only this host can.
		dialer.Control = func(_, address string, _ syscall.RawConn) error {
			at, err := netip.ParseAddrPort(address)
			if err != nil {
				return err
			}
			if !public(at.Addr()) {
				return errPrivate
			}
			return nil
		}
	}
	return &httpKind{
		client: &http.Client{
			Transport: &http.Transport{
				DialContext: dialer.DialContext, ForceAttemptHTTP2: true, TLSHandshakeTimeout: httpDialLimit, IdleConnTimeout: time.Minute,
			},
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
		secret: []byte(secret),
	}
}

func (k *httpKind) handle(ctx context.Context, a *errand.Attempt) (errand.Result, error) {
	req, err := k.request(ctx, a)
	if err != nil {
		return errand.Result{}, errand.NonRetryable(errand.WithReason(err, "bad_payload"))
	}
	resp, err := k.client.Do(req)
	if errors.Is(err, errPrivate) {
		return errand.Result{}, errand.NonRetryable(errand.WithReason(err, "address_refused"))
	}
	if err != nil {
		return errand.Result{}, errand.WithReason(err, "http_unreachable")
	}
	defer func() { _ = resp.Body.Close() }() // it was read
	body, err := io.ReadAll(io.LimitReader(resp.Body, httpBodyMax+1))
	if err != nil {
		return errand.Result{}, errand.WithReason(err, "http_unreachable")
	}
	if err := statusError(resp, body); err != nil {
		return errand.Result{}, pressure(a, resp, err)
	}
	data, err := encodeResult(resp.StatusCode, body)
	return errand.Result{Data: data, ContentType: "application/json"}, err
}

// encodeResult cuts the body until the result fits: a call that has succeeded must not fail for the length of its answer.
func encodeResult(status int, body []byte) ([]byte, error) {
	r := httpResult{Status: status, Truncated: len(body) > httpBodyMax}
	body = body[:min(len(body), httpBodyMax)]
	for {
		r.Body = strings.ToValidUTF8(string(body), "?")
		var out bytes.Buffer
		e := json.NewEncoder(&out)
		e.SetEscapeHTML(false)
		if err := e.Encode(r); err != nil {
			return nil, err
		}
		if out.Len() <= httpResultMax {
			return bytes.TrimSpace(out.Bytes()), nil
		}
		body, r.Truncated = body[:len(body)/2], true // escapes can make it six times as long
	}
}

func (k *httpKind) request(ctx context.Context, a *errand.Attempt) (*http.Request, error) {
	var call httpCall
	decoder := json.NewDecoder(bytes.NewReader(a.Payload))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&call); err != nil {
		return nil, fmt.Errorf("the payload is not {url, method, headers, body}: %w", err)
	}
	if decoder.More() {
		return nil, errors.New("the payload has something behind {url, method, headers, body}")
	}
	u, err := url.Parse(call.URL)
	if err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" {
		return nil, fmt.Errorf("url: %q is not an http or https URL", call.URL)
	}
	if call.Method == "" {
		call.Method = http.MethodPost
	}
	req, err := http.NewRequestWithContext(ctx, call.Method, call.URL, strings.NewReader(call.Body))
	if err != nil {
		return nil, err
	}
	for name, value := range call.Headers {
		if !validHeader(name, value) {
			return nil, fmt.Errorf("headers: %q: %q cannot be sent", name, value)
		}
		req.Header.Set(name, value)
	}
	req.Header.Set("Idempotency-Key", a.EffectKey)
	req.Header.Set("Errand-Task", a.TaskID)
	req.Header.Set("Errand-Attempt", strconv.FormatInt(a.Number, 10))
	if a.TraceParent != "" {
		req.Header.Set("Traceparent", a.TraceParent)
	}
	req.Header.Del(httpSignatureKey) // nobody else signs
	if len(k.secret) > 0 {
		req.Header.Set(httpSignatureKey, sign(k.secret, time.Now(), a.EffectKey, call.Body))
	}
	return req, nil
}

// validHeader tells whether a header can be sent: the transport would refuse it only when it is too late to say whose fault it is.
func validHeader(name, value string) bool {
	return name != "" &&
		!strings.ContainsFunc(name, func(r rune) bool { return r <= ' ' || r >= 0x7f || strings.ContainsRune(`"(),/:;<=>?@[\]{}`, r) }) &&
		!strings.ContainsFunc(value, func(r rune) bool { return (r < ' ' && r != '\t') || r == 0x7f })
}

// sign covers the time, the idempotency key and the body: t=SECONDS,v1=HEX of HMAC-SHA256 over "t.key.body".
func sign(secret []byte, at time.Time, key, body string) string {
	t := strconv.FormatInt(at.Unix(), 10)
	mac := hmac.New(sha256.New, secret)
	_, _ = mac.Write([]byte(t + "." + key + "." + body)) // a hash never fails
	return "t=" + t + ",v1=" + hex.EncodeToString(mac.Sum(nil))
}

// statusError turns an answer that is not a success into an error: the caller's faults are final, the server's are tried again.
func statusError(resp *http.Response, body []byte) error {
	if resp.StatusCode >= 200 && resp.StatusCode < 300 {
		return nil
	}
	err := errand.WithReason(fmt.Errorf("%s: %s", resp.Status, printable(body)), "http_"+strconv.Itoa(resp.StatusCode))
	switch resp.StatusCode {
	case http.StatusRequestTimeout, http.StatusTooEarly, http.StatusTooManyRequests:
		return retryAfter(resp, err)
	}
	if resp.StatusCode < 500 {
		return errand.NonRetryable(err)
	}
	return retryAfter(resp, err)
}

// pressure turns the word of a server that it is asked too much, and when to ask again, into backpressure of the task's limit. A task with
// several limits does not say which of them guards the server, one without any has nothing to slow: for those it stays an error.
func pressure(a *errand.Attempt, resp *http.Response, err error) error {
	busy := resp.StatusCode == http.StatusTooManyRequests || resp.StatusCode == http.StatusServiceUnavailable
	if pause := pauseOf(resp); busy && pause > 0 && len(a.Limits) == 1 {
		return errand.Backpressure(a.Limits[0].Name, pause)
	}
	return err
}

func retryAfter(resp *http.Response, err error) error {
	if pause := pauseOf(resp); pause > 0 {
		return errand.RetryAfter(err, pause)
	}
	return err
}

// pauseOf is the pause that a server asks for, in seconds or as a date; 0 for none.
func pauseOf(resp *http.Response) time.Duration {
	value := resp.Header.Get("Retry-After")
	pause := time.Duration(0)
	if seconds, parseErr := strconv.ParseUint(value, 10, 63); parseErr == nil {
		pause = time.Duration(min(seconds, uint64(httpRetryMax/time.Second))) * time.Second
	} else if at, parseErr := http.ParseTime(value); parseErr == nil {
		pause = min(time.Until(at), httpRetryMax)
	}
	return max(pause, 0)
}
