package oci_test

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"go.uber.org/goleak"

	"rea/evidence/fault"
	"rea/images"
	"rea/sandbox"
	"rea/sandbox/journal"
	"rea/sandbox/oci"
	"rea/sandbox/sandboxtest"
	"rea/sandbox/staging"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// harness skips where runc or the right to use it is absent; CI has both.
func harness(t testing.TB) sandboxtest.Harness {
	t.Helper()
	if !staging.Privileged() {
		t.Skip("the oci driver needs root")
	}
	if _, err := exec.LookPath("runc"); err != nil {
		t.Skip("runc is not installed")
	}
	return sandboxtest.Harness{
		Runtime: oci.New(oci.Options{}),
		Image: func(t testing.TB, i *images.Image, state string) sandbox.Image {
			t.Helper()
			root, err := i.RootFS(state)
			if err != nil {
				t.Fatal(err)
			}
			return i.Sandbox(root)
		},
	}
}

func TestConformance(t *testing.T) {
	sandboxtest.Conformance(t, func(t *testing.T) sandboxtest.Harness { return harness(t) })
}

// Where user namespaces are off, runs have none, and the proof and the facts say so.
func TestWithoutUserNamespaces(t *testing.T) {
	h := harness(t)
	h.Runtime = oci.WithoutUserNS(oci.New(oci.Options{}))
	h.Bare = true
	sandboxtest.Conformance(t, func(*testing.T) sandboxtest.Harness { return h })
	facts, err := h.Runtime.Probe(sandboxtest.Context(t))
	if err != nil || !facts.Available || len(facts.Missing) == 0 {
		t.Errorf("facts %+v, %v; want available, with the namespace missing", facts, err)
	}
}

func TestProbe(t *testing.T) {
	h := harness(t)
	facts, err := h.Runtime.Probe(sandboxtest.Context(t))
	if err != nil {
		t.Fatal(err)
	}
	if !facts.Available || facts.Runtimes["runc"] == "" || facts.Runtimes["runc"] != facts.EngineVersion || !facts.Privileged {
		t.Errorf("facts %+v, want an available runc", facts)
	}
}

// Programs that pretend to be runtimes: what they print for --version is what real ones print.
func TestRuntimesThatAreRefused(t *testing.T) {
	if !staging.Privileged() {
		t.Skip("the oci driver needs root")
	}
	for _, tt := range []struct{ name, script string }{
		{"missing", ""},
		{"old runc", "echo 'runc version 1.0.3'"},
		{"crun", "echo 'crun version 1.8.1'"},
		{"runsc", "echo 'runsc version release-20240729.0'"},
		{"not a runtime", "echo 'hello'"},
		{"silent", ""},
		{"failing", "exit 3"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "runtime")
			if tt.name != "missing" {
				if err := os.WriteFile(path, []byte("#!/bin/sh\n"+tt.script+"\n"), 0o755); err != nil {
					t.Fatal(err)
				}
			}
			driver := oci.New(oci.Options{Runtime: path})
			state := t.TempDir()
			owner, err := journal.Open(sandboxtest.Context(t), state)
			if err != nil {
				t.Fatal(err)
			}
			defer owner.Close()
			_, err = driver.Create(sandboxtest.Context(t), sandbox.Spec{ID: journal.NewID()}, owner)
			var f *fault.Error
			if !errors.As(err, &f) || f.Code != fault.CapabilityUnavailable || f.Details["engine"] != "oci" || f.Action == "" {
				t.Errorf("Create = %v, want capability_unavailable of the engine oci", err)
			}
			if left := owner.Live(); len(left) > 0 {
				t.Errorf("the refused run journalled %v", left)
			}
			facts, err := driver.Probe(sandboxtest.Context(t))
			if err != nil || facts.Available || facts.Reason == "" || facts.Action == "" {
				t.Errorf("Probe = %+v, %v; want unavailable, with a reason and an action", facts, err)
			}
		})
	}
}

// A create that is cancelled midway, while something that is not ours keeps the run's directory from being removed:
// the error says so, the journal keeps the entry, and a sweep finishes when the obstacle is gone.
func TestCreateThatCannotCleanUp(t *testing.T) {
	h := harness(t)
	state := t.TempDir()
	ctx, cancel := context.WithCancel(sandboxtest.Context(t))
	var obstacle string
	journal.Failpoint = func(at journal.Point, e journal.Entry) {
		if at == journal.AfterConfirm && e.Kind == sandbox.KindRunDirectory {
			obstacle = filepath.Join(e.Name, "obstacle")
			if err := os.WriteFile(obstacle, nil, 0o600); err != nil {
				t.Error(err)
			}
			cancel()
		}
	}
	t.Cleanup(func() { journal.Failpoint = nil })
	owner, err := journal.Open(ctx, state)
	if err != nil {
		t.Fatal(err)
	}
	bench := &sandboxtest.Bench{Harness: h, State: state, Owner: owner, Image: h.Image(t, sandboxtest.Probe(t), state)}
	_, err = h.Runtime.Create(ctx, bench.Spec(t), owner)
	var f *fault.Error
	if !errors.As(err, &f) || f.Code != fault.CleanupIncomplete || f.Category != fault.CategoryCancelled ||
		f.Details["execution_failure"] != "cancelled" || !errors.Is(err, context.Canceled) {
		t.Fatalf("Create = %v (%+v), want cleanup_incomplete that hides a cancellation", err, f)
	}
	if err := owner.Close(); err == nil {
		t.Fatal("the journal closed as if nothing remained")
	}
	if err := os.Remove(obstacle); err != nil {
		t.Fatal(err)
	}
	dead, err := journal.DeadOwners(sandboxtest.Context(t), state)
	if err != nil || len(dead) != 1 {
		t.Fatalf("dead owners: %v, %v", dead, err)
	}
	if receipt, err := h.Runtime.Sweep(sandboxtest.Context(t), dead[0]); err != nil || len(receipt.Made) != 1 || !receipt.Complete() {
		t.Errorf("sweep: %+v, %v", receipt, err)
	}
	if err := dead[0].Finish(); err != nil {
		t.Error(err)
	}
}
