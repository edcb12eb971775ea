package builtin

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"rea/providers"
)

// TestEveryProviderIsListed fails for a provider that was written and not listed here.
func TestEveryProviderIsListed(t *testing.T) {
	list, err := os.ReadFile("builtin.go")
	if err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob("../*/*.go")
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	for _, name := range files {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Contains(text, []byte("\nfunc Provider() providers.Provider")) {
			continue
		}
		found++
		pkg := filepath.Base(filepath.Dir(name))
		if !bytes.Contains(list, []byte(pkg+".Provider(),")) {
			t.Errorf("provider %s is not listed", pkg)
		}
	}
	if found != len(Providers()) {
		t.Errorf("%d providers are written and %d listed", found, len(Providers()))
	}
}

// TestManifests holds what the core relies on: unique ids, needs that are stated, operations with checks.
func TestManifests(t *testing.T) {
	seen := map[string]bool{}
	for _, p := range Providers() {
		m := p.Manifest()
		if m.ID == "" || m.Name == "" || m.Version == "" || m.Worker == "" || m.Image == "" || seen[m.ID] {
			t.Errorf("%+v", m)
		}
		seen[m.ID] = true
		if n := m.Needs; n.Memory <= 0 || n.CPU <= 0 || n.PIDs <= 0 || n.EvidenceBytes <= 0 || n.EvidenceInodes <= 0 || n.Seccomp == "" ||
			n.Deadline <= 0 || n.Idle <= 0 {
			t.Errorf("%s: needs %+v", m.ID, n)
		}
		for _, op := range p.Operations() {
			if found, ok := providers.Find(p, op.Name); !ok || found.Check == nil {
				t.Errorf("%s: %s has no check", m.ID, op.Name)
			}
		}
	}
}
