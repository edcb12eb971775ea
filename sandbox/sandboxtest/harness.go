// Package sandboxtest is the conformance suite that every driver must pass, with the probe that it runs inside.
//
// What an answer must be is established outside of the driver under test: by the kernel's files on the host, by the
// probe's own eyes inside, or by arithmetic on the quotas that were asked for. Only tests may import it.
package sandboxtest

import (
	"bufio"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"rea/images"
	"rea/sandbox"
	"rea/sandbox/journal"
	"rea/sandbox/sandboxtest/script"
)

// Harness is one driver, ready for the suite.
type Harness struct {
	Runtime sandbox.Runtime
	// Image makes an assembled image usable by the driver, and arranges for its removal where that is needed. State is
	// a state directory.
	Image func(t testing.TB, i *images.Image, state string) sandbox.Image
	// Ordinary says that the driver works for a user who may not mount and make cgroups.
	Ordinary bool
	// Bare says that the driver lacks a control here that its proofs must name.
	Bare bool
	// Leftovers lists what the driver's engine still knows of a run, "" for all runs of the state directory; nil where
	// there is no engine.
	Leftovers func(t testing.TB, run string) []string
}

// maxAnswer bounds one answer of the probe, and one file of evidence, in bytes.
const maxAnswer = 8 << 20

// patience bounds everything that a test waits for. It is far above what any step takes on a busy machine.
const patience = 60 * time.Second

// Context gives a context that ends with the suite's patience.
func Context(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	t.Cleanup(cancel)
	return ctx
}

var (
	buildProbe  = sync.OnceValues(func() ([]byte, error) { return build("probe") })
	buildWorker = sync.OnceValues(func() ([]byte, error) { return build("testworker") })
)

// build compiles one of the programs below this package.
func build(name string) ([]byte, error) {
	dir, err := os.MkdirTemp("", "rea-"+name+"-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, name)
	cmd := exec.Command("go", "build", "-trimpath", "-o", path, "rea/sandbox/sandboxtest/"+name)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return out, err
	}
	return os.ReadFile(path)
}

// ProbeVariable names an environment variable with the path of a probe that was built before: for suites that run
// where there is no Go, or as a user who has no cache to build in.
const ProbeVariable = "REA_SANDBOXTEST_PROBE"

// WorkerVariable is ProbeVariable for the worker whose conduct a test writes.
const WorkerVariable = "REA_SANDBOXTEST_WORKER"

// Probe gives the image that holds the probe in the worker's place.
func Probe(t testing.TB) *images.Image { return program(t, "conformance", ProbeVariable, buildProbe) }

// Worker gives the image that holds the worker whose conduct a test writes: package testworker.
func Worker(t testing.TB) *images.Image { return program(t, "testworker", WorkerVariable, buildWorker) }

func program(t testing.TB, name, variable string, build func() ([]byte, error)) *images.Image {
	t.Helper()
	var binary []byte
	var err error
	if path := os.Getenv(variable); path != "" {
		binary, err = os.ReadFile(path)
	} else {
		binary, err = build()
	}
	if err != nil {
		t.Fatalf("build %s: %v\n%s", name, err, binary)
	}
	sum := sha256.Sum256(binary)
	image, err := images.Assemble(name, binary, hex.EncodeToString(sum[:]))
	if err != nil {
		t.Fatal(err)
	}
	return image
}

// Bench is a state directory with its journal and the probe's image: what a test needs to make runs with a driver.
type Bench struct {
	Harness
	State string
	Owner *journal.Owner
	Image sandbox.Image
}

// NewBench prepares a state directory. When the test ends nothing may be left in it.
func NewBench(t testing.TB, h Harness) *Bench {
	t.Helper()
	b := &Bench{Harness: h, State: t.TempDir()}
	owner, err := journal.Open(Context(t), b.State)
	if err != nil {
		t.Fatal(err)
	}
	b.Owner = owner
	t.Cleanup(func() {
		if err := owner.Close(); err != nil {
			t.Errorf("the journal lists what remains: %v", err)
		}
		b.nothingMounted(t)
	})
	b.Image = h.Image(t, Probe(t), b.State)
	return b
}

// Quotas and limits of the suite's runs: small, so that reaching them is quick; each a number that occurs once.
const (
	evidenceBytes  = 4 << 20
	evidenceInodes = 300
	scratchBytes   = 2 << 20
	memoryLimit    = 96 << 20
	pidsLimit      = 40
	fileLimit      = 200
	fileSize       = 64 << 20
)

// Spec is an ordinary run of the probe, with targets added.
func (b *Bench) Spec(t testing.TB, targets ...sandbox.Target) sandbox.Spec {
	t.Helper()
	profile, err := sandbox.SeccompProfile(sandbox.SeccompStatic)
	if err != nil {
		t.Fatal(err)
	}
	nonce := sha256.Sum256([]byte(journal.NewID()))
	return sandbox.Spec{
		ID: journal.NewID(), Image: b.Image, Args: []string{sandbox.WorkerPath, "an argument"},
		Env:     []string{"PATH=/rea", "HOME=/tmp", "ODD=a=b c\"'"},
		User:    sandbox.User{UID: sandbox.RunUID, GID: sandbox.RunUID},
		Targets: targets, Evidence: sandbox.Evidence{Bytes: evidenceBytes, Inodes: evidenceInodes, Nonce: hex.EncodeToString(nonce[:])},
		Scratch: []sandbox.Tmpfs{{Destination: sandbox.ScratchPath, Bytes: scratchBytes, Inodes: 100}},
		Limits:  sandbox.Limits{Memory: memoryLimit, PIDs: pidsLimit, CPU: 1, NoFile: fileLimit, FileSize: fileSize},
		Seccomp: profile,
	}
}

// Target opens a path as a run's target, without the checks that are the business of package staging.
func Target(t testing.TB, path string) sandbox.Target {
	t.Helper()
	fd, err := unix.Open(path, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatalf("open %q: %v", path, err)
	}
	f := os.NewFile(uintptr(fd), path)
	t.Cleanup(func() { f.Close() })
	var stat unix.Stat_t
	if err := unix.Fstat(fd, &stat); err != nil {
		t.Fatal(err)
	}
	return sandbox.Target{
		File: f, Path: path, Destination: sandbox.TargetPath, Dir: stat.Mode&unix.S_IFMT == unix.S_IFDIR,
		OwnerUID: stat.Uid, Private: stat.Mode&0o004 == 0,
	}
}

// Run is a started run and the conversation with its probe.
type Run struct {
	sandbox.Sandbox
	Spec    sandbox.Spec
	Facts   script.Facts
	channel io.ReadWriteCloser
	lines   *bufio.Scanner
}

// Start creates and starts a run and destroys it at the test's end.
func (b *Bench) Start(t testing.TB, s sandbox.Spec) *Run {
	t.Helper()
	ctx := Context(t)
	box, err := b.Runtime.Create(ctx, s, b.Owner)
	if err != nil {
		t.Fatalf("create: %v", err)
	}
	t.Cleanup(func() {
		if receipt, err := box.Destroy(Context(t)); err != nil {
			t.Errorf("destroy: %v, %+v", err, receipt)
		}
	})
	channel, err := box.Start(ctx)
	if err != nil {
		t.Fatalf("start: %v\n%s", err, box.Output())
	}
	t.Cleanup(func() { channel.Close() })
	return Attach(t, box, s, channel)
}

// Attach begins the conversation with the probe of a run that was started.
func Attach(t testing.TB, box sandbox.Sandbox, s sandbox.Spec, channel io.ReadWriteCloser) *Run {
	t.Helper()
	r := &Run{Sandbox: box, Spec: s, channel: channel, lines: bufio.NewScanner(channel)}
	r.lines.Buffer(nil, maxAnswer)
	first := r.answer(t)
	if first.Facts == nil {
		t.Fatalf("the probe did not begin with its facts: %+v", first)
	}
	r.Facts = *first.Facts
	return r
}

// ReadFile reads one small file of a run's evidence volume.
func ReadFile(ctx context.Context, box sandbox.Sandbox, name string) ([]byte, error) {
	source, err := box.Evidence(ctx)
	if err != nil {
		return nil, err
	}
	f, err := source.Open(ctx, name, maxAnswer)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(f)
}

// Do asks the probe for something and waits for its answer.
func (r *Run) Do(t testing.TB, task script.Task) script.Answer {
	t.Helper()
	r.Send(t, task)
	return r.answer(t)
}

// Send asks the probe for something that it may not live to answer.
func (r *Run) Send(t testing.TB, task script.Task) {
	t.Helper()
	if err := json.NewEncoder(r.channel).Encode(task); err != nil {
		t.Fatalf("send %s: %v", task.Do, err)
	}
}

func (r *Run) answer(t testing.TB) script.Answer {
	t.Helper()
	hung := time.AfterFunc(patience, func() { r.channel.Close() })
	defer hung.Stop()
	if !r.lines.Scan() {
		t.Fatalf("the channel ended: %v\n%s", r.lines.Err(), r.Output())
	}
	var a script.Answer
	if err := json.Unmarshal(r.lines.Bytes(), &a); err != nil {
		t.Fatalf("the probe said %q: %v", r.lines.Text(), err)
	}
	return a
}

// mountsBelow lists the host's mounts at or below a directory, from the kernel's own list.
func mountsBelow(t testing.TB, dir string) []string {
	t.Helper()
	data, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for line := range strings.Lines(string(data)) {
		fields := strings.Fields(line)
		if len(fields) > 4 && (fields[4] == dir || strings.HasPrefix(fields[4], dir+"/")) {
			out = append(out, fields[4])
		}
	}
	return out
}

func (b *Bench) nothingMounted(t testing.TB) {
	t.Helper()
	if left := mountsBelow(t, b.State); len(left) > 0 {
		t.Errorf("still mounted: %v", left)
	}
}

// cgroupDirs lists the run's directories in all cgroup hierarchies of the host, by looking for its id.
func cgroupDirs(t testing.TB, run string) []string {
	t.Helper()
	var out []string
	for _, pattern := range []string{"/sys/fs/cgroup/*/", "/sys/fs/cgroup/*/*/", "/sys/fs/cgroup/*/*/*/"} {
		found, err := filepath.Glob(pattern + "*" + run + "*")
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, found...)
	}
	return out
}
