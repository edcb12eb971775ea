// Package store keeps Evidence under a directory: content-addressed blobs, an envelope for each record that names
// its blobs, and beside it the record of the run that made it.
//
// Everything appears atomically under its final name, so that a reader never sees a part and a kill at any point
// leaves at most a temporary file, which a later collection removes. Several processes may share one store. What the
// lease of a living process lists is never evicted; the rest falls under a budget. Package store must not interpret
// what it keeps.
//
// Below the directory:
//
//	blobs/aa/<sha256>       content
//	records/aa/ev_<hex>     envelope of a record
//	runs/aa/ev_<hex>        run record, JSON
//	leases/<id>             IDs that a process protects; its flock says that the process lives
//	tmp/                    files being written; a flock says that the writer lives
//	lock                    shared while something is published, exclusive while something is removed
//	gc.lock                 held by the one collector
package store

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"rea/evidence"
	"rea/evidence/fault"
)

// Defaults of Options.
const (
	// DefaultFloor is kept even when the disk is short of space: some days of ordinary comparisons, without which
	// the store would be of no use at all.
	DefaultFloor = 256 << 20
	// DefaultCeiling is the most that the store keeps: room for hundreds of large inventories, and little on a disk
	// of today.
	DefaultCeiling = 10 << 30
	// DefaultFreeTarget is left free on the file system: what the engine and the user's own programs need to go on.
	DefaultFreeTarget = 2 << 30
	// DefaultGrace is how long something is kept that no lease lists: longer than any run needs from the first blob
	// that it commits to the record that names it.
	DefaultGrace = 2 * time.Hour
)

const (
	dirMode  = 0o700
	fileMode = 0o600

	blobsDir   = "blobs"
	recordsDir = "records"
	runsDir    = "runs"
	leasesDir  = "leases"
	tempDir    = "tmp"
	lockName   = "lock"
	gcLockName = "gc.lock"
)

// Options is the retention budget. Zero means the default; a negative value means none.
type Options struct {
	Floor      int64         // bytes that a collection leaves
	Ceiling    int64         // bytes above which a collection evicts
	FreeTarget int64         // bytes that a collection tries to keep free on the file system
	Grace      time.Duration // age below which nothing is evicted
}

func (o Options) withDefaults() Options {
	size := func(v, d int64) int64 {
		if v == 0 {
			return d
		}
		return max(v, 0)
	}
	o.Floor = size(o.Floor, DefaultFloor)
	o.Ceiling = size(o.Ceiling, DefaultCeiling)
	o.FreeTarget = size(o.FreeTarget, DefaultFreeTarget)
	o.Grace = time.Duration(size(int64(o.Grace), int64(DefaultGrace)))
	return o
}

// Store is one store. It holds no descriptor between calls and is safe for concurrent use.
type Store struct {
	dir    string
	o      Options
	proved proofs
}

// Open opens the store under dir and makes it if it is not there. The directory becomes private to its owner; one
// that belongs to another user is access_denied, one that cannot be a store is configuration_invalid.
func Open(dir string, o Options) (*Store, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, storage("open the store", err)
	}
	for _, sub := range []string{blobsDir, recordsDir, runsDir, leasesDir, tempDir} {
		if err := os.MkdirAll(filepath.Join(dir, sub), dirMode); err != nil {
			return nil, storage("create the store's directories", err)
		}
	}
	info, err := os.Stat(dir)
	if err != nil {
		return nil, storage("open the store", err)
	}
	if owner := info.Sys().(*syscall.Stat_t).Uid; int(owner) != os.Geteuid() {
		return nil, fault.New(fault.AccessDenied, fmt.Sprintf("The Evidence store %s belongs to another user.", dir),
			"Choose a state directory of your own.").
			WithAll(fault.Details{"operation": "open_store", "path": dir, "boundary": "filesystem-write"})
	}
	if info.Mode().Perm() != dirMode {
		if err := os.Chmod(dir, dirMode); err != nil {
			return nil, storage("make the store private", err)
		}
	}
	if err := unix.Faccessat(unix.AT_FDCWD, filepath.Join(dir, tempDir), unix.W_OK, unix.AT_EACCESS); err != nil {
		return nil, storage("take new content", err)
	}
	return &Store{dir: dir, o: o.withDefaults()}, nil
}

// storage turns an error of the file system into the taxonomy's. What already belongs to it, and the end of a
// context, pass.
func storage(doing string, err error) error {
	var known *fault.Error
	switch {
	case err == nil || errors.As(err, &known):
		return err
	case errors.Is(err, unix.ENOSPC), errors.Is(err, unix.EDQUOT), errors.Is(err, unix.EFBIG):
		return fault.New(fault.ResourceConstraint, "The Evidence store has no room to "+doing+".",
			"Free space on its file system, or run rea gc, and repeat the call.").
			WithAll(fault.Details{"operation": "evidence_store", "resource": "storage", "reason": "no-space", "reported_limits": nil}).
			Because(err)
	case errors.Is(err, fs.ErrPermission):
		return fault.New(fault.AccessDenied, "The Evidence store may not "+doing+".",
			"Give the user of rea write access to the state directory, or choose another.").
			WithAll(fault.Details{"operation": "evidence_store", "boundary": "filesystem-write"}).Because(err)
	}
	for _, u := range unfit {
		if errors.Is(err, u.errno) {
			return fault.New(fault.ConfigurationInvalid, "The state directory cannot be used: "+u.constraint+". The Evidence store could not "+doing+".",
				"Set "+setting+" to a directory of your own on a local disk.").
				With("settings", []map[string]string{{"setting": setting, "constraint": u.constraint}}).Because(err)
		}
	}
	return fmt.Errorf("%s: %w", doing, err)
}

// setting is the configuration variable that names the state directory, in which the store lies.
const setting = "REA_STATE_DIR"

// unfit are the errors of the file system that say that a directory cannot hold a store. The path itself is not
// repeated: a setting's value never is.
var unfit = []struct {
	errno      unix.Errno
	constraint string
}{
	{unix.EROFS, "its file system is read-only"},
	{unix.ENOTDIR, "something on the way to it, or in it, is not a directory"},
	{unix.EEXIST, "something in it is not a directory"},
	{unix.EISDIR, "a directory in it stands where a file should be"},
	{unix.ENOENT, "it, or something in it, does not exist or was removed while it was used"},
	{unix.ELOOP, "symbolic links on the way to it, or in it, lead nowhere"},
	{unix.ENAMETOOLONG, "its path is too long"},
	{unix.EINVAL, "its path cannot be one of a file"},
}

func (s *Store) path(kind, name string) string {
	return filepath.Join(s.dir, kind, shard(name), name)
}

// shard is two digits of the digest, so that no directory grows without bound.
func shard(name string) string { return strings.TrimPrefix(name, "ev_")[:2] }

func validDigest(s string) bool { return evidence.ValidID("ev_" + s) }

// damaged is the failure of content that is not what its name says.
func damaged(what, reason string) *fault.Error {
	return fault.New(fault.EvidenceIntegrityMismatch, fmt.Sprintf("The Evidence store is damaged: its %s is not what it was, %s.", what, reason),
		"Run rea gc --verify, which removes what is damaged, and then the producer again. If it happens again, check the disk.").With("reason", reason)
}

// Blob returns stored content by its digest. Opening it is what compares the content.
func (s *Store) Blob(sha256 string) (evidence.Blob, error) {
	if !validDigest(sha256) {
		return nil, missing("content", sha256, nil)
	}
	path := s.path(blobsDir, sha256)
	info, err := os.Lstat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, missing("content", sha256, err)
	case err != nil:
		return nil, storage("look up content", err)
	case !info.Mode().IsRegular():
		return nil, damaged("blob "+sha256, "not a regular file")
	}
	return &blob{store: s, sha256: sha256, size: info.Size()}, nil
}

func missing(what, name string, cause error) error {
	return fault.New(fault.EvidenceIntegrityMismatch, fmt.Sprintf("The Evidence store does not hold the %s %q.", what, name),
		"Run its producer again, or import a bundle that holds it.").
		WithAll(fault.Details{"evidence_id": name, "reason": string(evidence.ReferenceMissing), "expected": "retained " + what, "actual": nil}).
		Because(cause)
}

// blob is a file of the store.
type blob struct {
	store  *Store
	sha256 string
	size   int64
}

func (b *blob) SHA256() string { return b.sha256 }
func (b *blob) Size() int64    { return b.size }

// Open refuses content whose size or digest is not the blob's. What this process has written or compared before, and
// nobody has changed since, is not compared again.
func (b *blob) Open() (io.ReadCloser, error) {
	f, err := os.OpenFile(b.store.path(blobsDir, b.sha256), os.O_RDONLY|unix.O_NOFOLLOW, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, missing("content", b.sha256, err)
	}
	if err != nil {
		return nil, storage("read content", err)
	}
	if err := b.compare(f); err != nil {
		f.Close()
		return nil, storage("read content", err)
	}
	return f, nil
}
