package keeper_test

import (
	"bufio"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"rea/sandbox"
	"rea/sandbox/cgroup"
	"rea/sandbox/journal"
	"rea/sandbox/keeper"
)

// The test binary plays the core and the keeper, by its first argument.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 {
		switch os.Args[1] {
		case "core":
			exit(core(os.Args[2], os.Args[3:]))
		case "keeper":
			exit(keep(os.Args[2], os.Args[3]))
		case "facts":
			exit(facts(os.Args[2]))
		}
	}
	os.Exit(m.Run())
}

func exit(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// keep is the hidden mode. What it is given as the rest it writes down.
func keep(state, owner string) error {
	return keeper.Main(context.Background(), keeper.Job{State: state, Owner: owner, Leash: os.Stdin,
		Rest: func(_ context.Context, entries []journal.Entry) error {
			var names []string
			for _, e := range entries {
				names = append(names, e.Name)
			}
			return os.WriteFile(filepath.Join(state, "rest"), []byte(strings.Join(names, " ")), 0o600)
		}})
}

// core opens a journal, starts a keeper, makes a group for each run with a process in it that ignores signals, says so,
// and waits to be killed.
func core(state string, runs []string) error {
	ctx := context.Background()
	own, err := journal.Open(ctx, state)
	if err != nil {
		return err
	}
	k, err := keeper.Start(ctx, keeper.Options{Args: []string{"keeper", state, own.ID()}})
	if err != nil {
		return err
	}
	for _, run := range runs {
		if err := startRun(ctx, own, run); err != nil {
			return err
		}
	}
	if _, err := own.Make("none", sandbox.KindContainer, "elsewhere", nil); err != nil {
		return err
	}
	fmt.Println("ready", own.ID())
	<-k.Done()
	return errors.New("the keeper ended first")
}

func startRun(ctx context.Context, own *journal.Owner, run string) error {
	if _, err := own.Make(run, sandbox.KindCgroup, cgroup.PathOf(run), nil); err != nil {
		return err
	}
	if _, err := cgroup.Create(ctx, run, cgroup.Limits{Memory: 32 << 20, PIDs: 32, CPU: 1}); err != nil {
		return err
	}
	cmd := exec.Command("/bin/sh", "-c", "trap '' TERM HUP INT; read go; sleep 1000 & exec sleep 1000")
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	for _, dir := range groupDirs(run) {
		if err := os.WriteFile(dir+"/cgroup.procs", []byte(strconv.Itoa(cmd.Process.Pid)), 0); err != nil {
			return err
		}
	}
	_, err = stdin.Write([]byte("go\n"))
	return err
}

// groupDirs finds the directories of a run's group without the code under test.
func groupDirs(run string) []string {
	var dirs []string
	for _, pattern := range []string{"/sys/fs/cgroup/rea/" + run, "/sys/fs/cgroup/*/rea/" + run, "/sys/fs/cgroup/rea.slice/rea-" + run + ".slice"} {
		found, _ := filepath.Glob(pattern)
		dirs = append(dirs, found...)
	}
	return dirs
}

func processes(run string) (n int) {
	for _, dir := range groupDirs(run) {
		b, _ := os.ReadFile(dir + "/cgroup.procs")
		n = max(n, len(strings.Fields(string(b))))
	}
	return n
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func runID() string {
	var b [8]byte
	rand.Read(b[:])
	return hex.EncodeToString(b[:])
}

// eventually waits for a condition that another process brings about.
func eventually(t testing.TB, what string, holds func() bool) {
	t.Helper()
	deadline := time.NewTimer(time.Minute)
	defer deadline.Stop()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for !holds() {
		select {
		case <-deadline.C:
			t.Fatalf("after a minute still not: %s", what)
		case <-tick.C:
		}
	}
}

// startCore starts a core with runs and waits until it is ready. It returns the core and its owner id.
func startCore(t testing.TB, state string, runs ...string) (*exec.Cmd, string) {
	t.Helper()
	cmd := exec.Command("/proc/self/exe", append([]string{"core", state}, runs...)...)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	must(t, err)
	must(t, cmd.Start())
	t.Cleanup(func() {
		cmd.Process.Kill()
		cmd.Wait()
		for _, run := range runs {
			if g, err := cgroup.Open(cgroup.PathOf(run)); err == nil {
				must(t, errors.Join(g.Kill(context.Background()), g.Delete(context.Background())))
			}
		}
	})
	text, err := bufio.NewReader(out).ReadString('\n')
	must(t, err)
	owner, ok := strings.CutPrefix(strings.TrimSpace(text), "ready ")
	if !ok {
		t.Fatalf("the core says %q", text)
	}
	return cmd, owner
}

func TestKilledCoreLeavesNoProcess(t *testing.T) {
	if h := cgroup.Detect(); !h.Usable {
		t.Skip("no control group can be made: " + h.Reason)
	}
	state := t.TempDir()
	runs := []string{runID(), runID()}
	cmd, owner := startCore(t, state, runs...)
	for _, run := range runs {
		eventually(t, "two processes in the run", func() bool { return processes(run) == 2 })
	}
	must(t, cmd.Process.Kill())
	for _, run := range runs {
		eventually(t, "an empty run", func() bool { return processes(run) == 0 })
	}
	eventually(t, "the rest handed over", func() bool {
		b, err := os.ReadFile(filepath.Join(state, "rest"))
		return err == nil && string(b) == "elsewhere"
	})
	// The keeper removed nothing: the sweep finds everything in the journal.
	entries, err := journal.Read(state, owner)
	must(t, err)
	if len(entries) != 3 {
		t.Errorf("journal: %v", entries)
	}
}

// facts writes down what a keeper finds itself with, then keeps.
func facts(path string) error {
	sid, err := unix.Getsid(0)
	if err != nil {
		return err
	}
	wd, err := os.Getwd()
	if err != nil {
		return err
	}
	list, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return err
	}
	lines := []string{fmt.Sprint("leader ", sid == os.Getpid()), "dir " + wd, fmt.Sprint("env ", os.Environ())}
	for _, e := range list {
		link, err := os.Readlink("/proc/self/fd/" + e.Name())
		if err != nil || strings.HasPrefix(link, "anon_inode:") || strings.HasPrefix(link, "/proc/") || strings.HasPrefix(link, "/sys/fs/cgroup/") {
			continue // the Go runtime's own: its poller, its view of the processor limit; and this listing
		}
		kind, _, _ := strings.Cut(link, ":")
		lines = append(lines, e.Name()+" "+kind)
	}
	if err := os.WriteFile(path+".new", []byte(strings.Join(lines, "\n")), 0o600); err != nil {
		return err
	}
	if err := os.Rename(path+".new", path); err != nil {
		return err
	}
	return keeper.Main(context.Background(), keeper.Job{State: filepath.Dir(path), Owner: "0123456789abcdef", Leash: os.Stdin})
}

func TestKeeperInheritsOnlyTheLeash(t *testing.T) {
	// A descriptor that survives exec, as a careless parent would leave it.
	stray, err := unix.Open("/etc/passwd", unix.O_RDONLY, 0)
	must(t, err)
	defer unix.Close(stray)
	path := filepath.Join(t.TempDir(), "facts")
	k, err := keeper.Start(t.Context(), keeper.Options{Args: []string{"facts", path}})
	must(t, err)
	eventually(t, "the keeper's report", func() bool { _, err := os.Stat(path); return err == nil })
	b, err := os.ReadFile(path)
	must(t, err)
	got := strings.Split(string(b), "\n")
	want := []string{"leader true", "dir /", "env []", "0 pipe", "1 /dev/null", "2 /dev/null"}
	if !slices.Equal(got, want) {
		t.Errorf("the keeper has\n%q, want\n%q", got, want)
	}
	must(t, k.Close(t.Context())) // the owner is unknown: nothing to do
	must(t, k.Close(t.Context()))
}

func TestKeeperOutlivesSignals(t *testing.T) {
	path := filepath.Join(t.TempDir(), "facts")
	k, err := keeper.Start(t.Context(), keeper.Options{Args: []string{"facts", path}})
	must(t, err)
	eventually(t, "the keeper's report", func() bool { _, err := os.Stat(path); return err == nil })
	pid := k.PID()
	eventually(t, "ignored signals", func() bool {
		b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
		must(t, err)
		_, after, _ := strings.Cut(string(b), "SigIgn:")
		mask, err := strconv.ParseUint(strings.Fields(after)[0], 16, 64)
		must(t, err)
		return mask>>(syscall.SIGTERM-1)&1 == 1
	})
	for _, s := range []syscall.Signal{syscall.SIGTERM, syscall.SIGHUP, syscall.SIGINT} {
		must(t, syscall.Kill(pid, s))
	}
	must(t, k.Close(t.Context())) // nil only if it ended by itself, not by a signal
}

func TestCloseKillsAKeeperThatHangs(t *testing.T) {
	k, err := keeper.Start(t.Context(), keeper.Options{Exe: "/bin/sleep", Args: []string{"1000"}})
	must(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := k.Close(ctx); err == nil {
		t.Error("no error")
	}
	<-k.Done()
}

func TestStartWithoutAProgram(t *testing.T) {
	if _, err := keeper.Start(t.Context(), keeper.Options{Exe: "/not/there"}); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("error %v", err)
	}
}

// TestForeignGroupsAreSpared gives the keeper a journal that names what is not a run's group.
func TestForeignGroupsAreSpared(t *testing.T) {
	state := t.TempDir()
	own, err := journal.Open(t.Context(), state)
	must(t, err)
	for _, name := range []string{"/", "/rea", "/rea/../docker", "/system.slice"} {
		_, err := own.Make("run", sandbox.KindCgroup, name, nil)
		must(t, err)
	}
	out, err := exec.Command("/proc/self/exe", "keeper", state, own.ID()).CombinedOutput() // its standard input is empty
	if err == nil || strings.Count(string(out), "not one of rea's runs") != 4 {
		t.Errorf("%v: %s", err, out)
	}
}

func BenchmarkStart(b *testing.B) {
	for b.Loop() {
		k, err := keeper.Start(b.Context(), keeper.Options{Exe: "/bin/cat"})
		must(b, err)
		b.StopTimer()
		must(b, k.Close(b.Context()))
		b.StartTimer()
	}
}

// BenchmarkKilledCore measures from the core's SIGKILL to its run's empty group.
func BenchmarkKilledCore(b *testing.B) {
	if h := cgroup.Detect(); !h.Usable {
		b.Skip("no control group can be made: " + h.Reason)
	}
	for b.Loop() {
		b.StopTimer()
		run := runID()
		cmd, _ := startCore(b, b.TempDir(), run)
		eventually(b, "two processes in the run", func() bool { return processes(run) == 2 })
		b.StartTimer()
		must(b, cmd.Process.Kill())
		eventually(b, "an empty run", func() bool { return processes(run) == 0 })
	}
}
