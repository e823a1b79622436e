package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/goccy/go-yaml"

	"github.com/errandhq/errand/internal/store"
	"github.com/errandhq/errand/regions"
	"github.com/errandhq/errand/scheduler"
)

// topologyBytesMax bounds a topology's file.
const topologyBytesMax = 1 << 20

// readTopology reads the file that names all regions. A key that it does not know is a mistake.
func readTopology(path string) (*regions.Topology, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = file.Close() }() // it was only read
	raw, err := io.ReadAll(io.LimitReader(file, topologyBytesMax+1))
	if err != nil {
		return nil, err
	}
	return parseTopology(raw)
}

func parseTopology(raw []byte) (*regions.Topology, error) {
	if len(raw) > topologyBytesMax {
		return nil, errors.New("is larger than 1 MiB")
	}
	var any any // into a struct the YAML library panics on some bad files
	if err := yaml.NewDecoder(bytes.NewReader(raw)).Decode(&any); err != nil {
		return nil, err
	}
	text, err := json.Marshal(any)
	if err != nil {
		return nil, err
	}
	t, err := regions.ParseTopology(text)
	return &t, err
}

// places is the regions that this instance knows when it starts.
type places struct {
	names    []string // by number
	topology *regions.Topology
	profile  regions.Profile
}

// places reads the topology and has the store give every region its number.
func (c *serveCmd) places(ctx context.Context, st *store.Store) (*places, error) {
	profile, err := c.profile()
	if err != nil {
		return nil, err
	}
	one := regions.Single(c.Region)
	at := &places{topology: &one, profile: profile}
	if c.Topology != "" {
		if at.topology, err = readTopology(c.Topology); err != nil {
			return nil, fmt.Errorf("--topology %s: %w", c.Topology, err)
		}
		if !at.topology.Has(c.Region) {
			return nil, fmt.Errorf("--topology %s: does not name --region %s", c.Topology, c.Region)
		}
		if err := profile.ValidateFor(at.topology); err != nil {
			return nil, err
		}
	}
	var names []string
	for _, r := range at.topology.Regions {
		names = append(names, r.Name)
	}
	all, err := st.AddRegions(ctx, names)
	if err != nil {
		return nil, err
	}
	at.names = namesByNumber(all)
	return at, nil
}

func namesByNumber(all []scheduler.RegionSettings) []string {
	var names []string
	for _, r := range all {
		for len(names) <= int(r.Number) {
			names = append(names, "")
		}
		names[r.Number] = r.Name
	}
	return names
}

// times are the times in force.
func (c *serveCmd) times() scheduler.Timing {
	p, _ := c.profile() // checked by Validate
	return c.Timing.timing(&p)
}
