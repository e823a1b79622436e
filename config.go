package errand

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"
)

// Config says where the schedulers are and who calls.
type Config struct {
	// URLs are schedulers, nearest first, for instance "http://localhost:7070". One that does not answer is passed over for
	// the next. At least one.
	URLs []string
	// Key is the API key: a tenant's to submit and to work on its tasks, a pool key to work for many.
	Key string
	// TLS is used for https URLs. Default the system's roots.
	TLS *tls.Config
	// HTTPClient replaces the SDK's own, for tests. It must speak HTTP/2, for http URLs without TLS.
	HTTPClient *http.Client
}

// connectLimit is how long a connection may take to come about before the next scheduler is tried.
const connectLimit = 5 * time.Second

// ErrConfig means that a configuration cannot work; the text says which field and why.
var ErrConfig = errors.New("errand: configuration")

func (c *Config) check() error {
	if len(c.URLs) == 0 {
		return fmt.Errorf("%w: URLs: name at least one scheduler", ErrConfig)
	}
	for _, text := range c.URLs {
		u, err := url.Parse(text)
		if err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" {
			return fmt.Errorf("%w: URLs: %q is not like http://HOST:PORT", ErrConfig, text)
		}
	}
	if c.Key == "" {
		return fmt.Errorf("%w: Key: an API key is needed", ErrConfig)
	}
	if strings.ContainsAny(c.Key, "\r\n\x00") {
		return fmt.Errorf("%w: Key: contains characters that no key has", ErrConfig)
	}
	return nil
}

func (c *Config) client() *http.Client {
	if c.HTTPClient != nil {
		return c.HTTPClient
	}
	protocols := new(http.Protocols)
	protocols.SetHTTP2(true)
	protocols.SetUnencryptedHTTP2(true)
	dialer := &net.Dialer{Timeout: connectLimit}
	return &http.Client{Transport: &http.Transport{
		Protocols:           protocols,
		DialContext:         dialer.DialContext,
		TLSClientConfig:     c.TLS,
		TLSHandshakeTimeout: connectLimit,
		HTTP2: &http.HTTP2Config{
			SendPingTimeout: 5 * time.Second, // a connection without a word is tested, and given up when the test fails
			PingTimeout:     3 * time.Second,
		},
		IdleConnTimeout: time.Minute,
	}}
}
