package orchestrator

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"rea/sandbox"
	"rea/sandbox/journal"
)

// abandoned makes the files of an owner of this machine whose process has ended, with this text as its journal, and
// returns the directory of its runs.
func abandoned(t *testing.T, state, id, text string) string {
	t.Helper()
	own, err := journal.Open(context.Background(), state) // for the record of this machine
	if err != nil {
		t.Fatal(err)
	}
	record, err := os.ReadFile(filepath.Join(state, "owners", own.ID(), "owner.json"))
	if err != nil {
		t.Fatal(err)
	}
	if err := own.Close(); err != nil {
		t.Fatal(err)
	}
	dir, runs := filepath.Join(state, "owners", id), filepath.Join(state, "runs", id)
	for _, err := range []error{
		os.MkdirAll(dir, 0o700), os.MkdirAll(runs, 0o700), os.WriteFile(filepath.Join(dir, "owner.json"), record, 0o600),
		os.WriteFile(filepath.Join(dir, "lock"), nil, 0o600), os.WriteFile(filepath.Join(dir, "journal.ndjson"), []byte(text), 0o600),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	return runs
}

// TestSweepOfADamagedJournal takes a run directory with a mount in it away whose lines in the journal are destroyed.
// What is there was made by hand, and the kernel's own answers say that it is gone.
func TestSweepOfADamagedJournal(t *testing.T) {
	const owner, first = "00112233445566aa", "0123456789abcdef"
	state := t.TempDir()
	run := filepath.Join(abandoned(t, state, owner, "destroyed\n"), first)
	at := filepath.Join(run, "evidence")
	if err := os.MkdirAll(at, 0o700); err != nil {
		t.Fatal(err)
	}
	want := []sandbox.Resource{{Kind: sandbox.KindRunDirectory, Name: run}, {Kind: sandbox.KindTargetMount, Name: at}}
	if err := unix.Mount("tmpfs", at, "tmpfs", 0, "size=64k"); err != nil {
		t.Skip("no right to mount: ", err)
	}
	t.Cleanup(func() { _ = unix.Unmount(at, unix.MNT_DETACH) })

	h := New(Config{Driver: DriverAuto, StateDir: state})
	swept, err := h.Sweep(context.Background())
	if err != nil || len(swept) != 1 {
		t.Fatalf("%+v, %v", swept, err)
	}
	s := swept[0]
	if s.Damage == "" || len(s.Remains) != 0 {
		t.Errorf("%+v", s)
	}
	if diff := cmp.Diff(want, s.Made); diff != "" {
		t.Error(diff)
	}
	if _, err := os.Lstat(run); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the run directory: %v", err)
	}
}

// TestSweepFindsContainersByTheirLabels makes a container by the engine's own client, for a dead owner whose journal is
// destroyed, and beside it one of another state directory, which stays.
func TestSweepFindsContainersByTheirLabels(t *testing.T) {
	const owner, ours, theirs = "00112233445566bb", "0123456789abcdea", "0123456789abcdeb"
	if _, err := exec.LookPath("docker"); err != nil {
		t.Skip("no client of the engine")
	}
	h := newHost(t, DriverDocker)
	state := h.StateDir()
	image, err := h.BuildImage(context.Background(), "static")
	if err != nil {
		t.Fatal(err)
	}
	abandoned(t, state, owner, "destroyed\n")
	id, err := os.ReadFile(filepath.Join(state, "id"))
	if err != nil {
		t.Fatal(err)
	}
	docker := func(args ...string) error { return exec.Command("docker", args...).Run() }
	for run, of := range map[string]string{ours: strings.TrimSpace(string(id)), theirs: "ffffffffffffffff"} {
		t.Cleanup(func() { _ = docker("rm", "-f", "rea-test-"+run) })
		err := docker("create", "--name", "rea-test-"+run, "--label", sandbox.LabelRun+"="+run, "--label", sandbox.LabelOwner+"="+owner,
			"--label", sandbox.LabelState+"="+of, image.Digest)
		if err != nil {
			t.Fatal(err)
		}
	}
	swept, err := h.Sweep(context.Background())
	if err != nil || len(swept) != 1 || len(swept[0].Remains) != 0 || swept[0].Damage == "" {
		t.Fatalf("%+v, %v", swept, err)
	}
	if docker("inspect", "rea-test-"+ours) == nil {
		t.Error("the owner's container is still there")
	}
	if docker("inspect", "rea-test-"+theirs) != nil {
		t.Error("a container of another state directory was removed")
	}
}
