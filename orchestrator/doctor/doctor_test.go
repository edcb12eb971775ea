package doctor

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"rea/evidence/fault"
	"rea/orchestrator"
	"rea/orchestrator/report"
	"rea/sandbox"
	"rea/sandbox/journal"
)

// The order is that of the projects' own tags: candidates before their release, and a distribution's additions do not
// count.
func TestCompareVersions(t *testing.T) {
	ascending := []string{"1.0.0-rc7", "1.0.0~rc93+ds1-5", "1.0.0-rc95", "1.0.0", "1.0.3+ds1-1", "1.1.5+ds1-1+deb12u1", "v1.1.12", "1.2.8", "1.4.0-rc.3", "1.4.0", "6.18.44-custom", "5:20.10.24~3-0~debian"}
	for i := range ascending {
		for j := range ascending {
			got := compareVersions(mustVersion(ascending[i]), mustVersion(ascending[j]))
			want := 0
			if i < j {
				want = -1
			} else if i > j {
				want = 1
			}
			if got != want {
				t.Errorf("%s against %s: %d, want %d", ascending[i], ascending[j], got, want)
			}
		}
	}
	for _, text := range []string{"", "unknown", "sometime", "v"} {
		if n, ok := parseVersion(text); ok {
			t.Errorf("%q is version %v", text, n)
		}
	}
}

// Branches and fixes as the advisories of these projects list them.
func TestCarries(t *testing.T) {
	for _, c := range []struct {
		version string
		fixed   []string
		want    bool
	}{
		{"1.1.11", []string{"1.1.12"}, false}, {"1.1.12", []string{"1.1.12"}, true}, {"1.2.0", []string{"1.1.12"}, true},
		{"1.2.7", []string{"1.2.8", "1.3.3", "1.4.0-rc.3"}, false}, {"1.2.8", []string{"1.2.8", "1.3.3", "1.4.0-rc.3"}, true},
		{"1.3.2", []string{"1.2.8", "1.3.3", "1.4.0-rc.3"}, false}, {"1.3.3", []string{"1.2.8", "1.3.3", "1.4.0-rc.3"}, true},
		{"1.4.0-rc.2", []string{"1.2.8", "1.3.3", "1.4.0-rc.3"}, false}, {"1.4.0", []string{"1.2.8", "1.3.3", "1.4.0-rc.3"}, true},
		{"1.5.0", []string{"1.2.8", "1.3.3", "1.4.0-rc.3"}, true}, {"1.1.15", []string{"1.2.8", "1.3.3", "1.4.0-rc.3"}, false},
		{"24.0.9", []string{"23.0.15", "25.0.6", "26.1.5", "27.1.1"}, false}, {"26.0.2", []string{"23.0.15", "25.0.6", "26.1.5", "27.1.1"}, false},
		{"28.0.0", []string{"23.0.15", "25.0.6", "26.1.5", "27.1.1"}, true},
	} {
		if got := carries(mustVersion(c.version), c.fixed); got != c.want {
			t.Errorf("%s with fixes in %v: %v, want %v", c.version, c.fixed, got, c.want)
		}
	}
}

// Every entry of the table can be judged, and says what a reader needs.
func TestTable(t *testing.T) {
	seen := map[string]bool{}
	for _, w := range weaknesses {
		if seen[w.id] || !strings.HasPrefix(w.id, "CVE-") || w.summary == "" || w.exposure == "" || len(w.fixed) == 0 {
			t.Errorf("%+v is incomplete or there twice", w)
		}
		seen[w.id] = true
		for _, v := range w.fixed {
			mustVersion(v)
		}
		if w.since != "" {
			mustVersion(w.since)
		}
		for _, r := range w.revisions {
			mustVersion(r.version)
		}
	}
}

// The distribution's own changelogs say which revision carries the fix; an older version number alone does not decide.
func TestJudge(t *testing.T) {
	if _, err := exec.LookPath("dpkg"); err != nil {
		t.Skip("no dpkg to compare versions with")
	}
	leak := find21626(t)
	debian := func(version string) *origin {
		return &origin{distribution: "debian", release: "12", pkg: "runc", version: version, dpkg: true}
	}
	for _, c := range []struct {
		name string
		have installed
		want Verdict
	}{
		{"built by the project, old", installed{runc, "1.1.5", nil}, Affected},
		{"built by the project, new", installed{runc, "1.1.12", nil}, Fixed},
		{"before it came in", installed{runc, "1.0.0-rc92", nil}, Fixed},
		{"patched by the distribution", installed{runc, "1.1.5+ds1", debian("1.1.5+ds1-1+deb12u1")}, Fixed},
		{"patched and rebuilt", installed{runc, "1.1.5+ds1", debian("1.1.5+ds1-1+deb12u1+b6")}, Fixed},
		{"the distribution's first", installed{runc, "1.1.5+ds1", debian("1.1.5+ds1-1")}, Affected},
		{"a distribution that is not in the table", installed{runc, "1.1.5", &origin{distribution: "other", release: "1", pkg: "runc", version: "1.1.5-7"}}, Undecided},
		{"new enough whatever the package", installed{runc, "1.3.3", &origin{distribution: "other", release: "1", pkg: "runc", version: "1.3.3-1"}}, Fixed},
		{"no version at all", installed{runc, "unknown", nil}, Undecided},
	} {
		if got := leak.judge(context.Background(), c.have); got.Verdict != c.want || got.Basis == "" {
			t.Errorf("%s: %s (%s), want %s", c.name, got.Verdict, got.Basis, c.want)
		}
	}
}

func find21626(t *testing.T) weakness {
	t.Helper()
	for _, w := range weaknesses {
		if w.id == "CVE-2024-21626" {
			return w
		}
	}
	t.Fatal("the table lacks CVE-2024-21626")
	return weakness{}
}

func TestOriginOfOwnProgram(t *testing.T) {
	if _, err := exec.LookPath("dpkg-query"); err != nil {
		t.Skip("no dpkg")
	}
	// The package manager's own program: its version is what it says itself.
	version := programVersion(context.Background(), "dpkg")
	o := originOf(context.Background(), "dpkg", version)
	if o == nil || o.pkg != "dpkg" || !strings.HasPrefix(o.version, strings.TrimSuffix(version, ".")) {
		t.Errorf("dpkg %s comes from %+v", version, o)
	}
	if o := originOf(context.Background(), "dpkg", "0.0.1"); o != nil {
		t.Errorf("a program of another version comes from %+v", o)
	}
	if o := originOf(context.Background(), "no-such-program-here", "1.0.0"); o != nil {
		t.Errorf("a program that is not there comes from %+v", o)
	}
}

func examine(t *testing.T, c orchestrator.Config, target string) Report {
	t.Helper()
	r, err := Examine(context.Background(), orchestrator.New(c), Options{Version: "test", Target: target})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func (r Report) check(name string) Check {
	for _, c := range r.Checks {
		if c.Name == name {
			return c
		}
	}
	return Check{}
}

// A missing engine is a finding with its cost and its remedy.
func TestMissingEngine(t *testing.T) {
	r := examine(t, orchestrator.Config{Driver: orchestrator.DriverDocker, EngineHost: "unix:///nonexistent.sock", StateDir: t.TempDir()}, "")
	c := r.check("driver docker")
	if r.Healthy || r.Driver != "" || c.Status != Failed || c.Cost == "" || c.Remedy == "" {
		t.Errorf("healthy %v, driver %q, %+v", r.Healthy, r.Driver, c)
	}
	var b strings.Builder
	if err := r.WriteText(&b, report.Style{}); err != nil || !strings.Contains(b.String(), "unhealthy.") {
		t.Errorf("%v\n%s", err, b.String())
	}
}

func TestTarget(t *testing.T) {
	dir := t.TempDir()
	for path, want := range map[string]Status{dir: Failed, filepath.Join(dir, "absent"): Failed, "/dev/null": Failed, "/proc/self/exe": OK} {
		r := examine(t, orchestrator.Config{Driver: orchestrator.DriverDocker, EngineHost: "unix:///nonexistent.sock", StateDir: t.TempDir()}, path)
		if c := r.check("target"); c.Status != want {
			t.Errorf("%s: %+v, want %s", path, c, want)
		}
	}
}

func TestUnusableSetting(t *testing.T) {
	_, err := Examine(context.Background(), orchestrator.New(orchestrator.Config{Driver: "nonsense", StateDir: t.TempDir()}), Options{})
	var f *fault.Error
	if !errors.As(err, &f) || f.Code != fault.ConfigurationInvalid {
		t.Errorf("%v", err)
	}
}

// What an engine of this test's making reports is described and escaped like everything else.
func TestDescribe(t *testing.T) {
	got := describe(sandbox.Facts{Driver: orchestrator.DriverDocker, EngineVersion: "1.2.3", Runtimes: map[string]string{"runc": "1.1", "crun": ""}, Rootless: true})
	if want := "engine 1.2.3; runtimes: crun, runc 1.1; rootless"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

// A state directory that every run would refuse is found before a run is: modes and owners are set by hand here, and
// the small file system is a tmpfs of a known size.
func TestStateDirectory(t *testing.T) {
	examineState := func(dir string) Check {
		return examine(t, orchestrator.Config{Driver: orchestrator.DriverDocker, EngineHost: "unix:///nonexistent.sock", StateDir: dir}, "").check("state directory")
	}
	for mode, want := range map[os.FileMode]Status{0o700: OK, 0o755: OK, 0o777: Failed, 0o777 | os.ModeSticky: Failed, 0o770: Failed} {
		dir := t.TempDir()
		if err := os.Chmod(dir, mode); err != nil {
			t.Fatal(err)
		}
		if c := examineState(dir); c.Status != want || want == Failed && !strings.Contains(c.Remedy, "REA_STATE_DIR") {
			t.Errorf("mode %v: %+v, want %s", mode, c, want)
		}
	}
	if os.Geteuid() != 0 {
		t.Skip("only root can give a directory away and mount")
	}
	foreign := t.TempDir()
	if err := os.Chown(foreign, 65534, 65534); err != nil {
		t.Fatal(err)
	}
	if c := examineState(foreign); c.Status != Failed {
		t.Errorf("another user's: %+v", c)
	}
	small := t.TempDir()
	if err := unix.Mount("tmpfs", small, "tmpfs", 0, "size=8m,mode=0700"); err != nil {
		t.Skip("no right to mount: ", err)
	}
	t.Cleanup(func() { _ = unix.Unmount(small, unix.MNT_DETACH) })
	if c := examineState(small); c.Status != Warning || c.Cost == "" {
		t.Errorf("8 MiB: %+v", c)
	}
	if err := unix.Mount("", small, "", unix.MS_REMOUNT|unix.MS_RDONLY, ""); err != nil {
		t.Fatal(err)
	}
	if c := examineState(small); c.Status != Failed || !strings.Contains(c.Detail, "read-only") {
		t.Errorf("read-only: %+v", c)
	}
}

// A damaged journal is a warning that names its owner.
func TestDamagedJournal(t *testing.T) {
	state := t.TempDir()
	own, err := journal.Open(context.Background(), state)
	if err != nil {
		t.Fatal(err)
	}
	defer own.Close()
	path := filepath.Join(state, "owners", own.ID(), "journal.ndjson")
	if err := os.WriteFile(path, []byte("no line of a journal\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	r := examine(t, orchestrator.Config{Driver: orchestrator.DriverDocker, EngineHost: "unix:///nonexistent.sock", StateDir: state}, "")
	if c := r.check("journals"); c.Status != Warning || !strings.Contains(c.Detail, own.ID()) {
		t.Errorf("%+v", c)
	}
}
