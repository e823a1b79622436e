package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/errandhq/errand"
	"github.com/errandhq/errand/internal/devcluster"
)

// cluster is a deployment of real processes on this machine: PostgreSQL, Redis, schedulers, workers.
type cluster struct {
	dir        string
	binary     string // errand
	postgres   *devcluster.Postgres
	redis      *devcluster.Redis
	database   string
	schedulers []*process
	workers    []*process
	urls       []string
	metrics    []string // URLs of the schedulers' metrics and profiles
	peers      string   // the program that runs the peers
	admin      string
	tenant     string
	pool       string
}

// process is one of them; it can be started again with the same arguments.
type process struct {
	name string
	path string
	args []string
	log  string
	cmd  *exec.Cmd
	done chan struct{}
}

func (p *process) start() error {
	log, err := os.OpenFile(p.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer func() { _ = log.Close() }() // the child has its own
	p.cmd = exec.Command(p.path, p.args...)
	p.cmd.Stdout, p.cmd.Stderr = log, log
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := p.cmd.Start(); err != nil {
		return err
	}
	p.done = make(chan struct{})
	go func(cmd *exec.Cmd, done chan struct{}) {
		_ = cmd.Wait() // killed on purpose, mostly
		close(done)
	}(p.cmd, p.done)
	return nil
}

func (p *process) signal(sig syscall.Signal) { _ = p.cmd.Process.Signal(sig) } // it may be gone already

func (p *process) kill() {
	p.signal(syscall.SIGKILL)
	<-p.done
}

// stop asks politely and waits.
func (p *process) stop(limit time.Duration) error {
	p.signal(syscall.SIGTERM)
	select {
	case <-p.done:
		return nil
	case <-time.After(limit):
		p.kill()
		return fmt.Errorf("%s did not end within %v", p.name, limit)
	}
}

// startServers starts what all scenarios share, and builds errand.
func startServers(ctx context.Context, dir string) (*cluster, error) {
	c := &cluster{dir: dir, binary: filepath.Join(dir, "errand")}
	build := exec.CommandContext(ctx, "go", "build", "-o", c.binary, "./cmd/errand")
	if out, err := build.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("build errand (run loadtest from the project's root): %w\n%s", err, out)
	}
	var err error
	database := devcluster.PostgresOptions{Dir: filepath.Join(dir, "postgres"), Durable: true}
	if database.Port, err = devcluster.FreePort(); err != nil {
		return nil, err
	}
	if c.postgres, err = devcluster.NewPostgres(database); err != nil {
		return nil, err
	}
	if err := c.postgres.Start(ctx); err != nil {
		return nil, err
	}
	redis := devcluster.RedisOptions{Dir: dir}
	if redis.Port, err = devcluster.FreePort(); err != nil {
		return nil, err
	}
	if c.redis, err = devcluster.NewRedis(redis); err != nil {
		return nil, err
	}
	return c, c.redis.Start(ctx)
}

// fresh starts schedulers and workers on a database of their own.
func (c *cluster) fresh(ctx context.Context, name string, schedulers, workers int) error {
	c.database = name
	if err := c.migrated(ctx, name); err != nil {
		return err
	}
	if err := c.sql(ctx, "postgres", "CREATE DATABASE "+name+"_user"); err != nil {
		return err
	}
	err := c.sql(ctx, name+"_user", errand.OnceTable,
		"CREATE TABLE runs (task TEXT, attempt BIGINT, worker TEXT, at TIMESTAMPTZ DEFAULT now())",
		"CREATE TABLE transfers (task TEXT, at TIMESTAMPTZ DEFAULT now())")
	if err != nil {
		return err
	}
	store := c.postgres.DSN(name)
	if c.admin, err = c.secret(ctx, "", "admin", "--store", store); err != nil {
		return err
	}
	c.schedulers, c.workers, c.urls, c.metrics = nil, nil, nil, nil
	for i := range schedulers {
		if err := c.addScheduler(fmt.Sprintf("scheduler%d", i+1), store); err != nil {
			return err
		}
	}
	if err := c.ready(ctx); err != nil {
		return err
	}
	if _, err := c.errand(ctx, []string{"ERRAND_KEY=" + c.admin, "ERRAND_URL=" + c.urls[0]}, "tenant", "create", "acme"); err != nil {
		return err
	}
	if c.tenant, err = c.secret(ctx, c.admin, "tenant", "--tenant", "acme"); err != nil {
		return err
	}
	if c.pool, err = c.secret(ctx, c.admin, "pool", "--kinds", "transfer,noop"); err != nil {
		return err
	}
	for i := range workers {
		if err := c.addWorker(fmt.Sprintf("worker%d", i+1)); err != nil {
			return err
		}
	}
	return nil
}

// migrated makes a database with Errand's tables.
func (c *cluster) migrated(ctx context.Context, name string) error {
	if err := c.sql(ctx, "postgres", "CREATE DATABASE "+name); err != nil {
		return err
	}
	_, err := c.errand(ctx, nil, "migrate", "--store", c.postgres.DSN(name), "--log-level", "warn")
	return err
}

func (c *cluster) addScheduler(name, store string) error {
	port, err := devcluster.FreePort()
	if err != nil {
		return err
	}
	addr := fmt.Sprintf("127.0.0.1:%d", port)
	metrics, err := devcluster.FreePort()
	if err != nil {
		return err
	}
	c.metrics = append(c.metrics, fmt.Sprintf("http://127.0.0.1:%d", metrics))
	p := &process{
		name: name, path: c.binary, log: c.logFile(name),
		args: []string{
			"serve", "--store", store, "--listen", addr, "--redis", c.redis.URL(), "--peer-secret", "loadtest",
			"--metrics-listen", fmt.Sprintf("127.0.0.1:%d", metrics), "--pprof",
		},
	}
	c.schedulers = append(c.schedulers, p)
	c.urls = append(c.urls, "http://"+addr)
	return p.start()
}

func (c *cluster) addWorker(name string) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	args := []string{"worker", "--key", c.pool, "--name", name, "--db", c.postgres.DSN(c.database + "_user")}
	at := len(c.workers)
	for i := range c.urls { // workers spread over the schedulers
		args = append(args, "--url", c.urls[(at+i)%len(c.urls)])
	}
	p := &process{name: name, path: self, args: args, log: c.logFile(name)}
	c.workers = append(c.workers, p)
	return p.start()
}

func (c *cluster) logFile(name string) string {
	return filepath.Join(c.dir, c.database+"-"+name+".log")
}

// ready waits until every scheduler says that it is.
func (c *cluster) ready(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	for _, url := range c.urls {
		for {
			resp, err := http.Get(url + "/readyz")
			if err == nil {
				_, _ = io.Copy(io.Discard, resp.Body)
				_ = resp.Body.Close()
				if resp.StatusCode == http.StatusOK {
					break
				}
			}
			select {
			case <-ctx.Done():
				return fmt.Errorf("%s is not ready: see the logs in %s", url, c.dir)
			case <-time.After(50 * time.Millisecond):
			}
		}
	}
	return nil
}

// end stops the scenario's processes and drops its databases.
func (c *cluster) end(ctx context.Context) error {
	var errs []error
	for _, p := range append(c.workers, c.schedulers...) {
		p.signal(syscall.SIGCONT)
		p.kill()
	}
	errs = append(errs, c.sql(ctx, "postgres", "DROP DATABASE "+c.database+" WITH (FORCE)", "DROP DATABASE "+c.database+"_user WITH (FORCE)"))
	return errors.Join(errs...)
}

func (c *cluster) stop() {
	c.redis.Stop()
	c.postgres.Stop()
}

func (c *cluster) sql(ctx context.Context, database string, statements ...string) error {
	conn, err := pgx.Connect(ctx, c.postgres.DSN(database))
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close(ctx) }()
	for _, sql := range statements {
		if _, err := conn.Exec(ctx, sql); err != nil {
			return fmt.Errorf("%s: %w", sql, err)
		}
	}
	return nil
}

// errand runs a command of the product, as a user would.
func (c *cluster) errand(ctx context.Context, env []string, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, c.binary, args...)
	cmd.Env = append(os.Environ(), env...)
	out, err := cmd.Output()
	if err != nil {
		return out, fmt.Errorf("errand %s: %w: %s", args[0], err, stderrOf(err))
	}
	return out, nil
}

// stderrOf is what a program that failed said.
func stderrOf(err error) []byte {
	var exit *exec.ExitError
	if !errors.As(err, &exit) {
		return nil
	}
	return exit.Stderr
}

func (c *cluster) secret(ctx context.Context, admin string, args ...string) (string, error) {
	env := []string{"ERRAND_KEY=" + admin}
	if len(c.urls) > 0 {
		env = append(env, "ERRAND_URL="+c.urls[0])
	}
	out, err := c.errand(ctx, env, append([]string{"key", "create", "-o", "json"}, args...)...)
	if err != nil {
		return "", err
	}
	var key struct {
		Secret string `json:"secret"`
	}
	return key.Secret, json.Unmarshal(out, &key)
}
