package staging_test

import (
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"rea/evidence/fault"
	"rea/sandbox/staging"
)

func TestOpenTargetRefusesWhatIsNoTarget(t *testing.T) {
	dir := t.TempDir()
	state := mkdir(t, filepath.Join(dir, "state"), 0o700)
	mkdir(t, filepath.Join(state, "runs"), 0o700)
	write(t, filepath.Join(state, "runs", "file"), "x", 0o644)
	must(t, unix.Mkfifo(filepath.Join(dir, "fifo"), 0o666))
	listener, err := net.Listen("unix", filepath.Join(dir, "socket"))
	must(t, err)
	defer listener.Close()
	must(t, os.Symlink("missing", filepath.Join(dir, "dangling")))
	must(t, os.Symlink("loop", filepath.Join(dir, "loop")))
	must(t, os.Symlink(state, filepath.Join(dir, "to-state")))
	write(t, filepath.Join(dir, "file"), "x", 0o644)

	for name, path := range map[string]string{
		"missing":                  filepath.Join(dir, "missing"),
		"below a file":             filepath.Join(dir, "file", "x"),
		"fifo":                     filepath.Join(dir, "fifo"),
		"socket":                   filepath.Join(dir, "socket"),
		"device":                   "/dev/null",
		"dangling link":            filepath.Join(dir, "dangling"),
		"link to itself":           filepath.Join(dir, "loop"),
		"the root":                 "/",
		"the root, oddly":          "//./tmp/..",
		"proc":                     "/proc",
		"a process":                "/proc/self/status",
		"sys":                      "/sys/kernel",
		"run":                      "/run",
		"var run":                  "/var/run",
		"the state directory":      state,
		"above it":                 dir,
		"below it":                 filepath.Join(state, "runs", "file"),
		"a link to it":             filepath.Join(dir, "to-state"),
		"below a link to it":       filepath.Join(dir, "to-state", "runs"),
		"a NUL in the name":        "/tmp/\x00",
		"a name that is too long":  "/tmp/" + strings.Repeat("a", 300),
		"a path that is too long":  "/tmp/" + strings.Repeat("a/", 5000),
		"relative, and not there":  "not-there",
		"empty means this package": "", // filepath.Abs gives the working directory, refused below
	} {
		t.Run(name, func(t *testing.T) {
			refuse := []string{state}
			if path == "" {
				wd, err := os.Getwd()
				must(t, err)
				refuse = append(refuse, wd)
			}
			target, err := staging.OpenTarget(path, staging.TargetOptions{Refuse: refuse})
			if err == nil {
				target.Close()
				t.Fatal("it was opened")
			}
			e := wantCode(t, err, fault.TargetUnavailable)
			if e.Details["path"] == nil || e.Details["reason"] == nil {
				t.Errorf("details are %v", e.Details)
			}
		})
	}
	// The refusals above are the work of the option: the same file opens without it.
	open(t, filepath.Join(state, "runs", "file"))
}

func TestOpenTargetSeesThroughMounts(t *testing.T) {
	needMounts(t)
	dir := t.TempDir()
	state := mkdir(t, filepath.Join(dir, "state"), 0o700)
	write(t, filepath.Join(state, "file"), "x", 0o644)
	alias := mkdir(t, filepath.Join(dir, "alias"), 0o755)
	mount(t, state, alias, "", unix.MS_BIND)
	kernel := mkdir(t, filepath.Join(dir, "kernel"), 0o755)
	mount(t, "proc", kernel, "proc", 0)
	root := mkdir(t, filepath.Join(dir, "root"), 0o755)
	mount(t, "/", root, "", unix.MS_BIND)

	for _, path := range []string{alias, filepath.Join(alias, "file"), filepath.Join(kernel, "version"), root} {
		_, err := staging.OpenTarget(path, staging.TargetOptions{Refuse: []string{state}})
		wantCode(t, err, fault.TargetUnavailable)
	}
}

func TestOpenTargetDescribes(t *testing.T) {
	dir := t.TempDir()
	for _, test := range []struct {
		name    string
		mode    os.FileMode
		dir     bool
		private bool
	}{
		{"open", 0o644, false, false},
		{"private", 0o600, false, true},
		{"group", 0o640, false, true},
		{"open-dir", 0o755, true, false},
		{"private-dir", 0o700, true, true},
		{"unlisted-dir", 0o711, true, true},
		{"colon:comma,line\nbreak", 0o644, false, false},
		{"byte\xff", 0o644, false, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			path := filepath.Join(dir, test.name)
			if test.dir {
				mkdir(t, path, test.mode)
			} else {
				write(t, path, "x", test.mode)
			}
			link := filepath.Join(dir, "link-to-"+test.name)
			must(t, os.Symlink(test.name, link))
			target := open(t, link)
			got := []any{target.Path, target.Dir, target.Private, target.UID, len(target.Limitations)}
			want := []any{path, test.dir, test.private, uint32(os.Geteuid()), 0}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestOpenTargetAsSomeoneElse(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root to become another user")
	}
	dir := publicDir(t)
	write(t, filepath.Join(dir, "private"), "x", 0o600)
	write(t, filepath.Join(dir, "public"), "x", 0o644)
	inner := mkdir(t, filepath.Join(dir, "closed"), 0o700)
	write(t, filepath.Join(inner, "public"), "x", 0o644)

	for path, want := range map[string]string{
		"private":       "access_denied EACCES",
		"closed/public": "access_denied EACCES",
		"public":        "opened",
	} {
		cmd := exec.Command("/proc/self/exe")
		cmd.Env = []string{helperEnv + "=" + filepath.Join(dir, path)}
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 10001, Gid: 10001}}
		got, err := cmd.Output()
		must(t, err)
		if string(got) != want {
			t.Errorf("%s: %s, want %s", path, got, want)
		}
	}
}

func TestReopenIsTheSameInode(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	write(t, path, "checked", 0o644)
	target := open(t, path)
	must(t, os.Rename(path, path+".old"))
	write(t, path, "swapped", 0o644)
	f, err := target.Reopen()
	must(t, err)
	defer f.Close()
	b := make([]byte, 16)
	n, _ := f.Read(b)
	if got := string(b[:n]); got != "checked" {
		t.Errorf("read %q", got)
	}
}

func TestCompanion(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "app.asar"), "x", 0o644)
	mkdir(t, filepath.Join(dir, "app.asar.unpacked"), 0o755)
	write(t, filepath.Join(dir, "alone.asar"), "x", 0o644)
	write(t, filepath.Join(dir, "linked.asar"), "x", 0o644)
	must(t, os.Symlink("/etc", filepath.Join(dir, "linked.asar.unpacked")))
	write(t, filepath.Join(dir, "other.zip"), "x", 0o644)
	mkdir(t, filepath.Join(dir, "other.zip.unpacked"), 0o755)

	for name, want := range map[string]string{
		"app.asar":          "app.asar.unpacked",
		"alone.asar":        "",
		"linked.asar":       "",
		"other.zip":         "",
		"app.asar.unpacked": "",
	} {
		companion, err := open(t, filepath.Join(dir, name)).Companion(staging.TargetOptions{})
		must(t, err)
		got := ""
		if companion != nil {
			got = filepath.Base(companion.Path)
			companion.Close()
		}
		if got != want {
			t.Errorf("%s: companion %q, want %q", name, got, want)
		}
	}
}
