package volume

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
)

// openDir opens a directory as the root of a volume.
func openDir(t testing.TB, name string) *os.File {
	t.Helper()
	f, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func put(t testing.TB, name, content string) {
	t.Helper()
	must(t, os.MkdirAll(filepath.Dir(name), 0o700))
	must(t, os.WriteFile(name, []byte(content), 0o600))
}

// hostileTree is one of everything that a run may leave in its volume, and the reason for which each name must be
// refused; "" is a file that must be read.
func hostileTree(t *testing.T) (root string, refused map[string]Reason) {
	root = t.TempDir()
	outside := filepath.Join(t.TempDir(), "secret")
	put(t, outside, "outside")
	at := func(name string) string { return filepath.Join(root, name) }
	put(t, at("plain"), "plain")
	put(t, at("dir/inner"), "inner")
	put(t, at("hard1"), "linked")
	must(t, os.Link(at("hard1"), at("hard2")))
	for name, to := range map[string]string{
		"abslink": outside, "rellink": "plain", "dirlink": "dir", "loop": "loop", "dangling": "nowhere", "uplink": "../" + filepath.Base(root) + "/plain",
		"proclink": "/proc/self/fd/0", "rootlink": "/",
	} {
		must(t, os.Symlink(to, at(name)))
	}
	must(t, unix.Mkfifo(at("fifo"), 0o666))
	l, err := net.Listen("unix", at("socket"))
	must(t, err)
	t.Cleanup(func() { l.Close() })
	put(t, at("setuid"), "s")
	must(t, os.Chmod(at("setuid"), 0o755|fs.ModeSetuid))
	put(t, at("setgid"), "s")
	must(t, os.Chmod(at("setgid"), 0o755|fs.ModeSetgid))
	put(t, at("sparse"), "")
	must(t, os.Truncate(at("sparse"), 1<<40))
	refused = map[string]Reason{
		"plain": "", "dir/inner": "",
		"hard1": ReasonLinks, "hard2": ReasonLinks,
		"abslink": ReasonKind, "rellink": ReasonKind, "dirlink": ReasonKind, "dirlink/inner": ReasonKind, "loop": ReasonKind,
		"dangling": ReasonKind, "uplink": ReasonKind, "proclink": ReasonKind, "rootlink": ReasonKind, "rootlink/etc/passwd": ReasonKind,
		"fifo": ReasonKind, "socket": ReasonKind, "dir": ReasonKind,
		"setuid": ReasonMode, "setgid": ReasonMode, "sparse": ReasonSize,
		"nowhere": ReasonMissing, "plain/below": ReasonMissing,
		"../" + filepath.Base(root) + "/plain": ReasonName, "/etc/passwd": ReasonName, "./plain": ReasonName, "": ReasonName,
		"dir//inner": ReasonName, "dir/": ReasonName, "dir/..": ReasonName, "a\nb": ReasonName, "caf\u00e9": ReasonName,
		"\xff": ReasonName, "nul\x00": ReasonName, "sp ace": ReasonName, "-": ReasonMissing,
		strings.Repeat("n", 256): ReasonName, ".": ReasonName,
	}
	if os.Geteuid() == 0 {
		must(t, unix.Mknod(at("null"), unix.S_IFCHR|0o666, int(unix.Mkdev(1, 3))))
		must(t, unix.Mknod(at("block"), unix.S_IFBLK|0o666, int(unix.Mkdev(7, 0))))
		must(t, os.Mkdir(at("mount"), 0o700))
		must(t, unix.Mount("tmpfs", at("mount"), "tmpfs", 0, "size=4096"))
		t.Cleanup(func() { unix.Unmount(at("mount"), unix.MNT_DETACH) })
		put(t, at("mount/other"), "other")
		refused["null"], refused["block"], refused["mount/other"] = ReasonKind, ReasonKind, ReasonDevice
		// A file of a mode that its owner cannot read is read by a core that is root, and only by it.
		put(t, at("modeless"), "m")
		must(t, os.Chmod(at("modeless"), 0))
		refused["modeless"] = ""
	}
	return root, refused
}

func TestDirOpen(t *testing.T) {
	root, refused := hostileTree(t)
	src := Dir(openDir(t, root))
	for name, want := range refused {
		r, err := src.Open(t.Context(), name, 100)
		var refusal *Refusal
		switch {
		case err == nil && want != "":
			t.Errorf("%q was opened, want refusal for %s", name, want)
		case err != nil && !errors.As(err, &refusal):
			t.Errorf("%q: %v is no refusal", name, err)
		case err != nil && refusal.Reason != want:
			t.Errorf("%q: refused for %s (%v), want %q", name, refusal.Reason, err, want)
		}
		if err != nil {
			continue
		}
		got, err := io.ReadAll(r)
		must(t, err)
		r.Close()
		if wrote, err := os.ReadFile(filepath.Join(root, name)); err != nil || string(got) != string(wrote) {
			t.Errorf("%q: read %q, %v, want %q", name, got, err, wrote)
		}
	}
}

// TestDirListKinds compares the listing with what find(1) calls these entries; the kinds are by construction.
func TestDirListKinds(t *testing.T) {
	root, _ := hostileTree(t)
	entries, err := Dir(openDir(t, root)).List(t.Context(), ListLimits{Entries: 1000, Depth: 9})
	got := map[string]Kind{}
	for _, e := range entries {
		got[e.Path] = e.Kind
	}
	want := map[string]Kind{
		"plain": KindFile, "dir": KindDirectory, "dir/inner": KindFile, "hard1": KindFile, "hard2": KindFile,
		"abslink": KindSymlink, "rellink": KindSymlink, "dirlink": KindSymlink, "loop": KindSymlink, "dangling": KindSymlink,
		"uplink": KindSymlink, "proclink": KindSymlink, "rootlink": KindSymlink, "fifo": KindFIFO, "socket": KindSocket,
		"setuid": KindFile, "setgid": KindFile, "sparse": KindFile,
	}
	if os.Geteuid() == 0 {
		want["null"], want["block"], want["mount"], want["modeless"] = KindDevice, KindDevice, KindDirectory, KindFile
		if !errors.Is(err, ErrListLimit) {
			t.Errorf("a mount inside cannot be entered, but the listing says %v", err)
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("kinds (-want +got):\n%s", diff)
	}
	for _, e := range entries {
		if e.Path == "sparse" && e.Size != 1<<40 || e.Path == "hard1" && e.Links != 2 {
			t.Errorf("%+v", e)
		}
	}
}

func TestDirListLimits(t *testing.T) {
	wide := t.TempDir()
	for i := range 1000 {
		must(t, os.WriteFile(filepath.Join(wide, fmt.Sprint(i)), nil, 0o600))
	}
	odd := t.TempDir()
	for _, name := range []string{"new\nline", "\xff\xfe", "-rf", " ", "\x1b[2J"} {
		must(t, os.WriteFile(filepath.Join(odd, name), nil, 0o600))
	}
	for _, tt := range []struct {
		name    string
		root    string
		limits  ListLimits
		entries int
		err     error
	}{
		{"all of a wide directory", wide, ListLimits{1000, 1}, 1000, nil},
		{"one entry too many", wide, ListLimits{999, 1}, 999, ErrListLimit},
		{"nothing allowed", wide, ListLimits{0, 1}, 0, ErrListLimit},
		{"deep, by a limit on depth", deepTree(t, 200), ListLimits{1000, 32}, 32, ErrListLimit},
		{"deep, to its end", deepTree(t, 31), ListLimits{1000, 32}, 31, nil},
		{"deeper than any path", deepTree(t, 2100), ListLimits{10000, 10000}, 2049, ErrListLimit}, // 2048 names and 2047 slashes are a path of 4095 bytes
		{"odd names", odd, ListLimits{1000, 1}, 5, nil},
	} {
		entries, err := Dir(openDir(t, tt.root)).List(t.Context(), tt.limits)
		if len(entries) != tt.entries || !errors.Is(err, tt.err) {
			t.Errorf("%s: %d entries, %v; want %d, %v", tt.name, len(entries), err, tt.entries, tt.err)
		}
	}
}

// deepTree makes directories within each other, through descriptors because no path could name the innermost.
func deepTree(t *testing.T, depth int) string {
	t.Helper()
	root := t.TempDir()
	fd, err := unix.Open(root, unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	must(t, err)
	for range depth {
		must(t, unix.Mkdirat(fd, "d", 0o700))
		next, err := unix.Openat(fd, "d", unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		must(t, err)
		unix.Close(fd)
		fd = next
	}
	unix.Close(fd)
	return root
}

func TestDirFree(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("mounting a tmpfs needs root")
	}
	root := t.TempDir()
	must(t, unix.Mount("tmpfs", root, "tmpfs", 0, "size=1m,nr_inodes=10"))
	defer unix.Unmount(root, unix.MNT_DETACH)
	src := Dir(openDir(t, root))
	before, err := src.Free(t.Context())
	must(t, err)
	put(t, filepath.Join(root, "f"), strings.Repeat("x", 8192))
	after, err := src.Free(t.Context())
	must(t, err)
	if diff := cmp.Diff(&Free{Bytes: before.Bytes - 8192, Inodes: before.Inodes - 1}, after); diff != "" || before.Bytes != 1<<20 {
		t.Errorf("free before %+v, after (-want +got):\n%s", before, diff)
	}
}

// TestDirRace opens a name while another goroutine makes it in turn a file, a second name of a file, a link to a
// secret outside and a pipe. Every open must end, and what it yields must be the file. It goes on until the name was
// met in each of its states, so that the race was one.
func TestDirRace(t *testing.T) {
	root := t.TempDir()
	secret := filepath.Join(t.TempDir(), "secret")
	put(t, secret, "secret")
	name, spare := filepath.Join(root, "f"), filepath.Join(root, "spare")
	put(t, name, "honest")
	var stop atomic.Bool
	done := make(chan struct{})
	go func() {
		defer close(done)
		for !stop.Load() {
			os.Rename(name, spare)
			os.Link(spare, name)
			os.Remove(name)
			os.Symlink(secret, name)
			os.Remove(name)
			unix.Mkfifo(name, 0o600)
			os.Remove(name)
			os.Rename(spare, name)
		}
	}()
	src := Dir(openDir(t, root))
	seen := map[Reason]int{}
	met := func() bool {
		return seen["opened"] > 0 && seen[ReasonKind] > 0 && seen[ReasonLinks] > 0 && seen[ReasonMissing] > 0
	}
	for i := 0; i < 50_000 || !met(); i++ {
		r, err := src.Open(t.Context(), "f", 100)
		if err != nil {
			var refusal *Refusal
			if !errors.As(err, &refusal) {
				t.Errorf("%v is no refusal", err)
			} else {
				seen[refusal.Reason]++
			}
			continue
		}
		got, err := io.ReadAll(r)
		r.Close()
		if err != nil || string(got) != "honest" {
			t.Errorf("read %q, %v", got, err)
		}
		seen["opened"]++
	}
	stop.Store(true)
	<-done
}

func TestDirCancelled(t *testing.T) {
	root := t.TempDir()
	put(t, filepath.Join(root, "f"), "x")
	cause := errors.New("enough")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(cause)
	src := Dir(openDir(t, root))
	_, err := src.Open(ctx, "f", 10)
	if !errors.Is(err, cause) || !errors.Is(err, context.Canceled) {
		t.Errorf("open: %v", err)
	}
	if _, err := src.List(ctx, ListLimits{10, 1}); !errors.Is(err, cause) {
		t.Errorf("list: %v", err)
	}
}
