//go:build linux

package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"

	"rea/sandbox"
)

// attack tries every way to change a file of the target, and what lies beside it.
func attack(path string) map[string]int {
	dir, beside := filepath.Dir(path), filepath.Dir(path)+"/new"
	out := map[string]int{
		"truncate":  errno(unix.Truncate(path, 0)),
		"chmod":     errno(unix.Chmod(path, 0o777)),
		"chown":     errno(unix.Chown(path, os.Getuid(), os.Getgid())),
		"unlink":    errno(unix.Unlink(path)),
		"rename":    errno(unix.Rename(path, beside)),
		"link":      errno(unix.Link(path, beside)),
		"link out":  errno(unix.Link(path, sandbox.EvidencePath+"/link")),
		"symlink":   errno(unix.Symlink("x", beside)),
		"mkdir":     errno(unix.Mkdir(beside, 0o755)),
		"write":     errno(write(path, []byte("changed"))),
		"times":     errno(unix.Utimes(path, []unix.Timeval{{}, {}})),
		"set xattr": errno(unix.Setxattr(path, "user.x", []byte("x"), 0)),
		"mmap":      errno(sharedMapping(path)),
		"remount":   errno(unix.Mount("", dir, "", unix.MS_REMOUNT|unix.MS_BIND, "")),
		"unmount":   errno(unix.Unmount(dir, unix.MNT_DETACH)),
	}
	return out
}

// sharedMapping maps a file that was opened for reading so that writing to memory would write to it.
func sharedMapping(path string) error {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil // it could not even be read; the suite sees that elsewhere
	}
	defer unix.Close(fd)
	m, err := unix.Mmap(fd, 0, 4096, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err == nil {
		unix.Munmap(m)
	}
	return err
}

// escalate tries to become somebody else, and to run what the run itself wrote.
func escalate() map[string]int {
	call := func(nr uintptr, args ...uintptr) int {
		var a [3]uintptr
		copy(a[:], args)
		_, _, e := syscall.RawSyscall(nr, a[0], a[1], a[2])
		return int(e)
	}
	out := map[string]int{
		"setuid 0":    call(unix.SYS_SETUID, 0),
		"setresuid 0": call(unix.SYS_SETRESUID, 0, 0, 0),
		"setgid 0":    call(unix.SYS_SETGID, 0),
		"setgroups":   call(unix.SYS_SETGROUPS, 0, 0),
		"raise nofile": errno(syscall.Setrlimit(unix.RLIMIT_NOFILE, &syscall.Rlimit{
			Cur: 1 << 20, Max: 1 << 20})),
	}
	for _, dir := range []string{sandbox.ScratchPath, sandbox.EvidencePath} {
		out["run "+dir] = runCopy(dir)
		out["device "+dir] = errno(unix.Mknod(dir+"/device", unix.S_IFCHR|0o666, int(unix.Mkdev(1, 5))))
	}
	return out
}

// runCopy runs a copy of this program from a directory. What is not executable there cannot be run with any mode.
func runCopy(dir string) int {
	path := dir + "/program"
	defer os.Remove(path)
	if err := os.WriteFile(path, []byte("#!"+sandbox.WorkerPath+" child none\n"), 0o755); err != nil {
		return errno(err)
	}
	return errno(exec.Command(path).Run())
}

// plant leaves in the evidence volume what a reader must refuse, and says which of it could not even be made.
func plant(dir string) map[string]int {
	at := func(name string) string { return filepath.Join(dir, name) }
	out := map[string]int{
		"regular":  errno(os.WriteFile(at("regular"), []byte("regular"), 0o600)),
		"fifo":     errno(unix.Mkfifo(at("fifo"), 0o666)),
		"device":   errno(unix.Mknod(at("device"), unix.S_IFBLK|0o666, int(unix.Mkdev(8, 0)))),
		"symlink":  errno(os.Symlink("/etc/hostname", at("symlink"))),
		"hardlink": errno(unix.Link(at("regular"), at("hardlink"))),
		"setuid":   errno(planted(at("setuid"), 0, 0o4755)),
		"sparse":   errno(planted(at("sparse"), 1<<40, 0o600)),
		"large":    errno(planted(at("large"), 48<<20, 0o600)), // sparse, within RLIMIT_FSIZE, beyond the quota
		"odd":      errno(os.WriteFile(at("odd\n\x1b[2J\xff"), nil, 0o600)),
		"socket":   socketAt(at("socket")),
	}
	depth, path := 0, dir
	for ; depth < 4096; depth++ {
		if path += "/d"; unix.Mkdir(path, 0o755) != nil {
			break
		}
	}
	out["depth"] = depth
	n := 0
	for ; n < 1_000_000; n++ {
		if f, err := os.Create(at("entry" + strconv.Itoa(n))); err == nil {
			f.Close()
			continue
		}
		break
	}
	out["entries"] = n
	return out
}

// planted makes a file of a size that it does not fill, with a mode.
func planted(path string, size int64, mode uint32) error {
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		return err
	}
	if err := os.Truncate(path, size); err != nil {
		return err
	}
	return unix.Chmod(path, mode)
}

func socketAt(path string) int {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return errno(err)
	}
	defer unix.Close(fd)
	return errno(unix.Bind(fd, &unix.SockaddrUnix{Name: path}))
}
