package main

import (
	"crypto/x509"
	"fmt"
	"net/url"
	"os"
)

// certPool reads certificates from a PEM file.
func certPool(file string) (*x509.CertPool, error) {
	raw, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(raw) {
		return nil, fmt.Errorf("%s: has no certificate in PEM form", file)
	}
	return pool, nil
}

// redactURL hides a password.
func redactURL(text string) string {
	u, err := url.Parse(text)
	if err != nil {
		return "(not a URL)"
	}
	return u.Redacted()
}
