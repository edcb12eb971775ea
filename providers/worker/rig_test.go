package worker

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"github.com/go-json-experiment/json/jsontext"
	"golang.org/x/sys/unix"

	"rea/evidence"
	"rea/evidence/volume"
	"rea/providers/wire"
)

// The test binary plays every part: the core (the tests), what a driver does around the worker (stage1), the worker
// itself with the handlers of handlers_test.go (stage2), and what handlers start (child).
func TestMain(m *testing.M) {
	if len(os.Args) > 2 {
		switch os.Args[1] {
		case "stage1":
			runtime.LockOSThread()
			fmt.Fprintln(os.Stderr, "stage1:", stage1(os.Args[2], os.Args[3:]))
			os.Exit(9)
		case "stage2":
			os.Exit(stage2(os.Args[2], os.Args[3:]))
		case "child":
			child(os.Args[2])
			os.Exit(0)
		}
	}
	os.Exit(m.Run())
}

const (
	runUID = 10001
	nonce  = "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff"
)

// stage1 runs as root in new PID and mount namespaces: it mounts their /proc, gives up privileges and becomes the
// worker.
func stage1(dir string, args []string) error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("make mounts private: %w", err)
	}
	if err := unix.Mount("proc", "/proc", "proc", 0, ""); err != nil {
		return fmt.Errorf("mount /proc: %w", err)
	}
	if args[0] != "privileged" {
		if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
			return err
		}
	}
	for _, err := range []error{syscall.Setgroups(nil), syscall.Setgid(runUID), syscall.Setuid(runUID)} {
		if err != nil {
			return err
		}
	}
	// A runtime lets nothing through but the channel.
	if err := unix.CloseRange(4, 1<<31-1, unix.CLOSE_RANGE_CLOEXEC); err != nil {
		return err
	}
	// prctl sets one thread's flag, and exec keeps that of the thread that calls it: this one, by TestMain's lock.
	// The race detector would sleep for a second at each exit.
	return syscall.Exec("/proc/self/exe", append([]string{os.Args[0], "stage2", dir}, args[1:]...), []string{"GORACE=atexit_sleep_ms=0"})
}

func stage2(dir string, args []string) int {
	return Main(args, Options{
		Version:  "test",
		Readable: []string{"/lib", "/lib64", "/usr"}, // a test binary with the race detector is linked dynamically
		Evidence: filepath.Join(dir, "evidence"), Scratch: filepath.Join(dir, "scratch"), Target: filepath.Join(dir, "target"),
	}, Providers{"test": handlers, "selftest": Selftest()})
}

// rig is a worker in namespaces of its own, seen from the core.
type rig struct {
	t        *testing.T
	core     *wire.Conn
	cmd      *exec.Cmd
	dir      string
	evidence string
	stderr   bytes.Buffer
	drained  chan struct{} // closed when no process holds the worker's standard error any more
}

type setup struct {
	quota      string // mount options of the evidence volume
	args       []string
	stdio      bool
	privileged bool // no_new_privs is not set
	notFirst   bool // in the PID namespace of the test
}

const roomy = "size=8m,nr_inodes=500"

func start(t *testing.T, s setup) *rig {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("namespaces and mounts need root")
	}
	r := &rig{t: t, dir: t.TempDir(), drained: make(chan struct{})}
	r.evidence = filepath.Join(r.dir, "evidence")
	must(t, os.Chmod(filepath.Dir(r.dir), 0o755)) // the worker's uid passes through
	for _, d := range []string{"evidence", "scratch", "target"} {
		must(t, os.Mkdir(filepath.Join(r.dir, d), 0o755))
	}
	must(t, os.Chown(filepath.Join(r.dir, "scratch"), runUID, runUID))
	must(t, os.WriteFile(filepath.Join(r.dir, "target", "artifact"), []byte("target"), 0o644))
	options := fmt.Sprintf("%s,uid=%d,gid=%d,mode=0700", or(s.quota, roomy), runUID, runUID)
	must(t, unix.Mount("tmpfs", r.evidence, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, options))
	t.Cleanup(func() { unix.Unmount(r.evidence, unix.MNT_DETACH) })
	must(t, os.WriteFile(filepath.Join(r.evidence, volume.NonceName), []byte(nonce), 0o644))

	privileges := "confined"
	if s.privileged {
		privileges = "privileged"
	}
	channel := "--channel=fd3"
	if s.stdio {
		channel = "--channel=stdio"
	}
	r.cmd = exec.Command("/proc/self/exe", append([]string{"stage1", r.dir, privileges, channel}, s.args...)...)
	r.cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWPID | syscall.CLONE_NEWNS}
	if s.notFirst {
		r.cmd.SysProcAttr.Cloneflags = syscall.CLONE_NEWNS
	}
	stderr, err := r.cmd.StderrPipe()
	must(t, err)
	end := r.channel(s.stdio)
	must(t, r.cmd.Start())
	r.closeChildEnds()
	go func() {
		defer close(r.drained)
		io.Copy(&r.stderr, stderr)
	}()
	r.core = wire.NewCore(end)
	t.Cleanup(func() {
		r.core.Close()
		r.end()
		if t.Failed() {
			t.Logf("worker's standard error:\n%s", r.stderr.String())
		}
	})
	return r
}

// channel connects the worker as a driver does and returns the core's end.
func (r *rig) channel(stdio bool) io.ReadWriteCloser {
	if stdio {
		in, err := r.cmd.StdinPipe()
		must(r.t, err)
		out, err := r.cmd.StdoutPipe()
		must(r.t, err)
		return &pipes{out, in}
	}
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	must(r.t, err)
	core, worker := os.NewFile(uintptr(fds[0]), "core"), os.NewFile(uintptr(fds[1]), "worker")
	defer core.Close()
	r.cmd.ExtraFiles = []*os.File{worker}
	conn, err := net.FileConn(core)
	must(r.t, err)
	return conn
}

func (r *rig) closeChildEnds() {
	for _, f := range r.cmd.ExtraFiles {
		f.Close()
	}
}

type pipes struct {
	io.ReadCloser
	in io.WriteCloser
}

func (p *pipes) Write(b []byte) (int, error) { return p.in.Write(b) }
func (p *pipes) Close() error {
	p.in.Close()
	return p.ReadCloser.Close()
}

// end waits for the worker and for everything that holds its standard error, and returns the exit code.
func (r *rig) end() int {
	<-r.drained
	r.cmd.Wait()
	return r.cmd.ProcessState.ExitCode()
}

func (r *rig) next() wire.FromWorker {
	r.t.Helper()
	m, err := r.core.Next(r.t.Context())
	if err != nil {
		r.t.Fatalf("the channel ended: %v", err)
	}
	return m
}

func (r *rig) hello() *wire.Hello {
	r.t.Helper()
	m := r.next()
	if m.Hello == nil {
		r.t.Fatalf("first frame %+v", m.Fatal)
	}
	return m.Hello
}

func (r *rig) send(m wire.FromCore) {
	r.t.Helper()
	must(r.t, r.core.Send(m))
}

func (r *rig) call(seq uint64, operation, params string) {
	r.t.Helper()
	r.send(wire.FromCore{Call: &wire.Call{Seq: seq, Provider: "test", Operation: operation, Params: jsontext.Value(params)}})
}

// done waits for the commitment to call seq and returns it with the progress before it.
func (r *rig) done() (*wire.Done, []wire.Progress) {
	r.t.Helper()
	var progress []wire.Progress
	for {
		m := r.next()
		switch {
		case m.Progress != nil:
			progress = append(progress, *m.Progress)
		case m.Done != nil:
			return m.Done, progress
		default:
			r.t.Fatalf("got %+v", m)
		}
	}
}

// answer does a whole call and returns what the core reads of it.
func (r *rig) answer(seq uint64, operation, params string) (volume.Manifest, map[string]string) {
	r.t.Helper()
	r.call(seq, operation, params)
	d, _ := r.done()
	return r.read(d, params)
}

// read reads a sealed answer with the real reader and checks that nothing else is in its folder, but on a full volume
// what filled it.
func (r *rig) read(d *wire.Done, params string) (volume.Manifest, map[string]string) {
	r.t.Helper()
	root, err := os.Open(r.evidence)
	must(r.t, err)
	defer root.Close()
	want := volume.Commit{Seq: d.Seq, ManifestSHA256: d.ManifestSHA256, ManifestBytes: d.ManifestBytes, Nonce: nonce, RequestSHA256: sha(params)}
	create := func(context.Context, string) (volume.Sink, error) { return &blob{}, nil }
	c, err := volume.Read(r.t.Context(), volume.Dir(root), want, create, volume.Limits{Files: 1 << 20, Bytes: 1 << 30})
	must(r.t, err)
	got := map[string]string{}
	for name, b := range c.Files {
		got[name] = b.(*blob).String()
	}
	folder := filepath.Join(r.evidence, volume.Folder(d.Seq))
	must(r.t, filepath.WalkDir(folder, func(path string, e os.DirEntry, err error) error {
		name := strings.TrimPrefix(path, folder+"/")
		if _, listed := got[name]; err == nil && !e.IsDir() && !listed && name != volume.ManifestName && c.Manifest.Exhausted != volume.ExhaustedBytes {
			r.t.Errorf("%s is in the folder and not in the manifest", name)
		}
		return err
	}))
	return c.Manifest, got
}

// blob is a sink and a blob in memory.
type blob struct{ bytes.Buffer }

func (b *blob) Commit() (evidence.Blob, error) { return b, nil }
func (b *blob) Abort()                         {}
func (b *blob) SHA256() string                 { return sha(b.String()) }
func (b *blob) Size() int64                    { return int64(b.Len()) }
func (b *blob) Open() (io.ReadCloser, error)   { return io.NopCloser(bytes.NewReader(b.Bytes())), nil }

func sha(s string) string {
	sum := sha256.Sum256([]byte(s))
	return hex.EncodeToString(sum[:])
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
