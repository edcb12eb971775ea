package staging

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"rea/evidence/fault"
)

// TargetOptions says what a target must not be.
type TargetOptions struct {
	// Refuse lists directories that no target may be, hold or lie in, beside the built-in ones: the state directory,
	// the engine's data root.
	Refuse []string
}

// Target is an open, checked source. Close it when its last mount is gone.
type Target struct {
	File        *os.File    // O_PATH descriptor
	Path        string      // canonical path at the time of opening, for people and for engines that take no mount
	Dir         bool        // a directory; otherwise a regular file
	UID, GID    uint32      // owner
	Private     bool        // others may not read it (or search it, for a directory); access lists are not looked at
	Limitations []string    // what is less certain about it, for people
	Stat        unix.Stat_t // of the descriptor
}

// unpackedSuffix is what Electron appends to an archive's name for the files that it keeps outside.
const unpackedSuffix = ".unpacked"

// builtin are the places of the host's own workings: kernel interfaces, devices, sockets and locks of services.
var builtin = []string{"/proc", "/sys", "/dev", "/run"}

// kernelFiles are file systems whose files are not data but the kernel's interfaces, by the magic of statfs(2).
// Reading them may act, block, or never end.
var kernelFiles = map[int64]string{
	unix.PROC_SUPER_MAGIC:    "proc",
	unix.SYSFS_MAGIC:         "sysfs",
	unix.CGROUP_SUPER_MAGIC:  "cgroup",
	unix.CGROUP2_SUPER_MAGIC: "cgroup2",
	unix.DEBUGFS_MAGIC:       "debugfs",
	unix.SECURITYFS_MAGIC:    "securityfs",
	unix.TRACEFS_MAGIC:       "tracefs",
	unix.DEVPTS_SUPER_MAGIC:  "devpts",
	unix.BPF_FS_MAGIC:        "bpf",
	unix.NSFS_MAGIC:          "nsfs",
	unix.PSTOREFS_MAGIC:      "pstore",
	unix.EFIVARFS_MAGIC:      "efivarfs",
	unix.SELINUX_MAGIC:       "selinuxfs",
	unix.BINFMTFS_MAGIC:      "binfmt_misc",
}

// served are file systems that another machine or a process answers for.
var served = map[int64]string{
	unix.NFS_SUPER_MAGIC:  "NFS",
	unix.CIFS_SUPER_MAGIC: "CIFS",
	unix.SMB_SUPER_MAGIC:  "SMB",
	unix.SMB2_SUPER_MAGIC: "SMB",
	unix.FUSE_SUPER_MAGIC: "FUSE",
	unix.V9FS_MAGIC:       "9p",
}

// OpenTarget resolves path and opens it without following a link. The error is target_unavailable (missing, neither
// directory nor regular file, a refused place) or access_denied.
func OpenTarget(path string, o TargetOptions) (*Target, error) {
	absolute, err := filepath.Abs(path)
	if err != nil {
		return nil, unopened(path, err)
	}
	canonical, err := filepath.EvalSymlinks(absolute)
	if err != nil {
		return nil, unopened(absolute, err)
	}
	return openCanonical(canonical, o)
}

// openCanonical opens a path in which no component may be a link: one that has become a link since it was resolved is
// refused.
func openCanonical(path string, o TargetOptions) (*Target, error) {
	fd, err := unix.Openat2(unix.AT_FDCWD, path, &unix.OpenHow{
		Flags:   unix.O_PATH | unix.O_CLOEXEC,
		Resolve: unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS,
	})
	if err != nil {
		return nil, unopened(path, err)
	}
	t := &Target{File: os.NewFile(uintptr(fd), path), Path: path}
	if err := t.examine(o); err != nil {
		t.Close()
		return nil, err
	}
	return t, nil
}

// examine looks at the thing behind the descriptor.
func (t *Target) examine(o TargetOptions) error {
	fd := int(t.File.Fd())
	if err := unix.Fstat(fd, &t.Stat); err != nil {
		return unopened(t.Path, err)
	}
	t.UID, t.GID = t.Stat.Uid, t.Stat.Gid
	var others uint32
	switch t.Stat.Mode & unix.S_IFMT {
	case unix.S_IFDIR:
		t.Dir, others = true, unix.S_IROTH|unix.S_IXOTH
	case unix.S_IFREG:
		others = unix.S_IROTH
	default:
		return unavailable(t.Path, "it is neither a directory nor a regular file", "Name a file or a directory.")
	}
	t.Private = t.Stat.Mode&others != others
	var sf unix.Statfs_t
	if err := unix.Fstatfs(fd, &sf); err != nil {
		return unopened(t.Path, err)
	}
	kind := int64(sf.Type) & 0xffffffff
	if name, bad := kernelFiles[kind]; bad {
		return unavailable(t.Path, "it is on the kernel's own file system "+name, "Copy what you want examined to an ordinary directory and name that.")
	}
	if name, slow := served[kind]; slow {
		t.Limitations = append(t.Limitations, "The target is on "+name+": whoever serves it may change it without a trace, and a read that hangs cannot be ended.")
	}
	return t.refuse(o.Refuse)
}

// refuse compares the target with the places that no target may be: by path, and by device and inode of the target
// and of each directory above it, which sees through a bind mount.
func (t *Target) refuse(more []string) error {
	const action = "Copy what you want examined to an ordinary directory and name that."
	if t.Path == "/" || sameAs(t.Stat, "/") {
		return unavailable(t.Path, "it is the root of this host", "Name the application's own file or directory.")
	}
	places := append(append([]string{}, builtin...), more...)
	for _, place := range places {
		if real, err := filepath.EvalSymlinks(place); err == nil {
			place = real
		}
		place = filepath.Clean(place)
		if beneath(t.Path, place) || beneath(place, t.Path) || sameAs(t.Stat, place) || holds(place, t.Path) {
			return unavailable(t.Path, "it is, holds or lies in a place that the host's own services use", action)
		}
	}
	return nil
}

// beneath reports whether path is dir or below it; both are clean.
func beneath(path, dir string) bool {
	return path == dir || strings.HasPrefix(path, strings.TrimSuffix(dir, "/")+"/")
}

// sameAs reports whether path names the inode st.
func sameAs(st unix.Stat_t, path string) bool {
	var other unix.Stat_t
	return unix.Lstat(path, &other) == nil && other.Dev == st.Dev && other.Ino == st.Ino
}

// holds reports whether a directory above path is the inode of place.
func holds(place, path string) bool {
	var st unix.Stat_t
	if unix.Lstat(place, &st) != nil {
		return false
	}
	for dir := filepath.Dir(path); dir != "/"; dir = filepath.Dir(dir) {
		if sameAs(st, dir) {
			return true
		}
	}
	return false
}

// Reopen returns a readable descriptor of the very same inode, for hashing. The error is access_denied where this
// process may not read it.
func (t *Target) Reopen() (*os.File, error) {
	flags := unix.O_RDONLY | unix.O_CLOEXEC | unix.O_NONBLOCK | unix.O_NOCTTY
	if t.Dir {
		flags |= unix.O_DIRECTORY
	}
	fd, err := unix.Open(fmt.Sprintf("/proc/self/fd/%d", t.File.Fd()), flags, 0)
	if err != nil {
		return nil, unopened(t.Path, err)
	}
	return os.NewFile(uintptr(fd), t.Path), nil
}

// Companion opens the directory "<name>.unpacked" beside a file whose name ends in ".asar". It returns nil without an
// error where there is none; a link of that name is none, because it may lead anywhere.
func (t *Target) Companion(o TargetOptions) (*Target, error) {
	if t.Dir || !strings.HasSuffix(t.Path, ".asar") {
		return nil, nil
	}
	path := t.Path + unpackedSuffix
	fi, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) || err == nil && !fi.IsDir() {
		return nil, nil
	}
	if err != nil {
		return nil, unopened(path, err)
	}
	return openCanonical(path, o)
}

// Close closes the descriptor. Mounts that were made from it stay.
func (t *Target) Close() error { return t.File.Close() }

// unavailable is target_unavailable for a target that is there and cannot be used.
func unavailable(path, reason, action string) *fault.Error {
	return fault.New(fault.TargetUnavailable, "The target cannot be used: "+reason+".", action).
		With("path", shown(path)).With("reason", reason)
}

// unopened turns the failure of opening a target into target_unavailable or access_denied.
func unopened(path string, err error) *fault.Error {
	switch {
	case errors.Is(err, unix.EACCES), errors.Is(err, unix.EPERM):
		code := "EACCES"
		if errors.Is(err, unix.EPERM) {
			code = "EPERM"
		}
		return fault.New(fault.AccessDenied, "The host refuses to open the target.",
			"Give this user read permission for the target and search permission for each directory above it, or run rea as its owner.").
			With("path", shown(path)).With("system_code", code).With("boundary", "filesystem-read").Because(err)
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, unix.ENOTDIR):
		return unavailable(path, "there is no such file or directory", "Check the path.").Because(err)
	case errors.Is(err, unix.ELOOP):
		return unavailable(path, "a part of its path is or became a symbolic link while it was opened", "Repeat the call when nothing changes that path.").Because(err)
	case errors.Is(err, unix.ENOSYS):
		return fault.New(fault.CapabilityUnavailable, "This kernel cannot open a target without following links (openat2).",
			"Use Linux 5.6 or later.").With("feature", "openat2").Because(err)
	}
	return unavailable(path, "it cannot be opened", "Check the path and the file system that it is on.").Because(err)
}

// shown is a path as an error's details may carry it: JSON has no bytes that are not UTF-8.
func shown(path string) string { return strings.ToValidUTF8(path, "\uFFFD") }
