package docker

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"rea/sandbox"
)

const (
	cgroupMount = "/sys/fs/cgroup"
	// maxCounter bounds what is read of one of the kernel's counter files; the longest holds a dozen short lines.
	maxCounter = 4 << 10
	// cpuPeriod is the accounting period that engines derive a quota from, in microseconds.
	cpuPeriod = 100_000
)

// leaf is the container's own cgroup, as far as this process may read it: a directory for each controller, all the
// same one on a unified host. It exists while the container runs.
type leaf struct {
	memory, pids, cpu, usage string
	unified                  bool
}

// findLeaf finds the cgroup of a container by its first process. Every path must name the container: an engine in a
// virtual machine counts processes in another way, and the same number may be anything here. It returns nil where the
// cgroup is not to be found.
func findLeaf(pid int, id string) *leaf {
	data, err := readCounter(fmt.Sprintf("/proc/%d/cgroup", pid))
	if err != nil || pid <= 0 || id == "" {
		return nil
	}
	return parseLeaf(data, id)
}

func parseLeaf(data []byte, id string) *leaf {
	v1 := map[string]string{}
	var v2 string
	for line := range strings.Lines(string(data)) {
		parts := strings.SplitN(strings.TrimSuffix(line, "\n"), ":", 3)
		if len(parts) != 3 || !strings.Contains(parts[2], id) {
			continue
		}
		if parts[1] == "" {
			v2 = filepath.Join(cgroupMount, parts[2])
		}
		for controller := range strings.SplitSeq(parts[1], ",") {
			v1[controller] = filepath.Join(cgroupMount, controller, parts[2])
		}
	}
	switch {
	case v1["memory"] != "" && v1["pids"] != "" && v1["cpu"] != "":
		return &leaf{memory: v1["memory"], pids: v1["pids"], cpu: v1["cpu"], usage: v1["cpuacct"]}
	case v2 != "" && v1["memory"] == "":
		return &leaf{memory: v2, pids: v2, cpu: v2, usage: v2, unified: true}
	}
	return nil
}

// verify compares the kernel's limits with those that were asked for. It returns the name of the first that differs
// or cannot be read, "" when all hold.
func (l *leaf) verify(want sandbox.Limits) string {
	page := int64(os.Getpagesize())
	memory := strconv.FormatInt(want.Memory/page*page, 10)
	quota := int64(want.CPU * cpuPeriod)
	limits := [][3]string{
		{"memory", filepath.Join(l.memory, "memory.limit_in_bytes"), memory},
		{"swap", filepath.Join(l.memory, "memory.memsw.limit_in_bytes"), memory},
		{"pids", filepath.Join(l.pids, "pids.max"), strconv.FormatInt(want.PIDs, 10)},
		{"cpu", filepath.Join(l.cpu, "cpu.cfs_quota_us"), strconv.FormatInt(quota, 10)},
	}
	if l.unified {
		limits[0][1], limits[1] = filepath.Join(l.memory, "memory.max"), [3]string{"swap", filepath.Join(l.memory, "memory.swap.max"), "0"}
		limits[3] = [3]string{"cpu", filepath.Join(l.cpu, "cpu.max"), fmt.Sprintf("%d %d", quota, cpuPeriod)}
	}
	for _, limit := range limits {
		got, err := readCounter(limit[1])
		if err != nil || string(bytes.TrimSpace(got)) != limit[2] {
			return limit[0]
		}
	}
	return ""
}

// read reads the counters; what this kernel does not have stays nil.
func (l *leaf) read() sandbox.Usage {
	u := sandbox.Usage{PIDsPeak: number(l.pids, "pids.peak"), Processes: number(l.pids, "pids.current")}
	if refused := keyed(l.pids, "pids.events", "max"); refused != nil {
		met := *refused > 0
		u.PIDsRefused = &met
	}
	if l.unified {
		u.MemoryPeak, u.OOMKills = number(l.memory, "memory.peak"), keyed(l.memory, "memory.events", "oom_kill")
		u.CPU = duration(keyed(l.usage, "cpu.stat", "usage_usec"), time.Microsecond)
		return u
	}
	u.MemoryPeak, u.OOMKills = number(l.memory, "memory.max_usage_in_bytes"), keyed(l.memory, "memory.oom_control", "oom_kill")
	u.CPU = duration(number(l.usage, "cpuacct.usage"), time.Nanosecond)
	return u
}

func duration(n *int64, unit time.Duration) *time.Duration {
	if n == nil {
		return nil
	}
	d := time.Duration(*n) * unit
	return &d
}

// number reads a file that holds one number.
func number(dir, file string) *int64 {
	data, err := readCounter(filepath.Join(dir, file))
	if err != nil {
		return nil
	}
	n, err := strconv.ParseInt(string(bytes.TrimSpace(data)), 10, 64)
	if err != nil {
		return nil
	}
	return &n
}

// keyed reads one value of a file of "key value" lines.
func keyed(dir, file, key string) *int64 {
	data, err := readCounter(filepath.Join(dir, file))
	if err != nil {
		return nil
	}
	for line := range strings.Lines(string(data)) {
		if value, found := strings.CutPrefix(line, key+" "); found {
			n, err := strconv.ParseInt(strings.TrimSpace(value), 10, 64)
			if err != nil {
				return nil
			}
			return &n
		}
	}
	return nil
}

// readCounter reads a small file of the kernel's.
func readCounter(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data := make([]byte, maxCounter)
	n, err := f.Read(data)
	if n == 0 && err != nil {
		return nil, err
	}
	return data[:n], nil
}

// verify refuses a started run whose limits, as the kernel has them, are not those that were asked for.
func (b *box) verify(ctx context.Context) error {
	got, err := b.d.cli.ContainerInspect(ctx, b.id)
	if err != nil {
		return b.d.failed(ctx, err, "say what it started")
	}
	pid := 0
	if got.State != nil {
		pid = got.State.Pid
	}
	if b.group != nil {
		if pid == 0 { // it has ended already; its limits are still there
			return b.group.Verify(ctx)
		}
		return b.group.Verify(ctx, pid)
	}
	return b.verifyLeaf(pid)
}

func (b *box) verifyLeaf(pid int) error {
	l := findLeaf(pid, b.id)
	b.mu.Lock()
	defer b.mu.Unlock()
	if l == nil {
		b.proof.Unproved = append(b.proof.Unproved,
			"The container's cgroup cannot be read here: its limits are the engine's word, and its counters are missing.")
		return nil
	}
	if field := l.verify(b.spec.Limits); field != "" {
		if _, ended := os.Stat(l.memory); ended != nil {
			b.proof.Unproved = append(b.proof.Unproved, "The container ended before its limits could be verified.")
			return nil
		}
		return unavailable("limit "+field, "The kernel does not hold the run to the "+field+" limit that was asked for.",
			"Run rea doctor, or choose another driver with REA_SANDBOX_DRIVER.")
	}
	b.leaf = l
	return nil
}

// sample remembers the counters of the container's own cgroup while it is there.
func (b *box) sample() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.leaf == nil {
		return
	}
	if u := b.leaf.read(); u.MemoryPeak != nil || u.PIDsPeak != nil {
		b.last = u
	}
}

// leafUsage gives the last counters, after another look.
func (b *box) leafUsage() sandbox.Usage {
	b.sample()
	b.mu.Lock()
	defer b.mu.Unlock()
	u := b.last
	if b.oom && (u.OOMKills == nil || *u.OOMKills == 0) {
		once := int64(1)
		u.OOMKills = &once
	}
	return u
}

// readOOM asks the engine, after the end, whether the container met its memory limit: its counters are gone by then.
func (b *box) readOOM(ctx context.Context) {
	got, err := b.d.cli.ContainerInspect(ctx, b.id)
	if err != nil || got.State == nil {
		return // unknown, as the proof says of this mode
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.oom = got.State.OOMKilled
}
