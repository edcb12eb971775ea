package cgroup

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path"
	"strings"

	"github.com/coreos/go-systemd/v22/dbus"
	godbus "github.com/godbus/dbus/v5"
	"golang.org/x/sys/unix"

	"rea/evidence/fault"
)

// On a v2 host that runs systemd all groups are systemd's, and a run gets a slice: a unit that only holds other units.
// Its limits are properties of the unit, because systemd sets the kernel's files back to them whenever a container
// starts in it; a directory or a value of our own making would not last.
//
// A dash in a slice's name is a level: rea-<run>.slice lies in rea.slice, which has the host-wide ceiling.
// The library's own way to make a slice (cgroup2.NewSystemd) is not used: it cannot forbid swap, takes an existing
// unit for success, and rounds the processor time up.

// SliceParent is the host-wide parent of every run's slice.
const SliceParent = "/rea.slice"

const (
	sliceSuffix = ".slice"
	// systemdSocket is where systemd itself listens, for root alone; it is there also where no message bus runs.
	systemdSocket = "/run/systemd/private"
	// Names of systemd's errors.
	errUnitExists  = "org.freedesktop.systemd1.UnitExists"
	errNoSuchUnit  = "org.freedesktop.systemd1.NoSuchUnit"
	jobDone        = "done"
	perSecond      = 1_000_000 // microseconds
	ifNothingWaits = "fail"    // job mode: fail if it conflicts with another job
	overOthers     = "replace"
)

// systemdRuns is the test of sd_booted(3).
func systemdRuns() bool {
	info, err := os.Lstat("/run/systemd/system")
	return err == nil && info.IsDir()
}

// withoutSystemd says why this process cannot make slices.
func (t tree) withoutSystemd() (reason, action string) {
	if t.mode != V2 {
		return "the engine makes groups through systemd, which rea follows on cgroup v2 alone",
			"Start the engine with the cgroupfs driver (native.cgroupdriver=cgroupfs), or the host with cgroup v2 (systemd.unified_cgroup_hierarchy=1)."
	}
	if err := unix.Faccessat(unix.AT_FDCWD, systemdSocket, unix.W_OK, unix.AT_EACCESS); err != nil {
		return "this process may not talk to systemd, which makes the control groups of this host",
			"Run rea as root, or use the Docker engine as an ordinary user, where the engine sets the limits."
	}
	return "", ""
}

// unit is the name of the unit that has the group: the last part of its path.
func unit(group string) string { return path.Base(group) }

// systemd is a connection to systemd for one operation.
type systemd struct{ *dbus.Conn }

// dial connects to systemd; the connection ends with ctx, and must be closed.
func dial(ctx context.Context) (systemd, error) {
	conn, err := dbus.NewSystemdConnectionContext(ctx)
	if err != nil {
		return systemd{}, fmt.Errorf("connect to systemd: %w", err)
	}
	return systemd{conn}, nil
}

// await waits for the end of a job that begin asks for.
func (s systemd) await(ctx context.Context, begin func(done chan<- string) (int, error)) error {
	done := make(chan string, 1) // so that the connection never waits for us
	if _, err := begin(done); err != nil {
		return err
	}
	select {
	case result := <-done:
		if result != jobDone {
			return fmt.Errorf("systemd's job ended as %q", result)
		}
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// start makes a slice. That a unit of this name exists is an error which isNamed errUnitExists.
func (s systemd) start(ctx context.Context, name string, properties []dbus.Property) error {
	return s.await(ctx, func(done chan<- string) (int, error) {
		return s.StartTransientUnitContext(ctx, name, ifNothingWaits, properties, done)
	})
}

// stop ends a slice and forgets it. One that is not there is no error.
func (s systemd) stop(ctx context.Context, name string) error {
	err := s.await(ctx, func(done chan<- string) (int, error) {
		return s.StopUnitContext(ctx, name, overOthers, done)
	})
	if isNamed(err, errNoSuchUnit) {
		return nil
	}
	return err
}

// isNamed reports whether err is the error of this name from systemd.
func isNamed(err error, name string) bool {
	var e godbus.Error
	return errors.As(err, &e) && e.Name == name
}

// sliceProperties are a run's limits as systemd.resource-control(5) names them. The accounting is what gives the group
// its controllers.
func sliceProperties(description string, l Limits) []dbus.Property {
	properties := []dbus.Property{
		dbus.PropDescription(description),
		property("CollectMode", "inactive-or-failed"),
		property("MemoryAccounting", true), property("CPUAccounting", true), property("TasksAccounting", true),
	}
	if l.Memory > 0 {
		properties = append(properties, property("MemoryMax", uint64(l.Memory)), property("MemorySwapMax", uint64(0)))
	}
	if l.PIDs > 0 {
		properties = append(properties, property("TasksMax", uint64(l.PIDs)))
	}
	if l.CPU > 0 {
		perSec := quota(l.CPU) * (perSecond / cpuPeriod)
		properties = append(properties, property("CPUQuotaPerSecUSec", uint64(perSec)))
	}
	return properties
}

func property(name string, value any) dbus.Property {
	return dbus.Property{Name: name, Value: godbus.MakeVariant(value)}
}

// makeParentSlice makes the host-wide parent with its ceiling. A parent that somebody's container made without one
// gets it; a lower one that an administrator gave it stays.
func (t tree) makeParentSlice(ctx context.Context) error {
	if _, err := os.Lstat(t.unified + t.parent); err == nil && !unlimited(readFile(t.unified+t.parent, "memory.max")) {
		return nil
	}
	s, err := dial(ctx)
	if err != nil {
		return refused("make the parent slice", err)
	}
	defer s.Close()
	properties := sliceProperties("Contained runs of rea", Limits{Memory: t.pageCeiling()})
	err = s.start(ctx, unit(t.parent), properties)
	if isNamed(err, errUnitExists) && t.ceiling > 0 {
		err = s.SetUnitPropertiesContext(ctx, unit(t.parent), true, limitsOnly(properties)...)
	}
	if err != nil && !isNamed(err, errUnitExists) {
		return refused("make the parent slice", err)
	}
	return nil
}

// limitsOnly leaves the properties that a unit may be given while it runs.
func limitsOnly(all []dbus.Property) []dbus.Property {
	var some []dbus.Property
	for _, p := range all {
		if p.Name != "Description" && p.Name != "CollectMode" {
			some = append(some, p)
		}
	}
	return some
}

// startSlice makes a run's slice with its limits.
func (g *Group) startSlice(ctx context.Context) error {
	s, err := dial(ctx)
	if err != nil {
		return refused("make a run's slice", err)
	}
	defer s.Close()
	err = s.start(ctx, unit(g.path), sliceProperties("A contained run of rea", g.limits))
	if isNamed(err, errUnitExists) {
		return taken()
	}
	if err != nil {
		return refused("make a run's slice", err)
	}
	return nil
}

// stopSlice removes an empty slice and what systemd remembers of the scopes in it. It never stops one that still has
// processes: systemd would ask them to end, and wait for a minute and a half.
func (g *Group) stopSlice(ctx context.Context) error {
	err := retry(ctx, func() (bool, error) {
		n, err := g.Procs()
		if err == nil && n > 0 {
			err = fmt.Errorf("%d processes are in it", n)
		}
		return err == nil, err
	})
	if err != nil {
		return err
	}
	s, err := dial(ctx)
	if err != nil {
		return err
	}
	defer s.Close()
	if err := s.stop(ctx, unit(g.path)); err != nil {
		return err
	}
	return g.removeDirs(ctx) // also what systemd did not make in it
}

// name is the path of a run's group.
func (t tree) name(run string) string {
	if t.manager == Systemd {
		return t.parent + "/" + strings.TrimSuffix(unit(t.parent), sliceSuffix) + "-" + run + sliceSuffix
	}
	return path.Join(t.parent, run)
}

// owns reports whether a path is the group of a run below this tree's parent, in the one way in which we write it.
func (t tree) owns(name string) bool {
	run := path.Base(name)
	if t.manager == Systemd {
		run = strings.TrimSuffix(run, sliceSuffix)
		run = run[strings.LastIndexByte(run, '-')+1:]
	}
	return runForm.MatchString(run) && t.name(run) == name
}

// taken is the error for a run that has a group already.
func taken() *fault.Error {
	return fault.New(fault.ExecutionFailure, "A control group of this run exists already.", "Run rea sandbox sweep, then repeat the call.")
}
