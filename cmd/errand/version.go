package main

import (
	"runtime"
	"runtime/debug"
)

type versionCmd struct {
	outputSettings
}

type versionView struct {
	Version  string `json:"version"`
	Revision string `json:"revision"` // of the source; empty when it is not known
	Go       string `json:"go"`
	Platform string `json:"platform"`
}

// Run prints the version.
func (c *versionCmd) Run() error {
	v := versionView{Version: version, Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH}
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, s := range info.Settings {
			if s.Key == "vcs.revision" {
				v.Revision = s.Value
			}
		}
	}
	line := "errand " + v.Version
	if v.Revision != "" {
		line += " (" + v.Revision[:min(len(v.Revision), 12)] + ")"
	}
	return c.say(v, "%s %s %s", line, v.Go, v.Platform)
}
