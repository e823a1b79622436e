package api

import (
	"cmp"
	"context"
	"errors"
	"slices"

	"github.com/errandhq/errand/internal/store"
	errandv1 "github.com/errandhq/errand/proto/errand/v1"
	"github.com/errandhq/errand/regions"
	"github.com/errandhq/errand/scheduler"
	"github.com/errandhq/errand/scheduler/engine"
)

// Regions keeps the deployment's regions.
type Regions interface {
	Regions(ctx context.Context) ([]scheduler.RegionSettings, error)
	// DrainRegion returns store.ErrNotFound when there is no such region.
	DrainRegion(ctx context.Context, name string, draining bool) (scheduler.RegionSettings, error)
	Sessions(ctx context.Context, region string) (scheduler.Renewal, error)
	Running(ctx context.Context, q scheduler.RunningQuery) ([]scheduler.Held, error)
}

// ListRegions lists all regions; there are too few for pages.
func (s *adminService) ListRegions(ctx context.Context, _ *errandv1.ListRegionsRequest) (*errandv1.ListRegionsResponse, error) {
	all, err := s.places.Regions(ctx)
	if err != nil {
		return nil, err
	}
	if len(all) == 0 { // a deployment without a topology
		all = []scheduler.RegionSettings{{Name: s.region}}
	}
	resp, known := &errandv1.ListRegionsResponse{}, s.scheduler.Status().Regions
	for i := range all {
		m, err := s.regionMessage(ctx, &all[i], &known)
		if err != nil {
			return nil, err
		}
		resp.Regions = append(resp.Regions, m)
	}
	slices.SortFunc(resp.Regions, func(a, b *errandv1.Region) int { return cmp.Compare(a.GetName(), b.GetName()) })
	return resp, nil
}

func (s *adminService) DrainRegion(ctx context.Context, req *errandv1.DrainRegionRequest) (*errandv1.DrainRegionResponse, error) {
	m, err := s.drain(ctx, req.GetName(), true)
	return &errandv1.DrainRegionResponse{Region: m}, err
}

func (s *adminService) ResumeRegion(ctx context.Context, req *errandv1.ResumeRegionRequest) (*errandv1.ResumeRegionResponse, error) {
	m, err := s.drain(ctx, req.GetName(), false)
	return &errandv1.ResumeRegionResponse{Region: m}, err
}

func (s *adminService) drain(ctx context.Context, name string, draining bool) (*errandv1.Region, error) {
	r, err := s.places.DrainRegion(ctx, name, draining)
	if errors.Is(err, store.ErrNotFound) {
		return nil, outsideOf(errRegionNotFound, name)
	}
	if err != nil {
		return nil, err
	}
	known := s.scheduler.Status().Regions
	return s.regionMessage(ctx, &r, &known)
}

var verdicts = map[regions.Health]errandv1.RegionVerdict{
	regions.Up: errandv1.RegionVerdict_REGION_VERDICT_UP, regions.Suspect: errandv1.RegionVerdict_REGION_VERDICT_SUSPECT,
	regions.Down: errandv1.RegionVerdict_REGION_VERDICT_DOWN, regions.Draining: errandv1.RegionVerdict_REGION_VERDICT_DRAINING,
	regions.Drained: errandv1.RegionVerdict_REGION_VERDICT_DRAINED,
}

// regionMessage shows a region as the store has it and as this instance judges it.
func (s *adminService) regionMessage(ctx context.Context, r *scheduler.RegionSettings, known *engine.Regions) (*errandv1.Region, error) {
	m := &errandv1.Region{Name: r.Name}
	if v, judged := known.Verdicts.Of(r.Name); judged {
		m.Verdict, m.Since = verdicts[v.Health], stamp(v.Since)
	}
	for _, a := range known.Adoptions {
		if a.Region == r.Name {
			m.Adopter = a.Adopter
		}
	}
	listed, err := s.places.Sessions(ctx, r.Name)
	if err != nil {
		return nil, err
	}
	running := false
	for _, one := range listed.Sessions {
		if one.Home != "" {
			continue
		}
		if one.ExpiresAt.After(listed.Now) {
			m.Instances++
		}
		if !r.Draining || running {
			continue
		}
		rows, err := s.places.Running(ctx, scheduler.RunningQuery{Region: r.Name, Session: one.ID, Limit: 1})
		if err != nil {
			return nil, err
		}
		running = len(rows) > 0
	}
	switch {
	case r.Draining && running:
		m.Verdict, m.Since = errandv1.RegionVerdict_REGION_VERDICT_DRAINING, stamp(r.ChangedAt)
	case r.Draining:
		m.Verdict, m.Since = errandv1.RegionVerdict_REGION_VERDICT_DRAINED, stamp(r.ChangedAt)
	case m.Verdict == 0 && r.Name == s.region:
		m.Verdict = errandv1.RegionVerdict_REGION_VERDICT_UP
	}
	return m, nil
}
