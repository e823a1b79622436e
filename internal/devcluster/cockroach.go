package devcluster

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
)

// CockroachOptions say what cluster is wanted.
type CockroachOptions struct {
	// Dir is a folder for this cluster alone, made when missing. Its data stay when the cluster ends.
	Dir string
	// Regions are the localities, one server in each. The data are in the folder of that name.
	Regions []string
}

// Cockroach is a local CockroachDB with one server for each region, without TLS or passwords: whoever can reach the loopback interface
// can read and change everything. It has not been run where CockroachDB is not installed; its command lines are tested.
type Cockroach struct {
	dir     string
	path    string // of the program
	servers []*CockroachServer
}

// CockroachServer is one of them. It can be killed and started again, as a Program can.
type CockroachServer struct {
	Program
	Region string
	Addr   string // for SQL, HOST:PORT
	http   string
}

// Bounds of a local cluster.
const (
	cockroachReadyLimit = 60 * time.Second
	cockroachReadyPause = 200 * time.Millisecond
	cockroachCache      = "128MiB"
	cockroachSQLMemory  = "128MiB"
)

// NewCockroach prepares a cluster without starting it, at free ports. ErrNoCockroach says that there is no such program.
func NewCockroach(opts CockroachOptions) (*Cockroach, error) {
	path, err := exec.LookPath("cockroach")
	if err != nil {
		return nil, ErrNoCockroach
	}
	dir, err := filepath.Abs(opts.Dir)
	if err != nil {
		return nil, err
	}
	c := &Cockroach{dir: dir, path: path}
	for _, region := range opts.Regions {
		s := &CockroachServer{Region: region}
		for _, addr := range []*string{&s.Addr, &s.http} {
			port, err := FreePort()
			if err != nil {
				return nil, err
			}
			*addr = net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
		}
		c.servers = append(c.servers, s)
	}
	for _, s := range c.servers {
		s.Path, s.Args, s.Env = path, c.startArgs(s), os.Environ()
	}
	return c, nil
}

// ErrNoCockroach means that CockroachDB is not installed.
var ErrNoCockroach = errors.New("cockroach is not on the PATH: install CockroachDB (https://www.cockroachlabs.com/docs/releases), or use PostgreSQL")

// startArgs is how a server is started. All are named to each, so that it does not matter which is there first.
func (c *Cockroach) startArgs(s *CockroachServer) []string {
	var all []string
	for _, other := range c.servers {
		all = append(all, other.Addr)
	}
	return []string{
		"start", "--insecure",
		"--store=" + filepath.Join(c.dir, s.Region),
		"--listen-addr=" + s.Addr, "--http-addr=" + s.http,
		"--locality=region=" + s.Region + ",zone=a",
		"--join=" + strings.Join(all, ","),
		"--cache=" + cockroachCache, "--max-sql-memory=" + cockroachSQLMemory,
		"--log=sinks: {stderr: {filter: ERROR}}",
	}
}

// initArgs makes one cluster of them, once.
func (c *Cockroach) initArgs() []string {
	return []string{"init", "--insecure", "--host=" + c.servers[0].Addr}
}

// initialized tells from what init says that it has been done before.
func initialized(said string) bool { return strings.Contains(said, "already been initialized") }

// Servers are those of the cluster, in the order of the regions.
func (c *Cockroach) Servers() []*CockroachServer { return c.servers }

// Start runs all servers, and returns when each answers.
func (c *Cockroach) Start(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, cockroachReadyLimit)
	defer cancel()
	if err := os.MkdirAll(c.dir, 0o700); err != nil {
		return err
	}
	for _, s := range c.servers {
		if err := s.Start(ctx); err != nil {
			c.Stop()
			return err
		}
	}
	err := c.form(ctx)
	for _, s := range c.servers {
		if err == nil {
			err = s.ready(ctx)
		}
	}
	if err != nil {
		c.Stop()
	}
	return err
}

// form initializes the cluster, as soon as a server can be asked.
func (c *Cockroach) form(ctx context.Context) error {
	for {
		var said bytes.Buffer
		cmd := exec.CommandContext(ctx, c.path, c.initArgs()...)
		cmd.Stdout, cmd.Stderr = &said, &said
		err := cmd.Run()
		if err == nil || initialized(said.String()) {
			return nil
		}
		if again := pauseFor(ctx, c.servers[0].Done()); again != nil {
			return fmt.Errorf("cockroach init: %w: %w\n%s", again, err, said.String())
		}
	}
}

// ready waits until a server answers.
func (s *CockroachServer) ready(ctx context.Context) error {
	for {
		err := s.do(ctx, "SELECT 1")
		if err == nil {
			return nil
		}
		if again := pauseFor(ctx, s.Done()); again != nil {
			return fmt.Errorf("cockroach of region %s: %w: %w", s.Region, again, err)
		}
	}
}

// pauseFor waits before another try, unless the server has ended or time is up.
func pauseFor(ctx context.Context, done <-chan struct{}) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-done:
		return errEnded
	case <-time.After(cockroachReadyPause):
		return nil
	}
}

func (s *CockroachServer) do(ctx context.Context, sql string) error {
	conn, err := pgx.Connect(ctx, s.DSN("defaultdb"))
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }() // nothing is lost with it
	_, err = conn.Exec(ctx, sql)
	return err
}

// DSN is the URL of a database on the server.
func (s *CockroachServer) DSN(database string) string { return CockroachDSN(s.Addr, database) }

// CockroachDSN is the URL of a database by way of an address, HOST:PORT: a server's, or a line's.
func CockroachDSN(addr, database string) string {
	u := url.URL{Scheme: "postgres", User: url.User("root"), Host: addr, Path: "/" + database, RawQuery: "sslmode=disable"}
	return u.String()
}

// CreateDatabase makes a database on the running cluster, unless it is there.
func (c *Cockroach) CreateDatabase(ctx context.Context, name string) error {
	return c.servers[0].do(ctx, "CREATE DATABASE IF NOT EXISTS "+pgx.Identifier{name}.Sanitize())
}

// Stop ends all servers in order, at the same time: the last of them alone would wait for a majority for ever.
func (c *Cockroach) Stop() {
	var stopping sync.WaitGroup
	for _, s := range c.servers {
		stopping.Go(func() { s.child.stop(syscall.SIGTERM) })
	}
	stopping.Wait()
}
