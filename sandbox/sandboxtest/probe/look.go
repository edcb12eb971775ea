//go:build linux

package main

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"rea/sandbox/sandboxtest/script"
)

// look tells what surrounds the probe, beyond itself.
func look() *script.Surroundings {
	return &script.Surroundings{
		Namespaces: namespaces(), Devices: devices(), SetID: setID(), Routes: routes(), AbstractSockets: abstractSockets(),
		Engine: existing("/var/run/docker.sock", "/run/docker.sock", "/run/containerd/containerd.sock", "/run/podman/podman.sock", "/.dockerenv.sock"),
		Cgroup: cgroupLimits(), CgroupWritable: cgroupWritable(), Masks: masks(), Shared: sharedMounts(),
	}
}

func namespaces() map[string]string {
	out := map[string]string{}
	for _, kind := range []string{"pid", "ipc", "uts", "net", "mnt", "cgroup", "user"} {
		out[kind], _ = os.Readlink("/proc/self/ns/" + kind)
	}
	return out
}

// kindOf says what an inode is: "c 1:3" for a device.
func kindOf(st *unix.Stat_t) string {
	device := fmt.Sprintf("%d:%d", unix.Major(st.Rdev), unix.Minor(st.Rdev))
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFCHR:
		return "c " + device
	case unix.S_IFBLK:
		return "b " + device
	case unix.S_IFLNK:
		return "link"
	case unix.S_IFDIR:
		return "directory"
	}
	return "file"
}

// devices lists what is a device anywhere below /dev, and everything else there but links and directories.
func devices() []string {
	var out []string
	walk("/dev", func(path string, st *unix.Stat_t) {
		if kind := kindOf(st); kind != "link" && kind != "directory" {
			out = append(out, kind)
		}
	})
	slices.Sort(out)
	return out
}

// setID lists programs that would run as somebody else.
func setID() []string {
	var out []string
	walk("/", func(path string, st *unix.Stat_t) {
		if st.Mode&unix.S_IFMT == unix.S_IFREG && st.Mode&(unix.S_ISUID|unix.S_ISGID) != 0 {
			out = append(out, path)
		}
	})
	return out
}

// walk visits everything below a directory that can be visited, but not the kernel's own trees.
func walk(dir string, visit func(string, *unix.Stat_t)) {
	filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
		if path == "/proc" || path == "/sys" {
			return fs.SkipDir
		}
		var st unix.Stat_t
		if unix.Lstat(path, &st) == nil {
			visit(path, &st)
		}
		return nil
	})
}

// routes lists the ways out: all of IPv4, and those of IPv6 that are not the loopback's.
func routes() []string {
	var out []string
	for i, line := range strings.Split(text("/proc/net/route"), "\n") {
		if i > 0 && line != "" {
			out = append(out, line)
		}
	}
	for line := range strings.Lines(text("/proc/net/ipv6_route")) {
		if f := strings.Fields(line); len(f) > 0 && f[len(f)-1] != "lo" {
			out = append(out, line)
		}
	}
	return out
}

// abstractSockets lists the unix sockets without a file that can be seen here.
func abstractSockets() []string {
	var out []string
	for line := range strings.Lines(text("/proc/net/unix")) {
		if f := strings.Fields(line); len(f) > 7 && strings.HasPrefix(f[7], "@") {
			out = append(out, f[7])
		}
	}
	return out
}

func existing(paths ...string) []string {
	var out []string
	for _, path := range paths {
		if _, err := os.Lstat(path); err == nil {
			out = append(out, path)
		}
	}
	return out
}

// cgroupLimits reads the limits of both versions that are to be found.
func cgroupLimits() map[string]string {
	const root = "/sys/fs/cgroup/"
	out := map[string]string{}
	for name, files := range map[string][]string{
		"memory": {"memory/memory.limit_in_bytes", "memory.max"}, "pids": {"pids/pids.max", "pids.max"},
		"swap": {"memory/memory.memsw.limit_in_bytes", "memory.swap.max"}, "cpu": {"cpu/cpu.cfs_quota_us", "cpu,cpuacct/cpu.cfs_quota_us", "cpu.max"},
	} {
		for _, file := range files {
			if value := text(root + file); value != "" && out[name] == "" {
				out[name] = value
			}
		}
	}
	return out
}

// cgroupWritable lists what of the cgroup tree can be changed.
func cgroupWritable() []string {
	var out []string
	for _, dir := range append([]string{"/sys/fs/cgroup"}, globbed("/sys/fs/cgroup/*")...) {
		if f, err := os.OpenFile(dir+"/cgroup.procs", os.O_WRONLY, 0); err == nil {
			f.Close()
			out = append(out, dir+"/cgroup.procs")
		}
		if os.Mkdir(dir+"/new", 0o755) == nil {
			out = append(out, dir+"/new")
		}
	}
	return out
}

func globbed(pattern string) []string {
	found, _ := filepath.Glob(pattern)
	return found
}

// masks says what hides each masked path that is there: a device, or the type of an empty file system.
func masks() map[string]string {
	out := map[string]string{}
	for path := range masked() {
		var st unix.Stat_t
		if unix.Stat(path, &st) != nil {
			continue
		}
		kind := kindOf(&st)
		if kind == "directory" {
			var sf unix.Statfs_t
			kind = "directory of the system"
			if unix.Statfs(path, &sf) == nil && sf.Type == unix.TMPFS_MAGIC && sf.Flags&unix.ST_RDONLY != 0 {
				kind = "read-only tmpfs"
			}
		}
		out[path] = kind
	}
	return out
}

// sharedMounts lists the mounts that hand mounts on to others.
func sharedMounts() []string {
	var out []string
	for line := range strings.Lines(text("/proc/self/mountinfo")) {
		before, _, _ := strings.Cut(line, " - ")
		if f := strings.Fields(before); strings.Contains(before, " shared:") && len(f) > 4 {
			out = append(out, f[4])
		}
	}
	return out
}
