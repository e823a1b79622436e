package store

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/errandhq/errand/scheduler"
)

// listRegions lists all regions. There are at most scheduler.RegionsMax.
const listRegions = `SELECT name, number, draining, changed_at FROM regions ORDER BY number LIMIT 16`

// addRegion gives a region the smallest number that is free.
// Guard: the region is not there.
const addRegion = `
INSERT INTO regions (name, number)
SELECT $1::text, n.number FROM (
    SELECT u.number FROM unnest($2::smallint[]) AS u (number)
    WHERE NOT EXISTS (SELECT 1 FROM regions r WHERE r.number = u.number) ORDER BY u.number LIMIT 1
) n
ON CONFLICT (name) DO NOTHING`

// drainRegion starts or ends a region's drain.
const drainRegion = `
UPDATE regions r SET draining = $2::boolean, changed_at = CASE WHEN r.draining = $2::boolean THEN r.changed_at ELSE now() END
WHERE r.name = $1::text
RETURNING r.name, r.number, r.draining, r.changed_at`

// addRegionTries bounds how often a number is tried for that somebody else takes at the same time.
const addRegionTries = 5

// AddRegions makes sure that the named regions have numbers, and returns all regions that there are, by number.
func (s *Store) AddRegions(ctx context.Context, names []string) ([]scheduler.RegionSettings, error) {
	numbers := make([]int16, scheduler.RegionsMax)
	for i := range numbers {
		numbers[i] = int16(i)
	}
	for _, name := range names {
		for tries := 1; ; tries++ {
			err := s.exec(ctx, "add region", addRegion, name, numbers)
			if err == nil {
				break
			}
			if !errors.Is(err, scheduler.ErrRefused) || tries == addRegionTries { // refused: another name has just got the number
				return nil, err
			}
		}
	}
	all, err := s.Regions(ctx)
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		if !contains(all, name) {
			return nil, fmt.Errorf("region %s: there are %d regions already, the most that a deployment may have", name, scheduler.RegionsMax)
		}
	}
	return all, nil
}

func contains(all []scheduler.RegionSettings, name string) bool {
	for i := range all {
		if all[i].Name == name {
			return true
		}
	}
	return false
}

// Regions lists the deployment's regions by number.
func (s *Store) Regions(ctx context.Context) ([]scheduler.RegionSettings, error) {
	return rows(ctx, s.general, "list regions", listRegions, scanRegion)
}

// DrainRegion starts or ends a region's drain, and returns it as it stands then, or ErrNotFound.
func (s *Store) DrainRegion(ctx context.Context, name string, draining bool) (scheduler.RegionSettings, error) {
	got, err := rows(ctx, s.general, "drain region", drainRegion, scanRegion, name, draining)
	switch {
	case err != nil:
		return scheduler.RegionSettings{}, err
	case len(got) == 0:
		return scheduler.RegionSettings{}, ErrNotFound
	}
	return got[0], nil
}

func scanRegion(row pgx.CollectableRow) (scheduler.RegionSettings, error) {
	var r scheduler.RegionSettings
	var number int16
	err := row.Scan(&r.Name, &number, &r.Draining, &r.ChangedAt)
	r.Number, r.ChangedAt = uint8(number), r.ChangedAt.UTC()
	return r, err
}
