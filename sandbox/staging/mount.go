package staging

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strconv"

	"golang.org/x/sys/unix"

	"rea/evidence/fault"
)

// FD is an open file descriptor; *os.File has it.
type FD interface{ Fd() uintptr }

// BindOptions says how a source is bound. The zero value binds it with the owners that it has.
type BindOptions struct {
	Map            bool   // show what MapUID and MapGID own as owned by RunUID and RunGID
	MapUID, MapGID uint32 // owner on disk
	RunUID, RunGID uint32 // who reads it inside
	Exec           bool   // leave noexec away: programs of ours, and scenarios
}

// TmpfsOptions describes a memory file system.
type TmpfsOptions struct {
	Bytes, Inodes int64  // hard quotas, both positive; the root directory takes one inode
	UID, GID      uint32 // owner of its root directory
	Mode          uint32 // permission bits of its root directory
}

// Privileged reports whether this process may make the mounts of this package.
func Privileged() bool {
	// Opening a file system context needs the right to mount and makes nothing.
	fd, err := unix.Fsopen("tmpfs", unix.FSOPEN_CLOEXEC)
	if err != nil {
		return false
	}
	unix.Close(fd)
	// On a descriptor that cannot exist a kernel without the call still answers differently.
	return !errors.Is(unix.MountSetattr(-1, "", unix.AT_EMPTY_PATH, &unix.MountAttr{Attr_set: unix.MOUNT_ATTR_RDONLY}), unix.ENOSYS)
}

// Bind clones the tree behind an open descriptor (O_PATH suffices) to dst: recursive, read-only, nosuid, nodev, noexec
// and private, so that no later mount in the source shows up in it. It makes dst, a file or a directory like the
// source, which must not exist; Unmount removes it again. Unproved names, for people, what could not be done for
// mounts nested in the source. After an error nothing is left. With Map the error may be ErrNoIDMap.
func Bind(source FD, dst string, o BindOptions) (unproved []string, err error) {
	defer runtime.KeepAlive(source)
	fd := int(source.Fd())
	tree, err := unix.OpenTree(fd, "", unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC|unix.AT_RECURSIVE|unix.AT_EMPTY_PATH)
	if err != nil {
		return nil, unmountable("clone the target's mount", err)
	}
	defer unix.Close(tree)
	attr := unix.MountAttr{
		Attr_set:    unix.MOUNT_ATTR_RDONLY | unix.MOUNT_ATTR_NOSUID | unix.MOUNT_ATTR_NODEV,
		Propagation: unix.MS_PRIVATE,
	}
	if !o.Exec {
		attr.Attr_set |= unix.MOUNT_ATTR_NOEXEC
	}
	if err := unix.MountSetattr(tree, "", unix.AT_EMPTY_PATH|unix.AT_RECURSIVE, &attr); err != nil {
		return nil, unmountable("make the target's mount read-only", err)
	}
	if o.Map {
		if err := mapOwner(tree, o); err != nil {
			return nil, err
		}
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return nil, unmountable("examine the target", err)
	}
	if err := place(tree, dst, st.Mode&unix.S_IFMT == unix.S_IFDIR); err != nil {
		return nil, err
	}
	if o.Map {
		return nestedOwners(dst), nil
	}
	return nil, nil
}

// nestedOwners says which mounts a mapping did not reach. It is made for the top mount alone, because a nested file
// system that cannot map would refuse it for the whole tree.
func nestedOwners(dst string) []string {
	n, err := nested(dst)
	switch {
	case err != nil:
		return []string{"Whether file systems are nested in the target could not be examined; their owners are not mapped."}
	case n > 0:
		return []string{strconv.Itoa(n) + " file systems nested in the target keep their owners: what others may not read there stays unreadable."}
	}
	return nil
}

// Tmpfs mounts a fresh memory file system at dst: nosuid, nodev, noexec. It makes the directory dst, which must not
// exist, with no permission for anyone, so that writing there fails loudly where the mount is not seen; Unmount
// removes it again. After an error nothing is left.
func Tmpfs(dst string, o TmpfsOptions) error {
	if o.Bytes <= 0 || o.Inodes <= 0 {
		return fault.New(fault.ExecutionFailure, "A memory file system was asked for without a quota.", "Report this: it is a defect of rea.")
	}
	ctx, err := unix.Fsopen("tmpfs", unix.FSOPEN_CLOEXEC)
	if err != nil {
		return unmountable("make a memory file system", err)
	}
	defer unix.Close(ctx)
	for _, s := range [][2]string{
		{"source", "rea"},
		{"size", strconv.FormatInt(o.Bytes, 10)},
		{"nr_inodes", strconv.FormatInt(o.Inodes, 10)},
		{"uid", strconv.FormatUint(uint64(o.UID), 10)},
		{"gid", strconv.FormatUint(uint64(o.GID), 10)},
		{"mode", strconv.FormatUint(uint64(o.Mode&0o7777), 8)},
	} {
		if err := unix.FsconfigSetString(ctx, s[0], s[1]); err != nil {
			return unmountable("set "+s[0]+" of a memory file system", err)
		}
	}
	if err := unix.FsconfigCreate(ctx); err != nil {
		return unmountable("make a memory file system", err)
	}
	mnt, err := unix.Fsmount(ctx, unix.FSMOUNT_CLOEXEC, unix.MOUNT_ATTR_NOSUID|unix.MOUNT_ATTR_NODEV|unix.MOUNT_ATTR_NOEXEC)
	if err != nil {
		return unmountable("mount a memory file system", err)
	}
	defer unix.Close(mnt)
	return place(mnt, dst, true)
}

// place makes the mount point dst, with no permission for anyone, and attaches a detached mount there.
func place(mnt int, dst string, dir bool) error {
	if err := makePoint(dst, dir); err != nil {
		return unmountable("make a mount point", err)
	}
	if err := unix.MoveMount(mnt, "", unix.AT_FDCWD, dst, unix.MOVE_MOUNT_F_EMPTY_PATH); err != nil {
		return errors.Join(unmountable("attach a mount", err), os.Remove(dst))
	}
	return nil
}

func makePoint(dst string, dir bool) error {
	if dir {
		return os.Mkdir(dst, 0)
	}
	f, err := os.OpenFile(dst, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	return f.Close()
}

// maxStacked bounds how many mounts on top of each other Unmount takes off. We make one.
const maxStacked = 8

// Unmount detaches what Bind or Tmpfs mounted at dst and removes the mount point. What is already gone is no error.
// It resolves dst: call it with paths below a run directory of ours only.
func Unmount(dst string) error {
	for range maxStacked {
		err := unix.Unmount(dst, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW)
		if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOENT) {
			break
		}
		if err != nil {
			return unmountable("unmount "+filepath.Base(dst), err)
		}
	}
	if err := os.Remove(dst); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return unmountable("remove the mount point "+filepath.Base(dst), err)
	}
	return nil
}

// Mounted reports whether something is mounted at dst itself.
func Mounted(dst string) (bool, error) {
	var st unix.Statx_t
	err := unix.Statx(unix.AT_FDCWD, dst, unix.AT_SYMLINK_NOFOLLOW|unix.AT_NO_AUTOMOUNT|unix.AT_STATX_DONT_SYNC, 0, &st)
	if errors.Is(err, unix.ENOENT) {
		return false, nil
	}
	if err != nil {
		return false, unmountable("examine a mount point", err)
	}
	if st.Attributes_mask&unix.STATX_ATTR_MOUNT_ROOT == 0 {
		return false, unmountable("tell a mount point from a directory", unix.ENOSYS)
	}
	return st.Attributes&unix.STATX_ATTR_MOUNT_ROOT != 0, nil
}

// unmountable is the error for a mount operation that the host refused.
func unmountable(what string, err error) *fault.Error {
	switch {
	case errors.Is(err, unix.EPERM), errors.Is(err, unix.EACCES):
		return fault.New(fault.CapabilityUnavailable, "This process may not "+what+".",
			"Run rea as root, or use the Docker engine as an ordinary user, where the engine makes the mounts.").
			With("feature", "mounts").Because(err)
	case errors.Is(err, unix.ENOSYS):
		return fault.New(fault.CapabilityUnavailable, "This kernel cannot "+what+".", "Use Linux 5.12 or later.").
			With("feature", "mounts").Because(err)
	}
	return fault.New(fault.ExecutionFailure, "rea could not "+what+".",
		"Check the state directory and the free memory of this host; repeat the call.").Because(err)
}
