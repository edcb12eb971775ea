package cgroup

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

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

// Usage reads the kernel's counters; they are final once the group is empty and gone once it is deleted.
func (g *Group) Usage() Usage {
	var u Usage
	memory, pids := g.tree.home("memory")+g.path, g.tree.home("pids")+g.path
	if g.tree.mode == V2 {
		u.CPU = duration(known(readKey(memory, "cpu.stat", "usage_usec")), time.Microsecond)
		u.MemoryPeak = known(readInt(memory, "memory.peak"))
		u.OOMKills = known(readKey(memory, "memory.events", "oom_kill")) // hierarchical
	} else {
		u.CPU = duration(known(readInt(g.tree.v1["cpuacct"]+g.path, "cpuacct.usage")), time.Nanosecond)
		u.MemoryPeak = known(readInt(memory, "memory.max_usage_in_bytes"))
		u.OOMKills = g.oom.count()
	}
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

func known(n int64, err error) *int64 {
	if err != nil {
		return nil
	}
	return &n
}

// duration is a counter of the kernel's in its unit.
func duration(n *int64, unit time.Duration) *time.Duration {
	if n == nil {
		return nil
	}
	d := time.Duration(*n) * unit
	return &d
}

// oomCount counts the out-of-memory events of a v1 group. The group's own files stay silent when a process of a group
// inside it is killed; the event does not. A nil oomCount has no figure.
type oomCount struct {
	mu    sync.Mutex
	event *os.File // eventfd(2), nil when closed
	sum   int64
}

// countOOM registers for the events of the memory group dir (cgroup-v1/memory.rst, "OOM Control").
func countOOM(dir string) (*oomCount, error) {
	fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		return nil, err
	}
	event := os.NewFile(uintptr(fd), "oom events")
	control, err := os.Open(dir + "/memory.oom_control")
	if err == nil {
		defer control.Close()
		err = writeFile(dir, "cgroup.event_control", fmt.Sprintf("%d %d", fd, control.Fd()))
	}
	if err != nil {
		event.Close()
		return nil, err
	}
	return &oomCount{event: event}, nil
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
	raw.Control(func(fd uintptr) {
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
