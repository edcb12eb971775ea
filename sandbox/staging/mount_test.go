package staging_test

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"rea/evidence/fault"
	"rea/sandbox/staging"
)

func TestBindIsNotFooledByASwap(t *testing.T) {
	needMounts(t)
	for _, kind := range []string{"file", "directory"} {
		t.Run(kind, func(t *testing.T) {
			dir := t.TempDir()
			path, inner, secret := filepath.Join(dir, "target"), "", "/etc/passwd"
			if kind == "directory" {
				mkdir(t, path, 0o755)
				inner, secret = "/passwd", "/etc"
			}
			write(t, path+inner, "the target", 0o644)
			target := open(t, path)
			must(t, os.Rename(path, path+".old"))
			must(t, os.Symlink(secret, path))
			dst := filepath.Join(dir, "staged")
			bind(t, target, dst, staging.BindOptions{})
			if got := content(t, dst+inner); got != "the target" {
				t.Errorf("the mount shows %q", got)
			}
		})
	}
}

// TestOpenLosesTheRace swaps a directory of the path for a link without end while targets are opened: whatever is
// opened is the target, never what the link leads to.
func TestOpenLosesTheRace(t *testing.T) {
	dir := t.TempDir()
	mkdir(t, filepath.Join(dir, "right"), 0o755)
	mkdir(t, filepath.Join(dir, "wrong"), 0o755)
	write(t, filepath.Join(dir, "right", "file"), "right", 0o644)
	write(t, filepath.Join(dir, "wrong", "file"), "wrong", 0o644)
	must(t, os.Rename(filepath.Join(dir, "right"), filepath.Join(dir, "path")))
	must(t, os.Symlink("wrong", filepath.Join(dir, "link")))

	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		for {
			select {
			case <-stop:
				return
			default:
				unix.Renameat2(unix.AT_FDCWD, filepath.Join(dir, "path"), unix.AT_FDCWD, filepath.Join(dir, "link"), unix.RENAME_EXCHANGE)
			}
		}
	}()
	opened := 0
	for range 5000 {
		target, err := staging.OpenTarget(filepath.Join(dir, "path", "file"), staging.TargetOptions{})
		if err != nil {
			continue // the swap was seen, or fell between two steps of the resolution
		}
		opened++
		f, err := target.Reopen()
		must(t, err)
		var b [5]byte
		f.Read(b[:])
		f.Close()
		target.Close()
		// Through the link the canonical path is that of "wrong": path and content belong together.
		if inWrong := strings.Contains(target.Path, "/wrong/"); inWrong != (string(b[:]) == "wrong") {
			t.Fatalf("%s holds %q", target.Path, b)
		}
	}
	close(stop)
	<-stopped
	if opened == 0 {
		t.Error("nothing was ever opened: the test proves nothing")
	}
}

func TestBindIsReadOnlyAllTheWayDown(t *testing.T) {
	needMounts(t)
	dir := t.TempDir()
	source := mkdir(t, filepath.Join(dir, "source"), 0o755)
	nested := mkdir(t, filepath.Join(source, "nested"), 0o755)
	mount(t, "test", nested, "tmpfs", 0)
	write(t, filepath.Join(nested, "file"), "here", 0o666) // the nested mount takes writes
	dst := filepath.Join(dir, "staged")
	bind(t, open(t, source), dst, staging.BindOptions{})

	if got := content(t, filepath.Join(dst, "nested", "file")); got != "here" {
		t.Errorf("the nested mount shows %q", got)
	}
	for _, path := range []string{"new", "nested/new", "nested/file"} {
		if err := os.WriteFile(filepath.Join(dst, path), nil, 0o600); !errors.Is(err, unix.EROFS) {
			t.Errorf("writing %s: %v, want EROFS", path, err)
		}
	}
	const all = unix.ST_RDONLY | unix.ST_NOSUID | unix.ST_NODEV | unix.ST_NOEXEC
	for _, path := range []string{"", "nested"} {
		var sf unix.Statfs_t
		must(t, unix.Statfs(filepath.Join(dst, path), &sf))
		if sf.Flags&all != all {
			t.Errorf("%q has mount flags %#x, want %#x among them", path, sf.Flags, all)
		}
	}
}

func TestBindIsPrivate(t *testing.T) {
	needMounts(t)
	dir := t.TempDir()
	source := mkdir(t, filepath.Join(dir, "source"), 0o755)
	mount(t, source, source, "", unix.MS_BIND)
	must(t, unix.Mount("", source, "", unix.MS_SHARED, ""))
	mkdir(t, filepath.Join(source, "later"), 0o755)
	peer := mkdir(t, filepath.Join(dir, "peer"), 0o755)
	mount(t, source, peer, "", unix.MS_BIND)
	dst := filepath.Join(dir, "staged")
	bind(t, open(t, source), dst, staging.BindOptions{})
	mount(t, "test", filepath.Join(source, "later"), "tmpfs", 0)

	for path, want := range map[string]bool{peer: true, dst: false} { // an ordinary bind does get the later mount
		got, err := staging.Mounted(filepath.Join(path, "later"))
		must(t, err)
		if got != want {
			t.Errorf("the later mount is in %s: %v, want %v", filepath.Base(path), got, want)
		}
	}
	must(t, unix.Unmount(filepath.Join(source, "later"), unix.MNT_DETACH))
}

func TestBindNoexec(t *testing.T) {
	needMounts(t)
	program, err := os.ReadFile("/bin/true")
	must(t, err)
	dir := t.TempDir()
	write(t, filepath.Join(dir, "true"), string(program), 0o755)
	target := open(t, filepath.Join(dir, "true"))
	bind(t, target, filepath.Join(dir, "plain"), staging.BindOptions{})
	bind(t, target, filepath.Join(dir, "exec"), staging.BindOptions{Exec: true})
	if err := exec.Command(filepath.Join(dir, "plain")).Run(); !errors.Is(err, unix.EACCES) {
		t.Errorf("running it: %v, want EACCES", err)
	}
	must(t, exec.Command(filepath.Join(dir, "exec")).Run())
}

func TestBindOddNames(t *testing.T) {
	needMounts(t)
	for _, name := range []string{"colon:ro", "comma,rw", "line\nbreak", "byte\xff", " ", `back\slash`, "-dash"} {
		dir := t.TempDir()
		write(t, filepath.Join(dir, name), name, 0o644)
		dst := filepath.Join(dir, "staged")
		bind(t, open(t, filepath.Join(dir, name)), dst, staging.BindOptions{})
		if got := content(t, dst); got != name {
			t.Errorf("%q shows %q", name, got)
		}
	}
}

// readAs reads a file as another user with a program that is not ours.
func readAs(uid uint32, path string) (string, error) {
	cmd := exec.Command("/bin/cat", path)
	cmd.Env = []string{}
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: uid}}
	var out bytes.Buffer
	cmd.Stdout = &out
	err := cmd.Run()
	return out.String(), err
}

func TestBindMapsThePrivateOwner(t *testing.T) {
	needMounts(t)
	const owner, stranger, run = 1234, 1235, 10001
	for _, owner := range []uint32{owner, 0} {
		dir := publicDir(t)
		source := mkdir(t, filepath.Join(dir, "source"), 0o700)
		write(t, filepath.Join(source, "private"), "private", 0o600)
		write(t, filepath.Join(source, "public"), "public", 0o644)
		write(t, filepath.Join(source, "foreign"), "foreign", 0o600)
		for path, uid := range map[string]uint32{"": owner, "private": owner, "public": stranger, "foreign": stranger} {
			must(t, os.Chown(filepath.Join(source, path), int(uid), int(uid)))
		}
		target := open(t, source)
		if !target.Private {
			t.Error("a 0700 directory is not private")
		}
		plain, mapped := filepath.Join(dir, "plain"), filepath.Join(dir, "mapped")
		bind(t, target, plain, staging.BindOptions{})
		unproved := bind(t, target, mapped, staging.BindOptions{Map: true, MapUID: target.UID, MapGID: target.GID, RunUID: run, RunGID: run})
		if len(unproved) != 0 {
			t.Errorf("unproved: %q", unproved)
		}
		for _, test := range []struct {
			path     string
			readable bool
		}{
			{plain + "/private", false}, // what the mapping is for
			{mapped + "/private", true},
			{mapped + "/public", true},
			{mapped + "/foreign", false}, // only one owner is mapped
		} {
			got, err := readAs(run, test.path)
			if test.readable && got != filepath.Base(test.path) || !test.readable && err == nil {
				t.Errorf("owner %d: %s reads %q, %v", owner, test.path, got, err)
			}
		}
		if _, err := readAs(stranger, mapped+"/private"); err == nil {
			t.Error("a third user can read the private file")
		}
		if err := os.WriteFile(mapped+"/private", nil, 0o600); !errors.Is(err, unix.EROFS) {
			t.Errorf("writing: %v, want EROFS", err)
		}
		if fi, err := os.Stat(filepath.Join(source, "private")); err != nil || fi.Sys().(*syscall.Stat_t).Uid != owner {
			t.Error("the source's own owner changed")
		}
	}
}

func TestBindMapNamesNestedMounts(t *testing.T) {
	needMounts(t)
	dir := filepath.Join(t.TempDir(), "with space")
	mkdir(t, dir, 0o755)
	source := mkdir(t, filepath.Join(dir, "source"), 0o700)
	nested := mkdir(t, filepath.Join(source, "nested"), 0o755)
	mount(t, "test", nested, "tmpfs", 0)
	unproved := bind(t, open(t, source), filepath.Join(dir, "staged"), staging.BindOptions{Map: true, RunUID: 10001, RunGID: 10001})
	if len(unproved) != 1 || !strings.HasPrefix(unproved[0], "1 ") {
		t.Errorf("unproved: %q", unproved)
	}
}

// TestBindWithoutMapping uses a file system that the kernel never maps.
func TestBindWithoutMapping(t *testing.T) {
	needMounts(t)
	dir := t.TempDir()
	dst := filepath.Join(dir, "staged")
	source, err := os.Open("/proc/version")
	must(t, err)
	defer source.Close()
	_, err = staging.Bind(source, dst, staging.BindOptions{Map: true, MapUID: 0, RunUID: 10001, RunGID: 10001})
	wantCode(t, err, fault.AccessDenied)
	if !errors.Is(err, staging.ErrNoIDMap) {
		t.Errorf("%v is not ErrNoIDMap", err)
	}
	if _, err := os.Lstat(dst); !errors.Is(err, os.ErrNotExist) {
		t.Error("a failed bind left its mount point")
	}
}

func TestBindLeavesNothingBehind(t *testing.T) {
	needMounts(t)
	dir := t.TempDir()
	write(t, filepath.Join(dir, "file"), "x", 0o644)
	target := open(t, filepath.Join(dir, "file"))
	write(t, filepath.Join(dir, "taken"), "mine", 0o644)
	for _, dst := range []string{filepath.Join(dir, "taken"), filepath.Join(dir, "no", "parent")} {
		if _, err := staging.Bind(target.File, dst, staging.BindOptions{}); err == nil {
			t.Errorf("bound at %s", dst)
		}
		if mounted, err := staging.Mounted(dst); err != nil || mounted {
			t.Errorf("%s: mounted %v, %v", dst, mounted, err)
		}
	}
	if got := content(t, filepath.Join(dir, "taken")); got != "mine" {
		t.Errorf("what was there is now %q", got)
	}
}

func TestTmpfs(t *testing.T) {
	needMounts(t)
	dst := filepath.Join(t.TempDir(), "volume")
	must(t, staging.Tmpfs(dst, staging.TmpfsOptions{Bytes: 1 << 20, Inodes: 10, UID: 10001, GID: 10002, Mode: 0o700}))
	defer func() { must(t, staging.Unmount(dst)) }()

	var st unix.Stat_t
	must(t, unix.Stat(dst, &st))
	if st.Uid != 10001 || st.Gid != 10002 || st.Mode != unix.S_IFDIR|0o700 {
		t.Errorf("owner %d:%d, mode %o", st.Uid, st.Gid, st.Mode)
	}
	var sf unix.Statfs_t
	must(t, unix.Statfs(dst, &sf))
	const flags = unix.ST_NOSUID | unix.ST_NODEV | unix.ST_NOEXEC
	if bytes := int64(sf.Blocks) * sf.Bsize; bytes != 1<<20 || sf.Files != 10 || sf.Flags&flags != flags || sf.Flags&unix.ST_RDONLY != 0 {
		t.Errorf("bytes %d, inodes %d, flags %#x", bytes, sf.Files, sf.Flags)
	}
	if err := os.WriteFile(filepath.Join(dst, "big"), make([]byte, 1<<20+1), 0o600); !errors.Is(err, unix.ENOSPC) {
		t.Errorf("writing more than the quota: %v, want ENOSPC", err)
	}
	must(t, os.Remove(filepath.Join(dst, "big")))
	made := 0
	for ; made < 20; made++ {
		if err := os.WriteFile(filepath.Join(dst, string(rune('a'+made))), nil, 0o600); err != nil {
			break
		}
	}
	if made != 9 { // ten inodes, one of them the root
		t.Errorf("%d files fit, want 9", made)
	}

	must(t, unix.Unmount(dst, unix.MNT_DETACH))
	must(t, unix.Stat(dst, &st))
	if st.Mode != unix.S_IFDIR || st.Uid != uint32(os.Geteuid()) {
		t.Errorf("the directory below has mode %o and owner %d", st.Mode, st.Uid)
	}
}

func TestTmpfsWithoutQuota(t *testing.T) {
	for _, o := range []staging.TmpfsOptions{{}, {Bytes: 1 << 20}, {Inodes: 10}, {Bytes: -1, Inodes: 10}} {
		dst := filepath.Join(t.TempDir(), "volume")
		if err := staging.Tmpfs(dst, o); err == nil {
			t.Errorf("%+v was mounted", o)
		}
	}
}

func TestUnmountIsIdempotentAndTakesNoData(t *testing.T) {
	needMounts(t)
	dir := t.TempDir()
	dst := filepath.Join(dir, "volume")
	o := staging.TmpfsOptions{Bytes: 1 << 20, Inodes: 10, Mode: 0o700}
	must(t, staging.Tmpfs(dst, o))
	if mounted, err := staging.Mounted(dst); err != nil || !mounted {
		t.Errorf("mounted: %v, %v", mounted, err)
	}
	busy, err := os.Create(filepath.Join(dst, "open"))
	must(t, err)
	defer busy.Close()
	for range 2 {
		must(t, staging.Unmount(dst))
		if mounted, err := staging.Mounted(dst); err != nil || mounted {
			t.Errorf("mounted: %v, %v", mounted, err)
		}
	}
	if _, err := os.Lstat(dst); !errors.Is(err, os.ErrNotExist) {
		t.Error("the mount point is still there")
	}

	full := mkdir(t, filepath.Join(dir, "full"), 0o755)
	write(t, filepath.Join(full, "file"), "keep", 0o644)
	if err := staging.Unmount(full); err == nil {
		t.Error("a directory with content was removed")
	}
	if got := content(t, filepath.Join(full, "file")); got != "keep" {
		t.Errorf("its file is %q", got)
	}
}

func BenchmarkBind(b *testing.B) {
	needMounts(b)
	dir := b.TempDir()
	write(b, filepath.Join(dir, "file"), "x", 0o600)
	target := open(b, filepath.Join(dir, "file"))
	dst := filepath.Join(dir, "staged")
	for name, o := range map[string]staging.BindOptions{"plain": {}, "mapped": {Map: true, RunUID: 10001, RunGID: 10001}} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				_, err := staging.Bind(target.File, dst, o)
				must(b, err)
				must(b, staging.Unmount(dst))
			}
		})
	}
}

func BenchmarkTmpfs(b *testing.B) {
	needMounts(b)
	dst := filepath.Join(b.TempDir(), "volume")
	for b.Loop() {
		must(b, staging.Tmpfs(dst, staging.TmpfsOptions{Bytes: 1 << 20, Inodes: 10, Mode: 0o700}))
		must(b, staging.Unmount(dst))
	}
}
