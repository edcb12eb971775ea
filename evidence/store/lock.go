package store

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// flock waits for or tries a lock on an open file; the lock goes with the descriptor.
func flock(f *os.File, how int) error {
	for {
		err := unix.Flock(int(f.Fd()), how)
		if err != unix.EINTR {
			return err
		}
	}
}

// lock takes the store's lock, shared to publish or exclusive to remove. It is held for a few system calls only,
// so waiting for it is not bound to a context. Each call has a descriptor of its own: a flock belongs to it.
func (s *Store) lock(how int) (unlock func(), err error) {
	f, err := os.OpenFile(filepath.Join(s.dir, lockName), os.O_RDWR|os.O_CREATE, fileMode)
	if err != nil {
		return nil, err
	}
	if err := flock(f, how); err != nil {
		f.Close()
		return nil, err
	}
	return func() { f.Close() }, nil
}

// dead opens a file whose owner holds a flock while it lives, and takes that lock. It returns nil if the owner
// lives, or if the file that was locked is no longer the one at path.
func dead(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDWR|unix.O_NOFOLLOW, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	err = flock(f, unix.LOCK_EX|unix.LOCK_NB)
	if err == nil && samePlace(f, path) {
		return f, nil
	}
	f.Close()
	if err == unix.EWOULDBLOCK {
		err = nil
	}
	return nil, err
}

// samePlace reports whether the open file is still the one at path.
func samePlace(f *os.File, path string) bool {
	open, err := f.Stat()
	if err != nil {
		return false
	}
	there, err := os.Lstat(path)
	return err == nil && os.SameFile(open, there)
}
