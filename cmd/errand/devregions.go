//go:build unix

package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"net"
	"os"
	"slices"
	"strings"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/errandhq/errand/internal/devcluster"
	"github.com/errandhq/errand/regions"
	"github.com/errandhq/errand/scheduler"
)

// devSchedulersMax is the most scheduler instances of one region of errand dev: they share one machine.
const devSchedulersMax = 4

// names are the regions, the tenant's home first.
func (c *devCmd) names() []string {
	if len(c.RegionNames) > 0 {
		return c.RegionNames
	}
	if c.Regions <= 1 {
		return []string{devRegion}
	}
	names := make([]string, c.Regions)
	for i := range names {
		names[i] = fmt.Sprintf("r%d", i+1)
	}
	return names
}

// several tells whether schedulers are processes of their own, between lines.
func (c *devCmd) several() bool {
	return len(c.names()) > 1 || c.Schedulers > 1 || c.Latency != "" || c.Store != devPostgres
}

func (c *devCmd) validateRegions() error {
	if c.Regions < 1 || c.Regions > regions.Max {
		return fmt.Errorf("--regions: %d is not between 1 and %d", c.Regions, regions.Max)
	}
	if c.Schedulers < 1 || c.Schedulers > devSchedulersMax {
		return fmt.Errorf("--schedulers: %d is not between 1 and %d", c.Schedulers, devSchedulersMax)
	}
	names := c.names()
	if len(names) > regions.Max || c.Regions > 1 && len(names) != c.Regions {
		return fmt.Errorf("--region-names: names %d regions, and --regions says %d (at most %d)", len(names), c.Regions, regions.Max)
	}
	for i, name := range names {
		if !scheduler.ValidName(name) || name == devcluster.TheStore {
			return fmt.Errorf("--region-names: %q: a letter, then letters, digits and dashes, at most 63, and not %q", name, devcluster.TheStore)
		}
		if slices.Contains(names[:i], name) {
			return fmt.Errorf("--region-names: %s is there twice", name)
		}
	}
	return nil
}

// devRegions is errand dev with several schedulers.
type devRegions struct {
	*dev
	lines    *devcluster.Lines
	latency  devcluster.Latency
	topology regions.Topology
	secret   string // that the schedulers share
	places   []*devPlace
}

// devPlace is a region.
type devPlace struct {
	name       string
	number     int      // from 1
	listens    []string // what its schedulers listen on, HOST:PORT
	addresses  []string // where this machine reaches them
	redis      devPart
	redisURL   string
	store      string // its way there
	schedulers []devServer
	workers    []devWorker
	power      *devPower
}

// devServer is a scheduler that is a process.
type devServer struct {
	name string
	*devcluster.Program
	url string
}

// runRegions starts one part after the other; what was started is stopped in the reverse order.
func (d *dev) runRegions(ctx context.Context) error {
	r := &devRegions{dev: d, secret: rand.Text()}
	if err := r.plan(); err != nil {
		return err
	}
	stores, err := d.startStores(ctx)
	if err != nil {
		return err
	}
	defer stores.stop()
	if err := prepareStore(ctx, stores.dsn(), d.env, d.names()[0], d.logs().logger()); err != nil {
		return err
	}
	if err := d.env.write(d.folder.in(devEnvName)); err != nil {
		return err
	}
	r.lines = devcluster.NewLines(r.latency)
	defer r.lines.Close()
	if err := r.layLines(stores); err != nil {
		return err
	}
	defer r.stop()
	if err := r.startPlaces(ctx); err != nil {
		return err
	}
	control, err := r.startControl()
	if err != nil {
		return err
	}
	defer control.stop()
	d.welcome()

	group, keeping := errgroup.WithContext(ctx)
	stores.keep(keeping, d, group)
	group.Go(func() error { return control.watch(keeping) })
	for _, p := range r.places {
		r.keepPlace(keeping, group, p)
	}
	err = group.Wait()
	d.say("\nstopping: the workers, the schedulers, Redis, the store (Ctrl-C again: the workers give back what they run)")
	return err
}

// plan decides about names, distances and addresses, and refuses what cannot work before anything is started.
func (r *devRegions) plan() error {
	if err := r.readLatency(); err != nil {
		return fmt.Errorf("%w: --latency: %w", errUsage, err)
	}
	r.topology = topologyOf(r.names(), r.latency)
	profile := regions.WAN()
	if err := profile.ValidateFor(&r.topology); err != nil {
		return fmt.Errorf("%w: --latency: %w", errUsage, err)
	}
	if err := r.folder.keepTopology(&r.topology); err != nil {
		return err
	}
	for i, name := range r.names() {
		r.places = append(r.places, &devPlace{name: name, number: i + 1, power: newPower()})
	}
	return r.findAddresses()
}

func (r *devRegions) readLatency() error {
	if r.Latency == "" {
		return nil
	}
	raw, err := os.ReadFile(r.Latency)
	if err != nil {
		return err
	}
	r.latency, err = devcluster.ParseLatency(raw, r.names())
	return err
}

// findAddresses takes those of the last start where they are free. They are let go just before the schedulers take them.
func (r *devRegions) findAddresses() error {
	var held []net.Listener
	defer func() {
		for _, l := range held {
			_ = l.Close() // nothing has come in
		}
	}()
	last := maps.Clone(r.env)
	r.env.forgetRegions()
	for _, p := range r.places {
		before := strings.Split(last[regionURLVariable(p.name)], ",")
		var urls []string
		for i := range r.Schedulers {
			var wish string
			if i < len(before) {
				wish = hostOf(before[i])
			}
			l, err := r.listenNear(wish, len(held) == 0)
			if err != nil {
				return err
			}
			held = append(held, l)
			p.listens = append(p.listens, l.Addr().String())
			p.addresses = append(p.addresses, strings.TrimPrefix(localURL(l), "http://"))
			urls = append(urls, localURL(l))
		}
		r.env[regionURLVariable(p.name)] = strings.Join(urls, ",")
	}
	r.env[urlVariable] = "http://" + r.places[0].addresses[0]
	return nil
}

// listenNear finds an address for a scheduler; the first one's may be asked for with --listen.
func (r *devRegions) listenNear(wish string, first bool) (net.Listener, error) {
	if first {
		return r.listen()
	}
	if wish != "" {
		if l, err := net.Listen("tcp", wish); err == nil {
			return l, nil
		}
	}
	return net.Listen("tcp", "127.0.0.1:0")
}

// layLines lays a line from every region to the store.
func (r *devRegions) layLines(stores devStores) error {
	for _, p := range r.places {
		ends, err := stores.way(p)
		if err != nil {
			return err
		}
		addr, err := r.lines.Between(p.name, devcluster.TheStore, ends)
		if err != nil {
			return err
		}
		p.store = stores.over(addr)
	}
	return nil
}

// far are the ways from a region to the schedulers of the others, by their addresses; the nearest region's first.
func (r *devRegions) far(from *devPlace) (ways []devWay, err error) {
	for _, name := range r.topology.Nearest(from.name, r.names()) {
		to := r.places[slices.Index(r.names(), name)]
		for _, address := range to.addresses {
			over, err := r.lines.Between(from.name, to.name, devcluster.LineEnds{Network: "tcp", Target: address})
			if err != nil {
				return nil, err
			}
			ways = append(ways, devWay{address: address, over: over})
		}
	}
	return ways, nil
}

// devWay is how another region's scheduler is reached.
type devWay struct{ address, over string }

// startPlaces starts Redis and the schedulers of all regions, and when they are ready the workers.
func (r *devRegions) startPlaces(ctx context.Context) error {
	kinds, err := r.kinds(ctx)
	if err != nil {
		return err
	}
	ways := make([][]devWay, len(r.places))
	for i, p := range r.places {
		if ways[i], err = r.far(p); err != nil {
			return err
		}
		if err := r.startPlace(ctx, p, ways[i]); err != nil {
			return err
		}
	}
	for i, p := range r.places {
		r.say("\n  Region %s", p.name+r.distances(p.name))
		r.startedRedis(p.redis, p.redisURL)
		for _, s := range p.schedulers {
			if err := waitReady(ctx, s.url, s.Done()); err != nil {
				return fmt.Errorf("%s: %w", s.name, err)
			}
			r.started("Scheduler", s, s.url)
		}
		var urls []string
		for _, address := range p.addresses {
			urls = append(urls, "http://"+address)
		}
		for _, w := range ways[i] {
			urls = append(urls, "http://"+w.over)
		}
		p.workers, err = r.startWorkers(ctx, kinds, p.name, urls)
		if err != nil {
			return err
		}
	}
	r.say("")
	return nil
}

// startPlace starts what has to be there first.
func (r *devRegions) startPlace(ctx context.Context, p *devPlace, ways []devWay) (err error) {
	if p.redis, p.redisURL, err = r.startRedisIn(ctx, r.folder.sockets(fmt.Sprintf("redis%d", p.number))); err != nil {
		return err
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	for i, address := range p.addresses {
		args := []string{
			"serve", "--region", p.name, "--topology", r.folder.in(devTopologyName), "--store", p.store, "--redis", p.redisURL,
			"--listen", p.listens[i], "--advertise", "http://" + address, "--shutdown-grace", devShutdownGrace.String(), "--log-level", r.LogLevel.String(), "--log-format", r.LogFormat,
		}
		for _, w := range ways {
			args = append(args, "--peer-route", w.address+"="+w.over)
		}
		s := devServer{name: fmt.Sprintf("scheduler %s-%d", p.name, i+1), url: "http://" + address}
		s.Program = &devcluster.Program{Path: self, Args: args, Env: r.variables("ERRAND_PEER_SECRET=" + r.secret), Output: os.Stderr}
		if err := s.Start(ctx); err != nil {
			return err
		}
		p.schedulers = append(p.schedulers, s)
	}
	return nil
}

// keepPlace keeps a region's processes running, while it has power.
func (r *devRegions) keepPlace(ctx context.Context, group *errgroup.Group, p *devPlace) {
	group.Go(func() error { return r.keep(ctx, "Redis of "+p.name, p.redis, p.power) })
	for _, s := range p.schedulers {
		group.Go(func() error { return r.keep(ctx, s.name, s, p.power) })
	}
	for _, w := range p.workers {
		group.Go(func() error { return r.keep(ctx, "worker "+w.name, w, p.power) })
	}
}

// stop ends the regions: all workers first, since they hand back what they run.
func (r *devRegions) stop() {
	var workers []devWorker
	var stopping sync.WaitGroup
	for _, p := range r.places {
		workers = append(workers, p.workers...)
	}
	stopWorkers(workers)
	for _, p := range r.places {
		for _, s := range p.schedulers {
			stopping.Go(s.Stop)
		}
	}
	stopping.Wait()
	for _, p := range r.places {
		if p.redis != nil {
			p.redis.Stop()
		}
	}
}

// distances says how far a region is from everything.
func (r *devRegions) distances(name string) string {
	var far []string
	for _, s := range r.lines.Status() {
		other := s.Between[1]
		if other == name {
			other = s.Between[0]
		}
		if (s.Between[0] == name || s.Between[1] == name) && s.MS > 0 {
			far = append(far, fmt.Sprintf("%s %v ms", other, s.MS))
		}
	}
	if far == nil {
		return ""
	}
	return " (" + strings.Join(far, ", ") + ")"
}

var errNoRegion = errors.New("there is no such region")
