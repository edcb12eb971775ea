package clients

import (
	"bytes"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"rea/evidence/fault"
)

// Limits of what is read. Claude Code keeps its whole state, histories of projects included, in the file that holds its
// servers; tens of MB are seen. TOML is held as a tree, and nobody writes a MB of it by hand.
const (
	maxJSON = 64 << 20
	maxTOML = 1 << 20
)

func (f Format) limit() int64 {
	if f == TOML {
		return maxTOML
	}
	return maxJSON
}

// snapshot is a file as it was read.
type snapshot struct {
	path string
	info fs.FileInfo // nil: there is none
	text []byte
}

// load reads a file, of at most limit bytes. A file that is not there is no error; a directory, a pipe or a device is.
func load(path string, limit int64) (snapshot, error) {
	s := snapshot{path: path}
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0) // a pipe without a writer must not hold us up
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) {
		return s, nil
	}
	if err != nil {
		return s, refused(path, "cannot be read", err)
	}
	defer f.Close()
	info, err := f.Stat()
	switch {
	case err != nil:
		return s, refused(path, "cannot be read", err)
	case !info.Mode().IsRegular():
		return s, unusable(path, "is not a regular file", "Put a file in its place, or remove it.")
	case info.Size() > limit:
		return s, tooLarge(path, limit)
	}
	var b bytes.Buffer
	n, err := io.Copy(&b, io.LimitReader(f, limit+1))
	switch {
	case err != nil:
		return s, refused(path, "cannot be read", err)
	case n > limit:
		return s, tooLarge(path, limit)
	}
	s.info, s.text = info, b.Bytes()
	return s, nil
}

// editable reports why the file may not be replaced: a link would be cut, and a file without write permission is meant
// to stay.
func (s snapshot) editable() error {
	info, err := os.Lstat(s.path)
	switch {
	case errors.Is(err, fs.ErrNotExist) && s.info == nil:
		return nil
	case err != nil:
		return refused(s.path, "cannot be examined", err)
	case info.Mode()&fs.ModeSymlink != 0:
		return unusable(s.path, "is a symbolic link, which an edit would replace by a file",
			"Edit the file that it points to by hand, or put a file in the place of the link.")
	case s.info == nil || !os.SameFile(info, s.info):
		return changed(s.path)
	case info.Mode().Perm()&0o200 == 0:
		return denied(s.path, "is write-protected", syscall.EACCES)
	}
	return nil
}

// replace puts text in the place of the file as it was read, whole or not at all, with its mode and owner, and returns
// the path of the backup, "" where there was nothing to keep.
func (s snapshot) replace(text []byte, now time.Time) (backup string, err error) {
	dir, base := filepath.Split(s.path)
	if s.info == nil {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return "", refused(dir, "cannot be made", err)
		}
	}
	root, err := os.OpenRoot(dir) // from here on everything happens in this directory, whatever becomes of its path
	if err != nil {
		return "", refused(dir, "cannot be opened", err)
	}
	defer func() { _ = root.Close() }() // it was only looked through
	staged := "." + base + ".rea-" + randomName()
	if err := s.write(root, staged, text); err != nil {
		return "", err
	}
	defer func() {
		if err != nil {
			_ = root.Remove(staged)
		}
	}()
	if err := s.editable(); err != nil {
		return "", err
	}
	if s.info == nil {
		err = root.Link(staged, base) // fails where a file has appeared
		if errors.Is(err, fs.ErrExist) {
			return "", changed(s.path)
		}
		if err != nil {
			return "", refused(s.path, "cannot be written", err)
		}
		_ = root.Remove(staged)
		syncDir(root)
		return "", nil
	}
	name := base + ".rea-backup-" + now.UTC().Format("20060102T150405.000Z")
	if err := s.write(root, name, s.text); err != nil {
		return "", err
	}
	if err := s.unchanged(root, base); err != nil {
		_ = root.Remove(name)
		return "", err
	}
	if err := root.Rename(staged, base); err != nil {
		_ = root.Remove(name)
		return "", refused(s.path, "cannot be written", err)
	}
	syncDir(root)
	return filepath.Join(dir, name), nil
}

// unchanged reports whether the file is still the one that was read. A client that writes its state at this instant
// would otherwise lose it.
func (s snapshot) unchanged(root *os.Root, base string) error {
	info, err := root.Lstat(base)
	if err != nil || !os.SameFile(info, s.info) || !info.ModTime().Equal(s.info.ModTime()) || info.Size() != s.info.Size() {
		return changed(s.path)
	}
	return nil
}

// write makes a new file with the mode and owner of the one that was read.
func (s snapshot) write(root *os.Root, name string, text []byte) (err error) {
	at := filepath.Join(root.Name(), name)
	f, err := root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return refused(at, "cannot be made", err)
	}
	defer func() {
		if cerr := f.Close(); err == nil && cerr != nil {
			err = refused(at, "cannot be written", cerr)
		}
		if err != nil {
			_ = root.Remove(name)
		}
	}()
	if _, err := f.Write(text); err != nil {
		return refused(at, "cannot be written", err)
	}
	if s.info != nil {
		if was, ok := s.info.Sys().(*syscall.Stat_t); ok && !owned(f, was) {
			if err := f.Chown(int(was.Uid), int(was.Gid)); err != nil {
				return refused(at, "cannot get the owner of the file that it replaces", err)
			}
		}
		if err := f.Chmod(s.info.Mode().Perm()); err != nil {
			return refused(at, "cannot get the mode of the file that it replaces", err)
		}
	}
	if err := f.Sync(); err != nil {
		return refused(at, "cannot be written", err)
	}
	return nil
}

// owned reports whether a file has this owner and group already.
func owned(f *os.File, was *syscall.Stat_t) bool {
	info, err := f.Stat()
	if err != nil {
		return false
	}
	is, ok := info.Sys().(*syscall.Stat_t)
	return ok && is.Uid == was.Uid && is.Gid == was.Gid
}

// syncDir asks for the names to be on disk. What it answers changes nothing: the file is in its place, and read back.
func syncDir(root *os.Root) {
	d, err := root.Open(".")
	if err != nil {
		return
	}
	defer d.Close()
	_ = d.Sync()
}

func randomName() string {
	var b [8]byte
	_, _ = rand.Read(b[:]) // it does not fail
	return hex.EncodeToString(b[:])
}

// Failures. Each says what is the matter with which file, and nothing of what stands in it.

func clean(path string) string { return strings.ToValidUTF8(path, "\uFFFD") }

func refused(path, what string, err error) *fault.Error {
	if errors.Is(err, fs.ErrPermission) || errors.Is(err, syscall.EROFS) {
		return denied(path, what, err)
	}
	return fault.New(fault.ExecutionFailure, fmt.Sprintf("%s %s.", clean(path), what), "Look at the file and its directory, and repeat the command.").
		With("path", clean(path)).Because(err)
}

func denied(path, what string, err error) *fault.Error {
	return fault.New(fault.AccessDenied, fmt.Sprintf("%s %s.", clean(path), what), "Give this user access to the file and its directory, and repeat the command.").
		With("path", clean(path)).Because(err)
}

func unusable(path, what, action string) *fault.Error {
	return fault.New(fault.ConfigurationInvalid, fmt.Sprintf("%s %s.", clean(path), what), action).With("path", clean(path))
}

func tooLarge(path string, limit int64) *fault.Error {
	return unusable(path, fmt.Sprintf("is larger than the %d bytes that are read of such a file", limit), "Make it smaller, or edit it by hand.")
}

func changed(path string) *fault.Error {
	return fault.New(fault.ArtifactChanged, clean(path)+" was changed while it was edited; nothing was written.", "Close the client, and repeat the command.").
		With("path", clean(path))
}
