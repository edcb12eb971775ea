package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/go-cmp/cmp"

	"rea/evidence"
	"rea/evidence/fault"
	"rea/evidence/volume"
	"rea/images"
	"rea/providers/wire"
	"rea/sandbox"
	"rea/sandbox/docker"
	"rea/sandbox/journal"
	"rea/sandbox/oci"
	"rea/sandbox/staging"
)

// The tests run every behaviour in a real container and look at what the core's side of the channel and of the volume
// makes of it. What must come out follows from the behaviour and the rules of both packages. The oci driver is the fast
// one; TestEngine has the engine's driver, whose channel is another, do what depends on the channel.

// patience bounds everything that a test waits for.
const patience = 60 * time.Second

// workerVariable names an environment variable with the path of a worker that was built before, for a host without Go.
const workerVariable = "REA_SANDBOXTEST_WORKER"

var build = sync.OnceValues(func() (*images.Image, error) {
	binary, err := program()
	if err != nil {
		return nil, err
	}
	sum := sha256.Sum256(binary)
	return images.Assemble("testworker", binary, hex.EncodeToString(sum[:]))
})

// program is this package's program.
func program() ([]byte, error) {
	if path := os.Getenv(workerVariable); path != "" {
		return os.ReadFile(path)
	}
	dir, err := os.MkdirTemp("", "rea-testworker-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	cmd := exec.Command("go", "build", "-trimpath", "-o", filepath.Join(dir, "w"), ".")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return nil, errors.New(string(out))
	}
	return os.ReadFile(filepath.Join(dir, "w"))
}

// run is one container, with a call of its worker under way.
type run struct {
	t    *testing.T
	ctx  context.Context
	box  sandbox.Sandbox
	core *wire.Conn
	spec sandbox.Spec
	call string // parameters
}

// driver is a runtime, and how it takes an image.
type driver struct {
	sandbox.Runtime
	image func(i *images.Image, state string) (sandbox.Image, error)
}

func start(t *testing.T, script ...behaviour) *run {
	t.Helper()
	if !staging.Privileged() {
		t.Skip("the oci driver needs root")
	}
	if _, err := exec.LookPath("runc"); err != nil {
		t.Skip("runc is not installed")
	}
	return startOn(t, driver{oci.New(oci.Options{}), func(i *images.Image, state string) (sandbox.Image, error) {
		root, err := i.RootFS(state)
		return i.Sandbox(root), err
	}}, script...)
}

func startOn(t *testing.T, d driver, script ...behaviour) *run {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	t.Cleanup(cancel)
	image, err := build()
	must(t, err)
	state := t.TempDir()
	owner, err := journal.Open(ctx, state)
	must(t, err)
	t.Cleanup(func() { must(t, owner.Close()) })
	ours, err := d.image(image, state)
	must(t, err)
	profile, err := sandbox.SeccompProfile(sandbox.SeccompStatic)
	must(t, err)
	nonce := sha256.Sum256([]byte(t.Name()))
	r := &run{t: t, ctx: ctx, spec: sandbox.Spec{
		ID: journal.NewID(), Image: ours, Args: []string{sandbox.WorkerPath}, Env: []string{"HOME=/tmp"},
		User:     sandbox.User{UID: sandbox.RunUID, GID: sandbox.RunUID},
		Evidence: sandbox.Evidence{Bytes: 4 << 20, Inodes: 300, Nonce: hex.EncodeToString(nonce[:])},
		Scratch:  []sandbox.Tmpfs{{Destination: sandbox.ScratchPath, Bytes: 1 << 20, Inodes: 10}},
		Limits:   sandbox.Limits{Memory: 96 << 20, PIDs: 60, CPU: 2, NoFile: 200, FileSize: 4 << 40},
		Seccomp:  profile,
	}}
	r.box, err = d.Create(ctx, r.spec, owner)
	must(t, err)
	t.Cleanup(func() {
		// The test's context may have ended; this must happen all the same.
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		receipt, err := r.box.Destroy(ctx)
		if err != nil || !receipt.Complete() {
			t.Errorf("destroy: %+v, %v", receipt, err)
		}
	})
	channel, err := r.box.Start(ctx)
	must(t, err)
	r.core = wire.NewCore(channel)
	t.Cleanup(func() { r.core.Close() })
	m := r.next()
	if m.Hello == nil || m.Hello.PID != 1 || m.Hello.UID != sandbox.RunUID || m.Hello.Nonce != r.spec.Evidence.Nonce {
		t.Fatalf("hello %+v, fatal %+v\n%s", m.Hello, m.Fatal, r.box.Output())
	}
	params, err := json.Marshal(map[string]any{"behaviours": script})
	must(t, err)
	r.call = string(params)
	must(t, r.core.Send(wire.FromCore{Call: &wire.Call{Seq: 1, Provider: "test", Operation: "script", Params: jsontext.Value(params)}}))
	return r
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func (r *run) next() wire.FromWorker {
	r.t.Helper()
	m, err := r.core.Next(r.ctx)
	if err != nil {
		r.t.Fatalf("the channel ended: %v\n%s", err, r.box.Output())
	}
	return m
}

// listen waits for the commitment or the channel's end.
func (r *run) listen() (*wire.Done, error) {
	for {
		m, err := r.core.Next(r.ctx)
		if err != nil {
			return nil, err
		}
		if m.Done != nil {
			return m.Done, nil
		}
	}
}

// collect kills the container, as the core does, and reads what it committed to.
func (r *run) collect(d *wire.Done) (*volume.Contents, error) {
	r.t.Helper()
	must(r.t, r.box.Kill(r.ctx))
	src, err := r.box.Evidence(r.ctx)
	must(r.t, err)
	sum := sha256.Sum256([]byte(r.call))
	want := volume.Commit{Seq: 1, ManifestSHA256: d.ManifestSHA256, ManifestBytes: d.ManifestBytes,
		Nonce: r.spec.Evidence.Nonce, RequestSHA256: hex.EncodeToString(sum[:])}
	create := func(context.Context, string) (volume.Sink, error) { return &blob{}, nil }
	return volume.Read(r.ctx, src, want, create, volume.Limits{Files: r.spec.Evidence.Inodes, Bytes: r.spec.Evidence.Bytes})
}

type blob struct{ bytes.Buffer }

func (b *blob) Commit() (evidence.Blob, error) { return b, nil }
func (b *blob) Abort()                         {}
func (b *blob) SHA256() string                 { return "" }
func (b *blob) Size() int64                    { return int64(b.Len()) }
func (b *blob) Open() (io.ReadCloser, error)   { return io.NopCloser(&b.Buffer), nil }

// TestCommitted is about scripts after which the worker commits to an answer. Pipes, sockets and devices are not among
// them: the filter lets no run make one, and package volume's own tests meet them.
func TestCommitted(t *testing.T) {
	file := behaviour{Do: "file", Path: "a", Bytes: 5000}
	replaced := func(by string) []behaviour { return []behaviour{file, {Do: "replace", Path: "a", Op: by}} }
	for name, tt := range map[string]struct {
		script  []behaviour
		outcome volume.Outcome
		code    fault.Code // of the manifest's error, or of the reader's
		reason  string     // of the reader's error
		files   []string
	}{
		"honest":                 {script: []behaviour{file, {Do: "result", Text: `{"ok":true}`}}, outcome: volume.Completed, files: []string{"files/a", "result.json"}},
		"panic":                  {script: []behaviour{file, {Do: "panic"}}, outcome: volume.Failed, code: fault.ExecutionFailure, files: []string{"files/a"}},
		"full of bytes":          {script: []behaviour{{Do: "fill", Op: "bytes"}}, outcome: volume.Failed, code: fault.ResourceConstraint},
		"full of files":          {script: []behaviour{{Do: "fill", Op: "inodes"}}, outcome: volume.Failed, code: fault.ResourceConstraint},
		"file changed":           {script: []behaviour{file, {Do: "tamper", Path: "a"}}, code: fault.EvidenceIntegrityMismatch, reason: "digest"},
		"file is a link":         {script: replaced("symlink"), code: fault.EvidenceIntegrityMismatch, reason: "kind"},
		"file has another name":  {script: replaced("hardlink"), code: fault.EvidenceIntegrityMismatch, reason: "links"},
		"file is set-user-id":    {script: replaced("setuid"), code: fault.EvidenceIntegrityMismatch, reason: "mode"},
		"file is a sparse giant": {script: replaced("sparse"), code: fault.EvidenceIntegrityMismatch, reason: "size"},
		"file is gone":           {script: replaced("missing"), code: fault.EvidenceIntegrityMismatch, reason: "missing"},
	} {
		t.Run(name, func(t *testing.T) {
			r := start(t, tt.script...)
			d, err := r.listen()
			must(t, err)
			c, err := r.collect(d)
			if tt.reason != "" {
				if f := fault.From(err); f == nil || f.Code != tt.code || f.Details["reason"] != tt.reason {
					t.Errorf("read: %v, want %s for %s", err, tt.code, tt.reason)
				}
				return
			}
			must(t, err)
			var code fault.Code
			if c.Manifest.Error != nil {
				code = c.Manifest.Error.Code
			}
			if c.Manifest.Outcome != tt.outcome || code != tt.code {
				t.Errorf("%s, %q, want %s, %q", c.Manifest.Outcome, code, tt.outcome, tt.code)
			}
			for _, name := range tt.files {
				if c.Files[name] == nil {
					t.Errorf("%s is not there: %v", name, c.Files)
				}
			}
			free := c.Manifest.Exhausted
			if want := map[string]volume.Quota{"full of bytes": "bytes", "full of files": "inodes"}[name]; free != want {
				t.Errorf("exhausted %q, want %q", free, want)
			}
		})
	}
}

// TestViolations is about scripts after which the core must not listen any more.
func TestViolations(t *testing.T) {
	for name, tt := range map[string]struct {
		script []behaviour
		want   func(error) bool
	}{
		"second hello":      {[]behaviour{{Do: "hello"}}, violation},
		"endless progress":  {[]behaviour{{Do: "storm"}}, func(err error) bool { return errors.Is(err, wire.ErrFlood) }},
		"exit without done": {[]behaviour{{Do: "exit", Count: 3}}, func(err error) bool { return errors.Is(err, io.EOF) }},
	} {
		t.Run(name, func(t *testing.T) {
			r := start(t, tt.script...)
			if d, err := r.listen(); !tt.want(err) {
				t.Errorf("got %+v, %v", d, err)
			}
		})
	}
}

func violation(err error) bool {
	var e *wire.ProtocolError
	return errors.As(err, &e)
}

// TestLyingDone: a commitment to what is not there is refused, and a second one ends the conversation.
func TestLyingDone(t *testing.T) {
	r := start(t, behaviour{Do: "done"}, behaviour{Do: "result", Text: "{}"})
	d, err := r.listen()
	must(t, err)
	if _, err := r.listen(); !violation(err) {
		t.Errorf("second done: %v", err)
	}
	_, err = r.collect(d)
	if f := fault.From(err); f == nil || f.Code != fault.EvidenceIntegrityMismatch || f.Details["entry"] != volume.ManifestName {
		t.Errorf("read: %v", err)
	}
}

// TestLitter: what no manifest names does not matter to the reader, and the walk finds it.
func TestLitter(t *testing.T) {
	r := start(t, behaviour{Do: "litter", Count: 3}, behaviour{Do: "result", Text: "{}"})
	d, err := r.listen()
	must(t, err)
	_, err = r.collect(d)
	must(t, err)
	src, err := r.box.Evidence(r.ctx)
	must(t, err)
	entries, err := src.List(r.ctx, volume.ListLimits{Entries: 100, Depth: 4})
	must(t, err)
	got := map[string]volume.Kind{}
	for _, e := range entries {
		got[e.Path] = e.Kind
	}
	want := map[string]volume.Kind{"nonce": "file", "1": "directory", "1/manifest.json": "file", "1/result.json": "file",
		"1/litter\n0": "file", "1/litter\n1": "file", "1/litter\n2": "file"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestSwap reads a live volume in which the worker flips a committed name without end: no read blocks, and each gives
// either the committed bytes or a refusal.
func TestSwap(t *testing.T) {
	r := start(t, behaviour{Do: "file", Path: "a", Bytes: 5000}, behaviour{Do: "swap", Path: "a"}, behaviour{Do: "result", Text: "{}"})
	_, err := r.listen()
	must(t, err)
	src, err := r.box.Evidence(r.ctx)
	must(t, err)
	want := strings.Repeat("x", 5000)
	for range 20_000 {
		f, err := src.Open(r.ctx, "1/files/a", 5000)
		if err != nil {
			var refusal *volume.Refusal
			if !errors.As(err, &refusal) {
				t.Fatalf("%v is no refusal", err)
			}
			continue
		}
		got, err := io.ReadAll(f)
		f.Close()
		if err != nil || string(got) != want {
			t.Fatalf("read %d bytes, %v", len(got), err)
		}
	}
}

// TestTooMuch is about runs that meet a limit of their cgroup.
func TestTooMuch(t *testing.T) {
	t.Run("memory", func(t *testing.T) {
		r := start(t, behaviour{Do: "memory", Bytes: 200 << 20})
		if _, err := r.listen(); !errors.Is(err, io.EOF) {
			t.Errorf("the channel: %v", err)
		}
		must(t, r.box.Kill(r.ctx))
		if u, err := r.box.Usage(r.ctx); err != nil || u.OOMKills == nil || *u.OOMKills == 0 {
			t.Errorf("usage %+v, %v, want an OOM kill", u, err)
		}
	})
	t.Run("processes", func(t *testing.T) {
		r := start(t, behaviour{Do: "fork", Count: 100})
		r.listen() // the worker may not survive: a Go program ends when it gets no thread
		must(t, r.box.Kill(r.ctx))
		if u, err := r.box.Usage(r.ctx); err != nil || u.PIDsRefused == nil || !*u.PIDsRefused {
			t.Errorf("usage %+v, %v, want a refused process", u, err)
		}
	})
	t.Run("diagnostics", func(t *testing.T) {
		r := start(t, behaviour{Do: "stderr", Bytes: 8 << 20})
		_, err := r.listen()
		must(t, err)
		if n := len(r.box.Output()); n == 0 || n > 256<<10 {
			t.Errorf("%d bytes of diagnostics are kept", n)
		}
	})
}

// TestEnds: whatever the worker and its descendants do, the container ends when the core lets go of the channel.
func TestEnds(t *testing.T) {
	for _, script := range [][]behaviour{
		{{Do: "hang"}},
		{{Do: "orphan"}, {Do: "hang"}},
		{{Do: "signals"}, {Do: "orphan"}, {Do: "hang"}},
	} {
		last := script[max(0, len(script)-2)]
		t.Run(last.Do, func(t *testing.T) {
			r := start(t, script...)
			must(t, r.core.Close())
			if _, err := r.box.Wait(r.ctx); err != nil {
				t.Errorf("wait: %v", err)
			}
		})
	}
}

// TestGrasp: a grandchild finds no channel to hold, and signals do not end PID 1.
func TestGrasp(t *testing.T) {
	r := start(t, behaviour{Do: "orphan"}, behaviour{Do: "signals"})
	d, err := r.listen()
	must(t, err)
	c, err := r.collect(d)
	must(t, err)
	var result struct {
		OK      bool     `json:"ok"`
		Reports []report `json:"reports"`
	}
	must(t, json.Unmarshal(c.Files[volume.ResultName].(*blob).Bytes(), &result))
	want := []report{{Do: "orphan", Text: "channels held: 0"}, {Do: "signals", Count: 64}}
	if diff := cmp.Diff(want, result.Reports); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestCancelled: the script's one behaviour that listens to its context ends with the core's cancel.
func TestCancelled(t *testing.T) {
	r := start(t, behaviour{Do: "wait"})
	must(t, r.core.Send(wire.FromCore{Cancel: &wire.Cancel{Seq: 1}}))
	d, err := r.listen()
	must(t, err)
	c, err := r.collect(d)
	must(t, err)
	if c.Manifest.Outcome != volume.Cancelled {
		t.Errorf("outcome %s", c.Manifest.Outcome)
	}
}

// TestEngine has the engine carry the channel: an honest answer, a flood, and the end of the leash.
func TestEngine(t *testing.T) {
	d, err := docker.New(docker.Options{})
	must(t, err)
	defer d.Close()
	if facts, err := d.Probe(t.Context()); err != nil || !facts.Available || !facts.Privileged {
		t.Skip("no container engine for a privileged core: " + facts.Reason)
	}
	image, err := build()
	must(t, err)
	t.Cleanup(func() {
		// The driver removes no image, and the engine's own program may be absent: then one image stays.
		if _, err := exec.LookPath("docker"); err == nil {
			if out, err := exec.Command("docker", "rmi", "--force", image.Digest).CombinedOutput(); err != nil {
				t.Errorf("remove the image: %v, %s", err, out)
			}
		}
	})
	engine := driver{d, func(i *images.Image, _ string) (sandbox.Image, error) { return i.Sandbox(""), nil }}
	t.Run("honest", func(t *testing.T) {
		r := startOn(t, engine, behaviour{Do: "file", Path: "a", Bytes: 5000}, behaviour{Do: "orphan"})
		done, err := r.listen()
		must(t, err)
		c, err := r.collect(done)
		must(t, err)
		want := `{"ok":true,"reports":[{"count":0,"do":"orphan","text":"channels held: 0"}]}`
		if got := c.Files[volume.ResultName].(*blob).String(); got != want {
			t.Errorf("result %s, want %s", got, want)
		}
	})
	t.Run("flood", func(t *testing.T) {
		r := startOn(t, engine, behaviour{Do: "storm"})
		if _, err := r.listen(); !errors.Is(err, wire.ErrFlood) {
			t.Errorf("got %v", err)
		}
	})
	t.Run("leash", func(t *testing.T) {
		r := startOn(t, engine, behaviour{Do: "orphan"}, behaviour{Do: "hang"})
		must(t, r.core.Close())
		if _, err := r.box.Wait(r.ctx); err != nil {
			t.Errorf("wait: %v", err)
		}
	})
}
