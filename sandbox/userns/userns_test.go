package userns

import (
	"errors"
	"io/fs"
	"os"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/opencontainers/runtime-spec/specs-go"

	"rea/sandbox"
)

// The lines are of user_namespaces(7): a host's own map, a container's, one with several lines.
func TestCovers(t *testing.T) {
	for _, tt := range []struct {
		idMap string
		want  bool
	}{
		{"         0          0 4294967295\n", true},
		{"         0     100000      65536\n", false},
		{"0 1000 1\n1 100000 2147483647\n", true},
		{"0 0 2013265920\n", false}, // ends exactly below the first id, 0x78000000
		{"", false},
		{"x y z\n", false},
	} {
		if got := covers(tt.idMap, first, first+ranges*perRun-1); got != tt.want {
			t.Errorf("covers(%q) = %v", tt.idMap, got)
		}
	}
}

// The limits are those of the systemd project's list of ids that it uses: container ids end at 0x6fffffff, foreign ids
// begin at 0x7ffe0000; 2000200000 is where the usual setting of directory services ends.
func TestRangesLieWhereNobodyElseIs(t *testing.T) {
	if first <= 0x6fffffff || first <= 2000200000 || first+ranges*perRun > 0x7ffe0000 {
		t.Errorf("ids from %#x to %#x", first, first+ranges*perRun-1)
	}
	seen := map[uint32]bool{}
	for _, r := range Candidates("0123456789abcdef") {
		if seen[r.root] || seen[r.Run()] || r.root < first || r.Run() >= first+ranges*perRun {
			t.Errorf("range %+v occurs twice or lies outside", r)
		}
		seen[r.root], seen[r.Run()] = true, true
	}
}

func TestMap(t *testing.T) {
	r := Range{root: 2013265920}
	want := []specs.LinuxIDMapping{{ContainerID: 0, HostID: 2013265920, Size: 1}, {ContainerID: 10001, HostID: 2013265921, Size: 1}}
	got := r.Map(sandbox.User{UID: 10001, GID: 10001})
	if diff := cmp.Diff(&sandbox.IDMap{UIDs: want, GIDs: want}, got); diff != "" {
		t.Errorf("map (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"0 2013265920 1", "10001 2013265921 1"}, got.Lines()); diff != "" {
		t.Errorf("lines (-want +got):\n%s", diff)
	}
}

func TestTakeAndRelease(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("ranges are taken by root")
	}
	const run, other = "00000000deadbee0", "00000000deadbee1"
	r := Candidates(run)[0]
	if err := r.Take(run); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.Remove(r.Path()) })
	if err := r.Take(other); !errors.Is(err, fs.ErrExist) {
		t.Errorf("taken twice: %v", err)
	}
	if err := Release(r.Path(), other); err != nil {
		t.Errorf("releasing what another run has: %v", err)
	}
	if holder, err := os.Readlink(r.Path()); holder != run || err != nil {
		t.Errorf("the range is %q's, %v", holder, err)
	}
	for range 2 { // the second time there is nothing
		if err := Release(r.Path(), run); err != nil {
			t.Error(err)
		}
	}
	if _, err := os.Lstat(r.Path()); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("still there: %v", err)
	}
	if err := Release("/etc/passwd", run); err == nil {
		t.Error("a path outside was accepted")
	}
}

func TestOurs(t *testing.T) {
	dir := t.TempDir()
	if err := ours(dir); err != nil {
		t.Error(err)
	}
	link := dir + "/link"
	if err := errors.Join(os.Symlink(dir, link), os.Mkdir(dir+"/open", 0o777), os.Chmod(dir+"/open", 0o777), os.WriteFile(dir+"/file", nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	for _, bad := range []string{link, dir + "/open", dir + "/file", dir + "/missing"} {
		if ours(bad) == nil {
			t.Errorf("%s was accepted", bad)
		}
	}
}
