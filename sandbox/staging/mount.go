package staging

import (
	"errors"
	"os"
)

// ErrNoIDMap is in the error chain of Bind when the owner of a private target cannot be mapped here (an old kernel, a
// file system that refuses, no right to make a user namespace): run as the target's owner instead, or refuse.
var ErrNoIDMap = errors.New("the target's owner cannot be mapped")

// BindOptions says how a source is bound.
type BindOptions struct {
	RunUID, RunGID uint32 // who reads it inside
	Map            bool   // show what MapUID and MapGID own as owned by RunUID and RunGID
	MapUID, MapGID uint32 // owner on disk
	Exec           bool   // leave noexec away: scenarios only
}

// Privileged reports whether this process may make the mounts of this package.
func Privileged() bool { return false }

// Bind clones the tree behind an open descriptor (O_PATH suffices) to dst: recursive, read-only, nosuid, nodev, noexec
// and private. It makes dst, a file or a directory like the source, which must not exist; Unmount removes it again.
// Unproved names what could not be done for mounts nested in the source. After an error nothing is left.
func Bind(source *os.File, dst string, o BindOptions) (unproved []string, err error) {
	return nil, errors.ErrUnsupported
}

// TmpfsOptions describes a memory file system.
type TmpfsOptions struct {
	Bytes, Inodes int64  // hard quotas, both positive
	UID, GID      uint32 // owner of its root directory
	Mode          uint32 // permission bits of its root directory
}

// Tmpfs mounts a fresh memory file system at dst: nosuid, nodev, noexec. It makes the directory dst, which must not
// exist, with no permission for anyone, so that writing there fails loudly where the mount is not seen; Unmount
// removes it again. After an error nothing is left.
func Tmpfs(dst string, o TmpfsOptions) error { return errors.ErrUnsupported }

// Unmount detaches what Bind or Tmpfs mounted at dst and removes the mount point. What is already gone is no error.
func Unmount(dst string) error { return errors.ErrUnsupported }

// Mounted reports whether something is mounted at dst itself.
func Mounted(dst string) (bool, error) { return false, errors.ErrUnsupported }
