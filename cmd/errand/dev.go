//go:build unix

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/errandhq/errand/internal/devcluster"
	"github.com/errandhq/errand/internal/store"
	"github.com/errandhq/errand/regions"
	"github.com/errandhq/errand/scheduler"
)

// devCmd runs a whole deployment on this machine.
type devCmd struct {
	Dir         string        `help:"Folder for everything, made when missing." default:".errand" placeholder:"DIR"`
	Listen      string        `help:"Address of the scheduler: HOST:PORT. Default where it was last, else 127.0.0.1:7070, else any free port." placeholder:"ADDR"`
	Workers     int           `help:"Worker processes for each built-in kind." default:"2"`
	DrainGrace  time.Duration `help:"How long handlers may go on after a first Ctrl-C; a second one ends it." default:"5s"`
	Regions     int           `help:"How many regions, each with its own schedulers, workers and Redis over one store." default:"1" env:"-"`
	RegionNames []string      `help:"Their names. Default local for one, else r1, r2 ..." env:"-" placeholder:"NAME,..."`
	Schedulers  int           `help:"Scheduler instances of each region." default:"1" env:"-"`
	Latency     string        `help:"YAML file with round trips between regions, and to the store." env:"-" type:"path" placeholder:"FILE"`
	Store       string        `help:"postgres, or cockroach where CockroachDB is installed: one server in each region." enum:"postgres,cockroach" default:"postgres" env:"-"`
	LogLevel    slog.Level    `help:"Least severe messages to log: debug, info, warn, error." default:"warn"`
	LogFormat   string        `help:"text or json." enum:"text,json" default:"text"`
}

// Bounds of errand dev.
const (
	devRegion        = "local"
	devPostgres      = "postgres"
	devListen        = "127.0.0.1:7070"
	devWorkersMax    = 64
	devDrainGraceMax = 14 * time.Second // with a worker's stop grace still within what a child gets to end in order
	devReadyLimit    = 30 * time.Second
	devShutdownGrace = 5 * time.Second
	devReadyPause    = 20 * time.Millisecond
)

// Help is the longer text of --help.
func (*devCmd) Help() string {
	return `Starts a private PostgreSQL and Redis, a scheduler and workers of the built-in kinds, and makes a tenant "dev" with a key.
What it needs is in the folder; Ctrl-C stops it all, and the next start goes on with the same data, address and keys.

It writes dev.env into its folder. The other commands look for .errand/dev.env in the folder where they are run and in those above,
and take --url and --key from it; flags and ERRAND_* variables win, and with --config nothing is looked for. ERRAND_DEV_ENV names
the file instead; set and empty, none is used.

Exit codes: 0 stopped in order; 1 it could not start or go on (something is not installed, the data are damaged, another errand dev
runs in the folder); 2 a setting that cannot work (the folder, an address in use).`
}

// Validate checks the settings.
func (c *devCmd) Validate() error {
	if c.Workers < 0 || c.Workers > devWorkersMax {
		return fmt.Errorf("--workers: %d is not between 0 and %d", c.Workers, devWorkersMax)
	}
	if c.DrainGrace < 0 || c.DrainGrace > devDrainGraceMax {
		return fmt.Errorf("--drain-grace: %v is not between 0 and %v", c.DrainGrace, devDrainGraceMax)
	}
	return c.validateRegions()
}

// dev is one run of errand dev.
type dev struct {
	*devCmd
	folder *devFolder
	env    devEnv
	out    io.Writer
}

// Run starts everything, keeps it running until the context ends, and stops it in order.
func (c *devCmd) Run(ctx context.Context) error {
	folder, err := openDevFolder(c.Dir)
	if err != nil {
		return err
	}
	defer folder.close()
	d := &dev{devCmd: c, folder: folder, env: folder.env(), out: os.Stdout}
	err = d.run(ctx)
	if ctx.Err() != nil && (err == nil || errors.Is(err, context.Canceled)) {
		d.say("stopped; the data stay in %s", folder.path)
		return nil
	}
	return err
}

// run starts one part after the other; what was started is stopped in the reverse order.
func (d *dev) run(ctx context.Context) (err error) {
	d.say("errand dev: everything on this machine, in %s\n", d.folder.path)
	if d.several() {
		return d.runRegions(ctx)
	}
	topology := regions.Single(d.names()[0])
	if err := d.folder.keepTopology(&topology); err != nil {
		return err
	}
	listener, err := d.listen()
	if err != nil {
		return err
	}
	defer func() { _ = listener.Close() }() // closed already by a scheduler that was started
	d.env.forgetRegions()
	d.env[urlVariable] = localURL(listener)

	postgres, err := d.startPostgres(ctx)
	if err != nil {
		return err
	}
	defer postgres.Stop()
	dsn := postgres.DSN(devDatabase)
	if err := prepareStore(ctx, dsn, d.env, topology.Primary, d.logs().logger()); err != nil {
		return err
	}
	if err := d.env.write(d.folder.in(devEnvName)); err != nil {
		return err
	}
	redis, redisURL, err := d.startRedis(ctx)
	if err != nil {
		return err
	}
	defer redis.Stop()
	scheduler, err := d.startScheduler(ctx, listener, dsn, redisURL)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, scheduler.stop()) }()

	kinds, err := d.kinds(ctx)
	if err != nil {
		return err
	}
	workers, err := d.startWorkers(ctx, kinds, "dev", []string{d.env[urlVariable]})
	defer stopWorkers(workers)
	if err != nil {
		return err
	}
	d.welcome()

	group, keeping := errgroup.WithContext(ctx)
	for _, w := range workers {
		group.Go(func() error { return d.keep(keeping, "worker "+w.name, w, nil) })
	}
	group.Go(func() error { return d.keep(keeping, "Redis", redis, nil) })
	group.Go(func() error { return d.keep(keeping, "PostgreSQL", postgres, nil) })
	group.Go(func() error { return scheduler.watch(keeping) })
	err = group.Wait()
	d.say("\nstopping: the workers, the scheduler, Redis, PostgreSQL (Ctrl-C again: the workers give back what they run)")
	return err
}

// listen takes the address that was asked for, or the first of those one would expect that is free.
func (d *dev) listen() (net.Listener, error) {
	if d.Listen != "" {
		l, err := net.Listen("tcp", d.Listen)
		if err != nil {
			return nil, fmt.Errorf("%w: --listen: %w; name another address, or leave --listen out and any free port is taken", errUsage, err)
		}
		return l, nil
	}
	for _, address := range []string{hostOf(d.env[urlVariable]), devListen} {
		if address == "" {
			continue
		}
		l, err := net.Listen("tcp", address)
		if err == nil {
			return l, nil
		}
		d.say("  %s is in use: another address is taken", address)
	}
	return net.Listen("tcp", "127.0.0.1:0")
}

// hostOf is the HOST:PORT of a URL; empty when it has none.
func hostOf(text string) string {
	u, err := url.Parse(text)
	if err != nil {
		return ""
	}
	return u.Host
}

// localURL is where this machine reaches a listener.
func localURL(l net.Listener) string {
	at := l.Addr().(*net.TCPAddr)
	if !at.IP.IsUnspecified() {
		return "http://" + at.String()
	}
	return fmt.Sprintf("http://127.0.0.1:%d", at.Port)
}

func (d *dev) startPostgres(ctx context.Context) (*devcluster.Postgres, error) {
	dir := d.folder.data
	_, missing := os.Stat(filepath.Join(dir, "data"))
	p, err := devcluster.NewPostgres(devcluster.PostgresOptions{Dir: dir, Durable: true, SocketDir: d.folder.sockets("postgres")})
	if err != nil {
		return nil, err
	}
	if err := p.Start(ctx); err != nil {
		if missing == nil && ctx.Err() == nil {
			err = fmt.Errorf("%w\nIf it cannot be mended, move %s away: the next start begins without what is in it", err, dir)
		}
		return nil, err
	}
	if err := p.CreateDatabase(ctx, devDatabase); err != nil {
		p.Stop()
		return nil, err
	}
	d.started("PostgreSQL", p, p.DSN(devDatabase))
	if dir != d.folder.in("postgres") {
		d.say("  %-24s its user may not enter the folders above: the data are in %s", "", dir)
	}
	return p, nil
}

// startRedis starts Redis, or what takes its place where it is not installed.
func (d *dev) startRedis(ctx context.Context) (part devPart, url string, err error) {
	part, url, err = d.startRedisIn(ctx, d.folder.sockets("redis"))
	if err != nil {
		return nil, "", err
	}
	d.startedRedis(part, url)
	return part, url, nil
}

func (d *dev) startRedisIn(ctx context.Context, dir string) (part devPart, url string, err error) {
	r, err := devcluster.NewRedis(devcluster.RedisOptions{Dir: dir})
	switch {
	case errors.Is(err, devcluster.ErrMissing):
		s := devcluster.NewStandIn()
		if err := s.Start(ctx); err != nil {
			return nil, "", err
		}
		return s, s.URL(), nil
	case err != nil:
		return nil, "", err
	}
	if err := r.Start(ctx); err != nil {
		return nil, "", err
	}
	return r, r.URL(), nil
}

func (d *dev) startedRedis(part devPart, url string) {
	if part.Pid() == 0 {
		url = "a stand-in inside the scheduler, since redis-server is not installed"
	}
	d.started("Redis", part, url)
}

// devScheduler is the scheduler instance inside this process.
type devScheduler struct {
	cancel context.CancelFunc
	done   chan struct{}
	err    error // read it after done
}

// startScheduler runs what errand serve runs, and waits until it is ready. It outlives ctx: it is stopped after the workers.
func (d *dev) startScheduler(ctx context.Context, listener net.Listener, dsn, redisURL string) (*devScheduler, error) {
	serve := &serveCmd{
		Region: d.names()[0], Profile: regions.WAN().Name, Store: dsn, Redis: redisURL, Retention: store.RetentionMin, ShutdownGrace: devShutdownGrace,
		Timing: timingSettingsOf(scheduler.DefaultTiming()), logSettings: *d.logs(),
	}
	serving, cancel := context.WithCancel(context.WithoutCancel(ctx))
	s := &devScheduler{cancel: cancel, done: make(chan struct{})}
	go func() {
		defer close(s.done)
		s.err = serve.on(serving, listener)
	}()
	if err := waitReady(ctx, d.env[urlVariable], s.done); err != nil {
		return nil, errors.Join(err, s.stop())
	}
	d.started("Scheduler", nil, d.env[urlVariable])
	return s, nil
}

// waitReady waits until a scheduler says that it can do its work, or has ended.
func waitReady(ctx context.Context, url string, done <-chan struct{}) error {
	ctx, cancel := context.WithTimeout(ctx, devReadyLimit)
	defer cancel()
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	for {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, url+"/readyz", nil)
		if err != nil {
			return err
		}
		if resp, err := client.Do(req); err == nil {
			_ = resp.Body.Close() // its status says it all
			if resp.StatusCode == http.StatusOK {
				return nil
			}
		}
		select {
		case <-done:
			return errors.New("the scheduler did not start")
		case <-ctx.Done():
			return fmt.Errorf("the scheduler is not ready: %w", ctx.Err())
		case <-time.After(devReadyPause):
		}
	}
}

// watch returns when the scheduler has ended by itself, or ctx ends.
func (s *devScheduler) watch(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return nil
	case <-s.done:
		return errors.New("the scheduler has ended by itself")
	}
}

// stop drains the scheduler, and tells how it ended.
func (s *devScheduler) stop() error {
	s.cancel()
	<-s.done
	return s.err
}

func (d *dev) logs() *logSettings { return &logSettings{LogLevel: d.LogLevel, LogFormat: d.LogFormat} }
