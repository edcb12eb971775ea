package main

import (
	"bufio"
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"rea/orchestrator/catalog"
	"rea/orchestrator/reference"
)

// The committed reference of the tools is the one that the contracts give.
func TestToolReferenceIsCurrent(t *testing.T) {
	want := string(reference.Markdown(catalog.Builtin()))
	if diff := cmp.Diff(want, document(t, "docs/tools.md")); diff != "" {
		t.Errorf("docs/tools.md is not current: run make generate (-want +got):\n%s", diff)
	}
}

// The product catalog says of this program what a running server says of itself.
func TestProductCatalogAgainstServer(t *testing.T) {
	a := &app{}
	a.root = a.command()
	raw, err := a.product().JSON()
	if err != nil {
		t.Fatal(err)
	}
	again, err := a.product().JSON()
	if err != nil || string(again) != string(raw) {
		t.Errorf("the catalog is not deterministic: %v", err)
	}
	var product struct {
		Package struct{ Name, Version string }
		Tools   struct {
			Total    int
			Families []struct {
				ID    string
				Count int
				Tools []struct {
					Name    string
					Effects map[string]bool
				}
			}
		}
		Runtime struct {
			Counts  map[string]int
			Digests map[string]string
		} `json:"runtime_catalog"`
	}
	if err := json.Unmarshal(raw, &product); err != nil {
		t.Fatal(err)
	}
	served := askServer(t)
	if diff := cmp.Diff(served.Counts, product.Runtime.Counts); diff != "" {
		t.Errorf("counts (-served +catalog):\n%s", diff)
	}
	for key, want := range served.Digests {
		if product.Runtime.Digests[key] != want {
			t.Errorf("%s: served %s, in the catalog %s", key, want, product.Runtime.Digests[key])
		}
	}
	total := 0
	for _, f := range product.Tools.Families {
		total += len(f.Tools)
		for _, tool := range f.Tools {
			if len(tool.Effects) != 10 { // the vocabulary of the contract (5.4)
				t.Errorf("%s has %d effect flags", tool.Name, len(tool.Effects))
			}
		}
		if f.Count != len(f.Tools) {
			t.Errorf("%s counts %d of %d tools", f.ID, f.Count, len(f.Tools))
		}
	}
	if total != product.Tools.Total || total != served.Counts["mcp_tools"] || len(product.Tools.Families) != 16 {
		t.Errorf("%d tools in %d families, %d in total, %d served", total, len(product.Tools.Families), product.Tools.Total, served.Counts["mcp_tools"])
	}
}

// identity is how a server identifies its catalog.
type identity struct {
	Counts  map[string]int
	Digests map[string]string
}

// askServer starts this program as a server and asks binary_session.
func askServer(t *testing.T) identity {
	t.Helper()
	exe, err := exec.LookPath(name) // testscript puts the program into PATH; outside of it the test binary serves
	if err != nil {
		exe, err = os.Executable()
		if err != nil {
			t.Fatal(err)
		}
		link := filepath.Join(t.TempDir(), name)
		if err := os.Symlink(exe, link); err != nil {
			t.Fatal(err)
		}
		exe = link
	}
	cmd := exec.Command(exe, "mcp")
	cmd.Env = append(os.Environ(), "REA_STATE_DIR="+t.TempDir(), "HOME="+t.TempDir())
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewReader(out)
	ask := func(request string) []byte {
		if _, err := io.WriteString(in, request+"\n"); err != nil {
			t.Fatal(err)
		}
		line, err := lines.ReadBytes('\n')
		if err != nil {
			t.Fatal(err)
		}
		return line
	}
	ask(`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"test","version":"1"}}}`)
	var answer struct {
		Result struct {
			Structured struct {
				Result struct {
					Identity struct{ Catalog identity } `json:"server_identity"`
				} `json:"result"`
			} `json:"structuredContent"`
		}
	}
	if err := json.Unmarshal(ask(`{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"binary_session"}}`), &answer); err != nil {
		t.Fatal(err)
	}
	if err := in.Close(); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Fatal(err)
	}
	return answer.Result.Structured.Result.Identity.Catalog
}
