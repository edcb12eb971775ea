package report

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"rea/evidence"
	"rea/evidence/fault"
	"rea/orchestrator/session"
	"rea/providers/versions"
)

// Names in an exported directory.
const (
	bundleFile = "bundle.json"
	runsDir    = "runs"
)

// Runs gives the run record of an Evidence record, JSON; evidence/store has it.
type Runs interface {
	Run(evidenceID string) ([]byte, error)
}

// CheckExport refuses a destination that Export could not make, before any work is done.
func CheckExport(dir string) error {
	if _, err := os.Lstat(dir); err == nil {
		return exportFault(dir, fs.ErrExist)
	} else if !errors.Is(err, fs.ErrNotExist) {
		return exportFault(dir, err)
	}
	if info, err := os.Stat(filepath.Dir(dir)); err != nil {
		return exportFault(dir, err)
	} else if !info.IsDir() {
		return exportFault(dir, fs.ErrNotExist)
	}
	return nil
}

// Export writes a comparison to a directory that must not exist: bundle.json with the inventories, the comparisons
// and the record that sums them up, and for each inventory runs/<evidence_id>.json, which says how it was made. The
// directory appears complete or not at all.
func Export(ctx context.Context, dir string, v session.Versions, runs Runs) (err error) {
	dir, err = filepath.Abs(dir)
	if err != nil {
		return exportFault(dir, err)
	}
	staging, err := os.MkdirTemp(filepath.Dir(dir), ".rea-export-")
	if err != nil {
		return exportFault(dir, err)
	}
	defer func() {
		if rerr := os.RemoveAll(staging); rerr != nil && err == nil {
			err = exportFault(dir, rerr)
		}
	}()
	tree := filepath.Join(staging, "tree")
	if err := fill(ctx, tree, v, runs); err != nil {
		return exportFault(dir, err)
	}
	err = unix.Renameat2(unix.AT_FDCWD, tree, unix.AT_FDCWD, dir, unix.RENAME_NOREPLACE)
	return exportFault(dir, err)
}

// fill writes the files of an exported directory.
func fill(ctx context.Context, tree string, v session.Versions, runs Runs) error {
	if err := os.MkdirAll(filepath.Join(tree, runsDir), 0o755); err != nil {
		return err
	}
	if err := writeBundle(ctx, filepath.Join(tree, bundleFile), v); err != nil {
		return err
	}
	for _, r := range []*evidence.Record{v.Old, v.New} {
		raw, err := runs.Run(r.ID)
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(tree, runsDir, r.ID+".json"), append(raw, '\n'), 0o644); err != nil {
			return err
		}
	}
	return nil
}

func writeBundle(ctx context.Context, path string, v session.Versions) (err error) {
	records := []*evidence.Record{v.Old, v.New, v.Record}
	if v.Old.ID == v.New.ID {
		records = records[1:]
	}
	for _, c := range v.Comparisons {
		records = append(records, c.Evidence)
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	w := bufio.NewWriter(f)
	if _, err := evidence.WriteBundle(ctx, w, records, nil); err != nil {
		return err
	}
	return w.Flush()
}

// exportFault is the failure of a directory that is written, by the contract's catalogue for files.
func exportFault(dir string, err error) error {
	var f *fault.Error
	if err == nil || errors.As(err, &f) {
		return err
	}
	shown := Printable(dir)
	details := fault.Details{"operation": "write", "path": shown}
	switch {
	case errors.Is(err, fs.ErrExist):
		return fault.New(fault.InvalidRequest, fmt.Sprintf("The output directory %s exists already.", shown),
			"Name a directory that does not exist yet; nothing is ever overwritten.").WithAll(details).With("reason", "exists").Because(err)
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, unix.ENOTDIR):
		return fault.New(fault.InvalidRequest, fmt.Sprintf("The output directory %s has no parent directory.", shown),
			"Make the parent directory first.").WithAll(details).With("reason", "missing").Because(err)
	case errors.Is(err, fs.ErrPermission):
		return fault.New(fault.AccessDenied, fmt.Sprintf("The output directory %s cannot be written.", shown),
			"Name a directory in a place that this user may write to.").WithAll(fault.Details{"operation": versions.Operation, "path": shown}).Because(err)
	case errors.Is(err, unix.ENOSPC), errors.Is(err, unix.EDQUOT):
		return fault.New(fault.ResourceConstraint, fmt.Sprintf("The file system of %s is full.", shown), "Free space there, or name a directory elsewhere.").
			WithAll(fault.Details{"operation": versions.Operation, "resource": "storage", "reason": "no space left", "reported_limits": nil}).Because(err)
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return fault.From(err)
	}
	return fault.New(fault.ExecutionFailure, fmt.Sprintf("The output directory %s could not be written.", shown), "Look at the file system of the directory.").
		WithAll(details).With("reason", "io").Because(err)
}
