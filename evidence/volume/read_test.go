package volume

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"rea/evidence"
	"rea/evidence/fault"
)

func sha(s string) string {
	sum := sha256.Sum256([]byte(s))
	return hex.EncodeToString(sum[:])
}

const nonce = "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff"

// memory is a blob and a sink.
type memory struct {
	bytes.Buffer
	committed *[]string
	name      string
	failWrite error
}

func (m *memory) Write(p []byte) (int, error) {
	if m.failWrite != nil {
		return 0, m.failWrite
	}
	return m.Buffer.Write(p)
}
func (m *memory) Commit() (evidence.Blob, error) {
	*m.committed = append(*m.committed, m.name)
	return m, nil
}
func (m *memory) Abort()         {}
func (m *memory) SHA256() string { return sha(m.String()) }
func (m *memory) Size() int64    { return int64(m.Len()) }
func (m *memory) Open() (io.ReadCloser, error) {
	return io.NopCloser(bytes.NewReader(m.Bytes())), nil
}

// answer is what a worker left for call 3, and how a test changes it.
type answer struct {
	root     string
	manifest string // exact bytes
	want     Commit
}

// honest writes an answer with three files. The manifest is put together by hand from RFC 8785 and the type.
func honest(t testing.TB) *answer {
	a := &answer{root: t.TempDir()}
	files := map[string]string{"result.json": `{"ok":true}`, "files/0": "zero", "raw/out.txt": ""}
	var list []string
	for _, name := range slices.Sorted(maps.Keys(files)) {
		put(t, filepath.Join(a.root, "3", name), files[name])
		list = append(list, fmt.Sprintf(`{"path":"%s","sha256":"%s","size":%d}`, name, sha(files[name]), len(files[name])))
	}
	a.manifest = `{"error":null,"exhausted":"","files":[` + strings.Join(list, ",") + `],"nonce":"` + nonce + `","outcome":"completed",` +
		`"request_sha256":"` + sha(`{}`) + `","seq":3,"target":{"omitted":0,"sha256":"` + sha("target") + `","unreadable":["a%FF"]}}`
	return a
}

// commit writes the manifest and commits to it.
func (a *answer) commit(t testing.TB) *answer {
	put(t, filepath.Join(a.root, "3", ManifestName), a.manifest)
	a.want = Commit{Seq: 3, ManifestSHA256: sha(a.manifest), ManifestBytes: int64(len(a.manifest)), Nonce: nonce, RequestSHA256: sha(`{}`)}
	return a
}

func (a *answer) at(name string) string { return filepath.Join(a.root, "3", name) }

func (a *answer) edit(old, replacement string) {
	a.manifest = strings.Replace(a.manifest, old, replacement, 1)
}

func TestRead(t *testing.T) {
	ample := Limits{Files: 100, Bytes: 1 << 20}
	for _, tt := range []struct {
		name   string
		before func(t *testing.T, a *answer) // changes the manifest before the worker commits to it
		after  func(t *testing.T, a *answer) // changes the volume or the commitment afterwards
		limits Limits
		code   fault.Code
		reason string
		entry  string
		files  []string // committed to the store, in this order
	}{
		{name: "honest", files: []string{"result.json", "files/0", "raw/out.txt"}},
		{name: "other nonce", before: func(_ *testing.T, a *answer) { a.edit(nonce, sha("x")) }, code: fault.EvidenceIntegrityMismatch, reason: "commitment", entry: "manifest.json"},
		{name: "other call", before: func(_ *testing.T, a *answer) { a.edit(`"seq":3`, `"seq":4`) }, code: fault.EvidenceIntegrityMismatch, reason: "commitment", entry: "manifest.json"},
		{name: "other request", before: func(_ *testing.T, a *answer) { a.edit(sha(`{}`), sha(`{"a":1}`)) }, code: fault.EvidenceIntegrityMismatch, reason: "commitment", entry: "manifest.json"},
		{name: "manifest changed after the commitment", after: func(t *testing.T, a *answer) {
			put(t, a.at(ManifestName), strings.Replace(a.manifest, "completed", "cancelled", 1))
		}, code: fault.EvidenceIntegrityMismatch, reason: "digest", entry: "manifest.json"},
		{name: "manifest grew", after: func(t *testing.T, a *answer) { put(t, a.at(ManifestName), a.manifest+" ") },
			code: fault.EvidenceIntegrityMismatch, reason: "size", entry: "manifest.json"},
		{name: "manifest shrank", after: func(t *testing.T, a *answer) { put(t, a.at(ManifestName), a.manifest[1:]) },
			code: fault.EvidenceIntegrityMismatch, reason: "size", entry: "manifest.json"},
		{name: "no manifest", after: func(t *testing.T, a *answer) { must(t, os.Remove(a.at(ManifestName))) },
			code: fault.EvidenceIntegrityMismatch, reason: "missing", entry: "manifest.json"},
		{name: "commitment to nothing", after: func(_ *testing.T, a *answer) { a.want.ManifestBytes = 0 },
			code: fault.EvidenceIntegrityMismatch, reason: "size", entry: "manifest.json"},
		{name: "commitment to more than is read", after: func(_ *testing.T, a *answer) { a.want.ManifestBytes = MaxManifest + 1 },
			code: fault.EvidenceIntegrityMismatch, reason: "size", entry: "manifest.json"},
		{name: "manifest does not parse", before: func(_ *testing.T, a *answer) { a.edit(`"error"`, `"err0r"`) },
			code: fault.UnreadableOutput, reason: "manifest", entry: "manifest.json"},
		{name: "too many files", limits: Limits{Files: 2, Bytes: 1 << 20}, code: fault.EvidenceIntegrityMismatch, reason: "limit", entry: "manifest.json"},
		{name: "too many bytes", limits: Limits{Files: 3, Bytes: 14}, code: fault.EvidenceIntegrityMismatch, reason: "limit", entry: "result.json"},
		{name: "just enough bytes", limits: Limits{Files: 3, Bytes: 15}, files: []string{"result.json", "files/0", "raw/out.txt"}},
		{name: "path out of the folder", before: func(_ *testing.T, a *answer) { a.edit("files/0", "../nonce") },
			code: fault.EvidenceIntegrityMismatch, reason: "name", entry: "../nonce"},
		{name: "other bytes of the same size", after: func(t *testing.T, a *answer) { put(t, a.at("files/0"), "ZERO") },
			code: fault.EvidenceIntegrityMismatch, reason: "digest", entry: "files/0", files: []string{"result.json"}},
		{name: "file grew", after: func(t *testing.T, a *answer) { put(t, a.at("files/0"), "zero0") },
			code: fault.EvidenceIntegrityMismatch, reason: "size", entry: "files/0", files: []string{"result.json"}},
		{name: "file shrank", after: func(t *testing.T, a *answer) { put(t, a.at("files/0"), "zer") },
			code: fault.EvidenceIntegrityMismatch, reason: "size", entry: "files/0", files: []string{"result.json"}},
		{name: "file is a link", after: func(t *testing.T, a *answer) {
			must(t, os.Remove(a.at("files/0")))
			must(t, os.Symlink("/etc/passwd", a.at("files/0")))
		}, code: fault.EvidenceIntegrityMismatch, reason: "kind", entry: "files/0", files: []string{"result.json"}},
		{name: "folder is a link", after: func(t *testing.T, a *answer) {
			must(t, os.Rename(a.at(""), a.root+"/4"))
			must(t, os.Symlink("4", filepath.Clean(a.at(""))))
		}, code: fault.EvidenceIntegrityMismatch, reason: "kind", entry: "manifest.json"},
		{name: "file is gone", after: func(t *testing.T, a *answer) { must(t, os.Remove(a.at("raw/out.txt"))) },
			code: fault.EvidenceIntegrityMismatch, reason: "missing", entry: "raw/out.txt", files: []string{"result.json", "files/0"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			a := honest(t)
			if tt.before != nil {
				tt.before(t, a)
			}
			a.commit(t)
			if tt.after != nil {
				tt.after(t, a)
			}
			if tt.limits == (Limits{}) {
				tt.limits = ample
			}
			var stored []string
			create := func(_ context.Context, name string) (Sink, error) {
				return &memory{committed: &stored, name: name}, nil
			}
			c, err := Read(t.Context(), Dir(openDir(t, a.root)), a.want, create, tt.limits)
			if diff := cmp.Diff(tt.files, stored); diff != "" {
				t.Errorf("stored (-want +got):\n%s", diff)
			}
			if c != nil && len(c.Files) != len(tt.files) || c == nil && tt.files != nil {
				t.Errorf("contents %+v", c)
			}
			if tt.code == "" {
				must(t, err)
				return
			}
			var f *fault.Error
			if !errors.As(err, &f) {
				t.Fatalf("%v is no fault", err)
			}
			if f.Code != tt.code || f.Details["reason"] != tt.reason || f.Details["entry"] != tt.entry {
				t.Errorf("got %s with %v, want %s, reason %q, entry %q", f, f.Details, tt.code, tt.reason, tt.entry)
			}
		})
	}
}

// TestReadPassesOtherFailures: what is not the volume's fault keeps its own code.
func TestReadPassesOtherFailures(t *testing.T) {
	full := fault.New(fault.ResourceConstraint, "disk full", "free some").With("resource", "storage")
	a := honest(t).commit(t)
	src := Dir(openDir(t, a.root))
	limits := Limits{Files: 9, Bytes: 99}
	for name, tt := range map[string]struct {
		create func(context.Context, string) (Sink, error)
		code   fault.Code
	}{
		"the store cannot create": {func(context.Context, string) (Sink, error) { return nil, full }, fault.ResourceConstraint},
		"the store cannot write": {func(context.Context, string) (Sink, error) {
			return &memory{failWrite: full, committed: new([]string)}, nil
		}, fault.ResourceConstraint},
		"the host fails": {func(context.Context, string) (Sink, error) { return nil, os.ErrInvalid }, fault.ExecutionFailure},
	} {
		_, err := Read(t.Context(), src, a.want, tt.create, limits)
		if f := fault.From(err); f.Code != tt.code {
			t.Errorf("%s: %v, want %s", name, err, tt.code)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Read(ctx, src, a.want, nil, limits); fault.From(err).Code != fault.Cancelled {
		t.Errorf("cancelled: %v", err)
	}
}

func TestEscape(t *testing.T) {
	for in, want := range map[string]string{
		"plain":                   "plain",
		"new\nline":               `new\nline`,
		"\x1b[31m":                `\x1b[31m`,
		"\xff":                    `\xff`,
		"caf\u00e9":               `caf\u00e9`,
		strings.Repeat("a", 201):  strings.Repeat("a", 200) + "...",
		strings.Repeat("\n", 150): strings.Repeat(`\n`, 100) + "...",
	} {
		if got := Escape(in); got != want {
			t.Errorf("Escape(%q) = %q, want %q", in, got, want)
		}
	}
}

// BenchmarkRead copies one file of 64 MiB out of a tmpfs directory where the machine has one.
func BenchmarkRead(b *testing.B) {
	const size = 64 << 20
	root, err := os.MkdirTemp("/dev/shm", "rea-bench-")
	if err != nil {
		b.Skip("no /dev/shm")
	}
	defer os.RemoveAll(root)
	content := strings.Repeat("x", size)
	put(b, filepath.Join(root, "3/result.json"), content)
	manifest := `{"error":null,"exhausted":"","files":[{"path":"result.json","sha256":"` + sha(content) + `","size":` + fmt.Sprint(size) + `}],"nonce":"` +
		nonce + `","outcome":"completed","request_sha256":"` + sha(`{}`) + `","seq":3,"target":null}`
	a := (&answer{root: root, manifest: manifest}).commit(b)
	src := Dir(openDir(b, root))
	b.SetBytes(size)
	for b.Loop() {
		_, err := Read(b.Context(), src, a.want, func(context.Context, string) (Sink, error) { return discard{}, nil }, Limits{9, size})
		must(b, err)
	}
}

type discard struct{ evidence.Blob }

func (discard) Write(p []byte) (int, error)    { return len(p), nil }
func (discard) Commit() (evidence.Blob, error) { return nil, nil }
func (discard) Abort()                         {}
