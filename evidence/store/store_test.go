package store

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"rea/evidence"
	"rea/evidence/fault"
)

// none is a budget under which a collection removes everything that nothing protects.
var none = Options{Floor: -1, Ceiling: -1, FreeTarget: -1, Grace: -1}

// bounded is a budget with this ceiling alone.
func bounded(ceiling int64) Options {
	return Options{Floor: -1, Ceiling: ceiling, FreeTarget: -1, Grace: -1}
}

func open(t testing.TB, o Options) *Store {
	t.Helper()
	s, err := Open(filepath.Join(t.TempDir(), "store"), o)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func put(t testing.TB, s *Store, content string) evidence.Blob {
	t.Helper()
	w, err := s.Create(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer w.Abort()
	if _, err := io.WriteString(w, content); err != nil {
		t.Fatal(err)
	}
	b, err := w.Commit()
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func read(t testing.TB, b evidence.Blob) string {
	t.Helper()
	r, err := b.Open()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	all, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	return string(all)
}

// sum is the digest by the standard library, apart from the store's own.
func sum(content string) string {
	d := sha256.Sum256([]byte(content))
	return hex.EncodeToString(d[:])
}

// recordOf makes a record whose result is a blob of s with size bytes.
func recordOf(t testing.TB, s *Store, name string, size int) *evidence.Record {
	t.Helper()
	p, err := s.Spool(t.Context(), func(w io.Writer) error {
		_, err := io.WriteString(w, `["`+name+strings.Repeat("x", size-4-len(name))+`"]`)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	r := &evidence.Record{Provider: evidence.Provider{ID: "p", Name: "P", Version: "1"}, Operation: name, NormalizedResult: p}
	if err := r.Seal(); err != nil {
		t.Fatal(err)
	}
	return r
}

func putRecord(t testing.TB, s *Store, r *evidence.Record) {
	t.Helper()
	if err := s.PutRecord(t.Context(), r); err != nil {
		t.Fatal(err)
	}
}

func collect(t testing.TB, s *Store, dry bool) Report {
	t.Helper()
	r, err := s.GC(t.Context(), dry)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// age makes everything in the store look a day old, the record of each ID in turn a second younger.
func age(t testing.TB, s *Store, ids ...string) {
	t.Helper()
	day := time.Now().Add(-24 * time.Hour)
	err := filepath.WalkDir(s.dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		return os.Chtimes(path, day, day)
	})
	for i, id := range ids {
		when := day.Add(time.Duration(i+1) * time.Second)
		err = errors.Join(err, os.Chtimes(s.path(recordsDir, id), when, when))
	}
	if err != nil {
		t.Fatal(err)
	}
}

func has(s *Store, id string) bool {
	_, err := s.Record(context.Background(), id)
	return err == nil
}

func code(err error) fault.Code {
	if err == nil {
		return ""
	}
	return fault.From(err).Code
}

func writeText(t testing.TB, r *evidence.Record) string {
	t.Helper()
	var b bytes.Buffer
	if _, err := r.WriteTo(&b); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func TestBlobs(t *testing.T) {
	s := open(t, Options{})
	for _, content := range []string{"", "hello", strings.Repeat("a\n", 1<<19)} {
		b := put(t, s, content)
		if b.SHA256() != sum(content) || b.Size() != int64(len(content)) || read(t, b) != content {
			t.Errorf("blob of %d bytes: %s, %d", len(content), b.SHA256(), b.Size())
		}
		again, err := s.Blob(b.SHA256())
		if err != nil || read(t, again) != content {
			t.Errorf("found again: %v", err)
		}
	}
	before := files(t, s)
	put(t, s, "hello")
	w, err := s.Create(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	io.WriteString(w, "dropped")
	w.Abort()
	w.Abort()
	if _, err := w.Write([]byte("x")); err == nil {
		t.Error("an ended writer takes bytes")
	}
	if _, err := w.Commit(); err == nil {
		t.Error("an aborted writer commits")
	}
	if diff := cmp.Diff(before, files(t, s)); diff != "" {
		t.Errorf("content that was there, or was dropped, left something: %s", diff)
	}
	for _, name := range []string{sum("absent"), "", "../../etc/passwd", strings.Repeat("g", 64)} {
		if _, err := s.Blob(name); code(err) != fault.EvidenceIntegrityMismatch {
			t.Errorf("blob %q: %v", name, err)
		}
	}
}

// files lists every file with its mode.
func files(t testing.TB, s *Store) map[string]fs.FileMode {
	t.Helper()
	list := map[string]fs.FileMode{}
	err := filepath.WalkDir(s.dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		list[strings.TrimPrefix(path, s.dir)] = info.Mode()
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return list
}

func TestEverythingIsPrivate(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "store")
	if err := os.Mkdir(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	s, err := Open(dir, Options{})
	if err != nil {
		t.Fatal(err)
	}
	l, err := s.Lease("a")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	r := recordOf(t, s, "r", 100<<10)
	if _, err := l.Retain(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	if err := s.PutRun(t.Context(), r.ID, []byte("{}")); err != nil {
		t.Fatal(err)
	}
	for path, mode := range files(t, s) {
		if want := map[bool]fs.FileMode{true: 0o700, false: 0o600}[mode.IsDir()]; mode.Perm() != want {
			t.Errorf("%s: %v", path, mode)
		}
	}
}

func TestOpenRefusesTheStoreOfAnother(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can make a directory of another user")
	}
	dir := t.TempDir()
	if err := os.Chown(dir, 12345, -1); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(dir, Options{}); code(err) != fault.AccessDenied {
		t.Errorf("got %v", err)
	}
}

// What cannot be a store says so, and names the setting. The causes are made by hand.
func TestOpenRefusesWhatCannotBeAStore(t *testing.T) {
	dir := t.TempDir()
	file, link, readOnly := filepath.Join(dir, "file"), filepath.Join(dir, "link"), filepath.Join(dir, "read-only")
	for _, err := range []error{os.WriteFile(file, nil, 0o600), os.Symlink("link", link), os.Mkdir(readOnly, 0o700)} {
		if err != nil {
			t.Fatal(err)
		}
	}
	paths := map[string]string{
		"a file": file, "below a file": filepath.Join(file, "store"), "a link to itself": filepath.Join(link, "store"),
		"a long name": filepath.Join(dir, strings.Repeat("n", 300)),
	}
	if err := syscall.Mount("tmpfs", readOnly, "tmpfs", 0, "size=64k"); err == nil {
		defer syscall.Unmount(readOnly, syscall.MNT_DETACH)
		must(Open(filepath.Join(readOnly, "there"), none))
		if err := syscall.Mount("", readOnly, "", syscall.MS_REMOUNT|syscall.MS_RDONLY, ""); err != nil {
			t.Fatal(err)
		}
		paths["read-only"] = filepath.Join(readOnly, "store")
		paths["read-only and there"] = filepath.Join(readOnly, "there")
	}
	for name, path := range paths {
		_, err := Open(path, none)
		f := fault.From(err)
		if f == nil || f.Code != fault.ConfigurationInvalid || !strings.Contains(f.Action, "REA_STATE_DIR") || f.ExitCode() != fault.ExitUnusable {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestSpool(t *testing.T) {
	s := open(t, Options{})
	for _, size := range []int{2, maxInline, maxInline + 1, 3 << 20} {
		value := `"` + strings.Repeat("v", size-2) + `"`
		p, err := s.Spool(t.Context(), func(w io.Writer) error {
			for rest := value; rest != ""; rest = rest[min(1000, len(rest)):] {
				if _, err := io.WriteString(w, rest[:min(1000, len(rest))]); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		if got, err := p.Bytes(4 << 20); err != nil || string(got) != value {
			t.Errorf("%d: another value, %v", size, err)
		}
		if _, err := s.Blob(sum(value)); (err == nil) != (size > maxInline) {
			t.Errorf("%d: as a blob: %v", size, err)
		}
	}
	before := files(t, s)
	for _, bad := range []string{"", "{ }", strings.Repeat("[", 1<<17), `"` + strings.Repeat("x", 1<<17)} {
		if _, err := s.Spool(t.Context(), func(w io.Writer) error { _, err := io.WriteString(w, bad); return err }); err == nil {
			t.Errorf("%.10q is taken", bad)
		}
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	why := errors.New("stopped")
	_, err := s.Spool(ctx, func(w io.Writer) error {
		if _, err := io.WriteString(w, `"`+strings.Repeat("x", 1<<20)); err != nil {
			return err
		}
		cancel(why)
		_, err := io.WriteString(w, strings.Repeat("x", 1<<20))
		return err
	})
	if !errors.Is(err, why) {
		t.Errorf("cancelled: %v", err)
	}
	if diff := cmp.Diff(before, files(t, s)); diff != "" {
		t.Errorf("what was refused left something: %s", diff)
	}
}

// foreign is a blob of no store.
type foreign struct{ content, digest string }

func (f foreign) SHA256() string { return f.digest }
func (f foreign) Size() int64    { return int64(len(f.content)) }
func (f foreign) Open() (io.ReadCloser, error) {
	return io.NopCloser(strings.NewReader(f.content)), nil
}

func TestRecords(t *testing.T) {
	s := open(t, Options{})
	big := `"` + strings.Repeat("b", 200<<10) + `"`
	r := recordOf(t, s, "op", 300<<10)
	r.ID = ""
	r.Subject = &evidence.Subject{Name: "n\xed\xa0\x80", SHA256: sum("x"), Format: "zip", LocalPath: "/p"}
	r.Limitations = []string{"one", "half \xed\xb8\x80"}
	r.RawResult = evidence.ObjectPayload(
		evidence.Member{Key: "foreign", Value: evidence.BlobPayload(foreign{big, sum(big)})},
		evidence.Member{Key: "inline", Value: evidence.CanonicalPayload([]byte(`"` + strings.Repeat("i", 200<<10) + `"`))},
		evidence.Member{Key: "small", Value: evidence.CanonicalPayload([]byte("1"))},
	)
	if err := r.Seal(); err != nil {
		t.Fatal(err)
	}
	putRecord(t, s, r)
	got, err := s.Record(t.Context(), r.ID)
	if err != nil {
		t.Fatal(err)
	}
	if !got.Sealed() || writeText(t, got) != writeText(t, r) {
		t.Error("another record came back")
	}
	if err := got.Verify(); err != nil {
		t.Error(err)
	}
	info, err := os.Stat(s.path(recordsDir, r.ID))
	if err != nil || info.Size() > 64<<10 {
		t.Errorf("the envelope has %d bytes: payloads were copied into it, %v", info.Size(), err)
	}
	before := files(t, s)
	putRecord(t, s, got)
	if diff := cmp.Diff(before, files(t, s)); diff != "" {
		t.Errorf("putting it again made something: %s", diff)
	}

	lie := recordOf(t, s, "lie", 100<<10)
	lie.ID, lie.RawResult = "", evidence.BlobPayload(foreign{big, sum("other")})
	if err := lie.Seal(); err != nil {
		t.Fatal(err)
	}
	if err := s.PutRecord(t.Context(), lie); code(err) != fault.EvidenceIntegrityMismatch {
		t.Errorf("a foreign blob with another digest: %v", err)
	}
	unsealed := &evidence.Record{Provider: r.Provider, Operation: "o"}
	if err := s.PutRecord(t.Context(), unsealed); err == nil {
		t.Error("a record that was never sealed is kept")
	}
	for _, id := range []string{"ev_" + sum("absent"), "", "../x"} {
		if _, err := s.Record(t.Context(), id); code(err) != fault.EvidenceIntegrityMismatch {
			t.Errorf("record %q: %v", id, err)
		}
	}
}

func TestRuns(t *testing.T) {
	s := open(t, Options{})
	r := recordOf(t, s, "op", 100)
	for _, run := range []string{`{"run":1}`, `{"run":2}`} {
		if err := s.PutRun(t.Context(), r.ID, []byte(run)); err != nil {
			t.Fatal(err)
		}
		if got, err := s.Run(r.ID); err != nil || string(got) != run {
			t.Errorf("%s, %v", got, err)
		}
	}
	if _, err := s.Run("ev_" + sum("absent")); fault.From(err).Details["reason"] != "missing" {
		t.Errorf("a miss: %v", err)
	}
	if err := s.PutRun(t.Context(), "../../x", nil); err == nil {
		t.Error("a run record outside of the store")
	}
}

// TestDamage truncates one blob, changes a byte of another and breaks an envelope: reading says what is damaged and what
// to do, Verify finds all of it, producing content again replaces what is damaged, and Repair removes the rest.
func TestDamage(t *testing.T) {
	s := open(t, Options{})
	short, other, fine := recordOf(t, s, "short", 100<<10), recordOf(t, s, "other", 100<<10), recordOf(t, s, "fine", 100<<10)
	broken := recordOf(t, s, "broken", 100)
	for _, r := range []*evidence.Record{short, other, fine, broken} {
		putRecord(t, s, r)
	}
	if v, err := s.Verify(t.Context()); err != nil || len(v.Damaged) != 0 || v.Blobs != 3 || v.Records != 4 {
		t.Fatalf("%+v, %v", v, err)
	}
	blobOf := func(r *evidence.Record) string {
		digest, err := r.NormalizedResult.SHA256()
		if err != nil {
			t.Fatal(err)
		}
		return s.path(blobsDir, digest)
	}
	shortPath, otherPath := blobOf(short), blobOf(other)
	if err := os.Truncate(shortPath, 10); err != nil {
		t.Fatal(err)
	}
	f, err := os.OpenFile(otherPath, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteAt([]byte("y"), 50); err != nil {
		t.Fatal(err)
	}
	f.Close()
	if err := os.WriteFile(s.path(recordsDir, broken.ID), []byte(`{"format":1}`), 0o600); err != nil {
		t.Fatal(err)
	}

	for _, id := range []string{short.ID, other.ID} {
		r, err := s.Record(t.Context(), id)
		if err != nil {
			t.Fatal(err)
		}
		var delivered bytes.Buffer
		_, err = r.NormalizedResult.WriteTo(&delivered)
		if f := fault.From(err); f == nil || f.Code != fault.EvidenceIntegrityMismatch || !strings.Contains(f.Action, "rea gc --verify") {
			t.Errorf("reading damaged content: %v", err)
		}
		if delivered.Len() > 0 {
			t.Errorf("%d damaged bytes were delivered", delivered.Len())
		}
	}
	if _, err := s.Record(t.Context(), broken.ID); code(err) != fault.EvidenceIntegrityMismatch {
		t.Errorf("a broken envelope: %v", err)
	}
	v, err := s.Verify(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]bool{}
	for _, d := range v.Damaged {
		found[d.Kind+" "+d.Name] = true
	}
	want := map[string]bool{
		"blob " + filepath.Base(shortPath): true, "record " + short.ID: true, "blob " + filepath.Base(otherPath): true,
		"record " + other.ID: true, "record " + broken.ID: true,
	}
	if diff := cmp.Diff(want, found); diff != "" {
		t.Error(diff)
	}
	// Content of the right digest puts a damaged blob right again, whatever is wrong with it.
	for _, name := range []string{"short", "other"} {
		r := recordOf(t, s, name, 100<<10)
		putRecord(t, s, r)
		if err := must(s.Record(t.Context(), r.ID)).Verify(); err != nil {
			t.Errorf("%s, produced again: %v", name, err)
		}
	}
	if v := must(s.Verify(t.Context())); len(v.Damaged) != 1 || v.Damaged[0].Name != broken.ID {
		t.Errorf("after producing everything again: %+v", v.Damaged)
	}
}

// Repair removes what is damaged and the records that stand on it, however young, and nothing else.
func TestRepair(t *testing.T) {
	s := open(t, Options{})
	bad, fine := recordOf(t, s, "bad", 100<<10), recordOf(t, s, "fine", 100<<10)
	for _, r := range []*evidence.Record{bad, fine} {
		putRecord(t, s, r)
		if err := s.PutRun(t.Context(), r.ID, []byte(`{}`)); err != nil {
			t.Fatal(err)
		}
	}
	digest := must(bad.NormalizedResult.SHA256())
	f := must(os.OpenFile(s.path(blobsDir, digest), os.O_WRONLY, 0))
	must(f.WriteAt([]byte("y"), 50))
	f.Close()

	v, err := s.Repair(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	removed := map[string]bool{}
	for _, d := range v.Damaged {
		removed[d.Name] = d.Removed
	}
	if diff := cmp.Diff(map[string]bool{digest: true, bad.ID: true}, removed); diff != "" {
		t.Error(diff)
	}
	if v := must(s.Verify(t.Context())); len(v.Damaged) != 0 || v.Blobs != 1 || v.Records != 1 {
		t.Errorf("after the repair: %+v", v)
	}
	if _, err := s.Run(bad.ID); code(err) != fault.EvidenceIntegrityMismatch {
		t.Errorf("the run record of what was removed: %v", err)
	}
	if _, err := s.Run(fine.ID); err != nil {
		t.Error(err)
	}
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// A full file system is a small tmpfs here.
func TestFullDisk(t *testing.T) {
	dir := t.TempDir()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=1m"); err != nil {
		t.Skip("no right to mount a small file system")
	}
	defer syscall.Unmount(dir, syscall.MNT_DETACH)
	s := must(Open(filepath.Join(dir, "store"), none))
	kept := recordOf(t, s, "kept", 100<<10)
	putRecord(t, s, kept)
	isFull := func(err error) bool {
		e := fault.From(err)
		return e != nil && e.Code == fault.ResourceConstraint && e.Details["resource"] == "storage"
	}
	_, err := s.Spool(t.Context(), func(w io.Writer) error {
		_, err := io.WriteString(w, `"`+strings.Repeat("x", 2<<20)+`"`)
		return err
	})
	if !isFull(err) {
		t.Errorf("spool: %v", err)
	}
	w := must(s.Create(t.Context()))
	for err = nil; err == nil; {
		_, err = w.Write(make([]byte, 64<<10))
	}
	if !isFull(err) {
		t.Errorf("write: %v", err)
	}
	// The disk is full now: a small record does not fit either.
	small := &evidence.Record{Provider: kept.Provider, Operation: strings.Repeat("o", 60<<10)}
	if err := small.Seal(); err != nil {
		t.Fatal(err)
	}
	l := evidence.NewLedger(must(s.Lease("l")))
	if _, err := l.Record(t.Context(), small); !isFull(err) || l.Len() != 0 {
		t.Errorf("record: %v, %d retained", err, l.Len())
	}
	w.Abort()
	if _, err := l.Record(t.Context(), small); err != nil {
		t.Errorf("with room again: %v", err)
	}
	if err := must(s.Record(t.Context(), kept.ID)).Verify(); err != nil {
		t.Errorf("what was kept before: %v", err)
	}
	if n := len(must(os.ReadDir(filepath.Join(s.dir, tempDir)))); n != 0 {
		t.Errorf("%d temporary files remain", n)
	}
}

func TestCollectsOldestDownToTheCeiling(t *testing.T) {
	// Blobs of 1 MiB; a record's own files take two or three blocks more. The ceiling has room for two of four.
	s := open(t, bounded(2<<20+128<<10))
	var ids []string
	for i := range 4 {
		r := recordOf(t, s, fmt.Sprint("r", i), 1<<20)
		putRecord(t, s, r)
		if err := s.PutRun(t.Context(), r.ID, []byte("{}")); err != nil {
			t.Fatal(err)
		}
		ids = append(ids, r.ID)
	}
	age(t, s, ids...)
	before := files(t, s)
	plan := collect(t, s, true)
	now := files(t, s)
	delete(now, "/"+gcLockName)
	if diff := cmp.Diff(before, now); diff != "" {
		t.Errorf("a dry run changed something: %s", diff)
	}
	done := collect(t, s, false)
	if plan.Freed != done.Freed || plan.Records != done.Records || plan.Blobs != done.Blobs || !plan.DryRun {
		t.Errorf("planned %+v, done %+v", plan, done)
	}
	if done.Records != 2 || done.Blobs != 2 || done.After > 2<<20+128<<10 || done.Before-done.Freed != done.After {
		t.Errorf("%+v", done)
	}
	for i, id := range ids {
		if got, want := has(s, id), i >= 2; got != want {
			t.Errorf("record %d kept: %v", i, got)
		}
		if _, err := s.Run(id); (err == nil) != (i >= 2) {
			t.Errorf("run of record %d: %v", i, err)
		}
	}
	if again := collect(t, s, false); again.Freed != 0 {
		t.Errorf("a second collection freed %+v", again)
	}
	if v := must(s.Verify(t.Context())); len(v.Damaged) != 0 {
		t.Errorf("%+v", v)
	}
}

func TestFloorAndFreeSpace(t *testing.T) {
	// More free space is wanted than any disk has: only the floor stops the collection.
	s := open(t, Options{Floor: 2 << 20, Ceiling: 1 << 40, FreeTarget: 1 << 62, Grace: -1})
	var ids []string
	for i := range 4 {
		r := recordOf(t, s, fmt.Sprint("r", i), 1<<20)
		putRecord(t, s, r)
		ids = append(ids, r.ID)
	}
	age(t, s, ids...)
	r := collect(t, s, false)
	if r.Records != 2 || r.After < 2<<20 {
		t.Errorf("%+v", r)
	}
	s.o.Floor = 0
	if r = collect(t, s, false); r.Records != 2 || r.After != 0 {
		t.Errorf("without a floor: %+v", r)
	}
	s.o.FreeTarget = 0
	putRecord(t, s, recordOf(t, s, "r", 1<<20))
	age(t, s)
	if r = collect(t, s, false); r.Records != 0 {
		t.Errorf("without need: %+v", r)
	}
}

func TestSharedContentStays(t *testing.T) {
	s := open(t, bounded(1<<20+128<<10))
	first := recordOf(t, s, "same", 1<<20)
	second := &evidence.Record{Provider: first.Provider, Operation: "second", NormalizedResult: first.NormalizedResult}
	if err := second.Seal(); err != nil {
		t.Fatal(err)
	}
	third := recordOf(t, s, "third", 256<<10)
	for _, r := range []*evidence.Record{first, second, third} {
		putRecord(t, s, r)
	}
	put(t, s, "named by no record")
	age(t, s, first.ID, second.ID, third.ID)
	r := collect(t, s, false)
	// The first record alone frees no content; the second one does.
	if has(s, first.ID) || has(s, second.ID) || !has(s, third.ID) || r.Blobs != 2 {
		t.Errorf("%+v", r)
	}
	if v := must(s.Verify(t.Context())); len(v.Damaged) != 0 || v.Blobs != 1 {
		t.Errorf("%+v", v)
	}
}

func TestYoungThingsStay(t *testing.T) {
	o := none
	o.Grace = time.Hour
	s := open(t, o)
	r := recordOf(t, s, "young", 100<<10)
	putRecord(t, s, r)
	orphan := put(t, s, "not named yet")
	must(s.Create(t.Context())) // a writer that is neither committed nor aborted
	if rep := collect(t, s, false); rep.Freed != 0 || rep.Temps != 0 {
		t.Errorf("%+v", rep)
	}
	age(t, s)
	put(t, s, "not named yet") // counts as new
	if rep := collect(t, s, false); rep.Records != 1 || rep.Blobs != 1 {
		t.Errorf("%+v", rep)
	}
	if read(t, orphan) != "not named yet" {
		t.Error("content that was committed again went")
	}
}

func TestLeaseProtects(t *testing.T) {
	s := open(t, none)
	l := must(s.Lease("connection-1"))
	if _, err := s.Lease("connection-1"); code(err) != fault.RevisionConflict {
		t.Errorf("taken twice: %v", err)
	}
	kept, loose := recordOf(t, s, "kept", 100<<10), recordOf(t, s, "loose", 100<<10)
	ledger := evidence.NewLedger(l)
	if _, err := ledger.Record(t.Context(), kept); err != nil {
		t.Fatal(err)
	}
	putRecord(t, s, loose)
	age(t, s)
	if r := collect(t, s, false); r.Records != 1 || r.Leased != 1 || r.Leases != 0 || has(s, loose.ID) {
		t.Errorf("%+v", r)
	}
	got, err := ledger.Resolve(kept.ID)
	if err != nil || got.Verify() != nil {
		t.Errorf("what is leased: %v", err)
	}
	if err := ledger.Clear(); err != nil {
		t.Fatal(err)
	}
	age(t, s)
	if r := collect(t, s, false); r.Records != 1 || r.Leased != 0 || has(s, kept.ID) {
		t.Errorf("after the release: %+v", r)
	}
	if err := errors.Join(l.Close(), l.Close()); err != nil {
		t.Error(err)
	}
	if _, err := l.Retain(t.Context(), kept); err == nil {
		t.Error("a closed lease retains")
	}
	if again, err := s.Lease("connection-1"); err != nil {
		t.Errorf("the name is free again: %v", err)
	} else {
		again.Close()
	}
	for _, name := range []string{"", "../x", "a/b", ".hidden", strings.Repeat("a", 200)} {
		if _, err := s.Lease(name); err == nil {
			t.Errorf("lease %q", name)
		}
	}
}

// TestMain lets the test binary be a process of its own that is killed while it works.
func TestMain(m *testing.M) {
	if dir := os.Getenv("REA_TEST_STORE"); dir != "" {
		victim(dir)
		return
	}
	os.Exit(m.Run())
}

// victim takes a lease, retains a record, says so, and then writes for ever.
func victim(dir string) {
	s := must(Open(dir, none))
	l := must(s.Lease("victim"))
	r := &evidence.Record{Provider: evidence.Provider{ID: "p", Name: "P", Version: "1"}, Operation: "victim",
		NormalizedResult: evidence.StringPayload(strings.Repeat("v", 100<<10))}
	if err := r.Seal(); err != nil {
		panic(err)
	}
	must(l.Retain(context.Background(), r))
	fmt.Println(r.ID)
	for i := 0; ; i++ {
		w := must(s.Create(context.Background()))
		must(w.Write(bytes.Repeat([]byte{byte(i)}, 1<<20)))
		must(w.Commit())
		r := &evidence.Record{Provider: r.Provider, Operation: fmt.Sprint("more", i), NormalizedResult: r.NormalizedResult}
		if err := r.Seal(); err != nil {
			panic(err)
		}
		must(l.Retain(context.Background(), r))
		if i == 0 {
			fmt.Println(r.ID)
		}
		i %= 16
	}
}

func TestKilledProcess(t *testing.T) {
	s := open(t, none)
	exe := must(os.Executable())
	cmd := exec.Command(exe)
	cmd.Env = append(os.Environ(), "REA_TEST_STORE="+s.dir)
	out := must(cmd.StdoutPipe())
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var first, second string
	if _, err := fmt.Fscan(out, &first, &second); err != nil {
		t.Fatal(err)
	}
	// Alive: the lease holds although everything else may go.
	if r := collect(t, s, false); r.Busy || !has(s, first) {
		t.Errorf("the record of a living process went: %+v", r)
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	cmd.Wait()
	if err := must(s.Record(t.Context(), first)).Verify(); err != nil {
		t.Errorf("what was acknowledged: %v", err)
	}
	if v := must(s.Verify(t.Context())); len(v.Damaged) != 0 {
		t.Errorf("the kill left damage: %+v", v)
	}
	os.WriteFile(filepath.Join(s.dir, tempDir, "new-left"), []byte("cut"), 0o600)
	age(t, s)
	r := collect(t, s, false)
	if r.Leases != 1 || r.Temps < 1 || r.After != 0 || has(s, first) {
		t.Errorf("%+v", r)
	}
	for path, mode := range files(t, s) {
		if !mode.IsDir() && path != "/"+lockName && path != "/"+gcLockName {
			t.Errorf("%s remains", path)
		}
	}
}

func TestOneCollector(t *testing.T) {
	s := open(t, none)
	put(t, s, "x")
	age(t, s)
	f := must(os.OpenFile(filepath.Join(s.dir, gcLockName), os.O_RDWR|os.O_CREATE, 0o600))
	defer f.Close()
	if err := flock(f, syscall.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	if r := collect(t, s, false); !r.Busy || r.Freed != 0 {
		t.Errorf("%+v", r)
	}
}

// samePut spools the same content and retains the same record each time.
func samePut(s *Store, l *Lease, which int) (*evidence.Record, error) {
	content := `"` + strings.Repeat(fmt.Sprint(which), 100<<10) + `"`
	p, err := s.Spool(context.Background(), func(w io.Writer) error {
		_, err := io.WriteString(w, content)
		return err
	})
	if err != nil {
		return nil, err
	}
	r := &evidence.Record{Provider: evidence.Provider{ID: "p", Name: "P", Version: "1"}, Operation: fmt.Sprint("op", which), NormalizedResult: p}
	if err := r.Seal(); err != nil {
		return nil, err
	}
	return l.Retain(context.Background(), r)
}

// A collection meets a put of content that is there and old enough to go: the put succeeds, whoever comes first.
func TestCollectAgainstPutOfTheSame(t *testing.T) {
	o := none
	o.Grace = time.Hour
	s := open(t, o)
	l := must(s.Lease("putter"))
	defer l.Close()
	for range 50 {
		must(samePut(s, l, 1))
		if err := l.Release(); err != nil {
			t.Fatal(err)
		}
		age(t, s)
		var wg sync.WaitGroup
		wg.Go(func() {
			if _, err := s.GC(context.Background(), false); err != nil {
				t.Error(err)
			}
		})
		r, err := samePut(s, l, 1)
		wg.Wait()
		if err != nil {
			t.Fatal(err)
		}
		if err := r.Verify(); err != nil || !has(s, r.ID) {
			t.Fatalf("what was retained: %v", err)
		}
	}
}

// Collections run while several leases put, check and let go the same few records, which one of them may age just
// after another one committed: a put then fails and says so. What was acknowledged is there until its release.
func TestCollectAgainstManyPutters(t *testing.T) {
	o := none
	o.Grace = time.Hour
	s := open(t, o)
	var digests [3]string
	for i := range digests {
		digests[i] = sum(`"` + strings.Repeat(fmt.Sprint(i), 100<<10) + `"`)
	}
	stop := make(chan struct{})
	var collector, putters sync.WaitGroup
	collector.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
			}
			if _, err := s.GC(context.Background(), false); err != nil {
				t.Error(err)
			}
		}
	})
	for g := range 4 {
		putters.Go(func() {
			l := must(s.Lease(fmt.Sprint("putter-", g)))
			defer l.Close()
			for i := range 40 {
				r, err := samePut(s, l, i%3)
				if err != nil {
					if fault.From(err).Details["reason"] != "missing" {
						t.Error(err)
					}
					continue
				}
				for range 3 {
					if err := r.Verify(); err != nil {
						t.Errorf("a leased record: %v", err)
					}
				}
				if err := l.Release(); err != nil {
					t.Error(err)
				}
				day := time.Now().Add(-24 * time.Hour)
				os.Chtimes(s.path(recordsDir, r.ID), day, day) // either may be gone already
				os.Chtimes(s.path(blobsDir, digests[i%3]), day, day)
			}
		})
	}
	putters.Wait()
	close(stop)
	collector.Wait()
}

// What is published between a collection's look and its removals stays: content that was committed again, content
// that a new record names, and a record that was retained again.
func TestPublishedSinceTheScan(t *testing.T) {
	o := none
	o.Grace = time.Hour
	s := open(t, o)
	l := must(s.Lease("l"))
	defer l.Close()
	orphan, again := put(t, s, "committed again"), recordOf(t, s, "again", 100<<10)
	named := recordOf(t, s, "named since", 100<<10)
	putRecord(t, s, again)
	age(t, s)
	c := newCollector(s, false)
	if err := c.scan(t.Context()); err != nil {
		t.Fatal(err)
	}
	put(t, s, "committed again")
	if _, err := l.Retain(t.Context(), named); err != nil {
		t.Fatal(err)
	}
	if _, err := l.Retain(t.Context(), again); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(c.orphans(t.Context()), c.evict(t.Context(), nil)); err != nil {
		t.Fatal(err)
	}
	if c.report.Freed != 0 || read(t, orphan) != "committed again" {
		t.Errorf("%+v", c.report)
	}
	for _, r := range []*evidence.Record{named, again} {
		if err := must(s.Record(t.Context(), r.ID)).Verify(); err != nil {
			t.Error(err)
		}
	}
}

// Another process's content that goes between commit and record is seen, not passed over.
func TestPutNoticesMissingContent(t *testing.T) {
	s := open(t, none)
	r := recordOf(t, s, "r", 100<<10)
	age(t, s)
	collect(t, s, false)
	if err := s.PutRecord(t.Context(), r); code(err) != fault.EvidenceIntegrityMismatch {
		t.Errorf("got %v", err)
	}
	if has(s, r.ID) {
		t.Error("a record without its content was kept")
	}
}

func BenchmarkLedgerRecord10MB(b *testing.B) {
	s := open(b, Options{})
	l := must(s.Lease("bench"))
	defer l.Close()
	value := `"` + strings.Repeat("v", 10<<20) + `"`
	b.SetBytes(int64(len(value)))
	for i := 0; b.Loop(); i++ {
		p, err := s.Spool(b.Context(), func(w io.Writer) error {
			_, err := io.WriteString(w, fmt.Sprintf(`["%d",%s]`, i, value))
			return err
		})
		if err != nil {
			b.Fatal(err)
		}
		r := &evidence.Record{Provider: evidence.Provider{ID: "p", Name: "P", Version: "1"}, Operation: "o", NormalizedResult: p}
		if err := r.Seal(); err != nil {
			b.Fatal(err)
		}
		if _, err := evidence.NewLedger(l).Record(b.Context(), r); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkRetainSmall(b *testing.B) {
	s := open(b, Options{})
	l := must(s.Lease("bench"))
	defer l.Close()
	for i := 0; b.Loop(); i++ {
		r := &evidence.Record{Provider: evidence.Provider{ID: "p", Name: "P", Version: "1"}, Operation: fmt.Sprint(i)}
		if err := r.Seal(); err != nil {
			b.Fatal(err)
		}
		if _, err := l.Retain(b.Context(), r); err != nil {
			b.Fatal(err)
		}
	}
}
