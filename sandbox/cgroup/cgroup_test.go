package cgroup

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/containerd/cgroups/v3"
	"github.com/google/go-cmp/cmp"

	"rea/evidence/fault"
)

var parents atomic.Int64

// testTree is this host's tree under its own manager, with a parent of the test's own, so that nobody else's runs count
// or suffer.
func testTree(t testing.TB) tree {
	t.Helper()
	return testTreeUnder(t, findTree().manager)
}

func testTreeUnder(t testing.TB, m Manager) tree {
	t.Helper()
	tr := findTree().under(m)
	if reason, _ := tr.obstacle(); reason != "" {
		t.Skip("no control group can be made: " + reason)
	}
	tr.parent, tr.rivals = fmt.Sprintf("/rea-test-%d-%d", os.Getpid(), parents.Add(1)), nil
	if m == Systemd {
		tr.parent = fmt.Sprintf("/reatest%dx%d.slice", os.Getpid(), parents.Add(1))
	}
	t.Cleanup(func() {
		if err := tr.removeParent(); err != nil {
			t.Errorf("the test's parent group stays: %v", err)
		}
	})
	return tr
}

// removeParent ends what makeParent made.
func (t tree) removeParent() error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if t.manager == Systemd {
		s, err := dial(ctx)
		if err != nil {
			return err
		}
		defer s.Close()
		return s.stop(ctx, unit(t.parent))
	}
	var errs []error
	for _, root := range t.roots() {
		errs = append(errs, removeGroups(ctx, root+t.parent))
	}
	return errors.Join(errs...)
}

const mib = 1 << 20

var modest = Limits{Memory: 64 * mib, PIDs: 64, CPU: 1}

// newGroup makes a group with run id n that ends with the test.
func newGroup(t testing.TB, tr tree, n int, l Limits) *Group {
	t.Helper()
	g, err := tr.create(t.Context(), fmt.Sprintf("%016x", n), l)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(g.Kill(context.Background()), g.Delete(context.Background())); err != nil {
			t.Error(err)
		}
	})
	return g
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// script is a shell that waits inside a group until it is told to go on, as an engine would start a program there.
type script struct {
	*exec.Cmd
	start io.WriteCloser
}

// enter starts a shell script in the group "leaf" inside g, which it makes in the given hierarchies.
func enter(t testing.TB, g *Group, roots []string, text string) script {
	t.Helper()
	cmd := exec.Command("/bin/sh", "-c", "read go; "+text)
	stdin, err := cmd.StdinPipe()
	must(t, err)
	must(t, cmd.Start())
	t.Cleanup(func() { cmd.Process.Kill(); cmd.Wait() })
	for _, root := range roots {
		must(t, g.tree.makeDir(root, g.path+"/leaf"))
		must(t, os.WriteFile(root+g.path+"/leaf/cgroup.procs", []byte(strconv.Itoa(cmd.Process.Pid)), 0))
	}
	return script{cmd, stdin}
}

// go lets the script run.
func (s script) run(t testing.TB) {
	t.Helper()
	_, err := s.start.Write([]byte("go\n"))
	must(t, err)
}

// await waits until the group has at least n processes.
func await(t testing.TB, g *Group, n int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	must(t, retry(ctx, func() (bool, error) {
		have, err := g.Procs()
		return have >= n, errors.Join(err, fmt.Errorf("%d processes", have))
	}))
}

func TestCreateSetsTheKernelsFiles(t *testing.T) {
	tr := testTree(t)
	g := newGroup(t, tr, 1, Limits{Memory: 64*mib + 123, PIDs: 77, CPU: 1.5})
	want := map[string]string{ // by hand from the limits: whole pages, 1.5 × 100 ms
		"memory/memory.limit_in_bytes":       "67108864",
		"memory/memory.memsw.limit_in_bytes": "67108864",
		"pids/pids.max":                      "77",
		"cpu/cpu.cfs_period_us":              "100000",
		"cpu/cpu.cfs_quota_us":               "150000",
	}
	if tr.mode == V2 {
		want = map[string]string{"/memory.max": "67108864", "/memory.swap.max": "0", "/memory.oom.group": "0", "/pids.max": "77", "/cpu.max": "150000 100000"}
	}
	got := map[string]string{}
	for name := range want {
		controller, file, _ := strings.Cut(name, "/")
		got[name] = readFile(tr.home(controller)+g.path, file)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	path, parent := tr.parent+"/0000000000000001", tr.parent+"/0000000000000001"
	if tr.manager == Systemd { // systemd.slice(5): each dash is a level
		parent = strings.TrimSuffix(tr.parent[1:], ".slice") + "-0000000000000001.slice"
		path = tr.parent + "/" + parent
	}
	if g.Path() != path || g.Parent() != parent {
		t.Errorf("path %s, parent %s", g.Path(), g.Parent())
	}
	for _, root := range tr.roots() {
		if _, err := os.Stat(root + g.path); err != nil {
			t.Error(err)
		}
	}
}

func TestCreateRefusesWhatIsNoLimit(t *testing.T) {
	tr := testTree(t)
	const run = "0123456789abcdef"
	for name, l := range map[string]Limits{
		"nothing":         {},
		"no memory":       {PIDs: 1, CPU: 1},
		"negative memory": {Memory: -1, PIDs: 1, CPU: 1},
		"no tasks":        {Memory: mib, CPU: 1},
		"no processor":    {Memory: mib, PIDs: 1},
	} {
		if _, err := tr.create(t.Context(), run, l); err == nil {
			t.Errorf("%s: made", name)
		}
	}
	for _, bad := range []string{"", ".", "..", "../../x", "0123456789ABCDEF", "0123456789abcdef0", "a/b"} {
		if _, err := tr.create(t.Context(), bad, modest); err == nil {
			t.Errorf("run %q: made", bad)
		}
	}
	if got := tr.list(); got != nil {
		t.Errorf("left: %q", got)
	}
}

func TestCreateNeverTakesAnExistingGroup(t *testing.T) {
	tr := testTree(t)
	g := newGroup(t, tr, 1, modest)
	if _, err := tr.create(t.Context(), "0000000000000001", modest); err == nil {
		t.Fatal("made twice")
	}
	must(t, g.Verify(t.Context())) // the refusal did not remove the first one
}

func TestVerifyFindsADifference(t *testing.T) {
	tr := testTree(t)
	g := newGroup(t, tr, 1, modest)
	inside := enter(t, g, tr.roots(), "exit")
	must(t, g.Verify(t.Context(), inside.Process.Pid))

	err := g.Verify(t.Context(), os.Getpid())
	if err == nil || !strings.Contains(err.Error(), "outside the run's memory group") {
		t.Errorf("a process outside: %v", err)
	}
	must(t, os.WriteFile(tr.home("pids")+g.path+"/pids.max", []byte("max"), 0))
	err = g.Verify(t.Context(), inside.Process.Pid)
	if err == nil || !strings.Contains(err.Error(), "pids.max is max and not 64") {
		t.Errorf("a lifted limit: %v", err)
	}
}

func TestAdmissionKeepsBelowTheCeiling(t *testing.T) {
	tr := testTree(t)
	tr.ceiling = 100 * mib // two runs of 20 MiB and 16 MiB overhead each fit, three (108 MiB) do not
	l := Limits{Memory: 20 * mib, PIDs: 8, CPU: 1}
	var admitted, waiting atomic.Int64
	var group sync.WaitGroup
	for n := range 10 {
		group.Go(func() {
			_, err := tr.create(t.Context(), fmt.Sprintf("%016x", n), l)
			switch {
			case err == nil:
				admitted.Add(1)
			case errors.Is(err, ErrCeiling):
				waiting.Add(1)
			default:
				t.Error(err)
			}
		})
	}
	group.Wait()
	if admitted.Load() != 2 || waiting.Load() != 8 {
		t.Fatalf("%d admitted, %d told to wait; want 2 and 8", admitted.Load(), waiting.Load())
	}
	if got := readFile(tr.home("memory")+tr.parent, map[bool]string{true: "memory.max", false: "memory.limit_in_bytes"}[tr.mode == V2]); got != "104857600" {
		t.Errorf("the parent's limit is %s", got)
	}

	paths := tr.list()
	if len(paths) != 2 {
		t.Fatalf("groups %q", paths)
	}
	first, err := tr.open(paths[0])
	must(t, err)
	must(t, first.Delete(t.Context()))
	newGroup(t, tr, 100, l) // there is room again

	_, err = tr.create(t.Context(), fmt.Sprintf("%016x", 101), Limits{Memory: 90 * mib, PIDs: 8, CPU: 1})
	if fault.From(err).Code != fault.ResourceConstraint || errors.Is(err, ErrCeiling) {
		t.Errorf("a run that can never fit: %v", err)
	}
	second, err := tr.open(paths[1])
	must(t, err)
	must(t, second.Delete(t.Context()))
}

func TestAdmissionWaitsNoLongerThanItsContext(t *testing.T) {
	tr := testTree(t)
	must(t, tr.makeParent(t.Context()))
	unlock, err := tr.lock(t.Context())
	must(t, err)
	ctx, cancel := context.WithCancelCause(t.Context())
	why := errors.New("asked to stop")
	done := make(chan error)
	go func() {
		_, err := tr.create(ctx, "0123456789abcdef", modest)
		done <- err
	}()
	cancel(why)
	if err := <-done; !errors.Is(err, why) {
		t.Errorf("error %v", err)
	}
	unlock()
	newGroup(t, tr, 1, modest)
}

func TestUsageOfARunThatRanOutOfMemory(t *testing.T) {
	tr := testTree(t)
	g := newGroup(t, tr, 1, modest)
	// dd fills one buffer of 128 MiB, twice the limit; the shell that waits for it lives on.
	s := enter(t, g, tr.roots(), "dd if=/dev/zero of=/dev/null bs=128M count=1 2>/dev/null; echo survived >/dev/null")
	if u := g.Usage(); u.OOMKills == nil || *u.OOMKills != 0 || u.Processes == nil || *u.Processes != 1 {
		t.Errorf("before: %s", show(u))
	}
	s.run(t)
	s.Wait()
	must(t, g.Kill(t.Context())) // the figures are final when the group is empty
	u := g.Usage()
	if u.OOMKills == nil || *u.OOMKills < 1 {
		t.Errorf("out-of-memory events: %s", show(u))
	}
	if u.MemoryPeak == nil || *u.MemoryPeak > 65*mib || *u.MemoryPeak < 63*mib {
		t.Errorf("memory peak: %s", show(u))
	}
	if u.CPU == nil || *u.CPU <= 0 || *u.Processes != 0 {
		t.Errorf("processor time: %s", show(u))
	}
	must(t, g.Delete(t.Context()))
	if u := g.Usage(); tr.mode != V2 && (u.OOMKills == nil || *u.OOMKills < 1 || u.MemoryPeak != nil) {
		t.Errorf("after deletion: %s", show(u))
	}
}

func TestUsageOfARunThatDidNot(t *testing.T) {
	tr := testTree(t)
	g := newGroup(t, tr, 1, modest)
	s := enter(t, g, tr.roots(), "dd if=/dev/zero of=/dev/null bs=16M count=1 2>/dev/null")
	s.run(t)
	must(t, s.Wait())
	u := g.Usage()
	if *u.OOMKills != 0 || *u.PIDsReached || *u.PIDsPeak < 1 || *u.PIDsPeak > 3 || *u.MemoryPeak < 16*mib {
		t.Error(show(u))
	}
}

func TestUsageOfARunThatForkedTooMuch(t *testing.T) {
	tr := testTree(t)
	g := newGroup(t, tr, 1, Limits{Memory: 64 * mib, PIDs: 8, CPU: 1})
	s := enter(t, g, tr.roots(), "for i in 1 2 3 4 5 6 7 8 9 10 11 12; do sleep 1000 & done 2>/dev/null; wait")
	s.run(t)
	s.Wait() // the shell gives up when it cannot fork: itself and seven others are eight
	if u := g.Usage(); u.PIDsPeak == nil || *u.PIDsPeak != 8 || !*u.PIDsReached {
		t.Error(show(u))
	}
}

func show(u Usage) string {
	var b strings.Builder
	fmt.Fprint(&b, "cpu ", u.CPU)
	for name, p := range map[string]*int64{"memory": u.MemoryPeak, "pids": u.PIDsPeak, "oom": u.OOMKills, "processes": u.Processes} {
		if p == nil {
			fmt.Fprintf(&b, ", %s unknown", name)
		} else {
			fmt.Fprintf(&b, ", %s %d", name, *p)
		}
	}
	return b.String()
}

// storm keeps thirty shells forking as fast as they can; a bomb that meets its limit would burn itself out.
const storm = `i=0; while [ $i -lt 30 ]; do i=$((i+1)); (while :; do (:); done) & done; wait`

func TestKill(t *testing.T) {
	for _, test := range []struct {
		name    string
		text    string
		atLeast int
		prepare func(*testing.T, *Group)
		v1Only  bool
	}{
		{name: "nothing inside", text: "exit"},
		{name: "one that ignores signals", text: "trap '' TERM INT HUP QUIT; while :; do sleep 1000; done", atLeast: 2},
		{name: "its own session", text: "setsid sh -c 'sleep 1000 & sleep 1000' & wait", atLeast: 3},
		{name: "a storm of forks", text: storm, atLeast: 31},
		{name: "frozen", text: "sleep 1000 & sleep 1000", atLeast: 2, prepare: freezeAll},
		{name: "not in the v2 tree", text: "sleep 1000 & sleep 1000", atLeast: 2, v1Only: true},
		{name: "a storm of forks not in the v2 tree", text: storm, atLeast: 31, v1Only: true},
		{name: "frozen, not in the v2 tree", text: "sleep 1000 & sleep 1000", atLeast: 2, v1Only: true, prepare: freezeAll},
	} {
		t.Run(test.name, func(t *testing.T) {
			tr := testTree(t)
			if test.v1Only && tr.mode == V2 {
				t.Skip("there is only the v2 tree here")
			}
			roots := tr.roots()
			if test.v1Only {
				roots = slices.DeleteFunc(roots, func(r string) bool { return r == tr.unified })
			}
			g, neighbour := newGroup(t, tr, 1, Limits{Memory: 128 * mib, PIDs: 256, CPU: 1}), newGroup(t, tr, 2, modest)
			spared := enter(t, neighbour, roots, "exit 3")
			s := enter(t, g, roots, test.text)
			s.run(t)
			await(t, g, test.atLeast)
			if test.prepare != nil {
				test.prepare(t, g)
			}
			must(t, g.Kill(t.Context()))
			// The proof is read without the code under test.
			for _, root := range roots {
				if left := readFile(root+g.path+"/leaf", "cgroup.procs"); left != "" {
					t.Errorf("left in %s: %q", root, left)
				}
			}
			must(t, g.Kill(t.Context())) // again, and empty
			must(t, g.Delete(t.Context()))
			must(t, g.Delete(t.Context()))
			must(t, g.Kill(t.Context())) // and gone
			spared.run(t)
			var exit *exec.ExitError
			if err := spared.Wait(); !errors.As(err, &exit) || exit.ExitCode() != 3 {
				t.Errorf("the neighbour ended with %v", err)
			}
		})
	}
}

// freezeAll leaves a group as a core does that died in the middle of killing it.
func freezeAll(t *testing.T, g *Group) {
	t.Helper()
	if g.tree.mode == V2 {
		must(t, writeFile(g.tree.unified+g.path, "cgroup.freeze", "1"))
		return
	}
	must(t, writeFile(g.tree.v1["freezer"]+g.path, "freezer.state", "FROZEN"))
	must(t, writeFile(g.tree.v1["freezer"]+g.path+"/leaf", "freezer.state", "FROZEN"))
}

func TestKillSaysWhatItCouldNotEnd(t *testing.T) {
	tr := testTree(t)
	g := newGroup(t, tr, 1, modest)
	enter(t, g, tr.roots(), "exit")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	// With no time at all the first round may or may not be enough: either way the answer is true.
	if err := g.Kill(ctx); err != nil {
		if e := fault.From(err); e.Code != fault.CleanupIncomplete || e.Details["resources"] == nil {
			t.Errorf("error %v", err)
		}
	} else if n, err := g.Procs(); n != 0 || err != nil {
		t.Errorf("%d processes, %v", n, err)
	}
}

func TestDeleteOfABusyGroup(t *testing.T) {
	tr := testTree(t)
	g := newGroup(t, tr, 1, modest)
	enter(t, g, tr.roots(), "exit")
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if e := fault.From(g.Delete(ctx)); e == nil || e.Code != fault.CleanupIncomplete {
		t.Errorf("error %v", e)
	}
}

func TestOpenTouchesOnlyRuns(t *testing.T) {
	tr := testTree(t)
	g := newGroup(t, tr, 1, modest)
	must(t, os.MkdirAll(tr.home("memory")+g.path+"/0123456789abcdef", 0o755))
	for _, name := range []string{
		"", "/", ".", tr.parent, tr.parent + "/", tr.parent + "/..", tr.parent + "/../0123456789abcdef", "/docker/0123456789abcdef",
		tr.parent + "/rea-0123456789abcdef.slice", tr.parent + "/rea-0123456789abcdef", tr.parent + "/x-0123456789abcdef.slice",
		g.path + "/", g.path + ".slice", g.path + "/0123456789abcdef", strings.TrimPrefix(g.path, "/"), "/system.slice", tr.parent + "//" + filepath.Base(g.path),
	} {
		if _, err := tr.open(name); err == nil || errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%q: %v", name, err)
		}
	}
	if _, err := tr.open(tr.name("ffffffffffffffff")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a group that is not there: %v", err)
	}
	_, err := tr.open(g.path)
	must(t, err)
}

func TestDetect(t *testing.T) {
	h := Detect()
	// The same question answered by the mount table, read another way.
	out, err := exec.Command("/bin/sh", "-c", "grep -c ' - cgroup .*memory' /proc/self/mountinfo; grep -c ' - cgroup2 ' /proc/self/mountinfo").Output()
	if err != nil && len(out) == 0 {
		t.Skip("no grep here")
	}
	counts := strings.Fields(string(out))
	want := map[[2]bool]Mode{{true, true}: Hybrid, {true, false}: V1, {false, true}: V2, {false, false}: None}[[2]bool{counts[0] != "0", counts[1] != "0"}]
	if h.Mode != want {
		t.Errorf("mode %s, want %s", h.Mode, want)
	}
	if h.Usable != (h.Reason == "") || !h.Usable && h.Action == "" {
		t.Errorf("%+v", h)
	}
	if total := meminfo("MemTotal:"); h.Ceiling <= 0 || h.Ceiling >= total {
		t.Errorf("ceiling %d of %d", h.Ceiling, total)
	}
}

// TestMountTable uses lines in the form of proc_pid_mountinfo(5), as seen on the kinds of host.
func TestMountTable(t *testing.T) {
	const (
		v2root   = "30 23 0:26 / /sys/fs/cgroup rw,nosuid,nodev,noexec,relatime shared:4 - cgroup2 cgroup2 rw,nsdelegate,memory_recursiveprot"
		unified  = "41 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw"
		memory   = "35 31 0:32 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory"
		cpu      = "36 31 0:33 / /sys/fs/cgroup/cpu,cpuacct rw shared:9 - cgroup cgroup rw,cpu,cpuacct"
		systemd  = "40 31 0:37 / /sys/fs/cgroup/systemd rw - cgroup cgroup rw,xattr,name=systemd"
		netcls   = "50 31 0:47 / /sys/fs/cgroup/net_cls rw - cgroup cgroup rw,net_cls"
		inside   = "60 31 0:32 /docker/abc /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory"
		ordinary = "27 1 254:0 / / rw,relatime - ext4 /dev/vda rw"
	)
	for _, test := range []struct {
		name  string
		lines []string
		found cgroups.CGMode // what is mounted at /sys/fs/cgroup
		mode  Mode
		roots []string
	}{
		{"v2", []string{ordinary, v2root}, cgroups.Unified, V2, []string{"/sys/fs/cgroup"}},
		{"v2 and somebody's net_cls", []string{v2root, netcls}, cgroups.Unified, V2, []string{"/sys/fs/cgroup"}},
		{"hybrid", []string{unified, cpu, memory}, cgroups.Hybrid, Hybrid, []string{"/sys/fs/cgroup/cpu,cpuacct", "/sys/fs/cgroup/memory", "/sys/fs/cgroup/unified"}},
		{"v1", []string{memory, cpu, systemd}, cgroups.Legacy, V1, []string{"/sys/fs/cgroup/cpu,cpuacct", "/sys/fs/cgroup/memory", "/sys/fs/cgroup/systemd"}},
		{"v1, and a v2 tree where no engine looks", []string{strings.Replace(unified, "/sys/fs/cgroup/unified", "/mnt", 1), memory}, cgroups.Legacy, V1, []string{"/sys/fs/cgroup/memory"}},
		{"hybrid without memory on v1", []string{unified, cpu}, cgroups.Hybrid, None, nil},
		{"a container's view", []string{inside}, cgroups.Legacy, None, nil},
		{"nothing", []string{ordinary, "", "garbage - ", " - cgroup2 x rw"}, cgroups.Unavailable, None, nil},
	} {
		t.Run(test.name, func(t *testing.T) {
			tr := tree{v1: map[string]string{}}
			for _, text := range test.lines {
				tr.add(text)
			}
			tr.settle(test.found)
			if diff := cmp.Diff([]any{test.mode, test.roots}, []any{tr.mode, tr.roots()}); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// TestObstacles uses directories of plain files in the form of cgroup-v2.rst.
func TestObstacles(t *testing.T) {
	for _, test := range []struct {
		name  string
		files map[string]string
		want  string
	}{
		{"the host's root", map[string]string{"cgroup.controllers": "cpuset cpu io memory pids", "cgroup.procs": "1\n"}, ""},
		{"no pids", map[string]string{"cgroup.controllers": "cpu memory"}, "the pids controller"},
		{"no controllers", map[string]string{"cgroup.controllers": ""}, "the cpu controller"},
		{"a container with processes", map[string]string{"cgroup.controllers": "cpu memory pids", "cgroup.type": "domain", "cgroup.procs": "1\n", "cgroup.subtree_control": ""}, "holds processes"},
		{"an empty delegated group", map[string]string{"cgroup.controllers": "cpu memory pids", "cgroup.type": "domain", "cgroup.procs": "", "cgroup.subtree_control": ""}, ""},
		{"controllers handed on", map[string]string{"cgroup.controllers": "cpu memory pids", "cgroup.type": "domain", "cgroup.procs": "1\n", "cgroup.subtree_control": "cpu memory pids"}, ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			tr := tree{unified: t.TempDir()}.under(Cgroupfs)
			tr.settle(cgroups.Unified)
			for name, text := range test.files {
				must(t, os.WriteFile(filepath.Join(tr.unified, name), []byte(text), 0o600))
			}
			reason, action := tr.obstacle()
			if !strings.Contains(reason, test.want) || (reason == "") != (test.want == "") || (reason == "") != (action == "") {
				t.Errorf("reason %q, action %q", reason, action)
			}
		})
	}
	for _, tr := range []tree{
		(tree{mode: None}).under(Cgroupfs), (tree{mode: Hybrid}).under(Systemd), (tree{mode: V1}).under(Systemd), (tree{mode: V2}).under("none"),
	} {
		if reason, action := tr.obstacle(); reason == "" || action == "" {
			t.Errorf("%s on a %s host has no obstacle", tr.manager, tr.mode)
		}
	}
}

// TestCreateBesideAProcess has a process in the parent group itself, to which v2 then refuses to hand controllers on.
func TestCreateBesideAProcess(t *testing.T) {
	tr := testTreeUnder(t, Cgroupfs)
	if tr.mode != V2 {
		t.Skip("only v2 has this rule")
	}
	must(t, os.Mkdir(tr.unified+tr.parent, 0o755))
	cmd := exec.Command("/bin/sleep", "1000")
	must(t, cmd.Start())
	defer func() { cmd.Process.Kill(); cmd.Wait() }()
	must(t, os.WriteFile(tr.unified+tr.parent+"/cgroup.procs", []byte(strconv.Itoa(cmd.Process.Pid)), 0))
	_, err := tr.create(t.Context(), "0123456789abcdef", modest)
	if e := fault.From(err); e.Code != fault.CapabilityUnavailable || e.Action == "" {
		t.Errorf("error %v", err)
	}
}

func BenchmarkGroup(b *testing.B) {
	tr := testTree(b)
	for b.Loop() {
		g, err := tr.create(b.Context(), "0123456789abcdef", modest)
		must(b, err)
		must(b, g.Kill(b.Context()))
		must(b, g.Delete(b.Context()))
	}
}
