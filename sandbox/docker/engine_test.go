package docker

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/docker/docker/api/types/image"
	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"rea/evidence/fault"
	"rea/images"
	"rea/sandbox"
	"rea/sandbox/cgroup"
	"rea/sandbox/journal"
	"rea/sandbox/sandboxtest"
	"rea/sandbox/sandboxtest/script"
	"rea/sandbox/staging"
)

// newEngineFor starts an engine of the test's own. It needs root and the engine's program, and skips without.
func newEngineFor(t *testing.T, prefix []string, args ...string) *privateEngine {
	t.Helper()
	return &privateEngine{sandboxtest.NewEngine(t, prefix, args...), t}
}

type privateEngine struct {
	*sandboxtest.Engine
	t *testing.T
}

func (p *privateEngine) driver(o Options) *Driver {
	p.t.Helper()
	o.Host = p.Host()
	return open(p.t, o)
}

// TestEngineRestart kills the engine under a run, ends the run without it, and sweeps what remains with the next one.
func TestEngineRestart(t *testing.T) {
	p := newEngineFor(t, nil)
	d := p.driver(Options{})
	ctx := sandboxtest.Context(t)
	state := t.TempDir()
	own, err := journal.Open(ctx, state)
	if err != nil {
		t.Fatal(err)
	}
	b := &sandboxtest.Bench{Harness: harness(d, false), State: state, Owner: own, Image: sandboxtest.Probe(t).Sandbox("")}
	s := b.Spec(t)
	box, err := d.Create(ctx, s, own)
	if err != nil {
		t.Fatal(err)
	}
	channel, err := box.Start(ctx)
	if err != nil {
		t.Fatal(err)
	}
	r := sandboxtest.Attach(t, box, s, channel)
	r.Do(t, script.Task{Do: script.Stubborn})
	p.Stop(syscall.SIGKILL)
	if err := box.Kill(ctx); err != nil {
		t.Errorf("kill without an engine: %v", err)
	}
	if _, err := box.Wait(ctx); err == nil {
		t.Error("the engine is dead and still said how the container ended")
	}
	receipt, err := box.Destroy(ctx)
	fails(t, err, fault.CleanupIncomplete, fault.Details{"resources": []string{sandbox.KindContainer}})
	remains := []sandbox.Resource{{Kind: sandbox.KindContainer, Name: "rea-" + s.ID}}
	if diff := cmp.Diff(remains, receipt.Remains); diff != "" {
		t.Errorf("remains (-want +got):\n%s", diff)
	}
	_, err = d.Create(ctx, b.Spec(t), own)
	fails(t, err, fault.CapabilityUnavailable, fault.Details{"feature": "engine"})
	fails(t, own.Close(), fault.CleanupIncomplete, nil)

	p.Start()
	if left := leftovers(t, d, s.ID); len(left) != 1 {
		t.Errorf("the engine came back with %v", left)
	}
	sweep(t, d, state)
	if left := leftovers(t, d, s.ID); len(left) != 0 {
		t.Errorf("after the sweep the engine has %v", left)
	}
}

// sweep sweeps the one dead owner of a state directory.
func sweep(t *testing.T, d *Driver, state string) {
	t.Helper()
	ctx := sandboxtest.Context(t)
	dead, err := journal.DeadOwners(ctx, state)
	if err != nil || len(dead) != 1 {
		t.Fatalf("%d dead owners, %v", len(dead), err)
	}
	if receipt, err := d.Sweep(ctx, dead[0]); err != nil || !receipt.Complete() {
		t.Errorf("sweep: %+v, %v", receipt, err)
	}
	if err := dead[0].Finish(); err != nil {
		t.Error(err)
	}
}

// TestEngineElsewhere uses an engine in a mount namespace of its own: it binds what it sees at our paths. It must not
// find the host's containerd, which would look for the images in the host's namespace.
func TestEngineElsewhere(t *testing.T) {
	const hide = `[ ! -d /run/containerd ] || mount -t tmpfs none /run/containerd; exec "$@"`
	p := newEngineFor(t, []string{"unshare", "--mount", "--propagation", "private", "sh", "-c", hide, "sh"})
	b := sandboxtest.NewBench(t, harness(p.driver(Options{}), false))
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "file"), []byte("content"), 0o644); err != nil {
		t.Fatal(err)
	}
	s := b.Spec(t, sandboxtest.Target(t, dir))
	ctx := sandboxtest.Context(t)
	box, err := b.Runtime.Create(ctx, s, b.Owner)
	if err != nil {
		t.Fatal(err)
	}
	defer box.Destroy(ctx)
	channel, err := box.Start(ctx)
	if err != nil {
		t.Fatal(err)
	}
	r := sandboxtest.Attach(t, box, s, channel)
	if r.Facts.Nonce != "" || r.Facts.Evidence.Type == unix.TMPFS_MAGIC {
		t.Errorf("the worker sees nonce %q on a volume of type %#x", r.Facts.Nonce, r.Facts.Evidence.Type)
	}
	if a := r.Do(t, script.Task{Do: script.Write, Path: sandbox.EvidencePath + "/x"}); a.Errno == 0 {
		t.Error("the worker could write where no volume is")
	}
	if a := r.Do(t, script.Task{Do: script.Read, Path: sandbox.TargetPath + "/file"}); a.Errno == 0 {
		t.Error("the worker sees a target that was not bound for it")
	}
}

// TestEngineDefaults configures an engine to change what is not asked for explicitly.
func TestEngineDefaults(t *testing.T) {
	p := newEngineFor(t, nil, "--init", "--default-ulimit", "nofile=10:10", "--default-shm-size", "1g",
		"--default-cgroupns-mode", "host", "--default-ipc-mode", "shareable", "--log-driver", "journald", "--live-restore")
	for name, o := range map[string]Options{"privileged": {}, "ordinary": {Ordinary: true}} {
		t.Run(name, func(t *testing.T) {
			b := sandboxtest.NewBench(t, harness(p.driver(o), o.Ordinary))
			r := b.Start(t, b.Spec(t))
			var shm []string
			for _, m := range r.Facts.Mounts {
				if m.Path == "/dev/shm" {
					shm = append(shm, m.Path)
				}
			}
			if r.Facts.PID != 1 || r.Facts.Limits["nofile"] != 200 || len(shm) > 0 {
				t.Errorf("pid %d, limits %v, shared memory %v", r.Facts.PID, r.Facts.Limits, shm)
			}
		})
	}
}

// TestReadBackOfEngine uses an engine with a default limit that no request can switch off: it is added, and only what
// the engine says of the container shows it.
func TestReadBackOfEngine(t *testing.T) {
	d := newEngineFor(t, nil, "--default-ulimit", "nproc=1:1").driver(Options{})
	b := sandboxtest.NewBench(t, harness(d, false))
	s := b.Spec(t)
	_, err := d.Create(sandboxtest.Context(t), s, b.Owner)
	fails(t, err, fault.CapabilityUnavailable, fault.Details{"fields": []string{"HostConfig.Ulimits"}})
	if left := leftovers(t, d, s.ID); len(left) != 0 {
		t.Errorf("the engine has %v", left)
	}
}

// TestImageSettings uses images that set everything which an image can set.
func TestImageSettings(t *testing.T) {
	d := open(t, Options{})
	ctx := sandboxtest.Context(t)
	probe := sandboxtest.Probe(t)
	removeImage(t, d, probe)
	if err := d.LoadImage(ctx, probe.Sandbox("")); err != nil {
		t.Fatal(err)
	}
	changed := func(t *testing.T, changes ...string) sandbox.Image {
		t.Helper()
		i := sandbox.Image{Name: "rea/test", Digest: importImage(t, d, probe, changes), HasWorker: true}
		t.Cleanup(func() {
			if _, err := d.cli.ImageRemove(context.Background(), i.Digest, image.RemoveOptions{Force: true}); err != nil {
				t.Error(err)
			}
		})
		return i
	}
	for name, instruction := range map[string]string{"volume": "VOLUME /data", "trigger": "ONBUILD RUN true"} {
		t.Run(name, func(t *testing.T) {
			b := sandboxtest.NewBench(t, harness(d, !staging.Privileged()))
			b.Image = changed(t, instruction)
			_, err := d.Create(ctx, b.Spec(t), b.Owner)
			fails(t, err, fault.CapabilityUnavailable, fault.Details{"engine": "docker", "image": "rea/test"})
		})
	}
	t.Run("everything else", func(t *testing.T) {
		b := sandboxtest.NewBench(t, harness(d, !staging.Privileged()))
		b.Image = changed(t, "ENV LD_PRELOAD=/evil.so", "ENV HOME=/evil", "USER 0", "WORKDIR /evil", "ENTRYPOINT [\"/evil\"]", "CMD [\"evil\"]",
			"HEALTHCHECK CMD evil", "EXPOSE 80", "LABEL evil=yes")
		s := b.Spec(t)
		f := b.Start(t, s).Facts
		slices.Sort(f.Env)
		slices.Sort(s.Env)
		if diff := cmp.Diff(s.Env, f.Env); diff != "" {
			t.Errorf("environment (-want +got):\n%s", diff)
		}
		if f.UID != sandbox.RunUID || f.Dir != "/" || f.Args[0] != sandbox.WorkerPath {
			t.Errorf("uid %d in %s runs %v", f.UID, f.Dir, f.Args)
		}
	})
}

// importImage makes an image of the probe's root with other settings, by the engine's own instructions.
func importImage(t *testing.T, d *Driver, probe *images.Image, changes []string) string {
	t.Helper()
	root, err := probe.RootFS(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("tar", "-C", root, "-c", ".")
	archive, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	reply, err := d.cli.ImageImport(context.Background(), image.ImportSource{Source: archive, SourceName: "-"}, "", image.ImportOptions{Changes: changes})
	if err != nil {
		t.Fatal(err)
	}
	defer reply.Close()
	answer, err := io.ReadAll(io.LimitReader(reply, maxLoadReply))
	if err := errors.Join(err, cmd.Wait()); err != nil {
		t.Fatal(err)
	}
	_, id, found := strings.Cut(string(answer), "sha256:")
	if !found || len(id) < 64 {
		t.Fatalf("import: %s", answer)
	}
	return "sha256:" + id[:64]
}

// TestImageIsLoadedOnce loads an image that the engine does not hold, from many sides at once. That the engine gives
// it the digest that package images computed is the engine's own arithmetic.
func TestImageIsLoadedOnce(t *testing.T) {
	d := open(t, Options{})
	ctx := sandboxtest.Context(t)
	binary := []byte("#!/bin/true " + journal.NewID())
	made, err := images.Assemble("test", binary, strings.Repeat("0", 64))
	if err != nil {
		t.Fatal(err)
	}
	removeImage(t, d, made)
	i := made.Sandbox("")
	if has, err := d.HasImage(ctx, i); has || err != nil {
		t.Fatalf("before: %v, %v", has, err)
	}
	var mu sync.Mutex
	loads := 0
	archive := i.Archive
	i.Archive = func() (io.ReadCloser, error) {
		mu.Lock()
		defer mu.Unlock()
		loads++
		return archive()
	}
	failures := make(chan error)
	for range 4 {
		go func() { failures <- d.LoadImage(ctx, i) }()
	}
	for range 4 {
		if err := <-failures; err != nil {
			t.Error(err)
		}
	}
	if has, err := d.HasImage(ctx, i); !has || err != nil || loads != 1 {
		t.Errorf("after %d loads: %v, %v", loads, has, err)
	}
	i.Digest, i.Manifest, i.Archive = "sha256:"+strings.Repeat("1", 64), "", nil
	fails(t, d.LoadImage(ctx, i), fault.CapabilityUnavailable, fault.Details{"feature": "image"})
	i.Archive = made.Archive // not what it says it is
	fails(t, d.LoadImage(ctx, i), fault.EvidenceIntegrityMismatch, nil)
}

// through is a driver whose requests pass a proxy; the function answers one by true if it dealt with it.
func through(t *testing.T, d *Driver, meddle func(http.ResponseWriter, *http.Request, http.Handler) bool) *Driver {
	t.Helper()
	dir, err := os.MkdirTemp("", "rea-proxy-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	socket := filepath.Join(dir, "sock")
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	engine := httputil.NewSingleHostReverseProxy(&url.URL{Scheme: "http", Host: "docker"})
	engine.Transport = &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", d.socket)
	}}
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !meddle(w, r, engine) {
			engine.ServeHTTP(w, r)
		}
	})}
	go server.Serve(l)
	t.Cleanup(func() { server.Close() })
	return engineAt(t, socket)
}

func isCreate(r *http.Request) bool { return strings.HasSuffix(r.URL.Path, "/containers/create") }

// nowhere is an answer that nobody sees.
type nowhere struct{ header http.Header }

func (n nowhere) Header() http.Header         { return n.header }
func (n nowhere) Write(p []byte) (int, error) { return len(p), nil }
func (n nowhere) WriteHeader(int)             {}

// TestLostAnswer lets the answer to a create get lost, with and without the engine having seen the request.
func TestLostAnswer(t *testing.T) {
	d := open(t, Options{})
	for name, forward := range map[string]bool{"made": true, "never made": false} {
		t.Run(name, func(t *testing.T) {
			proxied := through(t, d, func(_ http.ResponseWriter, r *http.Request, engine http.Handler) bool {
				if !isCreate(r) {
					return false
				}
				if forward {
					engine.ServeHTTP(nowhere{http.Header{}}, r)
				}
				panic(http.ErrAbortHandler)
			})
			ctx := sandboxtest.Context(t)
			state := t.TempDir()
			own, err := journal.Open(ctx, state)
			if err != nil {
				t.Fatal(err)
			}
			b := &sandboxtest.Bench{Harness: harness(proxied, false), State: state, Owner: own, Image: sandboxtest.Probe(t).Sandbox("")}
			removeImage(t, d, sandboxtest.Probe(t))
			s := b.Spec(t)
			_, err = proxied.Create(ctx, s, own)
			if left := leftovers(t, d, s.ID); len(left) != 0 {
				t.Errorf("the engine has %v", left)
			}
			if forward {
				fails(t, err, fault.ProviderUnavailable, nil)
				if err := own.Close(); err != nil {
					t.Error(err)
				}
				return
			}
			fails(t, err, fault.CleanupIncomplete, fault.Details{"execution_failure": "provider_unavailable", "resources": []string{sandbox.KindContainer}})
			fails(t, own.Close(), fault.CleanupIncomplete, nil)
			dead, err := journal.DeadOwners(ctx, state)
			if err != nil || len(dead) != 1 {
				t.Fatalf("%d dead owners, %v", len(dead), err)
			}
			defer dead[0].Close()
			if receipt, err := d.Sweep(ctx, dead[0]); err != nil || len(dead[0].Held()) != 1 {
				t.Errorf("sweep: %+v, %v; %d entries are held", receipt, err, len(dead[0].Held()))
			}
		})
	}
}

// TestForeignContainer puts a container of another owner behind a name of the journal.
func TestForeignContainer(t *testing.T) {
	d := open(t, Options{})
	b := sandboxtest.NewBench(t, harness(d, !staging.Privileged()))
	r := b.Start(t, b.Spec(t))
	entries := b.Owner.RunEntries(r.Spec.ID)
	i := slices.IndexFunc(entries, func(e journal.Entry) bool { return e.Kind == sandbox.KindContainer })
	foreign := &removal{d: d, owner: journal.NewID(), runs: b.Owner.RunsDir()}
	if err := foreign.remove(sandboxtest.Context(t), entries[i]); err == nil {
		t.Error("another owner's container was removed")
	}
	if left := leftovers(t, d, r.Spec.ID); len(left) == 0 {
		t.Error("the container is gone")
	}
}

// TestOrdinaryCounters reads limits met and peaks where the engine makes the only cgroup. What they must be is
// arithmetic on what the probe was told to do.
func TestOrdinaryCounters(t *testing.T) {
	d := open(t, Options{Ordinary: true})
	b := sandboxtest.NewBench(t, harness(d, true))
	removeImage(t, d, sandboxtest.Probe(t))
	ctx := sandboxtest.Context(t)
	t.Run("child killed", func(t *testing.T) {
		s := b.Spec(t)
		r := b.Start(t, s)
		r.Do(t, script.Task{Do: script.AllocateInChild, Number: 2 * int(s.Limits.Memory)})
		r.Do(t, script.Task{Do: script.Fork, Number: 10 * int(s.Limits.PIDs)})
		if err := r.Kill(ctx); err != nil {
			t.Fatal(err)
		}
		u, err := r.Usage(ctx)
		// A few pages go beyond a limit where the kernel may not fail (cgroup-v2.rst, "memory.max").
		if err != nil || u.OOMKills == nil || *u.OOMKills < 1 || u.MemoryPeak == nil || *u.MemoryPeak > s.Limits.Memory+1<<20 || *u.MemoryPeak < s.Limits.Memory*9/10 {
			t.Errorf("memory peak %d of %d, %d kills, %v", *u.MemoryPeak, s.Limits.Memory, *u.OOMKills, err)
		}
		if u.CPU == nil || *u.CPU <= 0 || u.PIDsRefused == nil || !*u.PIDsRefused {
			t.Errorf("processor and tasks: %+v", u)
		}
	})
	t.Run("first process killed", func(t *testing.T) {
		s := b.Spec(t)
		r := b.Start(t, s)
		r.Send(t, script.Task{Do: script.Allocate, Number: 2 * int(s.Limits.Memory)})
		if exit, err := r.Wait(ctx); err != nil || exit.Code != 137 {
			t.Errorf("exit %+v, %v", exit, err)
		}
		if u, err := r.Usage(ctx); err != nil || u.OOMKills == nil || *u.OOMKills < 1 {
			t.Errorf("usage: %+v, %v", u, err)
		}
	})
	t.Run("other limits", func(t *testing.T) {
		s := b.Spec(t)
		r := b.Start(t, s)
		got := r.Sandbox.(*box)
		got.spec.Limits.PIDs++
		inspect, err := d.cli.ContainerInspect(ctx, got.id)
		if err != nil {
			t.Fatal(err)
		}
		fails(t, got.verifyLeaf(inspect.State.Pid), fault.CapabilityUnavailable, fault.Details{"feature": "limit pids"})
	})
}

// TestForeignCgroupDriver is a core that may mount beside an engine that takes no cgroup of ours for a parent. The
// engine of this host is made to seem one: what is under test is what the driver does then.
func TestForeignCgroupDriver(t *testing.T) {
	if !staging.Privileged() {
		t.Skip("needs the right to mount")
	}
	d := open(t, Options{})
	ctx := sandboxtest.Context(t)
	e, err := d.contact(ctx)
	if err != nil {
		t.Fatal(err)
	}
	e.cgroupDriver = "systemd"
	if cgroup.Detect().Mode == cgroup.V2 { // where that one is followed
		e.cgroupDriver = "none"
	}
	b := sandboxtest.NewBench(t, harness(d, false))
	removeImage(t, d, sandboxtest.Probe(t))
	s := b.Spec(t)
	r := b.Start(t, s)
	proof := r.Proof()
	if proof.OwnCgroup || proof.Live || proof.EvidenceKind != "host-tmpfs" || len(proof.Unproved) != 1 || !strings.Contains(proof.Unproved[0], "cgroup of its own") {
		t.Errorf("proof %+v", proof)
	}
	r.Do(t, script.Task{Do: script.Write, Path: sandbox.EvidencePath + "/out", Text: "the result"})
	r.Do(t, script.Task{Do: script.AllocateInChild, Number: 2 * int(s.Limits.Memory)})
	if err := r.Kill(ctx); err != nil {
		t.Fatal(err)
	}
	if got, err := sandboxtest.ReadFile(ctx, r, "out"); string(got) != "the result" || err != nil {
		t.Errorf("evidence after the kill: %q, %v", got, err)
	}
	u, err := r.Usage(ctx)
	if err != nil || u.OOMKills == nil || *u.OOMKills < 1 || u.EvidenceFree == nil || u.EvidenceFree.Bytes >= s.Evidence.Bytes {
		t.Errorf("usage %+v, %v", u, err)
	}
}
