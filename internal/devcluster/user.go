package devcluster

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"syscall"
)

// unprivileged returns the user to run PostgreSQL as, since it refuses to run as root. Nil means: as we are.
func unprivileged() (*syscall.Credential, error) {
	if os.Getuid() != 0 {
		return nil, nil
	}
	for _, name := range []string{"postgres", "nobody"} {
		u, err := user.Lookup(name)
		if err != nil {
			continue
		}
		uid, err := strconv.ParseUint(u.Uid, 10, 32)
		if err != nil {
			return nil, fmt.Errorf("user %s: %w", name, err)
		}
		gid, err := strconv.ParseUint(u.Gid, 10, 32)
		if err != nil {
			return nil, fmt.Errorf("user %s: %w", name, err)
		}
		return &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}, nil
	}
	return nil, errors.New("PostgreSQL refuses to run as root, and there is no user postgres or nobody to run it as")
}

// enclose makes a folder that only the user may enter, and says so when the user cannot reach it.
func enclose(dir string, as *syscall.Credential) error {
	if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil {
		return err
	}
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	if as == nil {
		return nil
	}
	if err := os.Chown(dir, int(as.Uid), int(as.Gid)); err != nil {
		return err
	}
	return reachable(dir, as.Uid)
}

// Reachable returns nil when the user that PostgreSQL runs as may enter the folders above a folder, which need not exist. As
// anybody but root that is the user itself, and always so.
func Reachable(dir string) error {
	as, err := unprivileged()
	if err != nil || as == nil {
		return err
	}
	if dir, err = filepath.Abs(dir); err != nil {
		return err
	}
	return reachable(dir, as.Uid)
}

// reachable tells whether every user may pass through the folders above.
func reachable(dir string, uid uint32) error {
	for parent := filepath.Dir(dir); parent != filepath.Dir(parent); parent = filepath.Dir(parent) {
		info, err := os.Stat(parent)
		if err != nil {
			return err
		}
		if info.Mode().Perm()&0o001 == 0 {
			return fmt.Errorf("%s cannot hold a database: PostgreSQL runs as user %d, who may not enter %s; choose another folder, or do not run as root",
				dir, uid, parent)
		}
	}
	return nil
}
