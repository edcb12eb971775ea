package report

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"rea/evidence"
	"rea/evidence/fault"
	"rea/orchestrator/session"
	"rea/providers/artifact"
	"rea/providers/versions"
)

// inventory makes the Evidence of an archive with these files: the content by path.
func inventory(t *testing.T, name string, files map[string]string) *evidence.Record {
	t.Helper()
	b := artifact.NewBuilder(artifact.Root{Format: artifact.FormatZip})
	b.SetContent(0, artifact.Content{SHA256: sha256.Sum256([]byte(name)), Size: int64(len(name))})
	b.SetScope(artifact.ScopeEntries)
	for path, content := range files {
		_, err := b.Add(artifact.Entry{Path: path, EntryKind: artifact.EntryFile, Format: artifact.FormatFile,
			Content: &artifact.Content{SHA256: sha256.Sum256([]byte(content)), Size: int64(len(content))}})
		if err != nil {
			t.Fatal(err)
		}
	}
	var raw bytes.Buffer
	if _, err := b.Finish(context.Background(), &raw); err != nil {
		t.Fatal(err)
	}
	inv, err := artifact.CheckInventory(context.Background(), bytes.NewReader(raw.Bytes()))
	if err != nil {
		t.Fatal(err)
	}
	r, err := artifact.InventoryRecord(inv.Subject(name, "/samples/"+name), artifact.PolicyFail, inv, evidence.CanonicalPayload(raw.Bytes()))
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// compare makes a comparison of versions.
func compare(t *testing.T, left, right *evidence.Record) session.Versions {
	t.Helper()
	ctx := context.Background()
	c, err := artifact.Compare(ctx, left, right, evidence.Memory{})
	if err != nil {
		t.Fatal(err)
	}
	f, err := artifact.ComparisonFacts(ctx, c)
	if err != nil {
		t.Fatal(err)
	}
	v := session.Versions{Old: left, New: right, Comparisons: []versions.Comparison{{Family: versions.Artifact, Status: string(f.Status), Evidence: c}}}
	v.Record, err = versions.Compare(versions.VersionOf(left.Subject), versions.VersionOf(right.Subject), v.Comparisons)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// files are n files, each with a content of its own.
func files(n int, prefix string) map[string]string {
	all := map[string]string{}
	for i := range n {
		all[fmt.Sprintf("%s%03d", prefix, i)] = fmt.Sprint(prefix, i)
	}
	return all
}

// The numbers are those of the two lists of files, counted by hand.
func TestListsAreBounded(t *testing.T) {
	v := compare(t, inventory(t, "old.zip", files(150, "old")), inventory(t, "new.zip", files(130, "new")))
	var b strings.Builder
	if err := Versions(context.Background(), &b, Style{}, v); err != nil {
		t.Fatal(err)
	}
	text := b.String()
	for _, want := range []string{"Removed (150)", "… and 50 more", "Added (130)", "… and 30 more", "Verdict: changed"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in:\n%s", want, text)
		}
	}
	b.Reset()
	if err := Inventory(context.Background(), &b, Style{}, inventory(t, "many.zip", files(1200, "f"))); err != nil {
		t.Fatal(err)
	}
	if text := b.String(); !strings.Contains(text, "1,201 entries") || !strings.Contains(text, "… and 201 more") {
		t.Errorf("the list of 1,201 entries ends with:\n%s", text[len(text)-300:])
	}
}

func TestNamesStayOnTheirLine(t *testing.T) {
	const hostile = "two\nlines\x1b[2J\u202e"
	left := inventory(t, "old\n.zip", map[string]string{hostile: "a", "stays": "s"})
	v := compare(t, left, inventory(t, "new.zip", map[string]string{hostile: "bb", "stays": "s"}))
	for name, write := range map[string]func(*strings.Builder) error{
		"comparison": func(b *strings.Builder) error { return Versions(context.Background(), b, Style{}, v) },
		"inventory":  func(b *strings.Builder) error { return Inventory(context.Background(), b, Style{}, left) },
	} {
		var b strings.Builder
		if err := write(&b); err != nil {
			t.Fatal(err)
		}
		if text := b.String(); !strings.Contains(text, `two\nlines\x1b[2J\u202e`) || strings.ContainsAny(text, "\x1b\u202e") {
			t.Errorf("%s: %q", name, text)
		}
	}
}

// A reader that goes away ends the report with its own error.
func TestReportEndsWithItsReader(t *testing.T) {
	v := compare(t, inventory(t, "a.zip", files(3, "a")), inventory(t, "b.zip", files(3, "b")))
	if err := Versions(context.Background(), closedPipe{}, Style{}, v); !errors.Is(err, os.ErrClosed) {
		t.Errorf("%v", err)
	}
}

type closedPipe struct{}

func (closedPipe) Write([]byte) (int, error) { return 0, os.ErrClosed }

// runs gives each record a run record that names it.
type runs struct{}

func (runs) Run(id string) ([]byte, error) { return json.Marshal(map[string]string{"run_of": id}) }

type noRuns struct{}

func (noRuns) Run(string) ([]byte, error) {
	return nil, fault.New(fault.EvidenceIntegrityMismatch, "There is none.", "Run again.")
}

func TestExport(t *testing.T) {
	v := compare(t, inventory(t, "a.zip", files(3, "a")), inventory(t, "b.zip", files(3, "b")))
	dir := filepath.Join(t.TempDir(), "out")
	if err := Export(context.Background(), dir, v, runs{}); err != nil {
		t.Fatal(err)
	}
	raw, err := os.ReadFile(filepath.Join(dir, "bundle.json"))
	if err != nil {
		t.Fatal(err)
	}
	var bundle struct {
		Records []struct {
			EvidenceID string `json:"evidence_id"`
			Operation  string `json:"operation"`
		} `json:"records"`
	}
	if err := json.Unmarshal(raw, &bundle); err != nil {
		t.Fatal(err)
	}
	operations := map[string]int{}
	for _, r := range bundle.Records {
		operations[r.Operation]++
	}
	if len(bundle.Records) != 4 || operations["inventory_artifact"] != 2 || operations["compare_artifacts"] != 1 || operations["compare_versions"] != 1 {
		t.Errorf("the bundle holds %v", operations)
	}
	for _, id := range []string{v.Old.ID, v.New.ID} {
		if raw, err := os.ReadFile(filepath.Join(dir, "runs", id+".json")); err != nil || !strings.Contains(string(raw), id) {
			t.Errorf("run record of %s: %s %v", id, raw, err)
		}
	}
	requireAlone(t, dir)
}

// requireAlone checks that nothing else lies beside a directory.
func requireAlone(t *testing.T, dir string) {
	t.Helper()
	list, err := os.ReadDir(filepath.Dir(dir))
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range list {
		if e.Name() != filepath.Base(dir) {
			t.Errorf("%s is left beside the output", e.Name())
		}
	}
}

func TestExportIsAllOrNothing(t *testing.T) {
	v := compare(t, inventory(t, "a.zip", files(3, "a")), inventory(t, "b.zip", files(3, "b")))
	cancelled, cancel := context.WithCancelCause(context.Background())
	cancel(fault.New(fault.Cancelled, "Stop.", "Go on."))
	for name, c := range map[string]struct {
		ctx    context.Context
		runs   Runs
		before func(t *testing.T, dir string)
		code   fault.Code
	}{
		"no run record": {context.Background(), noRuns{}, nil, fault.EvidenceIntegrityMismatch},
		"cancelled":     {cancelled, runs{}, nil, fault.Cancelled},
		"taken": {context.Background(), runs{}, func(t *testing.T, dir string) {
			if err := os.Mkdir(dir, 0o755); err != nil {
				t.Fatal(err)
			}
		}, fault.InvalidRequest},
	} {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "out")
			if c.before != nil {
				c.before(t, dir)
			}
			err := Export(c.ctx, dir, v, c.runs)
			var f *fault.Error
			if !errors.As(err, &f) || f.Code != c.code {
				t.Errorf("%v, want %s", err, c.code)
			}
			if list, err := os.ReadDir(dir); err == nil && len(list) > 0 {
				t.Errorf("the directory holds %v", list)
			}
			requireAlone(t, dir)
		})
	}
}

func TestCheckExport(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	for path, reason := range map[string]string{
		dir: "exists", file: "exists", filepath.Join(dir, "none", "out"): "missing", filepath.Join(file, "out"): "missing", filepath.Join(dir, "out"): "",
	} {
		var f *fault.Error
		err := CheckExport(path)
		if errors.As(err, &f); reason == "" && err != nil || reason != "" && (f == nil || f.Details["reason"] != reason) {
			t.Errorf("%s: %v, want %q", path, err, reason)
		}
	}
}
