package main

import (
	"context"
	"strconv"
	"strings"
	"time"

	errandv1 "github.com/errandhq/errand/proto/errand/v1"
)

// regionCmd looks at the regions of the deployment.
type regionCmd struct {
	List   regionListCmd   `cmd:"" default:"withargs" help:"List the regions, and who serves them."`
	Drain  regionDrainCmd  `cmd:"" help:"Start nothing new in a region, and let another serve its tasks; what runs may finish."`
	Resume regionResumeCmd `cmd:"" help:"Take a drain back."`
}

type regionListCmd struct {
	clientSettings
	outputSettings
}

// Run lists them.
func (c *regionListCmd) Run(ctx context.Context) error {
	admin, err := c.admin()
	if err != nil {
		return err
	}
	values, rows := []regionView{}, [][]string{}
	for req := (&errandv1.ListRegionsRequest{PageSize: listPageMax}); ; {
		resp, err := admin.ListRegions(ctx, req)
		if err != nil {
			return rpcError(err)
		}
		for _, r := range resp.GetRegions() {
			values, rows = append(values, regionViewOf(r)), append(rows, regionRow(r))
		}
		if req.PageToken = resp.GetNextPageToken(); req.PageToken == "" {
			return c.print(values, regionHeader, rows)
		}
	}
}

type regionDrainCmd struct {
	Name string `arg:"" help:"Which."`
	clientSettings
	outputSettings
}

// Run drains the region.
func (c *regionDrainCmd) Run(ctx context.Context) error {
	admin, err := c.admin()
	if err != nil {
		return err
	}
	resp, err := admin.DrainRegion(ctx, &errandv1.DrainRegionRequest{Name: c.Name})
	return printRegion(&c.outputSettings, c.Name, resp.GetRegion(), err)
}

type regionResumeCmd struct {
	Name string `arg:"" help:"Which."`
	clientSettings
	outputSettings
}

// Run takes a drain back.
func (c *regionResumeCmd) Run(ctx context.Context) error {
	admin, err := c.admin()
	if err != nil {
		return err
	}
	resp, err := admin.ResumeRegion(ctx, &errandv1.ResumeRegionRequest{Name: c.Name})
	return printRegion(&c.outputSettings, c.Name, resp.GetRegion(), err)
}

func printRegion(o *outputSettings, name string, r *errandv1.Region, err error) error {
	if err != nil {
		return about(name, err)
	}
	return o.print(regionViewOf(r), regionHeader, [][]string{regionRow(r)})
}

// regionView is a region as the scheduler that was asked sees it.
type regionView struct {
	Name      string     `json:"name"`
	Verdict   string     `json:"verdict"` // up, suspect, down, draining, drained; empty when not known
	Since     *time.Time `json:"since"`   // null when not known
	Instances int32      `json:"instances"`
	Adopter   string     `json:"adopter"` // empty for itself
}

func regionViewOf(r *errandv1.Region) regionView {
	v := regionView{Name: r.GetName(), Instances: r.GetInstances(), Adopter: r.GetAdopter()}
	if r.GetVerdict() != errandv1.RegionVerdict_REGION_VERDICT_UNSPECIFIED {
		v.Verdict = strings.ToLower(strings.TrimPrefix(r.GetVerdict().String(), "REGION_VERDICT_"))
	}
	if r.GetSince() != nil {
		since := r.GetSince().AsTime()
		v.Since = &since
	}
	return v
}

var regionHeader = []string{"REGION", "VERDICT", "SINCE", "INSTANCES", "SERVED BY"}

func regionRow(r *errandv1.Region) []string {
	v := regionViewOf(r)
	since, servedBy := time.Time{}, v.Name
	if v.Since != nil {
		since = *v.Since
	}
	if v.Adopter != "" {
		servedBy = v.Adopter
	}
	return []string{v.Name, dash(v.Verdict), ago(since), strconv.Itoa(int(v.Instances)), servedBy}
}
