package testdb

import (
	"context"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/errandhq/errand/internal/devcluster"
)

// urlVariable names a server to use instead of a private one.
const urlVariable = "ERRAND_TEST_POSTGRES_URL"

// start finds or starts the server of this test binary.
func start(ctx context.Context) (server, error) {
	if text := os.Getenv(urlVariable); text != "" {
		u, err := url.Parse(text)
		if err != nil || u.Scheme != "postgres" && u.Scheme != "postgresql" {
			return nil, fmt.Errorf("%s must be a URL like postgres://user@host/postgres", urlVariable)
		}
		return &given{url: u}, nil
	}
	dir, err := newFolder()
	if err != nil {
		return nil, err
	}
	postgres, err := devcluster.NewPostgres(devcluster.PostgresOptions{Dir: filepath.Join(dir.path, "pg")})
	if err == nil {
		err = postgres.Start(ctx)
	}
	if err != nil {
		dir.remove()
		return nil, err
	}
	return &private{Postgres: postgres, dir: dir}, nil
}

// given is a server that somebody else runs.
type given struct{ url *url.URL }

// DSN is the URL of a database on it.
func (g *given) DSN(database string) string {
	u := *g.url
	u.Path = "/" + database
	return u.String()
}

// Stop leaves it running.
func (g *given) Stop() {}

// private is a server of this test binary.
type private struct {
	*devcluster.Postgres
	dir *folder
}

// Stop ends the server and removes its data.
func (p *private) Stop() {
	p.Kill() // nobody will read the data again
	p.dir.remove()
}

// Redis runs a private Redis for one test, which may Stop, Kill and Start it.
func Redis(t testing.TB) *devcluster.Redis {
	t.Helper()
	dir, err := newFolder()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(dir.remove)
	r, err := devcluster.NewRedis(devcluster.RedisOptions{Dir: dir.path})
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Start(context.Background()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.Kill)
	return r
}

// folder is a temporary folder with a short path, locked while its owner lives. (testing's own carry the test's name, and a
// socket's path must be short.)
type folder struct {
	path string
	lock *os.File
}

const (
	folderPrefix = "errand-test-"
	// abandonedAfter is the age from which a folder without a lock has no owner any more, rather than one who is about to lock it.
	abandonedAfter = time.Minute
)

func newFolder() (*folder, error) {
	sweep(os.TempDir(), time.Now().Add(-abandonedAfter))
	path, err := os.MkdirTemp("", folderPrefix)
	if err != nil {
		return nil, err
	}
	if err := os.Chmod(path, 0o711); err != nil { // the server's user passes through
		return nil, err
	}
	lock, err := tryLock(path)
	if err != nil {
		return nil, err
	}
	return &folder{path: path, lock: lock}, nil
}

func (f *folder) remove() {
	_ = os.RemoveAll(f.path) // what stays is swept by a later run
	_ = f.lock.Close()
}

// sweep removes what killed runs left behind: folders that are older than a time and that nobody holds locked.
func sweep(parent string, before time.Time) {
	paths, _ := filepath.Glob(filepath.Join(parent, folderPrefix+"*")) // the pattern is a good one
	for _, path := range paths {
		info, err := os.Stat(path)
		if err != nil || info.ModTime().After(before) {
			continue
		}
		if lock, err := tryLock(path); err == nil {
			_ = os.RemoveAll(path) // another user's, perhaps
			_ = lock.Close()
		}
	}
}

// tryLock locks a folder until the file is closed or the process ends, however it ends.
func tryLock(path string) (*os.File, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		_ = f.Close()
		return nil, fmt.Errorf("lock %s: %w", path, err)
	}
	return f, nil
}
