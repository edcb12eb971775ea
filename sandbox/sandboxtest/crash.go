package sandboxtest

import (
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"rea/sandbox/journal"
)

const (
	// crashVariable holds, in the process that is to die, its state directory.
	crashVariable = "REA_SANDBOXTEST_CRASH"
	// crashStepVariable holds at which of its journal's lines it dies.
	crashStepVariable = "REA_SANDBOXTEST_CRASH_STEP"
	// maxCrashSteps is more than any driver writes for a run until it is started.
	maxCrashSteps = 40
)

// crashes lets a process die after each line of its journal, and once with a container that runs, and sweeps.
func crashes(t *testing.T, b *Bench) {
	probe := probeFile(t)
	for step := 1; step <= maxCrashSteps; step++ {
		state := t.TempDir()
		b.Harness.Image(t, Probe(t), state) // so that the process that dies has nothing of ours to do but the run
		cmd := exec.Command(os.Args[0], "-test.run=^"+strings.Split(t.Name(), "/")[0]+"$", "-test.count=1")
		cmd.Env = append(os.Environ(), crashVariable+"="+state, crashStepVariable+"="+strconv.Itoa(step), ProbeVariable+"="+probe,
			"TMPDIR="+publicTemp(t)) // which it does not live to clear
		out, err := cmd.CombinedOutput()
		status, ok := cmd.ProcessState.Sys().(syscall.WaitStatus)
		if err == nil || !ok || !status.Signaled() || status.Signal() != syscall.SIGKILL {
			t.Fatalf("step %d: the process was to die of SIGKILL: %v\n%s", step, err, out)
		}
		b.sweep(t, step, state)
		if strings.Contains(string(out), lastStep) {
			return
		}
	}
	t.Errorf("the run was not started within %d lines of the journal", maxCrashSteps)
}

// lastStep is what the process prints before it dies with a container that runs.
const lastStep = "started: dies now"

// probeFile keeps the probe where the process that dies finds it.
func probeFile(t *testing.T) string {
	t.Helper()
	if path := os.Getenv(ProbeVariable); path != "" {
		return path
	}
	binary, err := buildProbe()
	if err != nil {
		t.Fatal(err)
	}
	path := t.TempDir() + "/probe"
	if err := os.WriteFile(path, binary, 0o755); err != nil {
		t.Fatal(err)
	}
	return path
}

// sweep finishes what the dead process left, and looks at the host.
func (b *Bench) sweep(t *testing.T, step int, state string) {
	t.Helper()
	ctx := Context(t)
	dead, err := journal.DeadOwners(ctx, state)
	if err != nil || len(dead) != 1 {
		t.Fatalf("step %d: %d dead owners, %v; want one", step, len(dead), err)
	}
	entries := dead[0].Entries()
	receipt, err := b.Runtime.Sweep(ctx, dead[0])
	if err != nil || !receipt.Complete() {
		t.Errorf("step %d: sweep: %v, %+v", step, err, receipt)
	}
	held := len(dead[0].Held())
	if err := dead[0].Finish(); err != nil {
		t.Errorf("step %d: finish: %v", step, err)
	}
	if left := mountsBelow(t, state); len(left) > 0 {
		t.Errorf("step %d: mounts remain: %v", step, left)
	}
	for _, e := range entries {
		if dirs := cgroupDirs(t, e.Run); len(dirs) > 0 {
			t.Errorf("step %d: cgroups remain: %v", step, dirs)
		}
		if left := append(b.claims(t, e.Run), mountsBelow(t, "/run/rea/roots/"+e.Run)...); len(left) > 0 {
			t.Errorf("step %d: ids and roots remain: %v", step, left)
		}
		if b.Leftovers != nil {
			if left := b.Leftovers(t, e.Run); len(left) > 0 {
				t.Errorf("step %d: the engine still has %v", step, left)
			}
		}
	}
	owners, err := journal.Owners(state)
	if err != nil || (len(owners) > 0 && held == 0) {
		t.Errorf("step %d: owners after the sweep: %+v, %v", step, owners, err)
	}
}

// crash is the process that dies: by the journal's failpoint, or else when its container runs.
func crash(t *testing.T, h Harness, state string) {
	step, err := strconv.Atoi(os.Getenv(crashStepVariable))
	if err != nil {
		t.Fatal(err)
	}
	lines := 0
	journal.Failpoint = func(journal.Point, journal.Entry) {
		if lines++; lines == step {
			unix.Kill(os.Getpid(), unix.SIGKILL)
			select {}
		}
	}
	b := &Bench{Harness: h, State: state}
	if b.Owner, err = journal.Open(Context(t), state); err != nil {
		t.Fatal(err)
	}
	b.Image = h.Image(t, Probe(t), state)
	box, err := h.Runtime.Create(Context(t), b.Spec(t, Target(t, directory(t))), b.Owner)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := box.Start(Context(t)); err != nil {
		t.Fatal(err)
	}
	os.Stdout.WriteString(lastStep + "\n")
	unix.Kill(os.Getpid(), unix.SIGKILL)
	select {}
}
