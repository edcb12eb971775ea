package worker

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"rea/evidence"
	"rea/evidence/fault"
	"rea/evidence/target"
	"rea/evidence/volume"
	"rea/providers/artifact"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// result is an inventory as encoding/json reads it: not through this project's own decoder.
type result struct {
	Manifest       artifact.Manifest
	Nodes          []artifact.Node
	Occurrences    []artifact.Occurrence
	Containers     []artifact.Container
	Limitations    []string
	Coverage       artifact.Coverage
	Contradictions []artifact.Contradiction `json:"integrity_contradictions"`
	Seen           volume.TargetSeen        `json:"-"`
	Bytes          []byte                   `json:"-"`
}

// place puts content where a container has its target: a file at TARGET/artifact.
func placeFile(t testing.TB, content []byte) string {
	t.Helper()
	dir := t.TempDir()
	write(t, filepath.Join(dir, target.MainName), string(content))
	return dir
}

func write(t testing.TB, path, content string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
}

// fakeCall stands for the frame: it keeps what an operation writes in memory.
type fakeCall struct {
	result bytes.Buffer
	mu     sync.Mutex
	files  map[string]*bytes.Buffer
	seen   volume.TargetSeen
	mark   string
	digest func(ctx context.Context) (string, error)
}

type memoryFile struct{ *bytes.Buffer }

func (memoryFile) Close() error { return nil }

func (f *fakeCall) call(t testing.TB, dir string, p params) call {
	raw, err := json.Marshal(map[string]any{"integrity_policy": p.Policy, "name": p.Name, "selected": p.Selected})
	if err != nil {
		t.Fatal(err)
	}
	f.files = map[string]*bytes.Buffer{}
	return call{
		params: raw, target: dir, result: func() io.Writer { return &f.result },
		file: func(name string) (io.WriteCloser, error) {
			f.mu.Lock()
			defer f.mu.Unlock()
			if f.files[name] != nil {
				return nil, fmt.Errorf("file %s is made twice", name)
			}
			f.files[name] = &bytes.Buffer{}
			return memoryFile{f.files[name]}, nil
		},
		scratch:  func() (string, error) { return t.TempDir(), nil },
		progress: func(string, string, int64, int64) {},
		seen:     func(s volume.TargetSeen) { f.seen = s },
		mark:     f.mark, digest: f.digest,
	}
}

func tryInventory(t testing.TB, dir, name string, policy artifact.Policy) (*result, error) {
	t.Helper()
	var f fakeCall
	if err := inventory(t.Context(), artifact.OpInventory, f.call(t, dir, params{Policy: policy, Name: name})); err != nil {
		return nil, err
	}
	r := &result{Seen: f.seen, Bytes: f.result.Bytes()}
	if err := json.Unmarshal(f.result.Bytes(), r); err != nil {
		t.Fatal(err)
	}
	checkSeen(t, dir, r.Seen)
	return r, nil
}

// checkSeen holds the worker's digest of the target against the core's.
func checkSeen(t testing.TB, dir string, seen volume.TargetSeen) {
	t.Helper()
	root, companion, err := openTarget("test", dir)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	if companion != nil {
		defer companion.Close()
	}
	d, err := target.Hash(context.Background(), target.Parts(root, companion), nil)
	if err != nil {
		t.Fatal(err)
	}
	if d.SHA256 != seen.SHA256 {
		t.Errorf("the worker saw target %s, the core %s", seen.SHA256, d.SHA256)
	}
}

func mustInventory(t testing.TB, dir, name string) *result {
	t.Helper()
	r, err := tryInventory(t, dir, name, artifact.PolicyFail)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return r
}

func inventoryOf(t testing.TB, name string, content []byte) *result {
	t.Helper()
	return mustInventory(t, placeFile(t, content), name)
}

// at finds the occurrences of a path, in the inventory's order.
func (r *result) at(path string) []artifact.Occurrence {
	var found []artifact.Occurrence
	for _, o := range r.Occurrences {
		if o.LogicalPath == path {
			found = append(found, o)
		}
	}
	return found
}

func (r *result) one(t testing.TB, path string) artifact.Occurrence {
	t.Helper()
	found := r.at(path)
	if len(found) != 1 {
		t.Fatalf("%d occurrences of %q in %q", len(found), path, r.paths())
	}
	return found[0]
}

func (r *result) paths() []string {
	var paths []string
	for _, o := range r.Occurrences {
		paths = append(paths, o.LogicalPath)
	}
	return paths
}

// sum is the SHA-256 of an occurrence's content, "" where it has none.
func (r *result) sum(o artifact.Occurrence) string {
	if o.ArtifactID == nil {
		return ""
	}
	for _, n := range r.Nodes {
		if n.ArtifactID == *o.ArtifactID {
			return n.SHA256
		}
	}
	return "no node"
}

// wantFiles checks that exactly these files were read, by path and SHA-256.
func (r *result) wantFiles(t testing.TB, want map[string]string) {
	t.Helper()
	for path, sum := range want {
		if got := r.sum(r.one(t, path)); got != sum {
			t.Errorf("%s: SHA-256 %s, want %s", path, got, sum)
		}
	}
	for _, o := range r.Occurrences {
		if _, ok := want[o.LogicalPath]; !ok && o.LogicalPath != "." && o.EntryKind == artifact.EntryFile && o.HashStatus == artifact.HashVerified {
			t.Errorf("%s was read and is not expected", o.LogicalPath)
		}
	}
}

func (r *result) wantCoverage(t testing.TB, want artifact.Status) {
	t.Helper()
	if r.Coverage.Status != want {
		t.Errorf("coverage %s, want %s; limitations %q", r.Coverage.Status, want, r.Limitations)
	}
}

// says reports whether one of the limitations holds all of the words.
func says(limitations []string, words ...string) bool {
	for _, l := range limitations {
		all := true
		for _, w := range words {
			all = all && strings.Contains(l, w)
		}
		if all {
			return true
		}
	}
	return false
}

func wantSays(t testing.TB, what string, limitations []string, words ...string) {
	t.Helper()
	if !says(limitations, words...) {
		t.Errorf("%s: no limitation says %q in %q", what, words, limitations)
	}
}

func wantFault(t testing.TB, err error, code fault.Code, details map[string]any) *fault.Error {
	t.Helper()
	var f *fault.Error
	if !errors.As(err, &f) {
		t.Fatalf("error %v is no fault", err)
	}
	if f.Code != code {
		t.Fatalf("code %s, want %s: %v", f.Code, code, err)
	}
	for k, v := range details {
		if fmt.Sprint(f.Details[k]) != fmt.Sprint(v) {
			t.Errorf("detail %s is %v, want %v", k, f.Details[k], v)
		}
	}
	return f
}

// extracted is what an extraction wrote, by relative path.
type extracted struct {
	files          map[string]string
	paths          map[string]string // occurrence id to relative path
	contradictions []artifact.Contradiction
	limitations    []string
}

func tryExtract(t testing.TB, dir, name string, policy artifact.Policy, selected ...string) (*extracted, error) {
	t.Helper()
	var f fakeCall
	if err := extract(t.Context(), f.call(t, dir, params{Policy: policy, Name: name, Selected: selected})); err != nil {
		return nil, err
	}
	var r struct {
		Artifacts []struct {
			File         string `json:"file"`
			RelativePath string `json:"relative_path"`
			OccurrenceID string `json:"occurrence_id"`
			SHA256       string `json:"sha256"`
		}
		Contradictions []artifact.Contradiction `json:"integrity_contradictions"`
		Limitations    []string
	}
	if err := json.Unmarshal(f.result.Bytes(), &r); err != nil {
		t.Fatal(err)
	}
	x := &extracted{map[string]string{}, map[string]string{}, r.Contradictions, r.Limitations}
	used := map[string]bool{}
	for _, a := range r.Artifacts {
		content := f.files[a.File].String()
		if sha([]byte(content)) != a.SHA256 {
			t.Errorf("%s: the file has %s, its entry says %s", a.RelativePath, sha([]byte(content)), a.SHA256)
		}
		if _, ok := x.files[a.RelativePath]; ok {
			t.Errorf("%s is written twice", a.RelativePath)
		}
		x.files[a.RelativePath], x.paths[a.OccurrenceID], used[a.File] = content, a.RelativePath, true
	}
	if len(used) != len(f.files) {
		t.Errorf("%d files were written and %d are named", len(f.files), len(used))
	}
	return x, nil
}

// compare compares two inventories as the core does.
func compare(t testing.TB, left, right *result) string {
	t.Helper()
	var sides [2]*evidence.Record
	for i, r := range []*result{left, right} {
		inv, err := artifact.CheckInventory(t.Context(), bytes.NewReader(r.Bytes))
		if err != nil {
			t.Fatal(err)
		}
		sides[i], err = artifact.InventoryRecord(inv.Subject("x", "/x"), artifact.PolicyFail, inv, evidence.CanonicalPayload(r.Bytes))
		if err != nil {
			t.Fatal(err)
		}
	}
	rec, err := artifact.Compare(t.Context(), sides[0], sides[1], evidence.Memory{})
	if err != nil {
		t.Fatal(err)
	}
	facts, err := artifact.ComparisonFacts(t.Context(), rec)
	if err != nil {
		t.Fatal(err)
	}
	return string(facts.Status)
}

// A target file is read for its digest by the core alone while both provably read the same file: what the core says is
// then the root's digest. In every other case the worker reads for itself, and a file that changed before the end fails.
func TestCoresDigest(t *testing.T) {
	archive := newZip("", false)
	archive.file("a", "content")
	content := archive.bytes()
	own, theirs := sha(content), strings.Repeat("ab", 32) // theirs is no digest of the file: it shows whose was taken
	later := time.Now().Add(time.Hour)
	mark := func(dir string) string {
		f, err := os.Open(filepath.Join(dir, target.MainName))
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		return target.Mark(f, later)
	}
	asked := errors.New("asked")
	say := func(sum string, err error) func(context.Context) (string, error) {
		return func(context.Context) (string, error) { return sum, err }
	}
	for _, tt := range []struct {
		name   string
		mark   func(dir string) string
		digest func(context.Context) (string, error)
		want   string
		err    error
	}{
		{"the same file", mark, say(theirs, nil), theirs, nil},
		{"no mark", func(string) string { return "" }, say(theirs, asked), own, nil},
		{"another file", func(string) string { return mark(placeFile(t, content)) }, say(theirs, asked), own, nil},
		{"the core could not read it", mark, say("", nil), own, nil},
		{"no digest", mark, say("abc", nil), own, nil},
		{"a late one", mark, late(theirs), theirs, nil},
		{"cancelled", mark, say("", asked), "", asked},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir := placeFile(t, content)
			ctx, cancel := context.WithCancelCause(t.Context())
			if tt.err != nil {
				cancel(tt.err)
			}
			defer cancel(nil)
			f := fakeCall{mark: tt.mark(dir), digest: tt.digest}
			err := inventory(ctx, artifact.OpInventory, f.call(t, dir, params{Policy: artifact.PolicyFail, Name: "a.zip"}))
			if !errors.Is(err, tt.err) {
				t.Fatalf("error %v, want %v", err, tt.err)
			}
			if f.seen.SHA256 != tt.want {
				t.Errorf("target digest %s, want %s", f.seen.SHA256, tt.want)
			}
		})
	}
	dir := placeFile(t, content)
	f := fakeCall{mark: mark(dir), digest: func(context.Context) (string, error) {
		return theirs, os.Chtimes(filepath.Join(dir, target.MainName), later, later)
	}}
	var changed *fault.Error
	err := inventory(t.Context(), artifact.OpInventory, f.call(t, dir, params{Policy: artifact.PolicyFail, Name: "a.zip"}))
	if !errors.As(err, &changed) || changed.Code != fault.ArtifactChanged {
		t.Errorf("a file that changed while the core read it: %v", err)
	}
}

// late gives a digest after the first wait for it was over.
func late(sum string) func(context.Context) (string, error) {
	waited := false
	return func(ctx context.Context) (string, error) {
		if !waited {
			waited = true
			return "", context.DeadlineExceeded
		}
		return sum, nil
	}
}
