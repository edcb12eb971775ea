// Package portable reads and writes the files in which Evidence travels between connections and machines: bundles,
// and later snapshots. A file appears complete under its name or not at all, and what is read is a regular file.
//
// It knows nothing of what the files hold.
package portable

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"rea/evidence"
	"rea/evidence/fault"
)

const (
	// stagingPrefix begins the name of the directory in which a file is prepared, beside its destination so that it can
	// be moved there in one step.
	stagingPrefix = ".rea-write-"
	// stagingFile is the file in it.
	stagingFile = "file"
	// fileMode keeps Evidence, which quotes its targets, to the user that wrote it.
	fileMode = 0o600
	// chunk is what is written between two looks at the context.
	chunk = 64 << 10
)

// Receipt says what a Publish left.
type Receipt struct {
	Path    string // canonical destination
	Bytes   int64  // its size
	Staging string // a directory of ours that could not be removed: the caller owns it; "" for none
}

// Operations as failures name them.
const (
	opRead  = "read"
	opWrite = "write"
)

// Open opens a file to be read. Links are followed; what is behind them must be a regular file.
func Open(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK, 0) // a pipe must not make the open wait
	if err != nil {
		return nil, failure(opRead, path, err)
	}
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = errNotFile
	}
	if err != nil {
		_ = f.Close()
		return nil, failure(opRead, path, err)
	}
	return f, nil
}

// Publish makes the file at path, an absolute path, with what write gives. Without overwrite a name that is taken fails
// as exists, also when it is taken meanwhile. When ctx ends, nothing of the file stays. An error can come with a
// receipt: Staging is set where cleaning up failed, and then the error is cleanup_incomplete, with published and the
// receipt in its details where the file is there nevertheless.
func Publish(ctx context.Context, path string, overwrite bool, write func(w io.Writer) error) (Receipt, error) {
	return publisher{os.RemoveAll}.publish(ctx, path, overwrite, write)
}

// publisher has what a test must be able to let fail.
type publisher struct {
	remove func(string) error
}

func (p publisher) publish(ctx context.Context, path string, overwrite bool, write func(w io.Writer) error) (Receipt, error) {
	r := Receipt{}
	parent, err := filepath.EvalSymlinks(filepath.Dir(path))
	if err != nil {
		return r, failure(opWrite, path, err)
	}
	r.Path = filepath.Join(parent, filepath.Base(path))
	if err := admit(r.Path, overwrite); err != nil {
		return r, failure(opWrite, path, err)
	}
	staging, err := os.MkdirTemp(parent, stagingPrefix)
	if err != nil {
		return r, failure(opWrite, path, err)
	}
	r.Bytes, err = stage(ctx, filepath.Join(staging, stagingFile), write)
	if err == nil {
		err = place(filepath.Join(staging, stagingFile), r.Path, parent, overwrite)
	}
	published := err == nil
	if rerr := p.remove(staging); rerr != nil {
		r.Staging = staging
		return r, incomplete(r, published, err, rerr)
	}
	return r, failure(opWrite, path, err)
}

var errNotFile = errors.New("not a regular file")

// admit looks at the destination before any work is done.
func admit(path string, overwrite bool) error {
	info, err := os.Lstat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return err
	case !info.Mode().IsRegular():
		return errNotFile
	case !overwrite:
		return fs.ErrExist
	}
	return nil
}

// stage writes the file and flushes it to the disk.
func stage(ctx context.Context, path string, write func(w io.Writer) error) (n int64, err error) {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, fileMode)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	w := bufio.NewWriterSize(evidence.ContextWriter(ctx, f), chunk)
	if err := write(w); err != nil {
		var own *fs.PathError
		if errors.As(err, &own) && own.Path == path {
			return 0, err
		}
		return 0, fault.From(err) // of what is written, not of the file
	}
	if err := w.Flush(); err != nil {
		return 0, err
	}
	if err := f.Sync(); err != nil {
		return 0, err
	}
	info, err := f.Stat()
	if err != nil {
		return 0, err
	}
	if ctx.Err() != nil { // the last look: from here on it is published
		return 0, context.Cause(ctx)
	}
	return info.Size(), nil
}

// place gives the staged file its name, and the name to the disk.
func place(staged, path, parent string, overwrite bool) error {
	var err error
	if overwrite {
		err = os.Rename(staged, path)
	} else {
		err = os.Link(staged, path) // fails where the name is taken
	}
	if err != nil {
		return err
	}
	dir, err := os.Open(parent)
	if err != nil {
		return nil // it is published; only a loss of power could still take the name
	}
	defer dir.Close()
	_ = dir.Sync()
	return nil
}

// incomplete is the failure of a Publish that could not clean up behind itself.
func incomplete(r Receipt, published bool, err, removal error) error {
	f := fault.New(fault.CleanupIncomplete, fmt.Sprintf("A staging directory beside %s could not be removed.", shown(r.Path)),
		"Remove the directory "+shown(r.Staging)+", or give rea access to it: closing the session tries again.").WithAll(fault.Details{
		"operation": opWrite, "cleanup": "incomplete", "resources": []string{"staging_directory"}, "cleanup_reason": plain(removal)}).Because(removal)
	if published {
		return f.WithAll(fault.Details{"published": true, "published_path": shown(r.Path), "bytes": r.Bytes})
	}
	primary := fault.From(failure(opWrite, r.Path, err))
	return f.InCategory(primary.Category).With("execution_failure", string(primary.Code))
}

// failure is the EvidenceFile failure of the runtime contract.
func failure(operation, path string, err error) error {
	var f *fault.Error
	if err == nil || errors.As(err, &f) {
		return err
	}
	details := fault.Details{"operation": operation, "path": shown(path)}
	refuse := func(reason, what, action string) error {
		return fault.New(fault.InvalidRequest, fmt.Sprintf("The file %s %s.", shown(path), what), action).WithAll(details).With("reason", reason).Because(err)
	}
	switch {
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return fault.From(err)
	case errors.Is(err, errNotFile):
		return refuse("not-file", "is not a regular file", "Name a regular file, or one that does not exist yet.")
	case errors.Is(err, fs.ErrExist):
		return refuse("exists", "exists already", "Choose another path, or pass overwrite to replace the file.")
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, unix.ENOTDIR):
		what, action := "is not there", "Pass the absolute path of an exported bundle."
		if operation == opWrite {
			what, action = "has no directory to stand in", "Make the directory first, or choose another path."
		}
		return refuse("missing", what, action)
	case errors.Is(err, fs.ErrPermission):
		code := "EACCES"
		if errors.Is(err, unix.EPERM) {
			code = "EPERM"
		}
		return fault.New(fault.AccessDenied, fmt.Sprintf("The user that runs rea may not %s %s.", operation, shown(path)),
			"Give this user access to the file and to its directory, or choose another path.").WithAll(details).
			With("system_code", code).With("boundary", "filesystem-"+operation).Because(err)
	case errors.Is(err, unix.ENOSPC), errors.Is(err, unix.EDQUOT):
		return fault.New(fault.ResourceConstraint, fmt.Sprintf("The file system of %s is full.", shown(path)), "Free space there, or choose another path.").
			WithAll(fault.Details{"operation": operation, "resource": "storage", "reason": "no space left", "reported_limits": nil}).Because(err)
	}
	return fault.New(fault.ExecutionFailure, fmt.Sprintf("The file %s could not be %s: %s.", shown(path), map[string]string{opRead: "read", opWrite: "written"}[operation], plain(err)),
		"Look at the file system of the path, or choose another one.").WithAll(details).With("reason", "io").Because(err)
}

// plain is the system's own text for a failed call, without the path.
func plain(err error) string {
	var no syscall.Errno
	if errors.As(err, &no) {
		return no.Error()
	}
	return "the system refused"
}

// shown is a path as text: an error must encode as JSON, and a file name need not be UTF-8.
func shown(path string) string { return strings.ToValidUTF8(path, "\uFFFD") }
