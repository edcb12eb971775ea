//go:build linux

package main

import (
	"os/exec"
	"syscall"

	"golang.org/x/sys/unix"

	"rea/sandbox"
)

// calls makes system calls that a run must not be able to make, with arguments that do no harm where they work, and
// some that it must be able to make. Each answers with its error number.
func calls(socket string) map[string]int {
	out := map[string]int{
		"clone NEWUSER": newUserNamespace(),
		"32-bit entry":  errno(exec.Command(sandbox.WorkerPath, "child", "int80").Run()),
		"landlock":      landlock(),
		"openat2":       openat2(),
		"fallocate":     fallocate(),
	}
	for _, c := range []struct {
		name string
		nr   uintptr
		args [6]uintptr
	}{
		{"socket UNIX", unix.SYS_SOCKET, [6]uintptr{unix.AF_UNIX, unix.SOCK_STREAM}},
		{"socket INET", unix.SYS_SOCKET, [6]uintptr{unix.AF_INET, unix.SOCK_STREAM}},
		{"socket NETLINK", unix.SYS_SOCKET, [6]uintptr{unix.AF_NETLINK, unix.SOCK_RAW}},
		{"socket VSOCK", unix.SYS_SOCKET, [6]uintptr{unix.AF_VSOCK, unix.SOCK_STREAM}},
		{"socket ALG", unix.SYS_SOCKET, [6]uintptr{unix.AF_ALG, unix.SOCK_SEQPACKET}},
		{"socket PACKET", unix.SYS_SOCKET, [6]uintptr{unix.AF_PACKET, unix.SOCK_RAW}},
		{"socket raw INET", unix.SYS_SOCKET, [6]uintptr{unix.AF_INET, unix.SOCK_RAW, unix.IPPROTO_ICMP}},
		{"connect", unix.SYS_CONNECT, [6]uintptr{^uintptr(0)}},
		{"bind", unix.SYS_BIND, [6]uintptr{^uintptr(0)}},
		{"ptrace", unix.SYS_PTRACE, [6]uintptr{unix.PTRACE_PEEKDATA}},
		{"process_vm_readv", unix.SYS_PROCESS_VM_READV, [6]uintptr{1}},
		{"process_vm_writev", unix.SYS_PROCESS_VM_WRITEV, [6]uintptr{1}},
		{"pidfd_getfd", unix.SYS_PIDFD_GETFD, [6]uintptr{^uintptr(0)}},
		{"kcmp", unix.SYS_KCMP, [6]uintptr{1, 1}},
		{"keyctl", unix.SYS_KEYCTL, [6]uintptr{}},
		{"add_key", unix.SYS_ADD_KEY, [6]uintptr{}},
		{"bpf", unix.SYS_BPF, [6]uintptr{}},
		{"perf_event_open", unix.SYS_PERF_EVENT_OPEN, [6]uintptr{}},
		{"io_uring_setup", unix.SYS_IO_URING_SETUP, [6]uintptr{}},
		{"userfaultfd", unix.SYS_USERFAULTFD, [6]uintptr{}},
		{"unshare", unix.SYS_UNSHARE, [6]uintptr{unix.CLONE_NEWUSER}},
		{"setns", unix.SYS_SETNS, [6]uintptr{^uintptr(0)}},
		{"clone3", unix.SYS_CLONE3, [6]uintptr{}},
		{"mount", unix.SYS_MOUNT, [6]uintptr{}},
		{"umount2", unix.SYS_UMOUNT2, [6]uintptr{}},
		{"pivot_root", unix.SYS_PIVOT_ROOT, [6]uintptr{}},
		{"chroot", unix.SYS_CHROOT, [6]uintptr{}},
		{"open_tree", unix.SYS_OPEN_TREE, [6]uintptr{}},
		{"move_mount", unix.SYS_MOVE_MOUNT, [6]uintptr{}},
		{"fsopen", unix.SYS_FSOPEN, [6]uintptr{}},
		{"fsconfig", unix.SYS_FSCONFIG, [6]uintptr{^uintptr(0)}},
		{"fsmount", unix.SYS_FSMOUNT, [6]uintptr{^uintptr(0)}},
		{"fspick", unix.SYS_FSPICK, [6]uintptr{}},
		{"mount_setattr", unix.SYS_MOUNT_SETATTR, [6]uintptr{}},
		{"open_by_handle_at", unix.SYS_OPEN_BY_HANDLE_AT, [6]uintptr{}},
		{"name_to_handle_at", unix.SYS_NAME_TO_HANDLE_AT, [6]uintptr{}},
		{"inotify_init1", unix.SYS_INOTIFY_INIT1, [6]uintptr{}},
		{"fanotify_init", unix.SYS_FANOTIFY_INIT, [6]uintptr{}},
		{"memfd_create", unix.SYS_MEMFD_CREATE, [6]uintptr{}},
		{"mknodat", unix.SYS_MKNODAT, [6]uintptr{}},
		{"setxattr", unix.SYS_SETXATTR, [6]uintptr{}},
		{"seccomp", unix.SYS_SECCOMP, [6]uintptr{^uintptr(0)}},
		{"kexec_file_load", unix.SYS_KEXEC_FILE_LOAD, [6]uintptr{^uintptr(0)}},
		{"process_madvise", unix.SYS_PROCESS_MADVISE, [6]uintptr{^uintptr(0)}},
		{"io_uring_enter", unix.SYS_IO_URING_ENTER, [6]uintptr{^uintptr(0)}},
		{"request_key", unix.SYS_REQUEST_KEY, [6]uintptr{}},
		{"reboot", unix.SYS_REBOOT, [6]uintptr{}},
		{"swapon", unix.SYS_SWAPON, [6]uintptr{}},
		{"sethostname", unix.SYS_SETHOSTNAME, [6]uintptr{}},
		{"settimeofday", unix.SYS_SETTIMEOFDAY, [6]uintptr{}},
		{"kexec_load", unix.SYS_KEXEC_LOAD, [6]uintptr{}},
		{"init_module", unix.SYS_INIT_MODULE, [6]uintptr{}},
		{"shmget", unix.SYS_SHMGET, [6]uintptr{}},
		{"mq_open", unix.SYS_MQ_OPEN, [6]uintptr{}},
		{"setgroups", unix.SYS_SETGROUPS, [6]uintptr{}},
		{"personality NO_RANDOMIZE", unix.SYS_PERSONALITY, [6]uintptr{0x0040000}},
		{"personality query", unix.SYS_PERSONALITY, [6]uintptr{0xffffffff}},
		{"membarrier", unix.SYS_MEMBARRIER, [6]uintptr{}},
	} {
		_, _, e := syscall.Syscall6(c.nr, c.args[0], c.args[1], c.args[2], c.args[3], c.args[4], c.args[5])
		out[c.name] = int(e)
	}
	for name, kind := range map[string]int{"pair STREAM": unix.SOCK_STREAM, "pair SEQPACKET": unix.SOCK_SEQPACKET, "pair DGRAM": unix.SOCK_DGRAM} {
		out[name] = pair(kind, socket)
	}
	return out
}

// pair makes a pair of sockets and sends to a path with one end: over a datagram pair that would arrive.
func pair(kind int, socket string) int {
	fds, err := unix.Socketpair(unix.AF_UNIX, kind|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return errno(err)
	}
	defer unix.Close(fds[0])
	defer unix.Close(fds[1])
	if kind != unix.SOCK_DGRAM {
		return 0
	}
	return errno(unix.Sendto(fds[0], []byte("reached"), 0, &unix.SockaddrUnix{Name: socket}))
}

func newUserNamespace() int {
	cmd := exec.Command(sandbox.WorkerPath, "child", "none")
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWUSER}
	return errno(cmd.Run())
}

// landlock asks for the newest version that the kernel has.
func landlock() int {
	_, _, e := syscall.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, 0, 0, unix.LANDLOCK_CREATE_RULESET_VERSION)
	return int(e)
}

func openat2() int {
	fd, err := unix.Openat2(unix.AT_FDCWD, "/", &unix.OpenHow{Flags: unix.O_PATH, Resolve: unix.RESOLVE_NO_SYMLINKS})
	if err == nil {
		unix.Close(fd)
	}
	return errno(err)
}

func fallocate() int {
	fd, err := unix.Open(sandbox.EvidencePath+"/reserve", unix.O_CREAT|unix.O_RDWR|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return errno(err)
	}
	defer unix.Close(fd)
	defer unix.Unlink(sandbox.EvidencePath + "/reserve")
	return errno(unix.Fallocate(fd, 0, 0, 4096))
}
