package orchestrator

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"rea/evidence"
	"rea/evidence/fault"
	"rea/images"
	"rea/orchestrator/catalog"
	"rea/orchestrator/run"
	"rea/orchestrator/session"
	"rea/providers/artifact"
)

// requireDriver skips where a driver cannot run, unless the environment says that everything must be there.
func requireDriver(t *testing.T, h *Host) {
	t.Helper()
	if _, _, err := images.Worker(); err != nil {
		t.Skip("built without its worker: run make worker")
	}
	if err := h.Available(context.Background()); err != nil {
		if os.Getenv("REA_TEST_REQUIRE") != "" {
			t.Fatal(err)
		}
		t.Skip("no container can be started here: ", fault.From(err).Message)
	}
}

// sample is one version of the sample application, with the digests that its packer computed.
func sample(t *testing.T, version string) (path string, truth map[string]string) {
	t.Helper()
	raw, err := os.ReadFile("../testdata/notes/truth.json")
	if err != nil {
		t.Fatal(err)
	}
	var all map[string]map[string]string
	if err := json.Unmarshal(raw, &all); err != nil {
		t.Fatal(err)
	}
	path, err = filepath.Abs("../testdata/notes/notes-" + version + ".zip")
	if err != nil {
		t.Fatal(err)
	}
	return path, all["notes-"+version]
}

func newHost(t *testing.T, driver string) *Host {
	t.Helper()
	h := New(Config{Driver: driver, StateDir: t.TempDir(), Log: func(s string) { t.Log(s) }})
	requireDriver(t, h)
	t.Cleanup(func() {
		if err := h.Close(context.Background()); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return h
}

// TestInventoryOfTheSample holds what a contained run finds in the sample against what its packer wrote, and the two
// drivers against each other.
func TestInventoryOfTheSample(t *testing.T) {
	ids := map[string]string{}
	for _, driver := range []string{DriverDocker, DriverOCI} {
		t.Run(driver, func(t *testing.T) {
			h := newHost(t, driver)
			path, truth := sample(t, "1.0.0")
			var phases []string
			record, _, err := h.Inventory(context.Background(), path, artifact.PolicyFail, func(p run.Progress) { phases = append(phases, p.Phase) })
			if err != nil {
				t.Fatalf("%v (phases %v)", err, phases)
			}
			ids[driver] = record.ID
			found := digests(t, record)
			for p, want := range truth {
				if found[p] != want {
					t.Errorf("%s: digest %q, want %q", p, found[p], want)
				}
			}
			if t.Failed() {
				t.Log(found)
			}
		})
	}
	if a, b := ids[DriverDocker], ids[DriverOCI]; a != b {
		t.Errorf("the drivers disagree: %q and %q", a, b)
	}
}

// digests gives the SHA-256 of every file of an inventory by its path, read as plain JSON.
func digests(t *testing.T, record *evidence.Record) map[string]string {
	t.Helper()
	raw, err := record.NormalizedResult.Bytes(16 << 20)
	if err != nil {
		t.Fatal(err)
	}
	var result struct {
		Nodes []struct {
			ID     string `json:"artifact_id"`
			SHA256 string `json:"sha256"`
		} `json:"nodes"`
		Occurrences []struct {
			ID   string `json:"artifact_id"`
			Path string `json:"logical_path"`
			Kind string `json:"entry_kind"`
		} `json:"occurrences"`
	}
	if err := json.Unmarshal(raw, &result); err != nil {
		t.Fatal(err)
	}
	byID := map[string]string{}
	for _, n := range result.Nodes {
		byID[n.ID] = n.SHA256
	}
	out := map[string]string{}
	for _, o := range result.Occurrences {
		if o.Kind == "file" {
			out[o.Path] = byID[o.ID]
		}
	}
	return out
}

func sum(b []byte) string {
	s := sha256.Sum256(b)
	return hex.EncodeToString(s[:])
}

func TestExtractTheSample(t *testing.T) {
	for _, driver := range []string{DriverDocker, DriverOCI} {
		t.Run(driver, func(t *testing.T) {
			h := newHost(t, driver)
			path, truth := sample(t, "1.1.0")
			to := filepath.Join(t.TempDir(), "out")
			_, err := h.Extract(context.Background(), path, session.ExtractOptions{Policy: artifact.PolicyFail, LogicalPaths: []string{"resources/app.asar/main.js", "version"}, To: to}, nil)
			if err != nil {
				t.Fatal(err)
			}
			got := map[string]string{}
			err = filepath.Walk(to, func(p string, info os.FileInfo, err error) error {
				if err == nil && info.Mode().IsRegular() {
					raw, err := os.ReadFile(p)
					if err != nil {
						return err
					}
					got[strings.TrimPrefix(p, to+"/")] = sum(raw)
				}
				return err
			})
			if err != nil {
				t.Fatal(err)
			}
			for _, p := range []string{"resources/app.asar/main.js", "version"} {
				if got[p] != truth[p] {
					t.Errorf("%s: digest %q, want %q", p, got[p], truth[p])
				}
				delete(got, p)
			}
			if len(got) > 0 {
				t.Errorf("extra files: %v", got)
			}
		})
	}
}

// One record stands for equal bytes; each side of a comparison still has the name that it was asked for by.
func TestEqualVersionsKeepTheirNames(t *testing.T) {
	h := newHost(t, DriverAuto)
	path, _ := sample(t, "1.0.0")
	raw, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for _, name := range []string{"before.zip", "after.zip"} {
		if err := os.WriteFile(filepath.Join(dir, name), raw, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	s := session.New(session.Options{Analyzer: h, Catalog: catalog.Builtin()})
	defer s.Close(context.Background())
	v, err := s.CompareVersions(context.Background(), filepath.Join(dir, "before.zip"), filepath.Join(dir, "after.zip"), artifact.PolicyFail, nil)
	if err != nil {
		t.Fatal(err)
	}
	if v.Old.Subject.Name != "before.zip" || v.New.Subject.Name != "after.zip" || v.Old.ID != v.New.ID {
		t.Errorf("old %q, new %q, ids %s and %s", v.Old.Subject.Name, v.New.Subject.Name, v.Old.ID, v.New.ID)
	}
}

// Where an extraction cannot go, nothing is made and nothing is journalled.
func TestExtractionDestinations(t *testing.T) {
	h := newHost(t, DriverAuto)
	path, _ := sample(t, "1.0.0")
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for to, reason := range map[string]string{file: "exists", filepath.Join(file, "x"): "missing", filepath.Join(dir, "no", "x"): "missing"} {
		_, err := h.Extract(context.Background(), path, session.ExtractOptions{Policy: artifact.PolicyFail, To: to}, nil)
		f := fault.From(err)
		if f == nil || f.Code != fault.InvalidRequest || f.Details["reason"] != reason {
			t.Errorf("%s: got %v, want invalid_request with reason %s", to, err, reason)
		}
	}
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != 1 {
		t.Errorf("left behind: %v, %v", entries, err)
	}
}
