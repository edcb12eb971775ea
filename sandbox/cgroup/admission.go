package cgroup

import (
	"context"
	"errors"
	"os"

	"golang.org/x/sys/unix"

	"rea/evidence/fault"
)

// lock takes the host-wide admission lock and returns how to give it back. The lock is on the root directory of the
// hierarchy that limits memory: whoever sees the same tree sees the same lock, in whatever mount namespace, for
// whatever state directory and under either manager.
func (t tree) lock(ctx context.Context) (unlock func(), err error) {
	dir, err := os.Open(t.home("memory"))
	if err != nil {
		return nil, refused("open the control group tree", err)
	}
	// Asked for without waiting and again: a holder that is stopped must not stop us beyond our own deadline.
	err = retry(ctx, func() (bool, error) {
		err := unix.Flock(int(dir.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		return err == nil, err
	})
	if err != nil {
		dir.Close()
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		return nil, refused("lock the control group tree", err)
	}
	return func() { dir.Close() }, nil
}

// admit checks that a run with this memory limit fits below the ceiling beside all others. What counts is what the
// kernel's files say: the limits of all groups, whoever made them and whether their owner lives, and the pages of
// removed groups, which the parent keeps until they are freed.
func (t tree) admit(memory int64) error {
	if t.ceiling <= 0 {
		return nil
	}
	asked := memory + engineOverhead
	used := t.committed()
	if used+asked <= t.ceiling {
		return nil
	}
	e := fault.New(fault.ResourceConstraint, "The run's memory limit does not fit this host.",
		"Lower the run's memory limit, or use a host with more memory.").
		With("resource", "memory").
		With("reported_limits", map[string]int64{"ceiling_bytes": t.ceiling, "in_use_bytes": used, "asked_bytes": asked})
	if asked > t.ceiling {
		return e
	}
	e.Message = "The memory that runs may use on this host is taken by other runs."
	e.Action = "Wait until another run has ended, then repeat the call."
	return e.Because(ErrCeiling)
}

// committed is the memory that the existing groups of both managers may use, in bytes.
func (t tree) committed() int64 {
	sum := t.committedBelow(t.parent)
	for _, parent := range t.rivals {
		sum += t.committedBelow(parent)
	}
	return sum
}

// committedBelow is the share of one parent.
func (t tree) committedBelow(group string) int64 {
	limit, usage := "memory.limit_in_bytes", "memory.usage_in_bytes"
	if t.mode == V2 {
		limit, usage = "memory.max", "memory.current"
	}
	parent := t.home("memory") + group
	stray, _ := readInt(parent, usage) // 0 where there is no such parent
	var sum int64
	for _, name := range children(parent) {
		dir := parent + "/" + name
		now, err := readInt(dir, usage)
		if errors.Is(err, os.ErrNotExist) {
			continue // it ended meanwhile
		}
		stray -= now
		most, err := readInt(dir, limit)
		if err != nil || unlimited(readFile(dir, limit)) {
			most = now // made and not limited yet: nothing can be in it
		}
		sum += most + engineOverhead
	}
	return sum + max(stray, 0)
}
