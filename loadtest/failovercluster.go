package main

import (
	"context"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/errandhq/errand"
	"github.com/errandhq/errand/internal/devcluster"
	errandv1 "github.com/errandhq/errand/proto/errand/v1"
)

// How far the regions are from each other and from the store.
var failoverLatency = devcluster.Latency{
	Store: map[string]float64{"r1": 2, "r2": 10, "r3": 20},
	Distances: []devcluster.Distance{
		{Between: []string{"r1", "r2"}, MS: 20}, {Between: []string{"r1", "r3"}, MS: 40}, {Between: []string{"r2", "r3"}, MS: 30},
	},
}

// The regions. The tenant's home is the first; the second is the one that things happen to.
var (
	failoverRegions = []string{"r1", "r2", "r3"}
	failoverVictim  = "r2"
)

const (
	failoverSchedulers = 2 // of each region
	failoverWorkers    = 2
)

// deployment is several regions on this machine, as far from each other as lines say.
type deployment struct {
	*cluster
	lines   *devcluster.Lines
	regions []*regionParts
}

// regionParts are the processes of a region.
type regionParts struct {
	name       string
	redis      *devcluster.Redis
	addresses  []string // of its schedulers, HOST:PORT
	schedulers []*process
	workers    []*process
	urls       []string // how it reaches schedulers: its own first, then the others' over lines, the nearest first
	client     *errand.Client
}

func (p *regionParts) own() []string { return p.urls[:len(p.addresses)] }

// freshRegions starts regions on a database of their own.
func (c *cluster) freshRegions(ctx context.Context, name, profile string) (*deployment, error) {
	c.database, c.schedulers, c.workers, c.urls = name, nil, nil, nil
	d := &deployment{cluster: c, lines: devcluster.NewLines(failoverLatency)}
	if err := d.prepare(ctx); err != nil {
		return d, err
	}
	for _, p := range d.regions {
		if err := d.startSchedulers(ctx, p, profile); err != nil {
			return d, err
		}
	}
	if err := c.ready(ctx); err != nil {
		return d, err
	}
	if _, err := c.errand(ctx, []string{"ERRAND_KEY=" + c.admin, "ERRAND_URL=" + c.urls[0]}, "tenant", "create", "acme"); err != nil {
		return d, err
	}
	var err error
	if c.tenant, err = c.secret(ctx, c.admin, "tenant", "--tenant", "acme"); err != nil {
		return d, err
	}
	if c.pool, err = c.secret(ctx, c.admin, "pool", "--kinds", moveKind); err != nil {
		return d, err
	}
	for _, p := range d.regions {
		if err := d.startWorkers(p); err != nil {
			return d, err
		}
	}
	return d, nil
}

// prepare makes databases, addresses and the file that names the regions.
func (d *deployment) prepare(ctx context.Context) error {
	if err := d.migrated(ctx, d.database); err != nil {
		return err
	}
	if err := d.sql(ctx, "postgres", "CREATE DATABASE "+d.database+"_user"); err != nil {
		return err
	}
	if err := d.sql(ctx, d.database+"_user", moneyTables()...); err != nil {
		return err
	}
	var err error
	if d.admin, err = d.secret(ctx, "", "admin", "--store", d.postgres.DSN(d.database)); err != nil {
		return err
	}
	for _, name := range failoverRegions {
		p := &regionParts{name: name}
		for range failoverSchedulers {
			port, err := devcluster.FreePort()
			if err != nil {
				return err
			}
			p.addresses = append(p.addresses, fmt.Sprintf("127.0.0.1:%d", port))
			d.urls = append(d.urls, "http://"+p.addresses[len(p.addresses)-1])
		}
		d.regions = append(d.regions, p)
	}
	return os.WriteFile(d.topologyFile(), []byte(topologyText()), 0o644)
}

func (d *deployment) topologyFile() string { return filepath.Join(d.dir, "topology.yaml") }

func topologyText() string {
	var s strings.Builder
	fmt.Fprintf(&s, "version: 1\nprimary: %s\nregions:\n", failoverRegions[0])
	for _, name := range failoverRegions {
		fmt.Fprintf(&s, "  - name: %s\n", name)
	}
	fmt.Fprintln(&s, "distances:")
	for _, far := range failoverLatency.Distances {
		fmt.Fprintf(&s, "  - {between: [%s, %s], round_trip_ms: %.0f}\n", far.Between[0], far.Between[1], far.MS)
	}
	return s.String()
}

// nearest are the other regions, by distance.
func (d *deployment) nearest(from *regionParts) []*regionParts {
	far := func(p *regionParts) int64 {
		return int64(failoverLatency.RoundTrip(devcluster.PairOf(from.name, p.name)))
	}
	others := slices.DeleteFunc(slices.Clone(d.regions), func(p *regionParts) bool { return p == from })
	slices.SortFunc(others, func(a, b *regionParts) int { return int(far(a) - far(b)) })
	return others
}

// startSchedulers starts a region's Redis and schedulers. To the store and to the others' schedulers they go over lines.
func (d *deployment) startSchedulers(ctx context.Context, p *regionParts, profile string) error {
	port, err := devcluster.FreePort()
	if err != nil {
		return err
	}
	if p.redis, err = devcluster.NewRedis(devcluster.RedisOptions{Dir: filepath.Join(d.dir, "redis-"+p.name), Port: port}); err != nil {
		return err
	}
	if err := p.redis.Start(ctx); err != nil {
		return err
	}
	server, err := url.Parse(d.postgres.DSN(d.database))
	if err != nil {
		return err
	}
	store, err := d.lines.Between(p.name, devcluster.TheStore, devcluster.LineEnds{Network: "tcp", Target: server.Host})
	if err != nil {
		return err
	}
	var routes []string
	for _, address := range p.addresses {
		p.urls = append(p.urls, "http://"+address)
	}
	for _, other := range d.nearest(p) {
		for _, address := range other.addresses {
			over, err := d.lines.Between(p.name, other.name, devcluster.LineEnds{Network: "tcp", Target: address})
			if err != nil {
				return err
			}
			routes = append(routes, "--peer-route", address+"="+over)
			p.urls = append(p.urls, "http://"+over)
		}
	}
	for i, address := range p.addresses {
		name := fmt.Sprintf("%s-scheduler%d", p.name, i+1)
		one := &process{name: name, path: d.binary, log: d.logFile(name), args: append([]string{
			"serve", "--region", p.name, "--topology", d.topologyFile(), "--profile", profile, "--peer-secret", "loadtest",
			"--store", devcluster.DSNOver(store, d.database), "--redis", p.redis.URL(), "--listen", address,
		}, routes...)}
		p.schedulers = append(p.schedulers, one)
		d.schedulers = append(d.schedulers, one)
		if err := one.start(); err != nil {
			return err
		}
	}
	return nil
}

// startWorkers starts a region's workers, and makes its client. They reach the user's database directly: what a handler does in a region
// that is cut off from the store still happens.
func (d *deployment) startWorkers(p *regionParts) (err error) {
	if p.client, err = errand.NewClient(errand.Config{URLs: p.urls, Key: d.tenant}); err != nil {
		return err
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	for i := range failoverWorkers {
		name := fmt.Sprintf("%s-worker%d", p.name, i+1)
		args := []string{"money", "--key", d.pool, "--name", name, "--region", p.name, "--db", d.postgres.DSN(d.database + "_user")}
		for _, u := range p.urls {
			args = append(args, "--url", u)
		}
		one := &process{name: name, path: self, args: args, log: d.logFile(name)}
		p.workers = append(p.workers, one)
		d.workers = append(d.workers, one)
		if err := one.start(); err != nil {
			return err
		}
	}
	return nil
}

// victim is the region that things happen to.
func (d *deployment) victim() *regionParts {
	return d.regions[slices.Index(failoverRegions, failoverVictim)]
}

// kill ends a region's schedulers and workers as a power cut would.
func (p *regionParts) kill() {
	for _, one := range p.all() {
		one.kill()
	}
}

func (p *regionParts) all() []*process { return slices.Concat(p.schedulers, p.workers) }

// drain asks the first region to drain another, or to take that back.
func (d *deployment) drain(ctx context.Context, region string, on bool) (err error) {
	admin := d.operator()
	if on {
		_, err = admin.DrainRegion(ctx, &errandv1.DrainRegionRequest{Name: region})
	} else {
		_, err = admin.ResumeRegion(ctx, &errandv1.ResumeRegionRequest{Name: region})
	}
	return err
}

// close stops everything, and drops the databases.
func (d *deployment) close(ctx context.Context) error {
	err := d.end(ctx)
	d.lines.Close()
	for _, p := range d.regions {
		if p.redis != nil {
			p.redis.Stop()
		}
	}
	return err
}
