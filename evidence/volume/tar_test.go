package volume

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// stream is an engine's copy; it remembers that it was closed and how much of it was read.
type stream struct {
	io.Reader
	closed bool
	read   int
}

func (s *stream) Read(p []byte) (int, error) {
	n, err := s.Reader.Read(p)
	s.read += n
	return n, err
}
func (s *stream) Close() error { s.closed = true; return nil }

type member struct {
	header  tar.Header
	content string
}

func archive(t testing.TB, members ...member) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, m := range members {
		must(t, w.WriteHeader(&m.header))
		_, err := io.WriteString(w, m.content)
		must(t, err)
	}
	must(t, w.Close())
	return b.Bytes()
}

func regular(name, content string) member {
	return member{tar.Header{Name: name, Typeflag: tar.TypeReg, Mode: 0o600, Size: int64(len(content))}, content}
}

func TestTarOpen(t *testing.T) {
	typed := func(kind byte) []byte {
		return archive(t, member{tar.Header{Name: "0", Typeflag: kind, Linkname: "/etc/passwd", Mode: 0o600}, ""})
	}
	good := archive(t, regular("0", "zero"))
	for _, tt := range []struct {
		name   string
		bytes  []byte
		reason Reason
		late   bool // refused while the content is read
		unread bool // refused from the header, the content not asked for
	}{
		{name: "one regular file", bytes: good},
		{name: "empty file", bytes: archive(t, regular("0", ""))},
		{name: "other name", bytes: archive(t, regular("1", "zero")), reason: ReasonStream},
		{name: "name with a folder", bytes: archive(t, regular("../0", "zero")), reason: ReasonStream},
		{name: "symbolic link", bytes: typed(tar.TypeSymlink), reason: ReasonKind},
		{name: "hard link", bytes: typed(tar.TypeLink), reason: ReasonKind},
		{name: "pipe", bytes: typed(tar.TypeFifo), reason: ReasonKind},
		{name: "device", bytes: typed(tar.TypeChar), reason: ReasonKind},
		{name: "directory", bytes: archive(t, member{tar.Header{Name: "0/", Typeflag: tar.TypeDir, Mode: 0o700}, ""}), reason: ReasonStream},
		{name: "set-user-id", bytes: archive(t, member{tar.Header{Name: "0", Typeflag: tar.TypeReg, Mode: 0o4755, Size: 4}, "zero"}), reason: ReasonMode},
		{name: "set-group-id", bytes: archive(t, member{tar.Header{Name: "0", Typeflag: tar.TypeReg, Mode: 0o2755, Size: 4}, "zero"}), reason: ReasonMode},
		{name: "too large by its header", bytes: archive(t, regular("0", strings.Repeat("z", 1<<20))), reason: ReasonSize, unread: true},
		{name: "two entries", bytes: archive(t, regular("0", "zero"), regular("1", "one")), reason: ReasonStream, late: true},
		{name: "nothing", bytes: archive(t), reason: ReasonStream},
		{name: "no bytes at all", bytes: nil, reason: ReasonStream},
		{name: "not a tar", bytes: []byte(strings.Repeat("no tar", 200)), reason: ReasonStream},
		{name: "cut in the content", bytes: good[:514], reason: ReasonStream, late: true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := &stream{Reader: bytes.NewReader(tt.bytes)}
			src := Tar(func(_ context.Context, name string) (io.ReadCloser, error) {
				if name != "3/files/0" {
					t.Errorf("the engine is asked for %q", name)
				}
				return s, nil
			})
			r, err := src.Open(t.Context(), "3/files/0", 4)
			if (err != nil) != (tt.reason != "" && !tt.late) {
				t.Fatalf("open: %v", err)
			}
			if err == nil {
				_, err = io.ReadAll(r)
				must(t, r.Close())
			}
			var refusal *Refusal
			if errors.As(err, &refusal) != (tt.reason != "") || refusal != nil && refusal.Reason != tt.reason {
				t.Errorf("got %v, want %q", err, tt.reason)
			}
			if !s.closed {
				t.Error("the engine's stream was not closed")
			}
			if tt.unread && s.read > 512 {
				t.Errorf("%d bytes were read, want the header alone", s.read)
			}
		})
	}
}

// TestTarOfAnotherTool reads what tar(1) wrote, headers of its own making.
func TestTarOfAnotherTool(t *testing.T) {
	if _, err := exec.LookPath("tar"); err != nil {
		t.Skip("tar(1) is not installed")
	}
	root := t.TempDir()
	content := strings.Repeat("content ", 1000)
	put(t, filepath.Join(root, "0"), content)
	for _, format := range []string{"gnu", "pax", "ustar", "v7"} {
		out, err := exec.Command("tar", "--format="+format, "-C", root, "-cf", "-", "0").Output()
		must(t, err)
		src := Tar(func(context.Context, string) (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(out)), nil })
		r, err := src.Open(t.Context(), "3/files/0", int64(len(content)))
		must(t, err)
		got, err := io.ReadAll(r)
		if err != nil || string(got) != content {
			t.Errorf("%s: %d bytes, %v", format, len(got), err)
		}
	}
}

func TestTarEngineFailures(t *testing.T) {
	gone := Tar(func(context.Context, string) (io.ReadCloser, error) { return nil, fs.ErrNotExist })
	var refusal *Refusal
	if _, err := gone.Open(t.Context(), "3/0", 1); !errors.As(err, &refusal) || refusal.Reason != ReasonMissing {
		t.Errorf("missing: %v", err)
	}
	broken := errors.New("engine is gone")
	down := Tar(func(context.Context, string) (io.ReadCloser, error) { return nil, broken })
	if _, err := down.Open(t.Context(), "3/0", 1); !errors.Is(err, broken) || errors.As(err, &refusal) {
		t.Errorf("engine: %v", err)
	}
	if _, err := down.Open(t.Context(), "../0", 1); !errors.As(err, &refusal) || refusal.Reason != ReasonName {
		t.Errorf("name: %v", err)
	}
	if free, err := down.Free(t.Context()); free != nil || err != nil {
		t.Errorf("free: %v, %v", free, err)
	}
	if _, err := down.List(t.Context(), ListLimits{}); !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("list: %v", err)
	}
}

// TestTarCancelled: a copy that hangs in the engine ends with its context, before and after the header.
func TestTarCancelled(t *testing.T) {
	good := archive(t, regular("0", "zero"))
	for name, head := range map[string][]byte{"before the header": nil, "in the content": good[:513]} {
		pr, pw := io.Pipe()
		cause := errors.New("enough")
		ctx, cancel := context.WithCancelCause(t.Context())
		go func() {
			pw.Write(head)
			cancel(cause) // once all there is was read: the reader hangs now
		}()
		r, err := Tar(func(context.Context, string) (io.ReadCloser, error) { return pr, nil }).Open(ctx, "3/0", 4)
		if err == nil {
			_, err = io.ReadAll(r)
			r.Close()
		}
		if !errors.Is(err, cause) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestReadThroughTar: the same answer, read from the directory and through tar streams of it, is the same contents.
func TestReadThroughTar(t *testing.T) {
	a := honest(t).commit(t)
	dir := Dir(openDir(t, a.root))
	engine := Tar(func(ctx context.Context, name string) (io.ReadCloser, error) {
		f, err := dir.Open(ctx, name, 1<<20)
		if err != nil {
			return nil, err
		}
		defer f.Close()
		content, err := io.ReadAll(f)
		return io.NopCloser(bytes.NewReader(archive(t, regular(filepath.Base(name), string(content))))), err
	})
	var stored []string
	create := func(_ context.Context, name string) (Sink, error) {
		return &memory{committed: &stored, name: name}, nil
	}
	c, err := Read(t.Context(), engine, a.want, create, Limits{9, 99})
	must(t, err)
	got := map[string]string{}
	for name, b := range c.Files {
		got[name] = b.(*memory).String()
	}
	want := map[string]string{"result.json": `{"ok":true}`, "files/0": "zero", "raw/out.txt": ""}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// FuzzTar: no stream makes the source panic, hand out more than the limit or anything but one file's bytes.
func FuzzTar(f *testing.F) {
	f.Add(archive(f, regular("0", "zero")))
	f.Add(archive(f, regular("0", "zero"), regular("1", "one")))
	f.Add(archive(f, member{tar.Header{Name: "0", Typeflag: tar.TypeSymlink, Linkname: "x"}, ""}))
	f.Fuzz(func(t *testing.T, raw []byte) {
		src := Tar(func(context.Context, string) (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(raw)), nil })
		r, err := src.Open(t.Context(), "3/0", 100)
		if err != nil {
			return
		}
		defer r.Close()
		got, err := io.ReadAll(r)
		if len(got) > 100 {
			t.Errorf("%d bytes", len(got))
		}
		if err == nil && !bytes.Contains(raw, got) && !bytes.Contains(raw, []byte("GNU.sparse")) && raw[156] != tar.TypeGNUSparse {
			t.Errorf("bytes that are not in the stream: %q", got)
		}
	})
}
