package store

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"rea/evidence"
	"rea/evidence/fault"
)

// maxLeaseName bounds the name that a caller chooses.
const maxLeaseName = 128

// Lease protects records from eviction while its process lives; the kernel ends it with the process. It is an
// evidence.Retainer and safe for concurrent use. End it with Close.
type Lease struct {
	store *Store
	path  string

	mu   sync.Mutex
	file *os.File // nil when closed
	held map[string]bool
}

// Lease takes a lease of this name (letters, digits, -, _ and .), one for each connection or process. A name that a
// living process holds is revision_conflict.
func (s *Store) Lease(id string) (*Lease, error) {
	if !validLeaseName(id) {
		return nil, fault.New(fault.ExecutionFailure, fmt.Sprintf("A lease of the Evidence store cannot be named %q.", id),
			"Use letters, digits and - only.")
	}
	unlock, err := s.lock(unix.LOCK_SH) // a collection tries the locks of dead leases
	if err != nil {
		return nil, storage("take a lease", err)
	}
	defer unlock()
	path := filepath.Join(s.dir, leasesDir, id)
	for {
		f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_APPEND|unix.O_NOFOLLOW, fileMode)
		if err != nil {
			return nil, storage("take a lease", err)
		}
		err = flock(f, unix.LOCK_EX|unix.LOCK_NB)
		switch {
		case err == unix.EWOULDBLOCK:
			f.Close()
			return nil, fault.New(fault.RevisionConflict, fmt.Sprintf("The lease %q of the Evidence store is held by a living process.", id),
				"Choose another name.")
		case err != nil:
			f.Close()
			return nil, storage("take a lease", err)
		case !samePlace(f, path): // its last owner closed it between open and lock
			f.Close()
			continue
		}
		l := &Lease{store: s, path: path, file: f, held: map[string]bool{}}
		if err := l.Release(); err != nil { // what a dead owner left
			_ = l.Close() // the lease is given up: its failure is told
			return nil, err
		}
		return l, nil
	}
}

func validLeaseName(id string) bool {
	const allowed = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_."
	return id != "" && len(id) <= maxLeaseName && id[0] != '.' && strings.Trim(id, allowed) == ""
}

// Retain implements evidence.Retainer: the record is kept, with its payloads on disk, and protected.
func (l *Lease) Retain(ctx context.Context, r *evidence.Record) (*evidence.Record, error) {
	return l.store.put(ctx, r, l)
}

// add lists an ID. The caller holds the store's lock, shared.
func (l *Lease) add(id string) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.file == nil {
		return fs.ErrClosed
	}
	if l.held[id] {
		return nil
	}
	if _, err := l.file.WriteString(id + "\n"); err != nil {
		return err
	}
	l.held[id] = true
	return nil
}

// Release lets go of every record; the lease stays.
func (l *Lease) Release() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.file == nil {
		return nil
	}
	clear(l.held)
	return storage("release a lease", l.file.Truncate(0))
}

// Close ends the lease. Closing it again does nothing.
func (l *Lease) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.file == nil {
		return nil
	}
	err := errors.Join(os.Remove(l.path), l.file.Close())
	l.file = nil
	return storage("end a lease", err)
}

// leased lists what living processes protect and, unless dry, removes the leases of dead ones. The caller holds the
// store's lock, exclusive, so that no list is read while it grows.
func (s *Store) leased(dry bool) (ids map[string]bool, removed int, err error) {
	dir := filepath.Join(s.dir, leasesDir)
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, 0, err
	}
	ids = map[string]bool{}
	for _, e := range entries {
		path := filepath.Join(dir, e.Name())
		f, err := dead(path)
		if err != nil {
			return nil, removed, err
		}
		if f == nil {
			if err := readLease(path, ids); err != nil {
				return nil, removed, err
			}
			continue
		}
		if !dry {
			err = os.Remove(path)
		}
		if err := errors.Join(err, f.Close()); err != nil {
			return nil, removed, err
		}
		removed++
	}
	return ids, removed, nil
}

func readLease(path string, ids map[string]bool) error {
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil // closed since
	}
	if err != nil {
		return err
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		if id := lines.Text(); evidence.ValidID(id) {
			ids[id] = true
		}
	}
	return lines.Err()
}
