package docker

import (
	"context"
	"errors"
	"os"
	"strings"
	"sync"
	"time"

	"rea/evidence/fault"
	"rea/evidence/volume"
	"rea/sandbox"
	"rea/sandbox/cgroup"
	"rea/sandbox/journal"
)

// Deadlines of what must not end with the caller's context.
const (
	// createTimeout bounds the engine's answer to a create: without it the answer would be lost with the caller, and
	// with it the knowledge of what exists.
	createTimeout = 30 * time.Second
	// cleanupTimeout bounds a teardown as a whole.
	cleanupTimeout = 30 * time.Second
)

// box is one contained run. It implements sandbox.Sandbox.
type box struct {
	d      *Driver
	e      *engine
	own    *journal.Owner
	spec   sandbox.Spec // with the user that the run really has
	place  placement
	dir    string // the run's directory
	volume string // name of the engine's volume, "" where the volume is ours
	group  *cgroup.Group
	root   *os.File // root of the evidence volume where it is ours
	diag   sandbox.Capture

	ended chan struct{} // closed when the container has ended; what follows is written before
	exit  sandbox.Exit
	lost  error // why how it ended is not known

	destroying sync.Mutex       // held through Destroy
	receipt    *sandbox.Receipt // of the last Destroy

	mu      sync.Mutex
	made    []sandbox.Resource
	id      string // the container's id, "" until it is made
	proof   sandbox.Proof
	control *channel
	stop    context.CancelFunc // of the goroutine that waits for the end; nil until Start
	leaf    *leaf              // the container's own cgroup, where it is the only one
	last    sandbox.Usage      // last reading of it
	oom     bool               // the engine says that the container met its memory limit
}

// containerName is the name of a run's container and, where the engine makes it, of its volume.
func containerName(run string) string { return sandbox.Prefix + "-" + run }

// make journals a resource and makes it. Where the maker is sure that nothing was made the entry is struck out again;
// a *lostAnswer leaves it, unconfirmed: what was asked for may exist, or appear yet.
func (b *box) make(kind, name string, do func() error) error {
	entry, err := b.own.Make(b.spec.ID, kind, name, map[string]string{sandbox.DriverKey: driverName})
	if err != nil {
		return err
	}
	b.mu.Lock()
	b.made = append(b.made, sandbox.Resource{Kind: kind, Name: name})
	b.mu.Unlock()
	err = do()
	var lost *lostAnswer
	if errors.As(err, &lost) {
		return lost.error
	}
	if err != nil {
		return errors.Join(err, b.own.Gone(entry))
	}
	return b.own.Confirm(entry)
}

// lostAnswer is the error of a create whose answer was not seen.
type lostAnswer struct{ error }

// Proof says how the run is contained.
func (b *box) Proof() sandbox.Proof {
	b.mu.Lock()
	defer b.mu.Unlock()
	p := b.proof
	p.Unproved = append([]string{}, b.proof.Unproved...)
	return p
}

// Output returns what the container wrote to its standard error.
func (b *box) Output() []byte { return b.diag.Bytes() }

// Evidence gives the volume for reading: our own mount, or the engine's copy-out of one file after another.
func (b *box) Evidence(ctx context.Context) (volume.Source, error) {
	if b.root != nil {
		return volume.Dir(b.root), nil
	}
	b.sample() // the container is about to be ended: its counters go with it
	return volume.Tar(b.copyOut), nil
}

// Usage reads the run's counters: of our cgroup, or the last ones that the container's own gave.
func (b *box) Usage(ctx context.Context) (sandbox.Usage, error) {
	usage := b.counters()
	err := b.free(ctx, &usage)
	return usage, err
}

func (b *box) counters() sandbox.Usage {
	if b.group == nil {
		return b.leafUsage()
	}
	u := b.group.Usage()
	return sandbox.Usage{
		CPU: u.CPU, MemoryPeak: u.MemoryPeak, PIDsPeak: u.PIDsPeak, OOMKills: u.OOMKills,
		PIDsRefused: u.PIDsReached, Processes: u.Processes,
	}
}

// free adds what is left of the evidence volume where it can be examined.
func (b *box) free(ctx context.Context, u *sandbox.Usage) error {
	if b.root == nil {
		return nil
	}
	free, err := volume.Dir(b.root).Free(ctx)
	if err != nil {
		return fault.From(err)
	}
	if free != nil {
		u.EvidenceFree = &sandbox.Free{Bytes: free.Bytes, Inodes: free.Inodes}
	}
	return nil
}

// runtimeVersion names the runtime for the proof, "runc 1.1.5".
func runtimeVersion(e *engine, class string) string {
	class = runtimeClass(class)
	return strings.TrimSpace(class + " " + e.runtimes[class])
}

// ownKernel reports whether a runtime class is gVisor, under the name that its own documents give it.
func ownKernel(class string) bool { return class == "runsc" }
