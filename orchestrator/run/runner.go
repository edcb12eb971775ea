package run

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"sync"
	"time"

	"rea/evidence/fault"
	"rea/evidence/volume"
	"rea/sandbox"
	"rea/sandbox/journal"
)

// Deadlines that belong to the core and not to a provider.
const (
	// startTimeout bounds create, start and the worker's hello: tens of milliseconds on a quiet host, seconds on one
	// that is short of memory or processors.
	startTimeout = 60 * time.Second
	// drainTimeout is how long a worker may take to seal what it has after a cancellation. It is short: a caller that
	// cancelled waits for an empty cgroup, and one second is promised for that.
	drainTimeout = 400 * time.Millisecond
	// collectTimeout bounds reading a volume whose size is known to be within its quota.
	collectTimeout = 5 * time.Minute
	// teardownTimeout bounds kill and removal, which run detached from the caller's cancellation.
	teardownTimeout = 60 * time.Second
	// ceilingPoll is how often a run that does not fit beneath the host-wide ceiling asks again: other processes free
	// room there without telling us.
	ceilingPoll = 200 * time.Millisecond
)

// Causes of our own for ending a run's context; they decide its outcome.
var (
	errDeadline = errors.New("the run's deadline expired")
	errIdle     = errors.New("the worker was silent for too long")
	errClosing  = errors.New("rea is shutting down")
)

// Options configure a Runner.
type Options struct {
	Runtime sandbox.Runtime
	Owner   *journal.Owner
	// Class is the runtime class of every run; "" is the driver's default. A missing one is refused.
	Class string
	// Image resolves the name of a provider's image.
	Image func(ctx context.Context, name string) (sandbox.Image, error)
	// Create opens a new file of the store for content that comes out of a volume.
	Create func(ctx context.Context) (volume.Sink, error)
	// WorkerSHA256 is the digest of the embedded worker.
	WorkerSHA256 string
	// Concurrent is how many runs this process has under way at once; 0 means 1.
	Concurrent int
	// Ceiling is the memory in bytes that all runs of this host share; 0 where it is not known. A run that would not leave
	// room for the others of Concurrent is given less than its provider's Needs (see fit).
	Ceiling int64
	// HostFull reports whether an error of Create says that the host-wide ceiling has no room just now; such a run
	// waits. Nil means never.
	HostFull func(error) bool
}

// Runner runs requests. Its methods may be called from several goroutines.
type Runner struct {
	o    Options
	gate *gate
	now  func() time.Time

	mu      sync.Mutex
	closed  bool
	active  sync.WaitGroup
	closing context.Context
	close   context.CancelCauseFunc
}

// New returns a Runner.
func New(o Options) *Runner {
	r := &Runner{o: o, gate: newGate(max(o.Concurrent, 1)), now: time.Now}
	r.closing, r.close = context.WithCancelCause(context.Background())
	return r
}

// Do runs one request to its end, teardown included. The error is a *fault.Error whose details name the outcome. With
// an error the result is not nil when something verified before it: then Payload and Files hold that part.
func (r *Runner) Do(ctx context.Context, req Request) (*Result, error) {
	if !r.begin() {
		return nil, fault.New(fault.ProviderUnavailable, "rea is shutting down.", "Repeat the call with a new process.")
	}
	defer r.active.Done()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	stop := context.AfterFunc(r.closing, func() { cancel(errClosing) })
	defer stop()

	report := req.Progress
	if report == nil {
		report = func(Progress) {}
	}
	var once sync.Mutex // the gate and the run may report from different goroutines
	progress := func(p Progress) {
		once.Lock()
		defer once.Unlock()
		report(p)
	}
	leave, err := r.gate.enter(ctx, func(n int) { progress(Progress{Phase: "queued", Position: n}) })
	if err != nil {
		return nil, stopped(req.Operation, err, nil)
	}
	defer leave()
	a := newAttempt(r, req, progress)
	return a.run(ctx)
}

func (r *Runner) begin() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return false
	}
	r.active.Add(1)
	return true
}

// Close cancels what is under way and waits for its teardown, or for ctx.
func (r *Runner) Close(ctx context.Context) error {
	r.mu.Lock()
	r.closed = true
	r.mu.Unlock()
	r.close(errClosing)
	done := make(chan struct{})
	go func() { defer close(done); r.active.Wait() }()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// newNonce returns 64 random hex digits.
func newNonce() string {
	var b [32]byte
	rand.Read(b[:]) // never fails
	return hex.EncodeToString(b[:])
}

func digest(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}
