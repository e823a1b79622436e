package devcluster

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
)

// PostgresOptions say what server is wanted.
type PostgresOptions struct {
	// Dir is a folder for this server alone, made when missing. Its data stay when the server ends.
	Dir string
	// Durable waits for the disk at every commit. Without it a test is fast, a benchmark worthless, and a crash of the machine
	// may damage the data (a crash of the server does not).
	Durable bool
	// Port is the TCP port on the loopback interface. 0 is a unix socket instead, whose path has at most SocketPathMax bytes.
	Port int
	// SocketDir is the folder of that socket, for this server alone, made when missing; no commas. Default Dir.
	SocketDir string
}

// Postgres is a private PostgreSQL server. Its superuser is "errand", without a password.
type Postgres struct {
	opts  PostgresOptions
	bin   string              // the folder of its programs
	as    *syscall.Credential // nil: as we are
	child *child

	occupiedLimit time.Duration // for a server that holds the data to end
}

var (
	// errOccupied means that another server holds the data: an earlier one that is about to end, or one that will stay.
	errOccupied = errors.New("its data are held by another server")
	errEnded    = errors.New("it ended before it was ready")
)

// postgresFolders are where distributions put the programs, which are not on the PATH then.
var postgresFolders = []string{"/usr/lib/postgresql/*/bin", "/usr/pgsql-*/bin"}

// socketPort is the port number in the name of the unix socket.
const socketPort = 5432

// NewPostgres prepares a server without starting it. ErrMissing says that PostgreSQL is not installed.
func NewPostgres(opts PostgresOptions) (*Postgres, error) {
	initdb, err := find("initdb", postgresFolders...)
	if err != nil {
		return nil, err
	}
	// Some distributions put initdb alone on the PATH, as a link to where the server is.
	if initdb, err = filepath.EvalSymlinks(initdb); err != nil {
		return nil, err
	}
	if opts.Dir, err = filepath.Abs(opts.Dir); err != nil {
		return nil, err
	}
	if opts.SocketDir == "" {
		opts.SocketDir = opts.Dir
	}
	if opts.SocketDir, err = filepath.Abs(opts.SocketDir); err != nil {
		return nil, err
	}
	if socket := PostgresSocket(opts.SocketDir); opts.Port == 0 && len(socket) > SocketPathMax {
		return nil, fmt.Errorf("%s is too long for a unix socket (%d bytes, at most %d): choose a shorter folder or a port",
			socket, len(socket), SocketPathMax)
	}
	if opts.Port == 0 && strings.Contains(opts.SocketDir, ",") {
		return nil, fmt.Errorf("%s: a comma in the path of a unix socket separates two of them: choose another folder or a port", opts.SocketDir)
	}
	as, err := unprivileged()
	if err != nil {
		return nil, err
	}
	return &Postgres{opts: opts, bin: filepath.Dir(initdb), as: as, occupiedLimit: occupiedLimit}, nil
}

// PostgresSocket is the path of the unix socket that a server makes in a folder.
func PostgresSocket(dir string) string {
	return filepath.Join(dir, ".s.PGSQL."+strconv.Itoa(socketPort))
}

func (p *Postgres) data() string { return filepath.Join(p.opts.Dir, "data") }

// Start runs the server and returns when it is ready. The first start makes the data; one after Stop or Kill finds them again.
// While processes of an earlier server on the same data are still ending, it waits for them.
func (p *Postgres) Start(ctx context.Context) error {
	if p.child.running() {
		return fmt.Errorf("postgres in %s runs already", p.opts.Dir)
	}
	ctx, cancel := context.WithTimeout(ctx, readyLimit)
	defer cancel()
	if err := p.init(ctx); err != nil {
		return err
	}
	if p.opts.Port == 0 && p.opts.SocketDir != p.opts.Dir {
		if err := enclose(p.opts.SocketDir, p.as); err != nil {
			return err
		}
	}
	giveUp := time.After(p.occupiedLimit)
	for {
		err := p.run(ctx)
		if !errors.Is(err, errOccupied) {
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-giveUp:
			return err
		case <-time.After(occupiedPause):
		}
	}
}

// init makes the data when there are none, first under another name, so that a killed init leaves no half of them.
func (p *Postgres) init(ctx context.Context) error {
	if _, err := os.Stat(p.data()); !errors.Is(err, fs.ErrNotExist) {
		if err == nil {
			err = p.checkVersion(ctx)
		}
		return err
	}
	if err := p.checkInstalled(ctx); err != nil {
		return err
	}
	if err := enclose(p.opts.Dir, p.as); err != nil {
		return err
	}
	fresh := p.data() + ".new"
	if err := os.RemoveAll(fresh); err != nil {
		return err
	}
	args := []string{"-D", fresh, "-U", "errand", "--auth=trust", "--encoding=UTF8", "--locale=C"}
	if !p.opts.Durable {
		args = append(args, "--no-sync")
	}
	cmd := exec.Command(filepath.Join(p.bin, "initdb"), args...)
	cmd.Dir = p.opts.Dir
	c, err := launch(cmd, p.as, syscall.SIGKILL) // whoever comes next begins anew
	if err != nil {
		return err
	}
	select {
	case <-c.done:
	case <-ctx.Done():
		c.kill()
	}
	if c.err != nil {
		return fmt.Errorf("initdb in %s: %w\n%s", fresh, errors.Join(c.err, ctx.Err()), c.log)
	}
	return os.Rename(fresh, p.data())
}

// run starts the server once and waits until it is ready or has ended.
func (p *Postgres) run(ctx context.Context) error {
	cmd := exec.Command(filepath.Join(p.bin, "postgres"), p.args()...)
	cmd.Dir = p.opts.Dir
	c, err := launch(cmd, p.as, syscall.SIGQUIT) // ends its sessions, writes nothing more; the next start recovers
	if err != nil {
		return err
	}
	p.child = c
	for !p.ready() {
		select {
		case <-c.done:
			return p.failed(errEnded)
		case <-ctx.Done():
			c.kill()
			return p.failed(ctx.Err())
		case <-time.After(readyPause):
		}
	}
	return nil
}

// ready reads what the server writes about itself. A connection would not do: it may reach another server at the same address.
func (p *Postgres) ready() bool {
	const pidLine, statusLine = 0, 7
	text, err := os.ReadFile(filepath.Join(p.data(), "postmaster.pid"))
	if err != nil {
		return false // not yet written
	}
	lines := strings.Split(string(text), "\n")
	return len(lines) > statusLine && lines[pidLine] == strconv.Itoa(p.Pid()) && strings.TrimSpace(lines[statusLine]) == "ready"
}

func (p *Postgres) args() []string {
	args := []string{
		"-D", p.data(),
		"-c", "max_connections=300",
		"-c", "shared_buffers=256MB",
		"-c", "max_wal_size=4GB", // a benchmark measures no forced checkpoint
		"-c", "log_min_messages=warning",
	}
	if p.opts.Port == 0 {
		args = append(args, "-p", strconv.Itoa(socketPort), "-k", quoteFolder(p.opts.SocketDir), "-c", "listen_addresses=")
	} else {
		args = append(args, "-p", strconv.Itoa(p.opts.Port), "-k", "", "-c", "listen_addresses=127.0.0.1")
	}
	if !p.opts.Durable {
		args = append(args, "-c", "fsync=off", "-c", "synchronous_commit=off", "-c", "full_page_writes=off")
	}
	return args
}

// quoteFolder makes a path one element of a list of folders.
func quoteFolder(path string) string { return `"` + strings.ReplaceAll(path, `"`, `""`) + `"` }

// failed tells why a server did not become ready.
func (p *Postgres) failed(why error) error {
	log := p.child.log.String()
	if strings.Contains(log, "pre-existing shared memory block") || strings.Contains(log, `"postmaster.pid" already exists`) {
		why = errOccupied
	}
	return fmt.Errorf("start postgres in %s: %w\n%s", p.data(), why, log)
}

// DSN is the URL of a database on the server.
func (p *Postgres) DSN(database string) string {
	if p.opts.Port == 0 {
		return DSNAt(p.opts.SocketDir, database)
	}
	return DSNOver("127.0.0.1:"+strconv.Itoa(p.opts.Port), database)
}

// DSNOver is the URL of a database by way of another address, HOST:PORT: a line's.
func DSNOver(address, database string) string {
	u := url.URL{Scheme: "postgres", User: url.User("errand"), Host: address, Path: "/" + database, RawQuery: "sslmode=disable"}
	return u.String()
}

// DSNAt is the URL of a database by way of a socket in another folder: a line's.
func DSNAt(socketDir, database string) string {
	query := url.Values{"host": {socketDir}, "port": {strconv.Itoa(socketPort)}}
	u := url.URL{Scheme: "postgres", User: url.User("errand"), Path: "/" + database}
	u.RawQuery = strings.ReplaceAll(query.Encode(), "+", "%20") // which PostgreSQL's clients take for a plus
	return u.String()
}

// CreateDatabase makes a database on the running server, unless it is there.
func (p *Postgres) CreateDatabase(ctx context.Context, name string) error {
	conn, err := pgx.Connect(ctx, p.DSN("postgres"))
	if err != nil {
		return fmt.Errorf("connect to postgres in %s: %w", p.opts.Dir, err)
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }() // nothing is lost with it
	var there bool
	if err := conn.QueryRow(ctx, "SELECT EXISTS (SELECT FROM pg_database WHERE datname = $1)", name).Scan(&there); err != nil || there {
		return err
	}
	_, err = conn.Exec(ctx, "CREATE DATABASE "+pgx.Identifier{name}.Sanitize())
	return err
}

// Pid is the server's process, for those who measure or stop it; 0 before the first start.
func (p *Postgres) Pid() int { return p.child.pid() }

// Done is closed when the server that the last Start started has ended, however it did.
func (p *Postgres) Done() <-chan struct{} { return p.child.ended() }

// Stop ends the server in order: it rolls open transactions back and writes what it holds.
func (p *Postgres) Stop() { p.child.stop(syscall.SIGINT) }

// Kill ends the server and its sessions as a crash would.
func (p *Postgres) Kill() { p.child.kill() }
