// Package cgroup gives each run one control group of rea's own, on cgroup v1, v2 and hybrid hosts.
//
// The group outlives the container that an engine puts inside it, so limits, peaks, out-of-memory events, killing and
// the proof of emptiness all work on it. Every group is named /rea/<run> below a host-wide parent, and admission keeps
// the sum of the limits of all groups below that parent's ceiling, whichever process made them. Package cgroup must
// not know what runs inside, and never kills or removes anything that is not named /rea/<run id>.
//
// Kernel interfaces: Documentation/admin-guide/cgroup-v1 and cgroup-v2.rst.
package cgroup

import (
	"context"
	"errors"
	"time"
)

// Parent is the host-wide parent of every run's group, as a path in each hierarchy.
const Parent = "/rea"

// ErrCeiling is in the error chain of Create when the run would fit this host but not beside those that run now: wait
// for one of them to end and try again.
var ErrCeiling = errors.New("the runs of this host have reached their memory ceiling")

// Limits are the limits of one group; all three must be positive.
type Limits struct {
	Memory int64   // bytes, rounded down to whole pages; no swap
	PIDs   int64   // tasks, threads counted
	CPU    float64 // cores
}

// Usage is what the processes of a group used and which limits they met. A nil pointer is a figure that this host
// does not give: unknown, never zero.
type Usage struct {
	CPU         *time.Duration // processor time, user and system
	MemoryPeak  *int64         // bytes
	PIDsPeak    *int64         // tasks
	OOMKills    *int64         // out-of-memory events at this group's limit
	PIDsReached *bool          // the tasks limit was reached; that a fork was refused is not proved by it
	Processes   *int64         // now
}

// Group is one run's control group. Its methods may be called from several goroutines.
type Group struct{}

// Create makes the group /rea/<run> in every hierarchy, sets and verifies its limits, and starts counting its
// out-of-memory events. Run is 16 hex digits. Journal its path (PathOf) first. After an error nothing is left. The
// error is resource_constraint with ErrCeiling in its chain when the run has to wait, without it when the run can
// never fit; capability_unavailable when this process may not make groups here.
func Create(ctx context.Context, run string, l Limits) (*Group, error) {
	return nil, errors.ErrUnsupported
}

// PathOf is the path that Create gives to a run's group.
func PathOf(run string) string { return Parent + "/" + run }

// Open finds a group by its path, which must be /rea/<run id>. A group that exists in no hierarchy is an error that
// is fs.ErrNotExist. An opened group knows no limits and, on v1, no out-of-memory events.
func Open(path string) (*Group, error) { return nil, errors.ErrUnsupported }

// List returns the paths of all groups below Parent, sorted.
func List() []string { return nil }

// Path is the group's path in every hierarchy: what an engine gets as the parent of the container's group.
func (g *Group) Path() string { return "" }

// Verify compares the kernel's files with the limits that were asked for, and checks that each given process is in
// the group, or in one inside it, in every hierarchy that carries a limit. Call it after start with the container's
// first process.
func (g *Group) Verify(ctx context.Context, pids ...int) error { return errors.ErrUnsupported }

// Usage reads the kernel's counters; they are final once the group is empty.
func (g *Group) Usage() Usage { return Usage{} }

// Procs is the number of processes in the group and the groups inside it, over all hierarchies.
func (g *Group) Procs() (int, error) { return 0, errors.ErrUnsupported }

// Kill ends every process in the group and the groups inside it, and returns when none is left. The error is
// cleanup_incomplete when some remain at ctx's end.
func (g *Group) Kill(ctx context.Context) error { return errors.ErrUnsupported }

// Delete removes the empty group and the groups inside it from every hierarchy. What is already gone is no error.
func (g *Group) Delete(ctx context.Context) error { return errors.ErrUnsupported }
