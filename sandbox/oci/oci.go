// Package oci is the driver that executes an OCI runtime directly: no engine, no daemon, one runc process a run.
//
// Everything a run needs is made here and journalled before it is made: the run's cgroup, the evidence volume, the
// staging mounts of its targets and the bundle with the rendered spec. runc itself runs inside the run's cgroup, so
// that killing the cgroup leaves nobody behind who could still make a container. Package oci must not use a shell, a
// path that it did not make itself, or an image that is not already unpacked.
package oci

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"rea/evidence/fault"
	"rea/sandbox"
	"rea/sandbox/cgroup"
	"rea/sandbox/staging"
	"rea/sandbox/userns"
)

// DriverName is this driver's name in settings, proofs, journals and errors.
const DriverName = "oci"

// The runtime classes that this driver offers: the first where a Spec names none.
const (
	defaultRuntime = "runc"
	gvisor         = "runsc"
)

// Options configures a Driver.
type Options struct {
	// Runtime is the runc binary, by name or by absolute path; "" is runc.
	Runtime string
}

// Driver makes sandboxes with runc 1.1 or later. It implements sandbox.Runtime; its methods may be called concurrently.
type Driver struct {
	runtime  string
	noUserNS func() string // why runs have no user namespace of their own, "" when they do

	mu    sync.Mutex
	found map[string]*program // the usable runtimes that were found, by class
}

var _ sandbox.Runtime = (*Driver)(nil)

// New returns a driver. It looks for nothing yet: a missing runtime is an error of the first call that needs it.
func New(o Options) *Driver {
	if o.Runtime == "" {
		o.Runtime = defaultRuntime
	}
	return &Driver{runtime: o.Runtime, noUserNS: userns.Obstacle, found: map[string]*program{}}
}

// Name is "oci".
func (d *Driver) Name() string { return DriverName }

// Probe says what this driver finds: runc's version, the cgroup mode, this process's privileges, and why it cannot be
// used if it cannot. Its error is a context's end; what is missing is a fact.
func (d *Driver) Probe(ctx context.Context) (sandbox.Facts, error) {
	host := cgroup.Detect()
	facts := sandbox.Facts{
		Driver: DriverName, CgroupMode: string(host.Mode), CgroupDriver: string(host.Manager),
		Privileged: staging.Privileged() && host.Usable, Runtimes: map[string]string{}, Missing: []string{},
	}
	runc, runtimeErr := d.program(ctx, classes[defaultRuntime])
	if err := context.Cause(ctx); err != nil {
		return sandbox.Facts{}, fault.From(err)
	}
	if runc != nil {
		facts.EngineVersion = runc.version
		facts.Runtimes[runc.kind] = runc.version
	}
	if _, err := lookup(gvisor); err == nil {
		facts.Runtimes[gvisor] = "" // to ask it for its version would cost every start of rea more than a run of runc
	}
	if _, ok := unifiedTree(); !ok {
		facts.Missing = append(facts.Missing, unprovedRuntime)
	}
	if obstacle := d.noUserNS(); obstacle != "" {
		facts.Missing = append(facts.Missing, "Runs have no user namespace of their own: "+obstacle+".")
	}
	var why *fault.Error
	if err := errors.Join(privileges(), runtimeErr); errors.As(err, &why) {
		facts.Reason, facts.Action = why.Message, why.Action
	} else if !host.Usable {
		facts.Reason, facts.Action = host.Reason, host.Action
	}
	facts.Available = facts.Reason == ""
	return facts, nil
}

// usable refuses what this driver cannot run, before anything is made.
func (d *Driver) usable(ctx context.Context, name string) (*program, error) {
	if name == "" {
		name = defaultRuntime
	}
	c, known := classes[name]
	if !known {
		return nil, unavailable("runtime "+name,
			fmt.Sprintf("The runtime class %q is not available: %s.", name, refusal(name)),
			"Leave the runtime class away (REA_SANDBOX_RUNTIME), or set it to runc or runsc.")
	}
	if err := privileges(); err != nil {
		return nil, err
	}
	return d.program(ctx, c)
}

// privileges refuses an ordinary user: without mounts and cgroups of ours a run would have no quotas and no limits.
func privileges() error {
	if staging.Privileged() {
		return nil
	}
	return unavailable("mounts and cgroups",
		"The oci driver needs the right to make mounts and cgroups, which this user does not have.",
		"Run rea as root, or use the docker driver (REA_SANDBOX_DRIVER=docker) as a member of the engine's group.")
}

// refusal says why a runtime is not used. None is ever replaced by another silently.
func refusal(kind string) string {
	switch kind {
	case "crun":
		if cgroup.Detect().Mode == cgroup.Hybrid {
			return "crun does not work on a host whose cgroups are in hybrid mode, like this one"
		}
		return "crun was not verified with this driver yet"
	case gvisor:
		return "gVisor is asked for as a runtime class (REA_SANDBOX_RUNTIME), and not put in runc's place"
	}
	return "this driver does not know it"
}

// unavailable is the error for something that this host lacks.
func unavailable(feature, message, action string) *fault.Error {
	return fault.New(fault.CapabilityUnavailable, message, action).
		WithAll(fault.Details{"engine": DriverName, "image": nil, "feature": feature})
}

// broken is the error for a step of a run that the host refused although everything needed seemed to be there.
func broken(what string, err error) *fault.Error {
	return fault.New(fault.ProviderUnavailable, fmt.Sprintf("The sandbox could not be made: %s failed.", what),
		"Repeat the call; if it fails again, run rea doctor and look at the free memory and disk of this host.").
		WithAll(fault.Details{"engine": DriverName, "stage": what}).Because(err)
}

// asFault keeps a typed error and types any other one as the failure of a step.
func asFault(what string, err error) error {
	var f *fault.Error
	if err == nil || errors.As(err, &f) {
		return err
	}
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return fault.From(err)
	}
	return broken(what, err)
}

// containerID is the container's name for runc and in the journal; it is never used twice because a run id is not.
func containerID(run string) string { return sandbox.Prefix + "-" + run }
