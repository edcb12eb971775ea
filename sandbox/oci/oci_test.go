package oci_test

import (
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
