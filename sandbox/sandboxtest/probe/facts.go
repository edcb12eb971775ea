//go:build linux

package main

import (
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"rea/evidence/volume"
	"rea/sandbox"
	"rea/sandbox/sandboxtest/script"
)

func facts() *script.Facts {
	f := &script.Facts{
		PID: os.Getpid(), UID: os.Getuid(), GID: os.Getgid(), Args: os.Args, Env: os.Environ(),
		Status: status(), Limits: limits(), OOMScoreAdj: text("/proc/self/oom_score_adj"), Mounts: mounts(),
		Interfaces: interfaces(), Nonce: text(filepath.Join(sandbox.EvidencePath, volume.NonceName)), Masked: masked(),
	}
	for line := range strings.Lines(text("/proc/self/uid_map")) {
		f.UIDMap = append(f.UIDMap, strings.Join(strings.Fields(line), " "))
	}
	f.Hostname, _ = os.Hostname()
	f.Dir, _ = os.Getwd()
	var s unix.Statfs_t
	if unix.Statfs(sandbox.EvidencePath, &s) == nil {
		f.Evidence = script.Volume{Type: int64(s.Type), Bytes: s.Blocks * uint64(s.Bsize), Inodes: s.Files}
	}
	return f
}

// text is a small file's content without the line's end, "" when it cannot be read.
func text(path string) string {
	data, err := read(path)
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(data))
}

func status() map[string]string {
	out := map[string]string{}
	for line := range strings.Lines(text("/proc/self/status")) {
		name, value, _ := strings.Cut(line, ":")
		out[name] = strings.Join(strings.Fields(value), " ")
	}
	return out
}

func limits() map[string]uint64 {
	out := map[string]uint64{}
	for name, which := range map[string]int{"core": unix.RLIMIT_CORE, "nofile": unix.RLIMIT_NOFILE, "fsize": unix.RLIMIT_FSIZE} {
		var l unix.Rlimit
		if unix.Getrlimit(which, &l) == nil {
			out[name] = l.Max
		}
	}
	return out
}

// interfaces reads /proc/net/dev: the usual way needs a socket, which the profile refuses.
func interfaces() []string {
	var out []string
	for line := range strings.Lines(text("/proc/net/dev")) {
		if name, _, ok := strings.Cut(line, ":"); ok {
			out = append(out, strings.TrimSpace(name))
		}
	}
	return out
}

// mounts reads the format of proc_pid_mountinfo(5).
func mounts() []script.Mount {
	var out []script.Mount
	for line := range strings.Lines(text("/proc/self/mountinfo")) {
		fields := strings.Fields(line)
		_, behind, _ := strings.Cut(line, " - ")
		if kind := strings.Fields(behind); len(fields) > 5 && len(kind) > 0 {
			out = append(out, script.Mount{Path: fields[4], Type: kind[0], Options: strings.Split(fields[5], ",")})
		}
	}
	return out
}

// masked looks at paths that must show nothing: how many bytes or entries each holds.
func masked() map[string]int {
	out := map[string]int{}
	for _, path := range []string{"/proc/kcore", "/proc/keys", "/proc/timer_list", "/proc/interrupts", "/proc/acpi",
		"/proc/sched_debug", "/proc/scsi", "/sys/firmware", "/sys/devices/virtual/powercap"} {
		info, err := os.Stat(path)
		if err != nil {
			continue
		}
		if info.IsDir() {
			entries, _ := os.ReadDir(path)
			out[path] = len(entries)
			continue
		}
		out[path] = len(text(path))
	}
	return out
}
