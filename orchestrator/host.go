// Package orchestrator assembles the machinery that a request travels through: the store of Evidence, the driver that
// makes sandboxes, the journal of what this process owns, and the runner. Host is that machinery; it is what a session
// stands on and what the command line's host commands ask.
//
// Everything is made when it is first needed, so that a command which runs nothing touches nothing. Package
// orchestrator knows no flag, no environment variable and no wire.
package orchestrator

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"rea/evidence"
	"rea/evidence/fault"
	"rea/evidence/store"
	"rea/evidence/volume"
	"rea/images"
	"rea/orchestrator/run"
	"rea/sandbox"
	"rea/sandbox/cgroup"
	"rea/sandbox/docker"
	"rea/sandbox/journal"
	"rea/sandbox/keeper"
	"rea/sandbox/oci"
)

// Driver names in a Config.
const (
	DriverAuto   = "auto" // Docker if its engine answers, else an OCI runtime, else an error with remedies
	DriverDocker = "docker"
	DriverOCI    = oci.DriverName
)

// Config is the immutable configuration of a Host.
type Config struct {
	Driver     string       // DriverAuto, DriverDocker or DriverOCI
	Runtime    string       // runtime class of every run, "" for the driver's default; a missing one is refused
	EngineHost string       // engine address as in DOCKER_HOST, "" for the usual socket
	StateDir   string       // absolute: store, journal, images and locks
	Concurrent int          // runs of this process at once; 0 means one for each processor
	Keeper     []string     // arguments of the hidden mode that ends runs when this process dies; nil for none, in tests
	Log        func(string) // diagnostics of background work; nil drops them
}

// Host is the machinery of one process. It is safe for concurrent use; end it with Close.
type Host struct {
	config Config

	mu      sync.Mutex
	store   *store.Store
	machine *machine

	opening sync.Mutex // held while the machine is made: that may take seconds
}

// machine is what runs need; it exists from the first run on.
type machine struct {
	owner   *journal.Owner
	keeper  *keeper.Keeper
	runtime sandbox.Runtime
	runner  *run.Runner
	sweeper sync.WaitGroup
	stop    context.CancelFunc
}

// New returns a Host. It touches nothing yet.
func New(c Config) *Host {
	if c.Concurrent <= 0 {
		c.Concurrent = runtime.NumCPU()
	}
	if c.Log == nil {
		c.Log = func(string) {}
	}
	return &Host{config: c}
}

// sweepEvery is how often a long-lived process finishes what dead ones left.
const sweepEvery = 10 * time.Minute

// closeTimeout bounds waiting for the keeper: it has nothing to do when the journal is empty.
const closeTimeout = 5 * time.Second

// Close cancels what runs, waits for its teardown and gives up the journal. The error is cleanup_incomplete when
// something remains on the host.
func (h *Host) Close(ctx context.Context) error {
	h.mu.Lock()
	m := h.machine
	h.machine = nil
	h.mu.Unlock()
	if m == nil {
		return nil
	}
	return m.close(ctx)
}

func (m *machine) close(ctx context.Context) error {
	err := m.runner.Close(ctx)
	m.stop()
	m.sweeper.Wait()
	err = errors.Join(err, m.owner.Close())
	if m.keeper != nil {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTimeout)
		defer cancel()
		err = errors.Join(err, m.keeper.Close(ctx))
	}
	if c, ok := m.runtime.(interface{ Close() error }); ok {
		err = errors.Join(err, c.Close())
	}
	return err
}

// Store opens the store of Evidence.
func (h *Host) Store() (*store.Store, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.store != nil {
		return h.store, nil
	}
	s, err := store.Open(filepath.Join(h.config.StateDir, "store"), store.Options{})
	if err != nil {
		return nil, err
	}
	h.store = s
	return s, nil
}

// Spooler keeps results that are assembled outside a container.
func (h *Host) Spooler() evidence.Spooler { return spooler{h} }

type spooler struct{ h *Host }

// Spool implements evidence.Spooler.
func (s spooler) Spool(ctx context.Context, write func(w io.Writer) error) (evidence.Payload, error) {
	st, err := s.h.Store()
	if err != nil {
		return evidence.Payload{}, err
	}
	return st.Spool(ctx, write)
}

// Retainer returns the keeper of one session's records. It takes its lease with the first record.
func (h *Host) Retainer() evidence.Retainer { return &retainer{h: h} }

type retainer struct {
	h     *Host
	mu    sync.Mutex
	lease *store.Lease
}

// leaseSerial tells the leases of one process apart.
var leaseSerial atomic.Int64

// Retain implements evidence.Retainer.
func (r *retainer) Retain(ctx context.Context, rec *evidence.Record) (*evidence.Record, error) {
	r.mu.Lock()
	if r.lease == nil {
		st, err := r.h.Store()
		if err == nil {
			r.lease, err = st.Lease(journal.NewID() + "-" + strconv.FormatInt(leaseSerial.Add(1), 10))
		}
		if err != nil {
			r.mu.Unlock()
			return nil, err
		}
	}
	lease := r.lease
	r.mu.Unlock()
	return lease.Retain(ctx, rec)
}

// Release implements evidence.Retainer: it ends the lease; the next record takes a new one.
func (r *retainer) Release() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.lease == nil {
		return nil
	}
	err := r.lease.Close()
	r.lease = nil
	return err
}

// Available reports why no contained run can start, nil where one can. It starts nothing.
func (h *Host) Available(ctx context.Context) error {
	if h.opened() != nil {
		return nil
	}
	if _, _, err := images.Worker(); err != nil {
		return err
	}
	_, err := h.choose(ctx)
	return err
}

func (h *Host) opened() *machine {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.machine
}

// open makes the machine, once; a failure is not remembered, because an engine may be started later.
func (h *Host) open(ctx context.Context) (*machine, error) {
	if m := h.opened(); m != nil {
		return m, nil
	}
	h.opening.Lock()
	defer h.opening.Unlock()
	if m := h.opened(); m != nil {
		return m, nil
	}
	m, err := h.assemble(ctx)
	if err != nil {
		return nil, err
	}
	h.mu.Lock()
	h.machine = m
	h.mu.Unlock()
	return m, nil
}

func (h *Host) assemble(ctx context.Context) (*machine, error) {
	_, workerSHA256, err := images.Worker()
	if err != nil {
		return nil, err
	}
	st, err := h.Store()
	if err != nil {
		return nil, err
	}
	driver, err := h.choose(ctx)
	if err != nil {
		return nil, err
	}
	owner, err := journal.Open(ctx, h.config.StateDir)
	if err != nil {
		return nil, err
	}
	m := &machine{owner: owner, runtime: driver}
	if h.config.Keeper != nil {
		args := append(append([]string{}, h.config.Keeper...), h.config.StateDir, owner.ID())
		if m.keeper, err = keeper.Start(ctx, keeper.Options{Args: args}); err != nil {
			return nil, errors.Join(err, owner.Close())
		}
	}
	m.runner = run.New(run.Options{
		Runtime: driver, Class: h.config.Runtime, Owner: owner, WorkerSHA256: workerSHA256, Concurrent: h.config.Concurrent,
		Ceiling:  cgroup.Detect().Ceiling,
		Image:    func(_ context.Context, name string) (sandbox.Image, error) { return h.image(driver, name) },
		Create:   func(ctx context.Context) (volume.Sink, error) { return st.Create(ctx) },
		HostFull: func(err error) bool { return errors.Is(err, cgroup.ErrCeiling) },
	})
	background, stop := context.WithCancel(context.WithoutCancel(ctx))
	m.stop = stop
	m.sweeper.Go(func() { h.sweepRegularly(background) })
	return m, nil
}

// image resolves an image for a driver: the oci driver starts from an unpacked root, the engine from its own copy.
func (h *Host) image(driver sandbox.Runtime, name string) (sandbox.Image, error) {
	img, err := images.Get(name)
	if err != nil {
		return sandbox.Image{}, err
	}
	if driver.Name() != DriverOCI {
		return img.Sandbox(""), nil
	}
	root, err := img.RootFS(h.config.StateDir)
	if err != nil {
		return sandbox.Image{}, err
	}
	return img.Sandbox(root), nil
}

// Drivers returns the drivers that the configuration admits, in the order of preference. The caller need not close
// them.
func (h *Host) Drivers() ([]sandbox.Runtime, error) { return h.drivers(h.config.Driver) }

func (h *Host) drivers(name string) ([]sandbox.Runtime, error) {
	d, err := docker.New(docker.Options{Host: h.config.EngineHost})
	if err != nil {
		return nil, err
	}
	all := []sandbox.Runtime{d, oci.New(oci.Options{})}
	if name == DriverAuto {
		return all, nil
	}
	for _, r := range all {
		if r.Name() == name {
			return []sandbox.Runtime{r}, nil
		}
	}
	return nil, fault.New(fault.ConfigurationInvalid, "There is no such sandbox driver.", "Set REA_SANDBOX_DRIVER to auto, docker or oci.").
		With("settings", []map[string]string{{"setting": "REA_SANDBOX_DRIVER", "constraint": "auto, docker or oci"}})
}

// choose returns the first driver that can run here. What was asked for by name is never replaced.
func (h *Host) choose(ctx context.Context) (sandbox.Runtime, error) {
	drivers, err := h.Drivers()
	if err != nil {
		return nil, err
	}
	var missing []sandbox.Facts
	for _, d := range drivers {
		facts, err := d.Probe(ctx)
		if err != nil {
			return nil, err
		}
		if facts.Available && !h.lacksClass(&facts) {
			return d, nil
		}
		missing = append(missing, facts)
	}
	return nil, noDriver(missing)
}

// lacksClass reports whether a driver cannot give the runtime class that was asked for, and notes why. A driver that
// was named itself says why when it is asked to.
func (h *Host) lacksClass(f *sandbox.Facts) bool {
	class := h.config.Runtime
	if _, known := f.Runtimes[class]; class == "" || known || h.config.Driver != DriverAuto {
		return false
	}
	f.Reason = fmt.Sprintf("It has no runtime class %q here.", class)
	f.Action = "Install that runtime, or leave REA_SANDBOX_RUNTIME unset."
	return true
}

func noDriver(missing []sandbox.Facts) error {
	message, action := "No container can be started on this host:", ""
	engines := map[string]string{}
	for _, f := range missing {
		message += fmt.Sprintf(" %s: %s", f.Driver, f.Reason)
		engines[f.Driver] = f.Reason
		if action == "" {
			action = f.Action
		}
	}
	return fault.New(fault.CapabilityUnavailable, message, action+" rea doctor shows everything that is missing.").
		With("engine", nil).With("image", nil).With("feature", "container").With("drivers", engines).With("outcome", string(run.Infrastructure))
}
