package cgroup

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"rea/evidence/fault"
)

// killTimeout is how long Kill tries. Killed processes are gone within milliseconds; one that hangs in the kernel
// never goes.
const killTimeout = 10 * time.Second

// Procs is the number of processes in the group and the groups inside it, over all hierarchies.
func (g *Group) Procs() (int, error) {
	_, all, err := g.members()
	return len(all), err
}

// members lists the processes that the v2 tree has in the group, and those that any hierarchy has. Processes that
// have ended and were not waited for do not count.
func (g *Group) members() (unified, all []int, err error) {
	for _, root := range g.tree.roots() {
		list, err := processes(root + g.path)
		if err != nil {
			return nil, nil, fmt.Errorf("list the processes of %s: %w", g.path, err)
		}
		if root == g.tree.unified {
			unified = list
		}
		all = append(all, list...)
	}
	slices.Sort(all)
	return unified, slices.Compact(all), nil
}

// processes lists the processes of one directory of a hierarchy and of those inside it. A directory that is gone has
// none.
func processes(top string) ([]int, error) {
	var pids []int
	for _, dir := range subtree(top) {
		f, err := os.Open(filepath.Join(dir, "cgroup.procs"))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		lines := bufio.NewScanner(f)
		for lines.Scan() {
			pid, err := strconv.Atoi(lines.Text())
			if err != nil {
				f.Close()
				return nil, err
			}
			pids = append(pids, pid)
		}
		f.Close()
		// The group may go while it is read.
		if err := lines.Err(); err != nil && !errors.Is(err, unix.ENODEV) {
			return nil, err
		}
	}
	return pids, nil
}

// Kill ends every process in the group and the groups inside it, and returns when none is left in any hierarchy. The
// error is cleanup_incomplete when some remain at ctx's end, or after ten seconds.
//
// The v2 tree kills all its members at once, against any fork bomb. What is in v1 hierarchies alone (a runtime that
// does not enter the v2 tree, or no such tree) is frozen, signalled and thawed, and again until nothing is left: a
// frozen v1 process does not die, so every round begins and ends with a thaw.
func (g *Group) Kill(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, killTimeout)
	defer cancel()
	left := 0
	err := retry(ctx, func() (bool, error) {
		g.thaw()
		killed := g.killUnified()
		unified, all, err := g.members()
		left = len(all)
		if err != nil || left == 0 {
			return err == nil, err
		}
		if !killed {
			unified = nil
		}
		g.killEach(ctx, slices.DeleteFunc(all, func(pid int) bool { return slices.Contains(unified, pid) }))
		return false, nil
	})
	if err == nil {
		return nil
	}
	return fault.New(fault.CleanupIncomplete, fmt.Sprintf("%d processes of a run could not be ended.", left),
		"Run rea sandbox sweep; a process that hangs in the kernel (a file server that does not answer) ends with its cause.").
		With("resources", []string{"cgroup " + g.path}).Because(err)
}

// killUnified kills through the v2 tree, where there is one and its kernel can (5.14). On an older kernel the library
// would freeze, and wait for that without an end.
func (g *Group) killUnified() bool {
	if g.tree.unified == "" {
		return false
	}
	if _, err := os.Lstat(filepath.Join(g.tree.unified+g.path, "cgroup.kill")); err != nil {
		return false
	}
	m, err := g.unified()
	return err == nil && m.Kill() == nil
}

// killEach freezes the group where a v1 freezer is, so that nothing forks meanwhile, signals each process, and thaws.
func (g *Group) killEach(ctx context.Context, pids []int) {
	if len(pids) == 0 {
		return
	}
	if root := g.tree.v1["freezer"]; root != "" {
		defer g.thaw()
		freeze(ctx, root+g.path)
		if _, all, err := g.members(); err == nil {
			pids = all // those that were born before the freeze
		}
	}
	for _, pid := range pids {
		g.signal(pid)
	}
}

// freeze stops the group. It waits a little for the kernel to reach every task.
func freeze(ctx context.Context, dir string) {
	const patience = 20 * time.Millisecond
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	if writeFile(dir, "freezer.state", "FROZEN") != nil {
		return
	}
	// That it took too long is met by the next round.
	_ = retry(ctx, func() (bool, error) { return readFile(dir, "freezer.state") == "FROZEN", nil })
}

// thaw undoes every v1 freeze in the group: ours, a pause of the engine's, and what a core left that died in between.
func (g *Group) thaw() {
	root := g.tree.v1["freezer"]
	if root == "" {
		return
	}
	for _, dir := range subtree(root + g.path) {
		if state := readFile(dir, "freezer.state"); state != "" && state != "THAWED" {
			_ = writeFile(dir, "freezer.state", "THAWED") // one that stays frozen does not die, which Kill finds
		}
	}
}

// signal kills one process, held by descriptor so that its number cannot come to mean another, if it is still in the
// group.
func (g *Group) signal(pid int) {
	if pid <= 1 {
		return // 0 stands for a process of another pid namespace, 1 is never ours
	}
	p, err := os.FindProcess(pid)
	if err != nil {
		return
	}
	defer func() { _ = p.Release() }()
	v1, unified, err := groupsOf(pid)
	if err != nil {
		return
	}
	for _, name := range append(slices.Collect(maps.Values(v1)), unified) {
		if strings.HasPrefix(name, g.tree.parent+"/") && g.covers(name) {
			_ = p.Signal(syscall.SIGKILL) // whether it is gone is looked at afterwards
			return
		}
	}
}
