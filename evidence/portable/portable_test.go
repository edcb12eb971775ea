package portable

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"rea/evidence/fault"
)

func text(s string) func(io.Writer) error {
	return func(w io.Writer) error {
		_, err := io.WriteString(w, s)
		return err
	}
}

// names lists a directory, staging included.
func names(t *testing.T, dir string) []string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	out := []string{}
	for _, e := range entries {
		out = append(out, e.Name())
	}
	return out
}

func contents(t *testing.T, path string) string {
	t.Helper()
	raw, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}

func wantFault(t *testing.T, err error, code fault.Code, reason string) *fault.Error {
	t.Helper()
	var f *fault.Error
	if !errors.As(err, &f) || f.Code != code || reason != "" && f.Details["reason"] != reason {
		t.Fatalf("got %v, want %s %s", err, code, reason)
	}
	if f.Message == "" || f.Action == "" {
		t.Errorf("%s says too little", code)
	}
	return f
}

func TestPublish(t *testing.T) {
	dir := t.TempDir()
	link := filepath.Join(t.TempDir(), "link") // a parent that is reached by a link is canonical in the receipt
	if err := os.Symlink(dir, link); err != nil {
		t.Fatal(err)
	}
	canonical, err := filepath.EvalSymlinks(dir)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(link, "e.json")
	r, err := Publish(t.Context(), path, false, text("one"))
	if diff := cmp.Diff(Receipt{Path: filepath.Join(canonical, "e.json"), Bytes: 3}, r); err != nil || diff != "" {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
	if info, err := os.Stat(path); err != nil || info.Mode() != 0o600 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
	_, err = Publish(t.Context(), path, false, text("two"))
	wantFault(t, err, fault.InvalidRequest, "exists")
	if got := contents(t, path); got != "one" {
		t.Errorf("the file was changed to %q", got)
	}
	if _, err = Publish(t.Context(), path, true, text("three")); err != nil || contents(t, path) != "three" {
		t.Errorf("overwriting: %v, %q", err, contents(t, path))
	}
	if got := names(t, dir); len(got) != 1 {
		t.Errorf("left %v", got)
	}
}

func TestPublishRefuses(t *testing.T) {
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	for name, err := range map[string]error{
		"link": os.Symlink("nowhere", at("link")), "pipe": unix.Mkfifo(at("pipe"), 0o600), "dir": os.Mkdir(at("dir"), 0o700), "file": os.WriteFile(at("file"), nil, 0o600),
	} {
		if err != nil {
			t.Fatal(name, err)
		}
	}
	before := names(t, dir)
	for _, c := range []struct{ path, reason string }{
		{at("link"), "not-file"}, {at("pipe"), "not-file"}, {at("dir"), "not-file"}, {at("none/e.json"), "missing"}, {at("file/e.json"), "missing"}, {"/", "not-file"},
	} {
		for _, overwrite := range []bool{false, true} {
			_, err := Publish(t.Context(), c.path, overwrite, text("x"))
			wantFault(t, err, fault.InvalidRequest, c.reason)
		}
	}
	if diff := cmp.Diff(before, names(t, dir)); diff != "" {
		t.Errorf("left (-want +got):\n%s", diff)
	}
}

// A write that fails or is cancelled leaves the destination as it was, and nothing beside it.
func TestPublishFails(t *testing.T) {
	broken := errors.New("broken")
	for name, c := range map[string]struct {
		write func(cancel func()) func(io.Writer) error
		code  fault.Code
	}{
		"producer": {func(func()) func(io.Writer) error {
			return func(w io.Writer) error { _, _ = io.WriteString(w, "part"); return broken }
		}, fault.ExecutionFailure},
		"producer's file": {func(func()) func(io.Writer) error { return func(io.Writer) error { return os.ErrNotExist } }, fault.ExecutionFailure},
		"cancelled while writing": {func(cancel func()) func(io.Writer) error {
			return func(w io.Writer) error {
				_, _ = io.WriteString(w, "part")
				cancel()
				_, err := io.WriteString(w, strings.Repeat("x", 2*chunk))
				return err
			}
		}, fault.Cancelled},
		"cancelled at the end": {func(cancel func()) func(io.Writer) error {
			return func(w io.Writer) error { defer cancel(); return text("all")(w) }
		}, fault.Cancelled},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			path := filepath.Join(dir, "e.json")
			if err := os.WriteFile(path, []byte("old"), 0o600); err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			_, err := Publish(ctx, path, true, c.write(cancel))
			wantFault(t, err, c.code, "")
			if got := names(t, dir); len(got) != 1 || contents(t, path) != "old" {
				t.Errorf("left %v, %q", got, contents(t, path))
			}
		})
	}
}

// A name that is taken while the file is prepared is not replaced.
func TestPublishRace(t *testing.T) {
	path := filepath.Join(t.TempDir(), "e.json")
	_, err := Publish(t.Context(), path, false, func(w io.Writer) error {
		if err := os.WriteFile(path, []byte("theirs"), 0o600); err != nil {
			return err
		}
		return text("ours")(w)
	})
	wantFault(t, err, fault.InvalidRequest, "exists")
	if got := contents(t, path); got != "theirs" {
		t.Errorf("replaced by %q", got)
	}
}

// What could not be removed is told, with the receipt where the file is there nevertheless.
func TestPublishCannotCleanUp(t *testing.T) {
	stuck := publisher{func(string) error { return unix.EBUSY }}
	dir := t.TempDir()
	path := filepath.Join(dir, "e.json")
	r, err := stuck.publish(t.Context(), path, false, text("abc"))
	f := wantFault(t, err, fault.CleanupIncomplete, "")
	want := fault.Details{"operation": "write", "cleanup": "incomplete", "resources": []string{"staging_directory"}, "cleanup_reason": unix.EBUSY.Error(),
		"published": true, "published_path": r.Path, "bytes": int64(3)}
	if diff := cmp.Diff(want, f.Details); diff != "" || f.Category != fault.CategoryExecutionFailure || contents(t, path) != "abc" {
		t.Errorf("%s (-want +got):\n%s", f.Category, diff)
	}
	if info, err := os.Stat(r.Staging); err != nil || !info.IsDir() || filepath.Dir(r.Staging) != filepath.Dir(r.Path) {
		t.Errorf("staging %q: %v", r.Staging, err)
	}
	_, err = stuck.publish(t.Context(), path, false, text("abc")) // refused before anything is made
	wantFault(t, err, fault.InvalidRequest, "exists")
	ctx, cancel := context.WithCancel(t.Context())
	_, err = stuck.publish(ctx, filepath.Join(dir, "other.json"), false, func(io.Writer) error { cancel(); return nil })
	f = wantFault(t, err, fault.CleanupIncomplete, "")
	if _, published := f.Details["published"]; published || f.Category != fault.CategoryCancelled || f.Details["execution_failure"] != "cancelled" {
		t.Errorf("%s %v", f.Category, f.Details)
	}
}

func TestOpen(t *testing.T) {
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	if err := errors.Join(os.WriteFile(at("file"), []byte("x"), 0o600), os.Symlink("file", at("link")), unix.Mkfifo(at("pipe"), 0o600)); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"file", "link"} {
		f, err := Open(at(name))
		if err != nil {
			t.Fatal(err)
		}
		if raw, err := io.ReadAll(f); string(raw) != "x" || f.Close() != nil {
			t.Errorf("%s: %q %v", name, raw, err)
		}
	}
	for name, reason := range map[string]string{"none": "missing", "pipe": "not-file", ".": "not-file"} {
		_, err := Open(at(name))
		if f := wantFault(t, err, fault.InvalidRequest, reason); f.Details["operation"] != "read" {
			t.Errorf("%v", f.Details)
		}
	}
}
