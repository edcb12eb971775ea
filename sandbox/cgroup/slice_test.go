package cgroup

import (
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// The names are those of systemd.slice(5): a dash is a level.
func TestNames(t *testing.T) {
	const run = "0123456789abcdef"
	for _, test := range []struct {
		manager Manager
		parent  string
		path    string
		engine  string
	}{
		{Cgroupfs, Parent, "/rea/0123456789abcdef", "/rea/0123456789abcdef"},
		{Systemd, SliceParent, "/rea.slice/rea-0123456789abcdef.slice", "rea-0123456789abcdef.slice"},
	} {
		tr := tree{mode: V2}.under(test.manager)
		g := &Group{tree: tr, path: tr.name(run)}
		if tr.parent != test.parent || g.Path() != test.path || g.Parent() != test.engine || g.Manager() != test.manager || !tr.owns(test.path) {
			t.Errorf("%s: parent %s, path %s, for the engine %s, owned %v", test.manager, tr.parent, g.Path(), g.Parent(), tr.owns(test.path))
		}
		for _, name := range []string{
			"", "/", tr.parent, test.path + "/x", test.path + ".slice", "/x" + test.path, strings.ToUpper(test.path), test.path[1:],
			"/rea.slice/rea-x-0123456789abcdef.slice", "/rea.slice/rea-0123456789abcdef", "/rea.slice/0123456789abcdef", "/rea.slice/docker-0123456789abcdef.slice",
			"/rea.slice/rea-0123456789abcdef.scope", "/rea.slice/../rea.slice/rea-0123456789abcdef.slice", "/rea/rea-0123456789abcdef.slice", "/rea.slice/rea-.slice",
		} {
			if tr.owns(name) {
				t.Errorf("%s owns %q", test.manager, name)
			}
		}
	}
}

// The values are computed by hand, the names are those of systemd.resource-control(5) and of org.freedesktop.systemd1(5).
func TestSliceProperties(t *testing.T) {
	got := map[string]string{}
	for _, p := range sliceProperties("what it is", Limits{Memory: 64 * mib, PIDs: 77, CPU: 1.5}) {
		got[p.Name] = p.Value.String()
	}
	want := map[string]string{
		"Description": `"what it is"`, "CollectMode": `"inactive-or-failed"`,
		"MemoryAccounting": "true", "CPUAccounting": "true", "TasksAccounting": "true",
		"MemoryMax": "@t 67108864", "MemorySwapMax": "@t 0", "TasksMax": "@t 77", "CPUQuotaPerSecUSec": "@t 1500000",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// sliceTree is the tree of a host where systemd makes the groups.
func sliceTree(t *testing.T) tree {
	t.Helper()
	if findTree().manager != Systemd {
		t.Skip("systemd does not make the control groups of this host")
	}
	return testTreeUnder(t, Systemd)
}

// systemctl asks systemd by its own tool.
func systemctl(t *testing.T, args ...string) string {
	t.Helper()
	out, err := exec.Command("systemctl", args...).CombinedOutput()
	if err != nil {
		t.Fatalf("systemctl %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return strings.TrimSpace(string(out))
}

func TestSliceIsAUnit(t *testing.T) {
	tr := sliceTree(t)
	g := newGroup(t, tr, 1, modest)
	got := systemctl(t, "show", "--value", "-p", "ActiveState", "-p", "ControlGroup", "-p", "MemoryMax", "-p", "MemorySwapMax", "-p", "TasksMax", unit(g.path))
	want := []string{"active", g.path, "67108864", "0", "64"}
	if diff := cmp.Diff(counted(want), counted(strings.Fields(got))); diff != "" {
		t.Error(diff)
	}
	must(t, g.Delete(t.Context()))
	if got := systemctl(t, "list-units", "--all", "--plain", "--no-legend", unit(g.path)); got != "" {
		t.Errorf("after deletion systemd still has %s", got)
	}
}

func counted(list []string) map[string]int {
	counts := map[string]int{}
	for _, s := range list {
		counts[s]++
	}
	return counts
}

// What systemd does to its units when it reads them again must not reach the limits, nor who is inside.
func TestSliceHoldsThroughAReload(t *testing.T) {
	tr := sliceTree(t)
	g := newGroup(t, tr, 1, modest)
	inside := enter(t, g, tr.roots(), "exit")
	systemctl(t, "daemon-reload")
	must(t, g.Verify(t.Context(), inside.Process.Pid))
	// A value of our own does not last, which is why there is none: this is what Verify finds before systemd undoes it.
	must(t, writeFile(tr.unified+g.path, "memory.max", "max"))
	if err := g.Verify(t.Context()); err == nil {
		t.Error("a lifted limit was not found")
	}
}

func TestParentSliceWithoutACeilingGetsIt(t *testing.T) {
	tr := sliceTree(t)
	tr.ceiling = 512 * mib
	s, err := dial(t.Context())
	must(t, err)
	defer s.Close()
	must(t, s.start(t.Context(), unit(tr.parent), nil)) // as an engine makes it on the way to a container's
	if got := readFile(tr.unified+tr.parent, "memory.max"); got != "max" && got != "" {
		t.Fatalf("the parent begins with %s", got)
	}
	for range 2 {
		must(t, tr.makeParent(t.Context()))
		if got := readFile(tr.unified+tr.parent, "memory.max"); got != "536870912" {
			t.Errorf("memory.max is %s", got)
		}
	}
	systemctl(t, "set-property", "--runtime", unit(tr.parent), "MemoryMax=256M")
	must(t, tr.makeParent(t.Context()))
	if got := readFile(tr.unified+tr.parent, "memory.max"); got != "268435456" {
		t.Errorf("an administrator's ceiling became %s", got)
	}
}

// A unit of that name that has no group directory of ours yet is somebody's all the same.
func TestSliceThatIsThere(t *testing.T) {
	tr := sliceTree(t)
	g := newGroup(t, tr, 1, modest)
	again := &Group{tree: tr, path: g.path, limits: modest}
	if err := again.startSlice(t.Context()); err == nil || err.Error() != taken().Error() {
		t.Errorf("error %v", err)
	}
	must(t, g.Verify(t.Context()))
}

// The ceiling is the host's, whoever made the groups.
func TestAdmissionCountsBothManagers(t *testing.T) {
	slices := sliceTree(t)
	dirs := testTreeUnder(t, Cgroupfs)
	slices.rivals, dirs.rivals = []string{dirs.parent}, []string{slices.parent}
	slices.ceiling, dirs.ceiling = 100*mib, 100*mib // two runs of 20 MiB and 16 MiB overhead each fit, three do not
	l := Limits{Memory: 20 * mib, PIDs: 8, CPU: 1}
	newGroup(t, slices, 1, l)
	newGroup(t, dirs, 2, l)
	for _, tr := range []tree{slices, dirs} {
		if _, err := tr.create(t.Context(), fmt.Sprintf("%016x", 3), l); !errors.Is(err, ErrCeiling) {
			t.Errorf("a third run under %s: %v", tr.manager, err)
		}
	}
}
