package main

import (
	"fmt"
	"os"
	"path/filepath"
	"sync/atomic"
	"syscall"
	"unsafe"
)

// sharedCount counts what runs in several processes at once, in a page of memory that they share: a lock or a server would slow down
// what is counted.
type sharedCount struct{ words *[2]atomic.Int64 } // how many now, and the most there have been

const sharedCountBytes = 16

// openSharedCount opens the file of a count, and makes it where there is none.
func openSharedCount(file string) (*sharedCount, error) {
	f, err := os.OpenFile(filepath.Clean(file), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }() // the mapping stays
	if err := f.Truncate(sharedCountBytes); err != nil {
		return nil, err
	}
	raw, err := syscall.Mmap(int(f.Fd()), 0, sharedCountBytes, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	return &sharedCount{(*[2]atomic.Int64)(unsafe.Pointer(&raw[0]))}, nil // a page begins at a multiple of eight
}

func (c *sharedCount) add(n int64) {
	now := c.words[0].Add(n)
	for {
		peak := c.words[1].Load()
		if now <= peak || c.words[1].CompareAndSwap(peak, now) {
			return
		}
	}
}

func (c *sharedCount) peak() int { return int(c.words[1].Load()) }
