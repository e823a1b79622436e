package main

import "net/url"

// redactURL hides a password.
func redactURL(text string) string {
	u, err := url.Parse(text)
	if err != nil {
		return "(not a URL)"
	}
	return u.Redacted()
}
