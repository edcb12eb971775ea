package cgroup

import (
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/containerd/cgroups/v3/cgroup1"
	"github.com/containerd/cgroups/v3/cgroup1/stats"
	"github.com/containerd/cgroups/v3/cgroup2"
	"golang.org/x/sys/unix"
)

// Usage is what the processes of a group used and which limits they met. A nil pointer is a figure that this host
// does not give: unknown, never zero. That it was the group's own limit that killed is confirmed by a MemoryPeak at the
// limit: on v2 a host that runs out of memory counts in OOMKills as well.
type Usage struct {
	CPU         *time.Duration // processor time, user and system
	MemoryPeak  *int64         // bytes, pages of files and of the evidence volume counted
	PIDsPeak    *int64         // tasks
	OOMKills    *int64         // v2: processes that the kernel killed for want of memory; v1: times that the limit was exhausted
	PIDsReached *bool          // the tasks limit was reached; that a fork was refused is not proved by it
	Processes   *int64         // now
}

// Usage reads the kernel's counters; they are final once the group is empty and gone once it is deleted. The library
// gives 0 for a file that is not there, so what it reads counts only where something else says that the file is.
func (g *Group) Usage() Usage {
	var u Usage
	if g.tree.mode == V2 {
		g.readUnified(&u)
	} else {
		g.readV1(&u)
	}
	pids := g.tree.home("pids") + g.path
	u.PIDsPeak = known(readInt(pids, "pids.peak"))
	if limit, err := readInt(pids, "pids.max"); err == nil && u.PIDsPeak != nil {
		reached := *u.PIDsPeak >= limit
		u.PIDsReached = &reached
	}
	if n, err := g.Procs(); err == nil {
		u.Processes = known(int64(n), nil)
	}
	return u
}

// unified is the library's view of the group in the v2 tree.
func (g *Group) unified() (*cgroup2.Manager, error) {
	return cgroup2.Load(g.path, cgroup2.WithMountpoint(g.tree.unified))
}

// readUnified reads a v2 group. Its memory.events count what happened in the groups inside it as well.
func (g *Group) readUnified(u *Usage) {
	u.MemoryPeak = known(readInt(g.tree.unified+g.path, "memory.peak"))
	m, err := g.unified()
	if err != nil {
		return
	}
	s, err := m.StatFiltered(cgroup2.StatCPU | cgroup2.StatMemoryEvents)
	if err != nil || s.MemoryEvents == nil {
		return // no such group any more
	}
	u.OOMKills = known(int64(s.MemoryEvents.OomKill), nil)
	u.CPU = duration(int64(s.CPU.UsageUsec), time.Microsecond)
}

// readV1 reads a v1 group, one controller after the other, so that one that is missing hides no other.
func (g *Group) readV1(u *Usage) {
	u.OOMKills = g.oom.count()
	memory := cgroup1.NewMemory(filepath.Dir(g.tree.v1["memory"]), cgroup1.IgnoreModules("memsw", "kmem", "kmem.tcp"))
	if s := statV1(g.path, memory); s != nil && s.Memory != nil {
		u.MemoryPeak = known(int64(s.Memory.Usage.Max), nil)
	}
	if s := statV1(g.path, cgroup1.NewCpuacct(filepath.Dir(g.tree.v1["cpuacct"]))); s != nil {
		u.CPU = duration(int64(s.CPU.Usage.Total), time.Nanosecond)
	}
}

// statV1 gives what one v1 controller counted, nil when it cannot be read.
func statV1(group string, s cgroup1.Subsystem) *stats.Metrics {
	c, err := loadV1(group, s)
	if err != nil {
		return nil
	}
	m, err := c.Stat()
	if err != nil {
		return nil
	}
	return m
}

// loadV1 is the library's view of the group in one v1 hierarchy.
func loadV1(group string, s cgroup1.Subsystem) (cgroup1.Cgroup, error) {
	return cgroup1.Load(cgroup1.StaticPath(group), cgroup1.WithHierarchy(func() ([]cgroup1.Subsystem, error) {
		return []cgroup1.Subsystem{s}, nil
	}))
}

func known(n int64, err error) *int64 {
	if err != nil {
		return nil
	}
	return &n
}

// duration is a counter of the kernel's in its unit.
func duration(n int64, unit time.Duration) *time.Duration {
	d := time.Duration(n) * unit
	return &d
}

// oomCount counts the out-of-memory events of a v1 group. The group's own files stay silent when a process of a group
// inside it is killed; the event does not. A nil oomCount has no figure.
type oomCount struct {
	mu    sync.Mutex
	event *os.File // eventfd(2), nil when closed
	sum   int64
}

// countOOM registers for the events of a group in the memory hierarchy that is mounted at root
// (cgroup-v1/memory.rst, "OOM Control").
func countOOM(root, group string) (*oomCount, error) {
	c, err := loadV1(group, cgroup1.NewMemory(filepath.Dir(root)))
	if err != nil {
		return nil, err
	}
	fd, err := c.OOMEventFD()
	if err != nil {
		return nil, err
	}
	if err := unix.SetNonblock(int(fd), true); err != nil { // a count is looked at, never waited for
		unix.Close(int(fd))
		return nil, err
	}
	return &oomCount{event: os.NewFile(fd, "oom events")}, nil
}

// count returns the events so far. The kernel signals before it kills, so after a death its event is here.
func (c *oomCount) count() *int64 {
	if c == nil {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.drain()
	n := c.sum
	return &n
}

// drain adds what the event counter holds. It never waits.
func (c *oomCount) drain() {
	if c.event == nil {
		return
	}
	raw, err := c.event.SyscallConn()
	if err != nil {
		return
	}
	// Its only error is a closed descriptor, which adds nothing.
	_ = raw.Control(func(fd uintptr) {
		var b [8]byte
		n, err := unix.Read(int(fd), b[:])
		if n == len(b) && !errors.Is(err, unix.EAGAIN) {
			c.sum += int64(binary.NativeEndian.Uint64(b[:]))
		}
	})
}

// close ends counting and keeps the sum. It comes before the group is removed, which the kernel also signals.
func (c *oomCount) close() {
	if c == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.event == nil {
		return
	}
	c.drain()
	c.event.Close()
	c.event = nil
}
