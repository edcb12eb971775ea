package docker

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/filters"
	"github.com/docker/docker/api/types/image"
	"github.com/docker/docker/api/types/volume"
	"golang.org/x/sys/unix"

	"rea/images"
	"rea/sandbox"
	"rea/sandbox/sandboxtest"
	"rea/sandbox/staging"
)

// open gives a driver for the engine of this host, or skips.
func open(t testing.TB, o Options) *Driver {
	t.Helper()
	d, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close() })
	facts, err := d.Probe(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	if !facts.Available {
		t.Skip("no container engine: " + facts.Reason)
	}
	return d
}

// harness lets the conformance suite use a driver.
func harness(d *Driver, ordinary bool) sandboxtest.Harness {
	return sandboxtest.Harness{
		Runtime: d, Ordinary: ordinary,
		Image:     func(_ testing.TB, i *images.Image, _ string) sandbox.Image { return i.Sandbox("") },
		Leftovers: func(t testing.TB, run string) []string { return leftovers(t, d, run) },
	}
}

// leftovers asks the engine, by label, for containers and volumes of a run.
func leftovers(t testing.TB, d *Driver, run string) []string {
	t.Helper()
	label := filters.NewArgs(filters.Arg("label", sandbox.LabelRun+"="+run))
	containers, err := d.cli.ContainerList(context.Background(), container.ListOptions{All: true, Filters: label})
	if err != nil {
		t.Fatal(err)
	}
	volumes, err := d.cli.VolumeList(context.Background(), volume.ListOptions{Filters: label})
	if err != nil {
		t.Fatal(err)
	}
	var left []string
	for _, c := range containers {
		left = append(left, "container "+c.ID) // not its name: an engine that lost track of one has none
	}
	for _, v := range volumes.Volumes {
		left = append(left, v.Name)
	}
	return left
}

// removeImage takes the suite's image out of the engine again.
func removeImage(t testing.TB, d *Driver, i *images.Image) {
	t.Cleanup(func() {
		_, err := d.cli.ImageRemove(context.Background(), i.Digest, image.RemoveOptions{Force: true})
		if err != nil && !isGone(err) {
			t.Errorf("remove the image: %v", err)
		}
	})
}

// TestPrivileged is the suite where the core may mount and make cgroups.
func TestPrivileged(t *testing.T) {
	if !staging.Privileged() {
		t.Skip("needs the right to mount")
	}
	sandboxtest.Conformance(t, func(t *testing.T) sandboxtest.Harness {
		d := open(t, Options{})
		if !crashing() {
			removeImage(t, d, sandboxtest.Probe(t))
		}
		return harness(d, false)
	})
}

// crashing reports whether this is a process that the suite kills.
func crashing() bool { return os.Getenv("REA_SANDBOXTEST_CRASH") != "" }

// ordinaryVariable is set in the process that runs the suite as an ordinary user.
const ordinaryVariable = "REA_TEST_ORDINARY"

// someone is a uid and gid that nothing on this host uses.
const someone = 54321

// TestOrdinary is the suite as a user who may talk to the engine and nothing more: this process if it is one, else
// another one that is made to be.
func TestOrdinary(t *testing.T) {
	if os.Getuid() == 0 && os.Getenv(ordinaryVariable) == "" {
		again(t, open(t, Options{}))
		return
	}
	if staging.Privileged() {
		t.Fatal("an ordinary user may mount here")
	}
	sandboxtest.Conformance(t, func(t *testing.T) sandboxtest.Harness { return harness(open(t, Options{}), true) })
}

// again runs the calling test in a process of an unused uid whose only group of use is that of the engine's socket.
func again(t *testing.T, d *Driver) {
	t.Helper()
	var stat unix.Stat_t
	if err := unix.Stat(d.socket, &stat); err != nil {
		t.Fatal(err)
	}
	if stat.Mode&0o060 != 0o060 {
		t.Skip("the engine's socket is not open to a group")
	}
	home := ownedTemp(t)
	program, probe := filepath.Join(home, "docker.test"), filepath.Join(home, "probe")
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	copyFile(t, self, program)
	writeProbe(t, d, probe)
	cmd := exec.Command(program, "-test.run=^"+t.Name()+"$", "-test.v", "-test.count=1")
	cmd.Dir = home
	cmd.Env = []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin", "HOME=" + home, "TMPDIR=" + home, ordinaryVariable + "=1", sandboxtest.ProbeVariable + "=" + probe}
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Credential: &syscall.Credential{Uid: someone, Gid: someone, Groups: []uint32{stat.Gid}}, Pdeathsig: syscall.SIGKILL,
	}
	out, err := cmd.CombinedOutput()
	t.Logf("as uid %d:\n%s", someone, out)
	if err != nil {
		t.Error(err)
	}
}

// ownedTemp is a short-named temporary directory of the ordinary user: the engine's socket paths and the suite's own
// need room, and the test's own temporary directory is closed to others.
func ownedTemp(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "rea-ordinary-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	if err := os.Chown(dir, someone, someone); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	return dir
}

func copyFile(t *testing.T, from, to string) {
	t.Helper()
	data, err := os.ReadFile(from)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(to, data, 0o755); err != nil {
		t.Fatal(err)
	}
}

// writeProbe takes the probe out of the image that the suite would make of it, as the last member of its layer.
func writeProbe(t *testing.T, d *Driver, to string) {
	t.Helper()
	i := sandboxtest.Probe(t)
	root, err := i.RootFS(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	copyFile(t, filepath.Join(root, sandbox.WorkerPath), to)
	removeImage(t, d, i)
}
