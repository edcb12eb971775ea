package mcp

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"rea/images"
	"rea/orchestrator"
	"rea/orchestrator/catalog"
	"rea/orchestrator/session"
)

// required says that nothing may be skipped: the whole test set-up is there.
func required() bool { return os.Getenv("REA_TEST_REQUIRE") != "" }

// realOptions is a server whose runs are contained ones of this driver.
func realOptions(t *testing.T, driver string) Options {
	t.Helper()
	if _, _, err := images.Worker(); err != nil {
		t.Skip("built without its worker: run make worker")
	}
	h := orchestrator.New(orchestrator.Config{Driver: driver, StateDir: t.TempDir(), Log: func(s string) { t.Log(s) }})
	t.Cleanup(func() {
		if err := h.Close(context.Background()); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	if err := h.Available(t.Context()); err != nil {
		if required() {
			t.Fatal(err)
		}
		t.Skip("no container can be started here: ", err)
	}
	c := catalog.Builtin()
	return Options{Name: "rea", Version: "1.2.3", Catalog: c, Log: slog.New(slog.NewTextHandler(io.Discard, nil)),
		Session: session.New(session.Options{Analyzer: h, Catalog: c, Server: session.Server{Name: "rea", Version: "1.2.3"}})}
}

// packed is what the packer of the sample application says of one version: the digest of each file by its path.
func packed(t *testing.T, version string) (path string, files map[string]string) {
	t.Helper()
	raw, err := os.ReadFile("../../testdata/notes/truth.json")
	if err != nil {
		t.Fatal(err)
	}
	var truth map[string]map[string]string
	mustJSON(t, raw, &truth)
	if path, err = filepath.Abs("../../testdata/notes/notes-" + version + ".zip"); err != nil {
		t.Fatal(err)
	}
	return path, truth["notes-"+version]
}

// The whole way with real runs: open, inspect, compare, extract, on both drivers. What differs is worked out here from
// what the packer wrote down.
func TestRealRuns(t *testing.T) {
	oldPath, oldFiles := packed(t, "1.0.0")
	newPath, newFiles := packed(t, "1.1.0")
	want := map[string]string{}
	for path, digest := range oldFiles {
		switch other, ok := newFiles[path]; {
		case !ok:
			want[path] = "removed"
		case other != digest:
			want[path] = "changed"
		}
	}
	for path := range newFiles {
		if _, ok := oldFiles[path]; !ok {
			want[path] = "added"
		}
	}
	ids := map[string]bool{}
	for _, driver := range []string{orchestrator.DriverDocker, orchestrator.DriverOCI} {
		t.Run(driver, func(t *testing.T) {
			c := start(t, realOptions(t, driver))
			c.initialize()
			checked := func(tool, arguments string) []byte {
				raw := success(t, c.call(tool, arguments))
				checkSchema(t, tool, raw)
				return raw
			}
			checked("open_binary", `{"path":`+quoted(oldPath)+`}`)
			checked("binary_session", `{}`)
			left, right := evidenceID(t, checked("inspect_artifact", `{}`)), evidenceID(t, checked("inspect_artifact", `{"path":`+quoted(newPath)+`}`))
			comparison := checked("compare_artifacts", `{"left":{"kind":"retained-evidence","evidence_id":`+quoted(left)+`},"right":{"kind":"retained-evidence","evidence_id":`+quoted(right)+`}}`)
			ids[evidenceID(t, comparison)] = true
			var r struct {
				Result struct {
					Changes []struct {
						Classification string
						LogicalPath    string `json:"logical_path"`
					}
				} `json:"normalized_result"`
			}
			mustJSON(t, comparison, &r)
			got := map[string]string{}
			for _, change := range r.Result.Changes {
				if oldFiles[change.LogicalPath] != "" || newFiles[change.LogicalPath] != "" {
					got[change.LogicalPath] = change.Classification
				}
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("changes (-packer +compare_artifacts):\n%s", diff)
			}
			checkExtraction(t, checked("extract_artifact", `{"logical_paths":["notes"]}`), "notes", oldFiles["notes"])
			checked("get_evidence_bundle", `{}`)
			reference := `{"kind":"retained-evidence","evidence_id":` + quoted(left) + `}`
			view := checked("inspect_analysis_view", `{"source":`+reference+`,"view":{"kind":"inventory","collection":"occurrences","logical_paths":["notes"]}}`)
			path := filepath.Join(t.TempDir(), "e.json")
			checkSchema(t, "export_evidence_bundle", unmarked(t, c.call("export_evidence_bundle", `{"path":`+quoted(path)+`}`)))
			checked("close_binary", `{}`)
			checked("import_evidence_bundle", `{"path":`+quoted(path)+`}`)
			if again := checked("inspect_analysis_view", `{"source":`+reference+`,"view":{"kind":"inventory","collection":"occurrences","logical_paths":["notes"]}}`); !bytes.Equal(again, view) || !bytes.Contains(view, []byte(`"logical_path":"notes"`)) {
				t.Errorf("a view after the way out and in:\n%s\n%s", view, again)
			}
		})
	}
	if len(ids) > 1 {
		t.Errorf("the drivers give different Evidence: %v", ids)
	}
}

func evidenceID(t *testing.T, raw []byte) string {
	t.Helper()
	var r struct {
		ID string `json:"evidence_id"`
	}
	mustJSON(t, raw, &r)
	return r.ID
}

func checkExtraction(t *testing.T, raw []byte, path, digest string) {
	t.Helper()
	var r struct {
		Result struct {
			Root  string `json:"output_root"`
			Files []struct {
				Path   string `json:"relative_path"`
				SHA256 string `json:"sha256"`
			} `json:"artifacts"`
		} `json:"normalized_result"`
	}
	if err := json.Unmarshal(raw, &r); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(r.Result.Root) })
	if len(r.Result.Files) != 1 || r.Result.Files[0].Path != path || r.Result.Files[0].SHA256 != digest {
		t.Errorf("extracted %+v", r.Result)
	}
	if _, err := os.Stat(filepath.Join(r.Result.Root, path)); err != nil {
		t.Error(err)
	}
}
