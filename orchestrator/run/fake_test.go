package run

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"rea/evidence"
	"rea/evidence/fault"
	"rea/evidence/volume"
	"rea/providers"
	"rea/providers/wire"
	"rea/sandbox"
	"rea/sandbox/journal"
)

// The fakes below stand for an engine and a worker, for the corners of the state machine that a real engine cannot be
// brought into at will. The real ones are tested in package sandboxtest and in the command's own tests.

// script is what a fake worker does with its call; it runs in its own goroutine.
type script func(w *fakeWorker, call *wire.Call)

type fakeRuntime struct {
	hello     func(*wire.Hello)
	script    script
	usage     sandbox.Usage
	remains   []sandbox.Resource
	createErr func() error

	mu    sync.Mutex
	boxes []*fakeBox
}

func (r *fakeRuntime) Name() string                                 { return "fake" }
func (r *fakeRuntime) Probe(context.Context) (sandbox.Facts, error) { return sandbox.Facts{}, nil }
func (r *fakeRuntime) Sweep(context.Context, *journal.Dead) (sandbox.Receipt, error) {
	return sandbox.Receipt{}, nil
}

func (r *fakeRuntime) Create(_ context.Context, s sandbox.Spec, _ *journal.Owner) (sandbox.Sandbox, error) {
	if r.createErr != nil {
		if err := r.createErr(); err != nil {
			return nil, err
		}
	}
	dir, err := os.MkdirTemp("", "rea-run-test-")
	if err != nil {
		return nil, err
	}
	b := &fakeBox{runtime: r, spec: s, dir: dir, ended: make(chan struct{})}
	r.mu.Lock()
	r.boxes = append(r.boxes, b)
	r.mu.Unlock()
	return b, nil
}

type fakeBox struct {
	runtime *fakeRuntime
	spec    sandbox.Spec
	dir     string
	worker  net.Conn
	ended   chan struct{}

	mu        sync.Mutex
	killed    bool
	destroyed bool
}

func (b *fakeBox) Start(context.Context) (io.ReadWriteCloser, error) {
	core, worker := net.Pipe()
	b.worker = worker
	go func() {
		defer close(b.ended)
		defer worker.Close()
		w := &fakeWorker{Worker: wire.NewWorker(worker, worker), box: b, cancelled: make(chan struct{}), digest: make(chan string, 1)}
		hello := &wire.Hello{Version: wire.Version, Worker: "fake", PID: 1, UID: sandbox.RunUID, GID: sandbox.RunUID, Nonce: b.spec.Evidence.Nonce,
			Evidence: wire.Volume{Type: "tmpfs", Bytes: b.spec.Evidence.Bytes, Inodes: b.spec.Evidence.Inodes, NoSUID: true, NoDev: true, NoExec: true}}
		if b.runtime.hello != nil {
			b.runtime.hello(hello)
		}
		if w.Send(wire.FromWorker{Hello: hello}) != nil {
			return
		}
		frame, err := w.Next()
		if err != nil || frame.Call == nil {
			return
		}
		go func() {
			for {
				f, err := w.Next()
				if f.Digest != nil {
					w.digest <- f.Digest.SHA256
					continue
				}
				if err != nil || f.Cancel != nil { // cancelled, or the leash is cut
					close(w.cancelled)
					return
				}
			}
		}()
		b.runtime.script(w, frame.Call)
	}()
	return core, nil
}

func (b *fakeBox) Wait(context.Context) (sandbox.Exit, error) { <-b.ended; return sandbox.Exit{}, nil }
func (b *fakeBox) Evidence(context.Context) (volume.Source, error) {
	f, err := os.Open(b.dir)
	if err != nil {
		return nil, err
	}
	return volume.Dir(f), nil
}
func (b *fakeBox) Usage(context.Context) (sandbox.Usage, error) { return b.runtime.usage, nil }
func (b *fakeBox) Kill(context.Context) error {
	b.mu.Lock()
	b.killed = true
	b.mu.Unlock()
	if b.worker != nil {
		b.worker.Close()
		<-b.ended
	}
	return nil
}
func (b *fakeBox) Destroy(context.Context) (sandbox.Receipt, error) {
	b.mu.Lock()
	b.destroyed = true
	b.mu.Unlock()
	if b.worker != nil {
		b.worker.Close()
		<-b.ended
	}
	os.RemoveAll(b.dir)
	return sandbox.Receipt{Made: []sandbox.Resource{{Kind: sandbox.KindContainer, Name: b.spec.ID}}, Remains: b.runtime.remains}, nil
}
func (b *fakeBox) Proof() sandbox.Proof { return sandbox.Proof{Driver: "fake"} }
func (b *fakeBox) Output() []byte       { return []byte("worker's last words") }

type fakeWorker struct {
	*wire.Worker
	box       *fakeBox
	cancelled chan struct{}
	digest    chan string // the core's
}

// seal writes the files and the manifest of a call and commits to it.
func (w *fakeWorker) seal(call *wire.Call, change func(*volume.Manifest), files map[string]string) {
	m := volume.Manifest{Nonce: w.box.spec.Evidence.Nonce, Seq: call.Seq, RequestSHA256: sha(call.Params), Outcome: volume.Completed}
	dir := filepath.Join(w.box.dir, volume.Folder(call.Seq))
	for name, content := range files {
		at := filepath.Join(dir, filepath.FromSlash(name))
		os.MkdirAll(filepath.Dir(at), 0o700)
		os.WriteFile(at, []byte(content), 0o600)
		m.Files = append(m.Files, volume.File{Path: name, Size: int64(len(content)), SHA256: sha([]byte(content))})
	}
	if change != nil {
		change(&m)
	}
	raw, err := m.Encode()
	if err != nil {
		panic(err) // the fake's own mistake
	}
	os.MkdirAll(dir, 0o700)
	os.WriteFile(filepath.Join(dir, volume.ManifestName), raw, 0o600)
	w.Send(wire.FromWorker{Done: &wire.Done{Seq: call.Seq, ManifestSHA256: sha(raw), ManifestBytes: int64(len(raw))}})
}

func sha(b []byte) string {
	s := sha256.Sum256(b)
	return hex.EncodeToString(s[:])
}

// memorySink keeps one file in memory.
type memorySink struct{ bytes.Buffer }

func (s *memorySink) Commit() (evidence.Blob, error) { return memoryBlob(s.Bytes()), nil }
func (s *memorySink) Abort()                         {}

type memoryBlob []byte

func (b memoryBlob) SHA256() string               { return sha(b) }
func (b memoryBlob) Size() int64                  { return int64(len(b)) }
func (b memoryBlob) Open() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(b)), nil }

// fakeProvider has one operation, "look", whose only valid result is {"ok":true}.
type fakeProvider struct{ needs providers.Needs }

func (p fakeProvider) Manifest() providers.Manifest {
	return providers.Manifest{ID: "fake", Name: "Fake", Version: "1", Worker: "fake", Image: "static", Needs: p.needs}
}

func (p fakeProvider) Operations() []providers.Operation {
	return []providers.Operation{{Name: "look", Check: func(_ context.Context, r io.Reader, _ jsontext.Value) (providers.Summary, error) {
		raw, err := io.ReadAll(io.LimitReader(r, 1<<20))
		if err != nil {
			return providers.Summary{}, err
		}
		if string(raw) != `{"ok":true}` {
			return providers.Summary{}, fault.New(fault.UnreadableOutput, "not ok", "").With("reason", strings.ToValidUTF8(string(raw), "?"))
		}
		return providers.Summary{Format: "file"}, nil
	}}}
}

func newFake(t *testing.T, r *fakeRuntime) (*Runner, Request) {
	t.Helper()
	runner := New(Options{
		Runtime: r,
		Image:   func(context.Context, string) (sandbox.Image, error) { return sandbox.Image{Name: "fake"}, nil },
		Create:  func(context.Context) (volume.Sink, error) { return &memorySink{}, nil },
	})
	t.Cleanup(func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		for _, b := range r.boxes {
			if !b.destroyed {
				t.Errorf("sandbox %s was not destroyed", b.spec.ID)
			}
		}
	})
	needs := providers.Needs{Memory: 64 << 20, CPU: 1, PIDs: 32, EvidenceBytes: 1 << 20, EvidenceInodes: 100, Seccomp: "static", Deadline: time.Minute, Idle: time.Minute}
	return runner, Request{Provider: fakeProvider{needs}, Operation: "look", Params: jsontext.Value(`{}`)}
}
