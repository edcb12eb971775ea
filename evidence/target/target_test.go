package target

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"rea/evidence/fault"
)

// The digests of this file were computed by a few lines of Python (hashlib) from the description of Tree.

func TestTree(t *testing.T) {
	tree := NewTree()
	tree.Dir([]byte("a"))
	tree.File([]byte("a/z"), 6, sha256.Sum256([]byte("hello\n")), true)
	tree.File([]byte("a b"), 0, sha256.Sum256(nil), false)
	tree.Link([]byte("link"), []byte("a/\nz"))
	tree.Special([]byte("pipe"), FIFO)
	tree.Unreadable([]byte("\xffx"))
	if got, want := tree.Sum(), "c0ac720080586adf1ad027d30441d8b1536a11761b04d1b841ab6da370b3b6e2"; got != want || tree.Entries() != 6 {
		t.Errorf("sum %s, want %s; %d entries", got, want, tree.Entries())
	}
}

func write(t testing.TB, path, content string, mode os.FileMode) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), mode); err != nil {
		t.Fatal(err)
	}
}

func open(t testing.TB, path string, flags int) *os.File {
	t.Helper()
	fd, err := unix.Open(path, flags|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	f := os.NewFile(uintptr(fd), path)
	t.Cleanup(func() { f.Close() })
	return f
}

func sampleTree(t *testing.T) string {
	dir := t.TempDir()
	write(t, dir+"/a/z", "hello\n", 0o755)
	write(t, dir+"/a b", "", 0o644)
	write(t, dir+"/\xffx", "x", 0o644)
	if err := os.Symlink("nowhere", dir+"/link"); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mkfifo(dir+"/pipe", 0o644); err != nil {
		t.Fatal(err)
	}
	return dir
}

func TestHashDirectory(t *testing.T) {
	dir := sampleTree(t)
	for _, flags := range []int{unix.O_RDONLY | unix.O_DIRECTORY, unix.O_PATH} {
		d, err := Hash(t.Context(), []Root{{File: open(t, dir, flags)}}, nil)
		if err != nil {
			t.Fatal(err)
		}
		want := Digest{SHA256: "88c68647f524117b5c8c71a85fff1fde20b5fd1b3d3b2e1b7da3172e2bc63d26", Bytes: 7, Entries: 6, Specials: []Special{{"pipe", FIFO}}}
		if diff := cmp.Diff(want, d); diff != "" {
			t.Error(diff)
		}
	}
}

func TestHashFileAndCompanion(t *testing.T) {
	dir := t.TempDir()
	write(t, dir+"/x.asar", "main", 0o644)
	write(t, dir+"/x.asar.unpacked/n", "n\n", 0o644)
	main := open(t, dir+"/x.asar", unix.O_PATH)
	d, err := Hash(t.Context(), Parts(main, nil), nil)
	if err != nil {
		t.Fatal(err)
	}
	const file = "0d6e4079e36703ebd37c00722f5891d28b0e2811dc114b129215123adcce3605" // printf main | sha256sum
	if diff := cmp.Diff(Digest{SHA256: file, FileSHA256: file, Bytes: 4, Entries: 1}, d); diff != "" {
		t.Error(diff)
	}
	var told int64
	d, err = Hash(t.Context(), Parts(main, open(t, dir+"/x.asar.unpacked", unix.O_PATH)), func(_, bytes int64) { told = bytes })
	if err != nil {
		t.Fatal(err)
	}
	want := Digest{SHA256: "360f9c4032a248d66cccd186d4d2d646d3a27d755e0f15a2bf91d7c752b0a4b3", FileSHA256: file, Bytes: 6, Entries: 3}
	if diff := cmp.Diff(want, d); diff != "" || told != 6 {
		t.Errorf("%s; %d bytes told", diff, told)
	}
}

// What the worker could not read, the core leaves out as well.
func TestHashUnreadable(t *testing.T) {
	dir := t.TempDir()
	write(t, dir+"/a/z", "hello\n", 0o644)
	write(t, dir+"/a b", "", 0o644)
	d, err := Hash(t.Context(), []Root{{File: open(t, dir, unix.O_PATH), Unreadable: []string{"a/z"}}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	want := Digest{SHA256: "2d01acd0ac095da03240101e6bdf1681293911d468cd7bb976e073e38920ac5e", Entries: 3, Unreadable: []string{"a/z"}}
	if diff := cmp.Diff(want, d); diff != "" {
		t.Error(diff)
	}
}

// One changed fact of one entry changes the digest.
func TestHashSeesEveryFact(t *testing.T) {
	sum := func(dir string) string {
		d, err := Hash(t.Context(), []Root{{File: open(t, dir, unix.O_PATH)}}, nil)
		if err != nil {
			t.Fatal(err)
		}
		return d.SHA256
	}
	seen := map[string]string{sum(sampleTree(t)): "nothing"}
	for what, change := range map[string]func(dir string) error{
		"content": func(dir string) error { return os.WriteFile(dir+"/a/z", []byte("hellO\n"), 0o755) },
		"mode":    func(dir string) error { return os.Chmod(dir+"/a/z", 0o644) },
		"name":    func(dir string) error { return os.Rename(dir+"/a b", dir+"/a c") },
		"kind": func(dir string) error {
			return errors.Join(os.Remove(dir+"/pipe"), os.WriteFile(dir+"/pipe", nil, 0o644))
		},
		"link": func(dir string) error {
			return errors.Join(os.Remove(dir+"/link"), os.Symlink("elsewhere", dir+"/link"))
		},
		"directory": func(dir string) error { return os.Mkdir(dir+"/empty", 0o755) },
		"removal":   func(dir string) error { return os.Remove(dir + "/\xffx") },
	} {
		dir := sampleTree(t)
		if err := change(dir); err != nil {
			t.Fatal(err)
		}
		s := sum(dir)
		if other, ok := seen[s]; ok {
			t.Errorf("a change of %s gives the digest of %s", what, other)
		}
		seen[s] = what
	}
}

// order collects what a walk reports.
type order struct {
	lines []string
	file  func(path []byte, f *File) error
}

func (o *order) Dir(path []byte) error { o.lines = append(o.lines, "d "+string(path)); return nil }
func (o *order) File(path []byte, f *File) error {
	o.lines = append(o.lines, "f "+string(path))
	if o.file != nil {
		return o.file(path, f)
	}
	return f.Close()
}
func (o *order) Link(path, to []byte) error {
	o.lines = append(o.lines, fmt.Sprintf("l %s %s", path, to))
	return nil
}
func (o *order) Special(path []byte, k Kind) error {
	o.lines = append(o.lines, fmt.Sprintf("s %s %s", path, k))
	return nil
}
func (o *order) Unreadable(path []byte, _ bool) error {
	o.lines = append(o.lines, "u "+string(path))
	return nil
}

func TestWalkOrder(t *testing.T) {
	var o order
	if err := Walk(t.Context(), open(t, sampleTree(t), unix.O_PATH), &o); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"d a", "f a/z", "f a b", "l link nowhere", "s pipe fifo", "f \xffx"}, o.lines); diff != "" {
		t.Error(diff)
	}
}

// A tree deeper than the handles that are kept, and deeper than a path may be long.
func TestWalkDeep(t *testing.T) {
	dir := t.TempDir()
	at := open(t, dir, unix.O_RDONLY)
	name := strings.Repeat("d", 10)
	const depth = 500 // 500 × 11 bytes are more than MaxPath
	for i := range depth {
		fd := int(at.Fd())
		if err := unix.Mkdirat(fd, name, 0o755); err != nil {
			t.Fatal(err)
		}
		if f, err := unix.Openat(fd, "z", unix.O_CREAT|unix.O_WRONLY|unix.O_CLOEXEC, 0o644); err != nil {
			t.Fatal(err)
		} else {
			unix.Close(f)
		}
		next, err := unix.Openat(fd, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		if err != nil {
			t.Fatal(i, err)
		}
		if i > 0 {
			at.Close()
		}
		at = os.NewFile(uintptr(next), "deep")
	}
	at.Close()
	var o order
	if err := Walk(t.Context(), open(t, dir, unix.O_PATH), &o); err != nil {
		t.Fatal(err)
	}
	kinds := map[string]int{}
	for _, l := range o.lines {
		kinds[l[:1]]++
	}
	// 372 directories of 11·n−1 ≤ 4096 bytes; 373 files "…/z" of 11·n+1 ≤ 4096; what lies deeper is named once.
	if diff := cmp.Diff(map[string]int{"d": 372, "f": 373, "s": 1}, kinds); diff != "" {
		t.Error(diff)
	}
}

func wantChanged(t *testing.T, err error) {
	t.Helper()
	var f *fault.Error
	if !errors.As(err, &f) || f.Code != fault.ArtifactChanged {
		t.Fatalf("error %v, want artifact_changed", err)
	}
}

// Each change beneath a walk is noticed: of a file between opening and closing, of a directory that is walked.
func TestWalkNoticesChanges(t *testing.T) {
	for what, change := range map[string]func(dir string) error{
		"file grows":    func(dir string) error { return os.WriteFile(dir+"/a/z", []byte("longer than before"), 0o644) },
		"entry appears": func(dir string) error { return os.WriteFile(dir+"/new", nil, 0o644) },
		"link takes the name": func(dir string) error {
			return errors.Join(os.Remove(dir+"/b"), os.Symlink("/etc/passwd", dir+"/b"))
		},
		"fifo takes the name": func(dir string) error { return errors.Join(os.Remove(dir+"/b"), unix.Mkfifo(dir+"/b", 0o644)) },
		"name vanishes":       func(dir string) error { return os.Remove(dir + "/b") },
		"directory is moved":  func(dir string) error { return os.Rename(dir+"/a", dir+"/moved") },
	} {
		t.Run(what, func(t *testing.T) {
			dir := t.TempDir()
			write(t, dir+"/a/z", "hello\n", 0o644)
			write(t, dir+"/b", "b", 0o644)
			o := &order{file: func(path []byte, f *File) error {
				if string(path) == "a/z" {
					if err := change(dir); err != nil {
						return err
					}
				}
				return f.Close()
			}}
			wantChanged(t, Walk(t.Context(), open(t, dir, unix.O_PATH), o))
			for _, l := range o.lines {
				if strings.HasPrefix(l, "f b") && what != "file grows" && what != "entry appears" && what != "directory is moved" {
					t.Errorf("%s was opened", l)
				}
			}
		})
	}
}

// A goroutine exchanges a name for a file, a link out of the tree and a FIFO while it is hashed: the walk neither
// blocks nor leaves the tree.
func TestHashAgainstSwapper(t *testing.T) {
	dir, secret := t.TempDir(), filepath.Join(t.TempDir(), "secret")
	write(t, secret, "secret", 0o644)
	write(t, dir+"/x", "inside", 0o644)
	stop := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			default:
			}
			os.Remove(dir + "/new")
			switch i % 3 {
			case 0:
				os.Symlink(secret, dir+"/new")
			case 1:
				unix.Mkfifo(dir+"/new", 0o644)
			default:
				os.WriteFile(dir+"/new", []byte("inside"), 0o644)
			}
			os.Rename(dir+"/new", dir+"/x")
		}
	})
	root := open(t, dir, unix.O_PATH)
	for range 300 {
		o := &order{file: func(path []byte, f *File) error {
			var b bytes.Buffer
			_, err := f.copy(t.Context(), &b, nil)
			if strings.Contains(b.String(), "secret") {
				t.Error("the walk left the tree")
			}
			return errors.Join(err, f.Close())
		}}
		if err := Walk(t.Context(), root, o); err != nil {
			var f *fault.Error
			if !errors.As(err, &f) || f.Code != fault.ArtifactChanged {
				t.Fatal(err)
			}
		}
	}
	close(stop)
	wg.Wait()
}

func TestHashCancelled(t *testing.T) {
	cause := errors.New("enough")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(cause)
	for _, path := range []string{sampleTree(t), sampleTree(t) + "/a/z"} {
		if _, err := Hash(ctx, []Root{{File: open(t, path, unix.O_PATH)}}, nil); !errors.Is(err, cause) {
			t.Errorf("error %v, want the context's cause", err)
		}
	}
}

func TestOpenBeneath(t *testing.T) {
	dir := sampleTree(t)
	write(t, dir+"/../outside", "outside", 0o644)
	root := open(t, dir, unix.O_PATH)
	if err := os.Symlink("a", dir+"/through"); err != nil {
		t.Fatal(err)
	}
	for path, good := range map[string]bool{"a/z": true, "link": false, "pipe": false, "a": false, "../outside": false, "/etc/passwd": false, "through/z": false, "none": false} {
		f, err := OpenBeneath(root, []byte(path))
		if (err == nil) != good {
			t.Errorf("%s: error %v", path, err)
		}
		if err == nil {
			f.Close()
		}
	}
	if _, err := Hash(t.Context(), []Root{{File: open(t, dir+"/pipe", unix.O_PATH)}}, nil); err == nil {
		t.Error("a FIFO passed for a target")
	}
}

func TestEscape(t *testing.T) {
	if got, want := Escape([]byte("a b/%\xff\n~")), "a%20b/%25%FF%0A~"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}
