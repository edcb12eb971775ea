package staging

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"

	"rea/evidence/fault"
)

// ErrNoIDMap is in the error chain of Bind when the owner of a private target cannot be mapped here (an old kernel, a
// file system that refuses, no right to make a user namespace): run as the target's owner instead, or refuse.
var ErrNoIDMap = errors.New("the target's owner cannot be mapped")

// mapOwner makes one uid and one gid of the mounted file system appear as the run's. Everything else in it belongs to
// nobody: readable where others may read, writable never.
func mapOwner(tree int, o BindOptions) error {
	ns, err := userNamespace(o)
	if err != nil {
		return unmapped(err)
	}
	defer ns.Close()
	err = unix.MountSetattr(tree, "", unix.AT_EMPTY_PATH, &unix.MountAttr{
		Attr_set:  unix.MOUNT_ATTR_IDMAP,
		Userns_fd: uint64(ns.Fd()),
	})
	if err != nil {
		return unmapped(err)
	}
	return nil
}

func unmapped(err error) *fault.Error {
	return fault.New(fault.AccessDenied, "The target is readable by its owner alone, and its owner cannot be mapped to the run.",
		"Make the target readable for others, or copy it to a file system that supports mapped mounts (ext4, xfs, btrfs, tmpfs).").
		With("boundary", "filesystem-read").Because(errors.Join(ErrNoIDMap, err))
}

// userNamespace returns a user namespace with the mapping of o. The kernel takes a mapping only from a namespace, and
// a process of many threads cannot make one, so a child is born into it. The child never runs: it asks to be traced,
// which stops it at its exec, before its first instruction, until the namespace is open and the child is killed.
// It dies with this thread, should this process die first.
func userNamespace(o BindOptions) (*os.File, error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	child, err := os.StartProcess("/proc/self/exe", []string{"rea-idmap"}, &os.ProcAttr{
		Dir: "/",
		Env: []string{},
		Sys: &syscall.SysProcAttr{
			Cloneflags:  syscall.CLONE_NEWUSER,
			UidMappings: []syscall.SysProcIDMap{{ContainerID: int(o.MapUID), HostID: int(o.RunUID), Size: 1}},
			GidMappings: []syscall.SysProcIDMap{{ContainerID: int(o.MapGID), HostID: int(o.RunGID), Size: 1}},
			Ptrace:      true,
			Pdeathsig:   syscall.SIGKILL,
		},
	})
	if err != nil {
		return nil, err
	}
	ns, err := os.Open(fmt.Sprintf("/proc/%d/ns/user", child.Pid)) // not waited for yet, so the number is still its own
	kill := child.Kill()
	_, wait := child.Wait()
	if err := errors.Join(err, kill, wait); err != nil {
		if ns != nil {
			ns.Close()
		}
		return nil, err
	}
	return ns, nil
}
