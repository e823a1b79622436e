//go:build unix

package main

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/errandhq/errand/internal/devcluster"
)

// devFolder holds everything of one errand dev. It is locked while that runs, however it ends:
//
//	dev.env     where it is, and the keys
//	dev.lock    the pid of the one that runs
//	postgres/   the data, or a link to where they are
//	redis/      nothing that would be kept
type devFolder struct {
	path  string
	data  string // PostgreSQL's folder
	short string // where unix sockets are, when they cannot be in the folder itself; empty when they can
	lock  *os.File
}

const devLockName = "dev.lock"

// openDevFolder makes or finds the folder, and locks it.
func openDevFolder(dir string) (*devFolder, error) {
	path, err := filepath.Abs(dir)
	if err != nil {
		return nil, err
	}
	if err := makeDevFolder(path); err != nil {
		return nil, fmt.Errorf("%w: --dir: %w; choose another folder", errUsage, err)
	}
	lock, err := lockDevFolder(path)
	if err != nil {
		return nil, err
	}
	f := &devFolder{path: path, data: filepath.Join(path, "postgres"), lock: lock}
	if err := f.prepare(); err != nil {
		f.close()
		return nil, err
	}
	return f, nil
}

// prepare finds places for what cannot be in the folder itself.
func (f *devFolder) prepare() error {
	// Nothing in here belongs into a repository, least of all the keys.
	if err := os.WriteFile(f.in(".gitignore"), []byte("*\n"), 0o600); err != nil {
		return err
	}
	unreachable := devcluster.Reachable(f.data) != nil
	if unreachable {
		if err := f.moveData(); err != nil {
			return err
		}
	}
	// A path that is too long is refused by the system, and one with a comma taken for two by clients.
	var err error
	if unreachable || len(devcluster.PostgresSocket(f.data)) > devcluster.SocketPathMax || strings.Contains(f.path, ",") {
		f.short, err = shortFolder(f.path)
	}
	return err
}

// devDataDir is where root's databases are that PostgreSQL's user could not reach, below /root for instance.
const devDataDir = "/var/lib/errand-dev"

// moveData puts PostgreSQL's folder where its user can reach it, and a link in its place. Without the link, the folder was thrown
// away since, and so are the data.
func (f *devFolder) moveData() error {
	sum := sha256.Sum256([]byte(f.path))
	elsewhere := filepath.Join(devDataDir, fmt.Sprintf("%x", sum[:6]))
	switch target, err := os.Readlink(f.data); {
	case err == nil && target == elsewhere:
		f.data = elsewhere
		return nil
	case err == nil || !errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("%s: PostgreSQL does not run as root, and its user may not enter the folders above: open them to it, or move it away",
			f.data)
	}
	if err := os.RemoveAll(elsewhere); err != nil {
		return err
	}
	if err := os.MkdirAll(devDataDir, 0o711); err != nil {
		return err
	}
	if err := os.Symlink(elsewhere, f.data); err != nil {
		return err
	}
	f.data = elsewhere
	return nil
}

// makeDevFolder makes the folder, or looks whether what is there is one of ours.
func makeDevFolder(path string) error {
	entries, err := os.ReadDir(path)
	if errors.Is(err, fs.ErrNotExist) {
		mode := os.FileMode(0o700)
		if os.Getuid() == 0 {
			mode = 0o711 // PostgreSQL's user passes through
		}
		if err := os.MkdirAll(path, mode); err != nil {
			return err
		}
		return os.Chmod(path, mode) // whatever the umask says
	}
	if err != nil {
		return err // a file, or a folder that may not be read
	}
	if len(entries) == 0 {
		return nil
	}
	if _, err := os.Stat(filepath.Join(path, devLockName)); err != nil {
		return fmt.Errorf("%s has files in it that are not those of errand dev", path)
	}
	return nil
}

// lockDevFolder locks the folder until the file is closed or the process ends, however it ends.
func lockDevFolder(path string) (*os.File, error) {
	f, err := os.OpenFile(filepath.Join(path, devLockName), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("%w: --dir: %w; choose another folder, or run as the user that it belongs to", errUsage, err)
	}
	switch err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); {
	case errors.Is(err, syscall.EWOULDBLOCK):
		defer func() { _ = f.Close() }()
		raw, _ := os.ReadFile(f.Name()) // empty for a moment while the other one starts
		pid := strings.TrimSpace(string(raw))
		return nil, fmt.Errorf("errand dev runs in %s already, with pid %s: just use it, stop it with `kill %s`, or start this one in another folder with --dir",
			path, pid, pid)
	case err != nil:
		_ = f.Close()
		return nil, fmt.Errorf("lock %s: %w", f.Name(), err)
	}
	if err := errors.Join(f.Truncate(0), writeAt(f, fmt.Sprintf("%d\n", os.Getpid()))); err != nil {
		_ = f.Close()
		return nil, err
	}
	return f, nil
}

func writeAt(f *os.File, text string) error {
	_, err := f.WriteAt([]byte(text), 0)
	return err
}

// shortPath is where the sockets of such a folder are, at every start.
func shortPath(path string) string {
	sum := sha256.Sum256([]byte(path))
	return filepath.Join(os.TempDir(), fmt.Sprintf("errand-%d-%x", os.Getuid(), sum[:6]))
}

// shortFolder makes that folder, and sees to it that it is this user's alone.
func shortFolder(path string) (string, error) {
	short := shortPath(path)
	mode := os.FileMode(0o700)
	if os.Getuid() == 0 {
		mode = 0o711
	}
	if err := os.Mkdir(short, mode); err != nil && !errors.Is(err, fs.ErrExist) {
		return "", err
	}
	info, err := os.Lstat(short)
	if err != nil {
		return "", err
	}
	if !info.IsDir() || !trusted(info) {
		return "", fmt.Errorf("%s is in the way: %w; remove it, or choose a shorter folder with --dir", short, errForeign)
	}
	return short, os.Chmod(short, mode)
}

func (f *devFolder) in(name string) string { return filepath.Join(f.path, name) }

// sockets is where a server's unix socket is.
func (f *devFolder) sockets(name string) string {
	if f.short != "" {
		return filepath.Join(f.short, name)
	}
	return f.in(name)
}

// env is what an earlier start has written; empty when there was none, or none that can be read: then new keys are made.
func (f *devFolder) env() devEnv {
	env, err := readDevEnv(f.in(devEnvName))
	if err != nil {
		return devEnv{}
	}
	return env
}

// close unlocks the folder.
func (f *devFolder) close() {
	if f.short != "" {
		_ = os.RemoveAll(f.short) // what stays is used again
	}
	_ = f.lock.Close()
}
