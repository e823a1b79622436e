package sandbox

import (
	"os"
	"path/filepath"
	"syscall"
)

// place is a command's folder on this host while it runs. A lock says that its process lives: one without was left by a process
// that was killed.
type place struct {
	dir  string
	out  string // becomes /out
	lock *os.File
}

func (r *Runner) newPlace() (*place, error) {
	dir, err := os.MkdirTemp(r.dir, "run-")
	if err != nil {
		return nil, err
	}
	p := &place{dir: dir, out: filepath.Join(dir, "out")}
	if p.lock, err = locked(dir); err == nil {
		err = os.Mkdir(p.out, 0o700)
	}
	if err != nil {
		p.remove()
		return nil, err
	}
	return p, nil
}

// locked takes the lock of a folder, or fails when somebody has it.
func locked(dir string) (*os.File, error) {
	f, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		_ = f.Close()
		return nil, err
	}
	return f, nil
}

func (p *place) remove() {
	_ = os.RemoveAll(p.dir) // what cannot be removed is found by the next start
	if p.lock != nil {
		_ = p.lock.Close()
	}
}

// tidy removes the folders of processes that live no more.
func (r *Runner) tidy() error {
	old, err := filepath.Glob(filepath.Join(r.dir, "run-*"))
	if err != nil {
		return err
	}
	for _, dir := range old {
		if lock, err := locked(dir); err == nil {
			(&place{dir: dir, lock: lock}).remove()
		}
	}
	return nil
}
