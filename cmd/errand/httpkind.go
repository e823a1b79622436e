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
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/errandhq/errand"
)

// Bounds of kind http.
const (
	httpBodyMax      = 200 << 10
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
	Status int    `json:"status"`
	Body   string `json:"body"`
}

// httpKind calls URLs. The effect key goes along as the idempotency key: the same for every attempt and every redrive.
type httpKind struct {
	client *http.Client
	secret []byte
}

var errPrivate = errors.New("the address is loopback, private or link-local: this worker does not call it")

func newHTTPKind(secret string, allowPrivate bool) *httpKind {
	dialer := &net.Dialer{Timeout: httpDialLimit}
	if !allowPrivate {
		// Checked on the address that is dialed, after names are resolved: a tenant must not reach what only this host can.
		dialer.Control = func(_, address string, _ syscall.RawConn) error {
			at, err := netip.ParseAddrPort(address)
			if err != nil {
				return err
			}
			if ip := at.Addr().Unmap(); !ip.IsGlobalUnicast() || ip.IsPrivate() {
				return errPrivate
			}
			return nil
		}
	}
	return &httpKind{
		client: &http.Client{
			Transport:     &http.Transport{DialContext: dialer.DialContext, ForceAttemptHTTP2: true, IdleConnTimeout: time.Minute},
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
	body, err := io.ReadAll(io.LimitReader(resp.Body, httpBodyMax))
	if err != nil {
		return errand.Result{}, errand.WithReason(err, "http_unreachable")
	}
	if err := statusError(resp, body); err != nil {
		return errand.Result{}, err
	}
	data, err := json.Marshal(httpResult{Status: resp.StatusCode, Body: strings.ToValidUTF8(string(body), "?")})
	return errand.Result{Data: data, ContentType: "application/json"}, err
}

func (k *httpKind) request(ctx context.Context, a *errand.Attempt) (*http.Request, error) {
	var call httpCall
	decoder := json.NewDecoder(bytes.NewReader(a.Payload))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&call); err != nil {
		return nil, fmt.Errorf("the payload is not {url, method, headers, body}: %w", err)
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
		req.Header.Set(name, value)
	}
	req.Header.Set("Idempotency-Key", a.EffectKey)
	req.Header.Set("Errand-Task", a.TaskID)
	req.Header.Set("Errand-Attempt", strconv.FormatInt(a.Number, 10))
	if a.TraceParent != "" {
		req.Header.Set("Traceparent", a.TraceParent)
	}
	if len(k.secret) > 0 {
		req.Header.Set(httpSignatureKey, sign(k.secret, time.Now(), a.EffectKey, call.Body))
	}
	return req, nil
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

func retryAfter(resp *http.Response, err error) error {
	seconds, parseErr := strconv.ParseInt(resp.Header.Get("Retry-After"), 10, 32)
	if parseErr != nil || seconds <= 0 {
		return err
	}
	return errand.RetryAfter(err, min(time.Duration(seconds)*time.Second, httpRetryMax))
}
