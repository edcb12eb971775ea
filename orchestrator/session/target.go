package session

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"rea/evidence/fault"
	"rea/orchestrator/catalog"
)

// bundleSuffixes are the Apple bundle directories that open as a target.
var bundleSuffixes = []string{".app", ".appex", ".framework", ".xpc", ".systemextension", ".bundle", ".plugin"}

// otherBundleSuffixes are bundle directories of macOS that are known and do not open.
var otherBundleSuffixes = []string{".kext", ".dext", ".prefpane", ".saver", ".qlgenerator", ".mdimporter", ".component", ".driver",
	".docset", ".dsym", ".xcarchive", ".xctest", ".pkg", ".mpkg", ".lproj"}

// admitTarget applies the admission rule of open_binary: a regular file, or one of the listed bundle directories.
// Whatever it is told again by the run, which binds the target by descriptor; this is for a clear refusal.
func admitTarget(operation, path string) error {
	info, err := stat(operation, path)
	if err != nil || !info.IsDir() {
		return err
	}
	suffix := strings.ToLower(filepath.Ext(filepath.Clean(path)))
	switch {
	case contains(bundleSuffixes, suffix):
		return nil
	case contains(otherBundleSuffixes, suffix):
		return fault.New(fault.UnsupportedTarget, fmt.Sprintf("%s cannot open %s: bundles of type %s are not supported.", operation, shown(path), suffix),
			"Call inspect_artifact with path to take stock of the directory, or open an executable inside it.").WithAll(fault.Details{
			"operation": operation, "path": shown(path), "reason": "unsupported bundle type " + suffix})
	}
	return fault.New(fault.TargetUnavailable, fmt.Sprintf("%s needs a file, and %s is a directory.", operation, shown(path)),
		"Call inspect_artifact with path (on the command line: rea inspect-artifact) for a directory, or open a file inside it.").WithAll(fault.Details{
		"path": shown(path), "reason": "is a directory", "constraint": "directory_requires_file"})
}

// admitPath admits any regular file or directory.
func admitPath(operation, path string) error {
	_, err := stat(operation, path)
	return err
}

// stat finds out what path is, without opening it, and refuses what no run can read.
func stat(operation, path string) (fs.FileInfo, error) {
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrPermission):
		return nil, fault.New(fault.AccessDenied, fmt.Sprintf("%s may not read %s.", operation, shown(path)),
			"Give the user that runs rea read access to the path and search access to its directories.").WithAll(fault.Details{
			"operation": operation, "path": shown(path), "reason": "permission denied", "system_code": systemCode(err), "boundary": "filesystem-read"}).Because(err)
	case errors.Is(err, fs.ErrNotExist):
		return nil, unusable(operation, path, "does not exist").Because(err)
	case err != nil:
		return nil, unusable(operation, path, "cannot be examined: "+plainCause(err)).Because(err)
	case !info.IsDir() && !info.Mode().IsRegular():
		return nil, unusable(operation, path, "is neither a regular file nor a directory")
	}
	return info, nil
}

func unusable(operation, path, reason string) *fault.Error {
	return fault.New(fault.TargetUnavailable, fmt.Sprintf("%s cannot use %s: it %s.", operation, shown(path), reason),
		"Pass the absolute path of a file or directory that is there.").WithAll(fault.Details{"path": shown(path), "reason": reason})
}

func noTarget() *fault.Error {
	return fault.New(fault.TargetUnavailable, "No target is open.", "Call "+catalog.OpenBinary+" first, or pass path.")
}

func systemCode(err error) string {
	if errors.Is(err, syscall.EPERM) {
		return "EPERM"
	}
	return "EACCES"
}

// plainCause is the system's own text for a failed call, without the path.
func plainCause(err error) string {
	var pe *fs.PathError
	if errors.As(err, &pe) {
		return pe.Err.Error()
	}
	return "the system refused"
}

// shown is a path as text: an error must encode as JSON, and a file name need not be UTF-8.
func shown(path string) string { return strings.ToValidUTF8(path, "\uFFFD") }
