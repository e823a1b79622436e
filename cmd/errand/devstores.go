//go:build unix

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sync/errgroup"

	"github.com/errandhq/errand/internal/devcluster"
)

// devStores is the store that all regions of errand dev share.
type devStores interface {
	dsn() string                                           // without a line, for what is prepared
	way(p *devPlace) (ends devcluster.LineEnds, err error) // where a region's line to it begins and ends
	over(addr string) string                               // the URL by way of that line
	keep(ctx context.Context, d *dev, group *errgroup.Group)
	stop()
}

func (d *dev) startStores(ctx context.Context) (devStores, error) {
	if d.Store == "cockroach" {
		return d.startCockroach(ctx)
	}
	p, err := d.startPostgres(ctx)
	if err != nil {
		return nil, err
	}
	return &postgresStore{p, d.folder}, nil
}

// postgresStore is one PostgreSQL; sockets in folders of this user lead to it, so that nobody else reaches it.
type postgresStore struct {
	*devcluster.Postgres
	folder *devFolder
}

func (s *postgresStore) dsn() string { return s.DSN(devDatabase) }

func (s *postgresStore) way(p *devPlace) (devcluster.LineEnds, error) {
	dir := s.folder.sockets(fmt.Sprintf("line%d", p.number))
	return devcluster.LineEnds{
		Network: "unix", Target: devcluster.PostgresSocket(s.folder.sockets("postgres")), Socket: devcluster.PostgresSocket(dir),
	}, os.MkdirAll(dir, 0o700)
}

func (s *postgresStore) over(addr string) string {
	return devcluster.DSNAt(filepath.Dir(addr), devDatabase)
}

func (s *postgresStore) keep(ctx context.Context, d *dev, group *errgroup.Group) {
	group.Go(func() error { return d.keep(ctx, "PostgreSQL", s.Postgres, nil) })
}

func (s *postgresStore) stop() { s.Stop() }

// cockroachStore is a CockroachDB with a server in every region, which each reaches over its line.
type cockroachStore struct{ *devcluster.Cockroach }

func (d *dev) startCockroach(ctx context.Context) (devStores, error) {
	c, err := devcluster.NewCockroach(devcluster.CockroachOptions{Dir: d.folder.in("cockroach"), Regions: d.names()})
	if errors.Is(err, devcluster.ErrNoCockroach) {
		return nil, fmt.Errorf("%w: --store: %w", errUsage, err)
	}
	if err != nil {
		return nil, err
	}
	if err := c.Start(ctx); err != nil {
		return nil, err
	}
	if err := c.CreateDatabase(ctx, devDatabase); err != nil {
		c.Stop()
		return nil, err
	}
	for _, s := range c.Servers() {
		d.started("CockroachDB", s, "region "+s.Region+", "+s.DSN(devDatabase))
	}
	return &cockroachStore{c}, nil
}

func (s *cockroachStore) dsn() string { return s.Servers()[0].DSN(devDatabase) }

func (s *cockroachStore) way(p *devPlace) (devcluster.LineEnds, error) {
	return devcluster.LineEnds{Network: "tcp", Target: s.Servers()[p.number-1].Addr}, nil
}

func (s *cockroachStore) over(addr string) string { return devcluster.CockroachDSN(addr, devDatabase) }

func (s *cockroachStore) keep(ctx context.Context, d *dev, group *errgroup.Group) {
	for _, one := range s.Servers() {
		group.Go(func() error { return d.keep(ctx, "CockroachDB of "+one.Region, one, nil) })
	}
}

func (s *cockroachStore) stop() { s.Stop() }
