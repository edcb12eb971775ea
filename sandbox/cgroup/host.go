package cgroup

import (
	"bufio"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/containerd/cgroups/v3"
	"golang.org/x/sys/unix"

	"rea/evidence/fault"
)

// Mode is how a host arranges its control groups.
type Mode string

// The closed set of modes.
const (
	V1     Mode = "v1"
	Hybrid Mode = "hybrid" // v1 controllers, and a v2 tree beside them
	V2     Mode = "v2"
	None   Mode = "none"
)

// Manager is who makes a host's groups, by the names that engines and runtimes have for it.
type Manager string

// The closed set of managers.
const (
	Cgroupfs Manager = "cgroupfs" // whoever needs one makes a directory
	Systemd  Manager = "systemd"  // systemd makes units, on v2 only; see slice.go
)

// Host says what this process finds. An engine may have been told to use another manager than the host's own: ask it,
// for a group made by one is not a parent that an engine with the other takes.
type Host struct {
	Mode        Mode
	Manager     Manager  // of the host's own tree: Systemd on a v2 host that runs it
	Controllers []string // controllers of the v2 tree, sorted
	Usable      bool     // this process may make groups with all limits
	Reason      string   // why not, "" when Usable
	Action      string   // what to do about it, "" when Usable
	Ceiling     int64    // bytes of memory that all runs of this host share, 0 when unknown
}

// Shares of the host's memory.
const (
	// ceilingPercent of the host's memory is for runs; the rest is the core's, the engine's and the page cache's.
	ceilingPercent = 75
	// engineOverhead is what an engine spends outside the run's group on each container: its shim was measured at
	// 12 MiB, the runtime's own start needs a little more for a moment.
	engineOverhead = 16 << 20
)

// limiting are the controllers that every run needs.
var limiting = []string{"cpu", "memory", "pids"}

// Detect examines the host and makes nothing. Usable is about the host's own manager.
func Detect() Host {
	t := findTree()
	h := Host{Mode: t.mode, Manager: t.manager, Controllers: t.controllers(), Ceiling: t.ceiling}
	h.Reason, h.Action = t.obstacle()
	h.Usable = h.Reason == ""
	return h
}

// Obstacle says why this process cannot make groups through m on this host, and what to do; "" when it can.
func (m Manager) Obstacle() (reason, action string) { return findTree().under(m).obstacle() }

// tree is where a host's hierarchies are mounted and which parent is ours.
type tree struct {
	mode    Mode
	manager Manager
	unified string            // mount point of the v2 tree, "" where there is none
	v1      map[string]string // v1 controller to mount point; named hierarchies as "name=systemd"
	parent  string            // Parent or SliceParent, except in tests
	rivals  []string          // parents of what the other manager made: its runs count in admission
	ceiling int64             // bytes
}

// findTree finds the hierarchies of this process's mount namespace, under the host's own manager.
func findTree() tree {
	t := tree{v1: map[string]string{}, ceiling: memoryTotal() / 100 * ceilingPercent}
	if f, err := os.Open("/proc/self/mountinfo"); err == nil {
		defer f.Close()
		lines := bufio.NewScanner(f)
		lines.Buffer(nil, 1<<20) // overlay mounts have long lines
		for lines.Scan() {
			t.add(lines.Text())
		}
	}
	t.settle(cgroups.Mode())
	if t.mode == V2 && systemdRuns() {
		return t.under(Systemd)
	}
	return t.under(Cgroupfs)
}

// under is the tree as a manager divides it.
func (t tree) under(m Manager) tree {
	t.manager, t.parent, t.rivals = m, Parent, []string{SliceParent}
	if m == Systemd {
		t.parent, t.rivals = SliceParent, []string{Parent}
	}
	return t
}

// settle decides the mode when all mounts are known. Engines and runtimes decide as package cgroups does, by what is
// mounted at /sys/fs/cgroup: a v1 hierarchy elsewhere beside a v2 tree there (somebody's net_cls) makes no hybrid.
func (t *tree) settle(mode cgroups.CGMode) {
	_, v1 := t.v1["memory"]
	switch {
	case mode == cgroups.Unified && t.unified != "":
		t.mode, t.v1 = V2, nil
	case mode == cgroups.Hybrid && v1 && t.unified != "":
		t.mode = Hybrid
	case (mode == cgroups.Hybrid || mode == cgroups.Legacy) && v1:
		t.mode, t.unified = V1, ""
	default:
		t.mode, t.v1, t.unified = None, nil, ""
	}
}

// add takes one line of proc_pid_mountinfo(5). Only whole hierarchies count: the paths that engines and /proc give are
// relative to their root. The first mount of each wins.
func (t *tree) add(text string) {
	left, right, ok := strings.Cut(text, " - ")
	mount, super := strings.Fields(left), strings.Fields(right)
	if !ok || len(mount) < 6 || len(super) < 3 || mount[3] != "/" {
		return
	}
	point := mount[4]
	switch super[0] {
	case "cgroup2":
		if t.unified == "" {
			t.unified = point
		}
	case "cgroup":
		for option := range strings.SplitSeq(super[2], ",") {
			switch option {
			case "rw", "ro", "xattr", "noprefix", "clone_children": // options, not controllers
				continue
			}
			if _, known := t.v1[option]; !known {
				t.v1[option] = point
			}
		}
	}
}

// memoryTotal is the host's memory in bytes, 0 when it cannot be read.
func memoryTotal() int64 { return meminfo("MemTotal:") }

// meminfo reads one figure of proc_meminfo(5), in bytes.
func meminfo(name string) int64 {
	b, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		return 0
	}
	for text := range strings.Lines(string(b)) {
		if f := strings.Fields(text); len(f) >= 2 && f[0] == name {
			n, _ := strconv.ParseInt(f[1], 10, 64)
			return n << 10
		}
	}
	return 0
}

// roots are the mount points of all hierarchies in use, each once, in a fixed order: the one that admission locks
// first.
func (t tree) roots() []string {
	var roots []string
	for _, name := range slices.Sorted(maps.Keys(t.v1)) {
		if !slices.Contains(roots, t.v1[name]) {
			roots = append(roots, t.v1[name])
		}
	}
	if t.unified != "" {
		roots = append(roots, t.unified)
	}
	return roots
}

// controllers lists the controllers of the v2 tree.
func (t tree) controllers() []string {
	if t.unified == "" {
		return nil
	}
	list := strings.Fields(readFile(t.unified, "cgroup.controllers"))
	slices.Sort(list)
	return list
}

// home is the mount point of the hierarchy that carries a controller.
func (t tree) home(controller string) string {
	if t.mode == V2 {
		return t.unified
	}
	return t.v1[controller]
}

// obstacle says why this process cannot make groups here, and what to do; "" when it can.
func (t tree) obstacle() (reason, action string) {
	const user = "Run rea as root, or use the Docker engine as an ordinary user, where the engine sets the limits."
	if t.manager != Cgroupfs && t.manager != Systemd {
		return "the engine makes no control groups", "Start the engine as root, with its cgroupfs or systemd driver."
	}
	if t.mode == None {
		return "no control group hierarchy is mounted", "Mount cgroup2 at /sys/fs/cgroup."
	}
	have := t.controllers()
	for _, c := range limiting {
		if t.mode != V2 && t.v1[c] == "" || t.mode == V2 && !slices.Contains(have, c) {
			return "the " + c + " controller is not available", "Enable the " + c + " controller in the kernel's configuration or command line."
		}
	}
	if t.manager == Systemd {
		return t.withoutSystemd()
	}
	for _, root := range t.roots() {
		if err := unix.Faccessat(unix.AT_FDCWD, root, unix.W_OK, unix.AT_EACCESS); err != nil {
			return "this process may not make control groups in " + root, user
		}
	}
	if t.mode == V2 {
		return t.crowded()
	}
	return "", ""
}

// crowded says that the v2 tree's root is a container's or a unit's and holds processes itself: the kernel then
// refuses to hand controllers on ("no internal process" rule of cgroup-v2.rst). The host's true root is exempt; it is
// the only group without a cgroup.type.
func (t tree) crowded() (reason, action string) {
	if _, err := os.Lstat(filepath.Join(t.unified, "cgroup.type")); errors.Is(err, os.ErrNotExist) {
		return "", ""
	}
	enabled := strings.Fields(readFile(t.unified, "cgroup.subtree_control"))
	for _, c := range limiting {
		if !slices.Contains(enabled, c) && readFile(t.unified, "cgroup.procs") != "" {
			return "the root of the control group tree holds processes, so its controllers cannot be handed on",
				"Run rea on the host itself, or in a unit with Delegate=yes and DelegateSubgroup set."
		}
	}
	return "", ""
}

// unusable is the error for a host on which no group can be made.
func unusable(reason, action string) *fault.Error {
	return fault.New(fault.CapabilityUnavailable, "A run cannot get a control group of its own: "+reason+".", action).
		With("feature", "cgroup")
}

// readFile reads a kernel file of at most a few lines, "" when it cannot be read.
func readFile(dir, name string) string {
	b, err := os.ReadFile(filepath.Join(dir, name))
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(b))
}

// readInt reads a kernel file that holds one number. "max" is not a number.
func readInt(dir, name string) (int64, error) {
	b, err := os.ReadFile(filepath.Join(dir, name))
	if err != nil {
		return 0, err
	}
	return strconv.ParseInt(strings.TrimSpace(string(b)), 10, 64)
}

// writeFile writes a kernel file with one write. It never makes one.
func writeFile(dir, name, value string) error {
	f, err := os.OpenFile(filepath.Join(dir, name), os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteString(value)
	return errors.Join(err, f.Close())
}
