package run

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"rea/evidence/fault"
	"rea/evidence/target"
	"rea/evidence/volume"
	"rea/providers/wire"
	"rea/sandbox"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func ptr[T any](v T) *T { return &v }

var ok = map[string]string{volume.ResultName: `{"ok":true}`}

// TestOutcomes drives a run into each of its outcomes. The code that belongs to each outcome is the table "container
// outcome to code" of the runtime contract.
func TestOutcomes(t *testing.T) {
	tests := []struct {
		name    string
		runtime *fakeRuntime
		adjust  func(*Request)
		code    fault.Code // "" for success
		outcome Outcome
	}{
		{name: "completed", runtime: &fakeRuntime{script: func(w *fakeWorker, c *wire.Call) { w.seal(c, nil, ok) }}, outcome: Completed},
		{name: "failed with the worker's own error", runtime: &fakeRuntime{script: func(w *fakeWorker, c *wire.Call) {
			w.seal(c, func(m *volume.Manifest) {
				m.Outcome = volume.Failed
				m.Error = &volume.Failure{Code: fault.UnsupportedTarget, Message: "not a zip", Action: "give a zip"}
			}, nil)
		}}, code: fault.UnsupportedTarget, outcome: Failed},
		{name: "a code that the taxonomy lacks", runtime: &fakeRuntime{script: func(w *fakeWorker, c *wire.Call) {
			w.seal(c, func(m *volume.Manifest) {
				m.Outcome = volume.Failed
				m.Error = &volume.Failure{Code: fault.ExecutionFailure, Message: "x", Action: "y"}
			}, nil)
		}}, code: fault.ExecutionFailure, outcome: Failed},
		{name: "deadline", runtime: &fakeRuntime{script: hang}, adjust: func(r *Request) {
			p := r.Provider.(fakeProvider)
			p.needs.Deadline = time.Millisecond
			r.Provider = p
		}, code: fault.ProviderTimeout, outcome: Deadline},
		{name: "silence", runtime: &fakeRuntime{script: hang}, adjust: func(r *Request) {
			p := r.Provider.(fakeProvider)
			p.needs.Idle = time.Millisecond
			r.Provider = p
		}, code: fault.ProviderTimeout, outcome: Deadline},
		{name: "memory", runtime: &fakeRuntime{script: die, usage: sandbox.Usage{OOMKills: ptr[int64](1)}}, code: fault.ResourceConstraint, outcome: MemoryLimit},
		{name: "pids", runtime: &fakeRuntime{script: die, usage: sandbox.Usage{PIDsRefused: ptr(true)}}, code: fault.ResourceConstraint, outcome: PIDsLimit},
		{name: "volume full", runtime: &fakeRuntime{script: die, usage: sandbox.Usage{EvidenceFree: &sandbox.Free{Bytes: 0, Inodes: 5}}}, code: fault.ResourceConstraint, outcome: EvidenceLimit},
		{name: "volume full and said so", runtime: &fakeRuntime{script: func(w *fakeWorker, c *wire.Call) {
			w.seal(c, func(m *volume.Manifest) {
				m.Outcome, m.Exhausted = volume.Failed, "inodes"
				m.Error = &volume.Failure{Code: fault.ResourceConstraint, Message: "full", Action: "less"}
			}, nil)
		}, usage: sandbox.Usage{EvidenceFree: &sandbox.Free{Bytes: 1 << 20}}}, code: fault.ResourceConstraint, outcome: EvidenceLimit},
		{name: "flood", runtime: &fakeRuntime{script: func(w *fakeWorker, c *wire.Call) {
			text := strings.Repeat("x", wire.MaxText)
			for w.Send(wire.FromWorker{Progress: &wire.Progress{Seq: c.Seq, Phase: "p", Text: text}}) == nil {
			}
		}}, code: fault.ResourceConstraint, outcome: OutputLimit},
		{name: "protocol", runtime: &fakeRuntime{script: func(w *fakeWorker, c *wire.Call) {
			err := w.Send(wire.FromWorker{Done: &wire.Done{Seq: c.Seq + 1, ManifestSHA256: sha(nil), ManifestBytes: 1}})
			if err == nil {
				<-w.cancelled
			}
		}}, code: fault.UnreadableOutput, outcome: Failed},
		{name: "killed from outside", runtime: &fakeRuntime{script: die, usage: sandbox.Usage{OOMKills: ptr[int64](0), PIDsRefused: ptr(false)}}, code: fault.ProviderUnavailable, outcome: Killed},
		{name: "lies about a digest", runtime: &fakeRuntime{script: func(w *fakeWorker, c *wire.Call) {
			w.seal(c, func(m *volume.Manifest) { m.Files[0].SHA256 = sha([]byte("something else")) }, ok)
		}}, code: fault.EvidenceIntegrityMismatch, outcome: Failed},
		{name: "result against its contract", runtime: &fakeRuntime{script: func(w *fakeWorker, c *wire.Call) {
			w.seal(c, nil, map[string]string{volume.ResultName: `{"ok":false}`})
		}}, code: fault.UnreadableOutput, outcome: Completed},
		{name: "result not canonical", runtime: &fakeRuntime{script: func(w *fakeWorker, c *wire.Call) {
			w.seal(c, nil, map[string]string{volume.ResultName: `{"ok": true}`})
		}}, code: fault.UnreadableOutput, outcome: Completed},
		{name: "completed without a result", runtime: &fakeRuntime{script: func(w *fakeWorker, c *wire.Call) { w.seal(c, nil, nil) }}, code: fault.UnreadableOutput, outcome: Completed},
		{name: "something remains", runtime: &fakeRuntime{script: func(w *fakeWorker, c *wire.Call) { w.seal(c, nil, ok) },
			remains: []sandbox.Resource{{Kind: sandbox.KindCgroup, Name: "x"}}}, code: fault.CleanupIncomplete, outcome: Completed},
		{name: "another volume", runtime: &fakeRuntime{hello: func(h *wire.Hello) { h.Nonce = strings.Repeat("0", 64) }, script: hang}, code: fault.CapabilityUnavailable, outcome: Infrastructure},
		{name: "no quota", runtime: &fakeRuntime{hello: func(h *wire.Hello) { h.Evidence.Bytes *= 2 }, script: hang}, code: fault.CapabilityUnavailable, outcome: Infrastructure},
		{name: "executable volume", runtime: &fakeRuntime{hello: func(h *wire.Hello) { h.Evidence.NoExec = false }, script: hang}, code: fault.CapabilityUnavailable, outcome: Infrastructure},
		{name: "not the first process", runtime: &fakeRuntime{hello: func(h *wire.Hello) { h.PID = 7 }, script: hang}, code: fault.CapabilityUnavailable, outcome: Infrastructure},
		{name: "engine cannot create", runtime: &fakeRuntime{createErr: func() error {
			return fault.New(fault.CapabilityUnavailable, "no engine", "install one")
		}}, code: fault.CapabilityUnavailable, outcome: Infrastructure},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			runner, req := newFake(t, tt.runtime)
			if tt.adjust != nil {
				tt.adjust(&req)
			}
			a := newAttempt(runner, req, func(Progress) {})
			result, err := a.run(context.Background())
			if a.record.Outcome != tt.outcome {
				t.Errorf("outcome %q, want %q (error %v)", a.record.Outcome, tt.outcome, err)
			}
			if tt.code == "" {
				if err != nil || result == nil || result.Payload.Size() != int64(len(ok[volume.ResultName])) {
					t.Fatalf("got %+v, %v; want the result", result, err)
				}
				return
			}
			var f *fault.Error
			if !errors.As(err, &f) || f.Code != tt.code {
				t.Fatalf("got error %v, want code %s", err, tt.code)
			}
		})
	}
}

// hang works until it is cancelled, and then ends without sealing.
func hang(w *fakeWorker, _ *wire.Call) { <-w.cancelled }

// die ends at once.
func die(*fakeWorker, *wire.Call) {}

func TestCancelKeepsWhatWasSealed(t *testing.T) {
	started := make(chan struct{})
	runtime := fakeRuntime{script: func(w *fakeWorker, c *wire.Call) {
		close(started)
		<-w.cancelled
		w.seal(c, func(m *volume.Manifest) {
			m.Outcome = volume.Cancelled
			m.Error = &volume.Failure{Code: fault.Cancelled, Message: "cancelled", Action: "repeat"}
		}, ok)
	}}
	runner, req := newFake(t, &runtime)
	ctx, cancel := context.WithCancel(context.Background())
	go func() { <-started; cancel() }()
	result, err := runner.Do(ctx, req)
	if f := fault.From(err); f == nil || f.Code != fault.Cancelled {
		t.Fatalf("got %v, want cancelled", err)
	}
	if result == nil || result.Payload.IsNull() {
		t.Fatal("the part that the worker sealed is lost")
	}
}

func TestCancelIsFinal(t *testing.T) {
	// The worker commits at the very moment in which the caller gives up: the call must not end in success.
	ctx, cancel := context.WithCancel(context.Background())
	runtime := fakeRuntime{script: func(w *fakeWorker, c *wire.Call) { cancel(); w.seal(c, nil, ok) }}
	runner, req := newFake(t, &runtime)
	if _, err := runner.Do(ctx, req); err == nil || fault.From(err).Code != fault.Cancelled {
		t.Fatalf("got %v, want cancelled", err)
	}
}

func TestTargetIsBound(t *testing.T) {
	path := filepath.Join(t.TempDir(), "t")
	if err := os.WriteFile(path, []byte("abc"), 0o600); err != nil {
		t.Fatal(err)
	}
	const abc = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad" // FIPS 180-4, example of SHA-256
	for _, tt := range []struct {
		name string
		seen *volume.TargetSeen
		code fault.Code
	}{
		{"same bytes", &volume.TargetSeen{SHA256: abc}, ""},
		{"other bytes", &volume.TargetSeen{SHA256: sha([]byte("abd"))}, fault.ArtifactChanged},
		{"nothing said", nil, fault.UnreadableOutput},
	} {
		t.Run(tt.name, func(t *testing.T) {
			runtime := fakeRuntime{script: func(w *fakeWorker, c *wire.Call) {
				w.seal(c, func(m *volume.Manifest) { m.Target = tt.seen }, ok)
			}}
			runner, req := newFake(t, &runtime)
			f, err := os.Open(path)
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			req.Target = &Target{Path: path, Roots: []target.Root{{File: f}}}
			result, err := runner.Do(context.Background(), req)
			if tt.code == "" {
				if err != nil || result.Target.File != abc {
					t.Fatalf("got %+v, %v", result, err)
				}
				return
			}
			if err == nil || fault.From(err).Code != tt.code {
				t.Fatalf("got %v, want %s", err, tt.code)
			}
		})
	}
}

// A worker gets our digest of a settled file, with the mark by which it knows the file; of one that changed just now, or
// lies where times say little, it gets neither.
func TestDigestIsTold(t *testing.T) {
	path := filepath.Join(t.TempDir(), "t")
	if err := os.WriteFile(path, []byte("abc"), 0o600); err != nil {
		t.Fatal(err)
	}
	const abc = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad" // FIPS 180-4, example of SHA-256
	later := time.Now().Add(time.Hour)
	for _, tt := range []struct {
		name   string
		now    time.Time
		doubts []string
		told   bool
	}{
		{"settled", later, nil, true},
		{"fresh", time.Now(), nil, false},
		{"doubtful", later, []string{"a file system that keeps no times"}, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var mark, told string
			runtime := fakeRuntime{script: func(w *fakeWorker, c *wire.Call) {
				if mark = c.Mark; mark != "" {
					told = <-w.digest
				}
				w.seal(c, func(m *volume.Manifest) { m.Target = &volume.TargetSeen{SHA256: abc} }, ok)
			}}
			runner, req := newFake(t, &runtime)
			runner.now = func() time.Time { return tt.now }
			f, err := os.Open(path)
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			req.Target = &Target{Path: path, Roots: []target.Root{{File: f}}, Doubts: tt.doubts}
			if _, err := runner.Do(context.Background(), req); err != nil {
				t.Fatal(err)
			}
			if want := map[bool]string{true: abc}[tt.told]; told != want || (mark == target.Mark(f, later)) != tt.told {
				t.Errorf("mark %q, digest %q; told should be %t", mark, told, tt.told)
			}
		})
	}
}

func TestWaitsWhileTheHostIsFull(t *testing.T) {
	full := errors.New("full")
	refusals := 2
	runtime := fakeRuntime{script: func(w *fakeWorker, c *wire.Call) { w.seal(c, nil, ok) }, createErr: func() error {
		if refusals == 0 {
			return nil
		}
		refusals--
		return full
	}}
	runner, req := newFake(t, &runtime)
	runner.o.HostFull = func(err error) bool { return errors.Is(err, full) }
	var phases []string
	req.Progress = func(p Progress) { phases = append(phases, p.Phase) }
	if _, err := runner.Do(context.Background(), req); err != nil {
		t.Fatal(err)
	}
	want := []string{"prepare", "queued", "queued", "start", "analyze", "collect", "retain", "teardown"}
	if !slices.Equal(phases, want) {
		t.Errorf("phases %v, want %v", phases, want)
	}
}

func TestGateIsFairAndTellsPlaces(t *testing.T) {
	g := newGate(1)
	leave, err := g.enter(context.Background(), nil)
	if err != nil {
		t.Fatal(err)
	}
	type place struct{ who, n int }
	places := make(chan place, 16)
	order := make(chan int, 3)
	quit, cancel := context.WithCancel(context.Background())
	for who := range 3 {
		ctx := context.Background()
		if who == 1 {
			ctx = quit
		}
		queued := make(chan struct{}, 4)
		go func() {
			out, err := g.enter(ctx, func(n int) { places <- place{who, n}; queued <- struct{}{} })
			if err != nil {
				order <- -who
				return
			}
			order <- who
			out()
		}()
		<-queued
	}
	cancel() // number 1 gives up: number 2 moves to place 2
	if got := <-order; got != -1 {
		t.Fatalf("first to end is %d, want the one who gave up", got)
	}
	leave()
	if a, b := <-order, <-order; a != 0 || b != 2 {
		t.Errorf("order %d, %d; want 0, 2", a, b)
	}
	close(places)
	var got []place
	for p := range places {
		got = append(got, p)
	}
	want := []place{{0, 1}, {1, 2}, {2, 3}, {0, 1}, {2, 2}, {2, 1}}
	if !slices.Equal(got, want) {
		t.Errorf("places %v, want %v", got, want)
	}
}

func TestCloseEndsWhatIsUnderWay(t *testing.T) {
	started := make(chan struct{})
	runtime := fakeRuntime{script: func(w *fakeWorker, _ *wire.Call) { close(started); <-w.cancelled }}
	runner, req := newFake(t, &runtime)
	done := make(chan error, 1)
	go func() { _, err := runner.Do(context.Background(), req); done <- err }()
	<-started
	if err := runner.Close(context.Background()); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err == nil || fault.From(err).Code != fault.Cancelled {
		t.Errorf("got %v, want cancelled", err)
	}
	if _, err := runner.Do(context.Background(), req); err == nil {
		t.Error("a closed runner took a request")
	}
}

// A target that is replaced by a rename loses its last name while we have it open. What then fails to bind it is not
// the host's fault.
func TestReplacedTargetIsTold(t *testing.T) {
	path := filepath.Join(t.TempDir(), "t")
	if err := os.WriteFile(path, []byte("abc"), 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	runtime := fakeRuntime{createErr: func() error {
		if err := os.Remove(path); err != nil {
			t.Error(err)
		}
		return fault.New(fault.ExecutionFailure, "a mount failed", "look at the host")
	}}
	runner, req := newFake(t, &runtime)
	req.Target = &Target{Path: path, Roots: []target.Root{{File: f}}}
	if _, err := runner.Do(context.Background(), req); err == nil || fault.From(err).Code != fault.ArtifactChanged {
		t.Errorf("got %v, want artifact_changed", err)
	}
}
