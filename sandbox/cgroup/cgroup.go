// Package cgroup gives each run one control group of rea's own, on cgroup v1, v2 and hybrid hosts.
//
// The group outlives the container that an engine puts inside it, so limits, peaks, out-of-memory events, killing and
// the proof of emptiness all work on it. Every group lies below a host-wide parent, /rea/<run>, or
// /rea.slice/rea-<run>.slice where systemd makes the groups, and admission keeps the sum of the limits of all groups
// below the host's ceiling, whichever process made them. Package cgroup must not know what runs inside, and never
// kills or removes anything that is not named like that.
//
// The host's mode, the v1 and v2 counters and events, the v2 kill and the paths of a process come from
// containerd/cgroups; slices are made with the connection to systemd that it uses too. What that library does not do is
// here: the limits are one table of kernel files and values, which is written at Create (or held against what systemd
// wrote) and compared at Verify; admission under one lock; a kill that is repeated until nothing is left in any
// hierarchy and that never waits without an end; pids.peak; and the difference between a counter of zero and one that
// this kernel does not have.
//
// Kernel interfaces: Documentation/admin-guide/cgroup-v1 and cgroup-v2.rst.
package cgroup

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/containerd/cgroups/v3"

	"rea/evidence/fault"
)

// Parent is the host-wide parent of every run's group that is made as a directory, as a path in each hierarchy.
const Parent = "/rea"

// ErrCeiling is in the error chain of Create when the run would fit this host but not beside those that run now: wait
// for one of them to end and try again.
var ErrCeiling = errors.New("the runs of this host have reached their memory ceiling")

// runForm is the form of a run id, and so of the last part of each path that is ours.
var runForm = regexp.MustCompile(`^[0-9a-f]{16}$`)

// Limits are the limits of one group; all three must be positive.
type Limits struct {
	Memory int64   // bytes, rounded down to whole pages; no swap
	PIDs   int64   // tasks, threads counted
	CPU    float64 // cores
}

// Group is one run's control group. Its methods may be called from several goroutines.
type Group struct {
	tree   tree
	path   string
	limits Limits    // zero when opened
	oom    *oomCount // v1 and hybrid, nil when opened
}

// PathOf is the path that Create gives to a run's group.
func PathOf(run string) string { return findTree().name(run) }

// PathOf is the path that m.Create gives to a run's group.
func (m Manager) PathOf(run string) string { return findTree().under(m).name(run) }

// Create makes the run's group through the host's own manager, sets and verifies its limits, and starts counting its
// out-of-memory events. Run is 16 hex digits. Journal its path (PathOf) first. After an error nothing is left. The
// error is resource_constraint with ErrCeiling in its chain when the run has to wait, without it when the run can
// never fit; capability_unavailable when this process may not make groups here.
func Create(ctx context.Context, run string, l Limits) (*Group, error) {
	return findTree().create(ctx, run, l)
}

// Create is the function Create through m, for an engine that was told to use another manager than the host's.
func (m Manager) Create(ctx context.Context, run string, l Limits) (*Group, error) {
	return findTree().under(m).create(ctx, run, l)
}

func (t tree) create(ctx context.Context, run string, l Limits) (*Group, error) {
	if !runForm.MatchString(run) || l.Memory < int64(os.Getpagesize()) || l.PIDs <= 0 || !(l.CPU > 0) || math.IsInf(l.CPU, 0) {
		return nil, fault.New(fault.ExecutionFailure, "A control group was asked for with a bad run id or without a limit.", "Report this: it is a defect of rea.")
	}
	if reason, action := t.obstacle(); reason != "" {
		return nil, unusable(reason, action)
	}
	l.Memory -= l.Memory % int64(os.Getpagesize())
	if err := t.makeParent(ctx); err != nil {
		return nil, err
	}
	unlock, err := t.lock(ctx)
	if err != nil {
		return nil, err
	}
	defer unlock()
	if err := t.admit(l.Memory); err != nil {
		return nil, err
	}
	g := &Group{tree: t, path: t.name(run), limits: l}
	if g.exists() {
		return nil, taken()
	}
	if err := g.build(ctx); err != nil {
		return nil, errors.Join(err, g.Delete(context.WithoutCancel(ctx)))
	}
	return g, nil
}

// makeParent makes the host-wide parent, once for all cores: its processors (cpuset), its controllers (v2) and its
// ceiling, which only backs admission up: when the kernel meets it, it kills whichever run it likes.
func (t tree) makeParent(ctx context.Context) error {
	if t.manager == Systemd {
		return t.makeParentSlice(ctx)
	}
	for _, root := range t.roots() {
		if err := t.makeDir(root, t.parent); err != nil {
			return refused("make the parent group", err)
		}
	}
	if root := t.v1["memory"]; readFile(root+t.parent, "memory.use_hierarchy") == "0" {
		// Before Linux 5.11 a limit did not hold for groups inside unless it was asked to.
		if err := writeFile(root+t.parent, "memory.use_hierarchy", "1"); err != nil {
			return refused("make the parent group's limits hold below it", err)
		}
	}
	if t.mode == V2 {
		for _, dir := range []string{t.unified, t.unified + t.parent} {
			if err := handOn(dir); err != nil {
				return err
			}
		}
	}
	if t.ceiling <= 0 {
		return nil
	}
	for _, s := range t.memorySettings(t.pageCeiling()) {
		dir := s.root + t.parent
		if unlimited(readFile(dir, s.file)) {
			if err := s.write(dir); err != nil {
				return refused("limit the parent group", err)
			}
		}
	}
	return nil
}

// pageCeiling is the ceiling as the kernel keeps it: whole pages.
func (t tree) pageCeiling() int64 { return t.ceiling - t.ceiling%int64(os.Getpagesize()) }

// unlimited reports whether a memory limit is none: "max" on v2, near the largest int64 on v1.
func unlimited(value string) bool {
	if value == "max" {
		return true
	}
	n, err := strconv.ParseInt(value, 10, 64)
	return err == nil && n > math.MaxInt64/2
}

// handOn gives the limiting controllers of a v2 group to its children. The kernel answers EBUSY when processes sit in
// the group itself.
func handOn(dir string) error {
	enabled := strings.Fields(readFile(dir, "cgroup.subtree_control"))
	for _, c := range limiting {
		if slices.Contains(enabled, c) {
			continue
		}
		if err := writeFile(dir, "cgroup.subtree_control", "+"+c); err != nil {
			return unusable("the "+c+" controller cannot be handed on in "+dir,
				"See that no process sits in that group itself.").Because(err)
		}
	}
	return nil
}

// makeDir makes one directory of one hierarchy. A fresh cpuset has no processors and takes no process: it gets its
// parent's.
func (t tree) makeDir(root, group string) error {
	dir := root + group
	if err := os.Mkdir(dir, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	if root != t.v1["cpuset"] {
		return nil
	}
	for _, file := range []string{"cpuset.cpus", "cpuset.mems"} {
		if readFile(dir, file) != "" {
			continue
		}
		if err := writeFile(dir, file, readFile(filepath.Dir(dir), file)); err != nil {
			return err
		}
	}
	return nil
}

// build makes the group, sets its limits, registers for its events and verifies.
func (g *Group) build(ctx context.Context) error {
	makeIt := g.makeDirs
	if g.tree.manager == Systemd {
		makeIt = func() error { return g.startSlice(ctx) }
	}
	if err := makeIt(); err != nil {
		return err
	}
	if g.tree.mode != V2 { // v2 counts in memory.events, which stays until the group goes
		oom, err := countOOM(g.tree.v1["memory"], g.path)
		if err != nil {
			return refused("register for a run's out-of-memory events", err)
		}
		g.oom = oom
	}
	return g.Verify(ctx)
}

// makeDirs makes the group in every hierarchy and sets its limits.
func (g *Group) makeDirs() error {
	for _, root := range g.tree.roots() {
		if err := g.tree.makeDir(root, g.path); err != nil {
			return refused("make a run's group", err)
		}
	}
	for _, s := range g.tree.settings(g.limits) {
		if err := s.write(s.root + g.path); err != nil {
			return refused("limit a run's group", err)
		}
	}
	return nil
}

// refused is the error for a group operation that the kernel refused.
func refused(what string, err error) *fault.Error {
	return fault.New(fault.ExecutionFailure, "The kernel did not let rea "+what+".",
		"Look at the host's control groups with rea doctor, then repeat the call.").Because(err)
}

// setting is one limit: a kernel file of one hierarchy and its value.
type setting struct {
	root, file, value string
	swap              bool // only missing swap accounting on a host without swap excuses its absence
}

// write sets the limit in a group's directory.
func (s setting) write(dir string) error {
	err := writeFile(dir, s.file, s.value)
	if s.swap && errors.Is(err, fs.ErrNotExist) && meminfo("SwapTotal:") == 0 {
		return nil
	}
	return err
}

// differs compares the kernel's value with ours; "" when they are equal.
func (s setting) differs(dir string) string {
	b, err := os.ReadFile(filepath.Join(dir, s.file))
	if s.swap && errors.Is(err, fs.ErrNotExist) && meminfo("SwapTotal:") == 0 {
		return ""
	}
	if err != nil {
		return s.file + " cannot be read"
	}
	if got := strings.TrimSpace(string(b)); got != s.value {
		return fmt.Sprintf("%s is %s and not %s", s.file, got, s.value)
	}
	return ""
}

// memorySettings limit memory, and memory plus swap to the same.
func (t tree) memorySettings(bytes int64) []setting {
	root, n := t.home("memory"), strconv.FormatInt(bytes, 10)
	if t.mode == V2 {
		return []setting{{root, "memory.max", n, false}, {root, "memory.swap.max", "0", true}}
	}
	return []setting{{root, "memory.limit_in_bytes", n, false}, {root, "memory.memsw.limit_in_bytes", n, true}}
}

const (
	cpuPeriod = 100_000 // microseconds, the kernel's default
	minQuota  = 1_000   // the least that the kernel takes
)

// quota is the processor time of a period, in microseconds.
func quota(cores float64) int64 { return max(int64(math.Round(cores*cpuPeriod)), minQuota) }

// settings is the table of a run's limits. There is no memory.oom.group: slices and v1 groups cannot have it, so a run
// would end otherwise on each kind of host, and the worker that outlives its child's excess can still seal what it has.
// An OOM kill is seen in the counters, and Kill ends what is left.
func (t tree) settings(l Limits) []setting {
	period, quota := strconv.Itoa(cpuPeriod), strconv.FormatInt(quota(l.CPU), 10)
	s := append(t.memorySettings(l.Memory), setting{t.home("pids"), "pids.max", strconv.FormatInt(l.PIDs, 10), false})
	if t.mode != V2 {
		return append(s, setting{t.home("cpu"), "cpu.cfs_period_us", period, false},
			setting{t.home("cpu"), "cpu.cfs_quota_us", quota, false})
	}
	return append(s, setting{t.unified, "cpu.max", quota + " " + period, false})
}

// Open finds a group by its path, as PathOf gives it for either manager. A group that exists in no hierarchy is an
// error that is fs.ErrNotExist. An opened group knows no limits and, on v1, no out-of-memory events.
func Open(name string) (*Group, error) {
	t := findTree()
	for _, m := range []Manager{Cgroupfs, Systemd} {
		if u := t.under(m); u.owns(name) {
			return u.open(name)
		}
	}
	return t.open(name) // which refuses it
}

func (t tree) open(name string) (*Group, error) {
	if !t.owns(name) {
		return nil, fault.New(fault.ExecutionFailure, "A control group that is not one of rea's runs was named.",
			"Look at the owner's journal: rea does not touch groups that are not below "+Parent+" or "+SliceParent+".")
	}
	g := &Group{tree: t, path: name}
	if !g.exists() {
		return nil, fmt.Errorf("control group %s: %w", name, fs.ErrNotExist)
	}
	return g, nil
}

// exists reports whether any hierarchy has the group.
func (g *Group) exists() bool {
	return slices.ContainsFunc(g.tree.roots(), func(root string) bool {
		_, err := os.Lstat(root + g.path)
		return err == nil
	})
}

// List returns the paths of all runs' groups, of both managers, sorted.
func List() []string {
	t := findTree()
	paths := append(t.under(Cgroupfs).list(), t.under(Systemd).list()...)
	slices.Sort(paths)
	return paths
}

func (t tree) list() []string {
	var paths []string
	for _, root := range t.roots() {
		for _, name := range children(root + t.parent) {
			if group := path.Join(t.parent, name); t.owns(group) {
				paths = append(paths, group)
			}
		}
	}
	slices.Sort(paths)
	return slices.Compact(paths)
}

// children names the groups inside a directory of a hierarchy.
func children(dir string) []string {
	list, err := os.ReadDir(dir)
	if err != nil {
		return nil
	}
	var names []string
	for _, e := range list {
		if e.IsDir() {
			names = append(names, e.Name())
		}
	}
	return names
}

// Path is the group's path in every hierarchy.
func (g *Group) Path() string { return g.path }

// Parent is what an engine or a runtime with the same manager gets as the parent of the container's group: the path,
// or the name of the slice.
func (g *Group) Parent() string {
	if g.tree.manager == Systemd {
		return unit(g.path)
	}
	return g.path
}

// Manager is who made the group.
func (g *Group) Manager() Manager { return g.tree.manager }

// Verify compares the kernel's files with the limits that were asked for, and checks that each given process is in
// the group, or in one inside it, in every hierarchy that carries a limit. Call it after start with the container's
// first process, on a group that Create made. The error is execution_failure and names each difference.
func (g *Group) Verify(ctx context.Context, pids ...int) error {
	if err := ctx.Err(); err != nil {
		return context.Cause(ctx)
	}
	var wrong []string
	for _, s := range g.tree.settings(g.limits) {
		if d := s.differs(s.root + g.path); d != "" {
			wrong = append(wrong, d)
		}
	}
	for _, pid := range pids {
		wrong = append(wrong, g.outside(pid)...)
	}
	if len(wrong) == 0 {
		return nil
	}
	return fault.New(fault.ExecutionFailure, "The run's limits are not what was asked for: "+strings.Join(wrong, "; ")+".",
		"Another program changes the host's control groups, or the engine ignores the parent group: see rea doctor.")
}

// outside names the limiting hierarchies in which a process is not in the group.
func (g *Group) outside(pid int) []string {
	v1, unified, err := groupsOf(pid)
	if err != nil {
		return []string{fmt.Sprintf("process %d cannot be examined", pid)}
	}
	var wrong []string
	for _, c := range limiting {
		name := v1[c]
		if g.tree.mode == V2 {
			name = unified
		}
		if !g.covers(name) {
			wrong = append(wrong, fmt.Sprintf("process %d is outside the run's %s group", pid, c))
		}
	}
	return wrong
}

// covers reports whether a group's path is this group or inside it.
func (g *Group) covers(name string) bool {
	return name == g.path || strings.HasPrefix(name, g.path+"/")
}

// groupsOf reads proc_pid_cgroup(5): the path for each v1 controller, and the path in the v2 tree.
func groupsOf(pid int) (v1 map[string]string, unified string, err error) {
	return cgroups.ParseCgroupFileUnified(fmt.Sprintf("/proc/%d/cgroup", pid))
}

// deleteTimeout is how long Delete waits for the kernel to let go of an empty group.
const deleteTimeout = 10 * time.Second

// Delete removes the empty group and the groups inside it from every hierarchy. What is already gone is no error.
func (g *Group) Delete(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, deleteTimeout)
	defer cancel()
	g.oom.close()
	remove := g.removeDirs
	if g.tree.manager == Systemd {
		remove = g.stopSlice
	}
	if err := remove(ctx); err != nil {
		return fault.New(fault.CleanupIncomplete, "The control group of a run could not be removed.",
			"Run rea sandbox sweep when its processes have ended.").With("resources", []string{"cgroup " + g.path}).Because(err)
	}
	return nil
}

// removeDirs removes the group from every hierarchy.
func (g *Group) removeDirs(ctx context.Context) error {
	for _, root := range g.tree.roots() {
		if err := removeGroups(ctx, root+g.path); err != nil {
			return err
		}
	}
	return nil
}

// removeGroups removes a directory of a hierarchy from its leaves up. A process that is just ending keeps its group
// busy for a moment.
func removeGroups(ctx context.Context, top string) error {
	dirs := subtree(top)
	for _, dir := range slices.Backward(dirs) {
		err := retry(ctx, func() (bool, error) {
			err := os.Remove(dir)
			if err == nil || errors.Is(err, fs.ErrNotExist) {
				return true, nil
			}
			return false, err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// subtree lists a directory of a hierarchy and everything inside it, parents first.
func subtree(top string) []string {
	dirs := []string{top}
	for i := 0; i < len(dirs); i++ {
		for _, name := range children(dirs[i]) {
			dirs = append(dirs, filepath.Join(dirs[i], name))
		}
	}
	return dirs
}

// retry calls f until it is done or ctx ends, with a short, growing pause. The error is f's last one.
func retry(ctx context.Context, f func() (done bool, err error)) error {
	const longest = 20 * time.Millisecond
	pause := time.Millisecond / 4
	for {
		done, err := f()
		if done {
			return nil
		}
		timer := time.NewTimer(pause)
		select {
		case <-ctx.Done():
			timer.Stop()
			return errors.Join(err, context.Cause(ctx))
		case <-timer.C:
		}
		pause = min(2*pause, longest)
	}
}
